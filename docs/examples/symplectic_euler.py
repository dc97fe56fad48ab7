"""The symplectic Euler method, for systems without constraints."""

import contextlib
from collections.abc import Callable
from typing import ClassVar

import diffrax
import jax.numpy as jnp

import jaxmbd as mbd
from jaxmbd.integrators import AbstractIntegrator
from jaxmbd.system.constraints import n_constraints


class SymplecticEuler(AbstractIntegrator):
    """v₁ = v₀ + h v̇(t₀, q₀, v₀), then q₁ = q₀ ⊞ h v₁, which never leaves the manifold."""

    term_structure: ClassVar[type] = diffrax.ODETerm
    interpolation_cls: ClassVar[Callable] = diffrax.LocalLinearInterpolation

    def terms(self, system):
        if n_constraints(system):
            raise mbd.IncompatibleIntegrator(
                f"SymplecticEuler holds no constraints, and {type(system).__name__} has some; use "
                "JointCoordinates on an open tree, or ExplicitRK"
            )
        return diffrax.ODETerm(_field)

    def advance(self, terms, t0, t1, state, memory, system):
        h, slope = t1 - t0, terms.vf(t0, state, system)
        v = state.v + h * slope.v
        return mbd.State(system.retract(state.q, h * v), v), memory

    # What diffrax asks for: order, memory between steps (none), a step, and a slope.

    def order(self, terms):
        return 1

    def init(self, terms, t0, t1, y0, args):
        return None

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        y1, _ = self.advance(terms, t0, t1, y0, None, args)
        return y1, None, {"y0": y0, "y1": y1}, None, diffrax.RESULTS.successful

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


def _field(t, y, system):
    vdot, _ = mbd.accelerations(system, t, y)
    return mbd.State(system.rates(y.q, y.v), vdot)


def checks():
    """It has the order it claims, refuses constraints, and keeps energy without drift."""
    mbd.testing.check_integrator_order(SymplecticEuler(), 1)

    ball = mbd.inertia.shifted(mbd.inertia.sphere(1.0, 0.05), [0, 0, -0.5])
    hinge = mbd.joints.Revolute(mbd.ground, "ball", [0, 1, 0])
    model = mbd.Model({"ball": ball}, {"hinge": hinge}, {"gravity": mbd.forces.Gravity()})
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": 1.0})
    motion = mbd.simulate(system, state, t1=20.0, dt=0.005, integrator=SymplecticEuler())
    total = motion.energy.total
    early, late = jnp.ptp(total[:1000]), jnp.ptp(total[-1000:])
    assert late < 1.01 * early < 0.05 * jnp.max(motion.energy.kinetic)

    with contextlib.suppress(mbd.IncompatibleIntegrator):
        SymplecticEuler().terms(mbd.formulate(model, mbd.MaximalCoordinates()))
        raise AssertionError("constraints are not refused")

"""The symplectic Euler method, for systems without constraints."""

import contextlib

import jax.numpy as jnp

import jaxmbd as mbd
from jaxmbd.extend import AbstractIntegrator, Attempt, n_constraints


class SymplecticEuler(AbstractIntegrator):
    """v₁ = v₀ + h v̇(t₀, q₀, v₀, z₀), then q₁ = q₀ ⊞ h v₁, which never leaves the manifold."""

    def attempt(self, system, t, h, state, memory):
        slope = self.slope(t, state, system)
        v = state.v + h * slope.v
        return Attempt(mbd.State(system.retract(state.q, h * v), v, state.z + h * slope.z))

    def check(self, system):
        if n_constraints(system):
            raise mbd.IncompatibleIntegrator(
                f"SymplecticEuler holds no constraints, and {type(system).__name__} has some; use "
                "JointCoordinates on an open tree, or ExplicitRK"
            )


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
        SymplecticEuler().check(mbd.formulate(model, mbd.MaximalCoordinates()))
        raise AssertionError("constraints are not refused")

"""Accelerations of trees by generated code, in steps and with derivatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import forces, joints
from jaxmbd.formulations.joint import tree_dynamics
from jaxmbd.model.frame import JointReference
from jaxmbd.system.equation_residuals import motion_residual
from scalarjit.lengths import length
from scalarjit.registered import PREFIX
from tests.marks import thorough_but
from tests.models import chain

pytest.importorskip("llvmlite")

KINDS = {"revolute": joints.Revolute, "spherical": joints.Spherical}


def accelerations(system, q, v):
    return mbd.accelerations(system, 0.0, mbd.State(q, v))[0]


def some(system, q, v):
    """Values and derivatives in reverse mode."""
    return jax.value_and_grad(lambda v: jnp.sum(accelerations(system, q, v) ** 2))(v)


def many(system, q, v):
    """Values, both derivatives, second ones, and derivatives by all numbers of the system."""
    of_v = lambda v: accelerations(system, q, v)  # noqa: E731
    slope = lambda v: jnp.sum(jax.jvp(of_v, (v,), (v,))[1] ** 2)  # noqa: E731
    by_system = eqx.filter_grad(lambda system: jnp.sum(accelerations(system, q, v) ** 2))(system)
    return of_v(v), jax.jacrev(of_v)(v), jax.grad(slope)(v), jax.tree.leaves(by_system)


CASES = [("revolute", some), ("revolute", many), ("spherical", many)]


@pytest.mark.thorough
@pytest.mark.parametrize("case", thorough_but(CASES[:1], CASES))
def test_accelerations_and_derivatives(case):
    kind, ways = case
    system = mbd.formulate(chain(2, KINDS[kind]), mbd.JointCoordinates())
    state = mbd.assemble(system, {})
    v = jnp.outer(jnp.linspace(0.1, 1.0, 9), jnp.cos(jnp.arange(system.nv, dtype=float)))

    @eqx.filter_jit
    def run(system, q, v):
        return ways(system, q, v[0]), jax.vmap(lambda v: ways(system, q, v))(v)

    with scalarjit.enabled(True):
        found, text = run(system, state.q, v), run.lower(system, state.q, v).as_text()
    assert PREFIX in text
    with scalarjit.enabled(False):
        plain = run(system, state.q, v)
    with scalarjit.as_part():  # By the mass matrix, and JAX's derivatives of it.
        expected = run(system, state.q, v)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)  # noqa: E731
    jax.tree.map(close, found, expected)
    jax.tree.map(close, plain, expected)


@pytest.mark.thorough
def test_motions():
    system = mbd.formulate(chain(2), mbd.JointCoordinates())
    state = mbd.assemble(system, {"jlink0000": 0.3})

    @jax.jit
    def ends(v):
        end = lambda v: mbd.rollout(system, mbd.State(state.q, v), 0.01, 5).q[-1]  # noqa: E731
        return jax.vmap(end)(v)

    v = jnp.outer(jnp.linspace(0.0, 1.0, 11), jnp.ones_like(state.v))
    with scalarjit.enabled(True):
        found, text = ends(v), ends.lower(v).as_text()
    assert PREFIX in text
    with scalarjit.enabled(False):
        np.testing.assert_allclose(found, ends(v), rtol=1e-10, atol=1e-12)


WAYS = {
    "joint, explicit": (joints.Revolute, mbd.JointCoordinates(), None),
    "joint, implicit": (joints.Spherical, mbd.JointCoordinates(), mbd.GeneralizedAlpha()),
    "maximal, implicit": (joints.Revolute, mbd.MaximalCoordinates(), mbd.GeneralizedAlpha()),
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_motions_and_gradients_with_and_without_generated_code(way):
    kind, formulation, integrator = WAYS[way]
    system = mbd.formulate(chain(2, kind), formulation)
    state = mbd.assemble(system)

    @jax.jit
    def end_and_slope(v):
        def end(v):
            states = mbd.rollout(system, mbd.State(state.q, v), 0.01, 3, integrator)
            return jnp.sum(states.q[-1] ** 2), states

        return jax.vmap(jax.value_and_grad(end, has_aux=True))(v)

    v = jnp.outer(jnp.linspace(0.1, 1.0, 3), jnp.ones_like(state.v))
    if way.startswith("maximal"):
        v = jnp.zeros_like(v)
    with scalarjit.enabled(False):
        plain = end_and_slope.lower(v)
    with scalarjit.enabled(True):
        own = end_and_slope.lower(v)
    assert PREFIX not in plain.as_text()
    assert PREFIX in own.as_text()
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)  # noqa: E731
    jax.tree.map(close, own.compile()(v), plain.compile()(v))


@pytest.mark.long
def test_a_long_chain_without_generated_code():
    """Recursions give the same accelerations and derivatives, alone and in a batch."""
    system = mbd.formulate(chain(tree_dynamics.MAX_DENSE + 4), mbd.JointCoordinates())
    q = jnp.cos(jnp.arange(system.nv, dtype=float))

    def value_and_slopes(v, x):
        of_v = lambda v: accelerations(system, q, v)  # noqa: E731
        return of_v(v), jax.jvp(of_v, (v,), (x,))[1], jax.vjp(of_v, v)[1](x)[0]

    v = jnp.outer(jnp.array([0.1, 1.0]), jnp.sin(q))
    with scalarjit.enabled(False):
        value, along, back = jax.jit(jax.vmap(value_and_slopes))(v, jnp.cos(v))
    M = system.mass_at(system.configuration(0.0, q))

    def expected(v, x):
        force = lambda v: -motion_residual(system, system.configuration(0.0, q), v, 0 * v)  # noqa: E731
        b, slope = jax.jvp(force, (v,), (x,))
        return *jnp.linalg.solve(M, jnp.stack([b, slope], 1)).T, jax.vjp(force, v)[1](
            jnp.linalg.solve(M, x)
        )[0]

    wanted = jax.jit(jax.vmap(expected))(v, jnp.cos(v))
    for found, x in zip((value, along, back), wanted, strict=True):
        np.testing.assert_allclose(found, x, atol=1e-9 * np.abs(x).max())


class Held(forces.AbstractJointForce):
    """A force with a number that is no leaf of the model."""

    joint: JointReference
    factor: Any = eqx.field(static=True)

    def force(self, t, q, v):
        return self.factor() * q


@pytest.mark.long
@pytest.mark.parametrize("on", [True, False])
def test_derivatives_by_values_that_a_force_closes_over(on):
    bodies = {"rod": mbd.inertia.rod(mass=1.0, length=1.0)}
    hinge = {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])}

    def vdot(k):
        model = mbd.Model(bodies, hinge, {"held": Held(JointReference("hinge"), lambda: k)})
        system = mbd.formulate(model, mbd.JointCoordinates())
        return accelerations(system, jnp.array([0.3]), jnp.zeros(1))[0]

    with scalarjit.enabled(on):
        value, slope = jax.jit(jax.value_and_grad(vdot))(-2.0)
    np.testing.assert_allclose(value, -2.0 * slope, rtol=1e-12)
    assert slope > 1.0


class Seen(forces.AbstractJointForce):
    """A force that tells whether its arguments are numbers or descriptions of arrays."""

    joint: JointReference
    seen: list = eqx.field(static=True)

    def force(self, t, q, v):
        self.seen.append(isinstance(getattr(q, "val", q), jax.core.Tracer))  # `val`: of `vmap`.
        return 0 * q


@pytest.mark.long
def test_forces_see_numbers_without_jit():
    bodies = {"rod": mbd.inertia.rod(mass=1.0, length=1.0)}
    hinge = {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])}
    seen = []
    model = mbd.Model(bodies, hinge, {"seen": Seen(JointReference("hinge"), seen)})
    system = mbd.formulate(model, mbd.JointCoordinates())
    with jax.disable_jit():
        accelerations(system, jnp.array([0.3]), jnp.zeros(1))
    assert not seen[-1]


@pytest.mark.long
def test_equations_of_thirty_links_are_short_enough():
    """30 links once took 70 times as long as 10, without generated code."""

    def residual(system, state, vdot):
        return mbd.inverse_dynamics(system, 0.0, state, vdot)

    about = {}
    for n in (15, 30):
        system = mbd.formulate(chain(n), mbd.JointCoordinates())
        state = mbd.assemble(system)
        about[n], _ = length(eqx.filter_make_jaxpr(residual)(system, state, state.v)[0].jaxpr)
    assert about[30] < 2.2 * about[15] < 80_000

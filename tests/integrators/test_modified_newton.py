"""Modified Newton, the default, beside full Newton: states, and derivatives in both modes."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, inertia, joints
from jaxmbd.nonlinear import Newton

FULL, MODIFIED = Newton(tolerance=0.0, chord=False), Newton(tolerance=0.0)

METHODS: dict[str, Callable[[Newton | None], mbd.integrators.AbstractIntegrator]] = {
    "generalized-alpha": lambda newton: mbd.GeneralizedAlpha(0.8, newton=newton),
    "generalized-alpha 2": lambda newton: mbd.GeneralizedAlpha(0.8, index=2, newton=newton),
    "bdf": lambda newton: mbd.BDF(newton=newton),
    "bdf 4": lambda newton: mbd.BDF(4, index=3, newton=newton),
    "energy-momentum": lambda newton: mbd.EnergyMomentum(newton=newton),
    "energy-decaying": lambda newton: mbd.EnergyDecaying(newton=newton),
    "simo-gonzalez": lambda newton: mbd.SimoGonzalez(newton=newton),
}
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
}
ALL = [
    ("generalized-alpha", "joint"),
    ("generalized-alpha", "maximal"),
    ("generalized-alpha", "natural"),
    ("generalized-alpha 2", "maximal"),
    ("bdf", "joint"),
    ("bdf", "maximal"),
    ("bdf 4", "maximal"),
    ("energy-momentum", "maximal"),
    ("energy-decaying", "maximal"),
    ("simo-gonzalez", "natural"),
]


def pendulum(stiffness: float) -> mbd.Model:
    """Two links that a spring pulls into its length."""
    link = inertia.shifted(inertia.cylinder(1.0, 0.05, 0.5), [0, 0, -0.25])
    return mbd.Model(
        {"a": link, "b": link},
        {
            "one": joints.Revolute(mbd.ground, "a", axis=[0, 1, 0]),
            "two": joints.Revolute(Frame("a", [0, 0, -0.5]), "b", axis=[0, 1, 0]),
        },
        {
            "weight": forces.Gravity(),
            "spring": forces.SpringDamper(
                Frame("ground", [0.7, 0.0, -0.3]), Frame("b", [0, 0, -0.3]), stiffness, 20.0, 0.6
            ),
        },
    )


# Stiffness [N/m], first velocities [rad/s], step [s], and number of steps.
MOTIONS = {
    "fast": (10.0, (25.0, -60.0), 2e-3, 120),
    "stiff": (1e5, (0.5, 0.5), 2e-3, 60),
    "from rest": (0.0, (0.0, 0.0), 1e-2, 150),
}


CASES = [(*way, "fast") for way in ALL] + [(*ALL[0], motion) for motion in list(MOTIONS)[1:]]


def end_of(motion: str, formulation: str):
    """A function of a method and changes of mass, speed and stiffness, with the last state."""
    stiffness, rates, h, n_steps = MOTIONS[motion]
    model = pendulum(stiffness)

    def end(changes, method):
        wide = changes.astype(jnp.float64)
        changed = eqx.tree_at(
            lambda m: (m.bodies["b"].mass, m.forces["spring"].stiffness),
            model,
            (
                model.bodies["b"].mass * (1.0 + wide[0]),
                model.forces["spring"].stiffness * (1.0 + wide[1]),
            ),
        )
        system = mbd.formulate(changed, FORMULATIONS[formulation], dtype=changes.dtype)
        v = jnp.asarray(rates, changes.dtype) * (1.0 + changes[2])
        state = mbd.assemble(system, {"one": 0.3, "two": -0.2}, {"one": v[0], "two": v[1]})
        states = mbd.rollout(system, state, h, n_steps, method)
        return jnp.concatenate([states.q[-1], states.v[-1]])

    return end


@eqx.filter_jit
def together(end, method, changes):
    """The last state, its Jacobian in forward mode, and the gradient of a sum in reverse mode."""
    weights = 1.0 + jnp.arange(100, dtype=changes.dtype)

    def total(changes):
        x = end(changes, method)
        return jnp.sum(weights[: x.size] * x), x

    forward, _ = jax.jvp(total, (changes,), (jnp.ones_like(changes),))[1]
    gradient, x = jax.grad(total, has_aux=True)(changes)
    return x, forward, gradient


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_states_and_derivatives_are_those_of_full_newton(case):
    method, formulation, motion = case
    end, none = end_of(motion, formulation), jnp.zeros(3)
    expected, found = (together(end, METHODS[method](newton), none) for newton in (FULL, MODIFIED))
    size = np.abs(expected[0]).max()
    np.testing.assert_allclose(found[0], expected[0], atol=1e-10 * size)
    gradient = np.abs(expected[2]).max()
    assert 0.0 < gradient < np.inf
    for a, b in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * gradient)
    np.testing.assert_allclose(found[1], jnp.sum(found[2]), rtol=1e-9, atol=1e-9 * gradient)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", ["joint", "maximal"])
def test_each_member_of_a_batch_has_its_own_derivatives(formulation):
    """Slow and fast motions together, beside full Newton and beside finite differences."""
    end = end_of("fast", formulation)
    batch = jnp.array([[0.0, 0.0, 0.0], [0.3, 0.1, -0.9], [-0.2, 0.5, 0.2]])

    def total(method, changes):
        return jnp.sum(end(changes, method))

    def gradients(newton):
        method = METHODS["generalized-alpha"](newton)
        each = eqx.filter_jit(jax.vmap(lambda x: jax.value_and_grad(total, 1)(method, x)))
        return each(batch)

    (values, found), (_, expected) = gradients(MODIFIED), gradients(FULL)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    method, h = METHODS["generalized-alpha"](MODIFIED), 1e-5
    value = eqx.filter_jit(jax.vmap(lambda x: total(method, x)))
    np.testing.assert_allclose(value(batch), values, rtol=1e-10)
    for k in range(3):
        ahead, behind = (value(batch.at[:, k].add(s * h)) for s in (1.0, -1.0))
        difference = (ahead - behind) / (2.0 * h)
        np.testing.assert_allclose(found[:, k], difference, rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", ["joint", "maximal"])
def test_single_precision(formulation):
    end, none = end_of("fast", formulation), jnp.zeros(3, jnp.float32)
    method = METHODS["generalized-alpha"](None)
    exact, x = together(end, method, jnp.zeros(3)), together(end, method, none)
    for a, b in zip(x, exact, strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, atol=2e-2 * np.abs(b).max())

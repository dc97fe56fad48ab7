"""Gradients of rollouts by some of the numbers that a motion depends on, the others at rest.

JAX leaves out the tangents of what does not move, so that each choice of moving numbers is another
program.
"""

from functools import cache
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals

DT, N_STEPS = 0.02, 2
# Changes of these: a first angle, a velocity, a mass, and so on.
REST = {"q": 0.0, "v": 0.0, "mass": 0.0, "gravity": 0.0, "amplitude": 0.0, "frequency": 0.0}
SUBSETS = {
    "velocity": ("v",),
    "mass": ("mass",),
    "gravity": ("gravity",),
    "force": ("amplitude",),
    "signal": ("frequency",),
    "model": ("mass", "gravity", "amplitude"),
    "all but coordinates": ("v", "mass", "gravity", "amplitude", "frequency"),
    "all": tuple(REST),
}
SYSTEMS = {
    "spherical, joint": (joints.Spherical, mbd.JointCoordinates()),
    "free, joint": (joints.Free, mbd.JointCoordinates()),
    "spherical, maximal": (joints.Spherical, mbd.MaximalCoordinates()),
    "free, maximal": (joints.Free, mbd.MaximalCoordinates()),
}
INTEGRATORS = {"implicit": mbd.GeneralizedAlpha(), "explicit": None}


def end(x, moving, kind, formulation, integrator):
    """Coordinates and velocities after some steps of a top, or of a body that floats."""
    by = REST | dict(zip(moving, x, strict=True))
    push = signals.Sine(jnp.array([1.0, 2.0, 0.5]) * (1.0 + by["amplitude"]), 0.7 + by["frequency"])
    body = mbd.RigidBody(1.2 + by["mass"], jnp.diag(jnp.array([0.2, 0.3, 0.4])), (0.1, 0.2, -0.5))
    model = mbd.Model(
        bodies={"top": body},
        joints={"joint": kind(Frame("ground"), Frame("top"))},
        forces={
            "gravity": forces.Gravity(jnp.array([0.0, 0.5, -9.81]) * (1.0 + by["gravity"])),
            "push": forces.AppliedForce(Frame("top", (0.0, 0.3, -1.0)), push),
        },
    )
    system = mbd.formulate(model, formulation)
    rotated = jnp.array([0.8, 0.6, 0.0, 0.0]) + by["q"] * jnp.array([-0.6, 0.8, 0.0, 0.0])
    place = [] if system.nq == 4 else [jnp.zeros(3)]
    v = jnp.linspace(0.3, 1.1, system.nv) * (1.0 + by["v"])
    if kind is joints.Spherical and system.nv == 6:  # The body's origin stays where it is.
        v = v.at[:3].set(0.0)
    state = mbd.State(jnp.concatenate([*place, rotated / jnp.linalg.norm(rotated)]), v)
    states = mbd.rollout(system, state, DT, N_STEPS, integrator, 0.3)
    return jnp.concatenate([states.q[-1], states.v[-1]])


def by_jacfwd(fn, x):
    return jax.jacfwd(fn)(x)


def by_jvp(fn, x):
    return jnp.stack([jax.jvp(fn, (x,), (e,))[1] for e in jnp.eye(x.size)], axis=-1)


def by_vjp(fn, x):
    y, pull = jax.vjp(fn, x)
    return jax.vmap(lambda e: pull(e)[0])(jnp.eye(y.size))


def by_vmap_of_jacfwd(fn, x):
    return jax.vmap(jax.jacfwd(fn))(jnp.stack([x + 0.1, x, x - 0.1]))[1]


def weights(y):
    return jnp.linspace(1.0, 2.0, y.size)


def by_grad(fn, x):
    def weighted(x):
        y = fn(x)
        return weights(y) @ y

    return jax.grad(weighted)(x)


def by_vmap_of_grad(fn, x):
    return jax.vmap(lambda x: by_grad(fn, x))(jnp.stack([x + 0.1, x, x - 0.1]))[1]


def by_hessian(fn, x):
    def weighted(x):
        y = fn(x)
        return weights(y) @ y

    return jax.hessian(weighted)(x)


WAYS = {
    "jacfwd": by_jacfwd,
    "grad": by_grad,
    "jvp": by_jvp,
    "vjp": by_vjp,
    "vmap of jacfwd": by_vmap_of_jacfwd,
    "vmap of grad": by_vmap_of_grad,
    "hessian": by_hessian,
}


def columns(fn, x, h=1e-3):
    """Derivatives of `fn` by central differences of fourth order, along the last axis."""

    def slope(e):
        near, far = fn(x + h * e) - fn(x - h * e), fn(x + 2 * h * e) - fn(x - 2 * h * e)
        return (8 * near - far) / (12 * h)

    return np.stack([slope(e) for e in np.eye(x.size)], axis=-1)


@cache
def jacobian(system, integrator):
    """Differences by all numbers."""
    fn = jax.jit(lambda x: end(x, tuple(REST), *SYSTEMS[system], INTEGRATORS[integrator]))
    return columns(lambda x: np.asarray(fn(x)), np.zeros(len(REST)))


@cache
def hessian(system, integrator):
    """Differences of the gradient by all numbers."""
    model = *SYSTEMS[system], INTEGRATORS[integrator]
    slope = jax.jit(lambda x: by_grad(lambda x: end(x, tuple(REST), *model), x))
    return columns(lambda x: np.asarray(slope(x)), np.zeros(len(REST)))


def differences(way, subset, system, integrator):
    moving = [list(REST).index(name) for name in subset]
    if way == "hessian":
        return hessian(system, integrator)[np.ix_(moving, moving)]
    found = jacobian(system, integrator)[:, moving]
    return weights(found[:, 0]) @ found if "grad" in way else found


REGULAR = {("spherical, joint", "implicit", "gravity", "jvp")}
FEW = ("velocity", "signal", "model", "all but coordinates")


def cases():
    """All transformations of one system by some numbers; others by one of them in turn."""
    yield from REGULAR
    turns = cycle(way for way in WAYS if way != "hessian")
    for system in SYSTEMS:
        for integrator in INTEGRATORS:
            whole = (system, integrator) == ("spherical, joint", "implicit")
            for subset in SUBSETS if whole else FEW:
                for way in WAYS if whole and subset in FEW else [next(turns)]:
                    if way != "hessian" or subset == "all but coordinates":
                        yield system, integrator, subset, way


def marked(case):
    return pytest.param(*case, marks=() if case in REGULAR else pytest.mark.thorough)


@pytest.mark.long
@pytest.mark.parametrize(
    ("system", "integrator", "subset", "way"), list(map(marked, dict.fromkeys(cases())))
)
def test_derivatives_are_those_of_differences(system, integrator, subset, way):
    def fn(x):
        return end(x, SUBSETS[subset], *SYSTEMS[system], INTEGRATORS[integrator])

    found = jax.jit(lambda x: WAYS[way](fn, x))(jnp.zeros(len(SUBSETS[subset])))
    wanted = differences(way, SUBSETS[subset], system, integrator)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    assert np.abs(wanted).max() > 1e-5

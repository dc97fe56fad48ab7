"""Accelerations of trees with a flexible body in single precision are near, or NaN."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.system.mass_and_energy import twist_rates
from tests.bodies.test_flexible import slim

GRAVITY = 9.81  # [m/s²]
ERROR = 0.01  # Largest error of a finite acceleration.
RANGES = [(-1, 1), (-3, 3), (-6, 6)]  # Decimal logarithms of factors of masses.
TYPES = ("float32", "float64")
BOX = (0.3, 0.1, 0.05)  # [m]


def floating():
    """A box in free motion, a soft rod on a hinge, and two boxes behind its tip."""
    box = mbd.inertia.shifted(mbd.inertia.box(1.0, BOX), [0.1, 0, 0])
    base, tip = (Frame("rod", node=name) for name in ("base", "tip"))
    return mbd.Model(
        {"hub": box, "rod": slim(E=7e8), "lower": box, "last": box},
        {
            "float": joints.Free("ground", "hub"),
            "hinge": joints.Revolute(Frame("hub", [0.2, 0, 0]), base, [0, 1, 0.3]),
            "ball": joints.Spherical(tip.at([0, 0.02, 0]), "lower"),
            "pin": joints.Revolute(Frame("lower", [0.3, 0, 0]), "last", [0, 1, 1]),
        },
        {"gravity": forces.Gravity()},
    )


def loop():
    """The same, with two more joints to the ground."""
    model, pivot = floating(), joints.Spherical("ground", Frame("hub", [-0.1, 0, 0]))
    bar = joints.PointOnPlane("ground", Frame("last", [0.3, 0, 0]), [0, 1, 2])
    return mbd.Model(model.bodies, model.joints | {"pivot": pivot, "bar": bar}, model.forces)


# Radii of gyration [m] make accelerations of angles comparable.
RADII = {
    "box": np.sqrt((np.sum(np.square(BOX)) - np.square(BOX)) / 12),
    "rod": [0.0104, 0.29, 0.29],
}


def scaled(model, masses, stiffness):
    """The model with masses and inertias times a factor a body, and another stiffness."""
    bodies = dict(model.bodies)
    for k, name in enumerate(("hub", "lower", "last")):
        both = masses[k] * bodies[name].mass, masses[k] * bodies[name].inertia
        bodies[name] = eqx.tree_at(lambda b: (b.mass, b.inertia), bodies[name], both)

    def fields(b):
        return b.mass, b.first, b.second, b.damping, b.stiffness

    *inertial, K = (masses[3] * x for x in fields(bodies["rod"]))
    bodies["rod"] = eqx.tree_at(fields, bodies["rod"], (*inertial, stiffness * K))
    return eqx.tree_at(lambda m: m.bodies, model, bodies)


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


@eqx.filter_jit
def rates(model, q, draws, formulation):
    """Accelerations of all bodies and of elastic coordinates of each draw, near q [m/s²]."""

    def one(draw):
        masses, stiffness, dq, v = draw
        system = mbd.formulate(scaled(model, masses, stiffness), formulation)
        t = jnp.zeros((), v.dtype)
        state = mbd.State(system.retract(q.astype(v.dtype), dq), v)
        vdot, _ = mbd.accelerations(system, t, state)
        c, mechanism = system.configuration(t, state.q), system.mechanism
        bodies = twist_rates(system, c, v, vdot)[1 : mechanism.n_bodies + 1]
        names = mechanism.topology.bodies[1:]
        radii = np.array([RADII["rod" if name == "rod" else "box"] for name in names])
        weights = jnp.asarray(np.concatenate([np.ones((len(names), 3)), radii], axis=1), v.dtype)
        return jnp.concatenate([(bodies * weights).ravel(), c.elastic_rates(vdot)])

    return jax.lax.map(one, draws)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "formulation", "n"),
    [
        pytest.param(floating, mbd.JointCoordinates(), 50, id="tree-joint"),
        pytest.param(floating, mbd.MaximalCoordinates(), 2000, id="tree-maximal"),
        pytest.param(loop, mbd.JointCoordinates(), 2000, id="loop-joint"),
    ],
)
def test_finite_accelerations_are_near(model, formulation, n):
    """Without checks, a quarter of the tree's draws over 6 decades are off by up to 1,000 %.

    In maximal coordinates few are, by up to 30 %.
    """
    model, rng = model(), np.random.default_rng(5)
    system, parts = mbd.formulate(model, formulation), []
    q = mbd.assemble(system).q.astype("float32")
    model = cast(model, "float32")  # Both compute with the same numbers.
    size = 0.1 if mbd.system.constraints.n_constraints(system) else 1.0  # They stay nearly closed.
    for bounds in RANGES:
        masses = 10 ** rng.uniform(*bounds, size=(n, 4))
        dq, v = rng.normal(size=(2, n, system.nv))
        dq[:, -2:] *= 1e-3
        v[:, -2:] *= 0.1
        moving = np.arange(n)[:, None] % 2
        parts.append((masses, 10 ** rng.uniform(-2, 3, size=n), size * dq, moving * v))
    draws = [np.concatenate(x).astype("float32") for x in zip(*parts, strict=True)]
    single, double = (
        np.asarray(rates(cast(model, x), q, [jnp.asarray(y, x) for y in draws], formulation))
        for x in TYPES
    )
    error = np.abs(single - double).max(axis=1) / (np.abs(double).max(axis=1) + GRAVITY)
    finite = np.isfinite(error).reshape(len(RANGES), n).mean(axis=1)
    assert not np.any(error > ERROR)
    assert finite[0] == 1.0, finite
    assert finite[1] > 0.5, finite


@pytest.mark.thorough
def test_a_rod_at_rest_has_finite_accelerations():
    """All loads cancel: it hangs straight down."""
    hinge = joints.Revolute("ground", Frame("rod", node="base"), [0, 1, 0])
    model = mbd.Model({"rod": slim()}, {"hinge": hinge}, {"gravity": forces.Gravity()})
    system = mbd.formulate(cast(model, "float32"), mbd.JointCoordinates())
    state = mbd.assemble(system, {"hinge": np.pi / 2})
    vdot, _ = mbd.accelerations(system, 0.0, state)
    assert vdot.dtype == np.float32
    assert np.all(np.abs(vdot) < 1e-5 * GRAVITY)

"""Points of contact against closed forms, and the contracts of every pair of shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, testing
from jaxmbd.forces import AbstractFrameForce, Contact
from jaxmbd.lie import Pose, se3, so3
from tests.marks import thorough_but

T = jnp.asarray(0.3)
LAW = contact.HuntCrossley(30.0, 0.2, 1.5)
ROUGH = contact.Coulomb(0.4, 0.5)
ROLLING = contact.RollingResistance(0.1, 0.05, 1.0)
FLOOR, BALL = contact.HalfSpace("b"), contact.Sphere("a", 1.5)
PAIRS = {
    "sphere on floor": (BALL, FLOOR),
    "floor under sphere": (contact.HalfSpace("a"), contact.Sphere("b", 1.5)),
    "sphere on sphere": (BALL, contact.Sphere("b", 0.8)),
    "sphere on box": (BALL, contact.Box("b", [1.0, 1.4, 0.8])),
    "sphere on capsule": (BALL, contact.Capsule("b", 0.4, 1.2)),
    "box on floor": (contact.Box("a", [1.0, 1.4, 0.8]), FLOOR),
    "capsule on floor": (contact.Capsule("a", 0.4, 1.2, 3), FLOOR),
    "cylinder on floor": (contact.Cylinder("a", 0.7, 1.2), FLOOR),
    "disc on floor": (contact.Disc("a", 0.7), FLOOR),
    "sphere on slope": (BALL, contact.Terrain("b", contact.Slope([0.3, -0.2]))),
    "sphere on waves": (
        contact.Sphere("a", 0.5),
        contact.Terrain("b", contact.Washboard(0.1, 3.0)),
    ),
}


class AsForce(AbstractFrameForce):
    """A contact without states, as the checks of forces take it."""

    contact: Contact

    def wrenches(self, t, X, V):
        return self.contact.load(t, X, V, jnp.zeros(0))

    def potential(self, t, X):
        return self.contact.potential(t, X)


@pytest.mark.thorough
@pytest.mark.parametrize("pair", thorough_but(["floor under sphere", "sphere on box"], [*PAIRS]))
def test_contract(pair):
    """Wrenches in balance, that of a potential at rest, no gain; derivatives at the centres too."""
    law = AsForce(Contact(*PAIRS[pair], LAW, ROUGH, ROLLING))
    testing.check_frame_force(law, jax.random.key(3), passive=True)


@jax.jit
def points(a, b, X):
    return contact.points_of(a, b, X)


def pose(p, about=(0.0, 0.0, 0.0)):
    return Pose(jnp.asarray(p), so3.exp_matrix(jnp.asarray(about)))


def touching(a, b, X):
    """Positions, normals and depths where shapes overlap."""
    found = points(a, b, X)
    inside = np.asarray(found.depth) > 0
    return *(np.asarray(x)[inside] for x in (found.p, found.n)), np.asarray(found.depth)[inside]


@pytest.mark.smoke
def test_sphere_on_floor():
    p, n, depth = touching(BALL, FLOOR, pose([0.3, 0.2, 1.3]))
    np.testing.assert_allclose(depth, [0.2])
    np.testing.assert_allclose(n, [[0, 0, 1]])
    np.testing.assert_allclose(p, [[0.3, 0.2, -0.1]], atol=1e-15)
    assert len(touching(BALL, FLOOR, pose([0.3, 0.2, 1.5 + 1e-12]))[2]) == 0


def test_solids_on_a_floor():
    tilt = 0.1
    box = contact.Box("a", [0.4, 0.6, 0.8])
    _, _, depth = touching(box, FLOOR, pose([0, 0, 0.39]))
    np.testing.assert_allclose(depth, [0.01] * 4, rtol=1e-12)
    p, _, depth = touching(box, FLOOR, pose([0, 0, 0.4], [0.0, tilt, 0.0]))
    np.testing.assert_allclose(depth, [0.2 * np.sin(tilt) + 0.4 * (np.cos(tilt) - 1)] * 2)
    np.testing.assert_allclose(p[:, 0], 0.2 * np.cos(tilt) - 0.4 * np.sin(tilt))
    capsule = contact.Capsule("a", 0.1, 0.6)
    _, _, depth = touching(capsule, FLOOR, pose([0, 0, 0.09], [0.0, np.pi / 2, 0.0]))
    np.testing.assert_allclose(depth, [0.01, 0.01], rtol=1e-12)
    cylinder = contact.Cylinder("a", 0.1, 0.6)
    _, _, depth = touching(cylinder, FLOOR, pose([0, 0, 0.29]))
    np.testing.assert_allclose(depth, [0.01] * 3, rtol=1e-12)
    p, _, depth = touching(cylinder, FLOOR, pose([0, 0, 0.09], [0.0, np.pi / 2, 0.0]))
    np.testing.assert_allclose(depth, [0.01] * 2, rtol=1e-12)
    np.testing.assert_allclose(np.sort(p[:, 0]), [-0.3, 0.3])
    disc = contact.Disc("a", 0.3)
    lean = np.radians(60.0)
    p, _, depth = touching(disc, FLOOR, pose([0, 0, 0.25], [lean, 0.0, 0.0]))
    np.testing.assert_allclose(depth, [0.3 * np.sin(lean) - 0.25])
    np.testing.assert_allclose(p[0, :2], [0.0, -0.3 * np.cos(lean)], atol=1e-12)


def test_sphere_on_solids():
    p, n, depth = touching(BALL, contact.Sphere("b", 0.8), pose([0.0, 1.2, 1.6]))
    np.testing.assert_allclose(depth, [0.3])
    np.testing.assert_allclose(n, [[0, 0.6, 0.8]])
    np.testing.assert_allclose(p, 0.65 * n)
    box = contact.Box("b", [2.0, 2.0, 2.0])
    _, n, depth = touching(contact.Sphere("a", 0.5), box, pose([1.3, 1.4, 0.2]))  # An edge.
    np.testing.assert_allclose(n, [[0.6, 0.8, 0.0]], atol=1e-15)
    assert depth.size == 0 or np.allclose(depth, 0.0, atol=1e-15)
    _, n, depth = touching(contact.Sphere("a", 0.5), box, pose([0.2, -0.9, 0.1]))  # Centre inside.
    np.testing.assert_allclose(n, [[0, -1, 0]])
    np.testing.assert_allclose(depth, [0.6])
    capsule = contact.Capsule("b", 0.2, 1.0)
    _, n, depth = touching(contact.Sphere("a", 0.3), capsule, pose([0.45, 0.0, 0.2]))
    np.testing.assert_allclose(n, [[1, 0, 0]])
    np.testing.assert_allclose(depth, [0.05], rtol=1e-12)


@pytest.mark.long
def test_normals_are_gradients_of_the_depth():
    """Along random motions: rates of the depth from the velocities of the bodies."""
    rng = np.random.default_rng(0)
    for pair in ("sphere on box", "box on floor", "cylinder on floor", "sphere on waves"):
        a, b = PAIRS[pair]
        X = pose([0.3, -0.2, 0.6], [0.2, 0.3, -0.1])
        V = jnp.asarray(rng.normal(size=6))
        at, rates = jax.jvp(lambda X, a=a, b=b: points(a, b, X), (X,), (se3.rate(X, V),))
        w = (X.R @ V[:3])[None] + jnp.cross((X.R @ V[3:])[None], at.p - X.p[None])
        found, wanted = rates.depth, -jnp.sum(at.n * w, axis=1)
        if (
            pair == "cylinder on floor"
        ):  # Points beside the lowest one move along the rim, in pairs.
            found, wanted = (x.reshape(2, 3) for x in (found, wanted))
            np.testing.assert_allclose(found[:, 0], wanted[:, 0], atol=1e-12)
            found, wanted = jnp.sum(found, axis=1), jnp.sum(wanted, axis=1)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.thorough
def test_no_force_beyond_contact_and_none_from_what_is_unknown():
    X = Pose(
        jnp.asarray([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]), jnp.broadcast_to(jnp.eye(3), (2, 3, 3))
    )
    V = jnp.ones((2, 6))
    grid = contact.HeightGrid(np.zeros((5, 5)), 0.1, corner=(-0.2, -0.2))
    look = jax.jit(lambda law, X: (law.load(T, X, V, jnp.zeros(0)), law.potential(T, X)))
    for base in (FLOOR, contact.Terrain("b", grid)):
        touch = forces.Contact(BALL, base, LAW, ROUGH, ROLLING)
        assert all(np.all(np.asarray(x) == 0) for x in look(touch, X))
    off = Pose(X.p.at[0, 0].set(0.3), X.R)
    assert all(np.all(np.isnan(x)) for x in look(touch, off))


@pytest.mark.thorough
def test_batches_of_pairs_are_one_group():
    """200 balls on a floor: two groups of elements, gravity and contacts."""
    bodies = {f"b{k}": mbd.inertia.sphere(1.0, 0.1) for k in range(200)}
    touch = {
        name: forces.Contact(contact.Sphere(name, 0.1), contact.HalfSpace("ground"), LAW, ROUGH)
        for name in bodies
    }
    model = mbd.Model(bodies, forces={"weight": forces.Gravity(), **touch})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    assert len(system.mechanism.elements) == 2

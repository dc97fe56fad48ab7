"""Terrain: heights, feet of points, roads, grids, and bodies on them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import jaxmbd as mbd
import scalarjit
from jaxmbd import contact, forces, joints
from scalarjit.liveness import Plan
from scalarjit.scalars import scalars_of
from tests.derivatives import difference

A, L = 0.03, 0.8
WAVES = contact.Terrain("ground", contact.Washboard(A, L))
KAPPA = 2 * np.pi / L


@jax.jit
def nearest(terrain, point, radius=0.1):
    return terrain.nearest(point, jnp.asarray(radius))


@jax.jit
def at(height, x, y):
    return jax.vmap(height)(x, y)


@pytest.mark.smoke
def test_distance_from_waves():
    """Against a search over x, from above and from below, on a crest, in a valley, and between."""
    for x, above in ((0.0, 0.1), (0.4, 0.1), (0.13, 0.12), (0.3, -0.004), (0.27, 0.05)):
        z = A * np.cos(KAPPA * x) + above

        def distance(s, x=x, z=z):
            return np.hypot(s - x, A * np.cos(KAPPA * s) - z)

        foot = minimize_scalar(distance, (x - 0.06, x + 0.06), tol=1e-14)
        found, n = nearest(WAVES, jnp.asarray([x, 7.0, z]))
        np.testing.assert_allclose(found, np.sign(above) * foot.fun, rtol=1e-10)
        slope = -A * KAPPA * np.sin(KAPPA * foot.x)
        wanted = np.array([-slope, 0.0, 1.0]) / np.hypot(slope, 1.0)
        np.testing.assert_allclose(n, wanted, atol=1e-7)  # The search is that exact.


@pytest.mark.long
def test_derivatives_of_the_distance():
    """The gradient by the point is the normal; by the numbers of the terrain and twice against
    differences."""
    value = jax.jit(lambda terrain, p: terrain.nearest(p, jnp.asarray(0.1))[0])
    p = jnp.asarray([0.13, 0.2, 0.11])
    by_terrain, by_point = jax.jit(jax.grad(value, (0, 1)))(WAVES, p)
    np.testing.assert_allclose(by_point, nearest(WAVES, p)[1], atol=1e-12)
    along = jnp.asarray([0.3, -0.2, 0.5])
    number = difference(
        lambda x: value(contact.Terrain("ground", contact.Washboard(x, L)), p),
        jnp.asarray(A),
        jnp.asarray(1.0),
        h=1e-5,
    )
    np.testing.assert_allclose(by_terrain.height.amplitude, number, rtol=1e-8)
    slope = jax.jit(jax.grad(value, 1))
    twice = jax.jvp(lambda p: slope(WAVES, p) @ along, (p,), (along,))[1]
    number = difference(lambda p: slope(WAVES, p) @ along, p, along, h=1e-4)
    np.testing.assert_allclose(twice, number, rtol=1e-7)


@pytest.mark.thorough
def test_second_derivatives_of_the_distance_in_loops():
    """Derivatives by heights and points, in a loop over points, equal differences."""
    heights = 0.02 * np.random.default_rng(2).uniform(size=(5, 5))
    points = jnp.asarray([[0.13, 0.2, 0.03], [0.02, 0.34, 0.05], [0.31, 0.05, 0.04]])

    def total(heights, shift):
        terrain = contact.Terrain("ground", contact.HeightGrid(heights, 0.1))

        def add(carry, p):
            distance, n = terrain.nearest(p + carry * shift, jnp.asarray(0.03))
            return carry + distance * n[0] + distance**2, None

        return jax.lax.scan(add, jnp.asarray(0.2), points)[0]

    heights, shift = jnp.asarray(heights), jnp.asarray([0.01, -0.02, 0.005])
    slopes = jax.jit(jax.grad(total, (0, 1)))
    rng = np.random.default_rng(3)
    along = jnp.asarray(0.01 * rng.normal(size=(5, 5))), jnp.asarray(rng.normal(size=3))
    first = sum(jnp.vdot(a, b) for a, b in zip(slopes(heights, shift), along, strict=True))
    at = lambda h: total(heights + h * along[0], shift + h * along[1])  # noqa: E731
    h = 1e-5
    np.testing.assert_allclose(first, (at(h) - at(-h)) / (2 * h), rtol=1e-7)
    twice = jax.jit(lambda x: jax.jvp(slopes, x, along)[1])((heights, shift))
    ends = [slopes(heights + k * along[0], shift + k * along[1]) for k in (h, -h)]
    for found, plus, minus in zip(twice, *ends, strict=True):
        expected = (plus - minus) / (2 * h)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


def test_derivatives_take_no_operations_from_values():
    """The search ends with the distance; steps for derivatives are computed for those alone."""
    pytest.importorskip("llvmlite")
    grid = contact.HeightGrid(np.zeros((5, 5)), 0.1)
    terrain = contact.Terrain("ground", grid)
    args = terrain, jnp.asarray([0.13, 0.2, 0.03]), jnp.asarray(0.03)
    with scalarjit.enabled(True):
        own = scalarjit.native_of(lambda terrain, p, r: terrain.nearest(p, r), *args)
    assert own is not None
    made = scalars_of(own.program, [False] * len(own.program.in_avals))
    count = sum(x.op not in ("const", "arg") for x in Plan(made.graph, made.results).live.values())
    # 690, and 557 in the loop; with the steps for derivatives some 500 more.
    assert count < 1350


@pytest.mark.long
def test_a_place_far_above_steep_ground_has_a_distance():
    """Steps from a foot nearly without convexity once ended 3,600 km below."""
    heights = 0.06 * np.random.default_rng(0).uniform(size=(41, 41))
    steep = contact.Terrain("ground", contact.HeightGrid(heights, 0.1, (-2.0, -2.0)))
    point = jnp.asarray([-0.25886535230775976, 0.7038227336838228, 0.284475074042377])
    found, _ = nearest(steep, point, 0.022)
    assert 0.05 < found < 0.3


def test_a_ball_that_does_not_fit_touches_the_nearer_side():
    """In a valley with a radius of curvature of 0.01 m."""
    sharp = contact.Terrain("ground", contact.Washboard(0.04, 0.126))
    x, z = 0.064, 0.01
    s = np.linspace(0.0, 0.126, 200001)
    wanted = np.min(np.hypot(s - x, 0.04 * np.cos(2 * np.pi * s / 0.126) - z))
    found, _ = nearest(sharp, jnp.asarray([x, 0.0, z]), 0.05)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    # Right above the lowest line both sides are as near.
    assert np.isnan(nearest(sharp, jnp.asarray([0.063, 0.0, z]), 0.05)[0])


@pytest.mark.long
def test_grid():
    """Quadratics exactly, also in the cells at the border; NaN off the grid."""
    x, y = np.meshgrid(0.2 * np.arange(7) - 0.5, 0.3 * np.arange(5) + 1.0, indexing="ij")

    def law(x, y):
        return 0.3 + 0.2 * x - 0.1 * y + 0.4 * x * y + 0.7 * x**2 - 0.5 * y**2

    grid = contact.HeightGrid(law(x, y), [0.2, 0.3], corner=(-0.5, 1.0))
    rng = np.random.default_rng(1)
    px, py = rng.uniform(-0.5, 0.7, 40), rng.uniform(1.0, 2.2, 40)
    px[:2], py[:2] = [-0.5, 0.7], [1.0, 2.2]
    found = at(grid, jnp.asarray(px), jnp.asarray(py))
    np.testing.assert_allclose(found, law(px, py), rtol=1e-12)
    covered = jax.vmap(grid.covers)(jnp.asarray([0.0, -0.51, 0.0]), jnp.asarray([1.5, 1.5, 2.21]))
    np.testing.assert_array_equal(covered, [True, False, False])
    terrain = contact.Terrain("ground", grid + contact.Slope([0.1, 0.0]))
    assert np.isfinite(nearest(terrain, jnp.asarray([0.1, 1.5, 0.5]))[0])
    assert np.isnan(nearest(terrain, jnp.asarray([0.8, 1.5, 3.0]))[0])
    slope = jax.jit(jax.grad(lambda grid: grid(jnp.asarray(0.1), jnp.asarray(1.5))))(grid)
    np.testing.assert_allclose(np.sum(slope.heights), 1.0, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["waves", "grid"])
def test_slopes_and_curvatures(kind):
    """In closed form, as by differentiation; of a grid in its inner and its outer cells."""
    waves = contact.Washboard(A, L, 0.3) + contact.Slope([0.1, -0.2], 0.5)
    waves = waves + contact.Road([0.01, 0.02], [1.0, 0.4], [0.1, 2.0])
    grid = np.random.default_rng(0).normal(size=(5, 6))
    height = waves if kind == "waves" else contact.HeightGrid(grid, [0.5, 0.4], [-1.0, -1.0])
    rng = np.random.default_rng(1)
    x, y = jnp.asarray(rng.uniform(-0.99, 0.99, (2, 40)))

    def both(x, y):
        return height.jet(x, y), contact.AbstractHeight.jet(height, x, y)

    found, wanted = jax.jit(jax.vmap(both))(x, y)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max())


def test_generators():
    steps = contact.Steps([1.0, 2.0], [0.1, -0.3], 0.2)
    x = jnp.asarray([0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0])
    wanted = [0.0, 0.0, 0.05, 0.1, 0.1, -0.05, -0.2]
    np.testing.assert_allclose(at(steps, x, x), wanted, atol=1e-15)
    total = contact.Slope([0.1, 0.2], 1.0) + contact.Washboard(0.5, 2.0)
    np.testing.assert_allclose(at(total, x, x), 1 + 0.3 * x + 0.5 * jnp.cos(np.pi * x))


def test_roads_have_the_spectral_density_of_their_class():
    """Variance over 4 km in bands, against ∫ G dn; classes are a factor of four apart."""
    road = contact.iso_8608("C", jax.random.key(0), n_waves=200)
    x = jnp.arange(0.0, 4000.0, 0.1)
    z = np.asarray(at(road, x, x))
    power = np.abs(np.fft.rfft(z)) ** 2 * 2.0 / len(z) ** 2
    n = np.fft.rfftfreq(len(z), 0.1)
    for low, high in ((0.02, 0.05), (0.05, 0.3), (0.3, 2.0)):
        wanted = 256e-6 * 0.01 * (1 / low - 1 / high)
        np.testing.assert_allclose(power[(n > low) & (n < high)].sum(), wanted, rtol=0.05)
    rough = contact.iso_8608("D", jax.random.key(0), n_waves=200)
    np.testing.assert_allclose(rough.amplitudes, 2 * road.amplitudes)


def test_invalid_terrain():
    with pytest.raises(mbd.ModelError, match=r"heights must be finite; the one at index \[2, 1\]"):
        contact.HeightGrid(np.where(np.arange(20).reshape(5, 4) == 9, np.nan, 0.0), 0.1)
    with pytest.raises(mbd.ModelError, match="at least 4 × 4"):
        contact.HeightGrid(np.zeros((3, 5)), 0.1)
    with pytest.raises(mbd.ModelError, match="returns shape"):
        contact.Terrain("ground", lambda x, y: jnp.stack([x, y]))
    with pytest.raises(mbd.ModelError, match="must be a function"):
        contact.Terrain("ground", 3.0)
    with pytest.raises(mbd.ModelError, match="classes are A, B"):
        contact.iso_8608("Z", jax.random.key(0))
    pair = contact.Sphere("ball", 0.1), contact.Terrain("ground", lambda x, y: jnp.log(x))
    touch = forces.Contact(*pair, contact.HuntCrossley(1e4, exponent=1.5))
    with pytest.raises(mbd.ModelError, match="shape_b: the height at the origin"):
        mbd.Model({"ball": mbd.inertia.sphere(1.0, 0.1)}, forces={"touch": touch})


@pytest.mark.long
def test_a_motion_off_the_grid_names_the_contact():
    """A ball on a guide that leaves a grid of 1 m."""
    grid = contact.HeightGrid(np.zeros((11, 11)), 0.1, corner=(-0.5, -0.5))
    pair = contact.Sphere("ball", 0.1), contact.Terrain("ground", grid)
    guide = joints.Prismatic(mbd.Frame("ground", [0.0, 0.0, 0.2]), "ball", axis=[1, 0, 0])
    touch = {"touch": forces.Contact(*pair, contact.HuntCrossley(1e4, exponent=1.5))}
    model = mbd.Model({"ball": mbd.inertia.sphere(1.0, 0.1)}, {"guide": guide}, touch)
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, rates={"guide": 1.0})
    with pytest.raises(mbd.SimulationError, match="a body of 'touch' left the grid of heights"):
        mbd.simulate(system, state, t1=1.0, dt=0.1)


# Two wheels, of half the weight of an axle each, on the waves.
RADIUS, BASE, MASS, K = 0.1, 0.5, 3.0, 4e4


def axle(height):
    """An axle in the xz plane, on two smooth balls."""
    law = contact.HuntCrossley(K, 0.5, 1.0)
    wheels = {
        name: forces.Contact(
            contact.Sphere(mbd.Frame("axle", [x, 0.0, 0.0]), RADIUS),
            contact.Terrain("ground", height),
            law,
        )
        for name, x in (("front", BASE / 2), ("rear", -BASE / 2))
    }
    # The plane has its normal along y.
    to_plane = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    frames = [mbd.Frame(body, R=to_plane) for body in ("ground", "axle")]
    return mbd.Model(
        {"axle": mbd.inertia.box(MASS, [BASE, 0.1, 0.1])},
        {"plane": joints.Planar(*frames)},
        {
            "weight": forces.Gravity(),
            "air": forces.ViscousFriction("plane", [9.0, 9.0, 1.0]),
            **wheels,
        },
    )


def root():
    """Height at which both springs along the normals bear the weight, over a crest."""
    x = BASE / 2

    def too_low(z):
        foot = minimize_scalar(
            lambda s: np.hypot(s - x, A * np.cos(KAPPA * s) - z), (x - 0.05, x + 0.05), tol=1e-15
        )
        up = (z - A * np.cos(KAPPA * foot.x)) / foot.fun
        return 2 * K * max(RADIUS - foot.fun, 0.0) * up - MASS * 9.81

    return brentq(too_low, 0.05, 0.1)


@pytest.mark.thorough
def test_two_wheels_settle_at_the_root_of_the_potential():
    """Centred over a crest, at the height where both springs along the normals bear the weight."""
    system = mbd.formulate(axle(contact.Washboard(A, L)), mbd.JointCoordinates())
    start = mbd.assemble(system, {"plane": [0.1, 0.09, 0.05]})
    states = eqx.filter_jit(mbd.rollout)(system, start, 1e-3, 12000)
    np.testing.assert_allclose(states.q[-1], [0.0, root(), 0.0], atol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    [mbd.JointCoordinates(), mbd.MaximalCoordinates(), mbd.NaturalCoordinates(rigid=True)],
    ids=lambda x: type(x).__name__,
)
def test_two_wheels_rest_at_the_root_of_the_potential(formulation):
    system = mbd.formulate(axle(contact.Washboard(A, L)), formulation)
    rest = mbd.equilibrium(system, mbd.assemble(system, {"plane": [0.02, 0.085, 0.03]}))
    at = system.frames(0.0, rest.state.q)["axle"]
    np.testing.assert_allclose(at.p, [0.0, 0.0, root()], atol=1e-8)
    np.testing.assert_allclose(at.R, np.eye(3), atol=1e-8)
    assert bool(rest.stable)


def test_a_model_with_terrain_is_made_under_jit():
    """A gradient by another number of the model needs it."""

    def mass(x):
        ball, road = contact.Sphere("ball", 0.1), WAVES
        touch = forces.Contact(ball, road, contact.HuntCrossley(1e4, 0.1, 1.0))
        model = mbd.Model({"ball": mbd.inertia.sphere(x, 0.1)}, forces={"touch": touch})
        return model.bodies["ball"].mass

    assert jax.jit(mass)(2.0) == 2.0

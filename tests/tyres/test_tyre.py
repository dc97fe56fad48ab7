"""Tyres on wheels: load, signs, relaxation, potential, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, tyres
from tests.tyres import models

LOAD = 4000.0
TIME = jnp.zeros(())


@pytest.mark.long
def test_a_wheel_deflects_by_its_weight():
    """Static deflection F / k, in contact without slip: nothing else acts."""
    model = models.wheel(models.tyre())
    system = mbd.formulate(model, mbd.JointCoordinates())
    weight = 20.0 * models.GRAVITY
    height = models.on_flat(weight)
    X = mbd.Pose(jnp.asarray([0.0, 0.0, height]), jnp.eye(3))
    vdot, _ = mbd.accelerations(system, 0.0, mbd.assemble(system, {"wheel": X}))
    np.testing.assert_allclose(vdot, np.zeros(6), atol=1e-11)


@pytest.fixture(scope="module")
def wrench():
    """Force and moment on the wheel about its centre along the axes of the world."""

    @jax.jit
    def run(element, X, V, z):
        W = element.load(TIME, X, V, z)[0]
        at = element.at_contact(X, V, z)
        return X.R[0] @ W[:3], X.R[0] @ W[3:], at

    def look(element, X, V, z=None):
        return run(element, X, V, jnp.zeros(element.n_states) if z is None else z)

    return look


def test_signs_are_those_of_iso_8855(wrench):
    """A slip angle to the left pushes to the right and turns the wheel to the left; driving pushes
    forward; a wheel that leans to the right is pushed there."""
    tyre = models.tyre(tyres.Linear(10.0, 0.8, 0.03), camber=0.05, rolling_resistance=0.01)
    height = models.on_flat(LOAD)
    rolling = 20.0 / height
    force, moment, at = wrench(tyre, *models.at(height, [20.0, 0.0, 0.0], rolling))
    np.testing.assert_allclose(force, [0.0, 0.0, LOAD], atol=1e-8)
    # Against rolling, by its part of the load and the radius.
    np.testing.assert_allclose(moment, [0.0, -0.01 * LOAD * models.RADIUS, 0.0], rtol=1e-4)
    force, moment, at = wrench(tyre, *models.at(height, [20.0, 0.4, 0.0], rolling))
    assert at.alpha == pytest.approx(0.02, rel=1e-3)
    np.testing.assert_allclose(force, [0.0, -0.2 * LOAD, LOAD], rtol=1e-4, atol=1e-8)
    assert moment[2] == pytest.approx(0.03 * 0.2 * LOAD, rel=1e-4)
    force, moment, at = wrench(tyre, *models.at(height, [20.0, 0.0, 0.0], 1.02 * rolling))
    assert at.kappa == pytest.approx(0.02, rel=1e-3)
    np.testing.assert_allclose(force, [0.2 * LOAD, 0.0, LOAD], rtol=1e-4, atol=1e-8)
    assert moment[1] == pytest.approx(-(0.2 * height + 0.01 * models.RADIUS) * LOAD, rel=1e-3)
    lean = models.at(height, [20.0, 0.0, 0.0], rolling, camber=0.03)
    force, _, at = wrench(tyre, *lean)
    assert at.camber == pytest.approx(0.03)
    assert at.lateral == pytest.approx(-0.5 * np.sin(0.03) * float(at.load), rel=1e-3)
    assert force[1] == pytest.approx(float(at.lateral), rel=1e-12)


def test_direction_of_the_axle_does_not_matter(wrench):
    """Travel backwards mirrors all forces but the normal one."""
    tyre = models.tyre(tyres.Brush(10.0, 0.8, 0.03), camber=0.05, rolling_resistance=0.01)
    X, V = models.at(models.on_flat(LOAD), [3.0, 0.2, -0.1], 9.0, heading=0.3, camber=0.1)
    force, moment, _ = wrench(tyre, X, V)
    flip = jnp.diag(jnp.asarray([1.0, -1.0, -1.0]))
    turned = mbd.Pose(X.p, jnp.stack([X.R[0] @ flip, X.R[1]]))
    other = jnp.stack([jnp.concatenate([flip @ V[0, :3], flip @ V[0, 3:]]), V[1]])
    again = wrench(tyre, turned, other)
    np.testing.assert_allclose(again[0], force, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(again[1], moment, rtol=1e-10, atol=1e-9)


def rough(x, y):
    """Terrain of waves in both directions."""
    return 0.02 * jnp.sin(5.0 * x + 2.0 * y) + 0.01 * jnp.cos(7.0 * y)


@pytest.mark.thorough
def test_vertical_forces_have_a_potential(wrench):
    """Its slope by the pose of the wheel, on rough terrain; there is no moment about the axle, and
    damping only takes energy away."""
    tyre = models.tyre(tyres.Linear(10.0, 1e-9), road=rough, damping=3e3, n_points=3)
    undamped = models.tyre(tyres.Linear(10.0, 1e-9), road=rough, n_points=3)
    X, V = models.at(0.28, [2.0, 0.5, -0.3], 9.0, heading=0.4, camber=0.1)
    V = V.at[0, 3:5].set([0.3, -0.4])

    @jax.jit
    def look(X, V):
        slope = jax.jvp(lambda X: tyre.potential(TIME, X), (X,), (_rates(X, V),))[1]
        load = undamped.load(TIME, X, 0.0 * V, jnp.zeros(0)), tyre.load(TIME, X, V, jnp.zeros(0))
        return slope, jnp.sum(load[0] * V), jnp.sum(load[1] * V)

    slope, power, damped = look(X, V)
    assert abs(slope) > 10.0
    assert power == pytest.approx(-float(slope), rel=1e-7)
    assert damped < power
    assert abs(undamped.load(TIME, X, 0.0 * V, jnp.zeros(0))[0, 5]) < 1e-9


def _rates(X, V):
    return jax.vmap(mbd.lie.se3.rate)(X, V)


@pytest.mark.long
def test_planes_are_met_like_a_half_space(wrench):
    """Terrain that is a slope, and the half space of a frame that is inclined as much."""
    slope = contact.Slope([0.2, -0.1], 0.03)
    n = np.array([-0.2, 0.1, 1.0]) / np.sqrt(1.05)
    x = np.array([1.0, 0.0, 0.2]) / np.sqrt(1.04)
    tilted = mbd.Frame("ground", [0.0, 0.0, 0.03], R=np.stack([x, np.cross(n, x), n], axis=1))
    law = tyres.Brush(10.0, 0.8, 0.03)
    on_terrain = models.tyre(law, road=slope, damping=1e3)
    on_plane = forces.Tyre(
        on_terrain.wheel, contact.HalfSpace(tilted), on_terrain.vertical, on_terrain.slip
    )
    X, V = models.at(0.31, [3.0, 0.2, -0.1], 9.0, heading=0.3, camber=0.1)
    first = wrench(on_terrain, X, V)
    X = mbd.Pose(X.p.at[1].set(tilted.p), X.R.at[1].set(tilted.R))
    second = wrench(on_plane, X, V)
    assert first[2].load > 1e3
    for a, b in zip(first[:2], second[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-7)


def ditch(x):
    """A ditch 0.1 m wide and 1 m deep, from `x` on."""
    return contact.Steps([x, x + 0.1], [-1.0, 1.0], 1e-3)


@pytest.mark.long
def test_a_wheel_bridges_a_ditch(wrench):
    """It touches on both sides, without a force along the road, and does not touch between."""
    height = models.on_flat(LOAD)
    X, V = models.at(height, [0.0, 0.0, 0.0], 0.0)
    tyre = models.tyre(road=ditch(-0.05), footprint=[0.2, 0.1], n_points=9)
    force, moment, at = wrench(tyre, X, V)
    nodes, parts = np.polynomial.legendre.leggauss(9)
    carried = 0.5 * np.sum(parts[np.abs(0.1 * nodes) > 0.05])
    assert 0.4 < carried < 0.6
    np.testing.assert_allclose(force, [0.0, 0.0, carried * LOAD], rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(moment, np.zeros(3), atol=1e-7)
    # The front half over a ditch that goes on: carried by the rear half, and not tilted.
    drop = contact.Steps([0.005], [-1.0], 1e-3)
    force, _, at = wrench(models.tyre(road=drop, n_points=8), X, V)
    np.testing.assert_allclose(at.axes[:, 2], [0.0, 0.0, 1.0], atol=2e-2)
    assert force[2] == pytest.approx(0.5 * LOAD, rel=0.1)


@pytest.mark.long
def test_the_force_is_unknown_beyond_the_grid(wrench):
    grid = contact.HeightGrid(np.zeros((5, 5)), 0.5, (-1.0, -1.0))
    X, V = models.at(0.28, [1.0, 0.0, 0.0], 3.0)
    assert np.all(np.isfinite(wrench(models.tyre(road=grid), X, V)[0]))
    X = mbd.Pose(X.p.at[0, 0].set(0.98), X.R)  # The footprint reaches beyond.
    assert np.all(np.isnan(wrench(models.tyre(road=grid), X, V)[0]))


def test_relaxation_over_the_distance():
    """A step of the slip angle is followed like 1 - exp(-x/σ), at every speed."""
    sigma, angle = 0.4, 0.05
    tyre = models.tyre(tyres.Linear(10.0, 0.9), relaxation=[0.2, sigma])

    @jax.jit
    def follow(speed):
        X, V = models.at(models.on_flat(LOAD), [speed, angle * speed, 0.0], speed / 0.28)
        dt = 0.01 / speed  # A hundredth of a metre.

        def step(z, _):
            mid = z + 0.5 * dt * tyre.state_rates(TIME, X, V, z)
            z = z + dt * tyre.state_rates(TIME, X, V, mid)
            return z, z[1]

        return jax.lax.scan(step, jnp.zeros(2), None, length=100)[1]

    x = 0.01 * np.arange(1, 101)
    for speed in (2.0, 30.0):
        wanted = angle * (1.0 - np.exp(-x / sigma))
        np.testing.assert_allclose(follow(jnp.asarray(speed)), wanted, rtol=2e-4)


@pytest.mark.long
def test_relaxed_and_unrelaxed_tyres_agree_in_steady_rolling(wrench):
    """At ż = 0, with camber."""
    law = tyres.Brush([12.0, 10.0], 0.8, 0.03)
    X, V = models.at(models.on_flat(LOAD), [20.0, 0.6, 0.0], 73.0, camber=0.05)
    relaxed = models.tyre(law, camber=0.1, relaxation=0.3)
    rates = relaxed.state_rates(TIME, X, V, jnp.zeros(2))
    z = -jnp.linalg.solve(
        jax.jacfwd(lambda z: relaxed.state_rates(TIME, X, V, z))(jnp.zeros(2)), rates
    )
    first = wrench(relaxed, X, V, z)
    second = wrench(models.tyre(law, camber=0.1), X, V)
    for a, b in zip(first[:2], second[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    "road", [None, pytest.param(rough, marks=pytest.mark.thorough)], ids=["flat", "terrain"]
)
def test_derivatives_at_rest(road):
    """Finite, the same forwards and backwards, where nothing moves."""
    formula = tyres.MagicFormula(8.0, 1.3, 0.8, 0.1, 0.03)
    tyre = models.tyre(formula, road=road, relaxation=0.3, n_points=2)
    X, V = models.at(0.28, [0.0, 0.0, 0.0], 0.0)

    def law(tyre, X, V, z):
        return tyre.load(TIME, X, V, z), tyre.state_rates(TIME, X, V, z)

    args = tyre, X, V, jnp.zeros(2)
    rng = np.random.default_rng(1)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), args)
    value, forward = jax.jit(lambda a, u: jax.jvp(law, a, u))(args, along)
    weights = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), value)
    back = jax.jit(lambda a, w: jax.vjp(law, *a)[1](w))(args, weights)
    assert np.isfinite(_dot(forward, weights))
    np.testing.assert_allclose(_dot(back, along), _dot(forward, weights), rtol=1e-9)


def _dot(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return float(sum(jnp.sum(x * y) for x, y in pairs))


WRONG = {
    "vertical: stiffness must be positive": {
        "vertical": contact.KelvinVoigt(-1.0),
    },
    "slip: friction must be positive": {"slip": tyres.Linear(10.0, 0.0)},
    "slip: stiffness must be positive": {"slip": tyres.Brush([10.0, -1.0])},
    "slip: C must be below 2": {"slip": tyres.MagicFormula(10.0, 2.0)},
    "slip: E must be at most 1": {"slip": tyres.MagicFormula(10.0, 1.3, E=1.1)},
    "relaxation must be positive": {"relaxation": [0.3, 0.0]},
    "low_speed must be positive": {"low_speed": 0.0},
    "settling must not be negative": {"settling": -0.1},
    "footprint must be positive": {"footprint": 0.0},
    "n_points must be at least 2": {"n_points": 1},
    "wheel: radius must be positive": {"wheel": contact.Disc("wheel", 0.0), "footprint": 0.1},
    "wheel and road are both on": {"road": contact.HalfSpace("wheel")},
    "unknown body 'axle'": {"wheel": contact.Disc("axle", 0.3)},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_numbers_name_the_tyre(message):
    good = {
        "wheel": contact.Disc("wheel", 0.3),
        "road": contact.HalfSpace("ground"),
        "vertical": contact.KelvinVoigt(2e5),
        "slip": tyres.Linear(10.0),
    }
    with pytest.raises(mbd.ModelError, match=message) as error:
        models.wheel(forces.Tyre(**(good | WRONG[message])))
    assert "'tyre'" in str(error.value)


def test_wrong_kinds_name_the_cure():
    disc, road = contact.Disc("wheel", 0.3), contact.HalfSpace("ground")
    with pytest.raises(mbd.ModelError, match=r"wheel must .* contact\.Disc"):
        forces.Tyre(contact.Sphere("wheel", 0.3), road)
    with pytest.raises(mbd.ModelError, match=r"vertical must .* contact\.KelvinVoigt"):
        forces.Tyre(disc, road)
    with pytest.raises(mbd.ModelError, match=r"slip must .* tyres\.Linear"):
        forces.Tyre(disc, road, contact.KelvinVoigt(2e5), 10.0)
    with pytest.raises(mbd.ModelError, match="relaxation must be one number or two"):
        models.tyre(relaxation=[0.1, 0.2, 0.3])

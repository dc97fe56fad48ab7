"""Cables: their law, what they store and take, steps that conserve energy, a ball on a cable."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, testing
from jaxmbd.lie import Pose, se3
from jaxmbd.system import discrete_gradients

T = jnp.asarray(0.7)
EA, REST, WIDTH, DAMPING = 90.0, 1.5, 0.2, 4.0
K = EA / REST
CABLE = forces.Cable("a", "b", EA, REST, transition=WIDTH, damping=DAMPING)
SPRING = forces.Cable("a", "b", EA, REST, transition=WIDTH)
# Slack, at either end of the transition and within it, taut.
LENGTHS = jnp.asarray([0.0, 0.7, 1.39, 1.4, 1.43, 1.5, 1.57, 1.6, 1.8, 3.0])


@jax.jit
def tension(cable, length, rate):
    """At many lengths."""
    return jax.vmap(cable.tension)(length, jnp.broadcast_to(rate, length.shape))


def wanted(length, rate):
    """The law in words of its own, one length at a time."""
    stretch, half = length - REST, WIDTH / 2
    if stretch <= -half:
        return 0.0
    x = min((stretch + half) / WIDTH, 1.0)
    spring = K * (stretch if stretch >= half else (stretch + half) ** 2 / (2 * WIDTH))
    damper = DAMPING * x**2 * (3 - 2 * x) * rate
    return spring + damper if rate >= 0 else spring**2 / (spring - damper)


poses = jax.jit(jax.vmap(se3.exp))


def frames(seed, apart):
    """Poses of two frames, and twists."""
    rng = np.random.default_rng(seed)
    X = poses(jnp.asarray(rng.normal(size=(2, 6))))
    return Pose(apart * X.p, X.R), jnp.asarray(rng.normal(size=(2, 6)))


@pytest.mark.smoke
@pytest.mark.parametrize("rate", [-3.0, -0.1, 0.0, 0.1, 3.0])
def test_closed_form(rate):
    found = tension(CABLE, LENGTHS, rate)
    np.testing.assert_allclose(found, [wanted(x, rate) for x in LENGTHS], rtol=1e-12, atol=1e-12)


def test_tension_is_the_slope_of_what_is_stored():
    slope = jax.jit(jax.vmap(jax.grad(SPRING.stored)))(LENGTHS)
    np.testing.assert_allclose(tension(SPRING, LENGTHS, 0.0), slope, atol=1e-13)
    assert SPRING.stored(jnp.asarray(REST - WIDTH / 2)) == 0.0
    # By hand: beyond the transition that of a spring, and k w²/24 more.
    by_hand = 0.5 * K * 0.5**2 + K * WIDTH**2 / 24
    assert SPRING.stored(jnp.asarray(REST + 0.5)) == pytest.approx(by_hand, rel=1e-14)


def test_slopes_are_continuous():
    """In the length and in the rate, at both ends of the transition and where it is at rest."""
    slopes = jax.jit(jax.vmap(jax.grad(CABLE.tension, (0, 1))))
    for rate in (-2.0, 0.0, 2.0):
        at = jnp.asarray([REST - WIDTH / 2, REST + WIDTH / 2, REST])
        sides = [slopes(at + d, jnp.full(3, rate + d)) for d in (-1e-9, 0.0, 1e-9)]
        np.testing.assert_allclose(sides[0], sides[1], atol=1e-5)
        np.testing.assert_allclose(sides[2], sides[1], atol=1e-5)


def test_never_pushes_and_only_takes_energy():
    length, rate = np.meshgrid(np.linspace(0.0, 3.0, 61), np.linspace(-9.0, 9.0, 21))
    length, rate = jnp.asarray(length.ravel()), jnp.asarray(rate.ravel())
    for damping in (0.0, 4.0, 1e4):
        cable = eqx.tree_at(lambda c: c.damping, CABLE, jnp.asarray(damping))
        found = tension(cable, length, rate)
        assert np.all(found >= 0)
        assert np.all(found[length < REST - WIDTH / 2] == 0)
        assert np.all((found - tension(SPRING, length, rate)) * rate >= 0)


def test_derivatives_by_coefficients():
    """Taut and getting longer, at rest within the transition, and slack; by hand."""
    by_hand = {
        "axial_stiffness": [0.3 / REST, 0.08**2 / (2 * WIDTH * REST), 0.0],
        "rest_length": [
            -EA * 1.8 / REST**2,
            -K * 0.08 / WIDTH - EA / REST**2 * 0.08**2 / (2 * WIDTH),
            0.0,
        ],
        "transition": [0.0, K * (0.08 / (2 * WIDTH) - 0.08**2 / (2 * WIDTH**2)), 0.0],
        "damping": [2.0, 0.0, 0.0],
    }
    length, rate = jnp.asarray([1.8, 1.48, 1.0]), jnp.asarray([2.0, 0.0, 2.0])
    slopes = jax.jit(jax.jacrev(tension))(CABLE, length, rate)
    for name, expected in by_hand.items():
        np.testing.assert_allclose(getattr(slopes, name), expected, rtol=1e-12, atol=1e-12)
    edge = jnp.full(3, REST - WIDTH / 2)
    at_edge = jax.jit(jax.jacrev(tension))(CABLE, edge, jnp.asarray([-2.0, 0.0, 2.0]))
    for name in by_hand:
        np.testing.assert_allclose(getattr(at_edge, name), 0.0, atol=1e-12)


def test_taut_and_getting_longer_it_is_a_spring():
    X, V = frames(3, 2.0)
    d = np.asarray(X.p[1] - X.p[0])
    assert np.linalg.norm(d) > REST + WIDTH
    away = V.at[1, :3].add(10.0 * X.R[1].T @ d)
    spring = forces.SpringDamper("a", "b", K, DAMPING, REST)
    found, expected = jax.jit(lambda V: [law.wrenches(T, X, V) for law in (CABLE, spring)])(away)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.long
def test_contract():
    """Also where the frames coincide."""
    testing.check_frame_force(CABLE, jax.random.key(0), passive=True)


def test_single_precision():
    cable = jax.tree.map(lambda x: x.astype(jnp.float32), CABLE)
    found = tension(cable, LENGTHS.astype(jnp.float32), jnp.float32(-2.0))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, tension(CABLE, LENGTHS, -2.0), rtol=1e-4, atol=1e-4)


@eqx.filter_jit
def over_a_step(X0, X1):
    """Slopes of two-point schemes, their work, and what the cable takes up."""
    slopes = discrete_gradients.frame_slopes(SPRING, T, X0, X1)
    work = jnp.sum(slopes.p * (X1.p - X0.p))
    return slopes, work, SPRING.potential(T, X1) - SPRING.potential(T, X0)


@pytest.mark.parametrize("lengths", [(1.2, 1.3), (1.3, 1.9), (1.45, 1.55), (2.0, 1.7)])
def test_steps_do_the_work_that_is_stored(lengths):
    """Across the slack point, and with frames that turn by as much as they like."""
    (A, _), (B, _) = frames(0, 1.0), frames(1, 1.0)
    ends = []
    for X, length in zip((A, B), lengths, strict=True):
        d = X.p[1] - X.p[0]
        p = jnp.stack([X.p[0], X.p[0] + length * d / jnp.linalg.norm(d)])
        ends.append(Pose(p, X.R))
    slopes, work, stored = over_a_step(*ends)
    assert work == pytest.approx(float(stored), rel=1e-13, abs=1e-13)
    np.testing.assert_array_equal(slopes.R, 0.0)
    np.testing.assert_array_equal(slopes.p[0], -slopes.p[1])
    mean = ends[0].p + ends[1].p
    np.testing.assert_allclose(np.cross(slopes.p[1], mean[1] - mean[0]), 0.0, atol=1e-13)


def test_a_step_of_no_length_has_the_tension():
    X, _ = frames(4, 2.0)
    slopes, _, _ = over_a_step(X, X)
    pull = X.R[0] @ SPRING.wrenches(T, X, jnp.zeros((2, 6)))[0, :3]
    np.testing.assert_allclose(-slopes.p[0], pull, rtol=1e-13)
    together = Pose(jnp.zeros((2, 3)), X.R)
    np.testing.assert_array_equal(over_a_step(together, together)[0].p, 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formulation", "integrator"),
    [
        (mbd.MaximalCoordinates(), mbd.EnergyMomentum()),
        (mbd.NaturalCoordinates(rigid=True), mbd.SimoGonzalez()),
    ],
    ids=["EnergyMomentum", "SimoGonzalez"],
)
def test_a_ball_on_a_cable_keeps_its_energy(formulation, integrator):
    """It falls, is caught and thrown back, again and again."""
    model = mbd.Model(
        {"ball": mbd.inertia.sphere(1.0, 0.2)},
        forces={
            "gravity": forces.Gravity(),
            "cable": forces.Cable("ground", mbd.Frame("ball", [0.0, 0.1, 0.2]), **OF_A_BALL),
        },
    )
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, {"ball": Pose(jnp.asarray([0.3, 0.0, -0.5]), jnp.eye(3))})
    motion = mbd.rollout(system, state, 0.01, 300, integrator)
    energy = eqx.filter_jit(jax.vmap(lambda s: mbd.energy(system, 0.0, s)))(motion)
    taut = np.asarray(energy.elastic) > 0
    assert np.sum(np.diff(taut)) >= 4
    assert np.ptp(energy.total) < 1e-10


OF_A_BALL = {"axial_stiffness": 300.0, "rest_length": 1.0, "transition": 0.05}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axial_stiffness": 0.0}, "force 'rope': axial_stiffness must be positive, got 0.0"),
        ({"rest_length": -1.0}, "force 'rope': rest_length must be positive, got -1.0"),
        ({"transition": 0.0}, "force 'rope': transition must be positive, got 0.0"),
        ({"transition": 2.0}, "force 'rope': transition must be less than twice the rest length"),
        ({"damping": -1.0}, "force 'rope': damping must not be negative, got -1.0"),
        ({"damping": [1.0, 2.0]}, "Cable: damping must be a number, got shape (2,)"),
    ],
)
def test_errors(options, message):
    ball = {"ball": mbd.inertia.sphere(1.0, 0.2)}
    with pytest.raises(mbd.ModelError) as caught:
        mbd.Model(ball, forces={"rope": forces.Cable("ground", "ball", **{**OF_A_BALL, **options})})
    assert message in str(caught.value)

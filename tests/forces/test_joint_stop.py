"""End stops: their law, what they store and take, joints that bounce between them."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, testing
from tests.derivatives import check_gradient, difference
from tests.marks import thorough_but

T = jnp.asarray(0.7)
LOWER, UPPER, STIFFNESS, WIDTH, DAMPING = -0.4, 0.3, 50.0, 0.1, 2.0
LIMITS = {"lower": LOWER, "upper": UPPER}
BOTH = forces.JointStop("hinge", **LIMITS, stiffness=STIFFNESS, transition=WIDTH, damping=DAMPING)
SPRING = forces.JointStop("hinge", **LIMITS, stiffness=STIFFNESS, transition=WIDTH)
Q = np.array([-1.0, -0.52, -0.46, -0.41, -0.39, 0.0, 0.29, 0.31, 0.37, 0.42, 0.9])
MODEL = mbd.Model(
    bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0, 0, -0.5])},
    joints={"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
    forces={"gravity": forces.Gravity()},
)


@jax.jit
def law(stop, q, v):
    """Forces at many places."""
    return jax.vmap(lambda q, v: stop.force(T, q[None], v[None])[0])(q, v)


def everywhere():
    """Every place with every velocity."""
    q, v = np.meshgrid(np.linspace(-1.0, 1.0, 201), np.linspace(-9.0, 9.0, 31))
    return jnp.asarray(q.ravel()), jnp.asarray(v.ravel())


def wanted(q, v):
    """The law in words of its own: one side, one place at a time."""
    if LOWER <= q <= UPPER:
        return 0.0
    depth, rate, inwards = (q - UPPER, v, -1.0) if q > UPPER else (LOWER - q, -v, 1.0)
    x = min(depth / WIDTH, 1.0)
    spring = STIFFNESS * (depth**2 / (2 * WIDTH) if depth < WIDTH else depth - WIDTH / 2)
    damper = DAMPING * x**2 * (3 - 2 * x) * rate
    push = spring + damper if rate >= 0 else spring**2 / (spring - damper)
    return inwards * push


@pytest.mark.smoke
@pytest.mark.parametrize("v", [-3.0, -0.1, 0.0, 0.1, 3.0])
def test_closed_form(v):
    found = law(BOTH, jnp.asarray(Q), jnp.full(len(Q), v))
    np.testing.assert_allclose(found, [wanted(q, v) for q in Q], rtol=1e-13)


def test_force_at_rest_is_minus_the_slope_of_the_potential():
    slope = jax.jit(jax.vmap(jax.grad(lambda q: SPRING.potential(T, q[None]))))(jnp.asarray(Q))
    np.testing.assert_allclose(law(SPRING, jnp.asarray(Q), jnp.zeros(len(Q))), -slope, rtol=1e-13)
    assert SPRING.potential(T, jnp.array([0.1])) == 0.0
    # By hand: k w²/6 at the depth w, and from there on k (δ² - w δ)/2 more.
    deep = STIFFNESS * (WIDTH**2 / 6 + 0.5 * (0.6**2 - WIDTH * 0.6))
    assert SPRING.potential(T, jnp.array([UPPER + 0.6])) == pytest.approx(deep, rel=1e-14)


def test_slopes_are_continuous():
    """In the coordinate and in the velocity, across all that is put together."""
    edges = np.array([LOWER - WIDTH, LOWER, UPPER, UPPER + WIDTH])
    slopes = jax.jit(jax.vmap(jax.grad(lambda q, v: law(BOTH, q[None], v[None])[0], (0, 1))))
    for v in (-2.0, 0.0, 2.0):
        sides = [slopes(edges + d, jnp.full(4, v)) for d in (-1e-9, 0.0, 1e-9)]
        np.testing.assert_allclose(sides[0], sides[1], atol=1e-5)
        np.testing.assert_allclose(sides[2], sides[1], atol=1e-5)
    sides = [slopes(jnp.asarray(Q), jnp.full(len(Q), v)) for v in (-1e-9, 0.0, 1e-9)]
    np.testing.assert_allclose(sides[0], sides[1], atol=1e-5)
    np.testing.assert_allclose(sides[2], sides[1], atol=1e-5)


@pytest.mark.long
def test_never_pulls_and_only_takes_energy():
    q, v = everywhere()
    for damping in (0.0, 2.0, 1e4):
        stop = eqx.tree_at(lambda s: s.damping, BOTH, jnp.asarray(damping))
        force = law(stop, q, v)
        assert np.all(force[q > UPPER] <= 0)
        assert np.all(force[q < LOWER] >= 0)
        assert np.all(force[(q > LOWER) & (q < UPPER)] == 0)
        assert np.all((force - law(SPRING, q, v)) * v <= 0)


@pytest.mark.long
def test_contract():
    testing.check_joint_force(
        BOTH, joints.Revolute("ground", "rod"), jax.random.key(0), passive=True
    )
    testing.check_joint_force(
        SPRING, joints.Prismatic("ground", "rod"), jax.random.key(1), passive=True
    )


@pytest.mark.long
@pytest.mark.parametrize("v", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("leaf", ["lower", "upper", "stiffness", "damping", "transition"])
def test_derivatives_by_every_leaf(leaf, v):
    """Slopes of force and potential, beyond both limits, in and past the transition."""
    q, rate = jnp.asarray(Q), jnp.full(len(Q), v)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=len(Q)))

    def value(stop):
        energy = jax.vmap(lambda q: stop.potential(T, q[None]))(q)
        return weights @ law(stop, q, rate) + weights @ energy

    along = jax.tree.map(jnp.zeros_like, BOTH)
    along = eqx.tree_at(lambda s: getattr(s, leaf), along, jnp.ones(()))
    _, forward = jax.jvp(value, (BOTH,), (along,))
    assert jax.grad(value)(BOTH).__dict__[leaf] == pytest.approx(float(forward), rel=1e-12)
    assert difference(value, BOTH, along) == pytest.approx(float(forward), rel=1e-8, abs=1e-8)


def test_one_side():
    q, still = jnp.array([-1.0, 1.0]), jnp.zeros(2)
    above = forces.JointStop("hinge", upper=UPPER, stiffness=STIFFNESS, transition=WIDTH)
    below = forces.JointStop("hinge", lower=LOWER, stiffness=STIFFNESS, transition=WIDTH)
    both = law(SPRING, q, still)
    np.testing.assert_array_equal(law(above, q, still), [0.0, both[1]])
    np.testing.assert_array_equal(law(below, q, still), [both[0], 0.0])
    assert below.potential(T, q[1:]) == 0.0
    assert above.potential(T, q[1:]) == SPRING.potential(T, q[1:])


def test_single_precision():
    stop = jax.tree.map(lambda x: x.astype(jnp.float32), BOTH)
    q, v = (x.astype(jnp.float32) for x in everywhere())
    found = law(stop, q, v)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, law(BOTH, *everywhere()), rtol=1e-4, atol=1e-4)
    # Where the contact is as thin as it can be, the derivatives are still there.
    thin = eqx.tree_at(lambda s: s.upper, stop, jnp.zeros((), jnp.float32))
    depth, fast = jnp.float32([0.0, 1e-38, 1e-30, 1e-20, 1e-10]), jnp.full(5, -9.0, jnp.float32)
    slopes = jax.jit(jax.grad(lambda *x: jnp.sum(law(*x)), (0, 1, 2)))(thin, depth, fast)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


def bouncing(stop):
    return mbd.Model(MODEL.bodies, MODEL.joints, {**MODEL.forces, "stop": stop})


def swing(stop, formulation, **options):
    system = mbd.formulate(bouncing(stop), formulation)
    return mbd.simulate(system, mbd.assemble(system, {"hinge": 0.1}, {"hinge": 4.0}), **options)


FINE = diffrax.PIDController(rtol=1e-10, atol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formulation",
    thorough_but([mbd.JointCoordinates()], [mbd.JointCoordinates(), mbd.MaximalCoordinates()]),
)
def test_a_pendulum_between_stops_keeps_its_energy(formulation):
    """Measured: off by 2e-7 J of 2.7 J in seven bounces, dense output between steps included."""
    motion = swing(SPRING, formulation, t1=3.0, controller=FINE)
    q = motion.joints["hinge"].q
    assert np.max(q) > UPPER + WIDTH
    assert np.min(q) < LOWER - WIDTH
    assert np.sum(np.diff(np.sign(np.asarray(motion.joints["hinge"].v))) != 0) == 7
    total = motion.energy.total
    assert np.max(np.abs(total - total[0])) < 1e-6
    assert np.max(motion.energy.elastic) > 1.0


@pytest.mark.thorough
def test_an_energy_conserving_integrator_keeps_it_to_rounding():
    """Measured: 1e-12 J, with steps as long as the joint takes to pass the transition."""
    motion = swing(
        SPRING, mbd.MaximalCoordinates(), t1=3.0, dt=0.02, integrator=mbd.EnergyMomentum()
    )
    total = motion.energy.total
    assert np.max(motion.joints["hinge"].q) > UPPER + WIDTH
    assert np.max(np.abs(total - total[0])) < 1e-10


@pytest.mark.long
def test_damping_takes_energy_in_contact_only():
    motion = swing(BOTH, mbd.JointCoordinates(), t1=3.0, controller=FINE, saveat=0.002)
    q, total = np.asarray(motion.joints["hinge"].q), np.asarray(motion.energy.total)
    change = np.diff(total)
    assert np.max(change) < 1e-8
    free = (np.abs(q[:-1]) < UPPER) & (np.abs(q[1:]) < UPPER)
    assert np.max(np.abs(change[free])) < 1e-8
    assert total[-1] < total[0] - 1.0


@pytest.mark.thorough
def test_gradient_through_bounces():
    """Derivatives of the angle after bounces at both sides, by all leaves of the stop."""

    def end(x):
        stop = forces.JointStop(
            "hinge",
            -x[1],
            0.3 * x[0],
            stiffness=60.0 * x[2],
            transition=0.1 * x[0],
            damping=0.2 * x[2],
        )
        system = mbd.formulate(bouncing(stop), mbd.JointCoordinates())
        state = mbd.assemble(system, {"hinge": 0.1}, {"hinge": 4.0})
        return mbd.rollout(system, state, 2e-3, 400, mbd.ExplicitRK(diffrax.Dopri5())).q[-1, 0]

    check_gradient(end)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "force 'stop': a stop needs lower, upper or both"),
        ({"lower": 1.0, "upper": 1.0}, "force 'stop': lower must be below upper, got 1.0 and 1.0"),
        ({"upper": 1.0, "stiffness": 0.0}, "force 'stop': stiffness must be positive, got 0.0"),
        ({"upper": 1.0, "transition": -1.0}, "force 'stop': transition must be positive, got -1.0"),
        ({"upper": 1.0, "damping": -1.0}, "force 'stop': damping must not be negative, got -1.0"),
        ({"upper": np.inf}, "force 'stop': upper must be finite"),
        ({"upper": [1.0, 2.0]}, "JointStop: upper must be a number, got shape (2,)"),
        ({"lower": "low"}, "JointStop: lower must be numeric, got 'low'"),
    ],
)
def test_errors(options, message):
    with pytest.raises(mbd.ModelError) as caught:
        bouncing(forces.JointStop("hinge", **{"stiffness": 1.0, "transition": 0.1, **options}))
    assert message in str(caught.value)


def test_a_stop_needs_one_coordinate():
    model = mbd.Model(
        MODEL.bodies,
        {"ball": joints.Spherical(mbd.ground, "rod")},
        {"stop": forces.JointStop("ball", upper=1.0, stiffness=1.0, transition=0.1)},
    )
    with pytest.raises(mbd.ModelError, match="one coordinate, not 4") as caught:
        mbd.formulate(model, mbd.JointCoordinates())
    assert "force 'stop' on the Spherical joint 'ball'" in str(caught.value)

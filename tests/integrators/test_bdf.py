"""BDF: observed orders, the three forms of constraints, adaptive steps, jumps, gradients."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.integrators.bdf import backward_weights, collocation_weights, extrapolation_weights
from tests.derivatives import difference
from tests.marks import thorough_but
from tests.models import chain

START = ({"jlink0000": 0.3}, {"jlink0000": 1.0})


@pytest.fixture(scope="module")
def pendulum():
    """A swinging rod in both coordinates, and its angle and rate at 64 times within a second."""
    systems = {
        "joint": mbd.formulate(chain(1), mbd.JointCoordinates()),
        "maximal": mbd.formulate(chain(1), mbd.MaximalCoordinates()),
    }
    starts = {name: mbd.assemble(system, *START) for name, system in systems.items()}
    fine = mbd.rollout(
        systems["joint"], starts["joint"], dt=1 / 256, n_steps=256, integrator=diffrax.Dopri8()
    )
    return systems, starts, jnp.stack([fine.q[3::4, 0], fine.v[3::4, 0]])


def seen(states):
    """Angle and rate, from either coordinates."""
    if states.q.shape[-1] == 1:
        return jnp.stack([states.q[..., 0], states.v[..., 0]])
    return jnp.stack([2.0 * jnp.arctan2(states.q[..., 5], states.q[..., 3]), states.v[..., 4]])


@eqx.filter_jit
def errors(system, start, exact, method, batched=False):
    """Largest errors of angle and rate with 64, 128 and 256 steps.

    One run after the other, or all as a batch, which takes several times as long to trace.
    """

    def run(n):
        states = mbd.rollout(system, start, dt=1.0 / n, n_steps=256, integrator=method)
        common = jnp.arange(1, 65) * (n.astype(int) // 64) - 1
        return jnp.max(jnp.abs(seen(states)[:, common] - exact), axis=1)

    each = jax.vmap(run) if batched else functools.partial(jax.lax.map, run)
    return each(jnp.array([64.0, 128.0, 256.0]))


@pytest.mark.thorough
@pytest.mark.parametrize("order", thorough_but([2, 4], range(1, 6)))
def test_order(pendulum, order):
    systems, starts, exact = pendulum
    found = errors(systems["joint"], starts["joint"], exact, mbd.BDF(order), order == 3)
    np.testing.assert_allclose(np.log2(found[1] / found[2]), order, atol=0.25)


@pytest.mark.parametrize("index", thorough_but([3], [1, 2, 3]))
@pytest.mark.thorough
def test_order_with_constraints(pendulum, index):
    systems, starts, exact = pendulum
    found = errors(systems["maximal"], starts["maximal"], exact, mbd.BDF(2, index=index))
    np.testing.assert_allclose(np.log2(found[1] / found[2]), 2.0, atol=0.25)


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(["joint"], ["joint", "maximal"]))
def test_adaptive_steps(pendulum, name):
    """The error per step is controlled: that of the motion falls like the tolerance to the 3/4."""
    systems, starts, exact = pendulum

    @jax.jit
    def far(tolerance):
        solution = mbd.simulate(
            systems[name],
            starts[name],
            t1=1.0,
            controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            integrator=mbd.BDF(3),
            saveat=diffrax.SaveAt(t1=True),
            max_steps=1000,
        )
        return jnp.abs(seen(solution.states)[:, -1] - exact[:, -1]), solution.raw.stats["num_steps"]

    (coarse, few), (fine, many) = far(1e-5), far(1e-8)
    assert 1e-3 < np.max(coarse) < 3e-2
    np.testing.assert_array_less(50.0, coarse / fine)
    assert few < 100 < many < 400


class Kick(eqx.Module):
    """A torque that starts at once."""

    t: float

    def __call__(self, t):
        return jnp.where(t < self.t, 0.0, 3.0)[None]


@pytest.mark.thorough
def test_a_jump_in_the_loads_costs_no_order():
    plain = chain(1)
    drive = {"kick": mbd.forces.JointTorque("jlink0000", Kick(0.5))}
    model = mbd.Model(plain.bodies, plain.joints, {**plain.forces, **drive})
    system = mbd.formulate(model, mbd.JointCoordinates())
    start = mbd.assemble(system, *START)

    def end(integrator, tolerance):
        controller = diffrax.ClipStepSizeController(
            diffrax.PIDController(rtol=tolerance, atol=tolerance), jump_ts=[0.5]
        )
        solution = mbd.simulate(
            system,
            start,
            t1=1.0,
            controller=controller,
            integrator=integrator,
            saveat=diffrax.SaveAt(t1=True),
        )
        return solution.states.q[-1, 0], solution.raw.stats["num_steps"]

    exact, _ = end(diffrax.Dopri8(), 1e-12)
    found, steps = end(mbd.BDF(4), 1e-8)
    assert abs(found - exact) < 1e-6
    assert steps < 400


@pytest.mark.thorough
def test_gradient(pendulum):
    """Through the start, which is another method, and the steps after it."""
    systems, starts, _ = pendulum

    @eqx.filter_jit
    def end(rate):
        start = mbd.State(starts["joint"].q, starts["joint"].v * rate)
        states = mbd.rollout(systems["joint"], start, dt=0.02, n_steps=12, integrator=mbd.BDF(2))
        return states.q[-1, 0]

    look = eqx.filter_jit(jax.value_and_grad(end))
    value = jnp.asarray(1.2)
    slope = difference(lambda x: look(x)[0], value, jnp.asarray(1.0), h=1e-4)
    assert slope == pytest.approx(float(look(value)[1]), rel=1e-8)


@pytest.mark.long
def test_weights_are_exact_for_polynomials():
    ages = jnp.array([0.1, 0.25, 0.31, 0.5])

    def y(t):
        return 1.0 + t * (2.0 + t * (-3.0 + t * (0.5 + t * 0.7)))

    slope = backward_weights(ages) @ (y(-ages) - y(0.0))
    assert slope == pytest.approx(2.0, rel=1e-12)
    ahead = extrapolation_weights(ages) @ (y(-ages) - 0.7 * ages**4)
    assert ahead == pytest.approx(1.0, rel=1e-12)
    nodes = np.array([0.3, 1.0])
    points = np.array([0.0, *nodes])
    np.testing.assert_allclose(collocation_weights(nodes) @ points**2, 2 * points, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mbd.BDF(6), "order must be 1, 2, 3, 4 or 5, got 6"),
        (lambda: mbd.BDF(2, index=4), "index must be 1, 2 or 3, got 4"),
        (lambda: mbd.BDF(2, stabilization=mbd.Baumgarte()), "index 2 uses no stabilization"),
    ],
)
def test_impossible_options(make, message):
    with pytest.raises(mbd.ModelError, match=message):
        make()


STARTS = (4e-3, 2.5e-4, 1.6e-5, 1e-8)  # Step lengths [s].


def rising_cable():
    """A stiff cable, straight and at rest, under a load that rises from zero."""
    rope = mbd.bodies.ANCFCable(
        length=2.0, EA=1e6, EI=3.0, mass_per_length=0.5, n_elements=2, planar=True
    )
    load = mbd.signals.Step(0.0, 0.1, [0.0, 0.0, 0.0], [0.0, 0.0, -3.0])
    return mbd.Model(
        {"rope": rope},
        {"root": joints.Fixed("ground", Frame("rope", node="base"))},
        {"load": forces.AppliedForce(Frame("rope", node="tip"), load)},
    )


def spatial_loop():
    """A hinge, a ball joint and a point on a plane."""
    crank, rod = (
        mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=x), [x / 2, 0, 0]) for x in (0.4, 1.0)
    )
    return mbd.Model(
        {"crank": crank, "rod": rod},
        {
            "hinge": joints.Revolute(mbd.ground, "crank", axis=[0, 1, 0]),
            "ball": joints.Spherical(Frame("crank", [0.4, 0, 0]), "rod"),
            "plane": joints.PointOnPlane(mbd.ground, Frame("rod", [1.0, 0, 0]), axis=[0, 0, 1]),
        },
        {"gravity": forces.Gravity()},
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "guess", "method"),
    [
        (rising_cable, {}, mbd.BDF(2)),
        (rising_cable, {}, mbd.GeneralizedAlpha(index=2)),
        (spatial_loop, {"hinge": -0.5}, mbd.BDF(3)),
        (spatial_loop, {"hinge": -0.5}, mbd.BDF(4)),
    ],
    ids=["cable, bdf 2", "cable, alpha", "loop, bdf 3", "loop, bdf 4"],
)
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_shorter_steps_from_rest_succeed_too(make, guess, method, formulation):
    system = mbd.formulate(make(), formulation)
    start = mbd.assemble(system, guess)
    run = jax.jit(lambda h: mbd.rollout(system, start, h, 5, method).q)
    for h in STARTS:
        assert jnp.all(jnp.isfinite(run(h))), h


@pytest.mark.long
def test_tolerances_near_rounding_take_no_more_than_the_steps_of_the_order():
    """A stiff, damped spring on a hinge: order 5 needs 10^(1/6) times the steps per decade."""
    arm = mbd.inertia.shifted(mbd.inertia.rod(mass=2.0, length=1.0), [0.5, 0, 0])
    anchor, end = Frame("ground", [0, 0, -0.5]), Frame("arm", [0.5, 0, 0])
    spring = forces.SpringDamper(anchor, end, 8e5, 4e4, 0.6)
    model = mbd.Model(
        {"arm": arm},
        {"hinge": joints.Revolute(mbd.ground, "arm", axis=[0, 1, 0])},
        {"gravity": forces.Gravity(), "spring": spring},
    )
    system = mbd.formulate(model)
    start = mbd.assemble(system, {"hinge": 0.2})

    @jax.jit
    def run(tolerance):
        controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)
        motion = mbd.simulate(system, start, t1=0.5, integrator=mbd.BDF(5), controller=controller)
        return motion.states.q[-1, 0], motion.raw.stats["num_steps"]

    (rough, few), (fine, many) = run(1e-8), run(1e-12)
    np.testing.assert_allclose(rough, fine, rtol=1e-7)
    assert many < 1.2 * few * 10.0 ** (4 / 6)


FRICTION, GRAVITY, STIFFNESS = 0.3, 9.81, 1e5


def speeds_on_a_floor(shape, body, half, depth, method, formulation, n=300):
    """Velocities in n steps of a body that lies on an inclined floor, its height half and depth."""

    @jax.jit
    def run(transition, slope, speed, dt):
        law = mbd.contact.HuntCrossley(STIFFNESS, 0.5, 1.0)
        pull = GRAVITY * jnp.stack([jnp.sin(slope), 0.0 * slope, -jnp.cos(slope)])
        friction = mbd.contact.Coulomb(FRICTION, transition)
        touch = forces.Contact(shape, mbd.contact.HalfSpace("ground"), law, friction)
        model = mbd.Model(
            {"body": body},
            {"free": joints.Free(mbd.ground, "body")},
            {"gravity": forces.Gravity(pull), "floor": touch},
        )
        system = mbd.formulate(model, formulation)
        height = half - depth * jnp.cos(slope)
        start = mbd.assemble(system, {"free": jnp.zeros(6).at[2].set(height)})
        start = eqx.tree_at(lambda s: s.v, start, start.v.at[0].add(speed))
        return mbd.rollout(system, start, dt, n, method).v

    return lambda *case: np.asarray(run(*map(jnp.asarray, case)))


def reference(rates, start, ts):
    options = {"method": "Radau", "t_eval": ts, "rtol": 1e-10, "atol": 1e-13}
    return scipy.integrate.solve_ivp(rates, (0.0, ts[-1]), start, **options).y


ANGLE = float(np.arctan(FRICTION))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formulation", "thickness"),
    [
        (mbd.JointCoordinates(), 2e-3),
        (mbd.JointCoordinates(), 0.1),
        (mbd.MaximalCoordinates(), 2e-3),
    ],
    ids=["joint, thin", "joint, thick", "maximal, thin"],
)
@pytest.mark.parametrize("method", [mbd.BDF(2), mbd.GeneralizedAlpha()], ids=["bdf", "alpha"])
def test_boxes_with_regularized_friction(method, formulation, thickness):
    """Just below and above the angle of friction, and sliding to a stop, against the exact motion.

    A thick box tilts when friction starts or stops to act, which changes its speed by about
    μ g h² m / √(k I) = 2 mm/s in the exact motion of a box too. Generalized-α takes half of the
    acceleration at rest, where no friction acts yet, for the first step.
    """
    size = np.array([0.2, 0.2, thickness])
    shape, body = mbd.contact.Box("body", size), mbd.inertia.box(1.0, size)
    run = speeds_on_a_floor(
        shape, body, 0.5 * thickness, GRAVITY / (4 * STIFFNESS), method, formulation
    )
    tilting = 3e-3 if thickness > 0.01 else 0.0
    for slope, speed in [(0.98 * ANGLE, 0.0), (1.02 * ANGLE, 0.0), (0.0, 0.1), (0.0, 0.3)]:
        for transition in (1e-3, 1e-4):
            for dt in (1e-3, 2e-4):

                def rate(_, v, slope=slope, transition=transition):
                    held = FRICTION * np.cos(slope) * np.tanh(v / transition)
                    return GRAVITY * (np.sin(slope) - held)

                exact = reference(rate, [speed], dt * np.arange(1, 301))[0]
                error = run(transition, slope, speed, dt)[:, 0] - exact
                starting = (
                    0.0 if isinstance(method, mbd.BDF) else 0.5 * dt * GRAVITY * np.sin(slope)
                )
                extra, case = tilting + starting, (slope, speed, transition, dt)
                assert np.max(np.abs(error)) < 4e-4 + extra, case
                assert abs(error[-1]) < 1e-4 + extra, case


@pytest.mark.thorough
def test_a_ball_slides_and_then_rolls():
    """The force acts at the middle of the overlap of ball and floor."""
    radius = 0.1
    shape, body = mbd.contact.Sphere("body", radius), mbd.inertia.sphere(1.0, radius)
    depth = GRAVITY / STIFFNESS
    run = speeds_on_a_floor(shape, body, radius, depth, mbd.BDF(2), mbd.JointCoordinates())
    arm, inertia = radius - 0.5 * depth, 0.4 * radius**2
    for transition in (1e-3, 1e-4):

        def rates(_, y, transition=transition):
            force = FRICTION * GRAVITY * np.tanh((y[0] - arm * y[1]) / transition)
            return [-force, arm * force / inertia]

        exact = reference(rates, [1.0, 0.0], 1e-3 * np.arange(1, 301))
        v = run(transition, 0.0, 1.0, 1e-3)
        found = np.stack([np.linalg.norm(v[:, :3], axis=1), v[:, 4]])
        error = np.abs(found - exact) * [[1.0], [arm]]
        assert np.max(error) < 4e-4
        assert np.max(error[:, -1]) < 2e-5

"""Motions in contact against closed forms: bouncing, rolling, sliding, sticking, tipping."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, forces, joints
from tests.contact import models
from tests.derivatives import difference

G = models.GRAVITY


@pytest.fixture(scope="module")
def on_slope():
    """Motion of 1 s of a block on bristles: positions along the slope, and final inclination."""

    @eqx.filter_jit
    def run(angle, coefficient, size):
        model = models.block(angle, coefficient, size)
        system = mbd.formulate(model, mbd.JointCoordinates())
        R = model.forces["touch"].shape_b.frame.R
        sunk = 2.0 * G / 4.0 / 2e5
        start = mbd.Pose(R @ jnp.stack([0.0, 0.0, 0.5 * size[2] - sunk]), R)
        states = mbd.rollout(system, mbd.assemble(system, {"block": start}), 2.5e-4, 4000)
        X = models.states_at(system, states, "block")
        return X.p @ R[:, 0], R[:, 0] @ X.R[-1] @ jnp.array([1.0, 0.0, 0.0])

    return lambda angle, mu, size: run(*(jnp.asarray(x) for x in (angle, mu, size)))


@pytest.mark.thorough
def test_a_block_sticks_slides_and_tips(on_slope):
    """Sticks below arctan μ without creep, slides with g (sin β - μ cos β) above it, and tips where
    tan β exceeds the ratio of its length to its height."""
    x, upright = on_slope(0.3, 0.5, [0.3, 0.2, 0.2])
    assert 0 < x[-1] < 1e-3
    assert abs(x[-1] - x[-400]) < 2e-8  # 0.2 µm/s, still of the oscillation that dies out.
    x, upright = on_slope(0.5, 0.4, [0.3, 0.2, 0.2])
    acceleration = (x[3999] - 2 * x[2999] + x[1999]) / 0.25**2
    assert acceleration == pytest.approx(G * (np.sin(0.5) - 0.4 * np.cos(0.5)), rel=1e-4)
    assert upright == pytest.approx(1.0, abs=1e-6)
    # It stands on an edge of 0.1 m, 0.2 m high: arctan(1/2) = 0.464.
    assert on_slope(0.44, 0.8, [0.1, 0.2, 0.2])[1] > 0.9999
    assert on_slope(0.48, 0.8, [0.1, 0.2, 0.2])[1] < 0.98


@pytest.mark.thorough
def test_a_block_on_a_slope_does_not_creep(on_slope):
    """At nine tenths of the angle of friction: what is left dies out with the rocking.

    At depths d of 25 µm that decays at 4 c k d / (2 m) = 5 per second: to 0.6 in 0.1 s.
    """
    x, _ = on_slope(0.9 * np.arctan(0.5), 0.5, [0.3, 0.2, 0.1])
    moved = x[-1] - x[-400], x[-401] - x[-800]
    assert 0 <= moved[0] < min(0.7 * moved[1], 1e-6)


@pytest.mark.thorough
def test_derivative_of_sliding_by_friction():
    """d²/dt² dx/dμ = -g cos β, of a block that slides."""

    def place(coefficient):
        model = models.block(jnp.asarray(0.5), coefficient, jnp.asarray([0.3, 0.2, 0.2]))
        system = mbd.formulate(model, mbd.JointCoordinates())
        R = model.forces["touch"].shape_b.frame.R
        X = mbd.Pose(R @ jnp.asarray([0.0, 0.0, 0.1 - 2.0 * G / 4.0 / 2e5]), R)
        states = mbd.rollout(system, mbd.assemble(system, {"block": X}), 2.5e-4, 2400)
        return models.states_at(system, states, "block").p @ R[:, 0]

    tangent = jax.jit(lambda mu: jax.jvp(place, (mu,), (jnp.ones(()),))[1])(jnp.asarray(0.4))
    second = (tangent[2399] - 2 * tangent[1599] + tangent[799]) / 0.2**2
    assert second == pytest.approx(-G * np.cos(0.5), rel=1e-3)


@eqx.filter_jit
def dropped(height, stiffness, damping, t1, formulation):
    """Height of a ball after it fell on the floor and bounced."""
    law = contact.HuntCrossley(stiffness, damping, exponent=1.5)
    model = models.ball({"floor": models.floor(normal=law, friction=contact.Coulomb(0.2))})
    system = mbd.formulate(model, formulation)
    X = mbd.Pose(jnp.stack([0.0 * height, 0.0 * height, height + 0.1]), jnp.eye(3))
    start = mbd.assemble(system, {"ball": X})
    steps = diffrax.PIDController(rtol=1e-11, atol=1e-11)
    options = {"controller": steps, "max_steps": 40000, "adjoint": diffrax.ForwardMode()}
    solution = mbd.simulate(system, start, t1=t1, saveat=jnp.stack([t1]), throw=False, **options)
    return solution.frames["ball"].p[-1, 2], solution.energy.total[-1]


@pytest.mark.thorough
def test_a_dropped_ball_and_its_derivatives():
    """Two bounces against the equation of motion of the height alone by scipy, derivatives by
    drop height, stiffness and damping against its differences.

    Values are exact to 1e-7 with tolerances of 1e-8 already, derivatives to 1 % only.
    """
    from scipy.integrate import solve_ivp

    inputs = jnp.asarray([0.3, 1e5, 0.3])
    along = jnp.asarray([0.3, 3e4, 0.2])

    def reference(x):
        height, k, c = (float(v) for v in x)

        def slope(t, y):
            depth = max(0.1 - y[0], 0.0)
            return [y[1], k * depth**1.5 * max(1.0 - c * y[1], 0.0) - G]

        def lands(t, y):
            return y[0] - 0.1

        t, y = 0.0, [height + 0.1, 0.0]
        while t < 0.8:
            lands.terminal, lands.direction = True, -1 if y[0] > 0.1 or t == 0.0 else 1
            part = solve_ivp(
                slope, (t, 0.8), y, "DOP853", events=lands, rtol=1e-12, atol=1e-13, max_step=1e-3
            )
            t, y = part.t[-1], part.y[:, -1]
            if part.status == 1:
                y = [0.1 + (1e-12 if y[1] > 0 else -1e-12), y[1]]
        return y[0]

    def height(x):
        return dropped(*x, jnp.asarray(0.8), mbd.JointCoordinates())[0]

    value, slope = jax.jit(lambda x, u: jax.jvp(height, (x,), (u,)))(inputs, along)
    assert value == pytest.approx(reference(inputs), abs=1e-6)
    wanted = difference(reference, np.asarray(inputs), np.asarray(along), h=1e-4)
    assert slope == pytest.approx(wanted, rel=1e-3)


STEEL = contact.HuntCrossley(1e6, 2.0, 1.0)


def motion(model, starts, rates, t1, saveat, rtol=1e-8, states=None):
    """A motion with adaptive steps; starts are positions of free bodies or coordinates."""
    system = mbd.formulate(model, mbd.JointCoordinates())
    starts = {k: mbd.Pose(jnp.asarray(p), jnp.eye(3)) for k, p in starts.items()}
    state = mbd.assemble(system, starts, rates, states=states)
    steps = diffrax.PIDController(rtol=rtol, atol=rtol)
    return mbd.simulate(system, state, t1=t1, controller=steps, saveat=saveat)


@pytest.mark.thorough
def test_a_ball_on_a_turntable():
    """Its velocity turns at 2/7 of the rate of the table, whatever its start."""
    rate, t1, r = 3.0, 1.0, 0.1
    touch = forces.Contact(
        contact.Sphere("ball", r), contact.HalfSpace("table"), STEEL, contact.Coulomb(0.8, 1e-3)
    )
    model = mbd.Model(
        {"ball": mbd.inertia.sphere(1.0, r), "table": mbd.inertia.cylinder(1e6, 2.0, 0.1)},
        {"axle": joints.Revolute("ground", "table", axis=[0, 0, 1])},
        {"weight": forces.Gravity(), "touch": touch},
    )
    sunk = G / 1e6
    rates = {"ball": [0.0, 0.5 * rate, 0.0, 0.0, 0.0, 0.0], "axle": rate}
    found = motion(model, {"ball": [0.5, 0.0, r - sunk]}, rates, t1, [t1])
    v = found.frames["ball"].R[-1] @ found.twists["ball"][-1, :3]
    turn = 2.0 / 7.0 * rate * t1
    wanted = 0.5 * rate * np.array([-np.sin(turn), np.cos(turn), 0.0])
    np.testing.assert_allclose(v, wanted, atol=1e-3)


@pytest.mark.thorough
def test_a_ball_that_rolls_off_a_ball():
    """From rest at the angle θ₀ it leaves at cos θ = 10/17 cos θ₀."""
    R, r, start = 0.5, 0.1, 0.2
    touch = forces.Contact(
        contact.Sphere("ball", r),
        contact.Sphere("ground", R),
        contact.HuntCrossley(1e5, 2.0, 1.0),
        contact.Coulomb(5.0, 1e-2),
    )
    at = (R + r - G / 1e5) * np.array([np.sin(start), 0.0, np.cos(start)])
    found = motion(models.ball({"touch": touch}, r), {"ball": at}, None, 1.1, 5e-4)
    depth = jax.vmap(lambda t, y: mbd.contacts(found.system, t, y)["touch"].depth[0])(
        found.ts, found.states
    )
    left = int(np.argmax(np.asarray(depth) < 0))
    p = found.frames["ball"].p[left]
    assert p[2] / jnp.sqrt(p @ p) == pytest.approx(10 / 17 * np.cos(start), rel=3e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("spin", [1.0, -1.0], ids=["follow", "draw"])
def test_billiards(spin):
    """A cue ball with the spin of rolling, or its opposite, ends at ± 2/7 of its speed, and the
    object ball rolls with 5/7 of it."""
    r, speed = 0.03, 1.0
    shapes = {name: contact.Sphere(name, r) for name in ("cue", "object")}
    shapes["cloth"] = contact.HalfSpace("ground")
    cloth = forces.Material(contact.HuntCrossley(1e5, 2.0, 1.0), contact.Coulomb(0.3, 1e-3))
    ivory = forces.Material(contact.HuntCrossley(1e8, 0.0, 1.5))
    touch = forces.contact_pairs(shapes, lambda a, b: cloth if b == "cloth" else ivory)
    bodies = {name: mbd.inertia.sphere(0.2, r) for name in ("cue", "object")}
    model = mbd.Model(bodies, forces={"weight": forces.Gravity(), **touch})
    z = r - 0.2 * G / 1e5
    starts = {"cue": [0.0, 0.0, z], "object": [2 * r + 1e-4, 0.0, z]}
    rates = {"cue": [speed, 0.0, 0.0, 0.0, spin * speed / r, 0.0]}
    found = motion(model, starts, rates, 0.6, [0.6])
    v = [found.frames[x].R[-1] @ found.twists[x][-1, :3] for x in ("cue", "object")]
    np.testing.assert_allclose(v[0][0], spin * 2 / 7 * speed, atol=5e-3)
    np.testing.assert_allclose(v[1][0], 5 / 7 * speed, atol=5e-3)


@pytest.mark.long
def test_an_oscillator_with_friction():
    """Its amplitude shrinks by 2 μ N / k every half cycle, and it stops within μ N / k."""
    k, force, start = 100.0, 10.0, 0.2
    touch = forces.Contact(
        contact.Sphere("ball", 0.1),
        contact.HalfSpace("ground"),
        contact.HuntCrossley(1e4, 0.0, 1.0),
        contact.Bristle(0.3, 1e3, 10.0),
    )
    guide = joints.Prismatic(mbd.Frame("ground", [0.0, 0.0, 0.1 - force / 1e4]), "ball", [1, 0, 0])
    spring = forces.TorsionalSpringDamper("guide", k)
    model = mbd.Model(
        {"ball": mbd.inertia.sphere(1.0, 0.1)}, {"guide": guide}, {"touch": touch, "spring": spring}
    )
    system = mbd.formulate(model, mbd.JointCoordinates())
    state = mbd.assemble(system, {"guide": start})
    states = eqx.filter_jit(mbd.rollout)(system, state, 1e-4, 20000)
    x, v = np.asarray(states.q[:, 0]), np.asarray(states.v[:, 0])
    turns = x[:-1][(v[1:] * v[:-1] < 0) & (np.abs(x[:-1]) > 0.3 * force / k * 1.02)]
    loss = 2 * 0.3 * force / k
    np.testing.assert_allclose(np.abs(turns[:2]), start - loss * np.array([1, 2]), atol=2e-3)
    assert np.ptp(x[-2000:]) < 1e-9
    assert abs(x[-1]) < 0.3 * force / k


@pytest.mark.thorough
def test_formulations_agree():
    """Accelerations of a spinning ball in contact."""
    touch = models.floor(
        friction=contact.Coulomb(0.3, 0.1), rolling=contact.RollingResistance(0.01)
    )
    X = mbd.Pose(jnp.asarray([0.1, 0.2, 0.098]), jnp.eye(3))
    rates = {"ball": [0.3, -0.2, 0.05, 1.0, 2.0, 3.0]}
    found = []
    for formulation in (mbd.JointCoordinates(), mbd.MaximalCoordinates()):
        system = mbd.formulate(models.ball({"floor": touch}), formulation)
        state = mbd.assemble(system, {"ball": X}, rates)
        vdot, _ = mbd.accelerations(system, 0.0, state)
        _, rate = jax.jvp(
            lambda q, v, s=system: s.twists(jnp.zeros(()), q, v)["ball"],
            (state.q, state.v),
            (system.rates(state.q, state.v), vdot),
        )
        found.append(rate)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formulation", "integrator"),
    [
        (mbd.MaximalCoordinates(), mbd.GeneralizedAlpha(rho_inf=0.8)),
        (mbd.JointCoordinates(), mbd.BDF()),
        (mbd.MaximalCoordinates(), mbd.EnergyMomentum()),
        (mbd.MaximalCoordinates(), mbd.EnergyDecaying()),
        (mbd.NaturalCoordinates(rigid=True), mbd.ExplicitRK()),
        (mbd.PointCoordinates(), mbd.ExplicitRK()),
    ],
    ids=lambda x: type(x).__name__,
)
def test_integrators_agree(formulation, integrator):
    """A soft bounce with slip, against adaptive steps."""
    law = contact.HuntCrossley(1e3, 0.2, exponent=1.5)
    model = models.ball({"floor": models.floor(normal=law, friction=contact.Coulomb(0.2, 0.1))})
    X, rates = [0.0, 0.0, 0.12], {"ball": [0.5, 0.0, -0.3, 0.0, 1.0, 0.0]}
    wanted = motion(model, {"ball": X}, rates, 0.3, [0.3]).frames["ball"].p[-1]
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, {"ball": mbd.Pose(jnp.asarray(X), jnp.eye(3))}, rates)
    states = eqx.filter_jit(mbd.rollout)(system, state, 2.5e-4, 1200, integrator)
    found = models.states_at(system, states).p[-1]
    np.testing.assert_allclose(found, wanted, atol=2e-4)

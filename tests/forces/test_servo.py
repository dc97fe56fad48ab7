"""Servo drives: friction M1 to M6, elastic gear, play, hysteresis, gain, delay, limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals
from tests.derivatives import difference
from tests.marks import thorough_but

T = jnp.asarray(0.3)
V_T, W = 1e-3, 1e-4
M6 = {
    "coulomb": 0.06,
    "viscous": 0.015,
    "quadratic": 0.004,
    "stribeck": 0.03,
    "stribeck_velocity": 1.5,
    "exponent": 1.3,
    "load": (0.2, 0.05),
    "load_stribeck": (0.3, 0.1),
    "load_quadratic": (0.02, 0.07),
}
WIDTHS = {"transition_velocity": V_T, "transition_torque": W}


def law(friction, v, motor, external):
    return friction.torque(*map(jnp.asarray, (v, motor, external)))


def budget(v, tm, te, **p):
    """The models of Duclusaud et al. (2024) in words of its own, with exact signs and sizes."""
    p = {"quadratic": 0.0, "stribeck": 0.0, "load": 0.0, "load_stribeck": 0.0} | p
    km, ke = np.broadcast_to(p["load"], 2)
    lm, le = np.broadcast_to(p["load_stribeck"], 2)
    qm, qe = np.broadcast_to(p.get("load_quadratic", 0.0), 2)
    s = np.exp(-(abs(v / p.get("stribeck_velocity", 0.1)) ** p.get("exponent", 2.0)))
    extra = 0.0
    if np.sign(tm) != np.sign(te):
        extra = qe * te**2 if abs(te) < abs(tm) else qm * tm**2
    dry = p["coulomb"] + abs(ke * te - km * tm)
    dry += s * (p["stribeck"] + abs(le * te - lm * tm) + extra)
    return dry + p.get("viscous", 0.0) * abs(v) + p["quadratic"] * v**2


MODELS = {
    "M1": ("coulomb", "viscous"),
    "M2": ("coulomb", "viscous", "stribeck", "stribeck_velocity", "exponent"),
    "M3": ("coulomb", "viscous", "load"),
    "M4": ("coulomb", "viscous", "stribeck", "stribeck_velocity", "load", "load_stribeck"),
    "M5": tuple(name for name in M6 if name not in ("quadratic", "load_quadratic")),
    "M6": tuple(M6),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", MODELS)
def test_closed_forms(name):
    given = {key: M6[key] for key in MODELS[name]}
    if name in ("M3", "M4"):
        given |= {key: 0.17 for key in ("load", "load_stribeck") if key in given}
    friction = forces.GearFriction(**given, **WIDTHS)
    for v in (-2.0, -0.1, 0.05, 1.0):
        for torques in ((0.0, 0.0), (1.0, 0.4), (1.0, -0.4), (-0.7, 1.5), (0.3, -0.8)):
            wanted = -np.sign(v) * budget(v, *torques, **given)
            assert float(law(friction, v, *torques)) == pytest.approx(wanted, rel=1e-12)


def test_m2_is_stribeck_friction():
    own = forces.GearFriction(1.2, 0.4, stribeck=0.7, stribeck_velocity=0.08)
    old = forces.StribeckFriction("hinge", 1.2, 1.9, 0.08, 0.4, 0.01)
    for v in np.linspace(-1.0, 1.0, 21):
        wanted = old.force(T, jnp.zeros(1), jnp.asarray([v]))[0]
        np.testing.assert_allclose(law(own, v, 0.3, -0.3), wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.long
@pytest.mark.parametrize("v", [-0.3, -2e-4, 0.0, 3e-4, 0.4])
@pytest.mark.parametrize("torques", [(0.5, -0.3), (0.2, -0.2), (0.0, 0.0), (-0.1, -0.4)])
def test_derivatives_by_all_numbers_against_differences(v, torques):
    """Also at rest, and where torques change their sign or are equal."""
    friction = forces.GearFriction(**M6, transition_velocity=1e-2, transition_torque=0.05)
    args = friction, *map(jnp.asarray, (v, *torques))

    def torque(args):
        return args[0].torque(*args[1:])

    along = jax.tree.map(lambda x: 0.3 + 0.1 * jnp.arange(float(x.size)).reshape(x.shape), args)
    _, slope = jax.jvp(torque, (args,), (along,))
    found = difference(torque, args, along, h=1e-6)
    assert found == pytest.approx(float(slope), rel=2e-6, abs=1e-9)


def test_slope_at_a_reversal_is_not_zero():
    """-(F/v_t + b), by hand; friction grows with the load there."""
    friction = forces.GearFriction(**M6, **WIDTHS)
    slope = jax.grad(friction.torque)(jnp.zeros(()), jnp.asarray(0.5), jnp.asarray(-0.5))
    wanted = budget(1e-12, 0.5, -0.5, **M6 | {"load_quadratic": 0.0}) + 0.5 * (0.02 + 0.07) * 0.25
    assert float(slope) == pytest.approx(-wanted / V_T - M6["viscous"], rel=1e-9)
    by_load = jax.grad(lambda f: f.torque(jnp.asarray(1e-5), jnp.asarray(0.5), jnp.zeros(())))
    assert np.all(np.asarray(by_load(friction).load)[0] < -1e-3)


def test_friction_only_takes_energy():
    friction, rng = forces.GearFriction(**M6, **WIDTHS), np.random.default_rng(0)
    v, tm, te = rng.normal(size=(3, 500))
    assert np.all(v * jax.vmap(friction.torque)(v, tm, te) < 0)


# Drives ------------------------------------------------------------------------------------------

ROD = mbd.inertia.principal(0.5, [0.01, 0.02, 0.015], com=[0.0, 0.0, -0.2])


def bench(drive, inertia=None, damping=0.0):
    given = {"gravity": forces.Gravity(), "drive": drive}
    if damping:
        given["bearing"] = forces.ViscousFriction("hinge", damping)
    rotors = {} if inertia is None else {"rotor": mbd.Rotor("hinge", inertia)}
    hinge = joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])
    return mbd.Model({"rod": ROD}, {"hinge": hinge}, given, rotors=rotors)


def servo(target):
    return forces.AffineActuator("hinge", target, gain=(8.0, 0, 0), bias=(0, -8.0, -0.4))


def test_rigid_drive_by_hand():
    """clip(gain F(t - delay) + offset) and the friction under these torques."""
    friction = forces.GearFriction(**M6, **WIDTHS)
    options = {"gain": 1.2, "offset": 0.3, "delay": 0.1, "limit": 1.0}
    load = forces.TorsionalSpringDamper("hinge", 0.5)
    for target in (0.0, 0.05, 2.0, -2.0):
        motor = servo(signals.Polynomial([0.0, target]))
        drive = forces.ServoDrive("hinge", motor, friction=friction, external=load, **options)
        q, v = 0.2, -0.5
        torque = np.clip(1.2 * (8.0 * target * (0.3 - 0.1) - 8.0 * q - 0.4 * v) + 0.3, -1.0, 1.0)
        wanted = torque + budget(v, torque, -0.5 * q, **M6)
        found = drive.load(T, jnp.asarray([q]), jnp.asarray([v]), jnp.zeros(0))
        assert float(found[0]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.long
def test_numbers_and_signals_as_torques():
    at = T, jnp.zeros(1), jnp.ones(1), jnp.zeros(0)
    assert forces.ServoDrive("hinge", 2.0).load(*at)[0] == 2.0
    ramp = forces.ServoDrive("hinge", signals.Samples([0.0, 1.0], [0.0, 10.0]), delay=0.1)
    assert ramp.load(*at)[0] == pytest.approx(2.0)
    slope = jax.grad(lambda d: d.load(*at)[0])(ramp)
    assert slope.delay == pytest.approx(-10.0)
    limited = forces.ServoDrive("hinge", 2.0, limit=1.5)
    assert jax.grad(lambda d: d.load(*at)[0])(limited).limit == 1.0


def test_dead_zone():
    """Without play exactly the twist, with play zero inside and shifted outside."""
    twists = jnp.linspace(-0.02, 0.02, 41)
    none = forces.ElasticGear(10.0, 1.0)
    np.testing.assert_allclose(jax.vmap(none.engaged)(twists), twists, rtol=1e-12, atol=1e-17)
    play = forces.ElasticGear(10.0, 1.0, backlash=0.01, transition=1e-4)
    wanted = np.sign(twists) * np.maximum(np.abs(twists) - 0.005, 0.0)
    np.testing.assert_allclose(jax.vmap(play.engaged)(twists), wanted, atol=1e-4)
    slope = jax.grad(lambda g: g.engaged(jnp.asarray(0.01)))(play)
    assert slope.backlash == pytest.approx(-0.5, rel=1e-12)


@pytest.mark.parametrize("n", [1.0, 2.0])
def test_hysteresis_by_closed_form(n):
    """Of a virgin twist at constant rate: ζ = 1 - exp(-δ/δ_y) for n = 1, tanh(δ/δ_y) for n = 2."""
    gear = forces.ElasticGear(1.0, 1.0, hysteresis=1.0, yield_twist=0.01, hysteresis_exponent=n)
    rate, steps = jnp.asarray(0.5), 4000

    def step(zeta, _):
        h = 0.04 / 0.5 / steps
        k1 = gear.hysteresis_rate(zeta, rate)
        k2 = gear.hysteresis_rate(zeta + 0.5 * h * k1, rate)
        return zeta + h * k2, None

    zeta = jax.lax.scan(step, jnp.zeros(()), None, length=steps)[0]
    wanted = 1.0 - np.exp(-4.0) if n == 1.0 else np.tanh(4.0)
    assert float(zeta) == pytest.approx(wanted, rel=1e-5)
    # Where the twist turns back, ζ returns with its full slope.
    assert float(gear.hysteresis_rate(jnp.asarray(0.8), -rate)) == pytest.approx(-50.0)


@pytest.mark.long
def test_a_stiff_gear_is_a_rigid_one():
    """With the rotor's inertia on the joint; the difference decreases as 1/k."""
    ends, friction = [], forces.GearFriction(0.02, 0.05, transition_velocity=0.5)
    rigid = forces.ServoDrive("hinge", servo(0.8), friction=friction)
    options = {"t1": 0.4, "dt": 0.1, "integrator": mbd.BDF()}
    wanted = mbd.simulate(bench(rigid, 0.01), {"hinge": 0.3}, **options).joint("hinge").q[-1]
    for k in (2e3, 2e4):
        gear = forces.ElasticGear(k, 0.01, damping=3.0)
        drive = forces.ServoDrive("hinge", servo(0.8), friction=friction, gear=gear)
        found = mbd.simulate(bench(drive), {"hinge": 0.3}, **options).joint("hinge").q[-1]
        ends.append(abs(float(found - wanted)))
    assert ends[0] < 5e-3
    assert ends[1] < 0.2 * ends[0]


def swing(numbers, formulation, integrator, elastic=False):
    """Angle after 0.5 s, with reversals on the way, as a function of numbers of the drive."""
    coulomb, load, delay, third = numbers
    friction = forces.GearFriction(
        coulomb, 0.01, stribeck=0.02, load=load, load_stribeck=0.1, transition_velocity=0.2
    )
    target = signals.Sine(0.6, 3.0)
    if elastic:
        gear = forces.ElasticGear(
            40.0, 0.01, 0.2, backlash=third, transition=2e-3, hysteresis=0.1, yield_twist=0.01
        )
        drive = forces.ServoDrive("hinge", servo(target), friction=friction, gear=gear, delay=delay)
    else:
        weight = forces.TorsionalSpringDamper("hinge", third)
        drive = forces.ServoDrive(
            "hinge", servo(target), friction=friction, delay=delay, external=weight
        )
    system = mbd.formulate(bench(drive), formulation)
    state = mbd.assemble(system, {"hinge": 0.3})
    states = mbd.rollout(system, state, 2e-3, 250, integrator)
    end = jax.tree.map(lambda x: x[-1], states)
    return mbd.joint_states(system, 0.5, end)["hinge"].q


CASES = [
    (formulation, integrator)
    for formulation in (mbd.JointCoordinates(), mbd.MaximalCoordinates(), mbd.NaturalCoordinates())
    for integrator in (mbd.ExplicitRK(), mbd.GeneralizedAlpha(rho_inf=0.9), mbd.BDF())
    # The springs in place of rigidity are too stiff for these steps of an explicit method.
    if not isinstance(formulation, mbd.NaturalCoordinates)
    or not isinstance(integrator, mbd.ExplicitRK)
]


@pytest.mark.long
@pytest.mark.parametrize(
    "case", thorough_but(CASES[:1], CASES), ids=lambda x: "-".join(type(y).__name__ for y in x)
)
def test_gradients_of_motions_with_reversals(case):
    """Against differences; the motion is that of joint coordinates and Runge-Kutta."""
    elastic = case[0] != CASES[0][0] or case[1] == CASES[0][1]
    numbers = jnp.asarray([0.05, 0.1, 0.01, 0.02 if elastic else 1.0])

    def angle(x):
        return swing(x, *case, elastic)

    run = jax.jit(angle)
    value, slope = run(numbers), jax.jit(jax.jacfwd(angle))(numbers)
    for i in range(4):
        along = jnp.zeros(4).at[i].set(1.0)
        found = difference(run, numbers, along, h=1e-5)
        assert found == pytest.approx(float(slope[i]), rel=2e-4, abs=2e-7)
        assert abs(slope[i]) > 1e-4
    if case != CASES[0]:
        reference = swing(numbers, *CASES[0], elastic)
        assert float(value) == pytest.approx(float(reference), abs=2e-3)


GOOD = forces.GearFriction(0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: forces.GearFriction(-1.0), "friction: coulomb must not be negative"),
        (lambda: forces.GearFriction(0.1, load=[0.1, -0.2]), "friction: load must not be negative"),
        (lambda: forces.GearFriction(0.1, exponent=0.0), "friction: exponent must be positive"),
    ],
)
def test_errors_of_friction(make, message):
    with pytest.raises(mbd.ModelError, match=f"'drive': {message}"):
        bench(forces.ServoDrive("hinge", friction=make()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: forces.GearFriction(0.1, load=[0.1, 0.2, 0.3]), "load must be one number, or two"),
        (lambda: forces.ServoDrive("hinge", friction=0.3), "friction must be a GearFriction"),
        (lambda: forces.ServoDrive("hinge", forces.Gravity()), "motor must be a force on the jo"),
        (
            lambda: forces.ServoDrive("hinge", gear=forces.ElasticGear(1.0, 1.0), external=1.0),
            "external is for a rigid gear",
        ),
        (
            lambda: bench(forces.ServoDrive("hinge", forces.JointTorque("other", 1.0))),
            "unknown joint 'other'",
        ),
        (
            lambda: bench(
                forces.ServoDrive(
                    "hinge",
                    forces.DCMotor("hinge", 0.1, voltage=1.0, resistance=1.0, inductance=0.1),
                )
            ),
            "motor has first-order states",
        ),
        (lambda: bench(forces.ServoDrive("hinge", 1.0, delay=-0.1)), "delay must not be negative"),
        (lambda: bench(forces.ServoDrive("hinge", 1.0, limit=0.0)), "limit must be positive"),
        (
            lambda: bench(forces.ServoDrive("hinge", gear=forces.ElasticGear(-1.0, 1.0))),
            "gear: stiffness must be positive",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(mbd.ModelError, match=message):
        make()

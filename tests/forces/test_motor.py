"""Motors: torque, back-emf, where the power goes, and a drive that runs up to speed."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, signals, testing
from jaxmbd.system import loads, mass_and_energy

T = jnp.asarray(0.7)
K, GEAR, OHMS, VOLTS = 0.05, 20.0, 1.5, 12.0
STALL, IDLE = GEAR * K * VOLTS / OHMS, VOLTS / (GEAR * K)
DRIVE = forces.DCMotor("hinge", K, GEAR, voltage=VOLTS, resistance=OHMS)


@jax.jit
def torque(motor, v, t=T):
    """On a joint that moves at v."""
    return motor.force(t, jnp.zeros(1), jnp.asarray(v)[None])[0]


@pytest.mark.smoke
def test_torque_of_a_current():
    motor = forces.DCMotor("hinge", K, GEAR, current=signals.Polynomial([1.0, 2.0]))
    assert torque(motor, 3.0) == pytest.approx(GEAR * K * 2.4, rel=1e-14)
    assert motor.winding_current(T, jnp.asarray(3.0)) == pytest.approx(2.4, rel=1e-14)
    assert forces.DCMotor("hinge", K, current=2.0).potential(T, jnp.zeros(1)) == 0


def test_torque_of_a_voltage():
    """Largest where the rotor is held, none at idle speed, on a straight line between."""
    assert torque(DRIVE, 0.0) == pytest.approx(STALL, rel=1e-14)
    assert torque(DRIVE, IDLE) == pytest.approx(0.0, abs=1e-14)
    assert torque(DRIVE, 0.3 * IDLE) == pytest.approx(0.7 * STALL, rel=1e-14)


def test_a_gear_that_turns_the_other_way():
    turned = eqx.tree_at(lambda m: m.gear_ratio, DRIVE, jnp.asarray(-GEAR))
    assert torque(turned, -2.0) == pytest.approx(-float(torque(DRIVE, 2.0)), rel=1e-14)


@pytest.mark.parametrize("v", [-5.0, 4.0, 20.0])
def test_electrical_power_is_heat_and_mechanical_power(v):
    """Backwards it brakes, above idle speed it generates."""
    current = DRIVE.winding_current(T, jnp.asarray(v))
    given = VOLTS * current - OHMS * current**2
    assert torque(DRIVE, v) * v == pytest.approx(float(given), rel=1e-13)


def test_derivatives_by_coefficients():
    v = 4.0
    slopes, by_speed = jax.grad(torque, argnums=(0, 1))(DRIVE, v)
    current = (VOLTS - K * GEAR * v) / OHMS
    wanted = {
        "torque_constant": GEAR * current - GEAR * K * GEAR * v / OHMS,
        "gear_ratio": K * current - GEAR * K * K * v / OHMS,
        "resistance": -GEAR * K * current / OHMS,
    }
    for name, slope in wanted.items():
        assert getattr(slopes, name) == pytest.approx(slope, rel=1e-13)
    assert slopes.voltage.value == pytest.approx(GEAR * K / OHMS, rel=1e-13)
    assert by_speed == pytest.approx(-((K * GEAR) ** 2) / OHMS, rel=1e-13)


def test_contract():
    """With its terminals joined it is a brake."""
    short = forces.DCMotor("hinge", K, GEAR, voltage=0.0, resistance=OHMS)
    joint = joints.Revolute("ground", "rod")
    testing.check_joint_force(short, joint, jax.random.key(0), passive=True)
    with pytest.raises(AssertionError, match="adds energy"):
        testing.check_joint_force(DRIVE, joint, jax.random.key(0), passive=True)


BODY = mbd.inertia.principal(2.0, [0.3, 0.3, 0.2])
ROTOR = 1e-4


def test_a_drive_runs_up_to_idle_speed():
    """With the time constant J R / (k n)², the inertia J with that of the rotor, times n²."""
    model = mbd.Model(
        {"wheel": BODY},
        {"hinge": joints.Revolute("ground", "wheel")},
        {"motor": DRIVE},
        rotors={"rotor": mbd.Rotor("hinge", ROTOR, GEAR)},
    )
    constant = (0.2 + GEAR**2 * ROTOR) * OHMS / (K * GEAR) ** 2
    system = mbd.formulate(model, mbd.JointCoordinates())
    method = mbd.ExplicitRK(diffrax.Dopri8())
    motion = mbd.rollout(system, mbd.assemble(system), constant / 20, 60, method)
    wanted = IDLE * (1.0 - np.exp(-np.arange(1, 61) / 20))
    np.testing.assert_allclose(motion.v[:, 0], wanted, rtol=1e-12)


def winch(rotor):
    """A drum with a motor, rotor and friction, and a load that hangs from it by a cable."""
    curve = forces.StribeckFriction("hinge", 0.2, 0.3, 0.5, 0.1, 0.1)
    return mbd.Model(
        {"drum": BODY, "load": BODY},
        {
            "hinge": joints.Revolute("ground", "drum", axis=[0, 1, 0]),
            "guide": joints.Cylindrical(mbd.Frame("ground", [0.4, 0.1, 0.0]), "load"),
        },
        {
            "gravity": forces.Gravity(),
            "motor": DRIVE,
            "bearing": forces.AsymmetricFriction(curve, forces.ViscousFriction("hinge", 0.7)),
            "cable": forces.Cable(
                mbd.Frame("drum", [0.2, 0.1, 0.0]),
                mbd.Frame("load", [0.0, 0.1, 0.3]),
                500.0,
                0.8,
                transition=0.01,
                damping=20.0,
            ),
        },
        rotors={"rotor": mbd.Rotor("hinge", ROTOR, GEAR)} if rotor else {},
    )


@eqx.filter_jit
def moving(system, state):
    """Twists of the bodies along their axes, the rates of these, and energies."""
    vdot, _ = mbd.accelerations(system, T, state)
    own = slice(1, 1 + system.mechanism.n_bodies)
    twists = system.configuration(T, state.q).twists(state.v)
    rates = mass_and_energy.twist_rates(system, system.configuration(T, state.q), state.v, vdot)
    return twists[own], rates[own], mbd.energy(system, T, state)


@eqx.filter_jit
def power(system, state):
    return loads.applied(system, system.configuration(T, state.q), state.v) @ state.v


def raising(formulation, rotor):
    """The winch while the load sinks and pulls the cable taut."""
    system = mbd.formulate(winch(rotor), formulation)
    values = {"hinge": 0.4, "guide": [-1.4, 0.3]}
    rates = {"hinge": 0.8, "guide": [-0.3, 0.5]}
    return system, mbd.assemble(system, values, rates)


@pytest.mark.long
def test_power_is_the_same_in_either_formulation():
    found = [power(*raising(f, True)) for f in (mbd.JointCoordinates(), mbd.MaximalCoordinates())]
    assert found[0] < -10.0  # Gravity gives 6 W; friction and the cable take the rest.
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.thorough
def test_every_formulation_agrees():
    """With a rotor the two that have a coordinate for it, without one all of them."""
    rigid = mbd.NaturalCoordinates(rigid=True)
    others = rigid, mbd.PointCoordinates(), mbd.VelocityTransformation(mbd.MaximalCoordinates())
    for rotor, formulations in ((True, (mbd.MaximalCoordinates(),)), (False, others)):
        wanted = moving(*raising(mbd.JointCoordinates(), rotor))
        assert wanted[2].elastic > 10.0
        for formulation in formulations:
            found = moving(*raising(formulation, rotor))
            for got, expected in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"current": 1.0, "voltage": 1.0, "resistance": 1.0},
        {"current": 1.0, "resistance": 1.0},
        {"voltage": 1.0},
    ],
)
def test_what_drives_it_is_said_once(options):
    with pytest.raises(mbd.ModelError, match="give either current, or voltage and resistance"):
        forces.DCMotor("hinge", K, **options)


def test_errors():
    with pytest.raises(mbd.ModelError, match=r"current must be a number, got shape \(2,\)"):
        forces.DCMotor("hinge", K, current=[1.0, 2.0])
    bad = {"motor": forces.DCMotor("hinge", K, voltage=1.0, resistance=0.0)}
    with pytest.raises(mbd.ModelError, match="'motor': resistance must be positive, got"):
        mbd.Model({"rod": BODY}, {"hinge": joints.Revolute("ground", "rod")}, bad)
    ball = mbd.Model({"rod": BODY}, {"hinge": joints.Spherical("ground", "rod")}, {"motor": DRIVE})
    with pytest.raises(mbd.ModelError, match="a motor needs a joint with one coordinate, not 4"):
        mbd.formulate(ball, mbd.JointCoordinates())


INERTIA, HENRY = 0.2, 0.04
WOUND = forces.DCMotor("hinge", K, GEAR, voltage=VOLTS, resistance=OHMS, inductance=HENRY)


def wheel(motor, formulation=None):
    """On its own, with an inertia of 0.2 kg m²."""
    hinge = {"hinge": joints.Revolute("ground", "wheel")}
    model = mbd.Model({"wheel": BODY}, hinge, {"motor": motor})
    return mbd.formulate(model, formulation or mbd.JointCoordinates())


def run_up(times, inductance, current=0.0):
    """Speed and current of a free rotor: two exponentials around idle speed."""
    k = GEAR * K
    A = np.array([[0.0, k / INERTIA], [-k / inductance, -OHMS / inductance]])
    rates, modes = np.linalg.eig(A)
    shares = np.linalg.solve(modes, np.array([-IDLE, current]))
    around = (modes * shares) @ np.exp(np.outer(rates, times))
    return around.real.T + np.array([IDLE, 0.0])


@pytest.mark.long
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
@pytest.mark.parametrize("current", [0.0, 3.0])
def test_current_through_an_inductance(formulation, current):
    """From rest, with and without an initial current, against the closed form."""
    system = wheel(WOUND, formulation)
    assert system.nz == 1
    state = mbd.assemble(system, states={"motor": current} if current else None)
    motion = mbd.rollout(system, state, 2e-3, 200, diffrax.Dopri8())
    speed = jax.vmap(lambda y: mbd.joint_states(system, 0.0, y)["hinge"].v)(motion)
    wanted = run_up(2e-3 * np.arange(1, 201), HENRY, current)
    np.testing.assert_allclose(speed, wanted[:, 0], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(motion.z[:, 0], wanted[:, 1], rtol=1e-10, atol=1e-11)


@pytest.mark.long
def test_without_an_inductance_in_the_limit():
    """The speeds differ in proportion to L, and nothing else does."""
    without = wheel(DRIVE)
    assert without.nz == 0
    slow = mbd.rollout(without, mbd.assemble(without), 0.05, 10, diffrax.Dopri8()).v[:, 0]

    @jax.jit
    def speeds(inductance):
        system = wheel(eqx.tree_at(lambda m: m.inductance, WOUND, inductance))
        motion = mbd.rollout(system, mbd.assemble(system), 1e-4, 5000)
        return motion.v[499::500, 0]

    off = [np.max(np.abs(speeds(jnp.asarray(L)) - slow)) / IDLE for L in (2e-3, 1e-3, 5e-4)]
    np.testing.assert_allclose(off[:-1], 2.0 * np.asarray(off[1:]), rtol=2e-2)
    assert off[-1] < 1e-3


@pytest.mark.long
def test_gradient_by_the_inductance():
    @jax.jit
    def speed(inductance):
        system = wheel(eqx.tree_at(lambda m: m.inductance, WOUND, inductance))
        return mbd.rollout(system, mbd.assemble(system), 2e-3, 30).v[-1, 0]

    L, step = jnp.asarray(HENRY), 1e-6
    slope = (speed(L + step) - speed(L - step)) / (2.0 * step)
    np.testing.assert_allclose(jax.grad(speed)(L), slope, rtol=1e-7)


def test_errors_of_an_inductance():
    with pytest.raises(mbd.ModelError, match="an inductance needs voltage and resistance"):
        forces.DCMotor("hinge", K, current=1.0, inductance=0.1)
    bad = eqx.tree_at(lambda m: m.inductance, WOUND, jnp.asarray(0.0))
    with pytest.raises(mbd.ModelError, match="'motor': inductance must be positive, got"):
        wheel(bad)
    ball = mbd.Model({"rod": BODY}, {"hinge": joints.Spherical("ground", "rod")}, {"motor": WOUND})
    with pytest.raises(mbd.ModelError, match="a motor needs a joint with one coordinate, not 4"):
        mbd.formulate(ball, mbd.JointCoordinates())

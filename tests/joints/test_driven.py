"""Drivers and couplings: prescribed motion, the forces it takes, and gears that turn many times."""

import functools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals
from jaxmbd.system import equation_residuals
from tests.formulations.test_redundant import GUESS, four_bar
from tests.marks import thorough_but
from tests.models import name_of

FORMULATIONS = (mbd.JointCoordinates(), mbd.MaximalCoordinates())
each_formulation = pytest.mark.parametrize("formulation", FORMULATIONS, ids=name_of)


def with_driver(motion, model=None, joint="A"):
    model = four_bar() if model is None else model
    return mbd.Model(
        model.bodies,
        model.joints,
        model.forces,
        model.frames,
        drivers={"motor": joints.Driver(joint, motion)},
    )


TURNING = signals.Polynomial([1.0, 9.0, 0.7])


@functools.cache
def turned(k):
    """The crank driven through more than a turn, and what its motor and its bearings give."""
    system = mbd.formulate(with_driver(TURNING), FORMULATIONS[k])
    motion = mbd.kinematics(system, jnp.linspace(0.0, 1.0, 51), GUESS)
    t, state = motion.ts[40], jax.tree.map(lambda x: x[40], motion.states)
    return system, motion, t, state


@pytest.mark.thorough
@pytest.mark.parametrize("k", range(len(FORMULATIONS)), ids=map(name_of, FORMULATIONS))
def test_driven_linkage(k):
    system, motion, t, state = turned(k)
    wanted, speed, acceleration = (
        np.asarray(x) for x in (1 + 9 * motion.ts + 0.7 * motion.ts**2, 9 + 1.4 * motion.ts, 1.4)
    )
    crank = motion.joints["A"]
    np.testing.assert_allclose(np.cos(crank.q - wanted), 1.0, atol=1e-12)
    np.testing.assert_allclose(crank.v, speed, atol=1e-10)
    vdot, _ = mbd.accelerations(system, t, state)
    np.testing.assert_allclose(vdot, motion.vdot[40], atol=1e-8)  # Forces do not matter.
    # The torque of the driver is that of inverse dynamics, and the first formulation's.
    torque = mbd.driving_forces(system, t, state)["motor"]
    again = mbd.driving_forces(system, t, state, vdot, ["A"])["A"]
    first = mbd.driving_forces(*(turned(0)[i] for i in (0, 2, 3)))["motor"]
    assert float(torque) == pytest.approx(float(again), rel=1e-10)
    assert float(torque) == pytest.approx(float(first), rel=1e-9)
    # Applied as a torque, it reproduces the acceleration.
    model = four_bar()
    push = {"push": forces.JointTorque("A", torque)}
    free = mbd.formulate(
        mbd.Model(model.bodies, model.joints, model.forces | push), FORMULATIONS[k]
    )
    freely, _ = mbd.accelerations(free, t, state)
    np.testing.assert_allclose(freely, vdot, atol=1e-8)
    assert acceleration == 1.4


@pytest.mark.thorough
def test_reactions_of_a_driven_linkage_agree():
    bearings = [mbd.reactions(*(turned(k)[i] for i in (0, 2, 3))) for k in range(2)]
    for name, wrench in bearings[0].items():
        np.testing.assert_allclose(wrench[:2], bearings[1][name][:2], atol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formulation", "method"),
    [
        (mbd.JointCoordinates(), mbd.ExplicitRK(stabilization=mbd.Projection())),
        (mbd.MaximalCoordinates(), mbd.GeneralizedAlpha(0.8)),
    ],
    ids=name_of,
)
def test_integrators_follow_a_driver(formulation, method):
    system = mbd.formulate(with_driver(TURNING), formulation)
    start = mbd.assemble(system, GUESS)
    end = jax.tree.map(lambda x: x[-1], mbd.rollout(system, start, 5e-3, 20, method))
    gaps = eqx.filter_jit(equation_residuals.position_residual)(system, jnp.asarray(0.1), end.q)
    np.testing.assert_allclose(gaps, 0.0, atol=1e-11)
    assert float(mbd.joint_states(system, 0.1, end)["A"].q) == pytest.approx(1.907, abs=1e-10)


def shaft(inertia, mass=1.0):
    return mbd.RigidBody(mass, jnp.diag(jnp.array([0.02, 0.02, inertia])))


def wheels(coupling, second=joints.Revolute):
    """Two wheels, or a wheel and a slide, on parallel axes; a torque on the first."""
    return mbd.Model(
        {"first": shaft(0.03), "second": shaft(0.02, 2.0)},
        {
            "a": joints.Revolute("ground", "first"),
            "b": second(Frame("ground", [0.5, 0, 0]), "second"),
        },
        {"torque": forces.JointTorque("a", 0.9)},
        couplings={"mesh": coupling},
    )


CLOSED = {  # Reflected inertia of the second at the first: J r², or m r².
    "gear": (joints.Gear("b", "a", (21, 14)), joints.Revolute, 0.02, -14 / 21),
    "internal gear": (joints.Gear("b", "a", (21, 14), True), joints.Revolute, 0.02, 14 / 21),
    "belt": (joints.Belt("b", "a", 0.3, 0.1), joints.Revolute, 0.02, 1 / 3),
    "crossed belt": (joints.Belt("b", "a", 0.3, 0.1, True), joints.Revolute, 0.02, -1 / 3),
    "rack": (joints.RackAndPinion("b", "a", 0.07), joints.Prismatic, 2.0, 0.07),
}


@pytest.mark.long
@each_formulation
@pytest.mark.parametrize("kind", thorough_but(["gear"], CLOSED))
def test_couplings_reflect_inertia(kind, formulation):
    coupling, second, inertia, ratio = CLOSED[kind]
    system = mbd.formulate(wheels(coupling, second), formulation)
    state = mbd.assemble(system, {"a": 0.4}, {"a": 1.5})
    found = mbd.joint_states(system, 0.0, state)
    assert float(found["b"].q) == pytest.approx(0.4 * ratio, abs=1e-12)
    assert float(found["b"].v) == pytest.approx(1.5 * ratio, abs=1e-12)
    vdot, _ = mbd.accelerations(system, 0.0, state)
    rates = system.configuration(jnp.zeros(()), state.q).joint_rates(vdot)
    g, row = system.mechanism.find_joint("a")
    expected = 0.9 / (0.03 + inertia * ratio**2)
    assert float(rates[g][row, 0]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", thorough_but(["rack"], ["gear", "rack"]))
def test_gears_and_racks_turn_many_times_in_absolute_coordinates(kind):
    coupling, second, inertia, ratio = CLOSED[kind]
    system = mbd.formulate(wheels(coupling, second), mbd.MaximalCoordinates())
    state = mbd.assemble(system, rates={"a": 30.0})
    method = mbd.ExplicitRK(stabilization=mbd.Projection())
    end = jax.tree.map(lambda x: x[-1], mbd.rollout(system, state, 0.005, 400, method))
    angle = 30.0 * 2.0 + 0.5 * 4.0 * 0.9 / (0.03 + inertia * ratio**2)
    assert angle > 6 * np.pi
    found = mbd.joint_states(system, 2.0, end)
    assert np.cos(float(found["a"].q) - angle) == pytest.approx(1.0, abs=1e-9)
    other = float(found["b"].q) - ratio * angle
    assert (np.sin(other) if kind == "gear" else other) == pytest.approx(0.0, abs=1e-5)


def circle(ratios, offsets, kind: Any = joints.Coupling, second: Any = joints.Revolute):
    """Three wheels a, b and c, or two and a slide b; each follows the one before, around."""
    ends = zip("bca", "abc", ratios, offsets, strict=True)
    return mbd.Model(
        {name: shaft(0.03) for name in "uvw"},
        {
            "a": joints.Revolute("ground", "u"),
            "b": second(Frame("ground", [0.5, 0, 0]), "v"),
            "c": joints.Revolute(Frame("ground", [1.0, 0, 0]), "w"),
        },
        couplings={f"{b}{a}": kind(b, a, r, offset=o) for b, a, r, o in ends},
    )


@pytest.mark.parametrize(
    ("ratios", "turns"),
    [
        ((1.0, 1.0, 1.0), 2 * np.pi),
        ((2.0, 0.5, 1.0), -4 * np.pi),
        ((-1.0, 3.0, -1 / 3), 1e-3),
    ],
)
def test_circles_of_couplings_that_no_position_meets_are_refused(ratios, turns):
    """Whole turns too, whichever coupling has them; the message tells the offset that is met."""
    formulation = FORMULATIONS[turns < 0]
    met = np.array([0.7, -0.4, -ratios[2] * (ratios[1] * 0.7 - 0.4)])
    mbd.formulate(circle(ratios, met), formulation)
    for k, gain in enumerate((ratios[1] * ratios[2], ratios[2], 1.0)):
        offsets = met + turns / gain * np.eye(3)[k]
        with pytest.raises(mbd.ModelError, match=r"'ac'.*no position satisfies") as refused:
            mbd.formulate(circle(ratios, offsets), formulation)
        cure = re.search(r"offset of coupling '(\w+)' by (\S+)$", str(refused.value))
        assert cure is not None
        offsets[("ba", "cb", "ac").index(cure[1])] -= float(cure[2])
        mbd.formulate(circle(ratios, offsets), formulation)


def belt(joint, source, ratio, offset):
    """Pulleys whose ratios around a circle multiply to one by rounding only."""
    radii = {"a": 0.3, "b": 0.7, "c": 0.1}
    return joints.Belt(joint, source, radii[joint], radii[source], offset=offset)


@pytest.mark.parametrize(
    "model",
    [
        functools.partial(circle, (0, 0, 0), kind=belt),
        functools.partial(circle, (0.07, 1 / 0.07, 1.0), second=joints.Prismatic),
    ],
    ids=["belts", "rack between pinions"],
)
def test_circles_of_belts_and_racks_count_turns(model):
    mbd.formulate(model(offsets=(0.0, 0.0, 0.0)), mbd.JointCoordinates())
    with pytest.raises(mbd.ModelError, match="no position satisfies"):
        mbd.formulate(model(offsets=(0.0, 0.0, 2 * np.pi)), mbd.JointCoordinates())


def test_gears_mesh_at_each_tooth_around_a_circle():
    teeth = [(20, 30), (40, 20), (30, 40)]
    ends = zip("bca", "abc", teeth, strict=True)
    gears = {f"{b}{a}": joints.Gear(b, a, n, True, 2 * np.pi / n[0]) for b, a, n in ends}
    wheels = circle((1, 1, 1), (0, 0, 0))
    mbd.formulate(mbd.Model(wheels.bodies, wheels.joints, couplings=gears), FORMULATIONS[0])


@pytest.mark.long
@each_formulation
def test_circles_of_couplings_that_lock_are_met_at_their_turn_only(formulation):
    """b = 2 a, c = b, a = 0.4 - c: all stand at a = 0.4 / 3, not at a third of a turn from it."""
    system = mbd.formulate(circle((2.0, 1.0, -1.0), (0.0, 0.0, 0.4)), formulation)
    found = mbd.joint_states(system, 0.0, mbd.assemble(system, {"a": 0.2}))
    for name, ratio in zip("abc", (1.0, 2.0, 2.0), strict=True):
        assert float(found[name].q) == pytest.approx(ratio * 0.4 / 3, abs=1e-12)
    wrong = 0.4 / 3 + 2 * np.pi / 3
    with pytest.raises(mbd.AssemblyError, match=r"'ac'.*locks joint 'a' at 0.1333.*whole turns"):
        mbd.assemble(system, {"a": wrong})


@pytest.mark.long
def test_drivers_of_coupled_joints_agree_with_all_their_turns():
    """c = 2 b = -4 a: not by whole turns less or more; teeth of gears do not count them."""
    wheels = circle((-2.0, 2.0, 1.0), (0.3, 0.0, 0.0))
    ends = {"a": 0.4, "c": 2.0 * (0.3 - 0.8)}

    def assembled(turns, **couplings):
        drivers = {f"to {n}": joints.Driver(n, x + turns * (n == "c")) for n, x in ends.items()}
        parts = {"ac": None, **couplings}
        system = mbd.formulate(wheels.with_(couplings=parts, drivers=drivers))
        return mbd.joint_states(system, 0.0, mbd.assemble(system))

    found = assembled(0.0)
    for name, angle in {**ends, "b": -0.5}.items():
        assert float(found[name].q) == pytest.approx(angle, abs=1e-12)
    for turns in (2 * np.pi, -8 * np.pi):
        with pytest.raises(mbd.AssemblyError, match="'to a' and 'to c' contradict each other by"):
            assembled(turns)
    teeth = {f"{b}{a}": joints.Gear(b, a, (20, 40)) for b, a in ("ba", "cb")}
    ends["c"] = 1.6
    assembled(2 * np.pi, **teeth)


@pytest.mark.long
@each_formulation
def test_circles_of_couplings_that_are_met_turn(formulation):
    """Also if they start from angles within half a turn."""
    system = mbd.formulate(circle((-1.0, 1.0, -1.0), (-2.0, 0.5, -1.5)), formulation)
    state = mbd.assemble(system, {"a": 1.8}, {"a": 1.5})
    found = mbd.joint_states(system, 0.0, state)
    within = {name: np.angle(np.exp(1j * float(found[name].q))) for name in "abc"}
    again = mbd.joint_states(system, 0.0, mbd.assemble(system, within))
    for name, q, v in (("a", 1.8, 1.5), ("b", -3.8, -1.5), ("c", -3.3, -1.5)):
        assert within[name] == pytest.approx(np.angle(np.exp(1j * q)), abs=1e-12)
        assert float(found[name].v) == pytest.approx(v, abs=1e-12)
        assert np.angle(np.exp(1j * (float(again[name].q) - q))) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.thorough
@each_formulation
def test_nut_on_a_spindle_falls_by_its_lead(formulation):
    """m g h = (J + m h²) θ̈, and the angle counts its turns."""
    pitch = 0.5
    model = mbd.Model(
        {"nut": shaft(0.03)},
        {"thread": joints.Screw("ground", "nut", pitch)},
        {"gravity": forces.Gravity()},
    )
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, {"thread": 9.0})
    h = pitch / (2 * np.pi)
    assert system.frames(0.0, state.q)["nut"].p[2] == pytest.approx(9.0 * h, abs=1e-12)
    assert float(mbd.joint_states(system, 0.0, state)["thread"].q) == pytest.approx(9.0, abs=1e-12)
    vdot, _ = mbd.accelerations(system, 0.0, state)
    rate = system.configuration(jnp.zeros(()), state.q).joint_rates(vdot)[0][0, 0]
    assert float(rate) == pytest.approx(-9.81 * h / (0.03 + h * h), rel=1e-6)


ON_A_ROD = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates(),
)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", thorough_but(ON_A_ROD[:2], ON_A_ROD), ids=name_of)
def test_ball_on_a_rod_without_mass(formulation):
    """The tension of a spherical pendulum is m (v²/L - g·n), wherever the ball turns to."""
    model = mbd.Model(
        {"ball": mbd.RigidBody(2.0, [0.1, 0.2, 0.25])},
        {"rod": joints.Distance("ground", "ball", 1.5)},
        {"gravity": forces.Gravity([0, 0, -9.81])},
    )
    system = mbd.formulate(model, formulation)
    n = np.array([0.6, 0.0, -0.8])
    pose = mbd.Pose(jnp.asarray(1.5 * n), mbd.lie.so3.exp_matrix(jnp.array([0.3, 0.2, -0.4])))
    state = mbd.assemble(system, {"ball": pose}, {"ball": [0.0, 2.0, 0.0, 1.0, 2.0, 3.0]})
    reaction = np.asarray(mbd.reactions(system, 0.0, state)["rod"])
    world = np.asarray(system.frames(0.0, state.q)["ball"].R) @ reaction[:3]
    v = (
        np.asarray(system.frames(0.0, state.q)["ball"].R)
        @ system.twists(0.0, state.q, state.v)["ball"][:3]
    )
    tension = 2.0 * (v @ v / 1.5 + 9.81 * 0.8)
    np.testing.assert_allclose(world, -tension * n, atol=1e-9)
    np.testing.assert_allclose(reaction[3:], 0.0, atol=1e-9)


@pytest.mark.thorough
def test_slope_of_the_drive_by_its_amplitude():
    """Through the redundant loop, forwards and in reverse."""
    state = turned(0)[3]

    def torque(amplitude):
        wave = signals.Sine(amplitude, 2.0, 0.3, offset=1.0)
        system = mbd.formulate(with_driver(wave), mbd.JointCoordinates())
        return mbd.driving_forces(system, 0.1, state)["motor"]

    h, at = 1e-3, jnp.asarray(0.2)
    value = jax.jit(jax.value_and_grad(torque))
    (high, _), (low, _), (_, slope) = value(at + h), value(at - h), value(at)
    assert abs(slope) > 1
    assert (high - low) / (2 * h) == pytest.approx(float(slope), rel=1e-9)
    forward = jax.jit(lambda x: jax.jvp(torque, (x,), (jnp.ones_like(x),))[1])(at)
    assert float(forward) == pytest.approx(float(slope), rel=1e-12)


def test_what_cannot_be_driven():
    model = four_bar()
    ball = mbd.Model({"b": shaft(0.01)}, {"s": joints.Spherical("ground", "b")})
    samples = signals.Samples([0.0, 1.0], [0.0, 1.0])
    with pytest.raises(mbd.ModelError, match=r"Samples has kinks.*Spline"):
        joints.Driver("A", samples)
    with pytest.raises(mbd.ModelError, match="driver 'motor': unknown joint 'X'"):
        with_driver(0.0, joint="X")
    with pytest.raises(mbd.ModelError, match=r"driver 'motor'.*'s' .*part of a quaternion"):
        mbd.formulate(with_driver(0.0, ball, "s"), mbd.JointCoordinates())
    twice = mbd.Model(
        model.bodies,
        model.joints,
        drivers={"one": joints.Driver("A", 0.0), "two": joints.Driver("A", 1.0)},
    )
    with pytest.raises(mbd.ModelError, match="driver 'two' prescribes the same coordinate"):
        mbd.formulate(twice, mbd.JointCoordinates())
    drivers = {"o": joints.Driver("A", 0.0, 1)}
    other = mbd.Model(model.bodies, model.joints, drivers=drivers)
    with pytest.raises(mbd.ModelError, match=r"driver 'o'.*has 1 coordinates, none of number 1"):
        mbd.formulate(other, mbd.JointCoordinates())
    system = mbd.formulate(with_driver(TURNING), mbd.MaximalCoordinates())
    with pytest.raises(mbd.IncompatibleIntegrator, match="no two-point form of drivers such as"):
        mbd.rollout(system, mbd.State(jnp.zeros(21), jnp.zeros(18)), 0.1, 1, mbd.EnergyMomentum())


@pytest.mark.thorough
def test_driver_against_the_joints():
    """A crank that cannot turn further: the error names the loop, the driver and the time."""
    short = four_bar((0.2, 0.2, 0.45, 0.7))
    system = mbd.formulate(with_driver(signals.Step(0.0, 1.0, 0.5, 3.0), short), FORMULATIONS[0])
    with pytest.raises(
        mbd.AssemblyError, match=r"kinematics: at t = 0\.\d+ s these stay open.*'C'"
    ):
        mbd.kinematics(system, jnp.linspace(0, 1, 51), {"A": 0.5, "B": -0.5, "D": 2.5})
    locked = mbd.Model(
        {"b": shaft(0.01)},
        {"s": joints.Revolute("ground", "b"), "weld": joints.Fixed("ground", "b")},
        drivers={"motor": joints.Driver("s", signals.Polynomial([0.0, 1.0]))},
    )
    fixed = mbd.formulate(locked, mbd.JointCoordinates(cut="weld"))
    with pytest.raises(mbd.AssemblyError, match=r"no velocities keep all joints.*'motor' by"):
        mbd.assemble(fixed)
    with pytest.raises(mbd.AssemblyError, match=r"stay open: .*'motor' by"):
        mbd.assemble(fixed, t=0.5)


@pytest.mark.thorough
def test_kinematics_needs_a_driver_for_each_freedom():
    bodies = {"hand": shaft(0.01), "loose": shaft(0.02)}
    model = mbd.Model(bodies, {"s": joints.Revolute("ground", "hand")})
    system = mbd.formulate(with_driver(TURNING, model, "s"), mbd.JointCoordinates())
    with pytest.raises(mbd.ModelError, match=r"free to move: bodies 'loose'; prescribe"):
        mbd.kinematics(system, jnp.linspace(0, 1, 3))


def test_kinematics_of_artificial_springs_names_the_remedy():
    model = with_driver(
        TURNING, mbd.Model({"hand": shaft(0.01)}, {"s": joints.Revolute("ground", "hand")}), "s"
    )
    ts = jnp.linspace(0, 0.1, 3)
    springs = mbd.formulate(model, mbd.NaturalCoordinates())
    with pytest.raises(mbd.ModelError, match=r"use NaturalCoordinates\(rigid=True\)"):
        mbd.kinematics(springs, ts)
    rigid = mbd.formulate(model, mbd.NaturalCoordinates(rigid=True))
    assert mbd.kinematics(rigid, ts).states.q.shape == (3, rigid.nq)

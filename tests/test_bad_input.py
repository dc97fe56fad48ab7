# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Arguments of wrong types and shapes: each is an error of the package, with name and remedy.

Nothing is compiled: the arguments are refused before any computation.
"""

import os
import threading
from collections import OrderedDict

import diffrax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints, signals
from jaxmbd.programs import storage

pytestmark = pytest.mark.skipif(
    os.environ.get("JAXMBD_TEST_SHAPES") == "1", reason="the checks of types refuse these first"
)

ROD = inertia.shifted(inertia.rod(1.0, 1.0), [0.5, 0, 0])
HINGE = joints.Revolute(mbd.ground, "rod", [0, 1, 0])
MODEL = mbd.Model({"rod": ROD}, {"hinge": HINGE}, {"gravity": forces.Gravity()})
SYSTEM = mbd.formulate(MODEL)
ZERO = mbd.State(jnp.zeros(1), jnp.zeros(1))
WIDE = mbd.State(jnp.zeros(2), jnp.zeros(1))
TS = np.linspace(0.0, 1.0, 3)
RECORD = mbd.Experiment(TS, {"hinge": TS})


def model(**parts):
    return lambda: mbd.Model(**{"bodies": {"rod": ROD}, **parts})


def simulate(*start, **options):
    return lambda: mbd.simulate(*(start or (SYSTEM, ZERO)), **{"t1": 1.0, **options})


def rollout(n_steps=2, state=ZERO, **options):
    return lambda: mbd.rollout(SYSTEM, state, **{"dt": 0.1, **options}, n_steps=n_steps)


def identify(experiments=RECORD, select=("bodies.rod.mass",), **options):
    return lambda: mbd.identify(MODEL, experiments, select, **options)


CASES = {
    "body: number": (model(bodies={"rod": 1.0}), "body 'rod' must be a body such as RigidBody"),
    "body: class": (
        model(bodies={"rod": mbd.RigidBody}),
        r"body 'rod' is the class RigidBody; pass an instance, RigidBody\(\.\.\.\)",
    ),
    "bodies: list": (model(bodies=[ROD]), r"bodies must be a dict {name: body}, got a list"),
    "bodies: None": (model(bodies=None), "at least one body"),
    "body: number as name": (model(bodies={1: ROD}), "1 cannot be the name of a body"),
    "joints: list": (model(joints=[HINGE]), "joints must be a dict {name: joint}, got a list"),
    "joint: number": (model(joints={"h": 1.0}), "joint 'h' must be a joint of jaxmbd.joints"),
    "joint: None": (model(joints={"h": None}), "joint 'h' must be a joint"),
    "joint: class": (model(joints={"h": joints.Revolute}), "joint 'h' is the class Revolute"),
    "joint: body": (model(joints={"h": ROD}), "joint 'h' must be a joint.*RigidBody"),
    "joint: no name": (model(joints={"": HINGE}), "'' cannot be the name of a joint"),
    "force: number": (model(forces={"g": 9.81}), "force 'g' must be a force.*got 9.81"),
    "force: array": (model(forces={"g": np.zeros(3)}), "force 'g' must be a force"),
    "force: class": (model(forces={"g": forces.Gravity}), "force 'g' is the class Gravity"),
    "force: joint": (model(forces={"g": HINGE}), "force 'g' must be a force.*got Revolute"),
    "force: number as name": (model(forces={1: forces.Gravity()}), "1 cannot be the name of a f"),
    "frame: number": (model(frames={"f": 1.0}), "frame 'f' must be a Frame or the name"),
    "coupling: number": (model(couplings={"c": 1.0}), "coupling 'c' must be a coupling"),
    "driver: number": (model(drivers={"d": 1.0}), r"driver 'd' must be a jaxmbd.joints.Driver"),
    "rotor: class": (model(rotors={"r": mbd.Rotor}), "rotor 'r' is the class Rotor"),
    "gravity: empty": (lambda: forces.Gravity([]), r"Gravity: g must be .* got shape \(0,\)"),
    "gravity: text": (lambda: forces.Gravity("down"), "Gravity: g must be numeric"),
    "samples: empty": (lambda: signals.Samples([], []), "two or more times"),
    "spline: empty": (lambda: signals.Spline([], []), "two or more times"),
    "com: empty": (lambda: mbd.RigidBody(1.0, [1, 1, 1], []), "com must be"),
    "inertia: empty": (lambda: mbd.RigidBody(1.0, []), "inertia must be"),
    "frame: empty": (lambda: mbd.Frame("rod", []), "frame on 'rod': p must be"),
    "9 log-Cholesky numbers": (
        lambda: inertia.from_log_cholesky(jnp.zeros(9)),
        r"from_log_cholesky: theta must be an array of shape \(10,\), got shape \(9,\)",
    ),
    "formulate: number": (lambda: mbd.formulate(1.0), "formulate needs a Model, got float"),
    "assemble: model": (lambda: mbd.assemble(MODEL, {}), "a system of `formulate` is needed"),
    "assemble: list": (lambda: mbd.assemble(SYSTEM, [0.3]), "guess must be a dict .*, got a list"),
    "assemble: rates": (lambda: mbd.assemble(SYSTEM, {}, [1.0]), "rates must be a dict"),
    "assemble: text": (lambda: mbd.assemble(SYSTEM, {"hinge": "x"}), "joint 'hinge' must be num"),
    "assemble: empty": (lambda: mbd.assemble(SYSTEM, {"hinge": []}), r"joint 'hinge'.*\(0,\)"),
    "assemble: hold": (lambda: mbd.assemble(SYSTEM, {}, hold=1.0), "hold must be names of joints"),
    "assemble: time": (lambda: mbd.assemble(SYSTEM, {}, t="x"), "a time, must be a number"),
    "simulate: number": (
        simulate(3.0, ZERO),
        "first argument must be a Model.* a float",
    ),
    "simulate: class": (simulate(mbd.Model, ZERO), "the class Model; pass an instance"),
    "simulate: no state": (simulate(SYSTEM, None), "the state must be a State"),
    "simulate: array": (
        simulate(SYSTEM, np.zeros(1)),
        "the state must be a State .* got a ndarray",
    ),
    "simulate: wide state": (
        simulate(SYSTEM, WIDE),
        r"state.q has shape \(2,\), this system needs",
    ),
    "simulate: text state": (lambda: mbd.State("a", "b"), "State: q must be numeric"),
    "simulate: unknown joint": (simulate(SYSTEM, {"elbow": 1.0}), "guess: unknown joint 'elbow'"),
    "simulate: integrator": (simulate(integrator=mbd.BDF), r"pass an instance, BDF\(\)"),
    "simulate: impacts": (
        simulate(MODEL, {"hinge": 0.3}, impacts=0.5),
        "impacts must be a contact.Restitution",
    ),
    "simulate: progress": (simulate(progress="yes"), "simulate: progress is True, False or None"),
    "simulate: values of joints, and saveat": (
        lambda: mbd.simulate(MODEL, {"hinge": 0.3}, t1=1.0, saveat=[2.0]),
        "contains 2 s, outside",
    ),
    "simulate: controller": (simulate(controller=1e-6), r"controller must be one of diffrax"),
    "simulate: controller class": (simulate(controller=diffrax.PIDController), "the class PIDC"),
    "simulate: event": (simulate(event=lambda t, y: 1.0), "event must be one of diffrax"),
    "simulate: adjoint": (
        simulate(adjoint=diffrax.DirectAdjoint),
        "adjoint must be one of diffrax",
    ),
    "simulate: t1 missing": (simulate(t1=None), "t1 must be numeric"),
    "simulate: t1 array": (simulate(t1=[1.0, 2.0]), "t1 must be a number"),
    "simulate: dt zero": (simulate(dt=0), "dt must be positive"),
    "simulate: 1e12 steps": (simulate(t1=1e6, dt=1e-6), r"into 1e\+12 steps"),
    "simulate: 1.5e9 rows": (simulate(t1=1.5e3, dt=1e-6), r"saved states take 36 GB; give saveat"),
    "simulate: max_steps": (simulate(max_steps=0), "max_steps must be a whole number"),
    "simulate: half a step": (
        simulate(max_steps=2.5),
        "max_steps must be a whole number",
    ),
    "saveat: zero": (simulate(saveat=0), "an interval saveat must be positive, got 0"),
    "saveat: negative": (simulate(saveat=-0.1), "an interval saveat must be positive"),
    "saveat: NaN": (simulate(saveat=float("nan")), "an interval saveat must be positive"),
    "saveat: empty": (simulate(saveat=[]), r"one or more times, shape \(n,\), got shape \(0,\)"),
    "saveat: matrix": (simulate(saveat=[[0.1, 0.2]]), r"got shape \(1, 2\)"),
    "saveat: text": (simulate(saveat="x"), "saveat must be numeric"),
    "saveat: after t1": (simulate(saveat=[0.5, 1.5]), "contains 1.5 s, outside of t0 = 0 s to t1"),
    "saveat: before t0": (simulate(saveat=[0.0, 0.9], t0=0.5), "contains 0 s, outside"),
    "saveat: SaveAt after t1": (
        simulate(saveat=diffrax.SaveAt(ts=jnp.array([1.5]))),
        "contains 1.5 s, outside",
    ),
    "saveat: unsorted": (
        simulate(saveat=[0.5, 0.2]),
        "saveat must increase, it does not after 0.5",
    ),
    "rollout: 1e12 steps": (rollout(10**12), "n_steps must be a whole number from 1 to 2147483644"),
    "rollout: no steps": (rollout(0), "n_steps must be a whole number"),
    "rollout: half a step": (rollout(2.5), "n_steps must be a whole number"),
    "rollout: dt": (rollout(dt=[0.1, 0.2]), "rollout: dt must be a number"),
    "rollout: wide state": (rollout(state=WIDE), r"rollout: state.q has shape \(2,\)"),
    "vdot": (
        lambda: mbd.inverse_dynamics(SYSTEM, 0.0, ZERO, jnp.zeros(2)),
        r"vdot has shape \(2,\), this system needs \(1,\)",
    ),
    "mass of a state": (lambda: SYSTEM.mass(ZERO), r"q must have shape \(1,\), got a State"),
    "frames of two": (lambda: SYSTEM.frames(0.0, jnp.zeros(2)), r"q must have shape \(1,\)"),
    "kinematics: list": (
        lambda: mbd.kinematics(SYSTEM, TS, [1.0]),
        "the state must be a State .* list",
    ),
    "inspect: number": (lambda: mbd.inspect(3.0), "inspect: the first argument must be a Model or"),
    "inspect: array": (
        lambda: mbd.inspect(SYSTEM, np.zeros(1)),
        "inspect: the state must be a State",
    ),
    "linearize: array": (
        lambda: mbd.linearize(SYSTEM, 0.0, np.zeros(1)),
        "the state must be a State",
    ),
    "linearize: order": (lambda: mbd.linearize(SYSTEM, ZERO, 0.0), "in the order system, t, state"),
    "linearize: wide": (lambda: mbd.linearize(SYSTEM, 0.0, WIDE), r"state.q has shape \(2,\)"),
    "equilibrium: array": (
        lambda: mbd.equilibrium(SYSTEM, np.zeros(1)),
        "the state must be a State",
    ),
    "equilibrium: hold": (
        lambda: mbd.equilibrium(SYSTEM, ZERO, hold="elbow"),
        "hold: unknown joint 'elbow'",
    ),
    "equilibrium: load": (
        lambda: mbd.equilibrium(SYSTEM, ZERO, load={"gravity": "x"}),
        "'gravity' must be a factor or an element, got 'x'",
    ),
    "load_path: name": (lambda: mbd.load_path(SYSTEM, ZERO, "wind", TS), "'wind'"),
    "buckling: name": (lambda: mbd.buckling(SYSTEM, ZERO, "wind"), "'wind'"),
    "identify: path": (identify(select="bodies.rod.mass"), "select must be a list of paths"),
    "identify: number": (identify(select=[3]), "where must be a path or a function"),
    "identify: model": (lambda: mbd.identify(1.0, RECORD, ["a"]), "identify needs a Model"),
    "identify: no records": (lambda: mbd.identify(MODEL), "needs a Problem, or a model, exper"),
    "misfit: twice": (
        lambda: mbd.misfit(mbd.Problem(MODEL, RECORD, ["a"]), noise={"hinge": 1.0}),
        r"misfit: a Problem has its own noise; change it by dataclasses.replace\(problem, noise",
    ),
    "identify: method": (
        identify(method=mbd.minimizers.LevenbergMarquardt),
        "method must be an instance",
    ),
    "identify: starts": (identify(starts=0), "starts must be a whole number from 1 on"),
    "identify: seed": (identify(seed="x"), "seed must be a whole number from 0 on"),
    "identify: spread": (identify(spread="x"), "spread must be a number from 0 on"),
    "identify: noise": (identify(noise={"elbow": 0.1}), "noise of 'elbow', which no experiment"),
    "identify: leaf": (identify(select=["bodies.rod.weight"]), "weight"),
    "identify: joint": (
        identify(mbd.Experiment(TS, {"elbow": TS})),
        "no sensor 'elbow'; measurements are named after a joint",
    ),
    "identify: guess": (
        identify(mbd.Experiment(TS, {"hinge": TS}, {"elbow": 0.1})),
        "guess: unknown joint 'elbow'",
    ),
    "predict: noise": (
        lambda: mbd.predict(MODEL, RECORD, noise={"elbow": 0.1}),
        "noise of 'elbow', which is neither a joint nor a sensor",
    ),
    "identify: sensor": (identify(sensors={"a": 1.0}), "sensor 'a' must be an instance of"),
    "parameter: class": (
        lambda: mbd.Parameter("a", mbd.transforms.Positive),
        r"transform must be an instance of jaxmbd.transforms, such as Positive\(\)",
    ),
    "parameter: prior": (lambda: mbd.Parameter("a", None, 3.0), "prior must be an instance"),
    "record: list": (lambda: mbd.Experiment(TS, [TS]), "measurements must be a dict"),
    "record: force": (
        lambda: mbd.Experiment(TS, {"a": TS}, forces={"f": 1.0}, name="run"),
        "run: force 'f' must be a force",
    ),
    "record: guess": (lambda: mbd.Experiment(TS, {"a": TS}, 0.3), "guess must be a dict"),
    "sensitivities: number": (
        lambda: mbd.sensitivities(3.0, MODEL, ["bodies.rod.mass"]),
        "fn must be a function of a model",
    ),
    "sensitivities: no names": (
        lambda: mbd.sensitivities(lambda m: m.bodies["rod"].mass, MODEL, ["bodies.rod.mass"]),
        "must return a dict of named arrays",
    ),
    "sweep: no names": (
        lambda: mbd.sweep(lambda x: x, TS, progress=False),
        "sweep: the function must return a dict of named arrays",
    ),
    "sweep: path": (
        lambda: mbd.sweep(MODEL, {"bodies.arm.mass": TS}, lambda m: {"y": m.bodies["rod"].mass}),
        "no 'arm'; known are 'rod'",
    ),
    "sweep: part": (
        lambda: mbd.sweep(lambda x: {"y": x}, TS, part=(2, 1)),
        r"part must be \(i, k\) with 0 <= i < k",
    ),
    "sweep: folder": (lambda: mbd.sweep(lambda x: {"y": x}, TS, folder=__file__), "is a file"),
    "sweep: nothing": (lambda: mbd.sweep(None, TS), r"call sweep\(fn, scenarios\)"),
    "sweep: chunk": (lambda: mbd.sweep(lambda x: {"y": x}, TS, chunk="a"), "a chunk has one"),
    "gradients: number": (lambda: mbd.check_gradients(3.0, MODEL), "fn must be a function"),
}


# Programs of some milliseconds: of `formulate`, and reference positions.
SMALL = {"_free", "_poses", "_report", "_reported", "reference_values", "unchecked"}


@pytest.fixture
def no_programs(monkeypatch):
    """Nothing but small programs is compiled, found in this process or on disk."""
    made = storage._Stored._made

    def none_but_small(program, *rest):
        assert program.fn.__name__ in SMALL, f"{program.fn.__name__} is compiled before the error"
        return made(program, *rest)

    monkeypatch.setattr(storage, "_known", OrderedDict())
    monkeypatch.setattr(storage, "_on_disk", lambda name: None)
    monkeypatch.setattr(storage._Stored, "_made", none_but_small)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("no_programs")
def test_arguments_that_make_no_sense(case):
    make, message = CASES[case]
    with pytest.raises((mbd.ModelError, mbd.DataError), match=message):
        make()


@pytest.mark.long
def test_a_motion_is_no_state():
    with pytest.raises(mbd.ModelError, match="continue a motion by its method `continued`"):
        mbd.simulate(SYSTEM, mbd.simulate(SYSTEM, ZERO, t1=0.1, dt=0.1), t1=1.0)


INSTANT = {
    "accelerations": mbd.accelerations,
    "acceleration_derivatives": mbd.acceleration_derivatives,
    "reactions": mbd.reactions,
    "energy": mbd.energy,
    "momentum": mbd.momentum,
    "joint_states": mbd.joint_states,
    "driving_forces": mbd.driving_forces,
    "contacts": mbd.contacts,
}


@pytest.mark.parametrize("name", INSTANT)
def test_states_of_an_instant(name):
    """A state of another size was taken, with finite and wrong results."""
    function = INSTANT[name]
    with pytest.raises(mbd.ModelError, match=r"state must be a State.* got a dict"):
        function(SYSTEM, 0.0, {"hinge": 0.3})
    with pytest.raises(mbd.ModelError, match=r"state.q has shape \(2,\), this system needs \(1,\)"):
        function(SYSTEM, 0.0, WIDE)
    with pytest.raises(mbd.ModelError, match="arguments come in the order system, t, state"):
        function(SYSTEM, ZERO, 0.0)
    with pytest.raises(mbd.ModelError, match="a system of `formulate` is needed, got Model"):
        function(MODEL, 0.0, ZERO)


def test_a_pipe_in_the_place_of_a_file(tmp_path):
    """A pipe without a writer would be waited for without end."""
    pipe = tmp_path / "robot.urdf"
    os.mkfifo(pipe)
    raised = []

    def read():
        for read in (mbd.io.from_urdf, lambda path: mbd.io.read_record(path, ["a"])):
            with pytest.raises((mbd.ModelError, mbd.DataError), match="a pipe or a device"):
                read(pipe)
            raised.append(read)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(timeout=20.0)
    assert len(raised) == 2


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device")
def test_an_endless_file():
    with pytest.raises(mbd.ModelError, match="a pipe or a device"):
        mbd.io.from_urdf("/dev/zero")


def test_elements_without_end():
    with pytest.raises(mbd.ModelError, match="inside of 64 others; is it URDF"):
        mbd.io.from_urdf("<robot>" + "<link>" * 100_000)


BALL = mbd.Model({"rod": ROD}, {"ball": joints.Spherical(mbd.ground, "rod")})
# Functions that start at a state, none of which may compute anything from numbers that are none.
FROM_A_STATE = {
    "buckling": lambda s, x: mbd.buckling(s, x, "forces.gravity.g"),
    "equilibrium": mbd.equilibrium,
    "inspect": mbd.inspect,
    "kinematics": lambda s, x: mbd.kinematics(s, TS, x),
    "linearize": lambda s, x: mbd.linearize(s, 0.0, x),
    "load_path": lambda s, x: mbd.load_path(s, x, "gravity", TS),
    "rollout": lambda s, x: mbd.rollout(s, x, 0.1, 2),
    "simulate": lambda s, x: mbd.simulate(s, x, t1=1.0),
    "trajectory_growth": lambda s, x: mbd.trajectory_growth(s, x, 0.1, 2),
}


@pytest.mark.parametrize("name", FROM_A_STATE)
@pytest.mark.parametrize(
    "formulation",
    [
        mbd.JointCoordinates(),
        mbd.MaximalCoordinates(),
        mbd.VelocityTransformation(mbd.MaximalCoordinates()),
    ],
    ids=["joint", "maximal", "velocities"],
)
def test_states_without_a_rotation(name, formulation):
    system = mbd.formulate(BALL.with_(forces={"gravity": forces.Gravity()}), formulation)
    zeros = mbd.State(jnp.zeros(system.nq), jnp.zeros(system.nv))
    with pytest.raises(mbd.ModelError, match=rf"state.q\[{system.nq - 4}:{system.nq}\] is a quat"):
        FROM_A_STATE[name](system, zeros)
    lost = mbd.State(jnp.ones(system.nq).at[0].set(jnp.nan), jnp.zeros(system.nv))
    if name == "rollout":  # It continues a motion that is lost.
        return
    with pytest.raises(mbd.ModelError, match=r"state.q must be finite, and is not at \[0\]"):
        FROM_A_STATE[name](system, lost)

"""Models in JSON files: every kind of component comes back with the same numbers."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import contact, control, flexible, forces, inertia, joints, sensors, signals, tyres
from jaxmbd.extend import JointReference
from jaxmbd.io.model_files import known_classes

ENDS = mbd.Frame("a", (0.1, 0.2, 1 / 3), quat=(1.0, 2.0, 3.0, 4.0)), mbd.Frame("b", (0, 0, 0.7))
X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.1)
TS = np.linspace(0.0, 1.0, 4)


def every_joint():
    own = {
        joints.Distance: {"length": 0.3},
        joints.Generic: {"free": ("x", "rz")},
        joints.RollingDisc: {"radius": 0.4},
        joints.Screw: {"pitch": 0.2, "axis": Y},
        joints.Universal: {"axis1": X, "axis2": (0.0, 1.0, 0.0)},
    }
    plain = (joints.Fixed, joints.Free, joints.Spherical)
    kinds = [x for n, x in known_classes().items() if n.startswith("joints.")]
    kinds = [x for x in kinds if issubclass(x, joints.AbstractJoint)]
    return {x.__name__: x(*ENDS, **own.get(x, {} if x in plain else {"axis": Y})) for x in kinds}


def every_force():
    ball, floor = contact.Sphere(ENDS[0], 0.1), contact.HalfSpace(mbd.ground)
    grid = contact.HeightGrid(np.zeros((4, 5)), (0.5, 0.5))
    heights = (
        contact.Slope((0.1, 0.2)),
        contact.Washboard(0.1, 0.5),
        contact.Steps([0.5], [0.1], 0.2),
        contact.Road([0.1], [1.0], [0.3]),
        grid,
    )
    ground = contact.Terrain(mbd.ground, contact.SumOfHeights(heights))
    laws = (
        contact.HuntCrossley(1e4, 0.1, exponent=1.5),
        contact.KelvinVoigt(1e4),
        contact.Hertz(1e9, 0.3, 0.1),
    )
    rub, bristle = contact.Coulomb(0.5), contact.Bristle(0.5, 1e3)
    read, wheel = sensors.JointPosition("Revolute"), contact.Disc(ENDS[0], 0.1)
    return {
        "pull": forces.AppliedForce("a", signals.Sine(np.ones(3), 0.7, 0.4), follower=True),
        "twist": forces.AppliedTorque("a", signals.Polynomial(np.arange(6.0).reshape(2, 3))),
        "two ways": forces.AsymmetricFriction(
            forces.StribeckFriction("Revolute", 0.3, 0.5, 0.1),
            forces.StribeckFriction("Revolute", 0.4, 0.6, 0.1),
        ),
        "cable": forces.Cable(*ENDS, 1e3, 0.5, transition=0.01),
        "on floor": forces.Contact(ball, floor, laws[0], rub, contact.RollingResistance(0.01)),
        "on terrain": forces.Contact(contact.Capsule(ENDS[0], 0.1, 0.4), ground, laws[1], bristle),
        "disc": forces.Contact(wheel, floor, laws[2]),
        "ball": forces.RotationalSpring("Spherical", 2.0),
        "servo": forces.AffineActuator("Revolute", 0.3, 2.0, force_range=(-1.0, 1.0)),
        "thruster": forces.AffineFrameActuator("a", 0.3, np.arange(6.0)),
        "box": forces.Contact(contact.Box(ENDS[0], (0.1, 0.2, 0.3)), floor, laws[1]),
        "cylinder": forces.Contact(contact.Cylinder(ENDS[0], 0.1, 0.3), floor, laws[1]),
        "dry": forces.CoulombFriction("Revolute", 0.5, 0.1),
        "drive": forces.ServoDrive(
            "Revolute",
            forces.AffineActuator("Revolute", 0.3),
            friction=forces.GearFriction(0.1, load=(0.2, 0.3)),
            gear=forces.ElasticGear(10.0, 0.1, hysteresis=0.1),
        ),
        "motor": forces.DCMotor("Revolute", 0.1, voltage=12.0, resistance=0.5, inductance=0.01),
        "g": forces.Gravity((0.1, 0.2, -9.81)),
        "stop": forces.JointStop("Revolute", None, 1.0, stiffness=1e3, transition=0.1),
        "torque": forces.JointTorque("Revolute", signals.Samples(TS, TS**2)),
        "splined": forces.JointTorque("Revolute", signals.Spline(TS, TS**2)),
        "stepped": forces.JointTorque("Revolute", signals.Step(0.0, 1.0, 0.0, 2.0)),
        "lugre": forces.LuGreFriction("Revolute", 0.3, 0.5, 0.1, 1e3),
        "spring": forces.SpringDamper(*ENDS, 30.0, 2.0, 0.3),
        "stribeck": forces.StribeckFriction("Revolute", 0.3, 0.5, 0.1),
        "linear": forces.Tyre(wheel, floor, laws[1], tyres.Linear(1e4, 1e4)),
        "brush": forces.Tyre(wheel, floor, laws[1], tyres.Brush(1e4, 1e4, 0.8)),
        "magic": forces.Tyre(wheel, floor, laws[1], tyres.MagicFormula(10.0, 1.9)),
        "coil": forces.TorsionalSpringDamper("Revolute", 1.0, 0.1),
        "oil": forces.ViscousFriction("Revolute", 0.1),
        "pid": control.PID(read, "Revolute", 1.0, 0.5, setpoint=signals.Sine(1.0, 2.0)),
    }


@pytest.fixture(scope="module")
def everything():
    names = {"joint": "Revolute", "source": "Prismatic"}
    return mbd.Model(
        bodies={
            "a": inertia.shifted(inertia.rod(1 / 3, 0.7), Y),
            "b": mbd.RigidBody(jnp.float32(0.1), np.ones(3, np.float32), np.zeros(3, np.float32)),
            "link": mbd.bodies.MasslessLink(),
            "rope": mbd.bodies.ANCFCable(0.8, 1e3, 0.1, 0.2, n_elements=2),
            "beam": flexible.beam(0.8, 2e11, 8e10, 7850.0, flexible.Round(0.01), 3, 2),
        },
        joints=every_joint(),
        forces=every_force(),
        frames={"tip": ENDS[0]},
        couplings={
            "coupling": joints.Coupling(**names, ratio=2.0),
            "gear": joints.Gear(**names, teeth=(20, 40), internal=True),
            "belt": joints.Belt(**names, radius=0.1, source_radius=0.2, crossed=True),
            "rack": joints.RackAndPinion("Prismatic", "Revolute", 0.1),
        },
        drivers={"drive": joints.Driver("Revolute", signals.Sine(1.0, 2.0))},
        rotors={"rotor": mbd.Rotor("Revolute", 0.1, 3.0)},
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        assert np.array_equal(x, y)


@pytest.mark.long
def test_every_kind_of_component_comes_back(everything, path):
    mbd.io.save_model(everything, path)
    same(mbd.io.load_model(path), everything)
    assert [x.name for x in path.parent.iterdir()] == ["model.json"]
    # Without those of measurements, results and impacts of contacts, and functions of Python.
    text = path.read_text()
    results = {"forces.ContactPoints", "forces.TyreContact", "contact.Restitution"}
    kept_out = results | {"signals.Function", "control.Controller"}
    missing = {n for n in known_classes() if f'"{n}"' not in text and n[:7] != "sensors"}
    assert missing == kept_out


@pytest.fixture(scope="module")
def small():
    return mbd.Model(
        {"rod": inertia.rod(1.0, 1.0)},
        {"hinge": joints.Revolute(mbd.ground, "rod", Y)},
        {"gravity": forces.Gravity()},
    )


def test_numbers_of_python_and_a_changed_model(small, path):
    changed = eqx.tree_at(lambda m: m.bodies["rod"].mass, small, 2.0)
    mbd.io.save_model(changed, path)
    same(mbd.io.load_model(path), small.replace({"bodies.rod.mass": 2.0}))


class Drag(forces.AbstractJointForce):
    """A force of a user."""

    joint: JointReference

    def force(self, t, q, v):
        return -v


def test_models_that_files_cannot_hold(small, path):
    def with_force(force):
        return mbd.Model(small.bodies, small.joints, {"f": force})

    function = with_force(forces.JointTorque("hinge", lambda t: t))
    with pytest.raises(mbd.ModelError, match=r"forces\.f\.signal\.function is a function, which a"):
        mbd.io.save_model(function, path)
    own = Drag(forces.JointTorque("hinge", 1.0).joint)
    with pytest.raises(mbd.ModelError, match=r"forces\.f is a Drag, which a file cannot hold"):
        mbd.io.save_model(with_force(own), path)
    masses = eqx.tree_at(lambda m: m.bodies["rod"].mass, small, jnp.ones(3))
    with pytest.raises(mbd.ModelError, match=r"bodies\.rod\.mass must be .* not a batch"):
        mbd.io.save_model(masses, path)

    def traced(mass):
        mbd.io.save_model(small.replace({"bodies.rod.mass": mass}), path)

    with pytest.raises(mbd.ModelError, match=r"bodies\.rod\.mass is traced"):
        jax.jit(traced)(1.0)
    with pytest.raises(mbd.ModelError, match="save_model needs a Model, got a float"):
        mbd.io.save_model(1.0, path)
    assert not list(path.parent.iterdir())


def edited(content, keys, value):
    """The content of a file with another value at a path."""
    *outer, last = keys
    inner = content
    for key in outer:
        inner = inner[key]
    inner[last] = value
    return json.dumps(content)


ROD = ("model", "bodies", "rod")
AXIS = ("model", "joints", "hinge", "fields", "axis")
DAMAGED = {
    "format": (("format",), "other", "is not the file of a model"),
    "version": (("version",), 2, "has version 2 of the format, this jaxmbd reads 1"),
    "no parts": (("model",), {}, "must have a model with bodies, couplings"),
    "parts": (("model", "bodies"), [], "bodies must be components by name"),
    "unknown class": ((*ROD, "class"), "os.system", r"bodies\.rod is of class 'os.system', which"),
    "abstract class": ((*ROD, "class"), "bodies.AbstractBody", "which is not a public component"),
    "other kind": ((*ROD, "class"), ["bodies.RigidBody"], "which is not a public component"),
    "fields": ((*ROD, "fields"), {"mass": 1.0}, "a bodies.RigidBody has the fields mass, com, in"),
    "shape": ((*AXIS, "shape"), [2], r"hinge\.axis: 3 numbers do not fill the shape \[2\]"),
    "huge shape": ((*AXIS, "shape"), [10**12], "do not fill the shape"),
    "other shape": ((*AXIS, "shape"), [1, 3], r"hinge\.axis must be .*shape \(1, 3\)"),
    "dtype": ((*AXIS, "dtype"), "object", "an array has a list of numbers"),
    "text": ((*AXIS, "array"), ["a", 0, 0], r"hinge\.axis: 'a' is not a float64"),
    "function": (AXIS, {"function": "os.system"}, "names the function 'os.system'; known are"),
    "keys": (AXIS, {"pickle": "x"}, r"hinge\.axis has the unknown keys pickle"),
    "list": (AXIS, [1, 2, 3], "which the format does not have"),
    "number for array": (AXIS, 1.0, r"hinge\.axis must be .*got a float"),
    "component of another kind": (ROD, 1.0, "body 'rod' must be a body"),
    "zero axis": ((*AXIS, "array"), [0.0, 0.0, 0.0], r"hinge\.axis must not be the zero vector"),
    "zero quaternion": (
        ("model", "joints", "hinge", "fields", "predecessor", "fields", "quat", "array"),
        [0.0, 0.0, 0.0, 0.0],
        "joint 'hinge': frame on 'ground': quat must not be zero",
    ),
    "impossible": ((*ROD, "fields", "mass", "array"), [-1.0], "body 'rod': mass must be positive"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files(small, path, case):
    keys, value, message = DAMAGED[case]
    mbd.io.save_model(small, path)
    path.write_text(edited(json.loads(path.read_text()), keys, value))
    with pytest.raises(mbd.ModelError, match=message):
        mbd.io.load_model(path)


def test_files_cut_short_or_of_other_contents(small, path, tmp_path):
    mbd.io.save_model(small, path)
    text = path.read_text()
    for part in (
        "",
        text[: len(text) // 2],
        text[:-2],
        text.replace("-9.81", "-Infinity"),
        "[" * 10**5,
    ):
        path.write_text(part)
        with pytest.raises(mbd.ModelError, match="is not complete JSON"):
            mbd.io.load_model(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(mbd.ModelError, match="is not complete JSON"):
        mbd.io.load_model(path)
    for other in (tmp_path, tmp_path / "none.json", 3):
        with pytest.raises(mbd.ModelError, match="cannot be read"):
            mbd.io.load_model(other)


def test_an_axis_of_another_length_is_that_of_the_constructor(small, path):
    mbd.io.save_model(small, path)
    path.write_text(edited(json.loads(path.read_text()), (*AXIS, "array"), [0.0, 2.0, 0.2]))
    longer = joints.Revolute(mbd.ground, "rod", [0.0, 2.0, 0.2])
    same(mbd.io.load_model(path), small.with_(joints={"hinge": longer}))


def test_a_key_twice(small, path):
    mbd.io.save_model(small, path)
    text = path.read_text().replace('"rod": {', '"rod": 1.0, "rod": {', 1)
    path.write_text(text)
    with pytest.raises(mbd.ModelError, match=r"model\.json: the key 'rod' occurs twice"):
        mbd.io.load_model(path)


@pytest.mark.parametrize("name", ["", ".", "..", "model\0.json", "x" * 300, "none/model.json"])
def test_paths_that_cannot_be_written(small, tmp_path, name):
    before = sorted(tmp_path.parent.iterdir())
    with pytest.raises(mbd.ModelError, match=r"save_model: .*(is a folder|cannot write|no folder)"):
        mbd.io.save_model(small, f"{tmp_path}/{name}")
    assert not list(tmp_path.iterdir())
    assert sorted(tmp_path.parent.iterdir()) == before


@pytest.mark.long
def test_replacing_every_number_by_itself_changes_nothing(everything):
    leaves = jax.tree_util.tree_leaves_with_path(everything)
    numbers = {}
    for keys, leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not any(hasattr(k, "idx") for k in keys):
            numbers[".".join(str(getattr(k, "key", getattr(k, "name", k))) for k in keys)] = leaf
    assert len(numbers) > 300
    same(everything.replace(numbers), everything)


def test_double_precision_is_not_lost(small, path):
    mbd.io.save_model(small, path)
    with jax.enable_x64(False), pytest.raises(mbd.ModelError, match=r"needs jax\.config\.update"):
        mbd.io.load_model(path)

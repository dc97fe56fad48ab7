"""Valid calls, wrong values of each kind of argument, and models to try components in."""
# pyright: reportArgumentType=false

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import contact, flexible, forces, inertia, joints, signals

NAN = float("nan")
ROD = inertia.shifted(inertia.rod(1.0, 1.0), [0.5, 0, 0])
HINGE = joints.Revolute(mbd.ground, "rod", [0, 1, 0])
MODEL = mbd.Model({"rod": ROD}, {"hinge": HINGE}, {"gravity": forces.Gravity()})
SYSTEM = mbd.formulate(MODEL)
DRIVEN = mbd.formulate(
    mbd.Model(
        {"rod": ROD},
        {"hinge": HINGE},
        drivers={"drive": joints.Driver("hinge", signals.Sine(1, 1))},
    )
)
BATCH = jax.vmap(lambda m: mbd.formulate(MODEL.replace({"bodies.rod.mass": m})))(jnp.ones(3))
STATE = mbd.State(jnp.zeros(1), jnp.zeros(1))
OTHER = mbd.State(jnp.zeros(14), jnp.zeros(12))  # A state of another system.
TS = np.linspace(0.0, 1.0, 3)
RECORD = mbd.Experiment(TS, {"hinge": TS})
SPRING = contact.KelvinVoigt(1e4)
BALL = contact.Sphere("rod", 0.1)
PLANE = contact.HalfSpace(mbd.ground)
SECTION = flexible.Rectangle(0.02, 0.01)
MEMBER = flexible.Member("a", "b", SECTION, 2e11, 8e10, 7800.0, n_elements=2)
TYRE_WHEEL = mbd.Frame("rod")


URDF = """<robot name="r"><link name="base"/><link name="rod"><inertial><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/></joint></robot>"""


class _Thing:
    """A value of a type that jaxmbd does not know."""

    def __repr__(self) -> str:
        return "a thing"


THING = _Thing()

WRONG: dict[str, Mapping[str, Any]] = {
    "number": {
        "text": "x",
        "number as text": "1",
        "empty": [],
        "two": [1.0, 2.0],
        "dict": {},
        "thing": THING,
        "class": mbd.Model,
        "complex": 1j,
    },
    "vector": {
        "text": "x",
        "empty": [],
        "two": [1.0, 2.0],
        "number": 1.0,
        "dict": {"x": 1.0},
        "ragged": [1.0, [2.0], 3.0],
        "thing": THING,
    },
    "direction": {
        "text": "x",
        "empty": [],
        "two": [1.0, 2.0],
        "zero": [0.0, 0.0, 0.0],
        "thing": THING,
    },
    "frame": {"number": 1.0, "empty": [], "None": None, "class": mbd.Frame, "thing": THING},
    "joint": {"number": 1.0, "empty": [], "None": None, "class": joints.Revolute, "thing": THING},
    "name": {"number": 1.0, "None": None, "empty": [], "class": mbd.Frame},
    "node": {
        "number": 1.0,
        "None": None,
        "empty": [],
        "class": mbd.Frame,
        "unknown": "nowhere",
        "too large": 99,
        "negative": -1,
    },
    "law": {"number": 1.0, "text": "x", "class": contact.KelvinVoigt, "empty": []},
    "friction": {"number": 1.0, "text": "x", "class": contact.Coulomb, "empty": []},
    "signal": {"text": "x", "thing": THING, "dict": {}},
    "system": {
        "number": 1.0,
        "text": "x",
        "None": None,
        "class": mbd.Model,
        "state": STATE,
        "body": ROD,
        "batch": BATCH,
    },
    "state": {
        "number": 1.0,
        "text": "x",
        "None": None,
        "class": mbd.State,
        "array": jnp.zeros(2),
        "list": [0.0],
        "of another system": OTHER,
    },
    "time": {
        "text": "x",
        "number as text": "1",
        "complex": 1j,
        "two": [0.0, 1.0],
        "dict": {},
        "thing": THING,
        "state": STATE,
    },
    "count": {"text": "x", "half": 1.5, "zero": 0, "negative": -3, "empty": [], "thing": THING},
    "names": {"number": 1.0, "numbers": [1.0, 2.0], "unknown": ["nobody"], "thing": THING},
    "mapping": {"number": 1.0, "text": "x", "list": [1.0], "thing": THING},
    "shape": {"number": 1.0, "text": "x", "None": None, "class": contact.Sphere, "frame": HINGE},
    "section": {"number": 1.0, "text": "x", "None": None, "class": flexible.Rectangle},
    "body": {"number": 1.0, "text": "x", "None": None, "class": mbd.RigidBody, "joint": HINGE},
    "flag": {},
    "option": {"number": 1.0, "text": "nonsense", "empty": []},
    "model": {"number": 1.0, "text": "x", "None": None, "class": mbd.Model, "system": SYSTEM},
    "records": {
        "number": 1.0,
        "text": "x",
        "None": None,
        "empty": [],
        "class": mbd.Experiment,
        "numbers": [1.0],
    },
    "select": {
        "number": 1.0,
        "text": "bodies.rod.mass",
        "None": None,
        "empty": [],
        "unknown": ["bodies.bar.mass"],
        "thing": [THING],
        "a body": ["bodies.rod"],
    },
    "function": {"number": 1.0, "text": "x", "None": None, "thing": THING},
    "method": {"number": 1.0, "class": mbd.minimizers.LevenbergMarquardt, "thing": THING},
    "integrator": {"number": 1.0, "text": "RK4", "class": mbd.BDF, "thing": THING},
    "formulation": {"number": 1.0, "text": "joint", "class": mbd.MaximalCoordinates},
    "path": {
        "number": 1.0,
        "None": None,
        "missing": "/nowhere/at/all",
        "folder": ".",
        "null": "a\0b",
        "thing": THING,
    },
    "times": {
        "text": "x",
        "None": None,
        "empty": [],
        "matrix": [[0.0, 1.0]],
        "NaN": [0.0, NAN],
        "thing": THING,
    },
    "matrix": {"text": "x", "empty": [], "number": 1.0, "vector": [1.0, 2.0], "thing": THING},
}
# Numbers that Model refuses by the component's name.
WRONG["positive"] = {**WRONG["number"], "negative": -1.0, "zero": 0.0, "NaN": NAN}
WRONG["not negative"] = {**WRONG["number"], "negative": -1.0, "NaN": NAN}
WRONG["finite"] = {**WRONG["number"], "NaN": NAN}


@dataclass(frozen=True)
class Call:
    """A valid call and the kinds of its arguments.

    - `kinds`: `{argument: kind}`; an argument without a kind is not varied.
    - `then`: what is done with the result, such as `Model` of it.
    - `skip`: `(argument, wrong value)` that is valid for this call.
    """

    function: Callable[..., Any]
    given: Mapping[str, Any]
    kinds: Mapping[str, str]
    then: Callable[[Any], Any] = lambda x: x
    skip: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    def run(self, **changes: Any) -> Any:
        return self.then(self.function(**{**self.given, **changes}))

    def wrong(self) -> Iterator[tuple[str, str, Any]]:
        """Argument, name and value of each wrong call."""
        for argument, kind in self.kinds.items():
            for name, value in WRONG[kind].items():
                if (argument, name) not in self.skip:
                    yield argument, name, value


def with_force(force: Any) -> Any:
    """A system with the force, since only a system shows shapes that do not fit a joint."""
    return mbd.formulate(mbd.Model({"rod": ROD}, {"hinge": HINGE}, {"part": force}))


def with_joint(joint: Any) -> mbd.Model:
    return mbd.Model({"rod": ROD}, {"part": joint})


def with_body(body: Any) -> mbd.Model:
    return mbd.Model({"part": body})


def with_driver(driver: Any) -> Any:
    return mbd.formulate(mbd.Model({"rod": ROD}, {"hinge": HINGE}, drivers={"part": driver}))


def with_coupling(coupling: Any) -> mbd.Model:
    return mbd.Model({"rod": ROD}, {"hinge": HINGE, "slide": SLIDE}, couplings={"part": coupling})


def with_rotor(rotor: Any) -> mbd.Model:
    return mbd.Model({"rod": ROD}, {"hinge": HINGE}, rotors={"part": rotor})


def in_contact(law: Any) -> mbd.Model:
    return with_force(forces.Contact(BALL, PLANE, law))


def rubbing(friction: Any) -> mbd.Model:
    return with_force(forces.Contact(BALL, PLANE, SPRING, friction))


def touching(shape: Any) -> mbd.Model:
    return with_force(forces.Contact(shape, PLANE, SPRING))


def with_tyre(slip: Any) -> mbd.Model:
    return with_force(forces.Tyre(contact.Disc("rod", 0.3), PLANE, SPRING, slip))


def applied(signal: Any) -> mbd.Model:
    return with_force(forces.JointTorque("hinge", signal))


SLIDE = joints.Prismatic(mbd.ground, "rod")
ENDS = {"predecessor": mbd.ground, "successor": "rod"}
AXIAL = {"predecessor": "frame", "successor": "frame", "axis": "direction"}


def skip(argument: str, *names: str) -> frozenset[tuple[str, str]]:
    return frozenset((argument, name) for name in names)

"""Names, placements and joints of a model that MuJoCo has compiled."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ModelError
from ..model import Frame
from ..model.frame import GROUND
from .mjcf import JointEntry, mujoco
from .urdf_placement import Placement

N_COORDINATES = {"hinge": 1, "slide": 1, "ball": 4, "free": 7}
N_VELOCITIES = {"hinge": 1, "slide": 1, "ball": 3, "free": 6}


@dataclass
class Source:
    """A compiled model, names of its parts, and placements of its bodies.

    - `bodies`, `joints`, `sites`, `geoms`, `actuators`: names by MuJoCo's numbers.
    - `places`: for each of MuJoCo's bodies, the body of the model (or the ground) that carries it,
      and its placement there.
    - `omitted`: what the model does not represent.
    """

    compiled: Any
    bodies: list[str] = field(init=False)
    joints: list[JointEntry] = field(init=False)
    sites: list[str] = field(init=False)
    geoms: list[str] = field(init=False)
    actuators: list[str] = field(init=False)
    places: list[tuple[str, Placement]] = field(init=False)
    omitted: list[str] = field(default_factory=list)

    def __post_init__(self):
        m = self.compiled
        self.bodies = [
            GROUND,
            *_unique(self.name("BODY", i) or f"body {i}" for i in range(1, m.nbody)),
        ]
        if GROUND in self.bodies[1:]:
            raise ModelError(
                f"MJCF: body {GROUND!r}: this name means the world's own frame in a Model; rename "
                "the body"
            )
        self.joints = self._joints()
        self.sites = [self.name("SITE", i) for i in range(m.nsite)]
        self.geoms = _unique(
            self.name("GEOM", i) or f"{self.bodies[m.geom_bodyid[i]]} geom" for i in range(m.ngeom)
        )
        self.actuators = _unique(self.name("ACTUATOR", i) or f"actuator {i}" for i in range(m.nu))
        self.places = self._places()

    def name(self, kind: str, i: int) -> str:
        """The name of a part of one of MuJoCo's kinds, such as `BODY`, or an empty text."""
        return mujoco.mj_id2name(self.compiled, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), i) or ""

    def named(self, kind: str, i: int) -> str:
        """The part in words, such as `tendon 'cable'`, or `tendon 3` without a name."""
        name = self.name(kind, i)
        return f"{kind.lower()} {name!r}" if name else f"{kind.lower()} {i}"

    def omit(self, what: str) -> None:
        """Note that the model does not represent this."""
        self.omitted.append(what)

    def is_disabled(self, flag: str) -> bool:
        """True if the option disables a part, such as `GRAVITY`."""
        return bool(
            self.compiled.opt.disableflags & getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")
        )

    def frame(self, body: int, p: Any, quat: Any = (1.0, 0.0, 0.0, 0.0)) -> Frame:
        """A frame given in one of MuJoCo's bodies, as a frame of the model."""
        carrier, X = self.places[body]
        return as_frame(carrier, X @ Placement(np.array(p), np.array(quat)))

    def _joints(self) -> list[JointEntry]:
        m, entries = self.compiled, []
        names = _unique(self._joint_name(j) for j in range(m.njnt))
        for j, name in enumerate(names):
            kind = mujoco.mjtJoint(m.jnt_type[j]).name.split("_")[-1].lower()
            q, v = int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j])
            ends = q + N_COORDINATES[kind], v + N_VELOCITIES[kind]
            entries.append(JointEntry(name, kind, slice(q, ends[0]), slice(v, ends[1])))
        return entries

    def _joint_name(self, j: int) -> str:
        m = self.compiled
        name, body = self.name("JOINT", j), int(m.jnt_bodyid[j])
        if name:
            return name
        number = "" if m.body_jntnum[body] == 1 else f" {j - m.body_jntadr[body] + 1}"
        return f"{self.bodies[body]} joint{number}"

    def _places(self) -> list[tuple[str, Placement]]:
        m, places = self.compiled, [(GROUND, Placement())]
        for i in range(1, m.nbody):
            if m.body_jntnum[i] > 0:
                places.append((self.bodies[i], Placement()))
            else:
                carrier, X = places[m.body_parentid[i]]
                places.append((carrier, X @ Placement(m.body_pos[i], m.body_quat[i])))
        return places


def as_frame(body: str, X: Placement) -> Frame:
    """A frame of the model."""
    return Frame(body, X.p, quat=X.quat)


def _unique(names: Iterable[str]) -> list[str]:
    """The names, those that occur again with a number."""
    result: list[str] = []
    for name in names:
        result.append(unused(name, result))
    return result


def unused(name: str, taken: Container[str]) -> str:
    """The name, with the first number that makes it unlike all names in `taken`."""
    own, n = name, 1
    while own in taken:
        n += 1
        own = f"{name} {n}"
    return own

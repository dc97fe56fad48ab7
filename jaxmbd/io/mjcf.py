"""Models from MJCF files, the models of MuJoCo."""

import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError, NotRepresentedWarning, warn
from ..lie import so3
from ..model import Model
from ..system.abstract import AbstractSystem, State
from ..system.joint_states import joint_states
from .urdf_xml import read_xml

MOST_LEVELS = 10_000  # XML elements inside one another: a chain of bodies has a level for each.


class JointEntry(NamedTuple):
    """A joint: its name and kind, and the slices of its entries in MuJoCo's qpos and qvel."""

    name: str
    kind: str
    q: slice
    v: slice

    @property
    def is_scalar(self) -> bool:
        """True if the joint has one coordinate: a hinge or a slide."""
        return self.kind in ("hinge", "slide")


class Keyframe(NamedTuple):
    """A state of joints by name: `assemble(system, keyframe.guess, keyframe.rates)`.

    - `guess`: `{joint: coordinates}`; `rates`: `{joint: velocities}`.
    - `controls`: `{actuator: control}` of the actuators that the model has.
    - `time`: [s].
    """

    guess: dict[str, np.ndarray]
    rates: dict[str, np.ndarray]
    controls: dict[str, float]
    time: float = 0.0


@dataclass(frozen=True)
class MJCF:
    """A model read from an MJCF file, and parts of the file that a `Model` does not have.

    - `model`: the `Model`.
    - `initial`: MuJoCo's reference state (qpos0, at rest). `keyframes`: states of the file, by
      name; those without a name are `"key 0"` and so on.
    - `limits`: `{joint: (lower, upper)}` of hinges and slides with limits [rad or m].
    - `loops`: names of the joints that close loops. With `JointCoordinates(cut=mjcf.loops)` the
      coordinates are those of MuJoCo's tree.
    - `not_represented`: parts of the file that affect its motion in MuJoCo, and that the model
      does not have.
    """

    model: Model
    initial: Keyframe
    keyframes: dict[str, Keyframe]
    limits: dict[str, tuple[float, float]]
    loops: tuple[str, ...]
    not_represented: tuple[str, ...]
    entries: tuple[JointEntry, ...]

    def joint_values(self, qpos: Any, qvel: Any = None) -> Keyframe:
        """Values of the joints at MuJoCo's `qpos`, shape `(nq,)`, and `qvel`, shape `(nv,)`.

        The twist of a free joint is along the axes of its body. In `qvel` its linear velocity is
        along the axes of the world. Other numbers are equal. Default of `qvel`: zeros.

        **Raises** `ModelError` for other shapes.
        """
        nq, nv = self.entries[-1].q.stop, self.entries[-1].v.stop
        qpos = _vector(qpos, nq, "qpos")
        qvel = np.zeros(nv) if qvel is None else _vector(qvel, nv, "qvel")
        return keyframe(self.entries, qpos, qvel)

    def to_mujoco(self, system: AbstractSystem, state: State) -> tuple[np.ndarray, np.ndarray]:
        """MuJoCo's `qpos` and `qvel` at a state of a system of the model; see `joint_values`."""
        states = joint_states(system, 0.0, state)
        qpos, qvel = np.zeros(self.entries[-1].q.stop), np.zeros(self.entries[-1].v.stop)
        for entry in self.entries:
            own = states[entry.name]
            q, v = (np.atleast_1d(np.array(x)) for x in (own.q, own.v))
            if entry.kind == "free":
                v[:3] = _rotation(q[3:]) @ v[:3]
            qpos[entry.q], qvel[entry.v] = q, v
        return qpos, qvel


def from_mjcf(
    path: str | os.PathLike[str],
    contacts: bool = True,
    actuators: bool = True,
    folders: str | os.PathLike[str] | Iterable[Any] = (),
) -> MJCF:
    """Read a model from an MJCF file, by MuJoCo's own compiler.

    Coordinates of joints equal MuJoCo's qpos; see `MJCF.joint_values` for velocities. The page
    "MJCF files" has a table of all elements.

    **Arguments:**

    - `path`: path of the file, or the XML text itself; a text has no included files and assets.
    - `contacts`: whether geoms become contacts, pair by pair.
    - `actuators`: whether actuators become forces, with a control of zero.
    - `folders`: one or more folders, besides that of the file, with included files and assets, such
      as `"robot"` for `robot/mjcf/arm.xml` with `meshdir="../meshes"`.

    **Warns** by `NotRepresentedWarning`, once, of everything in `MJCF.not_represented`.

    **Raises** `ModelError` if the file cannot be read, if it names files in other folders, if
    MuJoCo rejects it, with MuJoCo's message, or if nothing in it moves; `ImportError` without
    MuJoCo, which the extra `mujoco` installs.

    For example:

        mjcf = mbd.io.from_mjcf("robot.xml")
        system = mbd.formulate(mjcf.model)
        state = mbd.assemble(system, mjcf.keyframes["home"].guess)
    """
    if importlib.util.find_spec("mujoco") is None:
        raise ImportError('from_mjcf needs MuJoCo: pip install "jaxmbd[mujoco]"')
    from .mjcf_reader import read_model  # On demand: not every user has MuJoCo.

    mjcf = read_model(path, contacts, actuators, folders)
    if mjcf.not_represented:
        warn(
            "from_mjcf: the model does not represent " + "; ".join(mjcf.not_represented),
            NotRepresentedWarning,
        )
    return mjcf


def is_mjcf(source: str | os.PathLike[str]) -> bool:
    """True if a file or an XML text is MJCF, and no URDF.

    **Raises** `ModelError` if it cannot be read or is not XML.
    """
    return read_xml(source, "URDF or MJCF", MOST_LEVELS).tag == "mujoco"


def _vector(values: Any, size: int, name: str) -> np.ndarray:
    vector = np.asarray(values, dtype=float)
    if vector.shape != (size,):
        raise ModelError(f"MJCF: {name} must have shape {(size,)}, got {vector.shape}")
    return vector


def _rotation(quat: np.ndarray) -> np.ndarray:
    return np.asarray(so3.to_matrix(jnp.asarray(quat)))


def keyframe(entries: tuple[JointEntry, ...], qpos: np.ndarray, qvel: np.ndarray) -> Keyframe:
    """The values of joints at MuJoCo's qpos and qvel."""
    guess, rates = {}, {}
    for entry in entries:
        q, v = qpos[entry.q].copy(), qvel[entry.v].copy()
        if entry.kind == "free":
            v[:3] = _rotation(q[3:]).T @ v[:3]
        guess[entry.name], rates[entry.name] = q, v
    return Keyframe(guess, rates, {})

"""Models from MJCF files, the models of MuJoCo."""

import importlib
import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError, NotRepresentedWarning, warn
from ..lie import so3
from ..model import Model
from ..model.values import as_path, described
from ..system.abstract import AbstractSystem, State
from ..system.joint_states import joint_states
from .urdf_xml import Element, is_text, read_xml

# MJCF files: reading them by MuJoCo's compiler, from within the allowed folders -------------------


def __getattr__(name: str) -> Any:
    """The module `mujoco`, when a reader of MJCF first uses it: not every user has MuJoCo."""
    if name != "mujoco":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("mujoco")  # MuJoCo has no type stubs.


FOLDERS = ("assetdir", "meshdir", "texturedir")
# Attributes that name a file; those of a texture are the six sides of a cube.
FILES = ("file", *(f"file{side}" for side in ("right", "left", "up", "down", "front", "back")))


def read_mjcf(source: str | os.PathLike[str], folders: Any = ()) -> Element:
    """The root element of an MJCF file or text, all of whose files are in its folder or `folders`.

    **Raises** `ModelError` if it cannot be read, is not MJCF, or refers to files elsewhere.
    """
    root = read_xml(source, "MJCF", MOST_LEVELS)
    if root.tag == "robot":
        raise root.error("this is a URDF, read it by from_urdf")
    if root.tag != "mujoco":
        raise root.error("an MJCF model begins with <mujoco>")
    folder = None if is_text(source) else Path(source).parent.resolve()
    allowed = () if folder is None else (folder, *_allowed(folders))
    _check_files(root, folder, allowed, set())
    return root


def _allowed(folders: Any) -> list[Path]:
    if isinstance(folders, str | os.PathLike):
        folders = [folders]
    if not isinstance(folders, Iterable):
        raise ModelError(f"from_mjcf: folders must be a list of folders, got {described(folders)}")
    return [as_path(folder, "from_mjcf: folders").resolve() for folder in folders]


def compile_mjcf(source: str | os.PathLike[str], folders: Any = ()) -> Any:
    """The `mujoco.MjModel` of an MJCF file or text.

    **Raises** `ModelError` as `read_mjcf`, and if MuJoCo rejects the model, with its message.
    """
    root, mujoco = read_mjcf(source, folders), importlib.import_module("mujoco")
    try:
        if isinstance(source, str) and is_text(source):
            spec = mujoco.MjSpec.from_string(source)
        else:
            spec = mujoco.MjSpec.from_file(os.fspath(source))
        return spec.compile()
    except (ValueError, mujoco.FatalError) as error:
        message = " ".join(str(error).split())
        raise root.error(f"MuJoCo cannot compile it: {message}") from error


def _check_files(
    root: Element, folder: Path | None, allowed: tuple[Path, ...], seen: set[Path]
) -> None:
    """Check the paths in a document, and in the documents that it includes."""
    elements, folders = [], [Path()]
    stack = [root]
    while stack:
        element = stack.pop()
        elements.append(element)
        stack.extend(element.children)
        if element.tag == "compiler":
            for attribute in FOLDERS:
                if attribute in element.attributes:
                    folders.append(_inside(element, attribute, folder, allowed, [Path()])[0])
    for element in elements:
        for attribute in FILES:
            if attribute not in element.attributes:
                continue
            paths = _inside(element, attribute, folder, allowed, folders)
            if element.tag not in ("include", "model"):
                continue
            for path in paths:
                target = None if folder is None else (folder / path).resolve()
                if target is not None and target.is_file() and target not in seen:
                    seen.add(target)
                    _check_files(read_xml(target, "MJCF", MOST_LEVELS), folder, allowed, seen)


def _inside(
    element: Element,
    attribute: str,
    folder: Path | None,
    allowed: tuple[Path, ...],
    folders: list[Path],
) -> list[Path]:
    """Paths of a file in each of `folders`; **raises** `ModelError` if one is not `allowed`."""
    text = element.attributes[attribute]
    if not text:
        return [Path()]
    if folder is None:
        raise element.error(
            f"{attribute} is {text!r}, and a text has no folder with files; give the path of a file"
        )
    name = PureWindowsPath(text)  # Its separators are those of both systems, as for MuJoCo.
    paths = [path / name.as_posix() for path in folders]
    for path in paths:
        # MuJoCo shortens a/../b, which is another file if a is a link.
        short = Path(os.path.normpath(folder / path))
        ends = (short.resolve(), (folder / path).resolve())
        if name.drive or not all(any(end.is_relative_to(x) for x in allowed) for end in ends):
            raise element.error(
                f"{attribute} is {text!r}, which is not in the folder of the file; if it is to be "
                f"read, allow its folder by from_mjcf(..., folders=[{str(short.parent)!r}])"
            )
    return paths


# Models from MJCF files, the models of MuJoCo -----------------------------------------------------

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

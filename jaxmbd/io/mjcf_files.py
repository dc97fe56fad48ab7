"""MJCF files: reading them by MuJoCo's compiler, from within the allowed folders."""

import importlib
import os
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from typing import Any

from ..errors import ModelError
from ..model.arguments import as_path, described
from .mjcf import MOST_LEVELS
from .urdf_xml import Element, is_text, read_xml

# MuJoCo has no type stubs.
mujoco: Any = importlib.import_module("mujoco")

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
    root = read_mjcf(source, folders)
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

"""XML elements with their line in the file, for error messages."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np

from ..errors import ModelError
from ..model.text_files import read_file
from ..model.values import as_mapping, as_path, described

# Expansion of xacro files, the macros of URDF -----------------------------------------------------


def expand_xacro(path: str | os.PathLike[str], arguments: Mapping[str, str] | None = None) -> str:
    """The URDF of a xacro file: `from_urdf(expand_xacro("robot.urdf.xacro", {"arm": "left"}))`.

    Needs the extra `xacro`. A xacro file contains Python expressions and names other files: expand
    files that you trust only.

    **Arguments:** `path`: of the file; `arguments`: `{name: text}` of its `xacro:arg`.

    **Returns** the XML text.

    **Raises** `ModelError`, with the file, if it cannot be expanded; `ImportError` without the
    extra.
    """
    try:
        import xacro
    except ImportError as error:
        raise ImportError('xacro is not installed: pip install "jaxmbd[xacro]"') from error
    file = as_path(path, "expand_xacro: path")
    given = as_mapping(arguments, "expand_xacro: arguments", "{name: text}")
    if not file.is_file():
        raise ModelError(f"expand_xacro: there is no file {str(file)!r}")
    try:
        document: Any = xacro.process_file(
            str(file), mappings={k: str(x) for k, x in given.items()}
        )
        return document.toprettyxml(indent="  ")
    except Exception as error:  # It raises exceptions of many kinds, those of expressions too.
        raise ModelError(f"expand_xacro: {file.name}: {error}") from error


# XML elements with their line in the file, for error messages -------------------------------------

MOST_LEVELS = 64  # Elements inside one another: URDF has fewer than ten.


class Element:
    """An element of a robot description: attributes, children, text, and file and line.

    `label` is its name in messages: the chain of elements around it, without the robot.
    """

    def __init__(self, tag: str, attributes: dict[str, str], where: str, label: str):
        self.tag = tag
        self.attributes = attributes
        self.where = where
        self.label = label
        self.children: list[Element] = []
        self.content = ""

    def error(self, problem: str) -> ModelError:
        """An exception with file, line, element and problem."""
        return ModelError(f"{self.where}: {self.label}: {problem}")

    def all(self, tag: str) -> list["Element"]:
        """Children of one tag."""
        return [child for child in self.children if child.tag == tag]

    def child(self, tag: str) -> "Element | None":
        """The only child of one tag, or None; **raises** `ModelError` if there are more."""
        children = self.all(tag)
        if len(children) > 1:
            raise children[1].error(f"a second <{tag}>; one is allowed")
        return children[0] if children else None

    def required(self, tag: str) -> "Element":
        """The only child of one tag; **raises** `ModelError` if there is none."""
        child = self.child(tag)
        if child is None:
            raise self.error(f"<{tag}> is missing")
        return child

    def text(self, attribute: str) -> str:
        """A required attribute; **raises** `ModelError` if it is missing or empty."""
        value = self.attributes.get(attribute, "").strip()
        if not value:
            raise self.error(f"attribute {attribute!r} is missing or empty")
        return value

    def number(self, attribute: str, default: float | None = None) -> float:
        """A finite number; required if there is no default."""
        value = self.limit(attribute, default)
        if not math.isfinite(value):
            raise self.error(f"{attribute} must be finite, got {value}")
        return value

    def limit(self, attribute: str, default: float | None = None) -> float:
        """A number that may be infinite."""
        if default is not None and attribute not in self.attributes:
            return default
        return self._numbers(attribute, self.text(attribute), 1)[0]

    def content_number(self) -> float:
        """The number between the tags."""
        value = self._numbers("its content", self.content, 1)[0]
        if not math.isfinite(value):
            raise self.error(f"its content must be finite, got {self.content!r}")
        return value

    def vector(self, attribute: str, size: int = 3) -> np.ndarray:
        """Three finite numbers, or another `size`. Default: zeros."""
        if attribute not in self.attributes:
            return np.zeros(size)
        values = self._numbers(attribute, self.attributes[attribute], size)
        if not all(map(math.isfinite, values)):
            raise self.error(f"{attribute} must be finite, got {self.attributes[attribute]!r}")
        return np.array(values)

    def _numbers(self, attribute: str, text: str, count: int) -> list[float]:
        expected = "one number" if count == 1 else f"{count} numbers"
        try:
            values = [float(word) for word in text.split()]
        except ValueError:
            raise self.error(f"{attribute} must be {expected}, got {text!r}") from None
        if len(values) != count or any(map(math.isnan, values)):
            raise self.error(f"{attribute} must be {expected}, got {text!r}")
        return values


def is_text(source: str | os.PathLike[str]) -> bool:
    """True if `source` is XML text, which begins with `<`, and no path."""
    return isinstance(source, str) and source.lstrip().startswith("<")


def read_xml(
    source: str | os.PathLike[str], kind: str = "URDF", most_levels: int = MOST_LEVELS
) -> Element:
    """The root element of a file, or of the XML text itself if `source` begins with `<`.

    **Raises** `ModelError` if the file cannot be read or is not XML, or if more than `most_levels`
    elements are inside one another.
    """
    if isinstance(source, str) and is_text(source):
        return _parse(source.encode(), kind, kind, most_levels, "utf-8")
    try:
        content = read_file(source)
    except (OSError, TypeError, ValueError) as error:
        raise ModelError(f"cannot read the {kind} file {str(source)!r}: {error}") from error
    return _parse(content, Path(source).name, kind, most_levels)


def _parse(
    content: bytes, file: str, kind: str, most_levels: int, encoding: str | None = None
) -> Element:
    parser = expat.ParserCreate(encoding)
    top = Element("", {}, file, "")
    open_elements = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        own = f"{tag} {attributes['name']!r}" if "name" in attributes else tag
        outer = "" if len(open_elements) <= 2 else f"{open_elements[-1].label}: "
        where = f"{file}:{parser.CurrentLineNumber}"
        if len(open_elements) > most_levels:
            raise ModelError(f"{where}: <{tag}> is inside of {most_levels} others; is it {kind}?")
        element = Element(tag, attributes, where, outer + own)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        open_elements.pop()

    def text(data: str) -> None:
        open_elements[-1].content = (open_elements[-1].content + data).strip()

    parser.buffer_text = True
    parser.CharacterDataHandler = text
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ModelError(f"{file}:{error.lineno}: not an XML document: {reason}") from error
    return top.children[0]


# The folders from which the meshes of a URDF file are read ----------------------------------------

PACKAGE = "package://"
Roots = Mapping[str, Any] | Iterable[Any]


class MeshFolders(NamedTuple):
    """Folders from which meshes may be read: the file's own, packages by name, and others."""

    own: Path | None
    named: dict[str, Path]
    roots: tuple[Path, ...]

    def find(self, name: str, element: Element) -> Path:
        """The file of a mesh; **raises** `ModelError` if it is none, or outside of the folders."""
        if name.startswith(PACKAGE):
            package, _, rest = name.removeprefix(PACKAGE).lstrip("/").partition("/")
            folders = self._of_package(package)
            if not folders:
                raise element.error(
                    f"unknown package {package!r}; give its folder: "
                    f"packages={{{package!r}: folder}}"
                )
        else:
            rest = name.removeprefix("file://")
            if self.own is None:
                raise element.error(
                    f"the mesh {name!r} is relative to a file; read the URDF by path"
                )
            folders = [self.own]
        for folder in folders:
            path = (folder / rest).resolve()
            allowed = (folder, *self.named.values(), *self.roots)
            if not any(path.is_relative_to(root.resolve()) for root in allowed):
                raise element.error(
                    f"the mesh {name!r} leads out of {str(folder)!r}; add the folder to packages"
                )
            if path.is_file():
                return path
        listed = ", ".join(str(folder / rest) for folder in folders)
        raise element.error(f"there is no mesh {name!r}; looked for {listed}")

    def _of_package(self, package: str) -> list[Path]:
        """Folders of a package: as given, and the one that the file itself is in."""
        if package in self.named:
            return [self.named[package]]
        above = () if self.own is None else (self.own, *self.own.parents)
        around = [folder for folder in above if package and folder.name == package]
        return [root / package for root in self.roots] + around[:1]


def mesh_folders(source: Any, packages: Roots | None) -> MeshFolders:
    """Folders of the meshes of a file, or of XML text.

    **Raises** `ModelError` if `packages` are neither folders nor folders by name.
    """
    own = None if is_text(source) else Path(os.fspath(source)).resolve().parent
    return MeshFolders(own, *_roots(packages))


def _roots(packages: Roots | None) -> tuple[dict[str, Path], tuple[Path, ...]]:
    if packages is None:
        return {}, ()
    if isinstance(packages, str | os.PathLike):
        packages = [packages]
    if isinstance(packages, Mapping):
        return {str(k): as_path(x, f"packages: {k!r}") for k, x in packages.items()}, ()
    if not isinstance(packages, Iterable):
        raise ModelError(
            f"packages must be {{name: folder}} or a list of folders, got {described(packages)}"
        )
    return {}, tuple(as_path(x, "packages") for x in packages)

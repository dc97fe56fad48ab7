"""The folders from which the meshes of a URDF file are read."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ModelError
from ..model.arguments import as_path, described
from .urdf_xml import Element, is_text

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

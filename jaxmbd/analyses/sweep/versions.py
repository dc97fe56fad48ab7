"""Versions of the software that numbers depend on."""

from importlib import metadata


def versions() -> dict[str, str]:
    """Versions by package, in this process."""
    return {package: _version(package) for package in ("jaxmbd", "jax", "jaxlib")}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"

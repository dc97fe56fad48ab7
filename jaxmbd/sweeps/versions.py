"""Versions of the software that affects results."""

from importlib import metadata


def versions() -> dict[str, str]:
    """Versions by package, in this process."""
    return {package: version_of(package) for package in ("jaxmbd", "jax", "jaxlib")}


def version_of(package: str) -> str:
    """The version of a package; "unknown" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"

"""Versions of the software that numbers depend on."""

from importlib import metadata


def versions() -> dict[str, str]:
    """Versions by package, in this process."""
    return {package: version_of(package) for package in ("jaxmbd", "jax", "jaxlib")}


def version_of(package: str) -> str:
    """Its version; "unknown" where it is used without being installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"

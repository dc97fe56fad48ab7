"""Description of the machine on which a benchmark ran."""

import os
import platform
import time

import jax


def machine() -> str:
    """Date, machine and versions, for the head of a table."""
    return (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{jax.default_backend()}, Python {platform.python_version()}, jax {jax.__version__}, "
        "float64."
    )

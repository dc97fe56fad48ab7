"""NVIDIA's assembler, of the package `nvidia-cuda-nvcc`: it needs no card."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

ARCHITECTURE = "sm_90"


@cache
def found():
    """Path of the assembler, or None."""
    on_path = shutil.which("ptxas")
    if on_path:
        return on_path
    for folder in sys.path:
        for path in Path(folder or ".").glob("nvidia/*/bin/ptxas"):
            if os.access(path, os.X_OK):
                return str(path)
            if os.access(path, os.R_OK):  # The wheel has no executable files.
                copy = Path(tempfile.mkdtemp()) / "ptxas"
                shutil.copy(path, copy)
                copy.chmod(0o700)
                return str(copy)
    return None


def ptxas():
    """Path of the assembler; skips a test without one."""
    if found() is None:
        pytest.skip("no ptxas: pip install nvidia-cuda-nvcc")
    return found()


def assembled(tool, text, limit=100):
    """Registers, and bytes of values that move to memory, of each function of a text."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(text)
        given = [tool, f"-arch={ARCHITECTURE}", "-v", str(source), "-o", f"{folder}/kernel.cubin"]
        done = subprocess.run(given, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stderr
    reports = {}
    patterns = {
        "registers": r"Used (\d+) registers",
        "stack": r"(\d+) bytes stack frame",
        "spill stores": r"(\d+) bytes spill stores",
        "spill loads": r"(\d+) bytes spill loads",
    }
    for part in done.stderr.split("Compiling entry function ")[1:]:
        name = part.split("'")[1]
        matches = {key: re.search(pattern, part) for key, pattern in patterns.items()}
        reports[name] = {key: int(x.group(1)) for key, x in matches.items() if x}
    return reports

"""Batched simulations come to an end, on every interpreter with the package, under a watchdog."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("python3.11", "python3.12", "python3.13", "python3.14")
# Further interpreters, such as those of other environments, apart by `os.pathsep`.
NAMED = [name for name in os.environ.get("JAXMBD_INTERPRETERS", "").split(os.pathsep) if name]
RUNS, WITHIN = 20, 280  # -, [s] for all of them; a run takes some seconds.
PROGRAM = f"""
import jax, jax.numpy as jnp
import jaxmbd as mbd
jax.config.update("jax_enable_x64", True)
from tests.models import chain

system = mbd.formulate(chain(10), mbd.JointCoordinates())
first = mbd.assemble(system)

@jax.jit
@jax.vmap
def end(angle):
    state = mbd.State(first.q.at[0].set(angle), first.v)
    return mbd.rollout(system, state, dt=1e-3, n_steps=50).q[-1]

angles = jnp.linspace(0.1, 1.0, 1024)
for _ in range({RUNS}):
    assert jnp.isfinite(end(angles)).all()
    print("done", flush=True)
"""


def candidates() -> list[str]:
    """This interpreter, those that are named, and those that are found; one for each environment.

    An interpreter that is a link into another environment belongs to that of the link.
    """
    found = [sys.executable, *NAMED, *filter(None, map(shutil.which, SUPPORTED))]
    return list({(Path(x).parent, Path(x).resolve()): x for x in reversed(found)}.values())[::-1]


def run(python: str, code: str, within: float) -> subprocess.CompletedProcess[str]:
    """Code in a process of an interpreter, with XLA as jaxmbd sets it up and not as the tests do.

    **Raises** `subprocess.TimeoutExpired` where it does not end in time; it is killed then.
    """
    environ = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(
        [python, "-c", code],
        cwd=ROOT,
        env=environ | {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=within,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("python", candidates())
def test_rollouts_end(python, record_property):
    look = run(python, "import jaxlib.version as v, jaxmbd; print(v.__version__)", 60)
    if look.returncode != 0 and python not in (sys.executable, *NAMED):
        pytest.skip(f"{python} has no jaxmbd or not what it needs")
    assert look.returncode == 0, look.stderr
    record_property("jaxlib", look.stdout.strip())
    try:
        done = run(python, PROGRAM, WITHIN)
    except subprocess.TimeoutExpired as hung:
        said = hung.stdout or b""
        count = said.count(b"done" if isinstance(said, bytes) else "done")
        pytest.fail(f"jaxlib {look.stdout.strip()}: {count} of {RUNS} runs came to an end")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"] * RUNS

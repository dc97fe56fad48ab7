"""Object code on disk."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.numpy as jnp
import pytest

from jaxmbd import native
from jaxmbd.native import cache, machine_code
from jaxmbd.native.registered import code_of

pytest.importorskip("llvmlite")

ROOT = Path(__file__).resolve().parents[2]
X = jnp.linspace(0.1, 0.4, 4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "own"))
    return tmp_path / "own"


SCRIPT = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from jaxmbd import native
from jaxmbd.native import registered

def fail(text):
    raise AssertionError("compiled again")

registered.compiled = fail
x = jnp.linspace(0.1, 0.4, 4)
with native.enabled(True):
    print(native.native_of(lambda x: jnp.sin(x) * 1.2345, x)(x)[3])
"""


@pytest.mark.long
def test_another_process_compiles_nothing(folder):
    with native.enabled(True):
        found = native.native_of(lambda x: jnp.sin(x) * 1.2345, X)(X)[3]
    assert len(list(folder.glob("*.o"))) == 1
    assert not list(folder.glob("*.part"))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(found)]


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-7], lambda x: x[:50] + b"?" + x[51:], lambda x: b""]
)
def test_damaged_files_are_made_again(folder, damage):
    assert cache.cached("a", lambda: b"x" * 100) == b"x" * 100
    path = folder / "a.o"
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cache.cached("a", lambda: b"x" * 100) == b"x" * 100
    assert path.read_bytes() == whole
    assert cache.cached("a", lambda: pytest.fail("made again")) == b"x" * 100


def test_writers_at_the_same_time(folder):
    codes = [bytes([k]) * 10_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda code: cache.cached("b", lambda: code), codes * 20))
    assert set(found) <= set(codes)
    assert cache.cached("b", lambda: pytest.fail("made again")) in codes


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "own"))
    assert cache.cached("a", lambda: b"x") == b"x"


def test_without_a_cache(monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")
    assert cache.folder() is None


def test_names_depend_on_processor_and_versions():
    own = machine_code.target()
    others = [
        own._replace(**{field: getattr(own, field) * 2})
        for field in ("triple", "processor", "features", "versions", "width")
    ]
    names = {cache.name_of("text", target) for target in (own, *others)}
    assert len(names | {cache.name_of("another", own)}) == len(others) + 2


def test_equal_programs_are_generated_once():
    with native.enabled(True):
        one, two = (native.native_of(lambda x: jnp.sin(x) * 2.5, X) for _ in range(2))
        other = native.native_of(lambda x: jnp.sin(x) * 2.5000000000000004, X)
    assert one.program is two.program
    assert one.program is not other.program
    assert code_of(one.program, (False,)).name != code_of(other.program, (False,)).name

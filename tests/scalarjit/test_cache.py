"""Object code on disk."""

import os
import random
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import scalarjit
from scalarjit import cache, machine_code, registered, tiers
from scalarjit.module import generate
from scalarjit.registered import code_of

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
import scalarjit
from scalarjit import tiers

def fail(*args):
    raise AssertionError("compiled again")

tiers.compiled = fail
x = jnp.linspace(0.1, 0.4, 4)
with scalarjit.enabled(True):
    print(scalarjit.native_of(lambda x: jnp.sin(x) * 1.2345, x)(x)[3])
"""


@pytest.mark.long
def test_another_process_compiles_nothing(folder):
    with scalarjit.enabled(True):
        found = scalarjit.native_of(lambda x: jnp.sin(x) * 1.2345, X)(X)[3]
    assert len(list(folder.glob("*.o"))) == 1
    assert not list(folder.glob("*.part"))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [str(found)]


@pytest.mark.parametrize(
    "damage", [lambda x: x[:-7], lambda x: x[:50] + b"?" + x[51:], lambda x: b"", lambda x: x[:9]]
)
def test_damaged_files_are_not_read(folder, damage):
    cache.keep("a.o", b"x" * 100)
    assert cache.held("a.o") == b"x" * 100
    path = folder / "a.o"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.held("a.o") is None


@pytest.mark.parametrize("name", ["b.o", "a.json"])
def test_files_under_another_name_are_not_read(folder, name):
    cache.keep("a.o", b"x" * 100)
    (folder / "a.o").rename(folder / name)
    assert cache.held(name) is None


def program(factor):
    """A function of its own for each factor, and the key of its code."""
    with scalarjit.enabled(True):
        fn = scalarjit.native_of(lambda x: jnp.sin(x) * factor, X)
    assert fn is not None
    own = machine_code.target()
    return fn, cache.name_of(generate(fn.program, (False,), own.width, False).text, own)


@pytest.mark.parametrize("bad", ["nothing", "random bytes", "half", "another program"])
def test_contents_that_cannot_be_loaded_are_made_again(folder, monkeypatch, bad):
    factor = 1.5 + len(bad) / 64
    fn, key = program(factor)
    whole = tiers.first_code(
        generate(fn.program, (False,), machine_code.target().width, False).text,
        registered.PREFIX + ("0" * 40 if bad == "another program" else key),
    ).packed()
    contents = {"nothing": b"", "random bytes": random.Random(0).randbytes(5000)}
    cache.keep(f"{key}.o", contents.get(bad, whole[: len(whole) // 2] if bad == "half" else whole))
    np.testing.assert_allclose(fn(X), jnp.sin(X) * factor, rtol=1e-14)
    remade = cache.held(f"{key}.o")
    assert remade is not None
    machine_code.Loaded(tiers.Stored.unpacked(remade).code, registered.PREFIX + key)


def test_code_under_the_name_of_another_program_is_not_run(folder):
    (one, key), (two, other) = program(1.25), program(1.75)
    one(X)
    (folder / f"{key}.o").rename(folder / f"{other}.o")
    np.testing.assert_allclose(two(X), jnp.sin(X) * 1.75, rtol=1e-14)


def test_writers_at_the_same_time(folder):
    codes = [bytes([k]) * 10_000 for k in range(8)]

    def keep_and_read(code):
        cache.keep("b.o", code)
        return cache.held("b.o")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(keep_and_read, codes * 20))
    assert set(found) <= set(codes)
    assert [path.name for path in folder.iterdir()] == ["b.o"]


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "own"))
    cache.keep("a.o", b"x")
    assert cache.held("a.o") is None


def test_without_a_cache(monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "")
    assert cache.folder() is None


@pytest.mark.parametrize("given", [None, "", "relative"])
def test_without_a_home(monkeypatch, given, tmp_path):
    """Such as that of any user in a container."""

    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setattr(cache.Path, "home", unknown)
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache.folder() is None
    cache.keep("a.o", b"x")
    assert cache.held("a.o") is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "scalarjit"


posix = pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")


@posix
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_folders_that_others_can_write_to_are_not_used(folder, mode):
    folder.mkdir()
    folder.chmod(0o700)
    fn, _ = program(2.0 + mode / 4096)
    cache.keep("a.o", b"x")
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match=rf"{folder}.*chmod go-w.*{cache.VARIABLE}"):
        assert cache.held("a.o") is None
    fn(X)  # Without a second warning.
    assert [path.name for path in folder.iterdir()] == ["a.o"]
    folder.chmod(0o755)
    assert cache.held("a.o") == b"x"


@posix
def test_folders_in_folders_that_others_can_write_to(tmp_path, folder):
    """They can move the folder away, unless it has the bit of shared folders such as /tmp."""
    cache.keep("a.o", b"x")
    tmp_path.chmod(0o1777)
    assert cache.held("a.o") == b"x"
    tmp_path.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="other users can write to"):
        assert cache.held("a.o") is None
    tmp_path.chmod(0o700)


@posix
def test_folders_and_files_of_other_users_are_not_used(folder, monkeypatch):
    cache.keep("a.o", b"x")
    (folder / "a.o").chmod(0o666)
    assert cache.held("a.o") is None
    cache.keep("a.o", b"x")
    assert cache.held("a.o") == b"x"
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.warns(RuntimeWarning, match=f"{folder} belongs to another user"):
        assert cache.held("a.o") is None
    cache.keep("b.o", b"x")
    assert not (folder / "b.o").exists()


@posix
def test_new_folders_and_files_are_the_users_own(folder, monkeypatch):
    before = os.umask(0)
    try:
        monkeypatch.setenv(cache.VARIABLE, str(folder / "within" / "it"))
        cache.keep("a.o", b"x")
    finally:
        os.umask(before)
    for path in (folder, folder / "within", folder / "within" / "it"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert cache.held("a.o") == b"x"


@posix
def test_writing_that_fails_leaves_nothing(folder):
    cache.keep("a.o", b"x")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        cache.keep("b.o", b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in folder.iterdir()] == ["a.o"]


def test_unfinished_files_of_killed_processes_are_removed(folder):
    folder.mkdir(mode=0o700)
    names = ["tmp01ab_c2d.part", "a.o.host.1.2.part", "b.json.host.1.2.part"]
    kept = ["a.o.host.3.4.part", "other.part"]
    for name in (*names, *kept):
        (folder / name).write_bytes(b"x")
    for name in (*names, "other.part"):
        os.utime(folder / name, (0, 0))
    cache.keep("c.o", b"x")
    assert {path.name for path in folder.iterdir()} == {*kept, "c.o"}


def test_names_depend_on_processor_and_versions():
    own = machine_code.target()
    others = [
        own._replace(**{field: getattr(own, field) * 2})
        for field in ("triple", "processor", "features", "versions", "width")
    ]
    names = {cache.name_of("text", target) for target in (own, *others)}
    assert len(names | {cache.name_of("another", own)}) == len(others) + 2


def test_equal_programs_are_generated_once():
    with scalarjit.enabled(True):
        one, two = (scalarjit.native_of(lambda x: jnp.sin(x) * 2.5, X) for _ in range(2))
        other = scalarjit.native_of(lambda x: jnp.sin(x) * 2.5000000000000004, X)
    assert one is not None
    assert two is not None
    assert other is not None
    assert one.program is two.program
    assert one.program is not other.program
    assert code_of(one.program, (False,)).name != code_of(other.program, (False,)).name

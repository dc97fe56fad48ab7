"""Code without optimization and optimized code: the same results, and when the other one comes."""

import subprocess
import sys
import time
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scalarjit
from scalarjit import cache, registered, tiers
from tests.marks import thorough_but
from tests.scalarjit.random_programs import arguments, random_function

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(not tiers._can_wait(), reason="all code is optimized at once")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _code_of_these_tests():
    """Code of other tests waits elsewhere: all of it takes minutes to optimize."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "_optimizers", [])
        yield


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "own"))
    return tmp_path / "own"


def waiting():
    """Names of code that is not optimized."""
    return {code.name for own in tiers._optimizers for code in own.waiting.values()}


def stored(path):
    """What a file of the cache holds."""
    contents = cache.held(path.name)
    assert contents is not None
    return tiers.Stored.unpacked(contents)


@pytest.mark.long
@pytest.mark.parametrize("block", thorough_but(range(1), range(10)))
def test_both_have_the_same_bits(block, monkeypatch):
    """Random programs with derivatives, for one state and for batches, in the shortest blocks."""
    monkeypatch.setattr(tiers, "SHORT_BLOCK", 3)
    made = 0
    for seed in range(8 * block, 8 * block + 8):
        for dtype in (jnp.float64, jnp.float32):
            fn = random_function(seed)
            one, many = arguments(seed, dtype), arguments(seed, dtype, (11,))
            own = scalarjit.native_or_reason(fn, *one)
            if isinstance(own, str):
                continue

            @jax.jit
            def all_of(one, many, own=own):
                def both(*x):
                    return jax.jvp(own, x, tuple(jnp.cos(1 + y) for y in x))

                return both(*one), jax.vmap(both)(*many)

            before = waiting()
            first = all_of(one, many)
            new = waiting() - before
            scalarjit.optimize()
            assert not new & waiting()
            for a, b in zip(*map(jax.tree.leaves, (first, all_of(one, many))), strict=True):
                np.testing.assert_array_equal(a, b, f"seed {seed}, {dtype.__name__}")
            made += len(new)
    assert made > 8


def rates(x):
    for _ in range(40):
        x = x + 1e-3 * jnp.sin(jnp.roll(x, 1)) * jnp.cos(x)
    return x


@pytest.fixture
def compiled(monkeypatch):
    """What is compiled meanwhile: names, and whether with optimization."""
    found, own = [], tiers.compiled

    def noted(text, name, optimized):
        found.append((name, optimized))
        return own(text, name, optimized)

    monkeypatch.setattr(tiers, "compiled", noted)
    return found


@pytest.mark.long
def test_code_that_runs_long_is_optimized_by_itself(compiled):
    many = jax.jit(jax.vmap(scalarjit.jit(rates)))
    x = jnp.ones((20_000, 7))
    first = many(x)
    name = next(name for name, optimized in compiled if not optimized)
    end = time.monotonic() + 60
    while (name, True) not in compiled and time.monotonic() < end:
        many(x).block_until_ready()
    assert (name, True) in compiled
    scalarjit.optimize()  # Waits for it.
    np.testing.assert_array_equal(many(x), first)


@pytest.mark.long
def test_files_hold_what_was_optimized_last(folder, compiled):
    """Another process begins with it, and optimizes what this one did not."""
    before = waiting()
    expected = jax.jit(jax.vmap(scalarjit.jit(rates)))(jnp.ones((5, 3)))
    (name,) = waiting() - before
    path = folder / f"{name.removeprefix(registered.PREFIX)}.o"
    assert compiled == [(name, False)]
    assert b"@handler(" in zlib.decompress(stored(path).rest)
    scalarjit.optimize()
    assert compiled.count((name, True)) == 1
    assert stored(path).rest == b""
    script = """
import jax, scalarjit
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from scalarjit import tiers
from tests.scalarjit.test_tiers import rates, waiting
print(jax.jit(jax.vmap(scalarjit.jit(rates)))(jnp.ones((5, 3))).sum(), len(waiting()))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.split() == [str(expected.sum()), "0"], found.stderr


@pytest.mark.long
def test_a_process_may_end_while_code_is_optimized():
    script = """
import jax, scalarjit, threading
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from scalarjit import tiers
def long(x):
    for k in range(300):
        x = x + 1e-3 * jnp.sin(jnp.roll(x, 1) + k) * jnp.cos(x)
    return x
jax.jit(scalarjit.jit(long))(jnp.ones(8)).block_until_ready()
own = tiers._optimizers[0]
begun, compiled = threading.Event(), tiers.compiled
def noted(*args, **kwargs):
    begun.set()
    return compiled(*args, **kwargs)
tiers.compiled = noted
(address,) = own.waiting
tiers.os.write(own.writer, address.to_bytes(8, "little"))
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_long_functions_on_single_numbers_are_not_optimized_at_once(monkeypatch):
    """Also if a routine of the same module computes on vectors."""
    monkeypatch.setattr(
        tiers, "compiled", lambda text, name, optimized: b"1" if optimized else b"0"
    )
    lines = "\n".join(["  %x = fadd double %x, %x"] * (tiers.MOST_OF_VECTORS + 1))
    numbers = f"\ndefine ptr @handler(ptr %frame) {{\nentry:\n{lines}\n}}"
    routine = "\ndefine void @product() {\nentry:\n  %y = fadd <8 x double> %y, %y\n}"
    vectors = numbers.replace("fadd double", "fadd <8 x double>")
    found = [tiers.first_code(text, "name").code for text in (numbers + routine, vectors)]
    assert found == [b"0", b"1"]

"""Random programs: as generated code, alone and in batches, and as JAX evaluates them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scalarjit
from scalarjit import call, emit, lengths, row_loops
from scalarjit.records import reason_for_none
from scalarjit.registered import code_of
from tests.marks import thorough_but
from tests.scalarjit.random_programs import arguments, close, random_function

pytest.importorskip("llvmlite")

# Batches of one state, below a vector, of one, above it, and of several.
COUNTS = (1, 3, 8, 11, 16)
TYPES = (jnp.float64, jnp.float32)
# Seeds of a test, and how many tests.
A_TEST, REGULAR, ALL = 8, 2, 24


def ways_of(call, axes):
    """Values and both derivatives, of one state, of a batch, and of batches of a batch."""

    def both(*args):
        size = jax.eval_shape(call, *args)
        weights = jnp.cos(jnp.arange(size.size, dtype=size.dtype)).reshape(size.shape)
        dots = tuple(jnp.cos(1 + x) for x in args)
        value, slope = jax.jvp(call, args, dots)
        return value, slope, *jax.vjp(call, *args)[1](weights)

    def of_all(one, many, twice):
        own = tuple(0 if own else None for own in axes)
        return both(*one), jax.vmap(both, own)(*many), (jax.vmap(jax.vmap(call))(*twice),)

    return of_all


def check(seed, dtype):
    """Compare results of generated code; return False if none was generated."""
    fn = random_function(seed)
    made = scalarjit.native_or_reason(fn, *arguments(seed, dtype))
    if isinstance(made, str):
        return False
    rng = np.random.default_rng([seed, 5])
    count, axes = COUNTS[seed % len(COUNTS)], rng.random(3) < 0.7
    axes[rng.integers(3)] = True
    one, all_of = arguments(seed, dtype), arguments(seed, dtype, (count,))
    mixed = [x if own else y for x, y, own in zip(all_of, one, axes, strict=True)]
    given = one, mixed, arguments(seed, dtype, (2, 3))
    found, expected = jax.jit(lambda *x: (ways_of(made, axes)(*x), ways_of(fn, axes)(*x)))(*given)
    name = f"seed {seed}, {dtype.__name__}"
    for (value, *slopes), (wanted, *by_jax) in zip(found, expected, strict=True):
        close(value, wanted, dtype, name)
        no_number = np.isnan(wanted).any()
        for slope, other in zip(slopes, by_jax, strict=True):
            # Products of a constant zero are left out, which JAX multiplies with a value of NaN.
            close(np.where(no_number & np.isnan(other), other, slope), other, dtype, name)
    return True


@pytest.mark.long
@pytest.mark.parametrize(("seed", "dtype"), [(418, jnp.float64), (522, jnp.float32)])
def test_programs_that_failed_once(seed, dtype):
    """Cumulative sums of vectors, and slopes of the sine of NaN."""
    with scalarjit.enabled(True):
        assert check(seed, dtype)


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(0, ALL, 4))
def test_random_programs_with_loops_in_several_parts(monkeypatch, block):
    """No loop is unrolled, also over rows, and functions are as short as can be."""
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)
    monkeypatch.setattr(row_loops, "MIN_ROWS", 2)
    monkeypatch.setattr(row_loops, "MAX_OPERATIONS", 0)
    for limit in ("PART", "LONG"):
        monkeypatch.setattr(emit, limit, 15)
    caches = reason_for_none, code_of, call._jitted, row_loops.with_row_loops
    for cache in caches:
        cache.cache_clear()
    test_random_programs(block)
    for cache in caches:
        cache.cache_clear()


@pytest.mark.thorough
@pytest.mark.parametrize("block", thorough_but(range(REGULAR), range(ALL)))
def test_random_programs(block):
    with scalarjit.enabled(True):
        made = [
            check(seed, TYPES[seed // A_TEST % 2])
            for seed in range(block * A_TEST, (block + 1) * A_TEST)
        ]
    assert any(made)

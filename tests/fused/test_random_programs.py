"""Random programs: as kernels, alone and in tiles, and as JAX evaluates them by itself.

Most are evaluated as they were rewritten, without the one call that XLA leaves together, which
takes as long to compile as everything else. Some go all the way.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from jax.flatten_util import ravel_pytree

from jaxmbd.fused import smooth_kernel_of
from jaxmbd.fused.fused_program import function_of, tiled, tiles_of
from jaxmbd.fused.inline_and_unroll import inline_and_unroll
from jaxmbd.fused.supported import LARGE, is_supported
from tests.fused.random_programs import arguments, random_function
from tests.marks import thorough_but

# Batches of one state, below a tile, of one, above it, and of several.
COUNTS = (1, 3, 8, 11, 16)
KINDS = ("value", "forward", "reverse")
TYPES = (jnp.float64, jnp.float32)
# Seeds of a test, and how many tests.
A_TEST, REGULAR, ALL = 10, 16, 90


def value_of(fn, seed, dtype):
    return fn, lambda lead=(): arguments(seed, dtype, lead)


def forward_of(fn, seed, dtype):
    def forward(*args):
        return jax.jvp(fn, args[:3], args[3:])[1]

    def given(lead=()):
        return [*arguments(seed, dtype, lead), *arguments(seed + 10**6, dtype, lead)]

    return forward, given


def reverse_of(fn, seed, dtype):
    size = jax.eval_shape(fn, *arguments(seed, dtype)).size

    def reverse(*args):
        return ravel_pytree(jax.vjp(fn, *args[:3])[1](args[3]))[0]

    def given(lead=()):
        rng = np.random.default_rng([seed, 3])
        return [*arguments(seed, dtype, lead), jnp.asarray(rng.normal(size=(*lead, size)), dtype)]

    return reverse, given


MAKERS = dict(zip(KINDS, (value_of, forward_of, reverse_of), strict=True))


def close(found, expected, dtype, of):
    """Relative to the largest number: rounding differs with the order of sums."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), of
    scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    tolerance = scale * 2e3 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=of)


def rewritten(fn, given, batched):
    """Pairs of functions: of the program as it is, and as a kernel would have it."""
    program = jax.make_jaxpr(fn)(*given())
    alone = inline_and_unroll(program, LARGE)
    if not is_supported(alone.jaxpr):
        return None
    axes = [0 if own else None for own in batched]

    def tile_of(size, own):
        tile = tiled(program, size, own)
        return None if tile is None else function_of(tile)

    def one(*args):
        return fn(*args), jaxpr_as_fun(alone)(*args)[0]

    def many(*args):
        tiles = tiles_of(args, axes, tile_of)
        return None if tiles is None else (jax.vmap(fn, axes)(*args), tiles(*args))

    return one, many


def check(seed, kind, dtype):
    """Compare kernels of a random program, alone and in tiles; return whether each was made."""
    fn, given = MAKERS[kind](random_function(seed), seed, dtype)
    rng = np.random.default_rng([seed, 4])
    count, batched = COUNTS[seed % len(COUNTS)], rng.random(len(given())) < 0.7
    batched[rng.integers(len(batched))] = True
    made = rewritten(fn, given, batched)
    if made is None:
        return False, False
    all_of, one_of = given((count,)), given()
    mixed = [x if own else y for x, y, own in zip(all_of, one_of, batched, strict=True)]
    alone, tiles = jax.jit(lambda one, many: (made[0](*one), made[1](*many)))(one_of, mixed)
    name = f"seed {seed}, {kind}, {dtype.__name__}"
    close(alone[1], alone[0], dtype, f"{name}: alone")
    if tiles is not None:
        close(tiles[1], tiles[0], dtype, f"{name}: tiles")
    return True, tiles is not None


@pytest.mark.long
@pytest.mark.parametrize("block", thorough_but(range(REGULAR), range(ALL)))
def test_rewritten_programs(block):
    made = [
        check(seed, kind, TYPES[seed // A_TEST % 2])
        for seed in range(block * A_TEST, (block + 1) * A_TEST)
        for kind in ([KINDS[seed % 3]] if block < REGULAR else KINDS)
    ]
    assert any(alone and tiles for alone, tiles in made)


def ways_of(call):
    """Values, both derivatives, batches of several sizes, and batches of batches."""

    def both(*args):
        forward = jax.jvp(lambda s: call(*args[:2], s), (args[2],), (jnp.ones_like(args[2]),))
        reverse = jax.grad(lambda A, x: jnp.sum(call(A, x, args[2]) ** 2), argnums=(0, 1))(
            *args[:2]
        )
        return *forward, *reverse

    def of_all(one, small, large, twice):
        own = jax.vmap(both, in_axes=(0, 0, None))(*large[:2], one[2])
        return both(*one), jax.vmap(both)(*small), own, jax.vmap(jax.vmap(both))(*twice)

    return of_all


ON_THE_WHOLE = [*range(8), *range(200, 260)]
REGULAR_ON_THE_WHOLE = (3, 5)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", thorough_but(REGULAR_ON_THE_WHOLE, ON_THE_WHOLE))
def test_kernels(seed):
    dtype = TYPES[seed % 2]
    fn = random_function(seed)
    kernel = smooth_kernel_of(fn, *arguments(seed, dtype))
    if kernel is None:
        pytest.skip("holds an operation that no rule handles")
    given = [arguments(seed, dtype, lead) for lead in ((), (3,), (11,), (2, 9))]
    expected = jax.jit(ways_of(fn))(*given)
    found = jax.jit(ways_of(kernel))(*given)
    jax.tree.map(lambda x, y: close(x, y, dtype, f"seed {seed}"), found, expected)

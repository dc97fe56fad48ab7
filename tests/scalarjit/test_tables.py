"""Generated code: entries of arguments at computed indices, and loops that end early."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import scalarjit
from scalarjit import emit, scalars
from scalarjit.module import generate
from scalarjit.while_at_most import while_at_most
from tests.scalarjit.test_calls import close, made

pytest.importorskip("llvmlite")

START = jnp.linspace(0.5, 3.0, 6)
GRID = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7, 200)))
# Within the table, at its ends, beyond them, and not a number.
PLACES = jnp.asarray(
    [[2.3, 11.7], [0.0, 0.0], [5.9, 198.5], [-3.0, 400.0], [1e12, -1e12], [np.nan, 4.0]]
)


def part(grid, place):
    """A part of each of two tables, from a computed entry on."""
    i, j = jnp.floor(place).astype(jnp.int32)
    return jax.vmap(lambda table: lax.dynamic_slice(table, (i, j), (2, 3)))(grid)


def entries(grid, place):
    """Entries of the second table, those beyond its ends not a number."""
    i, j = jnp.floor(place).astype(jnp.int32)
    return grid.at[1, jnp.stack([i, i + 1]), j].get(mode="fill", fill_value=jnp.nan)


@pytest.mark.long
@pytest.mark.parametrize("fn", [part, entries])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_computed_indices(fn, dtype):
    grid, places = GRID.astype(dtype), PLACES.astype(dtype)
    own = made(fn, grid, places[0])
    for place in places:
        close(own(grid, place), fn(grid, place))
    close(jax.vmap(own, (None, 0))(grid, places), jax.vmap(fn, (None, 0))(grid, places))
    grids = jnp.stack([grid, 2 * grid, -grid, 0 * grid, grid + 1, grid])
    close(jax.vmap(own)(grids, places), jax.vmap(fn)(grids, places))
    close(jax.vmap(own, (0, None))(grids, places[0]), jax.vmap(fn, (0, None))(grids, places[0]))
    dots = jax.jvp(own, (grid, places[0]), (grid**2, places[0]))
    close(dots, jax.jvp(fn, (grid, places[0]), (grid**2, places[0])))
    # The transpose adds to computed entries: it is left to JAX.
    total = lambda fn: jax.grad(lambda grid: jnp.nansum(fn(grid, places[0])))(grid)  # noqa: E731
    close(total(own), total(fn))


def chosen(A, x):
    """Parts of a computed array at computed indices: in a batch, along two axes, out of bounds."""
    squares, i, j = A**2, *jnp.floor(x[:2]).astype(jnp.int32)
    batched = jax.vmap(lambda row, k: lax.dynamic_slice(row, (k,), (2,)))(squares, jnp.argmax(A, 1))
    along = jnp.take_along_axis(squares, jnp.argmin(A, 0)[None], 0)
    columns = jax.vmap(lambda B: B[:, jnp.argmax(jnp.diagonal(B))])(jnp.stack([squares, -squares]))
    filled = squares.at[jnp.stack([i, j]), 1:].get(mode="fill", fill_value=jnp.nan)
    return batched, along, columns, filled, squares[i, j], squares.at[i, j].get(mode="clip")


@pytest.mark.long
def test_computed_parts_of_computed_arrays():
    A = jnp.asarray(np.random.default_rng(1).normal(size=(4, 5)))
    own = made(chosen, A, PLACES[0])
    for place in PLACES[:4]:
        close(own(A, place), chosen(A, place))
    As = jnp.stack([A, -A, A**2, 1 - A])
    close(jax.vmap(own)(As, PLACES[:4]), jax.vmap(chosen)(As, PLACES[:4]))
    total = lambda fn: jax.grad(lambda A: sum(jnp.nansum(x) for x in fn(A, PLACES[1])))(A)  # noqa: E731
    close(total(own), total(chosen))


TABLE = jnp.arange(60.0).reshape(3, 4, 5)


def places(fn, *indices):
    """A function of a table whose indices are constants, also in batches of tables and indices."""
    many = [jnp.stack([x, -x, x + 1]) for x in indices]
    return [
        lambda table: fn(table, *indices),
        lambda table: jax.vmap(lambda *own: fn(table, *own))(*many),
        lambda table: jax.vmap(fn)(table, *many),
    ]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_known_indices(mode):
    """Within the table and beyond its ends: rows, columns, single entries and parts."""
    i, j = jnp.asarray([[2, 0, 3], [-4, 1, 9]]), jnp.asarray([[0, 3, 4], [1, -2, 2]])
    get = lambda x: x.get(mode=mode)  # noqa: E731
    programs = [
        *places(lambda table, i: get(table.at[i]), i),
        *places(lambda table, i: get(table.at[..., i]), i),
        *places(lambda table, i, j: get(table.at[..., i, j]), i, j),
        *places(lambda table, i, j: get(table.at[i, ..., j]), i, j),
        *places(lambda table, i: lax.dynamic_slice_in_dim(table, i[0, 2], 2), i),
        lambda table: jnp.take_along_axis(table, i[:, :1, None], 0, mode=mode),
    ]
    for fn in programs:
        with jax.ensure_compile_time_eval():
            expected = fn(TABLE)
        close(made(fn, TABLE)(TABLE), expected)


# Both zeros, both infinities, both signs of what is not a number, and numbers between samples.
UNORDERED = [-np.nan, -np.inf, -2.5, -0.0, 0.0, 1e-300, 0.4, 1.0, 7.25, np.inf, np.nan]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_total_order(dtype):
    xs = jnp.asarray(UNORDERED, dtype)
    order = lambda x: (jax.lax.lt_to_p.bind(x, xs), jax.lax.le_to_p.bind(xs, x))  # noqa: E731
    own = made(lambda x: order(jnp.broadcast_to(x, xs.shape)), xs[0])
    for x in xs:
        close(own(x), order(jnp.broadcast_to(x, xs.shape)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_interpolation_in_a_table(dtype):
    """Binary search among samples, and its derivative by time and by the samples."""
    ts, values = jnp.linspace(-3, 3, 500).astype(dtype), jnp.sin(jnp.arange(500.0)).astype(dtype)
    own = made(jnp.interp, ts[0], ts, values)
    times = jnp.asarray([-5.0, -3.0, -0.0, 1e-3, 1.234, float(ts[77]), 3.0, 4.0, np.nan], dtype)
    close(jax.vmap(own, (0, None, None))(times, ts, values), jnp.interp(times, ts, values))
    dots = (jnp.ones((), dtype), 0 * ts, values[::-1])
    for t in times[1:5]:
        close(jax.jvp(own, (t, ts, values), dots), jax.jvp(jnp.interp, (t, ts, values), dots))


def halved(x, n=20):
    """Values of more than 1 are halved until they are not, at most n times."""
    return while_at_most(lambda x: x > 1.0, lambda x: 0.5 * x, x, n)


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 20])
def test_loops_that_end_early(n):
    fn = lambda x: halved(x, n)  # noqa: E731
    several = lambda x: jax.vmap(fn)(x)  # noqa: E731
    x = jnp.array([0.3, 1.5, 3e4, 5e7, jnp.nan, jnp.inf, -2.0, 1.0])
    expected = list(np.asarray(x))
    for _ in range(n):
        expected = [0.5 * y if y > 1 else y for y in expected]
    close(fn(x[0]), expected[0])
    own = made(fn, x[0])
    close(jnp.stack([own(y) for y in x]), np.array(expected))
    close(jax.vmap(own)(x), np.array(expected))
    close(made(several, x)(x), np.array(expected))
    close(jax.vmap(made(several, x[:2]))(x.reshape(4, 2)).ravel(), np.array(expected))
    close(jax.jvp(own, (x[2],), (1.0,)), jax.jvp(fn, (x[2],), (1.0,)))
    close(jax.grad(own)(x[2]), 0.5 ** min(n, 15))


def test_a_loop_that_ends_early_stays_a_loop():
    program = made(halved, jnp.ones(())).program
    (loop,) = scalars.scalars_of(program, [False]).graph.regions
    assert loop.repeats is not None
    (loop,) = scalars.scalars_of(program, [True]).graph.regions
    assert all(x.varies for x in loop.carried)


def test_a_long_loop_that_does_not_begin_is_skipped(monkeypatch):
    """Its body is functions of their own, which the driver calls."""
    for limit in ("PART", "LONG"):
        monkeypatch.setattr(emit, limit, 20)
    fn = lambda x: lax.while_loop(lambda x: x[0] > 1.0, lambda x: 0.5 * x + jnp.cos(x), x)  # noqa: E731
    text = generate(made(fn, START).program, (False,), 32).text
    driver = text[text.index("define internal void @shared(") :]
    first, *rest = driver[: driver.index("\n}")].split("\nloop")
    assert "br i1 %enters" in first
    assert rest
    for x in (0.3 * START, 30.0 * START):
        close(made(fn, START)(x), fn(x))


@pytest.mark.thorough
def test_a_long_body_is_computed_as_often_as_allowed():
    """Beyond the length of a function a loop has all its iterations, with the same result."""

    def long(x):
        for _ in range(1200):
            x = jnp.sin(x) + 0.1
        return x

    fn = lambda x: while_at_most(lambda x: x[0] > 0.5, long, x, 5)  # noqa: E731
    x = jnp.array([0.3, 0.7])
    with scalarjit.enabled(True):
        own = scalarjit.native_of(fn, x)
    assert own is not None
    close(own(x), fn(x), rtol=1e-9)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_single_entries_at_known_places(mode):
    """Without an axis of indices or of a window; the second place is beyond the last entry."""
    numbers = lax.GatherDimensionNumbers((), collapsed_slice_dims=(0,), start_index_map=(0,))
    x = jnp.arange(5.0) ** 2

    def fn(x):
        return [lax.gather(x, jnp.array([k]), numbers, (1,), mode=mode) for k in (2, 7)]

    own = scalarjit.native_of(fn, x)
    assert own is not None
    np.testing.assert_array_equal(jax.jit(own)(x), fn(x))

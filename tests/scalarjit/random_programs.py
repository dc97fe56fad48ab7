"""Random functions of what users write with `jax.numpy` and `jax.lax`; a seed is a function."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Of arrays that a function makes on its way: larger ones are cut.
MAX_SIZE, MAX_RANK = 48, 3
MAX_OPERATIONS = 5


def arguments(seed, dtype, lead=()):
    """A matrix, a vector and a number, of each state where there is a leading axis."""
    rng = np.random.default_rng([seed, 1])
    return [jnp.asarray(rng.normal(size=(*lead, *shape)), dtype) for shape in ((3, 3), (5,), ())]


def close(found, expected, dtype, of):
    """Relative to the largest number: rounding differs with the order of sums."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), of
    scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    tolerance = scale * 2e3 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=of)


def random_function(seed):
    """A function of `arguments`, which returns a vector.

    Every other one is of one group of operations, whose rarer members would hardly be met else.
    """
    names = sorted(OPERATIONS)
    if seed % 2:
        names = [names[seed // 2 % len(names)], "unary"]

    def fn(*args):
        maker = Maker(np.random.default_rng([seed, 2]), args)
        for _ in range(maker.rng.integers(1, MAX_OPERATIONS + 1)):
            maker.add(OPERATIONS[names[maker.rng.integers(len(names))]])
        kept = [x.ravel().astype(args[0].dtype) for x in maker.pool[len(args) :][-3:]]
        return jnp.concatenate([args[1], *kept])

    return fn


class Maker:
    """Arrays so far, and choices among them that depend on their shapes alone."""

    def __init__(self, rng, args):
        self.rng, self.pool = rng, list(args)

    def add(self, operation):
        x = operation(self)
        if x is None or x.size == 0:
            return
        if x.size > MAX_SIZE or x.ndim > MAX_RANK:
            x = x.ravel()[:12]
        self.pool.append(jnp.sin(x) if self.chance() and x.dtype == self.dtype else x)

    @property
    def dtype(self):
        return self.pool[0].dtype

    def chance(self):
        return bool(self.rng.integers(2))

    def one(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def take(self, least=0):
        """One of the arrays of floats, of at least this rank."""
        fits = [x for x in self.pool if x.ndim >= least and x.dtype == self.dtype]
        return fits[self.rng.integers(len(fits))]

    def axis(self, x):
        return int(self.rng.integers(x.ndim))

    def like(self, shape):
        """Some array in this shape."""
        x = self.take().ravel()
        n = int(np.prod(shape))
        return jnp.tile(x, -(-n // x.size))[:n].reshape(shape)

    def rows(self, n, size=None, beyond=True):
        """Indices, some of them negative or beyond the end; known, or counted by the program."""
        size = int(self.rng.integers(1, 5)) if size is None else size
        if not beyond:
            return jnp.asarray(self.rng.integers(0, n, size))
        rows = self.rng.integers(-n - 2, n + 3, size)
        kind = self.rng.integers(4)
        if kind == 0:
            return int(rows[0]) % n
        return rows if kind == 1 else jnp.asarray(rows, self.one(jnp.int32, jnp.int64))

    def place(self, n):
        """A place that depends on numbers of the state, or not."""
        return jnp.argmax(self.take(1)) - 1 if self.chance() else int(self.rng.integers(-1, n + 2))


def unary(m):
    x = m.take()
    functions = (
        *(jnp.sin, jnp.cos, jnp.tanh, jnp.square, jnp.abs, jnp.arctan, jnp.arcsinh, lax.erf),
        *(lax.logistic, jnp.cbrt, jnp.negative, jnp.sign, jnp.round, jnp.floor, jnp.ceil),
        lambda x: jnp.exp(jnp.sin(x)),
        lambda x: jnp.exp2(jnp.sin(x)),
        lambda x: jnp.expm1(jnp.cos(x)),
        lambda x: jnp.sqrt(1 + x**2),
        lambda x: lax.rsqrt(1 + x**2),
        lambda x: jnp.log(1 + jnp.abs(x)),
        lambda x: jnp.log1p(x**2),
        lambda x: jnp.sin(x) ** 3,
        lambda x: (2 + jnp.sin(x)) ** 1.5,
        lambda x: jnp.sinh(jnp.sin(x)) + jnp.cosh(jnp.cos(x)),
        lambda x: jnp.arccos(0.9 * jnp.sin(x)),
        lambda x: jnp.arctanh(0.9 * jnp.sin(x)),
        lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        lambda x: jnp.nan_to_num(x),
        lambda x: jnp.sinc(x),
        lambda x: lax.tan(jnp.sin(x)),
        lambda x: jax.scipy.special.erfc(x),
        lambda x: lax.lgamma(2 + jnp.abs(x)),
        lambda x: jax.nn.softplus(x),
        lambda x: jax.nn.relu(x),
        lambda x: lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST),
    )
    return m.one(*functions)(x)


def binary(m):
    x = m.take()
    y = m.take() if m.chance() and x.ndim == 0 else m.like(x.shape)
    functions = (
        *(jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.arctan2, jnp.hypot),
        lambda x, y: x / (1 + y**2),
        lambda x, y: lax.rem(x, 1 + jnp.abs(y)),
        lambda x, y: jnp.mod(x, 1 + jnp.abs(y)),
        lambda x, y: (1 + jnp.abs(x)) ** jnp.sin(y),
        lambda x, y: jnp.where(x > y, x, 2 * y),
        lambda x, y: jnp.where(x <= y, x, jnp.sin(y)),
        lambda x, y: jnp.logaddexp(x, y),
        lambda x, y: jnp.copysign(x, y),
    )
    return m.one(*functions)(x, y)


def by_number(m):
    x, s = m.take(), m.pool[2]
    functions = (
        lambda: s * x,
        lambda: x + 1.5,
        lambda: lax.clamp(jnp.asarray(-0.5, x.dtype), x, jnp.asarray(0.7, x.dtype)),
        lambda: jnp.clip(x, -jnp.abs(s), 1.0),
        lambda: jnp.where(s > 0, x, -x),
        lambda: lax.select_n(jnp.int32(m.rng.integers(3)), x, -x, 2 * x),
        lambda: lax.select_n(jnp.asarray(s > 0), x, x**2),
    )
    return m.one(*functions)()


def product(m):
    A, x = m.take(2), m.take(1)
    n = A.shape[-1]
    y = m.like((n,))
    options = {}
    if m.chance():
        options["precision"] = m.one("highest", "default", ("high", "highest"))
    kind = m.rng.integers(-2, 9)
    if kind <= 0:
        wanted = m.one(jnp.float32, jnp.float64)
        return jnp.matmul(A, y, preferred_element_type=wanted, **options).astype(m.dtype)
    if kind == 1:
        return jnp.matmul(A, m.like((n, 2)), **options)
    if kind == 2:
        return jnp.outer(x.ravel()[:4], y)
    if kind == 3:
        return jnp.tensordot(A, m.like((n, 2, 2)), axes=1, **options)
    if kind == 4:
        return jnp.einsum("ij,ij->i", m.like((3, 2)), m.like((3, 2)), **options)
    if kind == 5:
        return jnp.einsum("bij,bjk->bki", m.like((2, 3, 2)), m.like((2, 2, 3)), **options)
    if kind == 6:
        return jnp.cross(m.like((3,)), m.like((3,)))
    if kind == 7:
        return m.like((40,)) @ m.like((40,)) * 0.1
    return jnp.vdot(y, A[(0,) * (A.ndim - 1)], **options)


def shaped(m):
    x = m.take(1)
    A = m.like(m.one((2, 3), (3, 3), (3, 2)))
    functions = (
        lambda: x.ravel(order="F"),
        lambda: jnp.reshape(A, A.shape[::-1], order="F"),
        lambda: lax.reshape(A, (A.size,), dimensions=m.one((0, 1), (1, 0))),
        lambda: x.reshape(-1),
        lambda: A.T,
        lambda: jnp.moveaxis(x, m.axis(x), m.axis(x)),
        lambda: jnp.flip(x, m.axis(x)),
        lambda: jnp.roll(x, int(m.rng.integers(-3, 4)), m.axis(x)),
        lambda: jnp.expand_dims(x, m.axis(x)),
        lambda: jnp.squeeze(x[:1], 0),
        lambda: jnp.broadcast_to(x[:1], (3, *x.shape[1:])),
        lambda: lax.broadcast_in_dim(x.ravel()[:2], (3, 2, 2), (m.one(1, 2),)),
        lambda: jnp.tile(x, m.one(2, (2, 1, 1))),
        lambda: jnp.repeat(x, m.one(2, np.arange(1, x.shape[-1] + 1) % 3), axis=x.ndim - 1),
        lambda: jnp.rot90(A),
        lambda: jnp.swapaxes(A, 0, 1),
    )
    return m.one(*functions)()


def joined(m):
    x = m.take(1)
    y, axis = m.like(x.shape), m.axis(x)
    functions = (
        lambda: jnp.concatenate([x, y], axis),
        lambda: jnp.concatenate([x, jnp.ones_like(x), x[:0]], 0),
        lambda: jnp.stack([x, y, x], int(m.rng.integers(x.ndim + 1))),
        lambda: jnp.hstack([x.ravel(), m.pool[2][None]]),
        lambda: jnp.split(jnp.concatenate([x, y], axis), 2, axis)[1],
        lambda: jnp.split(x.ravel(), [x.size // 2])[m.one(0, 1)],
        lambda: jnp.unstack(x, axis=axis)[-1],
        lambda: jnp.diag(x.ravel()[:3]),
        lambda: jnp.kron(x.ravel()[:3], y.ravel()[:2]),
        lambda: jnp.append(x, 2.0),
    )
    return m.one(*functions)()


def padded(m):
    x = m.take(1)
    edges = [tuple(int(k) for k in m.rng.integers(-1, 3, 2)) for _ in x.shape]
    inside = [(*edge, int(m.rng.integers(2))) for edge in edges]
    mode = m.one("edge", "wrap", "reflect", "constant")
    value = m.one(jnp.asarray(0.5, x.dtype), m.pool[2])
    functions = (
        lambda: lax.pad(x, value, inside),
        lambda: jnp.pad(x, 1, mode=mode if min(x.shape) > 1 else "constant"),
        lambda: lax.pad(x, jnp.asarray(0.5, x.dtype), [(2, -1, 1)] * x.ndim),
    )
    return m.one(*functions)()


def sliced(m):
    x = m.take(1)
    functions = (
        lambda: x[:: m.one(2, -1, -2)],
        lambda: x[..., 1:],
        lambda: x[-1],
        lambda: lax.slice_in_dim(x, 0, x.shape[0], 2),
        lambda: lax.dynamic_slice_in_dim(x, m.place(x.shape[0]), max(1, x.shape[0] - 1), 0),
        lambda: lax.dynamic_index_in_dim(x, m.place(x.shape[0]), 0, keepdims=False),
        lambda: lax.dynamic_update_index_in_dim(x, 2 * x[0], m.place(x.shape[0]), 0),
        lambda: lax.dynamic_update_slice_in_dim(x, x[:1] + 1, m.place(x.shape[0]), 0),
        lambda: x[m.place(x.shape[0])],
        lambda: x.at[::2].set(0.3),
        lambda: x.at[1:].add(x[:-1]),
    )
    return m.one(*functions)()


def gathered(m):
    x = m.take(1)
    n, mode = x.shape[0], m.one(None, "fill", "clip", "drop")
    rows = m.rows(n)
    one_each = (
        jnp.argsort(x, axis=0) if m.chance() else jnp.zeros((2, *x.shape[1:]), int),
        m.one("clip", "fill"),
    )
    functions = (
        lambda: x.at[rows].get(mode=mode, fill_value=m.one(None, 0.25)),
        lambda: jnp.take(x, rows, axis=0, mode=m.one("clip", "wrap", "fill"), fill_value=0.5),
        lambda: x[m.rows(n, beyond=False)],
        lambda: x[..., jnp.asarray(m.rng.integers(0, x.shape[-1], (2, 2)))],
        lambda: jnp.take_along_axis(x, one_each[0], 0, mode=one_each[1]),
        lambda: x.at[m.rows(n, beyond=False)].get(mode="promise_in_bounds", unique_indices=False),
        lambda: x[jnp.argsort(m.like((n,)))],
        lambda: m.like((3, 3))[jnp.array([0, 2]), jnp.array([1, -1])],
    )
    return m.one(*functions)()


def scattered(m):
    x = m.take(1)
    rows = m.rows(x.shape[0])
    count = () if isinstance(rows, int) else (rows.size,)
    y, mode = m.like((*count, *x.shape[1:])), m.one(None, "drop", "clip", "fill")
    at, many = x.at[rows], jnp.asarray(m.rng.integers(0, 2, 20))
    functions = (
        lambda: at.add(y, mode=mode),
        lambda: at.add(y, mode=mode),
        lambda: at.add(y),
        lambda: at.add(0.5, mode=mode),
        lambda: at.set(0.5, mode=mode),
        lambda: at.multiply(0.5, mode=mode),
        lambda: at.max(y, mode=mode),
        lambda: jnp.zeros_like(x).at[many].add(m.like((20, *x.shape[1:]))),
        lambda: x.at[..., 0].add(0.5),
        lambda: jax.ops.segment_sum(y, jnp.asarray(rows), 3) if count else None,
        lambda: window_added(x, m),
    )
    return m.one(*functions)()


def window_added(x, m):
    """To parts of rows."""
    x = m.like((3, 4))
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lax.scatter_add(
        x, jnp.array([[0], [2]]), m.like((2, 2)), numbers, mode=m.one(None, "clip")
    )


def reduced(m):
    x = m.take(1)
    axis = m.one(None, m.axis(x), tuple(range(x.ndim)))
    functions = (
        lambda: jnp.sum(x, axis),
        lambda: jnp.mean(x, axis, keepdims=True),
        lambda: jnp.prod(x, axis),
        lambda: jnp.max(x, axis),
        lambda: jnp.min(x, axis, initial=0.1),
        lambda: jnp.sum(x, axis, where=x > 0),
        lambda: jnp.argmax(x, m.axis(x)).astype(x.dtype),
        lambda: jnp.argmin(x).astype(x.dtype) * x,
        lambda: jnp.where(jnp.any(x > 0.5, axis), 1.0, -1.0).astype(x.dtype),
        lambda: jnp.where(jnp.all(x < 0.5), x, -x),
        lambda: jnp.cumsum(x, m.axis(x)),
        lambda: lax.cumsum(x, m.axis(x), reverse=True),
        lambda: lax.cummax(x, m.axis(x)),
        lambda: jnp.sort(x, m.axis(x)),
        lambda: jnp.linalg.norm(jnp.append(x, 1.0)),
        lambda: jax.nn.softmax(x, m.axis(x)),
        lambda: jnp.diff(x, axis=0),
        lambda: jnp.var(x),
    )
    return m.one(*functions)()


def converted(m):
    x = m.take()
    functions = (
        lambda: x.astype(jnp.float32).astype(m.dtype),
        lambda: x.astype(jnp.float64).astype(m.dtype) * 2,
        lambda: x.astype(jnp.float16).astype(m.dtype),
        lambda: (10 * x).astype(m.one(jnp.int32, jnp.int8, jnp.int64)).astype(m.dtype),
        lambda: (x > 0).astype(m.dtype),
        lambda: jnp.floor_divide(jnp.arange(5), 2).astype(m.dtype) + m.like((5,)),
        lambda: lax.broadcasted_iota(jnp.int32, (2, 3), m.one(0, 1)).astype(m.dtype),
        lambda: jnp.abs(lax.complex(x, jnp.ones_like(x))),
        lambda: jnp.linspace(0.0, 1.0, 4, dtype=m.dtype) * m.pool[2],
        lambda: (jnp.arange(6) ^ 3).reshape(2, 3).astype(m.dtype),
        lambda: jax.nn.one_hot(jnp.argmax(m.take(1)), 4, dtype=m.dtype),
        lambda: lax.reduce_precision(x, 8, 10),
        lambda: lax.stop_gradient(x),
        lambda: jnp.triu(m.like((3, 3)), 1),
    )
    return m.one(*functions)()


def looped(m):
    x, y, s = m.take(1), m.take(), m.pool[2]
    options = {"reverse": m.chance(), "unroll": m.one(1, 2)}

    def turn(total, row):
        total = jnp.sin(total) + s * row
        return total, total * jnp.sum(y)

    def without(total, _):
        return jnp.cos(total * s), jnp.sum(total)

    functions = (
        lambda: lax.scan(turn, x[0], x, **options)[m.one(0, 1)],
        lambda: lax.scan(turn, jnp.zeros_like(x[0]), x, **options)[1],
        lambda: lax.scan(without, x, None, length=m.one(0, 1, 3), **options)[0],
        lambda: lax.scan(without, x, None, length=2, **options)[1],
        lambda: lax.fori_loop(0, 3, lambda k, a: a.at[k % a.shape[0]].add(0.1 * s), x),
        lambda: lax.map(lambda row: row * s + 1, x),
        lambda: lax.cond(s > 0, jnp.sin, lambda x: x**2, x),
        lambda: lax.switch(m.one(0, jnp.argmax(x) % 3), [jnp.sin, jnp.cos, jnp.tanh], x),
        lambda: lax.associative_scan(jnp.add, x, axis=0),
    )
    return m.one(*functions)()


@jax.custom_jvp
def odd(x):
    return jnp.sin(x)


@odd.defjvp
def _(primals, tangents):
    return odd(primals[0]), 2 * jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def even(x):
    return jnp.cos(x)


even.defvjp(lambda x: (even(x), x), lambda x, y: (3 * jnp.sin(x) * y,))


def called(m):
    x = m.take(1)
    functions = (
        lambda: odd(x),
        lambda: jax.jit(jnp.sin)(x),
        lambda: jax.vmap(lambda row: jnp.sum(row) * m.pool[2])(x),
        lambda: jax.vmap(jnp.outer, in_axes=(0, None))(m.like((2, 3)), m.like((2,))),
        lambda: jax.checkpoint(jnp.sin)(x),
        lambda: jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(x),
        lambda: jax.jvp(jnp.tanh, (x,), (jnp.ones_like(x),))[1],
        lambda: jnp.interp(m.pool[2], jnp.linspace(0.0, 1.0, 5, dtype=m.dtype), m.like((5,))),
        lambda: jnp.polyval(x.ravel()[:3], m.pool[2]),
        lambda: jnp.convolve(m.like((4,)), m.like((2,))),
        lambda: jnp.linalg.solve(m.like((2, 2)) + 9 * jnp.eye(2, dtype=m.dtype), m.like((2,))),
        lambda: jnp.linalg.det(m.like((2, 2))),
        lambda: jnp.searchsorted(jnp.arange(4.0, dtype=m.dtype), x).astype(m.dtype),
        lambda: jnp.piecewise(x, [x < 0], [lambda x: -x, lambda x: x**2]),
    )
    return m.one(*functions)()


OPERATIONS = {
    fn.__name__: fn
    for fn in (
        *(unary, binary, by_number, product, shaped, joined, padded, sliced, gathered, scattered),
        *(reduced, converted, looped, called),
    )
}

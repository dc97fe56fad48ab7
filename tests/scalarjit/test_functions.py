"""Mathematical functions of generated code: errors in units in the last place, and edge values."""

import platform

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import scalarjit
from scalarjit import machine_code, registered
from scalarjit.liveness import Plan
from scalarjit.scalars import scalars_of

pytest.importorskip("llvmlite")

# Functions with code on vectors, and intervals of their arguments. Gradual underflow is left out:
# XLA's threads flush such numbers to zero.
VECTORS = {
    "sin": [(-1e-3, 1e-3), (-10.0, 10.0), (-9.9e5, 9.9e5), (-1e12, 1e12)],
    "cos": [(-1e-3, 1e-3), (-10.0, 10.0), (-9.9e5, 9.9e5), (-1e12, 1e12)],
    "exp": [(-1e-3, 1e-3), (-1.0, 1.0), (-700.0, 700.0)],
    "log": [(0.5, 2.0), (0.999, 1.001), (1e-300, 1e-290), (1e300, 1e308)],
    "tanh": [(-1e-3, 1e-3), (-1.0, 1.0), (-30.0, 30.0)],
}
LIBRARY = ("tan", "sinh", "cosh", "arcsinh", "arctan", "log1p", "expm1", "cbrt")
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-30, -1e-30, 1e30, 800.0, -800.0]


def generated(fn, *x):
    """fn by generated code for all states of a batch at once."""
    with scalarjit.enabled(True):
        made = scalarjit.native_of(fn, *(jnp.zeros((), y.dtype) for y in x))
        assert made is not None
        return np.asarray(jax.jit(jax.vmap(made))(*x))


def units(found, exact):
    """Largest error in units in the last place of the exact result."""
    own = np.asarray(exact).astype(found.dtype)
    size = np.spacing(np.maximum(np.abs(own), np.finfo(own.dtype).tiny))
    return float(np.max(np.abs(found.astype(np.longdouble) - exact) / size))


def arguments(name, dtype):
    rng = np.random.default_rng(0)
    parts = [rng.uniform(*each, 4000) for each in VECTORS[name]]
    if name in ("sin", "cos"):
        near = np.arange(-3000, 3000) * (np.pi / 2)  # Results are as small as they get.
        parts += [near, np.nextafter(near, np.inf)]
    x = np.concatenate(parts)
    if dtype == np.float32:
        x = x[np.abs(x) < (80.0 if name == "exp" else 1e30)]
        x = x[(np.abs(x) > 1e-30) | (x == 0)]
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", VECTORS)
def test_errors(name, dtype):
    x = arguments(name, dtype)
    exact = getattr(np, name)(x.astype(np.longdouble))
    assert units(generated(getattr(lax, name), jnp.asarray(x)), exact) <= 2


@pytest.mark.skipif(platform.machine() != "x86_64", reason="processors of another kind")
@pytest.mark.parametrize(("processor", "width"), [("x86-64", 16), ("haswell", 32)])
def test_errors_on_older_processors(monkeypatch, processor, width):
    """With narrower vectors, and without fused multiplications and additions."""
    older = machine_code.target()._replace(processor=processor, features="", width=width)
    registered.code_of.cache_clear()
    for module in (machine_code, registered):
        monkeypatch.setattr(module, "target", lambda: older)
    for name in VECTORS:
        x = arguments(name, np.float64)
        exact = getattr(np, name)(x.astype(np.longdouble))
        assert units(generated(getattr(lax, name), jnp.asarray(x)), exact) <= 2
    registered.code_of.cache_clear()


@pytest.mark.parametrize("name", LIBRARY)
def test_functions_of_the_library(name):
    x = np.random.default_rng(0).uniform(-0.9, 3.0, 1000)
    exact = getattr(np, name)(x.astype(np.longdouble))
    assert units(generated(getattr(jnp, name), jnp.asarray(x)), exact) <= 4


def same(found, expected):
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # XLA's cbrt is no better.
    signs = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[signs], np.signbit(expected)[signs])


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize(
    "name", [*VECTORS, *LIBRARY, "sqrt", "rsqrt", "abs", "sign", "floor", "round", "logistic"]
)
def test_edge_values(name, dtype):
    fn = getattr(lax, name, None) or getattr(jnp, name)
    x = jnp.asarray(EDGES, dtype)
    same(generated(fn, x), np.asarray(jax.jit(fn)(x)))


@pytest.mark.parametrize("name", ["max", "min", "div", "rem", "pow", "atan2", "mul", "sub"])
def test_edge_values_of_two_arguments(name):
    x, y = (jnp.ravel(z) for z in jnp.meshgrid(jnp.asarray(EDGES), jnp.asarray(EDGES)))
    fn = getattr(lax, name)
    found, expected = generated(fn, x, y), np.asarray(jax.jit(fn)(x, y))
    if name in ("max", "min"):  # The sign of a zero out of two is not defined.
        found, expected = found + 0.0, expected + 0.0
    same(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_powers_by_products_and_square_roots(dtype):
    """Exponents of contact laws and of their derivatives, alone and beside others in a vector."""
    far = [float(jnp.finfo(dtype).max) ** p for p in (-0.7, 0.7)]
    x = jnp.asarray([*np.random.default_rng(0).uniform(0, 10, 40), *EDGES, *far], dtype)
    for y in (0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 2.5, -0.5, np.nextafter(1.5, 2), np.nan):
        exponents = jnp.full(x.shape, y, dtype)
        for z in (exponents, exponents.at[::3].set(1.5)):
            found, expected = generated(lax.pow, x, z), np.asarray(jax.jit(lax.pow)(x, z))
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            np.testing.assert_allclose(found, expected, rtol=2 * float(jnp.finfo(dtype).eps))


def test_a_factor_of_zero_does_not_hide_infinities():
    fn = lambda x: 0.0 * x + jnp.sum(jnp.zeros(2) * x)  # noqa: E731
    x = jnp.asarray([1.0, np.inf, np.nan])
    np.testing.assert_array_equal(generated(fn, x), [0.0, np.nan, np.nan])


def test_tangents_that_are_zero_have_no_products():
    """As in JAX, where zeros of tangents are symbols."""

    def fn(x, y):  # One of four products depends on y.
        return jnp.asarray([[2.0, 0.0], [0.0, 0.0]]) @ jnp.stack([x * y, y])

    args = jnp.asarray(3.0), jnp.asarray(5.0)
    program = jax.make_jaxpr(fn)(*args)
    counts = []
    for is_linear in (False, True):
        made = scalars_of(program, [False, False], is_linear)
        live = Plan(made.graph, made.results).live.values()
        counts.append(sum(x.op in ("add", "mul") for x in live))
    assert counts == [6, 2]  # 0 y and the sum of two such products are one node each.
    with scalarjit.enabled(True):
        along = scalarjit.native_of(fn, *args, linear=1)
    assert along is not None
    np.testing.assert_array_equal(along(*args), [30.0, 0.0])
    np.testing.assert_array_equal(
        jax.vjp(lambda y: along(args[0], y), args[1])[1](jnp.ones(2)), 6.0
    )


def test_lanes_do_not_depend_on_their_neighbours():
    """Large arguments of sin take another way, those in the same vector do not."""
    x = np.random.default_rng(0).uniform(-10, 10, 64)
    mixed = x.copy()
    mixed[::3] *= 1e9
    alone, beside = generated(lax.sin, jnp.asarray(x)), generated(lax.sin, jnp.asarray(mixed))
    np.testing.assert_array_equal(np.delete(alone, np.s_[::3]), np.delete(beside, np.s_[::3]))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int8, jnp.uint8, jnp.int64])
def test_integers(dtype):
    limits = jnp.iinfo(dtype)
    values = jnp.asarray([0, 1, 2, 7, limits.max, limits.min, limits.min + 1], dtype)
    x, y = (jnp.ravel(z) for z in jnp.meshgrid(values, values))
    for fn in (lax.div, lax.rem, lax.add, lax.mul, lax.max, lax.min, lax.bitwise_xor, lax.lt):
        np.testing.assert_array_equal(generated(fn, x, y), jax.jit(fn)(x, y))


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int8, jnp.uint16, jnp.bool_])
def test_conversions_from_floats(dtype):
    x = jnp.asarray([*EDGES, 0.5, -0.5, 127.6, -128.9, 300.0])
    fn = lambda x: lax.convert_element_type(x, dtype)  # noqa: E731
    np.testing.assert_array_equal(generated(fn, x), jax.jit(fn)(x))


def test_constants_that_are_not_numbers_do_not_warn():
    """Warnings are errors in tests; JAX's programs do not warn of 0 / 0 either."""

    def ratio(x):
        zero = lax.convert_element_type(0, x.dtype)
        return jnp.where(x > 0, x, lax.div(zero, zero))

    np.testing.assert_array_equal(generated(ratio, np.array([1.0, -1.0])), [1.0, np.nan])

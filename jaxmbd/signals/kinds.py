"""Plain functions as signals, and conversion of arguments to signals."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_jax, as_leaf, is_concrete, library_of

# The interface of signals -------------------------------------------------------------------------

Time = Float[Array, ""]


class AbstractSignal(eqx.Module):
    """A function of time only."""

    # Whether a call searches a table.
    looks_up: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, t: Time) -> Float[Array, "..."]:
        """Value at time `t` [s]."""


class Function(AbstractSignal):
    """A plain function of time, as a static field: each new function object causes a compilation.

    Values are converted to the float type of the time.
    """

    function: Callable[[Time], Array] = eqx.field(static=True)

    def __call__(self, t: Time) -> Float[Array, "..."]:
        value, dtype = jnp.asarray(self.function(t)), jnp.result_type(t)
        return value.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else value


def as_signal(
    value: Any, name: str, shape: tuple[int, ...] | None = None
) -> Callable[[Time], Array]:
    """Convert `value` to a signal: a module remains as it is, others become `Function`, `Constant`.

    **Raises** `ModelError`, naming `name`, if the signal does not return an array of `shape`, or
    if JAX cannot trace it.
    """
    if not callable(value):
        return Constant(as_leaf(value, shape, name))
    function = cast(Callable[[Time], Array], value)
    signal = function if isinstance(value, eqx.Module) else Function(function)
    try:
        returned = signal_shape(signal)
    except (TypeError, ValueError) as error:  # Errors of JAX about tracers are TypeErrors.
        raise ModelError(
            f"{name}: the signal must be a function of the time alone that returns an array and "
            f"that JAX can trace, with jax.numpy for numpy, and jnp.where for if; it raises "
            f"{type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    if shape is not None and returned != shape:
        raise ModelError(f"{name}: the signal returns shape {returned}, expected {shape}")
    return signal


def signal_shape(signal: Callable[[Time], Array]) -> tuple[int, ...]:
    """Shape of the values of a signal, by abstract evaluation."""
    with jax.numpy_dtype_promotion("standard"):  # `formulate` unifies float types later.
        return jax.eval_shape(signal, jax.ShapeDtypeStruct((), jnp.result_type(float))).shape


# A constant signal --------------------------------------------------------------------------------


class Constant(AbstractSignal):
    """`value` at all times.

    For example:

        level = signals.Constant(2.0)
    """

    value: Float[Array, "..."]

    def __init__(self, value: Any):
        self.value = as_leaf(value, None, "Constant: value")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        return self.value


# A polynomial of time -----------------------------------------------------------------------------


class Polynomial(AbstractSignal):
    """`c₀ + c₁ t + c₂ t² + …` with `coefficients` along the first axis.

    For example:

        ramp = signals.Polynomial([0.0, 2.0])  # 2 t
    """

    coefficients: Float[Array, "n *shape"]

    def __init__(self, coefficients: Any):
        self.coefficients = as_leaf(coefficients, None, "Polynomial: coefficients")
        if self.coefficients.ndim == 0 or len(self.coefficients) == 0:
            raise ModelError("Polynomial: coefficients need a first axis of length one or more")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        return jnp.polyval(self.coefficients[::-1], t)


# A sine wave --------------------------------------------------------------------------------------


class Sine(AbstractSignal):
    """`offset + amplitude * sin(2π frequency t + phase)`.

    **Arguments:** `amplitude` and `offset`, arrays of the same shape; `frequency` [Hz] and `phase`
    [rad], numbers. Defaults: a phase and an offset of zero.

    For example:

        shake = signals.Sine(amplitude=0.01, frequency=5.0)
    """

    amplitude: Float[Array, "..."]
    frequency: Float[Array, ""]
    phase: Float[Array, ""]
    offset: Float[Array, "..."]

    def __init__(self, amplitude: Any, frequency: Any, phase: Any = 0.0, offset: Any = None):
        self.amplitude = as_leaf(amplitude, None, "Sine: amplitude")
        shape = self.amplitude.shape
        self.frequency = as_leaf(frequency, (), "Sine: frequency")
        self.phase = as_leaf(phase, (), "Sine: phase")
        self.offset = as_leaf(np.zeros(shape) if offset is None else offset, shape, "Sine: offset")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        angle = 2 * jnp.pi * self.frequency * t + self.phase
        return self.offset + self.amplitude * jnp.sin(angle)


# A smooth step from one value to another ----------------------------------------------------------


class Step(AbstractSignal):
    """`before` until the time `start`, `after` from the time `stop` on, smooth between them.

    `before + (after - before) s(x)` with `s(x) = x³ (10 - 15 x + 6 x²)` and x = 0 … 1 from `start`
    to `stop`: the polynomial of degree 5 whose first and second derivative are zero at both ends,
    so that both are continuous at all times. The largest velocity is 1.875 (after - before) /
    (stop - start), the largest acceleration 5.774 (after - before) / (stop - start)².

    **Arguments:** `start` and `stop`, times [s]; `before` and `after`, arrays of the same shape.

    **Raises** `ModelError` for other shapes and if `stop` is not after `start`.

    For example:

        start = signals.Step(0.0, 0.5, before=0.0, after=10.0)
    """

    start: Float[Array, ""]
    stop: Float[Array, ""]
    before: Float[Array, "..."]
    after: Float[Array, "..."]

    def __init__(self, start: Any, stop: Any, before: Any, after: Any):
        self.start = as_leaf(start, (), "Step: start")
        self.stop = as_leaf(stop, (), "Step: stop")
        self.before = as_leaf(before, None, "Step: before")
        self.after = as_leaf(after, self.before.shape, "Step: after")
        concrete = is_concrete(self.start) and is_concrete(self.stop)
        if concrete and not np.asarray(self.stop) > np.asarray(self.start):
            raise ModelError(f"Step: stop must be after start, got {self.stop} and {self.start}")

    def __call__(self, t: Time) -> Float[Array, "..."]:
        x = jnp.clip((t - self.start) / (self.stop - self.start), 0.0, 1.0)
        return self.before + (self.after - self.before) * (x**3 * (10 - 15 * x + 6 * x**2))


# Linear interpolation between samples -------------------------------------------------------------


class Samples(AbstractSignal):
    """Linear interpolation between samples, constant before the first and after the last one.

    **Arguments:** `ts`, increasing times, shape `(n,)` [s], and `values`, shape `(n, ...)`.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.

    For example:

        measured = signals.Samples([0.0, 0.5, 1.0], [0.0, 2.0, 1.0])
    """

    looks_up: ClassVar[bool] = True

    ts: Float[Array, "n"]
    values: Float[Array, "n *shape"]

    def __init__(self, ts: Any, values: Any):
        self.ts, self.values = as_samples(ts, values, "Samples")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        # One search for all components; `jnp.interp` searches for each.
        after = jnp.clip(jnp.searchsorted(self.ts, t, side="right"), 1, self.ts.shape[0] - 1)
        (a, b), (x, y) = ((of[after - 1], of[after]) for of in (self.ts, self.values))
        value = x + (t - a) / (b - a) * (y - x)
        value = jnp.where(t < self.ts[0], self.values[0], value)
        return jnp.where(t > self.ts[-1], self.values[-1], value)

    def extended(self, n: int) -> "Samples":
        """The same signal with n samples, by repetitions of the last value at later times."""
        library = library_of(self.ts, self.values)
        ts, values = library.asarray(self.ts), library.asarray(self.values)
        more = library.arange(1, n - ts.shape[0] + 1, dtype=ts.dtype)
        ts = library.concatenate([ts, ts[-1] + more * (ts[-1] - ts[-2])])
        rows = [(0, more.size), *[(0, 0)] * (values.ndim - 1)]
        return Samples(as_jax(ts), as_jax(library.pad(values, rows, mode="edge")))


def as_samples(ts: Any, values: Any, name: str) -> tuple[Array, Array]:
    """Convert times, shape `(n,)` [s], and values, shape `(n, ...)`; `name` denotes the signal.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.
    """
    times, leaf = as_leaf(ts, None, f"{name}: ts"), as_leaf(values, None, f"{name}: values")
    if times.ndim != 1 or times.shape[0] < 2:
        raise ModelError(f"{name}: ts needs two or more times, got shape {times.shape}")
    if leaf.ndim == 0 or leaf.shape[0] != times.shape[0]:
        raise ModelError(f"{name}: {times.shape[0]} times but values of shape {leaf.shape}")
    if is_concrete(times) and not np.all(np.diff(np.asarray(times)) > 0):
        raise ModelError(f"{name}: ts must increase from sample to sample")
    return times, leaf


# A smooth curve through samples -------------------------------------------------------------------


# Splines of so many samples are computed without a table: code is generated for the mechanics with
# them. Measured on a driven four-bar: its derivatives compile in a sixth and run in a quarter of
# the time with 10 samples; by XLA alone a step with 32 takes as long as before.
FEW = 32


class Spline(AbstractSignal):
    """The natural cubic spline through samples, with a continuous second derivative at all times.

    The second derivative is zero at the first and at the last sample. Before the first and after
    the last sample the curve continues as a straight line. If a motion should be at rest there, use
    several equal samples at its ends, or a `Step`.

    Each evaluation solves for the second derivatives of the curve, in time proportional to the
    number of samples. With more than 32 samples, a loop over time does so once if the compiler
    moves this solve out of the loop (measured: with 1000 samples a step takes 10 to 30 µs longer
    than with a constant, with 100 samples the same).

    **Arguments:** `ts`, increasing times, shape `(n,)` [s], and `values`, shape `(n, ...)`. Two
    samples give a straight line.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.

    For example:

        smooth = signals.Spline([0.0, 0.5, 1.0], [0.0, 2.0, 1.0])
    """

    ts: Float[Array, "n"]
    values: Float[Array, "n *shape"]

    def __init__(self, ts: Any, values: Any):
        self.ts, self.values = as_samples(ts, values, "Spline")

    @property
    def looks_up(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.ts.shape[-1] > FEW

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        ts, n = self.ts, self.ts.shape[0]
        columns = self.values.reshape(n, -1)
        inside = jnp.clip(t, ts[0], ts[-1])
        m = _second_derivatives(ts, columns)
        if n <= FEW:
            begun = (inside >= ts[:-1]).astype(ts.dtype)
            here = begun - jnp.concatenate([begun[1:], jnp.zeros(1, ts.dtype)])
            first, second = (lambda x: _weighted(here, x[:-1])), (lambda x: _weighted(here, x[1:]))
        else:
            i = jnp.clip(jnp.searchsorted(ts, t, side="right") - 1, 0, n - 2)
            first, second = (lambda x: x[i]), (lambda x: x[i + 1])
        (t0, y0, m0), (t1, y1, m1) = ([of(x) for x in (ts, columns, m)] for of in (first, second))
        h, s = t1 - t0, inside - t0
        c1, c2, c3 = (y1 - y0) / h - h * (2 * m0 + m1) / 6, m0 / 2, (m1 - m0) / (6 * h)
        slope = c1 + s * (2 * c2 + s * (3 * c3))
        value = y0 + s * (c1 + s * (c2 + s * c3)) + slope * (t - inside)
        return value.reshape(self.values.shape[1:])


def _weighted(weights: Float[Array, "n"], x: Float[Array, "n *k"]) -> Float[Array, "*k"]:
    return jnp.sum(weights.reshape(-1, *[1] * (x.ndim - 1)) * x, axis=0)


def _second_derivatives(ts: Float[Array, "n"], values: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Second derivatives m = s'' at the samples, zero at the ends, for which s' is continuous.

        h₋ m₋ + 2 (h₋ + h₊) m + h₊ m₊ = 6 (Δ₊ - Δ₋),   Δ = (difference of values) / h

    Source: de Boor (1978), A Practical Guide to Splines, ch. IV.
    """
    if ts.shape[0] == 2:
        return jnp.zeros_like(values)
    h = jnp.diff(ts)
    end = jnp.zeros(1, ts.dtype)
    jumps = jnp.diff(jnp.diff(values, axis=0) / h[:, None], axis=0)
    if ts.shape[0] <= FEW:
        inner = _tridiagonal(h[:-1], 2 * (h[:-1] + h[1:]), h[1:], 6 * jumps)
        return jnp.pad(inner, ((1, 1), (0, 0)))
    one = jnp.ones(1, ts.dtype)
    below = jnp.concatenate([end, h[:-1], end])
    above = jnp.concatenate([end, h[1:], end])
    diagonal = jnp.concatenate([one, 2 * (h[:-1] + h[1:]), one])
    right = jnp.pad(6 * jumps, ((1, 1), (0, 0)))
    return jax.lax.linalg.tridiagonal_solve(below, diagonal, above, right)


def _tridiagonal(
    below: Float[Array, "n"], diagonal: Float[Array, "n"], above: Float[Array, "n"],
    right: Float[Array, "n k"],
) -> Float[Array, "n k"]:  # fmt: skip
    """The solution of a tridiagonal system with a dominant diagonal, by elimination."""

    def eliminate(carry: tuple[Array, Array], row: Any) -> tuple[tuple[Array, Array], Any]:
        ratio, y = carry
        a, b, c, r = row
        pivot = b - a * ratio
        carry = c / pivot, (r - a * y) / pivot
        return carry, carry

    def substitute(x: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        ratio, y = row
        x = y - ratio * x
        return x, x

    zero = jnp.zeros_like(right[0])
    start = jnp.zeros_like(below[0]), zero
    _, rows = jax.lax.scan(eliminate, start, (below, diagonal, above, right))
    return jax.lax.scan(substitute, zero, rows, reverse=True)[1]

"""A smooth curve through samples."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .abstract import AbstractSignal, Time
from .samples import as_samples


class Spline(AbstractSignal):
    """The natural cubic spline through samples, with a continuous second derivative at all times.

    The second derivative is zero at the first and at the last sample. Before the first and after
    the last sample the curve continues as a straight line. If a motion should be at rest there, use
    several equal samples at its ends, or a `Step`.

    Each evaluation solves for the second derivatives of the curve, in time proportional to the
    number of samples. A loop over time does so once if the compiler moves this solve out of the
    loop (measured: with 1000 samples a step takes 10 to 30 µs longer than with a constant, with
    100 samples the same).

    **Arguments:** `ts`, increasing times, shape `(n,)` [s], and `values`, shape `(n, ...)`. Two
    samples give a straight line.

    **Raises** `ModelError` for fewer than two samples, unequal lengths or times that do not
    increase.

    For example:

        smooth = signals.Spline([0.0, 0.5, 1.0], [0.0, 2.0, 1.0])
    """

    looks_up: ClassVar[bool] = True

    ts: Float[Array, "n"]
    values: Float[Array, "n *shape"]

    def __init__(self, ts: Any, values: Any):
        self.ts, self.values = as_samples(ts, values, "Spline")

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        ts, n = self.ts, self.ts.shape[0]
        columns = self.values.reshape(n, -1)
        m = _second_derivatives(ts, columns)
        i = jnp.clip(jnp.searchsorted(ts, t, side="right") - 1, 0, n - 2)
        h, y0, y1, m0, m1 = ts[i + 1] - ts[i], columns[i], columns[i + 1], m[i], m[i + 1]
        inside = jnp.clip(t, ts[0], ts[-1])
        s = inside - ts[i]
        c1, c2, c3 = (y1 - y0) / h - h * (2 * m0 + m1) / 6, m0 / 2, (m1 - m0) / (6 * h)
        slope = c1 + s * (2 * c2 + s * (3 * c3))
        value = y0 + s * (c1 + s * (c2 + s * c3)) + slope * (t - inside)
        return value.reshape(self.values.shape[1:])


def _second_derivatives(ts: Float[Array, "n"], values: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Second derivatives m = s'' at the samples, zero at the ends, for which s' is continuous.

        h₋ m₋ + 2 (h₋ + h₊) m + h₊ m₊ = 6 (Δ₊ - Δ₋),   Δ = (difference of values) / h

    Source: de Boor (1978), A Practical Guide to Splines, ch. IV.
    """
    if ts.shape[0] == 2:
        return jnp.zeros_like(values)
    h = jnp.diff(ts)
    end = jnp.zeros(1, ts.dtype)
    one = jnp.ones(1, ts.dtype)
    below = jnp.concatenate([end, h[:-1], end])
    above = jnp.concatenate([end, h[1:], end])
    diagonal = jnp.concatenate([one, 2 * (h[:-1] + h[1:]), one])
    jumps = jnp.diff(jnp.diff(values, axis=0) / h[:, None], axis=0)
    right = jnp.pad(6 * jumps, ((1, 1), (0, 0)))
    return jax.lax.linalg.tridiagonal_solve(below, diagonal, above, right)


__all__ = ["Spline"]

"""Splines by control points: input signals that a search varies within limits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..signals import AbstractSignal, Constant, Spline
from ..signals.kinds import Time


class ControlledSpline(AbstractSignal):
    """The natural cubic spline of control points at equally spaced times, blended with a signal.

    The spline is a combination of control points with weights that are not negative and have the
    sum one: it stays between the least and the largest of them. The value is computed without a
    search for the interval and without a linear system, so that code is generated for it.

    - `start`, `step`: time of the first point, and distance of points [s].
    - `points`: shape `(n, *shape)`.
    - `other`, `weight`: another signal, and its weight. The weight of the spline is 1 - `weight`.

    Source: de Boor (1978), A Practical Guide to Splines, ch. IX and XI.
    """

    start: Float[Array, ""]
    step: Float[Array, ""]
    points: Float[Array, "n *shape"]
    other: Callable[..., Array]
    weight: Float[Array, ""]

    def __call__(self, t: Time) -> Float[Array, "*shape"]:
        c, dtype = self.points, self.points.dtype
        # Points beyond the ends, at which the second derivative is zero.
        c = jnp.concatenate([2 * c[:1] - c[1:2], c, 2 * c[-1:] - c[-2:-1]])
        x = (t - self.start) / self.step - jnp.arange(-1, len(c) - 1, dtype=dtype)
        x = jnp.where(x < 0, -x, x)  # abs has no second derivative at zero.
        outer, inner = jnp.maximum(2 - x, 0.0), jnp.maximum(1 - x, 0.0)
        basis = (outer * outer * outer - 4 * inner * inner * inner) / 6
        value = jnp.tensordot(basis, c, 1)
        return value + self.weight * (self.other(t) - value)


def controlled(ts: Any, points: Any, other: Any = None) -> ControlledSpline:
    """The spline of control points over the times `ts`, with the weight zero of another signal.

    Without another signal, that is zero.
    """
    points = jnp.asarray(points)
    first, last = (jnp.asarray(x, points.dtype) for x in (ts[0], ts[-1]))
    other = Constant(jnp.zeros_like(points[0])) if other is None else other
    step = (last - first) / (len(points) - 1)
    return ControlledSpline(first, step, points, other, jnp.zeros((), points.dtype))


def as_spline(signal: ControlledSpline) -> Spline:
    """The same spline by its values at the times of the control points."""
    c = np.asarray(signal.points)
    values = c.copy()
    values[1:-1] = (c[:-2] + 4 * c[1:-1] + c[2:]) / 6
    return Spline(float(signal.start) + float(signal.step) * np.arange(len(c)), values)


def looks_up(signal: Any) -> bool:
    """Whether a signal, or one within it, searches a table."""
    parts = jax.tree.leaves(signal, is_leaf=lambda x: isinstance(x, AbstractSignal))
    return any(isinstance(x, AbstractSignal) and x.looks_up for x in parts)

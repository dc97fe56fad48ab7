"""Bounds at which a fit ended: of transforms, and of bodies that are possible.

A fit is at a bound if it ended next to it and the Gauss–Newton step from there crosses it. A
transform such as `Positive` approaches its bound as its free number grows without limit, and its
derivative vanishes; a body that is impossible has infinite residuals, and steps to it are rejected.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float

from .parameters import Free, Parameter, Selected, Subject
from .residuals import Confinement, Linearization

# Largest distance to a bound, as a part of the step that crosses it, and of the terms of an
# inequality: steps end when they change free numbers by 1e-6.
NEAR_OF_STEP, NEAR_OF_TERMS = 0.1, 1e-4
# Distances and derivatives below so many units of rounding of their terms are zero.
ROUNDINGS = 1e2


class Bound(NamedTuple):
    """A bound at which a fit ended.

    - `parameters`: labels of the reported numbers that it limits.
    - `inequality`: the bound, in words.
    """

    parameters: tuple[str, ...]
    inequality: str

    def __str__(self) -> str:
        return f"the bound of {', '.join(self.parameters)}: {self.inequality}"


class Bounds(NamedTuple):
    """The bounds at which a fit ended.

    - `rows`: derivatives of the distances to the bounds by the unknowns, shape `(m, n)`.
    - `limited`: whether a reported number is in `found`, shape `(k,)`.
    - `of_bodies`: whether a bound rejects steps, which keeps other unknowns from their minimum.
    """

    found: list[Bound]
    rows: Float[np.ndarray, "m n"]
    limited: Bool[np.ndarray, "k"]
    of_bodies: bool


class _Distance(NamedTuple):
    """Distance to a bound, size of its terms, and its derivative by the free numbers."""

    value: float
    terms: float
    row: Float[np.ndarray, "p"]

    def is_met(self, step: Float[np.ndarray, "p"], rounding: float) -> bool:
        """True if the distance is small and negative after a step, or zero and remains zero."""
        change = float(self.row @ step)
        near = max(-NEAR_OF_STEP * change, NEAR_OF_TERMS * self.terms)
        crosses = self.value < near and self.value + change < 0
        return crosses or max(self.value, change) <= rounding * self.terms


def bounds_at(
    selected: Selected, theta: Free, line: Linearization, step: Float[np.ndarray, "n"]
) -> Bounds:
    """The bounds that are met at free numbers, from which `step` is the Gauss–Newton step."""
    p, labels = line.D.shape[1], selected.labels()
    rounding = ROUNDINGS * float(np.finfo(line.D.dtype).eps)
    found, rows, limited = [], [], np.zeros(len(labels), dtype=bool)
    of_transforms = list(_bounds_of_transforms(selected, theta, line, step[:p], rounding))
    of_bodies = list(_bounds_of_bodies(selected, theta, line, step[:p], rounding))
    for inequality, row, numbers in of_transforms + of_bodies:
        found.append(Bound(tuple(labels[k] for k in numbers), inequality))
        rows.append(np.pad(row, (0, len(step) - p)))
        limited[numbers] = True
    return Bounds(found, np.reshape(rows, (len(rows), len(step))), limited, bool(of_bodies))


_Met = tuple[str, Float[np.ndarray, "p"], list[int]]  # Inequality, its row, limited numbers.


def _bounds_of_transforms(
    selected: Selected,
    theta: Free,
    line: Linearization,
    step: Float[np.ndarray, "p"],
    rounding: float,
) -> Iterator[_Met]:
    D, values = np.asarray(line.D, dtype=float), np.asarray(selected.report(theta), dtype=float)
    labels = selected.labels()
    for p, free, numbers in _numbered(selected, theta):
        for sign, bound in zip((1.0, -1.0), p.transform.bounds(), strict=True):
            for j, k in zip(free, numbers, strict=True) if np.isfinite(bound) else ():
                distance = _Distance(sign * (values[k] - bound), abs(bound), sign * D[k])
                if distance.is_met(step, rounding):
                    inequality = f"{labels[k]} {'>' if sign > 0 else '<'} {bound:g}"
                    # The free number itself: at the bound the derivative by it is zero.
                    yield inequality, np.eye(len(step))[j], [k]


def _bounds_of_bodies(
    selected: Selected,
    theta: Free,
    line: Linearization,
    step: Float[np.ndarray, "p"],
    rounding: float,
) -> Iterator[_Met]:
    subject = selected.apply(theta)
    for name, body in selected.fitted_bodies(subject).items():
        leaves = _flat(body)[:, None]
        derivative = _flat(line.bodies[name], len(step))
        for inequality, coefficients in body.inequalities().items():
            c = _flat(coefficients)[:, None]
            value, row = (c * leaves).sum(), (c * derivative).sum(axis=0)
            terms, row_terms = abs(c * leaves).sum(), abs(c * derivative).sum(axis=0)
            # Terms that cancel: a factor of the whole body does not lead to a bound.
            row = np.where(abs(row) > rounding * row_terms, row, 0.0)
            distance = _Distance(float(value), float(terms), row)
            if row.any() and distance.is_met(step, rounding):
                of_model = _only(subject, name, coefficients)
                numbers = list(_limited(selected, theta, subject, of_model, row))
                yield f"body {name!r}: {inequality}", row, numbers


def _limited(
    selected: Selected, theta: Free, subject: Subject, direction: Subject, row: np.ndarray
) -> Iterator[int]:
    """Reported numbers that change as the leaves change along a direction."""
    for p, free, numbers in _numbered(selected, theta):
        if not row[free].any():
            continue
        value, reference = p.get(subject), p.get(selected.subject)
        _, change = jax.jvp(
            lambda x, p=p, ref=reference: p.transform.report(x, ref), (value,), (p.get(direction),)
        )
        changes = np.asarray(change) != 0
        yield from np.array(numbers)[changes if changes.any() else slice(None)].tolist()


def _numbered(selected: Selected, theta: Free) -> Iterator[tuple[Parameter, list[int], list[int]]]:
    """Parameters with the positions of their free numbers and of their reported numbers."""
    free = numbers = 0
    for name, p, x in zip(selected.names, selected.parameters, theta, strict=True):
        k = len(p.transform.labels(name, p.get(selected.subject)))
        yield p, list(range(free, free + x.size)), list(range(numbers, numbers + k))
        free, numbers = free + x.size, numbers + k


def _only(subject: Subject, name: str, coefficients: Any) -> Subject:
    """The coefficients of one body as a subject; all other numbers are zero."""
    zeros = jax.tree.map(lambda x: jnp.zeros_like(x) if eqx.is_array(x) else x, subject)
    like = jax.tree.map(
        lambda x, y: jnp.asarray(x, y.dtype), coefficients, zeros.model.bodies[name]
    )
    return eqx.tree_at(lambda s: s.model.bodies[name], zeros, like)


def _flat(tree: Any, *last: int) -> Float[np.ndarray, "m *last"]:
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array_like))
    return np.concatenate([np.asarray(x, dtype=float).reshape(-1, *last) for x in leaves])


def plane_of(bounds: Bounds, theta: Free, scale: Float[np.ndarray, "n"]) -> Confinement:
    """The plane through free numbers in which distances to the bounds do not change."""
    anchor, _ = ravel_pytree(theta)
    scale = scale[: anchor.size]
    rows = bounds.rows[:, : anchor.size] / scale
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    inside = np.eye(anchor.size) - np.linalg.pinv(rows) @ rows
    projection = inside * scale[None, :] / scale[:, None]
    return Confinement(anchor, jnp.asarray(projection, anchor.dtype))

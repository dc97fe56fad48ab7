"""Linear systems of constrained motion: M x - Gᵀ λ = f, G x = a.

Rows of tree joints are independent by construction and factored exactly. Rows that close loops,
couple joints or drive them are possibly redundant: their components normal to the others are
factored by singular values. `ConstraintFactors` says how.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float

from .._stop_gradients import stop_gradients
from ..linear import ConstraintFactors, factor_constraints
from . import constraints
from .abstract import AbstractSystem, Velocities
from .configuration import AbstractConfiguration

# Largest residuals of a solution, relative to the numbers that enter: in units of the float type's
# precision (measured ones stay below 5, whatever the number of bodies), and of the violation of the
# constraints, since combinations of rows as small as some tens of it may have been dropped. Larger
# units would pass contradictions between light bodies as rounding errors of heavy ones.
SLACK, LEVER = 20.0, 100.0

# Largest residual of the equations of motion, each relative to its own terms, in units of the float
# type's precision. Unless the condition number exceeds the inverse of that precision, residuals
# stay below 10 in coordinates of bodies, and below 1e3 in those of joints, whose inertial forces
# are sums over whole branches. Rounding errors that are taken for constraints, and constraints that
# are taken for redundant, leave far larger ones.
UNBALANCED = 1e4

# No residual above this part of the largest acceleration along a row is a rounding error.
COARSE = 1e-2

# Float types as precise as this may square the condition number of independent rows, which takes
# less time: the square root of the mass ratio of neighbours enters it.
SQUARED = 1e-12


class AbstractMetric(eqx.Module):
    """How velocities are measured: M = L Lᵀ."""

    @abstractmethod
    def apply(self, x: Velocities) -> Velocities:
        """M x."""

    @abstractmethod
    def sizes(self, x: Velocities) -> tuple[Velocities, Velocities]:
        """|M| |x|, which rounding errors of M x are relative to, and roots of M's diagonal."""

    @abstractmethod
    def whiten(self, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        """L⁻¹ f."""

    @abstractmethod
    def unwhiten(self, y: Float[Array, "nv"]) -> Velocities:
        """L⁻ᵀ y."""


class KineticMetric(AbstractMetric):
    """By the mass matrix."""

    system: AbstractSystem
    c: AbstractConfiguration
    factor: Any

    def apply(self, x: Velocities) -> Velocities:
        return self.system.apply_mass(self.c, x)

    def sizes(self, x: Velocities) -> tuple[Velocities, Velocities]:
        mass = self.system.mass_at(self.c)
        return jnp.abs(mass) @ jnp.abs(x), jnp.sqrt(jnp.diagonal(mass))

    def whiten(self, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        return self.system.whiten(self.factor, f)

    def unwhiten(self, y: Float[Array, "nv"]) -> Velocities:
        return self.system.unwhiten(self.factor, y)


class PartialMetric(AbstractMetric):
    """Velocities that are `movable` count alike, and the others stay zero."""

    movable: Bool[Array, "nv"]

    def apply(self, x: Velocities) -> Velocities:
        return x

    def sizes(self, x: Velocities) -> tuple[Velocities, Velocities]:
        return jnp.abs(x), jnp.ones_like(x)

    def whiten(self, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        return jnp.where(self.movable.reshape(-1, *[1] * (f.ndim - 1)), f, 0.0)

    def unwhiten(self, y: Float[Array, "nv"]) -> Velocities:
        return self.whiten(y)


class SaddlePoint(eqx.Module):
    """M and G of one configuration, factored.

    - `G`: shape `(ng, nv)`, zero where velocities may not move.
    - `length`: of each row of G, were it not for the others, in the inverse metric.
    - `violation`: relative error of G, since the configuration violates the constraints.
    """

    metric: AbstractMetric
    G: Float[Array, "ng nv"]
    B: Float[Array, "nv ng"]
    factors: ConstraintFactors | Float[Array, "ng ng"]
    length: Float[Array, "ng"]
    violation: Float[Array, ""]

    def solve(self, f: Velocities, a: Float[Array, "ng"]) -> tuple[Velocities, Float[Array, "ng"]]:
        """x and λ. Where rows are redundant, `a` counts as far as they do not contradict it.

        Orthogonal factors spread rounding errors of heavy bodies over light ones. One iteration of
        refinement makes residuals small row by row (Skeel 1980).

        Derivatives are those of the equations, solved with the same factors.
        """

        nv = f.size

        def product(unknowns: Array) -> Array:
            x, lam = unknowns[:nv], unknowns[nv:]
            return jnp.concatenate([self.metric.apply(x) - self.G.T @ lam, -(self.G @ x)])

        def solution(_: Any, given: Array) -> Array:
            first = jnp.concatenate(self._solved(given[:nv], -given[nv:]))
            rest = given - product(first)
            return first + jnp.concatenate(self._solved(rest[:nv], -rest[nv:]))

        found = _solve_symmetric(product, solution, jnp.concatenate([f, -a]))
        return found[:nv], found[nv:]

    def _solved(self, f: Velocities, a: Float[Array, "ng"]) -> tuple[Array, Array]:
        y0 = self.metric.whiten(f)
        if a.size == 0:
            return self.metric.unwhiten(y0), a
        if isinstance(self.factors, ConstraintFactors):
            y, lam = self.factors.nearest(y0, a)
            return self.metric.unwhiten(y), lam
        cholesky = (self.factors, True)
        lam = jsl.cho_solve(cholesky, a - self.B.T @ y0)
        return self.metric.unwhiten(y0 + self.B @ lam), lam

    def holds(
        self,
        solution: tuple[Velocities, Float[Array, "ng"]],
        f: Velocities,
        a: Float[Array, "ng"],
        noise: Float[Array, ""],
    ) -> Bool[Array, ""]:
        """Whether M x - Gᵀ λ = f and G x = a.

        The first as far as rounding allows, row by row; the second as far as rounding and the
        violation of the constraints allow.

        `noise`: size of the terms of `G x` and `a`, in their units.
        """
        equations, solution, f, a, noise = stop_gradients((self, solution, f, a, noise))
        balanced = equations._balanced(*solution, f)
        return balanced & equations._keeps_constraints(*solution, f, a, noise)

    def _balanced(self, x: Velocities, lam: Float[Array, "ng"], f: Velocities) -> Bool[Array, ""]:
        eps = float(jnp.finfo(x.dtype).eps)
        terms, root = self.metric.sizes(x)
        terms = terms + jnp.abs(f) + jnp.abs(self.G).T @ jnp.abs(lam)
        # For rows that have no terms but rounding errors of other rows, squared by refinement.
        floor = eps * root * jnp.max(terms / root, initial=0.0)
        residual = jnp.abs(self.metric.apply(x) - f - self.G.T @ lam)
        return jnp.all(residual <= UNBALANCED * eps * (terms + floor))

    def _keeps_constraints(
        self,
        x: Velocities,
        lam: Float[Array, "ng"],
        f: Velocities,
        a: Float[Array, "ng"],
        noise: Float[Array, ""],
    ) -> Bool[Array, ""]:
        G, length, violation = self.G, self.length, self.violation
        eps = float(jnp.finfo(x.dtype).eps)
        part = SLACK * eps + LEVER * jnp.minimum(violation, eps**0.25)
        y0 = self.metric.whiten(f)
        # |Lᵀ x|² = x · M x, the equations being satisfied.
        size = jnp.sqrt(jnp.abs(x @ (f + G.T @ lam))) + jnp.linalg.norm(y0)
        size = size + jnp.max(jnp.abs(a) / length, initial=0.0)
        terms = jnp.abs(G) @ (jnp.abs(x) + jnp.abs(self.metric.unwhiten(y0))) + jnp.abs(a)
        most = COARSE * jnp.max(terms, initial=0.0)
        allowed = jnp.minimum(part * length * size, most) + part * noise
        return jnp.all(jnp.abs(G @ x - a) <= allowed)

    def unseen(self) -> Float[Array, "nv"]:
        """What part of each velocity, whitened, the constraints leave free, from 0 to 1."""
        if isinstance(self.factors, ConstraintFactors):
            return self.factors.unseen()
        return 1.0 - jnp.sum(self.B * jsl.cho_solve((self.factors, True), self.B.T).T, axis=1)

    def minimum_norm(self, lam: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """The multipliers with the least sum of squares [N, N m] that have the same Gᵀ λ."""
        if not isinstance(self.factors, ConstraintFactors) or not any(self.factors.redundant):
            return lam

        ng = lam.size

        def product(unknowns: Array) -> Array:
            lam, x = unknowns[:ng], unknowns[ng:]
            return jnp.concatenate([lam - self.G @ x, -(self.G.T @ lam)])

        def solution(_: Any, given: Array) -> Array:
            return jnp.concatenate(self._least(idle, given[:ng], given[ng:]))

        idle = self.factors.idle()
        near = jax.lax.stop_gradient(lam)
        near = near - idle @ (idle.T @ near)
        # The difference from `near` is small, and so are its rounding errors.
        given = jnp.concatenate([-near, -(self.G.T @ (lam - near))])
        return near + _solve_symmetric(product, solution, given)[:ng]

    def _least(
        self, idle: Float[Array, "ng k"], of_rows: Float[Array, "ng"], f: Velocities
    ) -> tuple[Array, Array]:
        """λ and x of λ - G x = `of_rows`, -Gᵀ λ = `f`, with `idle` as of the factors."""
        assert isinstance(self.factors, ConstraintFactors)
        y0 = self.metric.whiten(-f)
        lam = self.factors.nearest(y0, jnp.zeros_like(of_rows))[1]
        lam = idle @ (idle.T @ (of_rows + lam)) - lam
        x = self.factors.nearest(jnp.zeros_like(y0), lam - of_rows)[0]
        return lam, self.metric.unwhiten(x)


def _solve_symmetric(
    product: Callable[[Array], Array], solution: Callable[[Any, Array], Array], b: Float[Array, "n"]
) -> Float[Array, "n"]:
    """The solution of linear equations, whose derivative is solved for in the same way.

    One array of unknowns and not two: of several, JAX does not accept some without derivatives.
    """

    return jax.lax.custom_linear_solve(
        product, b, solve=solution, transpose_solve=solution, symmetric=True
    )


def saddle_point(
    system: AbstractSystem,
    c: AbstractConfiguration,
    residual: Float[Array, "ng"],
    movable: Bool[Array, "nv"] | None = None,
    rows: np.ndarray | None = None,
    demand: Float[Array, "ng"] | None = None,
    further: Float[Array, "k nv"] | None = None,
) -> SaddlePoint:
    """M and G at a configuration, factored.

    **Arguments:**

    - `residual`: g there, of all rows.
    - `movable`: the velocities that may not be zero, which count alike then, whatever their mass.
    - `rows`: numbers of the constraints, if not all of them.
    - `further`: rows below those of the constraints, possibly redundant.
    - `demand`: what of the right-hand side does not come from g, as in `factor_constraints`.
    """
    redundant = constraints.possibly_redundant(system)
    G = constraints.jacobian(system, c)
    if movable is None:
        metric = KineticMetric(system, c, stop_gradients(system.mass_factor(c)))
    else:
        metric = PartialMetric(movable)
    violation = constraints.violation(c, residual)
    if movable is not None:
        G = jnp.where(movable, G, 0.0)
    B = metric.whiten(G.T)
    length = row_lengths(system, c, B) if movable is None else _norms(B)
    if rows is not None:
        redundant, G, B, length = redundant[rows], G[rows], B[:, rows], length[rows]
    if (
        further is None
        and not redundant.any()
        and (not redundant.size or float(jnp.finfo(B.dtype).eps) < SQUARED)
    ):
        if not redundant.size:
            return SaddlePoint(metric, G, B, jnp.zeros((0, 0), dtype=B.dtype), length, violation)
        factors = jnp.linalg.cholesky(jax.lax.stop_gradient(B.T @ B))
        return SaddlePoint(metric, G, B, factors, length, violation)
    if further is not None:
        below = metric.whiten(further.T)
        G, B = jnp.concatenate([G, further]), jnp.concatenate([B, below], axis=1)
        length = jnp.concatenate([length, _norms(below)])
        redundant = np.concatenate([redundant, np.ones(len(further), dtype=bool)])
    given = stop_gradients((B, length, violation, demand))
    factors = factor_constraints(given[0], tuple(redundant.tolist()), *given[1:])
    return SaddlePoint(metric, G, B, factors, length, violation)


@singledispatch
def row_lengths(
    system: AbstractSystem, c: AbstractConfiguration, B: Float[Array, "nv ng"]
) -> Float[Array, "ng"]:
    """Lengths of the rows of G in the metric of M⁻¹, each by itself, from B = L⁻¹ Gᵀ.

    Formulations that build joints in, so that a row may be nothing but rounding, register their
    own.
    """
    return _norms(B)


def _norms(B: Float[Array, "nv ng"]) -> Float[Array, "ng"]:
    length = jnp.linalg.norm(jax.lax.stop_gradient(B), axis=0)
    return jnp.where(length > 0, length, 1.0)


__all__ = ["SaddlePoint", "row_lengths", "saddle_point"]

"""Linear systems of constrained motion: M x - Gᵀ λ = f, G x = a.

Rows of tree joints are independent by construction and factored exactly. Rows of loop constraints,
couplings and drivers are possibly redundant: their components orthogonal to the independent rows
are factored by singular values, see `ConstraintFactors`.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float

from ..linear import ConstraintFactors, after, factor_constraints
from ..programs.tracing import stop_gradients
from . import constraints, sizes
from .abstract import AbstractSystem, Velocities
from .configuration import AbstractConfiguration

# Tolerances of constraint residuals relative to their terms: in units of the machine epsilon
# (measured residuals are below 5, for any number of bodies), and of the violation of the
# constraints, since combinations of rows as small as some tens of it may have been truncated. With
# larger tolerances contradictions between light bodies would pass as rounding errors of heavy ones.
CONSTRAINT_TOLERANCE, VIOLATION_TOLERANCE = 20.0, 100.0

# Tolerance of residuals of the equations of motion, each relative to its own terms, in units of the
# machine epsilon. Unless the condition number exceeds the inverse of epsilon, residuals are below
# 10 in coordinates of bodies, and below 1e3 in joint coordinates, whose inertial forces are sums
# over whole branches. Rounding errors treated as constraints, and constraints treated as redundant,
# leave far larger residuals.
MOTION_TOLERANCE = 1e4

# No residual above this part of the largest acceleration along a row is a rounding error.
MAX_ROUNDING = 1e-2

# Independent rows are factored by the normal equations if the machine epsilon is below this number.
# This takes less time, and squares the condition number, which grows with the square root of the
# mass ratio of neighbours.
NORMAL_EQUATIONS_EPS = 1e-12


class AbstractMetric(eqx.Module):
    """A metric of velocities: M = L Lᵀ."""

    @abstractmethod
    def apply(self, x: Velocities) -> Velocities:
        """M x."""

    @abstractmethod
    def sizes(self, x: Velocities) -> tuple[Velocities, Velocities]:
        """Sums of absolute terms of M x, which scale its rounding errors, and roots of diag(M)."""

    @abstractmethod
    def whiten(self, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        """L⁻¹ f."""

    @abstractmethod
    def unwhiten(self, y: Float[Array, "nv"]) -> Velocities:
        """L⁻ᵀ y."""


class KineticMetric(AbstractMetric):
    """The metric of the mass matrix."""

    system: AbstractSystem
    c: AbstractConfiguration
    factor: Any

    def apply(self, x: Velocities) -> Velocities:
        return self.system.apply_mass(self.c, x)

    def sizes(self, x: Velocities) -> tuple[Velocities, Velocities]:
        diagonal = jnp.diagonal(self.system.mass_at(self.c))
        return self.system.inertial_terms(self.c, x), jnp.sqrt(diagonal)

    def whiten(self, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        return self.system.whiten(self.factor, f)

    def unwhiten(self, y: Float[Array, "nv"]) -> Velocities:
        return self.system.unwhiten(self.factor, y)


class PartialMetric(AbstractMetric):
    """The Euclidean metric of the `movable` velocities; the others are zero."""

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

    - `G`: shape `(ng, nv)`, with zero columns for velocities that are not movable.
    - `B`: L⁻¹ Gᵀ, shape `(nv, ng)`.
    - `factors`: `ConstraintFactors`, or the Cholesky factor of BᵀB if all rows are independent.
    - `length`: length of each row of G by itself, in the metric M⁻¹.
    - `violation`: relative error of G due to the violation of the constraints.
    """

    metric: AbstractMetric
    G: Float[Array, "ng nv"]
    B: Float[Array, "nv ng"]
    factors: ConstraintFactors | Float[Array, "ng ng"]
    length: Float[Array, "ng"]
    violation: Float[Array, ""]

    def solve(self, f: Velocities, a: Float[Array, "ng"]) -> tuple[Velocities, Float[Array, "ng"]]:
        """Solve for x and λ. If rows are redundant, only the consistent part of `a` is used.

        Orthogonal factors distribute rounding errors of heavy bodies over light ones. One step of
        iterative refinement makes residuals small row by row (Skeel 1980). Derivatives are those of
        the equations, solved with the same factors.
        """

        nv = f.size

        def product(unknowns: Array) -> Array:
            x, lam = unknowns[:nv], unknowns[nv:]
            return jnp.concatenate([self.metric.apply(x) - self.G.T @ lam, -(self.G @ x)])

        def solution(_: Any, right: Array) -> Array:
            first = jnp.concatenate(self.solve_once(right[:nv], -right[nv:]))
            rest = right - product(first)
            return first + jnp.concatenate(self.solve_once(rest[:nv], -rest[nv:]))

        unknowns = _solve_symmetric(product, solution, jnp.concatenate([f, -a]))
        return unknowns[:nv], unknowns[nv:]

    def solve_once(self, f: Velocities, a: Float[Array, "ng"]) -> tuple[Array, Array]:
        """`solve` without the step of iterative refinement."""
        factors = self.factors
        last = factors.last if isinstance(factors, ConstraintFactors) else factors
        y0 = self.metric.whiten(after(f, last))
        if a.size == 0:
            return self.metric.unwhiten(y0), a
        if isinstance(self.factors, ConstraintFactors):
            y, lam = self.factors.nearest(y0, after(a, y0))
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
        error: Float[Array, ""] | None = None,
    ) -> Bool[Array, ""]:
        """True if M x - Gᵀ λ = f, row by row, and G x = a.

        Tolerances include rounding and the violation of the constraints, which decides whether a
        combination of rows is truncated.

        **Arguments:**

        - `noise`: magnitude of the terms of G x and a, in their units.
        - `error`: magnitude of other errors of a, in its units. Default: zero.
        """
        equations, solution, f, a, noise, error = stop_gradients(
            (self, solution, f, a, noise, error)
        )
        motion_holds = equations._motion_holds(*solution, f)
        f = after(f, solution[0])
        return motion_holds & equations.constraints_hold(*solution, f, a, noise, error)

    def is_satisfied_in_norm(
        self,
        solution: tuple[Velocities, Float[Array, "ng"]],
        f: Velocities,
        noise: Float[Array, ""],
    ) -> Bool[Array, ""]:
        """True if M x - Gᵀ λ = f, in the norm of the metric M⁻¹, and G x = 0.

        For responses to single forces, whose rows differ by the ratios of all masses: rounding
        errors of one row may exceed all terms of another.
        """
        equations, (x, lam), f, noise = stop_gradients((self, solution, f, noise))
        metric, eps = equations.metric, float(jnp.finfo(f.dtype).eps)
        residual = metric.whiten(metric.apply(x) - f - equations.G.T @ lam)
        tolerance = MOTION_TOLERANCE * eps + equations._disturbance
        size = jnp.linalg.norm(metric.whiten(after(f, residual)))
        motion_holds = _is_within(jnp.linalg.norm(residual), tolerance * size)
        zeros, f = jnp.zeros_like(lam), after(f, size)
        return motion_holds & equations.constraints_hold(x, lam, f, zeros, noise)

    def _motion_holds(
        self, x: Velocities, lam: Float[Array, "ng"], f: Velocities
    ) -> Bool[Array, ""]:
        eps = float(jnp.finfo(x.dtype).eps)
        terms, root = self.metric.sizes(x)
        terms = terms + jnp.abs(f) + jnp.abs(self.G).T @ jnp.abs(lam)
        # For rows whose terms are only rounding errors of other rows, squared by refinement, which
        # grow with the condition number.
        floor = eps**0.75 * root * jnp.max(terms / root, initial=0.0)
        residual = jnp.abs(self.metric.apply(x) - f - self.G.T @ lam)
        tolerance = (MOTION_TOLERANCE * eps + self._disturbance) * (terms + floor)
        return _is_within(residual, tolerance)

    def is_same_force(self, a: Float[Array, "ng"], b: Float[Array, "ng"]) -> Bool[Array, ""]:
        """True if Gᵀ a = Gᵀ b, in the norm of the metric M⁻¹.

        The rows of unloaded directions have rounding errors of loaded multipliers only.
        """
        equations, a, b = stop_gradients((self, a, b))
        whiten, eps = equations.metric.whiten, float(jnp.finfo(a.dtype).eps)
        size = equations.length @ jnp.maximum(jnp.abs(a), jnp.abs(b))
        error = jnp.linalg.norm(whiten(equations.G.T @ (a - b)))
        tolerance = (MOTION_TOLERANCE * eps + equations._disturbance) * size
        return _is_within(error, tolerance)

    @property
    def _disturbance(self) -> Float[Array, ""]:
        """Relative effect of combinations of rows that are truncated as violations."""
        eps = float(jnp.finfo(self.violation.dtype).eps)
        return VIOLATION_TOLERANCE * jnp.minimum(self.violation, eps**0.25)

    def constraints_hold(
        self,
        x: Velocities,
        lam: Float[Array, "ng"],
        f: Velocities,
        a: Float[Array, "ng"],
        noise: Float[Array, ""],
        error: Float[Array, ""] | None = None,
    ) -> Bool[Array, ""]:
        """True if G x = a; the arguments are those of `holds`."""
        G, length = self.G, self.length
        part = CONSTRAINT_TOLERANCE * float(jnp.finfo(x.dtype).eps) + self._disturbance
        y0 = self.metric.whiten(f)
        # |Lᵀ x|² = x · M x, if the equations are satisfied.
        size = jnp.sqrt(jnp.abs(x @ (f + G.T @ lam))) + jnp.linalg.norm(y0)
        size = size + jnp.max(jnp.abs(a) / length, initial=0.0)
        terms = jnp.abs(G) @ (jnp.abs(x) + jnp.abs(self.metric.unwhiten(y0))) + jnp.abs(a)
        limit = MAX_ROUNDING * jnp.max(terms, initial=0.0)
        tolerance = jnp.minimum(part * length * size, limit) + part * noise
        tolerance = tolerance if error is None else tolerance + error
        return _is_within(jnp.abs(G @ x - a), tolerance)

    def free_part(self) -> Float[Array, "nv"]:
        """The part of each whitened velocity that the constraints leave free, from 0 to 1."""
        if isinstance(self.factors, ConstraintFactors):
            return self.factors.free_part()
        return 1.0 - jnp.sum(self.B * jsl.cho_solve((self.factors, True), self.B.T).T, axis=1)

    def projector(self) -> Float[Array, "nv nv"]:
        """1 - B B⁺, the orthogonal projector onto whitened velocities that constraints permit."""
        if isinstance(self.factors, ConstraintFactors):
            U = jnp.where(self.factors.nonzero[None], self.factors.U, 0.0)
            ranges = jnp.concatenate([self.factors.Q, U], axis=1)
        else:
            ranges = jnp.linalg.qr(self.B)[0]
        return jnp.eye(len(self.B), dtype=self.B.dtype) - ranges @ ranges.T

    def minimum_norm(self, lam: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """The multipliers with the least sum of squares [N, N m] that have the same Gᵀ λ."""
        if not isinstance(self.factors, ConstraintFactors) or not any(self.factors.redundant):
            return lam

        ng = lam.size

        def product(unknowns: Array) -> Array:
            lam, x = unknowns[:ng], unknowns[ng:]
            return jnp.concatenate([lam - self.G @ x, -(self.G.T @ lam)])

        def solution(_: Any, right: Array) -> Array:
            return jnp.concatenate(self._least(Z, right[:ng], right[ng:]))

        Z = self.factors.after(lam).null_multipliers()
        near = jax.lax.stop_gradient(lam)
        near = near - Z @ (Z.T @ near)
        # The difference from `near` is small, and so are its rounding errors.
        right = jnp.concatenate([-near, -(self.G.T @ (lam - near))])
        return near + _solve_symmetric(product, solution, right)[:ng]

    def _least(
        self, Z: Float[Array, "ng k"], of_rows: Float[Array, "ng"], f: Velocities
    ) -> tuple[Array, Array]:
        """λ and x of λ - G x = `of_rows`, -Gᵀ λ = `f`, with Z of `null_multipliers`."""
        assert isinstance(self.factors, ConstraintFactors)
        y0 = self.metric.whiten(-after(f, Z))
        lam = self.factors.nearest(y0, after(jnp.zeros_like(of_rows), y0))[1]
        lam = Z @ (Z.T @ (of_rows + lam)) - lam
        x = self.factors.nearest(jnp.zeros_like(y0), lam - of_rows)[0]
        return lam, self.metric.unwhiten(x)


def _is_within(sizes: Float[Array, "..."], tolerances: Float[Array, "..."]) -> Bool[Array, ""]:
    """True if no size exceeds its tolerance by more than underflow."""
    info = jnp.finfo(sizes.dtype)
    # Rounding errors are relative to numbers as large at least; those of smaller ones underflow.
    smallest = float(info.tiny) / float(info.eps)
    return jnp.all(sizes <= tolerances + smallest)


def _solve_symmetric(
    product: Callable[[Array], Array], solution: Callable[[Any, Array], Array], b: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Solve symmetric linear equations; derivatives are solved with the same `solution`.

    The unknowns are one array: of several arrays JAX requires that all have derivatives.
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
    noise: Float[Array, ""] | None = None,
    error: Float[Array, ""] | None = None,
    further: Float[Array, "k nv"] | None = None,
) -> SaddlePoint:
    """M and G at a configuration, factored.

    **Arguments:**

    - `residual`: g at the configuration, all rows.
    - `movable`: the velocities that may be nonzero, in the Euclidean metric. Default: all of them,
      in the kinetic metric.
    - `rows`: indices of the constraints. Default: all.
    - `demand`: the part of the right-hand side that is not due to g, with the magnitudes `noise` of
      its terms and `error` of its errors, as in `factor_constraints`.
    - `further`: possibly redundant rows below those of the constraints. Default: none.
    """
    redundant = constraints.possibly_redundant(system)
    G = constraints.jacobian(system, c)
    if movable is None:
        metric = KineticMetric(system, c, stop_gradients(system.mass_factor(c)))
    else:
        metric = PartialMetric(movable)
    violation = sizes.violation(c, residual)
    if movable is not None:
        G = jnp.where(movable, G, 0.0)
    B = metric.whiten(G.T)
    length = row_lengths(system, c, B) if movable is None else _norms(B)
    if rows is not None:
        redundant, G, B, length = redundant[rows], G[rows], B[:, rows], length[rows]
    if (
        further is None
        and not redundant.any()
        and (not redundant.size or float(jnp.finfo(B.dtype).eps) < NORMAL_EQUATIONS_EPS)
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
    constant = stop_gradients((B, length, violation, demand, noise, error))
    factors = factor_constraints(constant[0], tuple(redundant.tolist()), *constant[1:])
    return SaddlePoint(metric, G, B, factors, length, violation)


def least_squares(
    Y: Float[Array, "nv k"], length: Float[Array, "k"], violation: Float[Array, ""]
) -> SaddlePoint:
    """Equations x - Y λ = f, Yᵀ x = 0 of the least-squares problem Y λ = -f; Y is factored.

    All columns are possibly redundant.

    **Arguments:** `length`: lengths of the columns, which scale their rounding errors.
    """
    constant = stop_gradients((Y, length, violation))
    factors = factor_constraints(constant[0], (True,) * Y.shape[1], *constant[1:])
    metric = PartialMetric(jnp.ones(len(Y), dtype=bool))
    return SaddlePoint(metric, Y.T, Y, factors, constant[1], constant[2])


def row_lengths(
    system: AbstractSystem, c: AbstractConfiguration, B: Float[Array, "nv ng"]
) -> Float[Array, "ng"]:
    """Lengths of the rows of G in the metric M⁻¹, each row by itself, from B = L⁻¹ Gᵀ."""
    own = system.own_row_lengths(c, B)
    return _norms(B) if own is None else own


def _norms(B: Float[Array, "nv ng"]) -> Float[Array, "ng"]:
    length = jnp.linalg.norm(jax.lax.stop_gradient(B), axis=0)
    return jnp.where(length > 0, length, 1.0)

"""Linear systems of constrained motion: M x - Gᵀ λ = f, G x = a.

Rows of tree joints are independent by construction and factored exactly. Rows that close loops,
couple joints or drive them are possibly redundant: their components normal to the others are
factored by singular values. `ConstraintFactors` says how.
"""

from abc import abstractmethod
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float

from .._frozen import frozen
from ..linear import ConstraintFactors, factor_constraints, solve_spd
from . import constraints
from .abstract import AbstractSystem, Velocities
from .configuration import AbstractConfiguration

# Residuals of a solution, in units of the float type's precision, the number of unknowns and the
# numbers that enter, beyond which it is none.
SLACK = 1e3


class AbstractMetric(eqx.Module):
    """How velocities are measured: M = L Lᵀ."""

    @abstractmethod
    def apply(self, x: Velocities) -> Velocities:
        """M x."""

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

    def whiten(self, f: Float[Array, "nv *k"]) -> Float[Array, "nv *k"]:
        return self.system.whiten(self.factor, f)

    def unwhiten(self, y: Float[Array, "nv"]) -> Velocities:
        return self.system.unwhiten(self.factor, y)


class PartialMetric(AbstractMetric):
    """Velocities that are `movable` count alike, and the others stay zero."""

    movable: Bool[Array, "nv"]

    def apply(self, x: Velocities) -> Velocities:
        return x

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

        Derivatives are those of the equations, solved with the same factors.
        """

        def product(unknowns: tuple[Array, Array]) -> tuple[Array, Array]:
            x, lam = unknowns
            return self.metric.apply(x) - self.G.T @ lam, -(self.G @ x)

        def solution(_: Any, given: tuple[Array, Array]) -> tuple[Array, Array]:
            f, minus_a = given
            return self._solved(f, -minus_a)

        return jax.lax.custom_linear_solve(
            product, (f, -a), solve=solution, transpose_solve=solution, symmetric=True
        )

    def _solved(self, f: Velocities, a: Float[Array, "ng"]) -> tuple[Array, Array]:
        y0 = self.metric.whiten(f)
        if a.size == 0:
            return self.metric.unwhiten(y0), a
        if isinstance(self.factors, ConstraintFactors):
            y, lam = self.factors.nearest(y0, a)
            return self.metric.unwhiten(y), lam
        cholesky = (self.factors, True)
        lam = jsl.cho_solve(cholesky, a - self.B.T @ y0)
        y = y0 + self.B @ lam
        more = jsl.cho_solve(cholesky, a - self.B.T @ y)
        return self.metric.unwhiten(y + self.B @ more), lam + more

    def holds(
        self,
        solution: tuple[Velocities, Float[Array, "ng"]],
        f: Velocities,
        a: Float[Array, "ng"],
        noise: Float[Array, ""],
    ) -> Bool[Array, ""]:
        """Whether G x = a as far as rounding and the violation of the constraints allow.

        `noise`: size of the numbers of which `a` is made, in its units.
        """
        (x, lam), f, a, noise = frozen((solution, f, a, noise))
        G, length, violation = frozen((self.G, self.length, self.violation))
        eps = float(jnp.finfo(x.dtype).eps)
        part = SLACK * (eps * max(G.shape) + jnp.minimum(violation, eps**0.25))
        # |Lᵀ x|² = x · M x, the equations being satisfied.
        size = jnp.sqrt(jnp.abs(x @ (f + G.T @ lam))) + jnp.linalg.norm(self.metric.whiten(f))
        size = size + jnp.max(jnp.abs(a) / length, initial=0.0)
        return jnp.all(jnp.abs(G @ x - a) <= part * (length * size + noise))

    def unseen(self) -> Float[Array, "nv"]:
        """What part of each velocity, whitened, the constraints leave free, from 0 to 1."""
        if isinstance(self.factors, ConstraintFactors):
            return self.factors.unseen()
        return 1.0 - jnp.sum(self.B * jsl.cho_solve((self.factors, True), self.B.T).T, axis=1)

    def minimum_norm(self, lam: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """The multipliers with the least sum of squares [N, N m] that have the same Gᵀ λ."""
        if not isinstance(self.factors, ConstraintFactors):
            return lam

        def product(unknowns: tuple[Array, Array]) -> tuple[Array, Array]:
            lam, x = unknowns
            return lam - self.G @ x, -(self.G.T @ lam)

        def solution(_: Any, given: tuple[Array, Array]) -> tuple[Array, Array]:
            return self._least(*given)

        given = jnp.zeros_like(lam), -(self.G.T @ lam)
        return jax.lax.custom_linear_solve(
            product, given, solve=solution, transpose_solve=solution, symmetric=True
        )[0]

    def _least(self, of_rows: Float[Array, "ng"], f: Velocities) -> tuple[Array, Array]:
        """λ and x of λ - G x = `of_rows`, -Gᵀ λ = `f`."""
        assert isinstance(self.factors, ConstraintFactors)
        idle, complement = self.factors.idle()
        gram = idle.T @ idle + complement

        def within(lam: Array) -> Array:
            return idle @ solve_spd(gram, idle.T @ lam)

        y0 = self.metric.whiten(-f)
        lam = self.factors.nearest(y0, jnp.zeros_like(of_rows))[1]
        lam = within(of_rows + lam) - lam
        x = self.factors.nearest(jnp.zeros_like(y0), lam - of_rows)[0]
        return lam, self.metric.unwhiten(x)


def saddle_point(
    system: AbstractSystem,
    c: AbstractConfiguration,
    residual: Float[Array, "ng"],
    movable: Bool[Array, "nv"] | None = None,
    rows: np.ndarray | None = None,
    demand: Float[Array, "ng"] | None = None,
) -> SaddlePoint:
    """M and G at a configuration, factored.

    **Arguments:**

    - `residual`: g there, of all rows.
    - `movable`: the velocities that may not be zero, which count alike then, whatever their mass.
    - `rows`: numbers of the constraints, if not all of them.
    - `demand`: what of the right-hand side does not come from g, as in `factor_constraints`.
    """
    redundant = constraints.possibly_redundant(system)
    G = constraints.jacobian(system, c)
    if movable is None:
        metric = KineticMetric(system, c, frozen(system.mass_factor(c)))
    else:
        metric = PartialMetric(movable)
    violation = constraints.violation(c, residual)
    if movable is not None:
        G = jnp.where(movable, G, 0.0)
    B = metric.whiten(G.T)
    length = row_lengths(system, c, B) if movable is None else _norms(B)
    if rows is not None:
        redundant, G, B, length = redundant[rows], G[rows], B[:, rows], length[rows]
    if not redundant.any():
        if not redundant.size:
            return SaddlePoint(metric, G, B, jnp.zeros((0, 0), dtype=B.dtype), length, violation)
        factors = jnp.linalg.cholesky(jax.lax.stop_gradient(B.T @ B))
        return SaddlePoint(metric, G, B, factors, length, violation)
    given = frozen((B, length, violation, demand))
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

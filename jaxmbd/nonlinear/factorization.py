"""Solvers of Newton's linear systems: factorizations that the transposed system reuses."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..programs.tracing import kernel_of, slopes
from .blocks import Blocks, has_effect

if TYPE_CHECKING:
    import lineax as lx

# Equations at fixed arguments, with values and derivatives by generated code where it exists ------

Equations = Callable[[Float[Array, "n"], Any], Float[Array, "n"]]


class Residual:
    """fn(x, args) as a function of x.

    - `fn`: the equations with derivatives by x and by the arguments, possibly as generated code.
    - `is_code`: whether they are generated code. Then values are not computed with derivatives.

    **Arguments:** `as_code`: whether generated code may be used. Default: True.
    """

    def __init__(self, fn: Equations, x: Float[Array, "n"], args: Any, as_code: bool = True):
        code = kernel_of(fn, x, args) if as_code else None
        self.args, self.is_code = args, code is not None
        self.fn: Equations = fn if code is None else code

    def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.fn(x, self.args)

    def derivatives(
        self, x: Float[Array, "n"], directions: Float[Array, "k n"]
    ) -> tuple[Float[Array, "n"] | None, Float[Array, "k n"]]:
        """fn(x), or None for generated code, and derivatives along directions."""
        if self.is_code:
            return None, jax.vmap(lambda dx: jax.jvp(self, (x,), (dx,))[1])(directions)
        return slopes(self, x, directions)


class AbstractLinearization(eqx.Module):
    """A solver of Newton's linear systems, or a choice of one that depends on the unknowns."""

    @abstractmethod
    def select(self, blocks: Blocks) -> "AbstractFactorization":
        """The factorization for unknowns of these kinds."""


class AbstractFactors(eqx.Module):
    """Factors of a Jacobian whose rows are scaled to a largest entry of one.

    - `compliance`: diagonal added to possibly redundant constraints, by the sizes of their
      residuals; None without possibly redundant constraints.
    """

    compliance: eqx.AbstractVar[Float[Array, "n"] | None]

    def missed(self, change: Float[Array, "n"]) -> Float[Array, ""]:
        """Largest constraint residual, by its size, that `compliance` leaves after a change."""
        if self.compliance is None:
            return jnp.zeros((), dtype=change.dtype)
        return jnp.max(jnp.abs(self.compliance * change), initial=0.0)


class AbstractFactorization(AbstractLinearization):
    """Factors the Jacobian of a residual at a point, and solves with the factors.

    - `inlined`: whether generated code of iterations may contain its solutions.
    """

    inlined: ClassVar[bool] = True

    def select(self, blocks: Blocks) -> "AbstractFactorization":
        return self

    def factor(
        self, fn: Residual, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"], AbstractFactors]:
        """fn(x), and factors of ∂fn/∂x there."""
        value, J = self.jacobian(fn, x, blocks)
        return fn(x) if value is None else value, self.factors(J, blocks)

    @abstractmethod
    def jacobian(
        self, fn: Residual, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"] | None, Float[Array, "k n"]]:
        """fn(x), and the entries of J = ∂fn/∂x there, for `product` and `factors`.

        None instead of fn(x) if it is not computed with J.
        """

    @abstractmethod
    def n_entries(self, blocks: Blocks) -> tuple[int, int]:
        """Shape of the entries of J."""

    @abstractmethod
    def product(
        self, J: Float[Array, "k n"], y: Float[Array, "n"], blocks: Blocks
    ) -> Float[Array, "n"]:
        """J y."""

    @abstractmethod
    def factors(self, J: Float[Array, "k n"], blocks: Blocks) -> AbstractFactors:
        """Factors of J.

        Rows `blocks.compliant`, if any, are possibly redundant constraints, with their multipliers
        as unknowns. The factors are then those of a regular matrix close to J.
        """

    def no_factors(self, blocks: Blocks, dtype: Any) -> AbstractFactors:
        """Zeros of the shapes of factors."""
        J = jax.ShapeDtypeStruct(self.n_entries(blocks), dtype)
        shapes = eqx.filter_eval_shape(self.factors, J, blocks)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    @abstractmethod
    def solve(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """Solve J y = b."""

    @abstractmethod
    def solve_transposed(self, factors: Any, b: Float[Array, "n"]) -> Float[Array, "n"]:
        """Solve Jᵀ y = b."""


class DenseFactors(AbstractFactors):
    """Scale of the rows, and the inverse or the state of a lineax solver of the scaled Jacobian."""

    scale: Float[Array, "n"]
    state: Any
    compliance: Float[Array, "n"] | None


class Dense(AbstractFactorization):
    """The full Jacobian by forward-mode differentiation, factored by a solver of lineax.

    Each row is first divided by its largest entry: rows are forces, lengths and angles, and the
    choice of pivots does not depend on their units.

    Possibly redundant constraints get a small compliance: a diagonal of about the square root of
    the float type's precision, relative to its value after eliminating the velocities.

    **Arguments:**

    - `solver`: a solver of lineax. Default: the inverse, by a factorization with pivots. Newton's
      iterations correct its rounding errors, and a solve is one product.
    """

    solver: "lx.AbstractLinearSolver | None" = None

    def jacobian(
        self, fn: Residual, x: Float[Array, "n"], blocks: Blocks
    ) -> tuple[Float[Array, "n"] | None, Float[Array, "n n"]]:
        value, along_all = fn.derivatives(x, jnp.eye(x.size, dtype=x.dtype))
        return value, along_all.T

    def n_entries(self, blocks: Blocks) -> tuple[int, int]:
        return sum(blocks.counts), sum(blocks.counts)

    def product(
        self, J: Float[Array, "n n"], y: Float[Array, "n"], blocks: Blocks
    ) -> Float[Array, "n"]:
        return J @ y

    def factors(self, J: Float[Array, "n n"], blocks: Blocks) -> DenseFactors:
        relative = None
        if blocks.compliant is not None:
            added, relative = _compliances(J, blocks)
            J = J + jnp.diag(added)
        largest = jnp.max(jnp.abs(J), axis=1, initial=0.0)
        scale = 1.0 / jnp.where(largest > 0, largest, 1.0)
        scaled = J * scale[:, None]
        if self.solver is None:
            return DenseFactors(scale, jnp.linalg.inv(scaled), relative)
        import lineax as lx  # Takes long to load, and few use it.

        return DenseFactors(scale, self.solver.init(lx.MatrixLinearOperator(scaled), {}), relative)

    def solve(self, factors: DenseFactors, b: Float[Array, "n"]) -> Float[Array, "n"]:
        if self.solver is None:
            return factors.state @ (factors.scale * b)
        return self.solver.compute(factors.state, factors.scale * b, {})[0]

    def solve_transposed(self, factors: DenseFactors, b: Float[Array, "n"]) -> Float[Array, "n"]:
        scale, state = factors.scale, factors.state
        if self.solver is None:
            return scale * (b @ state)
        transposed, options = self.solver.transpose(state, {})
        # The scaled matrix is S J: Jᵀ x = b has the solution x = S (S J)⁻ᵀ b.
        return scale * self.solver.compute(transposed, b, options)[0]


def _compliances(
    J: Float[Array, "n n"], blocks: Blocks
) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
    first, own = blocks.counts[0], blocks.multipliers
    columns = jnp.arange(first, dtype=jnp.int32)[:, None]
    H = inertias(J[blocks.same_velocity, columns], jnp.diagonal(J)[:first])
    G, B = J[own, :first], J[:first, own].T
    found = compliances(G, B, H[None], blocks.scale[None], blocks, softest(H, blocks))
    zeros = [jnp.zeros(n, J.dtype) for n in (first, blocks.others)]
    added, relative = (jnp.concatenate([zeros[0], x, zeros[1]]) for x in found)
    return added, relative


def inertias(entries: Float[Array, "n s"], diagonal: Float[Array, "n"]) -> Float[Array, "n"]:
    """Size of each column of H, with the sign of the diagonal.

    The diagonal alone is not a size if a step has several nodes: it is zero at the first of the two
    nodes of Radau.

    **Arguments:** `entries`: of each column, in the rows of the same velocity at all nodes.
    """
    return jnp.where(diagonal < 0, -1.0, 1.0) * jnp.max(jnp.abs(entries), axis=1)


def softest(H: Float[Array, "n"], blocks: Blocks) -> Float[Array, ""]:
    """Largest compliance of one velocity, for changes by `Blocks.large`."""
    of_each = 1.0 / jnp.where(H == 0, 1.0, jnp.abs(H)) / blocks.scale**2
    return jnp.max(jnp.where(H == 0, 0.0, of_each), initial=0.0)


def compliances(
    G: Float[Array, "m k"],
    B: Float[Array, "m k"],
    H: Float[Array, "#m k"],
    large: Float[Array, "#m k"],
    blocks: Blocks,
    soft: Float[Array, ""],
) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
    """Diagonal to add for possibly redundant constraints, and the same by sizes of residuals.

    It is relative to the diagonal of the Schur complement -G H⁻¹ B of [[H, B], [G, 0]], as if H
    were diagonal.

    **Arguments:** of the same k velocities for each constraint, `G`: derivatives of the residual;
    `B`: derivatives of the equations of motion by the multiplier; `H`: inertias, and `large`
    changes; `soft`: see `softest`.
    """
    eps = float(jnp.finfo(G.dtype).eps)
    terms = G / jnp.where(H == 0, 1.0, H) * B
    schur = jnp.sum(jnp.abs(terms), axis=1)
    size = jnp.max(jnp.abs(G) * large, axis=1, initial=0.0)
    if blocks.residuals is not None:
        given = jnp.tile(blocks.residuals, len(G) // blocks.residuals.size)
        # Of derivatives that are rounding errors alone, the Schur complement is their square.
        is_row = has_effect(size, given)
        size = jnp.where(is_row, size, given)
        schur = jnp.where(is_row, schur, 0.0)
    size = jnp.where(size > 0, size, 1.0)
    schur = jnp.where(schur > 0, schur, jnp.where(soft > 0, soft, 1.0) * size**2)
    signed = jnp.where(jnp.sum(terms, axis=1) > 0, -schur, schur)
    assert blocks.compliant is not None
    # √ε balances two errors: the compliance itself, and ε by the pivot of a redundant row.
    added = jnp.where(blocks.compliant[blocks.multipliers], eps**0.5 * signed, 0.0)
    return added, added / size

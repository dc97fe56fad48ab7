"""Stability of an equilibrium: eigenvalues of the tangent stiffness on admissible displacements.

N are displacements that all constraints permit, nonholonomic ones included, with Nᵀ M N = 1. K is
the derivative of b - f - Gᵀ λ with constant λ. The eigenvalues of Nᵀ K N are squares of natural
frequencies [1/s²]. First-order states follow the displacement as they do in a slow motion.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..linear import after, eig, general_eig
from ..nonlinear import AbstractFactorization, Blocks, Dense
from ..nonlinear.factorization import Residual
from ..programs.tracing import kernel, stop_gradients
from ..system import constraints
from ..system.abstract import AbstractSystem, State, Time
from ..system.saddle_point import saddle_point
from ..system.tangent_space import tangent_matrices
from .balance import SLOW, Balance, Place, Scales, at_place, equations, parts, stiffness, unknowns

# Derivatives of the eigenvalues at an equilibrium -------------------------------------------------
#
# With a basis Y of the displacements that the constraints permit, G Y = 0 and Yᵀ M Y = 1, the
# eigenvalues are those of A = Yᵀ K Y. With K Y = M Y A + Gᵀ U and Kᵀ Y = M Y Aᵀ + Gᵀ V they have
# the derivatives of
#
#     dA = Yᵀ dK Y - Vᵀ dG Y - (dG Y)ᵀ U - (Yᵀ dM Y) A
#
# The derivatives of K, M and G contain those of the position and of the multipliers of the
# equilibrium.

# Eigenvalues closer than this part of the largest one have the mean of their derivatives.
EQUAL = 1e-8


@eqx.filter_custom_jvp
def with_derivatives(
    eigenvalues: Float[Array, "k"],
    basis: Float[Array, "nv k"],
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
    slow: Float[Array, ""],
) -> Float[Array, "k"]:
    """The eigenvalues, with first derivatives by the system, the time, the state and λ.

    **Arguments:** `basis`, `eigenvalues`: those of a `Stability`; `slow`: the rate at which
    first-order states follow a displacement.

    Derivatives are NaN if the basis is unknown, with a stiffness that is not symmetric on another
    device than a CPU, and second derivatives always.
    """
    return eigenvalues


@with_derivatives.def_jvp
def _derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    values, Y, system, t, state, lam, slow = primals
    known = jnp.any(Y != 0.0, axis=0) & jnp.isfinite(values)
    K_Y, YK, M_Y, G = kernel(_products)(system, t, state, lam, slow, Y)
    A = Y.T @ K_Y
    U = V = jnp.zeros((0, len(values)), A.dtype)
    if G.size:
        both = jnp.concatenate([K_Y - M_Y @ A, YK.T - M_Y @ A.T], axis=1)
        U, V = jnp.split(jnp.linalg.lstsq(G.T, both)[0], 2, axis=1)
    slow = jax.lax.stop_gradient(slow)

    def reduced(system: AbstractSystem, t: Time, state: State, lam: Array) -> Float[Array, "k k"]:
        return kernel(_reduced)(system, t, state, lam, slow, Y, A, U, V)

    dA = eqx.filter_jvp(reduced, (system, t, state, lam), tuple(tangents[2:6]))[1]
    dots = _changes(values, A, dA, known)
    is_finite = jnp.isfinite(values)
    return values, _once(jnp.where(is_finite, jnp.where(known, dots, jnp.nan), 0.0))


def _products(
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
    slow: Float[Array, ""],
    Y: Float[Array, "nv k"],
) -> tuple[Array, Array, Array, Array]:
    """K Y, Yᵀ K, M Y and G."""
    c = system.configuration(t, state.q, state.z)
    K = stiffness_at_rest(system, t, state, lam, slow)
    M_Y = jax.vmap(lambda y: system.apply_mass(c, y), in_axes=1, out_axes=1)(Y)
    return K @ Y, Y.T @ K, M_Y, constraints.jacobian(system, c)


def _reduced(
    system: AbstractSystem,
    t: Time,
    state: State,
    lam: Float[Array, "ng"],
    slow: Float[Array, ""],
    Y: Float[Array, "nv k"],
    A: Float[Array, "k k"],
    U: Float[Array, "ng k"],
    V: Float[Array, "ng k"],
) -> Float[Array, "k k"]:
    """A function of the first arguments with the derivative dA."""
    c = system.configuration(t, state.q, state.z)
    stiffness = stiffness_at_rest(system, t, state, lam, slow)
    at_rest = constraints.rate(system, c, jnp.zeros(system.nv, Y.dtype))

    def one(y: Array) -> tuple[Array, Array]:
        return constraints.rate(system, c, y) - at_rest, system.apply_mass(c, y)

    G_Y, M_Y = jax.vmap(one, in_axes=1, out_axes=1)(Y)
    return Y.T @ stiffness @ Y - V.T @ G_Y - G_Y.T @ U - (Y.T @ M_Y) @ A


def _changes(
    values: Float[Array, "k"],
    A: Float[Array, "k k"],
    dA: Float[Array, "k k"],
    known: Bool[Array, "k"],
) -> Float[Array, "k"]:
    """Changes of the eigenvalues in order for a change of A, or means of clusters."""
    both = known[:, None] & known[None]
    A, dA = jnp.where(both, A, 0.0), jnp.where(both, dA, 0.0)
    largest = jnp.max(jnp.abs(A), initial=0.0)

    def symmetric(dA: Array) -> Array:
        finite = jnp.where(known, values, 0.0)
        same = jnp.abs(finite[:, None] - finite[None]) <= EQUAL * jnp.max(jnp.abs(finite))
        weights = (same & both | jnp.eye(len(values), dtype=bool)).astype(dA.dtype)
        return (weights @ jnp.diag(dA)) / jnp.sum(weights, axis=1)

    def general(dA: Array) -> Array:
        held = jnp.diag(jnp.where(known, 0.0, 10.0 * len(A) * largest))
        found, change = jax.jvp(lambda A: eig(A + held).values, (A,), (dA,))
        return change.real[jnp.argsort(found.real)]

    if not len(values):
        return values
    if jax.default_backend() != "cpu":
        general = lambda dA: jnp.full_like(jnp.diag(dA), jnp.nan)  # noqa: E731
    skew = jnp.max(jnp.abs(A - A.T), initial=0.0)
    return jax.lax.cond(skew <= CIRCULATORY * largest, symmetric, general, dA)


@jax.custom_jvp
def _once(x: Array) -> Array:
    """x, with NaN as its derivative."""
    return x


@_once.defjvp
def _of_once(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return primals[0], jnp.nan * tangents[0]


# Stability of an equilibrium: eigenvalues of the tangent stiffness on admissible displacements

# Eigenvalues below these parts of the mechanism's `rate` and of the largest stiffness are zero.
ZERO, ROUNDING = 1e-6, 1e-11

# Relative asymmetry above which the stiffness has circulatory parts, and the relative imaginary
# part above which they cause flutter.
CIRCULATORY, FLUTTER = 1e-7, 1e-6

# Part of the size of Lanczos' matrix at which the remainder of a vector is rounding errors.
BROKEN = 1e-10

# Largest entry of the matrix of Lanczos' method beyond its three diagonals, relative to the largest
# one, with a symmetric stiffness.
LANCZOS = 1e-9

# With a sparsity pattern: number of lowest eigenvalues, of Lanczos steps, and the shift as a
# multiple of the mechanism's `rate`.
N_LOWEST, N_LANCZOS, SHIFT = 10, 60, 10.0


class Stability(eqx.Module):
    """Eigenvalues at an equilibrium, lowest first, and their directions.

    - `eigenvalues`: shape `(k,)` [1/s²]; infinity for directions that constraints hold.
    - `free`, `unstable`: whether each eigenvalue is zero, and whether it is negative or the
      direction flutters.
    - `imaginary`: imaginary parts of the eigenvalues, zero unless the direction flutters.
    - `directions`: shape `(nv, k)`, in the space of v: eigenvectors, real and imaginary parts of
      complex ones.
    - `duals`: left eigenvectors in columns, shape `(nv, k)`, with dualsᵀ M directions = 1; zero if
      they are not known.
    - `basis`: M-orthonormal directions that span the same space, shape `(nv, k)`: the same as
      `directions` if the stiffness is symmetric.
    """

    eigenvalues: Float[Array, "k"]
    free: Bool[Array, "k"]
    unstable: Bool[Array, "k"]
    imaginary: Float[Array, "k"]
    directions: Float[Array, "nv k"]
    duals: Float[Array, "nv k"]
    basis: Float[Array, "nv k"]

    @property
    def stable(self) -> Bool[Array, ""]:
        """True if no direction is unstable."""
        return ~jnp.any(self.unstable)


def stability(
    system: AbstractSystem,
    t: Time,
    place: Place,
    scales: Scales,
    blocks: Blocks,
    factorization: AbstractFactorization,
) -> Stability:
    """Stability at a place of rest; no derivatives."""
    args = stop_gradients((system, t, place, scales))
    if isinstance(factorization, Dense):
        return _all(*args)
    return _lowest(kernel(_at_rest)(*args), place.lam, scales, blocks, factorization)


def _at_rest(system: AbstractSystem, t: Time, place: Place, scales: Scales) -> Balance:
    """The equations at a place, without inertia."""
    slow = SLOW * jnp.sqrt(scales.rate)
    return at_place(system, t, place, scales, jnp.zeros_like(slow), slow)


class _Symmetric(NamedTuple):
    """Eigenvalues of the symmetric part of a stiffness.

    - `A`: the whitened stiffness, with large eigenvalues of held directions; `largest`, `skew`:
      largest entries of the stiffness and of its antisymmetric part.
    - `values`, `basis`: eigenvalues and eigenvectors; `n_free`: number of directions that are not
      held, those of the lowest eigenvalues.
    - `permitted`: L⁻ᵀ P.
    """

    A: Float[Array, "nv nv"]
    largest: Float[Array, ""]
    skew: Float[Array, ""]
    values: Float[Array, "nv"]
    basis: Float[Array, "nv nv"]
    n_free: Int[Array, ""]
    permitted: Float[Array, "nv nv"]


def _all(system: AbstractSystem, t: Time, place: Place, scales: Scales) -> Stability:
    found = kernel(_symmetric)(system, t, place, scales)
    general = _circulatory(found)
    values, imaginary, right, left = general
    numbers = jnp.arange(system.nv, dtype=jnp.int32)
    values = jnp.where(numbers < found.n_free, values, jnp.inf)
    zero = jnp.maximum(ZERO * scales.rate, ROUNDING * found.largest)
    unstable = (values < -zero) | (imaginary != 0)
    free = jnp.abs(values) <= zero
    return Stability(values, free, unstable, imaginary, right, left, found.basis)


def _symmetric(system: AbstractSystem, t: Time, place: Place, scales: Scales) -> _Symmetric:
    A, P, permitted = _permitted_stiffness(_at_rest(system, t, place, scales), place.lam)
    largest = jnp.max(jnp.abs(A), initial=0.0)
    # Held directions get eigenvalues above all others.
    beyond = 10.0 * system.nv * largest + scales.rate
    unit = jnp.eye(system.nv, dtype=A.dtype)
    n_free = jnp.round(jnp.trace(P)).astype(jnp.int32)
    values, basis = jnp.linalg.eigh(0.5 * (A + A.T) + beyond * (unit - P))
    skew = jnp.max(jnp.abs(A - A.T), initial=0.0)
    A = A + beyond * (unit - P)
    return _Symmetric(A, largest, skew, values, permitted @ basis, n_free, permitted)


def _permitted_stiffness(
    at: Balance, lam: Float[Array, "ng"]
) -> tuple[Float[Array, "nv nv"], Float[Array, "nv nv"], Float[Array, "nv nv"]]:
    """Stiffness of whitened displacements that constraints permit, their projector P, and L⁻ᵀ P."""
    system, c = at.system, at.start
    saddle = saddle_point(system, c, constraints.residual(system, c))
    state = State(at.q, jnp.zeros_like(at.travelled), at.z)
    K = stiffness_at_rest(system, at.t, state, lam, at.state_rate)
    whiten = saddle.metric.whiten
    P = saddle.projector() if saddle.B.size else jnp.eye(system.nv, dtype=K.dtype)
    A = whiten(whiten(K).T).T
    A = P @ A @ P if saddle.B.size else A
    return A, P, jax.vmap(saddle.metric.unwhiten, in_axes=1, out_axes=1)(P)


def stiffness_at_rest(
    system: AbstractSystem, t: Time, state: State, lam: Float[Array, "ng"], slow: Float[Array, ""]
) -> Float[Array, "nv nv"]:
    """K, with first-order states that follow the displacement slowly.

    They solve s z = r_q δ + s r_v δ + r_z z for a rate s that is slow by any scale. States without
    a rate at rest follow the velocity, such as the deflection of bristles.
    """
    if system.nz == 0:
        return stiffness(system, system.configuration(t, state.q, state.z), lam)
    found = tangent_matrices(system, t, state, lam)
    unit = jnp.eye(system.nz, dtype=lam.dtype)
    driven = found.rates_by_position + slow * found.rates_by_velocity
    return found.stiffness + found.states @ jnp.linalg.solve(
        slow * unit - found.rates_by_states, driven
    )


def _circulatory(
    found: _Symmetric,
) -> tuple[Float[Array, "n"], Float[Array, "n"], Float[Array, "n n"], Float[Array, "n n"]]:
    """Real and imaginary parts of the eigenvalues in order, right and left eigenvectors.

    Those of the symmetric part, unless the stiffness has circulatory parts.
    """
    A, values, basis = found.A, found.values, found.basis
    quiet = jnp.zeros_like(values)
    if jax.default_backend() != "cpu":  # The general eigenvalue problem is solved on CPUs only.
        return values, quiet, basis, basis

    def general() -> tuple[Array, Array, Array, Array]:
        roots, _, vectors = general_eig(after(A, basis))
        order = jnp.argsort(roots.real)
        roots, vectors = roots[order], vectors[:, order]
        # Of a pair the first one has the real part of the vector, the second one the imaginary one.
        right = jnp.where(roots.imag[None] < 0, vectors.imag, vectors.real).astype(A.dtype)
        left = jnp.linalg.pinv(right).T
        flutters = jnp.abs(roots.imag) > FLUTTER * found.largest
        imaginary = jnp.where(flutters, roots.imag, 0.0).astype(A.dtype)
        right, left = (found.permitted @ y for y in (right, left))
        return roots.real.astype(A.dtype), imaginary, right, left

    circulates = found.skew > CIRCULATORY * found.largest
    return if_any(circulates, general, (values, quiet, basis, basis))


def _beside(v: Array, V: Array, W: Array) -> Array:
    """The part of v that is orthogonal to the rows of V, with W = M V."""
    # Twice is enough: the second pass removes the rounding errors of the first one.
    for _ in range(2):
        v = v - V.T @ (W @ v)
    return v


def _lowest(
    at: Balance,
    lam: Float[Array, "ng"],
    scales: Scales,
    blocks: Blocks,
    factorization: AbstractFactorization,
) -> Stability:
    """The lowest eigenvalues by Lanczos' method on (K + s M)⁻¹ M, with the sparse factors."""
    system, shift = at.system, SHIFT * scales.rate
    c = at.start
    shifted = eqx.tree_at(lambda b: b.inertia, at, shift)
    x = unknowns(system, lam)
    _, factors = factorization.factor(Residual(equations, x, shifted, as_code=False), x, blocks)
    rest = jnp.zeros_like(lam)
    m = min(N_LANCZOS, system.nv)

    def weight(v: Array) -> Array:
        return system.apply_mass(c, v)

    def inverse(v: Array) -> Array:
        return parts(system, factorization.solve(factors, jnp.concatenate([weight(v), rest])))[0]

    def norm(v: Array) -> Array:
        return jnp.sqrt(jnp.maximum(v @ weight(v), 0.0))

    def fresh(k: Any, V: Array, W: Array) -> Array:
        """A unit vector beside the others; zero if they span all displacements."""
        numbers = jnp.arange(system.nv, dtype=lam.dtype)
        v = inverse(jnp.cos(1.0 + jnp.asarray(k, lam.dtype) + numbers**2))
        size = norm(v)
        v = _beside(v / jnp.where(size > 0, size, 1.0), V, W)
        size = norm(v)
        return jnp.where(size > BROKEN, v, 0.0) / jnp.where(size > BROKEN, size, 1.0)

    def step(k: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        V, W, T = carry  # W = M V.
        v = inverse(V[k])
        column = W @ v
        v = _beside(v, V, W)
        T = T.at[k, :m].set(column[:m])
        size = norm(v)
        # The vectors span an invariant subspace: v is the rounding errors.
        ends = size <= BROKEN * jnp.max(jnp.abs(T), initial=0.0)
        v = jax.lax.cond(ends, lambda: fresh(k, V, W), lambda: v / jnp.where(size > 0, size, 1.0))
        T = T.at[k, k + 1].set(jnp.where(ends, 0.0, size))
        return V.at[k + 1].set(v), W.at[k + 1].set(weight(v)), T

    V = jnp.zeros((m + 1, system.nv), lam.dtype)
    first = fresh(-1, V, V)
    V = V.at[0].set(first)
    W = jnp.zeros_like(V).at[0].set(weight(first))
    V, _, T = jax.lax.fori_loop(0, m, step, (V, W, jnp.zeros((m, m + 1), lam.dtype)))
    H = T[:, :m].T  # Vᵀ M (K + s M)⁻¹ M V, tridiagonal if K is symmetric.
    skew = jnp.max(jnp.abs(jnp.triu(H, 2)), initial=0.0)
    largest = jnp.max(jnp.abs(H), initial=0.0)
    values, imaginary, Y = _of_inverse(H, skew > LANCZOS * largest, shift)
    zero = ZERO * scales.rate
    Y = V[:m].T @ Y
    duals = jnp.where(skew > LANCZOS * largest, 0.0, Y)
    unstable = (values < -zero) | (imaginary != 0)
    return Stability(values, jnp.abs(values) <= zero, unstable, imaginary, Y, duals, duals)


def _of_inverse(
    H: Float[Array, "m m"], circulates: Bool[Array, ""], shift: Float[Array, ""]
) -> tuple[Float[Array, "k"], Float[Array, "k"], Float[Array, "m k"]]:
    """The lowest eigenvalues 1/θ - s, for eigenvalues θ of H, and their vectors.

    Returns real parts, imaginary parts and vectors. Imaginary parts are zero unless a direction
    flutters. Reorthogonalized Lanczos steps are those of Arnoldi's method, so that H is right for
    circulatory forces too.
    """

    def symmetric() -> tuple[Array, Array, Array]:
        theta, Y = jnp.linalg.eigh(0.5 * (H + H.T))
        found = jnp.abs(theta) > 1e-12 * jnp.max(jnp.abs(theta))
        values = jnp.where(found, 1.0 / jnp.where(found, theta, 1.0) - shift, jnp.inf)
        order = jnp.argsort(values)[:N_LOWEST]
        return values[order], jnp.zeros(order.shape, H.dtype), Y[:, order]

    alone = symmetric()
    if jax.default_backend() != "cpu":
        return alone

    def general() -> tuple[Array, Array, Array]:
        theta, _, Y = general_eig(after(H, alone[0]))
        found = jnp.abs(theta) > 1e-12 * jnp.max(jnp.abs(theta))
        inverse = 1.0 / jnp.where(found, theta, 1.0)
        real = jnp.where(found, inverse.real - shift, jnp.inf)
        order = jnp.argsort(real)[:N_LOWEST]
        imaginary = jnp.where(found, inverse.imag, 0.0)[order]
        flutters = jnp.abs(imaginary) > FLUTTER * (jnp.abs(real[order]) + shift)
        Y = jnp.where(imaginary[None] > 0, Y[:, order].imag, Y[:, order].real)
        imaginary = jnp.where(flutters, imaginary, 0.0).astype(H.dtype)
        return real[order].astype(H.dtype), imaginary, Y.astype(H.dtype)

    return if_any(circulates, general, alone)


# Branches for members of a batch: computed if any member takes them -------------------------------

Result = TypeVar("Result")


def if_any(which: Bool[Array, ""], compute: Callable[[], Result], otherwise: Result) -> Result:
    """`compute()` if `which`, else `otherwise`; under `vmap` nothing is computed if no member does.

    `vmap` of `lax.cond` computes both branches for all members. No derivatives in reverse mode.
    """

    def once(carry: tuple[Array, Result]) -> tuple[Array, Result]:
        found = jax.tree.map(lambda a, b: jnp.where(which, a, b), compute(), carry[1])
        return jnp.array(False), found

    return jax.lax.while_loop(lambda c: c[0], once, (eqxi.unvmap_any(which), otherwise))[1]

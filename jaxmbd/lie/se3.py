"""Rigid motions: poses, twists, wrenches and the maps between their frames.

`Pose(p, R)` is X_AB: position `p` of B's origin in A and rotation `R` whose columns are B's axes
in A. Twists are `V = [v, ω]` and wrenches `W = [f, τ]`, linear part first.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..programs.tracing import inlined_jit
from . import series, so3

Twist = Float[Array, "6"]
Wrench = Float[Array, "6"]


class Pose(eqx.Module):
    """Position `p` [m], shape `(..., 3)`, and rotation matrix `R`, shape `(..., 3, 3)`.

    The methods take one pose; use `jax.vmap` for several.
    """

    p: Float[Array, "*batch 3"]
    R: Float[Array, "*batch 3 3"]

    @staticmethod
    def identity() -> "Pose":
        """The identity: the pose of a frame in itself."""
        return Pose(jnp.zeros(3), jnp.eye(3))

    @inlined_jit
    def __matmul__(self, other: "Pose") -> "Pose":
        """X_AC = X_AB @ X_BC."""
        return Pose(self.p + self.R @ other.p, self.R @ other.R)

    def inverse(self) -> "Pose":
        """X_BA of X_AB."""
        return Pose(-(self.R.T @ self.p), self.R.T)

    def apply(self, point: Float[Array, "3"]) -> Float[Array, "3"]:
        """Coordinates in A of a point given in B."""
        return self.p + self.R @ point


@inlined_jit
def between(X_WA: Pose, X_WB: Pose) -> Pose:
    """X_AB from two poses in one frame."""
    return Pose(X_WA.R.T @ (X_WB.p - X_WA.p), X_WA.R.T @ X_WB.R)


@inlined_jit
def transform_twist(X_AB: Pose, V: Twist) -> Twist:
    """Ad(X_AB) V: the twist expressed and taken at A, from `V` expressed and taken at B."""
    omega = X_AB.R @ V[3:]
    return jnp.concatenate([X_AB.R @ V[:3] + so3.cross(X_AB.p, omega), omega])


@inlined_jit
def transform_twist_back(X_AB: Pose, V: Twist) -> Twist:
    """Ad(X_AB)⁻¹ V: the twist expressed and taken at B, from `V` expressed and taken at A."""
    linear = V[:3] - so3.cross(X_AB.p, V[3:])
    return jnp.concatenate([X_AB.R.T @ linear, X_AB.R.T @ V[3:]])


@inlined_jit
def transform_wrench(X_AB: Pose, W: Wrench) -> Wrench:
    """Ad(X_AB)⁻ᵀ W: the wrench expressed and taken at A, from `W` expressed and taken at B."""
    force = X_AB.R @ W[:3]
    return jnp.concatenate([force, X_AB.R @ W[3:] + so3.cross(X_AB.p, force)])


@inlined_jit
def transform_wrench_back(X_AB: Pose, W: Wrench) -> Wrench:
    """Ad(X_AB)ᵀ W: the wrench expressed and taken at B, from `W` expressed and taken at A."""
    moment = W[3:] - so3.cross(X_AB.p, W[:3])
    return jnp.concatenate([X_AB.R.T @ W[:3], X_AB.R.T @ moment])


@inlined_jit
def adjoint(X: Pose) -> Float[Array, "6 6"]:
    """Ad(X), the matrix of `transform_twist`."""
    pR = so3.hat(X.p) @ X.R
    return jnp.block([[X.R, pR], [jnp.zeros_like(pR), X.R]])


@inlined_jit
def cross_twist(V: Twist, U: Twist) -> Twist:
    """ad(V) U: rate of a twist `U` that is constant in a frame with the twist `V`."""
    v, w = V.reshape(2, 3)
    linear, angular = so3.cross(w[None], U.reshape(2, 3))
    return jnp.concatenate([linear + so3.cross(v, U[3:]), angular])


@inlined_jit
def cross_wrench(V: Twist, W: Wrench) -> Wrench:
    """-ad(V)ᵀ W: rate of a wrench (or momentum) `W` that is constant in a frame of twist `V`."""
    v, w = V.reshape(2, 3)
    force, moment = so3.cross(w[None], W.reshape(2, 3))
    return jnp.concatenate([force, moment + so3.cross(v, W[:3])])


@inlined_jit
def exp(V: Twist) -> Pose:
    """Exponential: the pose after unit time at the constant body twist `V`."""
    rho, phi = V[:3], V[3:]
    x = phi @ phi
    W = so3.hat(phi)
    A = jnp.eye(3, dtype=V.dtype) + series.versine(x) * W + series.cubic(x) * (W @ W)
    return Pose(A @ rho, so3.exp_matrix(phi))


@inlined_jit
def displaced(x: Float[Array, "7"], delta: Twist) -> Float[Array, "7"]:
    """X exp(δ) of a position and a quaternion x, with fewer operations than `retract`.

    The quaternion keeps its length.
    """
    rho, phi = delta[:3], delta[3:]
    square = phi @ phi
    half = series.sinc(0.25 * square)
    product = so3.cross(phi, rho)
    # (1 - cos θ) / θ² is half the square of sin(θ/2) / (θ/2).
    p = rho + 0.5 * half * half * product + series.cubic(square) * so3.cross(phi, product)
    turn = jnp.concatenate([series.cos_theta(0.25 * square)[None], 0.5 * half * phi])
    return jnp.concatenate([x[:3] + so3.to_matrix(x[3:]) @ p, so3.multiply(x[3:], turn)])


@inlined_jit
def retract(X: Pose, delta: Twist) -> Pose:
    """X exp(δ): the pose displaced by the body twist increment `delta`."""
    return X @ exp(delta)


@inlined_jit
def rate(X: Pose, V: Twist) -> Pose:
    """Ẋ of a pose with the body twist `V`; a tangent, not a pose."""
    return Pose(X.R @ V[:3], X.R @ so3.hat(V[3:]))


@inlined_jit
def velocity(X: Pose, X_dot: Pose) -> Twist:
    """Body twist of a pose with the rate Ẋ: `V̂ = X⁻¹ Ẋ`."""
    return jnp.concatenate([X.R.T @ X_dot.p, so3.vee(X.R.T @ X_dot.R)])

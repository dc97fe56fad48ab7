"""Uniform gravity."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import AbstractBody, RigidBody
from ..lie import Pose, so3
from ..model.values import as_leaf
from .abstract import AbstractField, Time


class Gravity(AbstractField):
    """Weight of every body; the potential energy is zero at the origin of the world.

    **Arguments:** `g`: acceleration of free fall in the world, shape `(3,)` [m/s²]. Default:
    `[0, 0, -9.81]`.
    """

    g: Float[Array, "3"]

    def __init__(self, g: Any = (0.0, 0.0, -9.81)):
        self.g = as_leaf(g, (3,), "Gravity: g")

    def wrench(
        self, t: Time, body: RigidBody, X_WB: Pose, V: Float[Array, "6"]
    ) -> Float[Array, "6"]:
        weight = body.mass * (X_WB.R.T @ self.g)
        return jnp.concatenate([weight, so3.cross(body.com, weight)])

    def potential(self, t: Time, body: RigidBody, X_WB: Pose) -> Float[Array, ""]:
        return -body.mass * (self.g @ X_WB.apply(body.com))

    def load_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, V: Float[Array, "6"], eta: Float[Array, "k"]
    ) -> Float[Array, "6+k"]:
        """Generalized weight: the momentum if all points have the velocity g."""
        uniform = jnp.concatenate([X_WB.R.T @ self.g, jnp.zeros(3 + body.n_elastic, V.dtype)])
        return jax.grad(lambda u: body.kinetic_energy(eta, u[:6], u[6:]))(uniform)

    def potential_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, eta: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """-m g · p of the centre of mass; the kinetic energy gives m and the first moments."""
        zeros = jnp.zeros_like(eta)

        def momentum(V: Float[Array, "6"]) -> Float[Array, "6"]:
            return jax.grad(lambda V: body.kinetic_energy(eta, V, zeros))(V)

        g = X_WB.R.T @ self.g
        weight = momentum(jnp.concatenate([g, jnp.zeros_like(g)]))[:3]
        # The momentum at the angular velocity ω is ω × m c, so that along g it is m c × g · ω.
        linear = jax.vmap(lambda w: momentum(jnp.concatenate([jnp.zeros(3, g.dtype), w]))[:3])
        H = linear(jnp.eye(3, dtype=g.dtype))  # Row i: e_i × m c.
        first = jnp.stack([H[2, 1], H[0, 2], H[1, 0]])
        return -(X_WB.p @ (X_WB.R @ weight)) - first @ g


__all__ = ["Gravity"]

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
    """Weight of every body.

    **Arguments:** `g`: acceleration of free fall in the world, shape `(3,)` [m/s²];
    `[0, 0, -9.81]` where it is left out. The potential energy is zero at the world's origin.
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
        """The momentum at velocities g of all points: gravity acts as an acceleration does."""
        falling = jnp.concatenate([X_WB.R.T @ self.g, jnp.zeros(3 + body.n_elastic, V.dtype)])
        return jax.grad(lambda u: body.kinetic_energy(eta, u[:6], u[6:]))(falling)

    def potential_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, eta: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """-m g · p of the centre of mass, m and the first moments from the kinetic energy."""
        still = jnp.zeros_like(eta)

        def momentum(V: Float[Array, "6"]) -> Float[Array, "6"]:
            return jax.grad(lambda V: body.kinetic_energy(eta, V, still))(V)

        g = X_WB.R.T @ self.g
        weight = momentum(jnp.concatenate([g, jnp.zeros_like(g)]))[:3]
        # The momentum at the angular velocity ω is ω × m c, so that along g it is m c × g · ω.
        turned = jax.vmap(lambda w: momentum(jnp.concatenate([jnp.zeros(3, g.dtype), w]))[:3])
        H = turned(jnp.eye(3, dtype=g.dtype))  # Row i: e_i × m c.
        first = jnp.stack([H[2, 1], H[0, 2], H[1, 0]])
        return -(X_WB.p @ (X_WB.R @ weight)) - first @ g


__all__ = ["Gravity"]

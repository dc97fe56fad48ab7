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

    For example:

        gravity = forces.Gravity([0, 0, -1.62])
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
        return body.momentum_at_uniform_velocity(eta, X_WB.R.T @ self.g)

    def potential_of_body(
        self, t: Time, body: AbstractBody, X_WB: Pose, eta: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """-m g · p of the centre of mass; momenta at uniform velocities give m and m c."""
        g = X_WB.R.T @ self.g

        def momentum(velocity: Float[Array, "3"]) -> Float[Array, "6"]:
            return body.momentum_at_uniform_velocity(eta, velocity)[:6]

        weight = momentum(g)[:3]
        H = jax.vmap(momentum)(jnp.eye(3, dtype=g.dtype))[:, 3:]  # Row i: m c × e_i.
        first = jnp.stack([H[1, 2], H[2, 0], H[0, 1]])
        return -(X_WB.p @ (X_WB.R @ weight)) - first @ g

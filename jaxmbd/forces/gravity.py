"""Uniform gravity."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
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


__all__ = ["Gravity"]

"""Inertia of bodies and of subtrees, about one point along the world's axes."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...bodies import RigidBody
from ...lie import Pose, so3


class WorldInertia(eqx.Module):
    """Mass, first moment `h = m c` and rotational inertia `J` about the reference point.

    The three are linear in the mass distribution: the inertia of a subtree is their sum.
    """

    mass: Float[Array, "*n"]
    h: Float[Array, "*n 3"]
    J: Float[Array, "*n 3 3"]

    def momentum(self, V: Float[Array, "6"]) -> Float[Array, "6"]:
        """Inertia times world twist, for one body."""
        linear = self.mass * V[:3] + so3.cross(V[3:], self.h)
        angular = self.J @ V[3:] + so3.cross(self.h, V[:3])
        return jnp.concatenate([linear, angular])

    def momentum_terms(self, V: Float[Array, "6"]) -> Float[Array, "6"]:
        """Sums of the absolute terms of `momentum`, for a twist without negative entries."""
        H = jnp.abs(so3.hat(self.h))
        linear = self.mass * V[:3] + H @ V[3:]
        return jnp.concatenate([linear, jnp.abs(self.J) @ V[3:] + H @ V[:3]])


def world_inertia(bodies: RigidBody, X: Pose) -> WorldInertia:
    """Inertia of every body at its pose."""

    def one(body: RigidBody, X: Pose) -> WorldInertia:
        c = X.apply(body.com)
        about_com = X.R @ body.symmetric_inertia() @ X.R.T
        C = so3.hat(c)
        J = symmetric(about_com - body.mass * (C @ C))
        return WorldInertia(body.mass, body.mass * c, J)

    return jax.vmap(one)(bodies, X)


def symmetric(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The symmetric matrix with the upper triangle of A."""
    return jnp.triu(A) + jnp.triu(A, 1).T


def flatten(inertia: WorldInertia) -> Float[Array, "n 13"]:
    """The entries of stacked inertias as rows, for sums over subtrees."""
    n = inertia.mass.shape[0]
    return jnp.concatenate([inertia.mass[:, None], inertia.h, inertia.J.reshape(n, 9)], axis=1)


def unflatten(rows: Float[Array, "n 13"]) -> WorldInertia:
    """Inverse of `flatten`."""
    return WorldInertia(rows[:, 0], rows[:, 1:4], rows[:, 4:].reshape(-1, 3, 3))

"""Accelerations of a tree by articulated bodies: the cost grows as the number of bodies does.

Featherstone (2008), "Rigid Body Dynamics Algorithms", section 7.3, along the world's axes and about
its origin, where nothing has to be transformed from body to body. Every velocity counts as a joint
of its own: in between stand bodies without mass.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...lie import so3
from .inertia import WorldInertia
from .tree_recursion import TreeRecursion


class Articulated(NamedTuple):
    """What moves beyond each velocity, as far as accelerations depend on it.

    - `H`: world twist of a unit of each velocity.
    - `inertia`: of the bodies that move with a velocity and with none after it, as matrices.
    - `rotors`: what rotors behind gears add to the inertia of each velocity.
    """

    recursion: TreeRecursion
    H: Float[Array, "nv 6"]
    inertia: Float[Array, "nv 6 6"]
    rotors: Float[Array, "nv"]

    def accelerations(
        self,
        force: Float[Array, "nv"],
        wrenches: Float[Array, "nv 6"] | None = None,
        products: Float[Array, "nv 6"] | None = None,
    ) -> Float[Array, "nv"]:
        """v̇ of a force on each velocity, and of what is given beside the inertia matrices.

        **Arguments:**

        - `wrenches`: applied ones less rates of momentum at constant twists.
        - `products`: what each velocity adds to the rate of the world twist at v̇ = 0.
        """
        still = jnp.zeros_like(self.H)
        wrenches = still if wrenches is None else wrenches
        products = still if products is None else products
        none = jnp.zeros_like(self.inertia[0]), still[0]
        own = self.H, self.inertia, self.rotors, force, wrenches, products
        U, D, u = self.recursion.backward(_backward, none, own)

        def forward(above: tuple[Array, Array], own: tuple[Array, ...]) -> tuple[Array, Array]:
            S, c, U, D, u = own
            carried = above[0] + c
            vdot = (u - U @ carried) / D
            return carried + vdot * S, vdot

        root = still[0], jnp.zeros_like(force[0])
        return self.recursion.forward(forward, root, (self.H, products, U, D, u))[1]


def _backward(
    carried: tuple[Array, Array], own: tuple[Array, ...]
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """Inertia and wrench that a velocity hands on to the one before it."""
    S, inertia, rotor, force, wrench, c = own
    A, p = carried[0] + inertia, carried[1] - wrench
    U = A @ S
    D = S @ U + rotor
    u = force - S @ p
    handed = A - (U / D)[:, None] * U[None, :]
    return (handed, p + handed @ c + (u / D) * U), (U, D, u)


def as_matrix(inertia: WorldInertia) -> Float[Array, "6 6"]:
    """Momentum of a body by its world twist."""
    H = so3.hat(inertia.h)
    linear = jnp.concatenate([inertia.mass * jnp.eye(3, dtype=H.dtype), -H], axis=1)
    return jnp.concatenate([linear, jnp.concatenate([H, inertia.J], axis=1)])


__all__ = ["Articulated", "as_matrix"]

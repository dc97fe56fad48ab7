"""Accelerations of a tree by the articulated-body algorithm, at a cost linear in its bodies.

Featherstone (2008), "Rigid Body Dynamics Algorithms", section 7.3, along the world's axes and about
one point, so that no transformations between bodies are needed. Every velocity counts as a
joint of its own, with massless bodies between the joints.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .tree_recursion import TreeRecursion

# Pivots up to this multiple of the machine epsilon, relative to the inertia of all bodies that the
# velocity moves, are rounding errors, may be negative, and accelerations are off by 20 % and more:
# in float32 with bodies that are 1e7 times as heavy as six or more links before them, or with
# hundreds of links.
MIN_PIVOT = 3.0


class Refined(NamedTuple):
    """Accelerations after a step of iterative refinement.

    - `rates`: rates of world twists after each velocity, before the step; `changes`: what the step
      adds to them.
    """

    vdot: Float[Array, "nv"]
    rates: Float[Array, "nv 6"]
    changes: Float[Array, "nv 6"]


class Articulated(NamedTuple):
    """Inertias of a tree, by velocities.

    - `H`: world twist per unit of each velocity.
    - `inertia`: inertia matrices of the bodies whose last degree of freedom is this velocity.
    - `rotors`: inertias of rotors behind gears, for each velocity.
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
        """v̇ from a force on each velocity; NaN if pivots consist of rounding errors.

        **Arguments:**

        - `wrenches`: applied wrenches minus rates of momentum at constant twists. Default: zero.
        - `products`: contribution of each velocity to the rate of the world twist at v̇ = 0.
          Default: zero.
        """
        return self._solve(force, wrenches, products)[0]

    def refined(
        self,
        force: Float[Array, "nv"],
        wrenches: Float[Array, "nv 6"],
        products: Float[Array, "nv 6"],
        momenta: Callable[[Float[Array, "nv 6"]], Float[Array, "nv 6"]],
    ) -> Refined:
        """v̇ by one step of iterative refinement, which costs half as much as the recursion itself.

        **Arguments:** as of `accelerations`, and `momenta`: those of the bodies, by velocities, at
        the world twists of all velocities.
        """
        vdot, rates, (U, inverse) = self._solve(force, wrenches, products)
        required = momenta(rates) - wrenches

        def backward(beyond: Array, own: tuple[Array, ...]) -> tuple[Array, Array]:
            S, U, inverse, left, required = own
            p = beyond + required
            u = left - S @ p
            return p + (u * inverse) * U, u

        left = force - self.rotors * vdot
        own = self.H, U, inverse, left, required
        u = self.recursion.backward(backward, jnp.zeros_like(self.H[0]), own)
        change, changes = self._forward(jnp.zeros_like(self.H), U, inverse, u)
        return Refined(vdot + change, rates, changes)

    def _solve(
        self,
        force: Float[Array, "nv"],
        wrenches: Float[Array, "nv 6"] | None,
        products: Float[Array, "nv 6"] | None,
    ) -> tuple[Float[Array, "nv"], Float[Array, "nv 6"], tuple[Array, Array]]:
        """v̇, rates of world twists after each velocity, and (U, 1/D)."""
        zeros = jnp.zeros_like(self.H)
        wrenches = zeros if wrenches is None else wrenches
        products = zeros if products is None else products
        nothing = jnp.zeros_like(force[0])
        tip = jnp.zeros_like(self.inertia[0]), zeros[0], (nothing, nothing)
        own = self.H, self.inertia, self.rotors, force, wrenches, products
        U, inverse, u = self.recursion.backward(_backward, tip, own)
        return *self._forward(products, U, inverse, u), (U, inverse)

    def _forward(
        self,
        products: Float[Array, "nv 6"],
        U: Float[Array, "nv 6"],
        inverse: Float[Array, "nv"],
        u: Float[Array, "nv"],
    ) -> tuple[Float[Array, "nv"], Float[Array, "nv 6"]]:
        """v̇, and rates of world twists after each velocity."""

        def forward(above: tuple[Array, Array], own: tuple[Array, ...]) -> tuple[Array, Array]:
            S, c, U, inverse, u = own
            A = above[0] + c
            vdot = (u - U @ A) * inverse
            return A + vdot * S, vdot

        root = jnp.zeros_like(self.H[0]), jnp.zeros_like(u[0])
        rates, vdot = self.recursion.forward(forward, root, (self.H, products, U, inverse, u))
        return vdot, rates


def _backward(
    beyond: tuple[Array, Array, tuple[Array, Array]], own: tuple[Array, ...]
) -> tuple[tuple[Array, Array, tuple[Array, Array]], tuple[Array, Array, Array]]:
    """Contributions of inertia and wrench to the parent of a velocity, and U, 1/D, u."""
    S, inertia, rotor, force, wrench, c = own
    A, p = beyond[0] + inertia, beyond[1] - wrench
    # Mass and trace of the moments of inertia of all bodies that the velocity moves.
    mass = beyond[2][0] + inertia[0, 0]
    moments = beyond[2][1] + (inertia[3, 3] + inertia[4, 4] + inertia[5, 5])
    U = A @ S
    D, least = S @ U + rotor, _least_pivot(S, mass, moments)
    inverse = 1.0 / jnp.where(least < D, D, jnp.nan)
    u = force - S @ p
    # In this order of products, generated code computes the entries beside the diagonal once.
    reduced = A - inverse * (U[:, None] * U[None, :])
    return (reduced, p + reduced @ c + (u * inverse) * U, (mass, moments)), (U, inverse, u)


def _least_pivot(S: Float[Array, "6"], mass: Array, moments: Array) -> Array:
    eps = float(jnp.finfo(S.dtype).eps)
    return MIN_PIVOT * eps * (mass * (S[:3] @ S[:3]) + moments * (S[3:] @ S[3:]))


def least_pivots(
    S: Float[Array, "n 6"], mass: Float[Array, "n"], J: Float[Array, "n 3 3"]
) -> Float[Array, "n"]:
    """Pivots of the mass matrix up to which they consist of rounding errors.

    **Arguments:** mass and moments of inertia of all bodies that each velocity moves.
    """
    return jax.vmap(_least_pivot)(S, mass, jnp.trace(J, axis1=1, axis2=2))

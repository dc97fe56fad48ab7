"""Two poles that attract each other, for example two magnets or two masses."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.extend import AbstractFrameForce, as_frame, as_leaf, is_concrete


class Attraction(AbstractFrameForce):
    """A force k / (d² + a²) along the line between two frames that are d apart, d ≫ a.

    **Arguments:** `strength`, k [N m²], and `core`, a [m], which keeps the force smooth at d = 0.
    """

    north: mbd.Frame
    south: mbd.Frame
    strength: Float[Array, ""]
    core: Float[Array, ""]

    def __init__(self, north: Any, south: Any, strength: Any, core: Any):
        self.north = as_frame(north, "Attraction: north")
        self.south = as_frame(south, "Attraction: south")
        self.strength = as_leaf(strength, (), "Attraction: strength")
        self.core = as_leaf(core, (), "Attraction: core")

    def validate(self):
        """Called by `Model`, which adds the name of the force to the message."""
        if is_concrete(self.core) and not self.core > 0:
            return f"core must be positive, got {self.core}"
        return None

    def wrenches(self, t, X, V):
        d = X.p[1] - X.p[0]
        pull = self.strength * d / (d @ d + self.core**2) ** 1.5
        # Each along the axes of its own frame; through the origins, so without moment.
        forces = jnp.stack([X.R[0].T @ pull, -(X.R[1].T @ pull)])
        return jnp.concatenate([forces, jnp.zeros_like(forces)], axis=1)

    def potential(self, t, X):
        d = X.p[1] - X.p[0]
        return -self.strength / jnp.sqrt(d @ d + self.core**2)


def checks():
    """What a test of it looks like."""
    force = Attraction("ball", mbd.Frame("ground", [0, 0, 1.0]), 2.0, core=0.05)
    mbd.testing.check_frame_force(force, jax.random.key(0), passive=True)

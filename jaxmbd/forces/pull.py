"""Forces along the line between the origins of two frames."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose, vector


class Line(NamedTuple):
    """The line from the first frame to the second, in the world.

    - `d`: vector from origin to origin [m].
    - `u`: its direction, zero if the origins coincide.
    - `lengthening`: rate of its length [m/s].
    """

    d: Float[Array, "3"]
    u: Float[Array, "3"]
    lengthening: Float[Array, ""]


def line_between(X: Pose, V: Float[Array, "2 6"]) -> Line:
    """The line between two frames with poses `X` and twists `V`, each along its own axes."""
    d = X.p[1] - X.p[0]
    u = vector.direction(d)
    return Line(d, u, u @ (X.R[1] @ V[1, :3] - X.R[0] @ V[0, :3]))


def wrenches_of_pull(X: Pose, pull: Float[Array, "3"]) -> Float[Array, "2 6"]:
    """Wrenches [N, N m] of the force `pull` on the first frame and `-pull` on the second one."""
    zeros = jnp.zeros_like(pull)
    return jnp.stack(
        [
            jnp.concatenate([X.R[0].T @ pull, zeros]),
            jnp.concatenate([-(X.R[1].T @ pull), zeros]),
        ]
    )

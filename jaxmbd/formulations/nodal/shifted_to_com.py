"""Body frames at the centres of mass."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp

from ...lie import Pose
from ...mechanism.float_types import in_float_type
from ...mechanism.mechanism import Mechanism
from ...mechanism.rows import Rows


def shifted_to_com(mechanism: Mechanism) -> Mechanism:
    """The mechanism with the frame of every body moved to its centre of mass.

    Elements have a node at the centre of mass, so that weight acts at a node. The original frames
    of the bodies become attached ports with the names of the bodies.
    """
    (group,) = mechanism.bodies
    n, bodies = mechanism.n_bodies, mechanism.rigid
    at_com = jnp.concatenate([jnp.zeros((1, 3), dtype=bodies.com.dtype), bodies.com])
    axes = jnp.broadcast_to(jnp.eye(3, dtype=bodies.com.dtype), (n, 3, 3))
    own = in_float_type(Pose(-bodies.com, axes), mechanism.dtype)
    shifted = mechanism.offsets.p - mechanism.port_bodies.take(at_com)
    others = eqx.tree_at(lambda frame: frame.p, mechanism.offsets, shifted)
    offsets = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), others, own)
    names = mechanism.port_names
    return replace(
        mechanism,
        bodies=(eqx.tree_at(lambda group: group.body.com, group, jnp.zeros_like(bodies.com)),),
        offsets=offsets,
        port_bodies=Rows.of([*mechanism.port_bodies.index, *range(1, n + 1)]),
        port_names=(names[0], *[None] * n, *names[n + 1 :], *names[1 : n + 1]),
    )

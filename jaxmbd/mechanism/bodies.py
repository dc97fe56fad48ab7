"""Bodies of one kind, stacked: inertia, elastic forces, and frames that move in bodies."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..bodies import AbstractBody, RigidBody
from ..lie import Pose
from .float_types import float_type
from .index_sets import IndexSet


class BodyGroup(eqx.Module):
    """Bodies of one kind, stacked along a leading axis.

    - `rows`: rows of the bodies among all bodies, without the ground.
    - `n_elastic`: number of elastic coordinates of each body; `first`: index of the first one of
      the group among the elastic coordinates of all bodies. The others of the group follow.
    - `ports`: rows of the frames on these bodies, among all attached frames; `carriers`: for each
      of these frames, the row of its body within the group; `nodes`: the row of its node, or -1.
    """

    body: AbstractBody
    names: tuple[str, ...] = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)
    n_elastic: int = eqx.field(static=True)
    first: int = eqx.field(static=True)
    ports: IndexSet = eqx.field(static=True)
    carriers: IndexSet = eqx.field(static=True)
    nodes: IndexSet = eqx.field(static=True)

    def own(self, x: Float[Array, "n_elastic"]) -> Float[Array, "n k"]:
        """The part of the elastic coordinates of all bodies, or of their rates, of this group."""
        n, k = len(self.names), self.n_elastic
        return x[self.first : self.first + n * k].reshape(n, k)

    def offsets(self, offsets: Pose, eta: Float[Array, "n_elastic"]) -> Pose:
        """Poses of frames relative to these bodies at η, given the poses `offsets` at η = 0."""
        return jax.vmap(lambda body, node, X, eta: body.frame_at_node(node, X, eta))(
            *self._frames(offsets), self.carriers.take(self.own(eta))
        )

    def offset_twists(
        self, offsets: Pose, eta: Float[Array, "n_elastic"], rates: Float[Array, "n_elastic"]
    ) -> Float[Array, "n 6"]:
        """Twists of frames relative to these bodies, along the axes of the frames."""
        own = (self.carriers.take(self.own(x)) for x in (eta, rates))
        return jax.vmap(lambda body, node, X, *x: body.twist_at_node(node, X, *x))(
            *self._frames(offsets), *own
        )

    def _frames(self, offsets: Pose) -> tuple[AbstractBody, Int[Array, "n"], Pose]:
        """Body, node and undeformed pose of each frame on these bodies."""
        bodies = self.carriers.take_tree(self.body)
        return bodies, jnp.asarray(self.nodes.array), self.ports.take_tree(offsets)


def rigid_part(body: AbstractBody) -> RigidBody:
    """The rigid body with the kinetic energy of a body at η = 0 and η̇ = 0."""
    eta = jnp.zeros(body.n_elastic, float_type(body))
    inertia = body.mass_matrix(eta)[:6, :6]
    mass = inertia[0, 0]
    com = jnp.stack([inertia[1, 5], inertia[2, 3], inertia[0, 4]]) / mass
    outer = com @ com * jnp.eye(3, dtype=com.dtype) - jnp.outer(com, com)
    return RigidBody(mass, inertia[3:, 3:] - mass * outer, com)


def required_force(
    body: AbstractBody, eta: Float[Array, "k"], u: Float[Array, "6+k"], u_dot: Float[Array, "6+k"]
) -> Float[Array, "6+k"]:
    """Force on (V, η̇) that the motion of a body requires, with elastic forces and damping."""
    force = body.inertial_force(eta, u, u_dot)
    return jnp.concatenate([force[:6], force[6:] + body.internal_force(eta, u[6:])])

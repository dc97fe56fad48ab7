"""The interface of kinds of bodies: kinetic energy, and poses of frames on a body."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import ModelError
from ..lie import Pose, se3


class AbstractBody(eqx.Module):
    """A body with a frame of reference and k elastic coordinates η.

    Its velocities are the twist V of its frame along the frame's own axes, and η̇. The equations
    follow from the kinetic energy T(η, V, η̇), the elastic energy U(η) and the damping force:

        d/dt ∂T/∂V + V ×* ∂T/∂V = W,   d/dt ∂T/∂η̇ - ∂T/∂η + ∂U/∂η + d(η, η̇) = Q

    A kind of body with elastic coordinates defines `n_elastic`, `kinetic_energy` and `frame`, and
    if it has them, `elastic_energy` and `damping_force`. The methods for momentum, mass matrix and
    inertial force differentiate the kinetic energy; a kind may define them in a faster way.
    """

    @property
    def n_elastic(self) -> int:
        """k, a function of shapes and static fields. Default: zero."""
        return 0

    @abstractmethod
    def kinetic_energy(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, ""]:
        """Kinetic energy T [J], quadratic in the velocities."""

    def momentum(self, eta: Float[Array, "k"], u: Float[Array, "6+k"]) -> Float[Array, "6+k"]:
        """∂T/∂(V, η̇) at the velocities u = (V, η̇); linear in them."""
        return jax.grad(lambda u: self.kinetic_energy(eta, u[:6], u[6:]))(u)

    def momentum_at_uniform_velocity(
        self, eta: Float[Array, "k"], velocity: Float[Array, "3"]
    ) -> Float[Array, "6+k"]:
        """`momentum` if all points have the same velocity, along the axes of the body."""
        rest = jnp.zeros(3 + self.n_elastic, dtype=velocity.dtype)
        return self.momentum(eta, jnp.concatenate([velocity, rest]))

    def mass_matrix(self, eta: Float[Array, "k"]) -> Float[Array, "6+k 6+k"]:
        """Mass matrix for the velocities (V, η̇)."""
        zeros = jnp.zeros(6 + self.n_elastic, dtype=eta.dtype)
        return jax.jacfwd(lambda u: self.momentum(eta, u))(zeros)

    def inertial_force(
        self, eta: Float[Array, "k"], u: Float[Array, "6+k"], u_dot: Float[Array, "6+k"]
    ) -> Float[Array, "6+k"]:
        """Force on (V, η̇) that the velocities u and their rates require, by inertia only."""
        p, p_dot = jax.jvp(self.momentum, (eta, u), (u[6:], u_dot))
        by_eta = jax.grad(lambda eta: self.kinetic_energy(eta, u[:6], u[6:]))(eta)
        on_frame = p_dot[:6] + se3.cross_wrench(u[:6], p[:6])
        return jnp.concatenate([on_frame, p_dot[6:] - by_eta])

    def frame(self, offset: Pose, eta: Float[Array, "k"]) -> Pose:
        """Pose at η of a frame on the body whose pose at η = 0 is `offset`, in the body's frame.

        Default: `offset`, for bodies that do not deform where frames are attached.
        """
        return offset

    def node_row(self, node: str | int | None) -> int:
        """Row of the node that a frame on the body names. Default: -1, for bodies without nodes.

        **Raises** `ModelError` for a node that the body does not have, and for None if all frames
        on the body must name a node.
        """
        if node is not None:
            raise ModelError(
                f"{type(self).__name__} has no nodes; give the frame its position p instead of "
                f"node={node!r}"
            )
        return -1

    def node_pose(self, row: int) -> Pose:
        """Pose of a node in the body's frame at η = 0. Default: the identity."""
        return Pose.identity()

    def frame_at_node(self, row: Any, offset: Pose, eta: Float[Array, "k"]) -> Pose:
        """Pose at η of a frame at a node, whose pose at η = 0 is `offset`, in the body's frame.

        `row` may be traced. Default: `frame`, for bodies without nodes.
        """
        return self.frame(offset, eta)

    def twist_at_node(
        self, row: Any, offset: Pose, eta: Float[Array, "k"], rates: Float[Array, "k"]
    ) -> Float[Array, "6"]:
        """Twist in the body, along its own axes, of the frame of `frame_at_node` at rates η̇.

        Default: by differentiation. A kind may compute it in a faster way.
        """
        moved = jax.jvp(lambda eta: self.frame_at_node(row, offset, eta), (eta,), (rates,))
        return se3.velocity(*moved)

    def elastic_energy(self, eta: Float[Array, "k"]) -> Float[Array, ""]:
        """Elastic energy U [J]. Default: zero."""
        return jnp.zeros((), dtype=eta.dtype)

    def damping_force(
        self, eta: Float[Array, "k"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "k"]:
        """Damping force d, opposed to η̇. Default: zero."""
        return jnp.zeros_like(eta_dot)

    def internal_force(
        self, eta: Float[Array, "k"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, "k"]:
        """∂U/∂η + d, the force that holds the deformation and its rate.

        Default: by differentiation of the elastic energy. A kind may compute it in a faster way.
        """
        return jax.grad(self.elastic_energy)(eta) + self.damping_force(eta, eta_dot)

    def lowered(self) -> "AbstractBody":
        """The body in the equations, computed once by `formulate`. Default: itself."""
        return self

    def is_concrete(self) -> bool:
        """True if `validate` can check all values (none is being traced). Default: True."""
        return True

    def is_possible(self) -> Bool[Array, ""]:
        """True if the values are valid; traceable. Default: True."""
        return jnp.array(True)

    def inequalities(self) -> "dict[str, AbstractBody]":
        """The inequalities of possible bodies, in words, at concrete values. Default: none.

        Each inequality is linear: Σ c x > 0, over the numbers x of the body. Its value is a body
        whose numbers are the coefficients c, as NumPy arrays.
        """
        return {}

    def validate(self) -> str | None:
        """The reason why the values are invalid, or None. Traced values are not checked."""
        return None

    def _coefficients(self, **fields: Any) -> "AbstractBody":
        """Coefficients of one inequality: those of the given fields; zero for other fields."""
        zeros = jax.tree.map(np.zeros_like, self)
        names = tuple(fields)
        return eqx.tree_at(
            lambda body: [getattr(body, name) for name in names], zeros, list(fields.values())
        )

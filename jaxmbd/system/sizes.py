"""Sizes of a mechanism, by which errors and residuals are measured."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..joints.abstract import AbstractJoint
from .abstract import AbstractSystem, State, Time
from .configuration import AbstractConfiguration
from .kernels import kernel


@kernel
def length(system: AbstractSystem, t: Time, state: State) -> Float[Array, ""]:
    """Size of a mechanism at a state [m].

    The largest distance of centres of mass and attached frames from their mean, at least the
    largest radius of gyration. Positions of the world's origin and of the bodies' own frames, which
    may be anywhere, do not count.
    """
    return length_at(system.configuration(t, state.q, state.z))


def length_at(c: AbstractConfiguration) -> Float[Array, ""]:
    """`length` at a configuration [m]."""
    mechanism, ports = c.mechanism, c.ports
    bodies = mechanism.nearest_with_mass.take_tree(mechanism.rigid)
    n = mechanism.n_bodies + 1
    centres = ports.p[1:n] + jnp.einsum("nij,nj->ni", ports.R[1:n], mechanism.rigid.com)
    points = jnp.concatenate([centres, ports.p[n:]])
    extent = jnp.linalg.norm(points - jnp.mean(points, axis=0)[None], axis=1)
    gyration = jnp.sqrt(jnp.trace(bodies.inertia, axis1=1, axis2=2) / (2.0 * bodies.mass))
    return jnp.maximum(jnp.max(extent), jnp.max(gyration))


def of_joint(joint: AbstractJoint, length: Float[Array, ""], n: int) -> Float[Array, "n"]:
    """Large changes of the n coordinates or velocities of a joint: `length` [m], then radians."""
    k = len(joint.translation)
    return jnp.concatenate([jnp.full(k, length), jnp.ones(n - k, length.dtype)])

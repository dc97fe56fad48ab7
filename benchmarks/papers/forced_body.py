"""The example of Bauchau et al. (2013), section 5: a body that is forced through a known motion."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.forces import AbstractFrameForce
from jaxmbd.lie import Pose, se3, so3

# Of numpy, so that they are made in float64 whatever JAX is set to on import.
MASS, COM = 6.0, np.array([0.25, -0.03, 0.12])  # [kg], [m] from the reference point
ABOUT_POINT = np.array([[1.25, 0.57, -0.23], [0.57, 1.56, 0.34], [-0.23, 0.34, 2.54]])  # [kg m²]
OMEGA = 2.0  # [rad/s]


def motion(t: Float[Array, ""]) -> tuple[Float[Array, "3"], Float[Array, "4"]]:
    """Position of the reference point and quaternion at a time."""
    wave = OMEGA * t
    u = jnp.stack([jnp.sin(wave), jnp.cos(wave) - 1.0, 0.5 * t + jnp.sin(2.0 * wave)])
    phi, theta, psi = 2.0 * t, t + 2.0 * jnp.sin(t), 3.0 * jnp.cos(t) - 3.0
    axis = jnp.stack([jnp.sin(theta) * jnp.cos(psi), jnp.sin(theta) * jnp.sin(psi), jnp.cos(theta)])
    return u, jnp.concatenate([jnp.cos(phi)[None], jnp.sin(phi) * axis])


def pose(t: Float[Array, ""]) -> Pose:
    """Exact pose of the body."""
    u, quaternion = motion(t)
    return Pose(u, so3.to_matrix(quaternion))


def twist(t: Float[Array, ""]) -> Float[Array, "6"]:
    """Exact twist of the body, along its axes."""
    X, X_dot = jax.jvp(pose, (t,), (jnp.ones_like(t),))
    return se3.velocity(X, X_dot)


def inertia() -> Float[Array, "3 3"]:
    """About the centre of mass, from the paper's about the reference point [kg m²].

    Its principal moments, 0.56, 1.60 and 2.26, are those of no distribution of mass, as the
    largest exceeds the sum of the others; the equations do not mind.
    """
    return ABOUT_POINT - MASS * ((COM @ COM) * jnp.eye(3) - jnp.outer(COM, COM))


class Forcing(AbstractFrameForce):
    """The loads that cause the motion: 𝒜(t) of eq. (14), about the origin along fixed axes."""

    frame: mbd.Frame

    def wrenches(self, t: Float[Array, ""], X: Pose, V: Float[Array, "1 6"]) -> Array:
        def momentum(t: Float[Array, ""]) -> Float[Array, "6"]:
            V = twist(t)
            linear = MASS * (V[:3] + jnp.cross(V[3:], COM))
            angular = inertia() @ V[3:] + jnp.cross(COM, linear)
            return se3.transform_wrench(pose(t), jnp.concatenate([linear, angular]))

        load = jax.jvp(momentum, (t,), (jnp.ones_like(t),))[1]
        return se3.transform_wrench_back(Pose(X.p[0], X.R[0]), load)[None]


def system():
    """Equations of motion of the forced body."""
    model = mbd.Model(
        {"body": mbd.RigidBody(MASS, jnp.eye(3), COM)},
        {"free": mbd.joints.Free(mbd.ground, "body")},
        {"forcing": Forcing(mbd.Frame("body"))},
    )
    ready = mbd.formulate(model, mbd.MaximalCoordinates())
    # Put in behind the check of models, which refuses it.
    return eqx.tree_at(lambda s: s.mechanism.bodies[0].body.inertia, ready, inertia()[None])


def start() -> mbd.State:
    """The exact state at time zero."""
    t = jnp.zeros(())
    return mbd.State(jnp.concatenate(motion(t)), twist(t))


@eqx.filter_jit
def errors(end: mbd.State, t: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The paper's e_D and e_R: relative error of the displacement, and that of the rotation."""
    exact = pose(t)
    e_D = jnp.linalg.norm(end.q[:3] - exact.p) / jnp.linalg.norm(exact.p)
    return e_D, jnp.linalg.norm(so3.to_matrix(end.q[3:]) - exact.R)

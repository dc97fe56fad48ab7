"""Rounding errors of accelerations in single precision, estimated by a correction.

Residuals of the equations of motion do not show such errors. If a light body is between heavy ones,
its small inertial force is lost in the rounding errors of theirs, in the matrix and in the residual
alike. Errors of accelerations that are due to the residual are therefore of the size of those that
are due to the matrix. If one step of iterative refinement changes accelerations by more than a
limit, both are too large. In double precision that would need masses that differ by 1e12 and more.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..bodies import RigidBody
from ..lie import so3
from ..mechanism.elements import JointForces, Wrenches
from ..mechanism.mechanism import Mechanism
from ..programs.tracing import stop_gradients

# Float types with a larger machine epsilon have their accelerations checked.
DOUBLE_EPS = 1e-12

# Largest change of the acceleration of a body, relative to the largest acceleration of all bodies.
# Changes are random: in some 2000 random mechanisms errors were up to ten times as large.
MAX_CHANGE = 0.003


def is_checked(dtype: Any) -> bool:
    """True if accelerations of a float type are checked."""
    return float(jnp.finfo(dtype).eps) > DOUBLE_EPS


def is_rounding_small(
    bodies: RigidBody,
    change: Float[Array, "n 6"],
    rates: Float[Array, "n 6"],
    scale: Float[Array, ""],
) -> Bool[Array, ""]:
    """True if a change of accelerations by refinement is small.

    **Arguments:**

    - `bodies`: stacked.
    - `change`, `rates`: changes of the rates of the twists of all bodies, and these rates, at the
      frames of the bodies.
    - `scale`: a further acceleration that is not small [m/s²]; see `load_scale`.
    """
    bodies, change, rates, scale = stop_gradients((bodies, change, rates, scale))
    size = jax.vmap(_root_mean_square)
    largest = scale + jnp.max(size(bodies, rates))
    return jnp.max(size(bodies, change)) <= MAX_CHANGE * largest


def load_scale(
    mechanism: Mechanism,
    twists: Float[Array, "n 6"],
    wrenches: Wrenches,
    joint_forces: JointForces,
) -> Float[Array, ""]:
    """The largest acceleration that a single load or the motion would give a free body [m/s²].

    Loads that balance one another have rounding errors of this size.

    **Arguments:** `twists`: of all bodies, at their frames; `wrenches`: on all ports.
    """
    bodies = mechanism.rigid
    mass, radius = jax.vmap(_mass_and_radius)(bodies)
    V = jax.vmap(_at_com)(bodies, twists)
    spin = jnp.linalg.norm(V[:, 3:], axis=1)
    largest = jnp.max(spin * (jnp.linalg.norm(V[:, :3], axis=1) + spin * radius))
    # Of each port, the row of its body; the ground is the last row.
    rows = jnp.asarray(
        [len(mass), *range(len(mass)), *(k - 1 for k in mechanism.port_bodies.index)]
    )
    infinite = jnp.full(1, jnp.inf, mass.dtype)
    m = jnp.concatenate([mass, infinite])[rows]
    r = jnp.concatenate([radius, infinite])[rows]
    force, moment = (jnp.linalg.norm(x, axis=1) for x in (wrenches[:, :3], wrenches[:, 3:]))
    largest = jnp.maximum(largest, jnp.max((force + moment / r) / m))
    for g, x in joint_forces.items():
        children = mechanism.joints[g].children
        if len(children.index) < len(x):  # Joints that close loops.
            continue
        m, r = children.take(mass), children.take(radius)
        sizes = jnp.max(jnp.abs(x.reshape(len(m), -1)), axis=1, initial=0.0)
        largest = jnp.maximum(largest, jnp.max(sizes * jnp.maximum(1.0, 1.0 / r) / m))
    return largest


def _mass_and_radius(body: RigidBody) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mass and radius of gyration; both infinite for massless links, which have no own motion."""
    has_mass = body.mass > 0
    mass = jnp.where(has_mass, body.mass, jnp.inf)
    trace = jnp.where(has_mass, jnp.trace(body.symmetric_inertia()), 1.0)
    return mass, jnp.where(has_mass, jnp.sqrt(trace / mass), jnp.inf)


def _at_com(body: RigidBody, V: Float[Array, "6"]) -> Float[Array, "6"]:
    return jnp.concatenate([V[:3] + so3.cross(V[3:], body.com), V[3:]])


def _root_mean_square(body: RigidBody, A: Float[Array, "6"]) -> Float[Array, ""]:
    """Root mean square of the accelerations of the points of a body [m/s²]."""
    A = _at_com(body, A)
    mass, _ = _mass_and_radius(body)
    return jnp.sqrt(A[:3] @ A[:3] + A[3:] @ body.symmetric_inertia() @ A[3:] / mass)

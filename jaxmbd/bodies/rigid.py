"""Rigid bodies, massless links and rotors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..lie import so3
from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, batched, is_concrete
from .abstract import AbstractBody


class RigidBody(AbstractBody):
    """Mass properties of a rigid body.

    **Arguments:**

    - `mass`: [kg], positive.
    - `inertia`: about the centre of mass, along the axes of the body frame [kg m²]; a symmetric
      matrix of shape `(3, 3)`, or the three principal moments, shape `(3,)`.
    - `com`: centre of mass in the body frame, shape `(3,)` [m].

    Builders for common shapes are in `jaxmbd.inertia`.

    **Raises** `ModelError` for wrong shapes. `Model` raises it, with the body's name, for values
    that are not finite, for a mass that is not positive, and for an inertia that no distribution
    of mass has: not symmetric, not positive definite, or with principal moments that violate the
    triangle inequality.

    For example:

        body = mbd.RigidBody(mass=2.0, inertia=[0.1, 0.1, 0.02], com=[0, 0, 0.3])
    """

    mass: Float[Array, ""]
    com: Float[Array, "3"]
    inertia: Float[Array, "3 3"]

    def __init__(self, mass: Any, inertia: Any, com: Any = (0.0, 0.0, 0.0)):
        self.mass = as_leaf(mass, (), "mass")
        self.com = as_leaf(com, (3,), "com")
        leaf = as_leaf(inertia, None, "inertia")
        self.inertia = jnp.diag(leaf) if leaf.shape == (3,) else as_leaf(leaf, (3, 3), "inertia")

    def is_concrete(self) -> bool:
        """True if the values are available (none is being traced)."""
        return is_concrete(self.mass) and is_concrete(self.com) and is_concrete(self.inertia)

    def is_possible(self) -> Bool[Array, ""]:
        """True if some distribution of mass has these properties; traceable, False for NaN."""
        moments = jnp.linalg.eigvalsh(jax.lax.stop_gradient(self.symmetric_inertia()))
        triangle = moments[2] <= (moments[0] + moments[1]) * (1 + 1e-6)
        return (self.mass > 0) & (moments[0] > 0) & triangle & jnp.all(jnp.isfinite(self.com))

    def validate(self) -> str | None:
        """The reason why no body has these mass properties, or None.

        Traced values are not checked.
        """
        problem = batched(self, "mass")
        if problem is not None or not self.is_concrete():
            return problem
        mass, inertia = np.asarray(self.mass), np.asarray(self.inertia)
        if mass <= 0:
            return f"mass must be positive, got {mass}"
        scale = np.abs(inertia).max()
        if np.abs(inertia - inertia.T).max() > 1e-6 * scale:
            return f"inertia must be symmetric, got {inertia.tolist()}"
        moments = np.linalg.eigvalsh(0.5 * (inertia + inertia.T))
        if moments[0] <= 0:
            return f"inertia must be positive definite, its principal moments are {moments}"
        if moments[2] > (moments[0] + moments[1]) * (1 + 1e-6):
            return (
                f"inertia violates the triangle inequality: the largest principal moment of "
                f"{moments} exceeds the sum of the others, which no distribution of mass does"
            )
        return None

    def inequalities(self) -> dict[str, AbstractBody]:
        """A positive mass, and positive second moments of mass ½ tr J - aᵀ J a along the principal
        axes a: the triangle inequalities of the principal moments."""
        J = np.asarray(self.inertia, dtype=float)
        J = 0.5 * (J + J.T)
        moments, axes = np.linalg.eigh(J)
        result = {"mass > 0": self._coefficients(mass=np.ones_like(self.mass))}
        for i, axis in enumerate(axes.T):
            name = _triangle_inequality(axis, moments[i], np.delete(moments, i))
            second = 0.5 * np.eye(3) - np.outer(axis, axis)
            result[name] = self._coefficients(inertia=second)
        return result

    def kinetic_energy(
        self, eta: Float[Array, "0"], V: Float[Array, "6"], eta_dot: Float[Array, "0"]
    ) -> Float[Array, ""]:
        v_com = V[:3] + so3.cross(V[3:], self.com)
        spin = V[3:] @ self.symmetric_inertia() @ V[3:]
        return 0.5 * self.mass * (v_com @ v_com) + 0.5 * spin

    def symmetric_inertia(self) -> Float[Array, "3 3"]:
        """The inertia that enters the equations: the symmetric part of the leaf."""
        return 0.5 * (self.inertia + self.inertia.T)


def _triangle_inequality(
    axis: Float[np.ndarray, "3"], moment: float, others: Float[np.ndarray, "2"]
) -> str:
    """In words: a principal moment does not exceed the sum of the others."""
    along = int(np.argmax(np.abs(axis)))
    if np.abs(axis[along]) > 1 - 1e-9:
        names = [f"I_{x}{x}" for x in "xyz"]
        this = names.pop(along)
        return f"{' + '.join(names)} >= {this} (triangle inequality of the moments of inertia)"
    a, b = others
    return (
        "the triangle inequality of the principal moments of inertia, "
        f"{a:.4g} + {b:.4g} >= {moment:.4g}"
    )


# A link without mass between two joints -----------------------------------------------------------


class MasslessLink(AbstractBody):
    """A link without mass and inertia that carries other bodies by joints.

    Several joints between two bodies are a chain with such links: each joint has a name, and
    forces, rotors and couplings of its own. `JointCoordinates` represents massless links, and
    each of them must have a body with mass beyond it in the tree.

    Other formulations **raise** `ModelError`, since their mass matrices would be singular.
    """

    def kinetic_energy(
        self, eta: Float[Array, "0"], V: Float[Array, "6"], eta_dot: Float[Array, "0"]
    ) -> Float[Array, ""]:
        return 0.0 * (V @ V)


# Rotors: the inertia of a motor behind its gear ---------------------------------------------------


class Rotor(eqx.Module):
    """Kinetic energy `½ n² J v²` of a rotor that a gear drives from a joint with one coordinate.

    On a `Spherical` joint, in `JointCoordinates`, v² is the square of the angular velocity, as of
    three rotors.

    Only the spin of the rotor is included. Its mass belongs to the body that carries it. The
    gyroscopic coupling between the spin and the rotation of that body is neglected, as is usual.

    **Arguments:**

    - `joint`: name of a joint with one coordinate, or of a spherical one.
    - `inertia`: J about the rotor's axis, on the motor's side of the gear [kg m²].
    - `gear_ratio`: n, rotor speed over joint speed; in rad/m if the joint slides.

    For example:

        rotors = {"rotor": mbd.Rotor("hinge", 3e-6, gear_ratio=50.0)}  # n² J = 0.0075 kg m²
    """

    joint: JointReference
    inertia: Float[Array, ""]
    gear_ratio: Float[Array, ""]

    def __init__(self, joint: Any, inertia: Any, gear_ratio: Any = 1.0):
        self.joint = as_joint_reference(joint, "Rotor: joint")
        self.inertia = as_leaf(inertia, (), "Rotor: inertia")
        self.gear_ratio = as_leaf(gear_ratio, (), "Rotor: gear_ratio")

    def validate(self) -> str | None:
        if is_concrete(self.inertia) and not np.asarray(self.inertia) > 0:
            return (
                f"inertia must be positive, got {self.inertia}; "
                "leave the rotor out if there is none"
            )
        return None

    def reflected_inertia(self) -> Float[Array, ""]:
        """The inertia n² J at the joint [kg m², or kg if the joint slides]."""
        return self.gear_ratio**2 * self.inertia

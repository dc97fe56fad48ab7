"""LuGre friction: bristles that stick, deform elastically, and break away."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.frame import JointReference, as_joint_reference
from ..model.values import as_leaf, negative, not_positive
from .abstract import AbstractJointElement, Time

COEFFICIENTS = ("coulomb", "static", "stribeck_velocity", "stiffness", "damping", "viscous")


class LuGreFriction(AbstractJointElement):
    """Friction by the mean deflection z of bristles, a first-order state for each joint velocity:

        ż = v - σ₀ |v| / g(v) z,     g(v) = F_c + (F_s - F_c) exp(-(v / v_s)²)
        force = -(σ₀ z + σ₁ exp(-(v / v_d)²) ż + σ₂ v)

    This is the law in Canudas de Wit, Olsson, Åström and Lischinsky, "A new model for control of
    systems with friction" (1995); the factor after σ₁ is that of Olsson, Åström, Canudas de Wit,
    Gäfvert and Lischinsky, "Friction models and friction compensation" (1998).

    A joint under a constant load F below F_s comes to rest at z = F/σ₀: the bristles act as
    springs. In sliding at a steady speed the force is g(v) + σ₂ v.

    The size abs(v) is exact; with a smoothed one a joint at rest would creep. ż is Lipschitz
    continuous in v and z. Its derivative by v is finite everywhere and jumps at v = 0, where
    automatic differentiation takes the mean of both sides. Implicit methods suit stiff bristles: an
    explicit one needs steps below the period of vibration on the bristles, 2π √(J/σ₀), and below
    g/(σ₀ abs(v)) in sliding.

    **Passivity.** Apart from the energy ½ σ₀ z² stored in the bristles, friction only dissipates
    energy if σ₁(v) abs(v) ≤ 4 g(v) at all v. With v_d this holds for

        σ₁ ≤ 4 √(2e) min(F_c, F_s) / v_d,     √(2e) = 2.33.

    With a constant σ₁ it holds for σ₂ ≥ σ₁ (F_s / F_c)² / 4 if F_s ≥ F_c and abs(z) ≤ F_s/σ₀ at the
    start. Neither condition is checked.

    **Arguments:** numbers, or one for each velocity of the joint [N m and rad, or N and m]:

    - `joint`: name of the joint. If it has several velocities, at least one argument has a number
      for each of them.
    - `coulomb`: F_c, and `static`: F_s, positive [N m or N].
    - `stribeck_velocity`: v_s, positive [rad/s or m/s].
    - `stiffness`: σ₀, positive [N m/rad or N/m].
    - `damping`: σ₁ [N m s/rad or N s/m]. Default: zero, for which sticking joints vibrate.
    - `viscous`: σ₂ [N m s/rad or N s/m]. Default: zero.
    - `damping_velocity`: v_d, positive [rad/s or m/s]. Default: None, a constant σ₁.

    For example:

        dry = forces.LuGreFriction("slide", 1.0, 1.5, 0.001, stiffness=1e5, damping=300.0)
    """

    joint: JointReference
    coulomb: Float[Array, "..."]
    static: Float[Array, "..."]
    stribeck_velocity: Float[Array, "..."]
    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    viscous: Float[Array, "..."]
    damping_velocity: Float[Array, "..."] | None

    def __init__(
        self,
        joint: Any,
        coulomb: Any,
        static: Any,
        stribeck_velocity: Any,
        stiffness: Any,
        damping: Any = 0.0,
        viscous: Any = 0.0,
        damping_velocity: Any = None,
    ):
        self.joint = as_joint_reference(joint, "LuGreFriction: joint")
        name = "LuGreFriction:"
        self.coulomb = as_leaf(coulomb, None, f"{name} coulomb")
        self.static = as_leaf(static, None, f"{name} static")
        self.stribeck_velocity = as_leaf(stribeck_velocity, None, f"{name} stribeck_velocity")
        self.stiffness = as_leaf(stiffness, None, f"{name} stiffness")
        self.damping = as_leaf(damping, None, f"{name} damping")
        self.viscous = as_leaf(viscous, None, f"{name} viscous")
        self.damping_velocity = (
            None
            if damping_velocity is None
            else as_leaf(damping_velocity, None, f"{name} damping_velocity")
        )

    @property
    def n_states(self) -> int:
        values = [getattr(self, name) for name in (*COEFFICIENTS, "damping_velocity")]
        shapes = [jnp.shape(value) for value in values if value is not None]
        return max([1, *(shape[0] for shape in shapes if shape)])

    def validate(self) -> str | None:
        positive = ["coulomb", "static", "stribeck_velocity", "stiffness"]
        if self.damping_velocity is not None:
            positive.append("damping_velocity")
        return not_positive(self, *positive) or negative(self, "damping", "viscous")

    def load(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "n_states"]
    ) -> Float[Array, "nv"]:
        if v.shape != z.shape:
            raise ValueError(
                f"its numbers are for {z.size} velocities, the joint has {v.size}; give one of "
                f"them, such as stiffness, with shape ({v.size},)"
            )
        damping = self.damping * self.state_rates(t, q, v, z)
        if self.damping_velocity is not None:
            damping = damping * jnp.exp(-((v / self.damping_velocity) ** 2))
        return -(self.stiffness * z + damping + self.viscous * v)

    def state_rates(
        self, t: Time, q: Float[Array, "nq"], v: Float[Array, "nv"], z: Float[Array, "n_states"]
    ) -> Float[Array, "n_states"]:
        """ż [rad/s or m/s]."""
        size = v * jnp.sign(v)  # The derivative of `jnp.abs` at zero is not the mean of both sides.
        return v - self.stiffness * size / self.steady_force(v) * z

    def steady_force(self, v: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Force g(v) of the bristles at a steady speed [N m or N]."""
        decay = jnp.exp(-((v / self.stribeck_velocity) ** 2))
        return self.coulomb + (self.static - self.coulomb) * decay

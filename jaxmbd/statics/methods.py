"""Methods of the search for equilibrium: energy drainage and Newton's method."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int

from ..model.values import as_count, as_positive, is_concrete


class Drainage(eqx.Module):
    """The damped motion to equilibrium, with damping in proportion to the mass.

    After each solution for accelerations v̇, the motion follows v̇ - 2 ω v - ω² (qₙ - qₙ₋₁)
    (Omar 2014, eq. 50), from the first step on. Increments are those of the tangent space, so that
    rotations are treated like lengths. The motion finds equilibria that are stable under loads with
    a potential. Damping near the lowest natural frequency is fastest: below it the motion swings,
    above it the motion creeps.

    Forces are those at rest: dampers and centrifugal forces change no equilibrium. Steps are
    implicit (backward Euler), and constraints hold at their end: stiff springs do not shorten them.
    Steps grow to 1/ω, and to ω/ω₁² if the motion creeps, with its Rayleigh quotient ω₁².
    A step is limited by `max_displacement`, and repeated with a quarter of its length if its
    equations are too nonlinear.

    The motion has come to rest if the residual force, the increment and the kinetic energy are all
    small. Each alone may vanish on the way: the kinetic energy does at the start and where a motion
    turns.

    **Arguments:**

    - `omega`: ω [1/s]. Default: the Rayleigh quotient of the motion, which tends to the lowest
      natural frequency that the motion contains.
    - `tolerance`: largest acceleration at the end by that under the loads, largest increment as a
      part of the mechanism's size or an angle [rad], and the square root of the kinetic energy in
      corresponding units. Default: 20 times the float type's precision.
    - `max_steps`: largest number of steps, rejected ones included. Default: 2000.
    - `max_displacement`: largest displacement of a step, as a part of the mechanism's size or an
      angle [rad]. Default: 0.2.
    """

    omega: Float[Array, ""] | float | None = None
    tolerance: Float[Array, ""] | float | None = None
    max_steps: Int[Array, ""] | int = 2000
    max_displacement: Float[Array, ""] | float = 0.2

    def __check_init__(self):
        for name in ("omega", "tolerance", "max_displacement"):
            x = getattr(self, name)
            if x is not None and is_concrete(x):
                as_positive(x, f"Drainage: {name}")
        if is_concrete(self.max_steps) and not isinstance(self.max_steps, jax.Array):
            as_count(self.max_steps, "Drainage: max_steps")


# Newton's method for the equations of rest, damped by inertia -------------------------------------


class StaticNewton(eqx.Module):
    """Newton's method on q ⊞ δ and λ, globalized by inertia (pseudo-transient continuation).

    A step solves (K + m M) δ - Gᵀ Δλ = -r, G δ = -g. At m = 0 it is Newton's step. If its second
    correction, by the same factors, exceeds about a third of the first, or if it displaces the
    mechanism too far, m grows, and the step follows the flow M δ ∝ -r, whose only points of rest
    are equilibria (Kelley and Keyes 1998). Unlike a minimization of rᵀ r it does not stop
    elsewhere. m shrinks as the equations become linear. Full steps get further corrections by the
    same factors, as long as each is less than a quarter of the one before.

    The method finds the nearest equilibrium, stable or not.

    **Arguments:**

    - `tolerance`: largest correction at the end, as a part of the mechanism's size or an angle
      [rad]. Default: 100 times the float type's precision.
    - `max_steps`: largest number of steps, rejected ones included. Default: 300.
    - `max_displacement`: largest displacement of a step, as a part of the mechanism's size or an
      angle [rad]. Default: 1.
    """

    tolerance: Float[Array, ""] | float | None = None
    max_steps: Int[Array, ""] | int = 300
    max_displacement: Float[Array, ""] | float = 1.0

    def __check_init__(self):
        for name in ("tolerance", "max_displacement"):
            x = getattr(self, name)
            if x is not None and is_concrete(x):
                as_positive(x, f"StaticNewton: {name}")
        if is_concrete(self.max_steps) and not isinstance(self.max_steps, jax.Array):
            as_count(self.max_steps, "StaticNewton: max_steps")

"""What keeps an index-1 integration near its constraints."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.values import as_leaf

if TYPE_CHECKING:
    from .abstract import AbstractSystem, State, Time

# What a step goes by, chosen at its start, such as a set of coordinates; None where there is none.
Choice = Any


class AbstractStabilization(eqx.Module):
    """A term in the accelerations, or corrections of states.

    `corrects` says whether `stage` and `corrected` do anything.
    """

    corrects: eqx.AbstractClassVar[bool]

    @abstractmethod
    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """What g̈ is set to."""

    def choose(self, system: "AbstractSystem", t: "Time", state: "State") -> Choice:
        """What a step from a state goes by."""
        return None

    def stage(self, system: "AbstractSystem", t: "Time", state: "State", choice: Choice) -> "State":
        """The state at which accelerations are evaluated, in place of a stage's own."""
        return state

    def corrected(
        self, system: "AbstractSystem", t: "Time", state: "State", choice: Choice
    ) -> "State":
        """The state that a step ends in."""
        return state

    def placed(self, system: "AbstractSystem", t: "Time", state: "State") -> "State":
        """The state on the constraints that stands for an interpolated one."""
        return state


class Baumgarte(AbstractStabilization):
    """`g̈ + 2α ġ + β² g = 0` in place of `g̈ = 0` (Baumgarte 1972).

    Violations decay like a damped oscillator instead of growing with time; α = β damps it
    critically. Large gains make the equations stiff: keep α dt well below one.

    **Arguments:** `alpha` [1/s] and `beta` [1/s].
    """

    alpha: Float[Array, ""]
    beta: Float[Array, ""]
    corrects: ClassVar[bool] = False

    def __init__(self, alpha: Any = 10.0, beta: Any = 10.0):
        self.alpha = as_leaf(alpha, (), "Baumgarte: alpha")
        self.beta = as_leaf(beta, (), "Baumgarte: beta")

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        alpha, beta = (jnp.asarray(x, g.dtype) for x in (self.alpha, self.beta))
        return -2.0 * alpha * g_dot - beta**2 * g


class AbstractCorrection(AbstractStabilization):
    """Accelerations as they are; states are moved onto the constraints."""

    corrects: ClassVar[bool] = True

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        return jnp.zeros_like(g)


__all__ = ["AbstractCorrection", "AbstractStabilization", "Baumgarte", "Choice"]

"""Stabilization of constraints in index-1 integration."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import as_leaf, is_concrete

if TYPE_CHECKING:
    from .abstract import AbstractSystem, State, Time

# Data chosen at the start of a step, such as a set of coordinates, or None.
Choice = Any


class AbstractStabilization(eqx.Module):
    """A term in the accelerations, or corrections of states.

    - `corrects`: whether `stage`, `corrected` and `placed` change states.
    """

    corrects: eqx.AbstractClassVar[bool]

    @abstractmethod
    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        """The target of g̈, shape `(ng,)`."""

    def choose(self, system: "AbstractSystem", t: "Time", state: "State") -> Choice:
        """Compute `choice`, data for all stages of a step from `state`. Default: None."""
        return None

    def stage(self, system: "AbstractSystem", t: "Time", state: "State", choice: Choice) -> "State":
        """The state of a stage, at which accelerations are evaluated. Default: unchanged."""
        return state

    def corrected(
        self, system: "AbstractSystem", t: "Time", state: "State", choice: Choice
    ) -> "State":
        """The state at the end of a step. Default: unchanged."""
        return state

    def placed(self, system: "AbstractSystem", t: "Time", state: "State") -> "State":
        """An interpolated state, moved onto the constraints. Default: unchanged."""
        return state


class Baumgarte(AbstractStabilization):
    """Accelerations with `g̈ + 2α ġ + β² g = 0` instead of `g̈ = 0` (Baumgarte 1972).

    Constraint residuals decay like a damped oscillator instead of growing with time; α = β damps
    them critically. Large gains make the equations stiff: choose α dt well below one.

    **Arguments:** `alpha` [1/s] and `beta` [1/s]. Defaults: 10.
    """

    alpha: Float[Array, ""]
    beta: Float[Array, ""]
    corrects: ClassVar[bool] = False

    def __init__(self, alpha: Any = 10.0, beta: Any = 10.0):
        self.alpha = as_leaf(alpha, (), "Baumgarte: alpha")
        self.beta = as_leaf(beta, (), "Baumgarte: beta")
        for name, x in (("alpha", self.alpha), ("beta", self.beta)):
            if is_concrete(x) and not (np.isfinite(x) and np.asarray(x) >= 0):
                raise ModelError(f"Baumgarte: {name} must not be negative, and finite, got {x}")

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        alpha, beta = (jnp.asarray(x, g.dtype) for x in (self.alpha, self.beta))
        return -2.0 * alpha * g_dot - beta**2 * g


class AbstractCorrection(AbstractStabilization):
    """Corrections that move states onto the constraints, without a term in the accelerations."""

    corrects: ClassVar[bool] = True

    def correction(self, g: Float[Array, "ng"], g_dot: Float[Array, "ng"]) -> Float[Array, "ng"]:
        return jnp.zeros_like(g)

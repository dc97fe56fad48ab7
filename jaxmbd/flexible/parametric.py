"""A flexible body whose dimensions and materials are values of the model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..bodies import AbstractBody, FlexibleBody
from ..errors import ModelError
from ..model.values import all_concrete, as_leaf

BASIS = "basis"


class Parametric(AbstractBody):
    """A flexible body that `formulate` builds from numbers of the model.

    `flexible.Parametric(flexible.beam, length=0.5, E=7e9, …)` is a body of a model like
    `flexible.beam(length=0.5, E=7e9, …)`, but the model has the numbers instead of the matrices.
    `identify`, `sweep` and derivatives by the model can refer to them: the path of the modulus is
    `"bodies.rod.numbers.E"`, that of a dimension `"bodies.rod.numbers.section.width"`.

    Without the argument `basis`, mode shapes are computed anew from the numbers, as `build` does
    by default. With a basis they are constant, and the numbers project K and M on it.

    **Arguments:**

    - `build`: `flexible.beam`, `flexible.frame`, or another function that returns a `FlexibleBody`
      and can be traced.
    - `arguments`: its arguments, by name. Floats, arrays and components, such as sections, are
      values of the model. Integers, strings, and sequences and dicts of these are constants.

    **Raises** `ModelError` for arguments that `build` rejects.

    For example:

        section = mbd.flexible.Rectangle(0.03, 0.02)
        numbers = {"length": 0.5, "E": 7e10, "G": 2.6e10, "density": 2700.0, "section": section}
        body = mbd.flexible.Parametric(mbd.flexible.beam, n_elements=4, n_modes=2, **numbers)
    """

    numbers: dict[str, Any]
    basis: Any
    build: Callable[..., FlexibleBody] = eqx.field(static=True)
    constants: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(self, build: Callable[..., FlexibleBody], **arguments: Any):
        self.build, self.basis = build, arguments.pop(BASIS, None)
        if isinstance(self.basis, str):
            arguments[BASIS], self.basis = self.basis, None
        numbers = {name: value for name, value in arguments.items() if _is_number(value)}
        self.numbers = {name: _as_number(value, name) for name, value in numbers.items()}
        self.constants = tuple(
            (name, _hashable(value))
            for name, value in sorted(arguments.items())
            if name not in numbers
        )
        if not self.numbers:
            raise ModelError(
                "flexible.Parametric: give the arguments of build by name, such as length=0.5"
            )
        if self.is_concrete():
            self.built()

    def built(self) -> FlexibleBody:
        """The body with these numbers. **Raises** `ModelError` for numbers that `build` rejects."""
        options = {name: _as_given(value) for name, value in self.constants}
        if self.basis is not None:
            options[BASIS] = jax.lax.stop_gradient(self.basis)
        return self.build(**self.numbers, **options)

    @property
    def n_elastic(self) -> int:
        return eqx.filter_eval_shape(lambda body: body.built(), self).n_elastic

    def kinetic_energy(
        self, eta: Float[Array, "k"], V: Float[Array, "6"], eta_dot: Float[Array, "k"]
    ) -> Float[Array, ""]:
        return self.built().kinetic_energy(eta, V, eta_dot)

    def node_row(self, node: str | int | None) -> int:
        return eqx.filter_eval_shape(lambda body: body.built(), self).node_row(node)

    def lowered(self) -> AbstractBody:
        return self.built()

    def is_concrete(self) -> bool:
        return all_concrete((self.numbers, self.basis))

    def is_possible(self) -> Bool[Array, ""]:
        return self.built().is_possible()

    def validate(self) -> str | None:
        return self.built().validate() if self.is_concrete() else None


def _is_number(value: Any) -> bool:
    if isinstance(value, float | jax.Array | np.ndarray | np.floating | eqx.Module):
        return True
    return isinstance(value, dict) and any(isinstance(x, eqx.Module) for x in value.values())


def _as_number(value: Any, name: str) -> Any:
    if isinstance(value, eqx.Module | dict):
        return value
    return as_leaf(value, jnp.shape(value), name)


class _Listed(tuple):
    """A list, as a tuple, which has a hash."""


class _Mapped(tuple):
    """A dict, as a tuple of its items, which has a hash."""


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return _Mapped((key, _hashable(x)) for key, x in value.items())
    if isinstance(value, list | tuple):
        return _Listed(_hashable(x) for x in value)
    return value


def _as_given(value: Any) -> Any:
    if isinstance(value, _Mapped):
        return {key: _as_given(x) for key, x in value}
    if isinstance(value, _Listed):
        return [_as_given(x) for x in value]
    return value

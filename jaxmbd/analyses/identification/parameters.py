"""Which leaves of a model a fit varies, and how."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model import Model
from ...model.model import unknown
from .transforms import AbstractTransform, Unbounded


class Parameter(eqx.Module):
    """One leaf (or body) of a model that a fit varies.

    **Arguments:**

    - `where`: a path such as `"bodies.rod.mass"`, or a function of the model that returns the
      leaf, as for `equinox.tree_at`.
    - `transform`: keeps the value in its range; `Unbounded()` where it is left out.
    """

    where: str | Callable[[Model], Any] = eqx.field(static=True)
    transform: AbstractTransform

    def __init__(
        self, where: str | Callable[[Model], Any], transform: AbstractTransform | None = None
    ):
        self.where = where
        self.transform = Unbounded() if transform is None else transform

    def get(self, model: Model) -> Any:
        """The value in a model."""
        if callable(self.where):
            return self.where(model)
        return follow(model, self.where)


Free = tuple[Float[Array, "_n"], ...]
Selection = Mapping[str, "Parameter | str | Callable"] | Sequence["Parameter | str | Callable"]


class Selected(eqx.Module):
    """The parameters of a fit, bound to the model that it starts from.

    They are kept in the user's order; a dict would come back sorted from `jit`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parameters: tuple[Parameter, ...]
    model: Model

    def free(self) -> Free:
        """Free numbers of the starting values."""
        return tuple(p.transform.to_free(p.get(self.model)) for p in self.parameters)

    def apply(self, free: Free) -> Model:
        """The model at free numbers."""
        model = self.model
        for p, x in zip(self.parameters, free, strict=True):
            value = p.transform.to_value(x, p.get(self.model))
            model = eqx.tree_at(p.get, model, value)
        return model

    def report(self, free: Free) -> Float[Array, "k"]:
        """The numbers that a table shows, in the order of `labels`."""
        parts = []
        for p, x in zip(self.parameters, free, strict=True):
            reference = p.get(self.model)
            value = p.transform.to_value(x, reference)
            parts.append(p.transform.report(value, reference))
        return jnp.concatenate(parts)

    def labels(self) -> list[str]:
        """A label for each number of the table."""
        return [
            label
            for name, p in zip(self.names, self.parameters, strict=True)
            for label in p.transform.labels(name, p.get(self.model))
        ]

    def free_labels(self) -> list[str]:
        """For each free number the name of the parameter, numbered where it has several."""
        labels = []
        for name, x in zip(self.names, self.free(), strict=True):
            labels += [name] if x.size == 1 else [f"{name} #{i + 1}" for i in range(x.size)]
        return labels


def select_parameters(model: Model, select: Selection) -> Selected:
    """Bind a selection to a model.

    **Raises** `ModelError` for an empty selection, a path that leads nowhere, something that is
    no array of floats, and a starting value that its transform does not admit.
    """
    if isinstance(select, Mapping):
        chosen = {str(name): _as_parameter(p) for name, p in select.items()}
    else:
        chosen = {}
        for p in map(_as_parameter, select):
            if not isinstance(p.where, str):
                raise ModelError("identify: parameters given by a function need a name; use a dict")
            chosen[p.where] = p
    if not chosen:
        raise ModelError("identify: select at least one parameter")
    for name, p in chosen.items():
        value = p.get(model)
        if not jax.tree.leaves(value) or not all(map(eqx.is_inexact_array, jax.tree.leaves(value))):
            raise ModelError(f"identify: parameter {name!r} is no array of floats: {value!r}")
        try:
            free = p.transform.to_free(value)
        except ModelError as error:
            raise ModelError(f"identify: parameter {name!r}: {error}") from error
        if not np.all(np.isfinite(np.asarray(free))):
            raise ModelError(
                f"identify: parameter {name!r}: {type(p.transform).__name__} does not admit its "
                f"starting value {value}"
            )
    return Selected(tuple(chosen), tuple(chosen.values()), model)


def _as_parameter(p: "Parameter | str | Callable") -> Parameter:
    return p if isinstance(p, Parameter) else Parameter(p)


def follow(model: Any, path: str) -> Any:
    """The part of a model at a dotted path of attributes and dict keys.

    Dict keys may contain dots themselves; the longest key that fits is taken.

    **Raises** `ModelError`, naming the step that fails and what there is instead.
    """
    node, rest = model, path
    while rest:
        if isinstance(node, dict):
            fitting = [k for k in node if rest == k or rest.startswith(f"{k}.")]
            if not fitting:
                raise ModelError(unknown(f"path {path!r}: no", rest.split(".")[0], node))
            step = max(fitting, key=len)
            node = node[step]
        else:
            step = rest.split(".")[0]
            fields = getattr(type(node), "__dataclass_fields__", {})
            if step not in fields:
                raise ModelError(unknown(f"path {path!r}: no", step, fields))
            node = getattr(node, step)
        rest = rest[len(step) + 1 :]
    return node

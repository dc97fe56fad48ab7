"""Selection of leaves of a model and its sensors for a fit, with transforms and priors."""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import AbstractBody
from ..errors import ModelError
from ..model import Model
from ..model.paths import follow
from ..model.values import all_concrete, is_concrete
from ..programs import stored
from .priors import Normal
from .transforms import AbstractElementwise, AbstractTransform, Unbounded


class Subject(eqx.Module):
    """A model and its sensors, whose leaves a fit may vary."""

    model: Model
    sensors: dict[str, Callable[..., Array]]


class Parameter(eqx.Module):
    """One leaf (or body) of a model, or leaf of a sensor, that a fit varies.

    **Arguments:**

    - `where`: a path such as `"bodies.rod.mass"` or `"sensors.gyro.bias"`, or a function of the
      model that returns the leaf, as for `equinox.tree_at`.
    - `transform`: transform that keeps the value in its range. Default: `Unbounded()`.
    - `prior`: prior of the reported numbers, such as `Normal(2.0, 0.1)`. Default: none.

    For example:

        mass = mbd.Parameter("bodies.rod.mass", mbd.transforms.Positive())
    """

    where: str | Callable[[Model], Any] = eqx.field(static=True)
    transform: AbstractTransform
    prior: Normal | None

    def __init__(
        self,
        where: Any,
        transform: Any = None,
        prior: Any = None,
    ):
        self.where = where
        self.transform = Unbounded() if transform is None else transform
        self.prior = prior
        if not isinstance(where, str) and not callable(where):
            raise ModelError(
                f"Parameter: where must be a path or a function of the model, got {where!r}"
            )
        if not isinstance(self.transform, AbstractTransform):
            raise ModelError(
                "Parameter: transform must be an instance of jaxmbd.transforms, such as "
                f"Positive(), got {transform!r}"
            )
        if prior is not None and not isinstance(prior, Normal):
            raise ModelError(
                f"Parameter: prior must be an instance of jaxmbd.priors, such as Normal(2.0, 0.1), "
                f"got {prior!r}"
            )

    def get(self, subject: Subject) -> Any:
        """The value in a model or a sensor."""
        if callable(self.where):
            return self.where(subject.model)
        of_sensor = self.where.startswith("sensors.")
        return follow(subject if of_sensor else subject.model, self.where)


Free = tuple[Float[Array, "_n"], ...]
_Leaf = Parameter | str | Callable[[Model], Any]
Selection = Mapping[str, _Leaf] | Sequence[_Leaf]


class Selected(eqx.Module):
    """The parameters of a fit, bound to its starting model.

    Tuples preserve the user's order; `jit` would return a dict sorted.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parameters: tuple[Parameter, ...]
    subject: Subject

    def free(self) -> Free:
        """Free numbers of the starting values."""
        return _at_once(_free, self)

    def apply(self, free: Free) -> Subject:
        """Model and sensors at free numbers."""
        leaves, structure = jax.tree.flatten(self.subject)
        for rows, value in zip(_rows(self), _at_once(_values, self, free), strict=True):
            for i, x in zip(jax.tree.leaves(rows), jax.tree.leaves(value), strict=True):
                leaves[i] = x
        return jax.tree.unflatten(structure, leaves)

    def fitted_bodies(self, subject: Subject) -> dict[str, AbstractBody]:
        """The bodies of a subject from `apply` that the fit varies."""
        start = self.subject.model.bodies
        return {
            name: body
            for name, body in subject.model.bodies.items()
            if any(map(operator.is_not, jax.tree.leaves(body), jax.tree.leaves(start[name])))
        }

    def report(self, free: Free) -> Float[Array, "k"]:
        """Reported numbers, in the order of `labels`."""
        return _at_once(_report, self, free)

    def numbers(self, free: Free) -> tuple[Float[Array, "k"], dict[str, AbstractBody]]:
        """Reported numbers, and the floats of fitted bodies."""
        bodies = self.fitted_bodies(self.apply(free))
        return self.report(free), eqx.filter(bodies, eqx.is_inexact_array)

    def priors(self, free: Free) -> Float[Array, "m"]:
        """Residuals of the priors, in deviations."""
        reported = zip(self.parameters, _reports(self, free), strict=True)
        parts = [p.prior.residuals(x) for p, x in reported if p.prior is not None]
        return jnp.concatenate([free[0][:0], *parts])

    def labels(self) -> list[str]:
        """A label for each reported number."""
        return [
            label
            for name, p in zip(self.names, self.parameters, strict=True)
            for label in p.transform.labels(name, p.get(self.subject))
        ]

    def free_labels(self) -> list[str]:
        """For each free number the name of its parameter, numbered if it has several."""
        labels = []
        for name, x in zip(self.names, self.free(), strict=True):
            labels += [name] if x.size == 1 else [f"{name} #{i + 1}" for i in range(x.size)]
        return labels


def _at_once(fn: Callable[..., Any], *args: Any) -> Any:
    """The function by one program, in place of one for each operation; as it is while traced."""
    return _program(fn)(*args) if all_concrete(args) else fn(*args)


_program = functools.cache(stored)


def _free(selected: Selected) -> Free:
    return tuple(p.transform.to_free(p.get(selected.subject)) for p in selected.parameters)


def _values(selected: Selected, free: Free) -> list[Any]:
    """Values of the parameters, to be inserted in this order."""
    leaves, found = jax.tree.leaves(selected.subject), []
    for p, rows, x in zip(selected.parameters, _rows(selected), free, strict=True):
        # From `leaves`, since other parameters may have changed entries of the same leaf.
        reference = jax.tree.map(lambda i: leaves[i], rows)
        found.append(p.transform.to_value(x, reference))
        for i, value in zip(jax.tree.leaves(rows), jax.tree.leaves(found[-1]), strict=True):
            leaves[i] = value
    return found


def _rows(selected: Selected) -> list[Any]:
    """For each parameter the numbers of its leaves among those of the subject, as a tree.

    `equinox.tree_at` finds them anew for every value, which takes milliseconds.
    """
    leaves, structure = jax.tree.flatten(selected.subject)
    places = [object() for _ in leaves]  # With numbers in place of leaves, a sum would be one too.
    row_of = {place: i for i, place in enumerate(places)}
    subject = jax.tree.unflatten(structure, places)
    found = []
    for name, p in zip(selected.names, selected.parameters, strict=True):
        try:
            found.append(jax.tree.map(lambda x: row_of[x], p.get(subject)))
        except (TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                f"parameter {name!r}: its function must return a part of the model, and compute "
                f"nothing: {error}"
            ) from error
    return found


def _report(selected: Selected, free: Free) -> Float[Array, "k"]:
    return jnp.concatenate(_reports(selected, free))


def _reports(selected: Selected, free: Free) -> list[Array]:
    parts = []
    for p, x in zip(selected.parameters, free, strict=True):
        reference = p.get(selected.subject)
        value = p.transform.to_value(x, reference)
        parts.append(p.transform.report(value, reference))
    return parts


def select_parameters(
    subject: Subject, select: Selection, caller: str = "identify", needs_parameters: bool = True
) -> Selected:
    """Bind a selection to a model and its sensors; error messages name the analysis `caller`.

    **Raises** `ModelError` for an empty selection, an unknown path, a leaf that is not an array of
    floats, a starting value outside of the range of its transform, and a prior of another shape
    than the reported numbers.
    """
    if isinstance(select, str) or not isinstance(select, Mapping | Sequence):
        raise ModelError(
            f"{caller}: select must be a list of paths and Parameters, or a dict of them by name, "
            f"got {select!r:.60}"
        )
    if isinstance(select, Mapping):
        chosen = {str(name): _as_parameter(p) for name, p in select.items()}
    else:
        chosen = {}
        for p in map(_as_parameter, select):
            if not isinstance(p.where, str):
                raise ModelError(
                    f"{caller}: parameters given by a function need a name; use a dict"
                )
            chosen[p.where] = p
    if not chosen and needs_parameters:
        raise ModelError(f"{caller}: select at least one parameter")
    for name, p in chosen.items():
        value = p.get(subject)
        if not jax.tree.leaves(value) or not all(map(eqx.is_inexact_array, jax.tree.leaves(value))):
            raise ModelError(f"{caller}: parameter {name!r} is not an array of floats: {value!r}")
        if isinstance(p.transform, AbstractElementwise) and not eqx.is_array(value):
            numbers = ", ".join(getattr(type(value), "__dataclass_fields__", ()))
            raise ModelError(
                f"{caller}: parameter {name!r} is a {type(value).__name__}, not one array; select "
                f"one of its numbers ({numbers}), or give a transform such as PhysicalBody()"
            )
        try:
            eqx.filter_eval_shape(p.transform.to_free, value)
        except ModelError as error:
            raise ModelError(f"{caller}: parameter {name!r}: {error}") from error
        _check_prior(caller, name, p, value)
    selected = Selected(tuple(chosen), tuple(chosen.values()), subject)
    for (name, p), free in zip(chosen.items(), selected.free(), strict=True):
        if is_concrete(free) and not np.all(np.isfinite(np.asarray(free))):
            raise ModelError(
                f"{caller}: parameter {name!r}: {type(p.transform).__name__} does not admit its "
                f"starting value {p.get(subject)}, which must be inside of its range"
            )
    return selected


def _check_prior(caller: str, name: str, p: Parameter, value: Any) -> None:
    n = len(p.transform.labels(name, value))
    for x in () if p.prior is None else (p.prior.mean, p.prior.deviation):
        if x.shape not in ((), (n,)):
            raise ModelError(
                f"{caller}: the prior of {name!r} has shape {x.shape}, its reported numbers ({n},)"
            )


def _as_parameter(p: _Leaf) -> Parameter:
    return p if isinstance(p, Parameter) else Parameter(p)

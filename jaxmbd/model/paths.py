"""Parts of a model by dotted paths, such as `bodies.rod.mass`."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from ..errors import ModelError
from .model import Model, unknown
from .values import Constant, as_direction, as_leaf, directions_of, is_constant


def follow(model: Any, path: str) -> Any:
    """The part of a model at a dotted path of attributes, dict keys and indices of sequences.

    Dict keys may contain dots; the longest key that fits is used.

    **Raises** `ModelError`, with the step that fails and the known names.
    """
    node = model
    for step in steps_of(model, path):
        node = _child(node, step)
    return node


def _child(node: Any, step: str) -> Any:
    if isinstance(node, list | tuple):
        return node[int(step)]
    return node[step] if isinstance(node, dict) else getattr(node, step)


def steps_of(model: Any, path: str) -> list[str]:
    """Attributes and dict keys of a path; see `follow`."""
    node, rest, steps = model, path, []
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
            if isinstance(node, list | tuple):
                fields = dict.fromkeys(map(str, range(len(node))))
            if step not in fields:
                raise ModelError(unknown(f"path {path!r}: no", step, fields))
            node = _child(node, step)
        steps.append(step)
        rest = rest[len(step) + 1 :]
    return steps


def replaced(model: Model, values: Any) -> Model:
    """A model with other values at paths; see `Model.replace`."""
    if not isinstance(values, Mapping):
        raise ModelError(
            f"replace: values must be a dict {{path: value}}, got a {type(values).__name__}"
        )
    for path, value in values.items():
        if not isinstance(path, str) or not path:
            raise ModelError(f"replace: {path!r} is not a path such as 'bodies.rod.mass'")
        try:
            steps = steps_of(model, path)
        except ModelError as error:
            if isinstance(value, eqx.Module):
                raise ModelError(f"replace: {error}; `with_` adds components") from None
            raise
        node = follow(model, path)
        if isinstance(node, dict):
            names = ", ".join(map(repr, sorted(node))) or "none"
            raise ModelError(
                f"replace: {path!r} are components by name, {names}; name one of them; `with_` "
                "adds and removes components"
            )
        if eqx.is_inexact_array(node):
            parent = follow(model, path.removesuffix(f".{steps[-1]}"))
            if steps[-1] in directions_of(type(parent)):
                value = as_direction(value, f"replace: {path!r}")
            leaf = as_leaf(value, node.shape, f"replace: {path!r}").astype(node.dtype)
        elif isinstance(node, eqx.Module) and isinstance(value, eqx.Module):
            leaf = value
        elif is_constant(node) and callable(value):
            leaf = Constant(value)
        elif isinstance(node, eqx.Module):
            raise ModelError(
                f"replace: {path!r} is a {type(node).__name__}, not a number; give another "
                f"component, or one of its numbers: {', '.join(type(node).__dataclass_fields__)}; "
                "`with_` removes components"
            )
        else:
            raise ModelError(
                f"replace: {path!r} is not an array of floats: {node!r}; replace its component"
            )
        model = _with(model, steps, leaf)
    # The constructor checks references and values.
    return Model(**{name: getattr(model, name) for name in Model.__dataclass_fields__})


def _with(node: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(node, dict):
        return {**node, step: _with(node[step], rest, value)}
    changed = _with(_child(node, step), rest, value)
    if isinstance(node, list | tuple):
        return type(node)([*node[: int(step)], changed, *node[int(step) + 1 :]])
    return eqx.tree_at(lambda n: getattr(n, step), node, changed, is_leaf=is_constant)

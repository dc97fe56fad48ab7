"""Derivatives of named results by chosen numbers of a model."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ..errors import ModelError
from ..identification.parameters import Selected, Selection, Subject, select_parameters
from ..model import Model
from ..model.model import in_one_float_type
from ..model.values import require_concrete
from ..programs import stored, with_progress
from ..sweeps.scenario_program import runnable, traced_by_name
from .slopes import Sensitivities

# Directions of forward mode that take as long as one output number of reverse mode: measured with
# three links over 200 steps, where forward mode also compiles in half the time.
DIRECTIONS = 12
# Messages of JAX if a function does not support a mode.
NO_FORWARD, NO_REVERSE = "to a custom_vjp function", "Reverse-mode differentiation does not work"


@with_progress
def sensitivities(
    fn: Callable[[Model], Mapping[str, Any]],
    model: Model,
    select: Selection,
    *,
    mode: str | None = None,
) -> Sensitivities:
    """Derivatives of results by numbers of a model, for example of a whole trajectory.

    Derivatives are by the numbers that a parameter reports, in their units, with the other numbers
    constant: entries of a leaf, the factor of `Scaled`, or mass, centre of mass and central inertia
    of `PhysicalBody`. With the free numbers x of the transforms and the reported numbers r,
    ∂y/∂r = (∂y/∂x) (∂r/∂x)⁻¹, at the values of `model`. For a single leaf they do not depend on
    the transform.

    **Arguments:**

    - `fn`: a pure function of a model that JAX can trace. It returns a dict of float arrays, or of
      pytrees of them, such as trajectories.
    - `select`: as for `mbd.identify`, without sensors; priors do not matter.
    - `mode`: `"forward"`, one pass for all parameters, or `"reverse"`, one pass for all output
      numbers. Default: reverse mode if there are at least twelve parameters for each output number,
      otherwise forward mode. `rollout` supports both; `simulate` supports reverse mode, or forward
      mode with `adjoint=diffrax.ForwardMode()`, and needs `max_steps` and the times of `saveat`,
      as under `jit`.

    **Raises** `ModelError` for invalid parameters, a function that does not return floats by name
    or does not support the mode, a transform with different numbers of free and reported numbers,
    results and derivatives that are not finite, by name, and under a transformation of JAX. If one
    derivative is not finite, forward mode may lose all of them; reverse mode names the parameter.
    """
    if mode not in (None, "forward", "reverse"):
        raise ModelError(f"sensitivities: mode must be 'forward' or 'reverse', got {mode!r}")
    if not callable(fn):
        raise ModelError(
            f"sensitivities: fn must be a function of a model that returns a dict of float arrays, "
            f"got a {type(fn).__name__}"
        )
    require_concrete("sensitivities", model)
    model = in_one_float_type(model, caller="sensitivities")
    selected = select_parameters(Subject(model, {}), select, "sensitivities")
    values, directions = _directions(selected)
    x, unravel = ravel_pytree(selected.free())
    traced, shapes = _traced(lambda x: fn(selected.apply(unravel(x)).model), x)
    n_results = sum(math.prod(y.shape) for y in shapes.values())
    if mode is None:
        mode = "reverse" if DIRECTIONS * n_results <= len(values) else "forward"
    differentiate = _forward if mode == "forward" else _reverse
    try:
        results, parts = differentiate(runnable(traced), x, directions)
    except (TypeError, ValueError) as error:
        if NO_FORWARD in str(error) or NO_REVERSE in str(error):
            raise ModelError(
                f"sensitivities: the function does not allow mode={mode!r}; give the other one, or "
                "simulate with another adjoint"
            ) from error
        raise
    outputs = dict(zip(shapes, map(np.asarray, results), strict=True))
    labels = tuple(selected.labels())
    slopes = dict(zip(shapes, parts, strict=True))
    _check_finite(outputs, slopes, labels)
    return Sensitivities(labels, values, outputs, slopes, mode)


def _directions(selected: Selected) -> tuple[np.ndarray, np.ndarray]:
    """Reported numbers r, shape `(k,)`, and ∂x/∂r of the free numbers x, shape `(k, k)`."""
    free = selected.free()
    sizes = [x.size for x in free]
    for name, p, size in zip(selected.names, selected.parameters, sizes, strict=True):
        n_reported = len(p.transform.labels(name, p.get(selected.subject)))
        if n_reported != size:
            raise ModelError(
                f"sensitivities: {type(p.transform).__name__} of {name!r} has {size} free numbers "
                f"and reports {n_reported}; derivatives need equal numbers"
            )
    values, D = map(np.asarray, _reported(selected, free))
    inverse = np.zeros_like(D)
    ends = np.cumsum(sizes)
    for name, size, end in zip(selected.names, sizes, ends, strict=True):
        block = slice(end - size, end)
        others = [
            other
            for other, n, last in zip(selected.names, sizes, ends, strict=True)
            if other != name and np.any(D[block, last - n : last])
        ]
        if others:
            raise ModelError(
                f"sensitivities: {', '.join(map(repr, others))} would change the reported numbers "
                f"of {name!r}; select every number once"
            )
        try:
            inverse[block, block] = np.linalg.inv(D[block, block])
        except np.linalg.LinAlgError as error:
            raise ModelError(
                f"sensitivities: the reported numbers of {name!r} do not determine its free numbers"
            ) from error
    return values, inverse


@stored
def _reported(selected: Selected, free: Any) -> tuple[Float[Array, "k"], Float[Array, "k n"]]:
    """Reported numbers of the changed model, and their derivative by the free numbers."""
    x, unravel = ravel_pytree(free)

    def report(x: Float[Array, "n"]) -> Float[Array, "k"]:
        changed = selected.apply(unravel(x))
        parts = [
            p.transform.report(p.get(changed), p.get(selected.subject)) for p in selected.parameters
        ]
        return jnp.concatenate(parts)

    return report(x), jax.jacfwd(report)(x)


def _traced(
    function: Callable[[Array], Any], x: Float[Array, "n"]
) -> tuple[core.ClosedJaxpr, dict[str, Any]]:
    """Trace a function; return the trace, and the shapes of its results by name."""
    traced, shapes = traced_by_name(function, x, "sensitivities")
    for name, shape in shapes.items():
        if not jnp.issubdtype(shape.dtype, jnp.floating):
            raise ModelError(f"sensitivities: result {name!r} is {shape.dtype}, not floats")
    return traced, shapes


def _forward(
    run: Callable, x: Float[Array, "n"], directions: np.ndarray
) -> tuple[list[Array], list[np.ndarray]]:
    """Results, and their derivatives along the columns of `directions`."""

    @eqx.filter_jit
    def derivatives(x: Array, columns: Array) -> tuple[list[Array], list[Array]]:
        def along(v: Array) -> tuple[list[Array], list[Array]]:
            return jax.jvp(run, (x,), (v,))

        return jax.vmap(along, in_axes=1, out_axes=(None, 0))(columns)

    results, slopes = derivatives(x, jnp.asarray(directions))
    return results, [np.asarray(dy) for dy in slopes]


def _reverse(
    run: Callable, x: Float[Array, "n"], directions: np.ndarray
) -> tuple[list[Array], list[np.ndarray]]:
    """Results and derivatives, from gradients of all output numbers."""

    @eqx.filter_jit
    def gradients(x: Array) -> tuple[list[Array], Array]:
        results, pull = jax.vjp(run, x)
        flat, unravel = ravel_pytree(results)
        rows = jnp.eye(flat.size, dtype=flat.dtype)
        return results, jax.vmap(lambda row: pull(unravel(row))[0])(rows)

    results, rows = gradients(x)
    rows = np.asarray(rows)
    # 0 · NaN is NaN: products leave out zeros, so that a NaN stays with its parameter.
    with np.errstate(invalid="ignore"):
        slopes = np.stack([rows[:, d != 0] @ d[d != 0] for d in directions.T])
    ends = np.cumsum([y.size for y in results])[:-1]
    parts = np.split(slopes, ends, axis=1)
    return results, [s.reshape(-1, *y.shape) for s, y in zip(parts, results, strict=True)]


def _check_finite(
    outputs: dict[str, np.ndarray], slopes: dict[str, np.ndarray], labels: tuple[str, ...]
) -> None:
    for name, y in outputs.items():
        if not np.isfinite(y).all():
            raise ModelError(f"sensitivities: result {name!r} is not finite{_first(y)}")
    for name, dy in slopes.items():
        lost = np.flatnonzero(~np.isfinite(dy).reshape(len(labels), -1).all(axis=1))
        if lost.size:
            by = ", ".join(repr(labels[i]) for i in lost)
            first = _first(np.asarray(dy[lost[0]]))
            raise ModelError(
                f"sensitivities: the derivative of {name!r} by {by} is not finite{first}"
            )


def _first(x: np.ndarray) -> str:
    """Index of the first entry that is not finite, in words."""
    index = np.argwhere(~np.isfinite(x))[0]
    return f", first at {[int(i) for i in index]}" if x.ndim else ""

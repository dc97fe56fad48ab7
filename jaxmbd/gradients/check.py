"""Derivatives by every leaf: forward mode, reverse mode and finite differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..errors import ModelError
from ..model.values import require_concrete
from ..motion.motion_warnings import unobserved_contacts
from ..programs import with_progress

# Assumed error of function values, in units of round-off.
ROUND_OFF = 1e3
# Offsets in steps, and weights, of the central difference of fourth order.
STENCIL = np.array([-2.0, -1.0, 1.0, 2.0])
WEIGHTS = np.array([1.0, -8.0, 8.0, -1.0]) / 12.0
FORWARD_LOST, REVERSE_LOST = "forward mode is not finite", "reverse mode is not finite"


@dataclass(frozen=True, eq=False)
class GradientReport:
    """Derivatives by each of `n` leaves, the result of `check_gradients`; `print` it for a table.

    - `names`: paths, such as `bodies.rod.mass`.
    - `forward`, `reverse`, `difference`: derivatives along the direction of the leaf, shape `(n,)`.
    - `error_modes`: relative difference of forward and reverse mode, shape `(n,)`.
    - `error_differences`: relative error of forward mode (of reverse mode, if forward mode is not
      finite) against finite differences, shape `(n,)`.
    - `steps`: step of the differences that agree best, in sizes of the leaf, shape `(n,)`.
    - `verdicts`: `"ok"`, or the fault. If one leaf has a derivative that is not finite, forward
      mode may be not finite by all leaves; reverse mode identifies the leaf.
    - `tolerance`: the largest relative error that is ok.
    """

    names: tuple[str, ...]
    forward: np.ndarray
    reverse: np.ndarray
    difference: np.ndarray
    error_modes: np.ndarray
    error_differences: np.ndarray
    steps: np.ndarray
    verdicts: tuple[str, ...]
    tolerance: float

    @property
    def ok(self) -> bool:
        """True if all derivatives agree."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the leaves whose derivatives do not agree."""
        named = zip(self.names, self.verdicts, strict=True)
        return tuple(name for name, verdict in named if verdict != "ok")

    def __str__(self) -> str:
        width = max(len("leaf"), *(len(name) for name in self.names))
        lines = [
            f"{'leaf':<{width}}  {'forward':>13}  {'reverse':>13}  {'differences':>13}  "
            f"{'fwd-rev':>8}  {'fwd-diff':>8}  {'step':>7}  verdict"
        ]
        columns = (
            self.names,
            *(self.forward, self.reverse, self.difference),
            *(self.error_modes, self.error_differences, self.steps),
            self.verdicts,
        )
        for name, forward, reverse, difference, modes, differences, h, verdict in zip(
            *columns, strict=True
        ):
            lines.append(
                f"{name:<{width}}  {forward:13.6g}  {reverse:13.6g}  {difference:13.6g}  "
                f"{modes:8.1e}  {differences:8.1e}  {h:7.0e}  {verdict}"
            )
        lost = [
            name for name, x in zip(self.names, self.verdicts, strict=True) if REVERSE_LOST in x
        ]
        lines += [f"the gradient is not finite by {', '.join(lost)}"] if lost else []
        n, within = len(self.names), f"relative errors up to {self.tolerance:.1g} are ok"
        lines.append(f"{n - len(self.failed)} of {n} leaves agree; {within}")
        return "\n".join(lines)


@with_progress
def check_gradients(
    fn: Callable[[Any], Any],
    inputs: PyTree,
    *,
    steps: Sequence[float] | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> GradientReport:
    """Compare forward mode, reverse mode and finite differences of a function, leaf by leaf.

    Each leaf changes along one random direction of length 1; the direction of a number is 1.
    Differences are central, of fourth order, with steps over several decades; the report has the
    one that agrees best, and its step. A step may be too long for the function, or so short that
    round-off exceeds the change. A derivative that changes the value by less than round-off, over
    the size of its leaf, counts as zero.

    Three programs are compiled, for any number of leaves. `fn` must support both modes, as
    `rollout` does, and `simulate` with `adjoint=diffrax.DirectAdjoint()`.

    Derivatives through contacts need more steps than values, and differences may agree with wrong
    ones. If `fn` simulates contacts by fixed steps, it is called once more outside of
    transformations, where `simulate` counts the steps.

    **Warns** by `ContactWarning`, with the step that would do, if a contact lasts for too few fixed
    steps of `simulate`.

    **Arguments:**

    - `fn`: function of `inputs` that returns a number, an array, or a tree of arrays; a random
      combination of them is differentiated.
    - `inputs`: a `Model` or any other tree; derivatives are by its float leaves.
    - `steps`: lengths of steps in sizes of a leaf: its norm, or 1 if the norm is zero. Default:
      decades from 0.1 to 1e-6, in single precision to 1e-3.
    - `tolerance`: largest relative error. Default: 1e-6, in single precision 3e-3.
    - `seed`: seed of directions and combination.

    **Raises** `ModelError` if there is no float in `inputs` or in the result, and under a
    transformation.

    For example:

        def angle(state):
            return mbd.rollout(system, state, dt=0.01, n_steps=10).q[-1]


        print(mbd.check_gradients(angle, state))
    """
    if not callable(fn):
        raise ModelError(f"check_gradients: fn must be a function, got a {type(fn).__name__}")
    require_concrete("check_gradients", inputs)
    inputs = jax.tree.map(lambda x: jnp.asarray(x) if _is_number(x) else x, inputs)
    floats, rest = eqx.partition(inputs, _is_real_array)
    names = _names(floats)
    if not names:
        raise ModelError("check_gradients: there is no float among the inputs")
    eps = max(float(jnp.finfo(x.dtype).eps) for x in jax.tree.leaves(floats))
    if tolerance is None:
        tolerance = 1e-6 if eps < 1e-10 else 3e-3
    if steps is None:
        steps = [10.0**-k for k in range(1, 7 if eps < 1e-10 else 4)]
    rng = np.random.default_rng(seed)
    programs = _compiled(_combined(fn, floats, rest, rng))
    with unobserved_contacts() as passed:
        pulled = jax.tree.leaves(programs.reverse(floats))
    if passed:
        fn(inputs)
    rows = [
        _look(programs, floats, k, pulled[k], np.asarray(steps), ROUND_OFF * eps / tolerance, rng)
        for k in range(len(names))
    ]
    finite = [bool(np.isfinite(np.asarray(x)).all()) for x in pulled]
    verdicts = [_verdict(*both, tolerance) for both in zip(rows, finite, strict=True)]
    numbers = _Row(*(np.array(column) for column in zip(*rows, strict=True)))
    return GradientReport(
        names, **numbers._asdict(), verdicts=tuple(verdicts), tolerance=float(tolerance)
    )


def _is_number(x: Any) -> bool:
    return isinstance(x, float | np.ndarray) and np.issubdtype(np.asarray(x).dtype, np.floating)


def _is_real_array(x: Any) -> bool:
    return eqx.is_inexact_array(x) and jnp.issubdtype(x.dtype, jnp.floating) and x.size > 0


def _names(tree: PyTree) -> tuple[str, ...]:
    """Paths of the leaves; `input` if the tree is a single leaf."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    return tuple(
        jax.tree_util.keystr(path, simple=True, separator=".") or "input" for path in paths
    )


def _combined(
    fn: Callable[[Any], Any], floats: PyTree, rest: PyTree, rng: np.random.Generator
) -> Callable[[PyTree], Float[Array, ""]]:
    """A random combination of all floats that the function returns; a single number unchanged."""

    def results(floats: PyTree) -> list[Array]:
        leaves = jax.tree.leaves(fn(eqx.combine(floats, rest)))
        return [y for y in map(jnp.asarray, leaves) if _is_real_array(y)]

    shapes = jax.eval_shape(results, floats)
    if not shapes:
        raise ModelError("check_gradients: the function returns no float")
    if sum(y.size for y in shapes) == 1:
        weights = [np.ones(y.shape) for y in shapes]
    else:
        weights = [rng.normal(size=y.shape) for y in shapes]
    dtype = jnp.result_type(*(y.dtype for y in shapes))

    def combined(floats: PyTree) -> Float[Array, ""]:
        parts = zip(weights, results(floats), strict=True)
        return sum(
            (jnp.sum(jnp.asarray(w, dtype) * y.astype(dtype)) for w, y in parts),
            start=jnp.zeros((), dtype),
        )

    return combined


class _Programs(NamedTuple):
    """Values along a line, forward mode along a direction, reverse mode by all leaves."""

    values: Callable[[PyTree, PyTree, Float[Array, "k"]], Float[Array, "k"]]
    forward: Callable[[PyTree, PyTree], Float[Array, ""]]
    reverse: Callable[[PyTree], PyTree]


def _compiled(function: Callable[[PyTree], Float[Array, ""]]) -> _Programs:
    def values(at: PyTree, along: PyTree, offsets: Float[Array, "k"]) -> Float[Array, "k"]:
        def value(s: Float[Array, ""]) -> Float[Array, ""]:
            return function(jax.tree.map(lambda x, d: x + s.astype(x.dtype) * d, at, along))

        return jax.lax.map(value, offsets)

    def forward(at: PyTree, along: PyTree) -> Float[Array, ""]:
        return jax.jvp(function, (at,), (along,))[1]

    reverse = eqx.filter_jit(jax.grad(function))
    return _Programs(eqx.filter_jit(values), eqx.filter_jit(forward), reverse)


class _Row(NamedTuple):
    """Numbers of the report, for one leaf or all leaves."""

    forward: Any
    reverse: Any
    difference: Any
    error_modes: Any
    error_differences: Any
    steps: Any


def _look(
    programs: _Programs,
    floats: PyTree,
    k: int,
    pulled: Array,
    steps: Float[np.ndarray, "m"],
    round_off: float,
    rng: np.random.Generator,
) -> _Row:
    """Derivatives by leaf k; `pulled` is the gradient by it."""
    leaves, structure = jax.tree.flatten(floats)
    drawn = rng.normal(size=leaves[k].shape)
    along = np.ones_like(drawn) if drawn.size == 1 else drawn / np.linalg.norm(drawn)
    size = float(np.linalg.norm(np.asarray(leaves[k]))) or 1.0
    directions = [jnp.zeros_like(x) for x in leaves]
    directions[k] = jnp.asarray(along, leaves[k].dtype)
    direction = structure.unflatten(directions)
    forward = float(programs.forward(floats, direction))
    reverse = float(np.sum(np.asarray(pulled, float) * along))
    reference = forward if np.isfinite(forward) else reverse

    def values_at(offsets: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
        try:
            along_line = programs.values(floats, direction, jnp.asarray(offsets, leaves[k].dtype))
            return np.asarray(along_line, float)
        except eqx.EquinoxRuntimeError:  # Such as an impossible mass: the step is too long.
            return np.full(4, np.nan)

    values = np.stack([values_at(size * h * STENCIL) for h in steps])
    differences = values @ WEIGHTS / (size * steps)
    largest = float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))
    least = round_off * largest / size  # Smaller derivatives count as zero.

    def error(a: Any, b: Any) -> Any:
        scale = np.maximum(np.maximum(np.abs(a), np.abs(b)), max(least, np.finfo(float).tiny))
        return np.abs(a - b) / scale

    errors = np.where(np.isfinite(differences), error(differences, reference), np.inf)
    errors = np.where(np.isnan(errors), np.inf, errors)
    best = int(np.argmin(errors))
    return _Row(
        forward,
        reverse,
        float(differences[best]),
        float(error(forward, reverse)),
        float(errors[best]),
        float(steps[best]),
    )


def _verdict(row: _Row, finite: bool, tolerance: float) -> str:
    wrong = [] if np.isfinite(row.forward) else [FORWARD_LOST]
    wrong += [] if finite else [REVERSE_LOST]
    if wrong:
        return ", ".join(wrong)
    if not np.isfinite(row.difference):
        return "differences are not finite"
    wrong += [] if row.error_modes <= tolerance else ["modes differ"]
    wrong += [] if row.error_differences <= tolerance else ["differences differ"]
    return ", ".join(wrong) or "ok"

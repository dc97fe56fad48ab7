"""Common parts of all checks: draws, derivatives in both modes, comparison and message."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..joints import AbstractJoint
from ..system.abstract import AbstractSystem

DRAWS = 16
REACH = 1.2  # Largest random angle and displacement [rad or m].
SECOND_ORDER = "retract(q, s v) moves with constant velocities v, to second order in s"

Findings = dict[str, tuple[Any, Any]]


def round_off(dtype: Any) -> float:
    """Default tolerance of `judge`, relative to the largest number, or to 1 if that is smaller."""
    return 1e5 * float(np.finfo(dtype).eps)


def judge(caller: str, findings: Findings, tolerance: float | None = None) -> None:
    """Compare each pair of trees of arrays. Default of `tolerance`: `round_off`.

    **Raises** `AssertionError` with every statement whose pair differs, and the difference.
    """
    failed = []
    for statement, (actual, expected) in findings.items():
        worst, limit = 0.0, 1.0
        for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            x, y = np.broadcast_arrays(np.asarray(x), np.asarray(y))
            scale = float(np.max(np.abs(y), initial=1.0))
            bound = scale * (round_off(x.dtype) if tolerance is None else tolerance)
            error = float(np.max(np.abs(x - y), initial=0.0))
            if np.isnan(error) or error / bound > worst / limit:
                worst, limit = error, bound
            if np.isnan(error):
                break
        if not worst <= limit:
            failed.append(f"{statement}: off by {worst:.2g}, where {limit:.1g} is allowed")
    if failed:
        raise AssertionError("\n    ".join([f"{caller} breaks its contract:", *failed]))


def check_shapes(caller: str, arrays: dict[str, tuple[Any, tuple[int, ...]]]) -> None:
    """**Raises** `AssertionError` if an array has another shape than the required one."""
    wrong = [
        f"{name} has shape {x.shape}, expected {shape}"
        for name, (x, shape) in arrays.items()
        if x.shape != shape
    ]
    if wrong:
        raise AssertionError(f"{caller}: {'; '.join(wrong)}")


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator: `jax.random` would be slow to compile."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


def direction(tree: Any, rng: np.random.Generator) -> Any:
    """A random tangent of a tree of float arrays (or their shapes)."""
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), tree)


def dot(a: Any, b: Any) -> Float[Array, ""]:
    """Sum of the products of all entries of two trees of equal structure."""
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def along_retraction(
    moved: AbstractJoint | AbstractSystem, q: Float[Array, "nq"], v: Float[Array, "nv"]
) -> tuple[Array, Array, Array, Array]:
    """q and q̇ of `retract(q, s v)` at s = 0, and the velocities there and their derivative by s.

    Generalized-α and sensors with a delay displace coordinates by v s + ½ v̇ s², which is the motion
    to second order only if `retract(q, s v)` is the motion at constant velocities to this order.
    """
    zero, one = jnp.zeros((), dtype=q.dtype), jnp.ones((), dtype=q.dtype)

    def moving(s: Array) -> tuple[Array, tuple[Array, Array]]:
        q_s, q_dot = jax.jvp(lambda s: moved.retract(q, s * v), (s,), (one,))
        return moved.velocities(q_s, q_dot), (q_s, q_dot)

    velocities, change, (q_same, q_dot) = jax.jvp(moving, (zero,), (one,), has_aux=True)
    return q_same, q_dot, velocities, change


def floats_of(tree: Any) -> Any:
    """The float leaves of a tree, with None instead of the others."""
    return eqx.filter(tree, eqx.is_inexact_array)


def both_modes(
    function: Callable[..., Any], args: Any, directions: tuple[Any, Any]
) -> tuple[Array, Array]:
    """⟨w, J u⟩ by forward and by reverse mode, for directions u (of the floats in args) and w."""
    floats, rest = eqx.partition(args, eqx.is_inexact_array)
    u, w = directions

    def evaluate(floats: Any) -> Any:
        return function(*eqx.combine(floats, rest))

    change = jax.jvp(evaluate, (floats,), (u,))[1]
    (pulled,) = jax.vjp(evaluate, floats)[1](w)
    return dot(w, change), dot(pulled, u)

"""Differences of two motions of the same bodies and joints."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._run_time_checks import error_if
from ..errors import ModelError
from ..lie import Pose, so3
from ..model.arguments import described
from ..model.values import all_concrete
from ..programs import stored

if TYPE_CHECKING:
    from .motion import AbstractMotion


class MotionDifference(eqx.Module):
    """Differences of two motions at the same times, the result of `Solution.compare`.

    - `ts`: times [s], shape `(n,)`.
    - `distances`: `{frame: distance}` of the origins of bodies, marker frames and joint frames in
      both motions [m], shape `(n,)`.
    - `angles`: `{frame: angle}` of the rotation from one to the other [rad], shape `(n,)`.
    - `energy`: difference of the total energies, the other minus this [J], shape `(n,)`.

    Frames are compared by name, so that formulations, whose coordinates differ, can be compared.
    """

    ts: Float[Array, "n"]
    distances: dict[str, Float[Array, "n"]]
    angles: dict[str, Float[Array, "n"]]
    energy: Float[Array, "n"]

    @property
    def distance(self) -> Float[Array, ""]:
        """The largest distance of all frames and times [m]."""
        return jnp.max(jnp.stack(list(self.distances.values())))

    @property
    def angle(self) -> Float[Array, ""]:
        """The largest angle of all frames and times [rad]."""
        return jnp.max(jnp.stack(list(self.angles.values())))

    def __str__(self) -> str:
        width = max(len(name) for name in self.distances)
        lines = [f"{'frame':<{width}}  {'distance [m]':>12}  {'angle [rad]':>12}"]
        lines += [
            f"{name:<{width}}  {np.max(x):12.3g}  {np.max(self.angles[name]):12.3g}"
            for name, x in self.distances.items()
        ]
        return "\n".join([*lines, f"total energy: up to {np.max(np.abs(self.energy)):.3g} J"])


def compare(motion: "AbstractMotion", other: Any) -> MotionDifference:
    """Differences of two motions; see `Solution.compare`."""
    from .motion import AbstractMotion

    if not isinstance(other, AbstractMotion):
        raise ModelError(f"compare: the other motion is {described(other)}, not a motion")
    ts = motion.ts
    if jnp.shape(ts) != jnp.shape(other.ts):
        raise ModelError(
            f"compare: the motions have times of shape {jnp.shape(ts)} and {jnp.shape(other.ts)}; "
            "simulate one of them with saveat=other.ts"
        )
    times = other.ts.astype(ts.dtype)
    apart = jnp.abs(ts - times) > 1e-6 * jnp.max(jnp.abs(ts), where=jnp.isfinite(ts), initial=0.0)
    differ = jnp.any(apart & jnp.isfinite(ts + times))
    message = "compare: the motions have other times; simulate one of them with saveat=other.ts"
    if not all_concrete(differ):
        ts = error_if(ts, differ, message)
    elif differ:
        raise ModelError(message)
    own, theirs = motion.frames, other.frames
    known, others = own.keys(), theirs.keys()
    names = [name for name in known if name in others and name != "ground"]
    missing = sorted({*known} ^ {*others})
    if missing:
        raise ModelError(f"compare: only one of the motions has the frames {', '.join(missing)}")
    rows = (tuple(map(x.names.index, names)) for x in (own, theirs))
    distances, angles = _apart(own.pose, theirs.pose, *rows)
    change = other.energy.total.astype(ts.dtype) - motion.energy.total
    return MotionDifference(
        ts, dict(zip(names, distances, strict=True)), dict(zip(names, angles, strict=True)), change
    )


@stored
def _apart(
    own: Pose, theirs: Pose, rows: tuple[int, ...], others: tuple[int, ...]
) -> tuple[Float[Array, "m n"], Float[Array, "m n"]]:
    """Distances and angles between frames of two motions."""
    X = jax.tree.map(lambda x: x[:, np.array(rows)], own)
    Y = jax.tree.map(lambda x: x[:, np.array(others)], theirs)
    relative = jnp.swapaxes(X.R, 2, 3) @ Y.R.astype(X.R.dtype)
    turn = jax.vmap(jax.vmap(lambda R: so3.log(so3.from_matrix(R))))(relative)
    return _norms(X.p - Y.p.astype(X.p.dtype)).T, _norms(turn).T


def _norms(x: Float[Array, "n m 3"]) -> Float[Array, "n m"]:
    """Norms with a derivative of zero at zero."""
    squares = jnp.sum(x * x, axis=2)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), squares)


__all__ = ["MotionDifference", "compare"]

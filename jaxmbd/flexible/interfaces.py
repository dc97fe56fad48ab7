"""Named sets of nodes of finite element models, and rigid motions of their nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError


class Interfaces(eqx.Module):
    """Named sets of nodes, each of which counts as rigid; static."""

    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(given: Mapping[str, Any], n_nodes: int, caller: str) -> "Interfaces":
        """Make interfaces of rows of nodes by name.

        **Raises** `ModelError` for rows that are not those of nodes.
        """
        rows = []
        for name, value in given.items():
            given_rows = np.atleast_1d(np.asarray(value))
            if not np.issubdtype(given_rows.dtype, np.integer) or given_rows.ndim != 1:
                raise ModelError(
                    f"{caller}: node {name!r} must be one or more rows of nodes, whole numbers, "
                    f"got {value!r:.60}"
                )
            own = tuple(int(row) for row in given_rows)
            if not own or min(own) < 0 or max(own) >= n_nodes:
                raise ModelError(
                    f"{caller}: node {name!r} has the rows {own}, but there are {n_nodes} nodes "
                    "(rows count nodes, not degrees of freedom)"
                )
            rows.append(own)
        return Interfaces(tuple(given), tuple(rows))

    def select(self, names: Sequence[str], caller: str) -> "Interfaces":
        """The interfaces `names`, in this order; **raises** `ModelError` for an unknown name."""
        for name in names:
            if name not in self.names:
                listed = ", ".join(map(repr, self.names)) or "none"
                raise ModelError(f"{caller}: unknown node {name!r}; known are {listed}")
        rows = dict(zip(self.names, self.rows, strict=True))
        return Interfaces(tuple(names), tuple(rows[name] for name in names))

    def by_row(self) -> dict[str, int]:
        """Their rows in this order."""
        return {name: row for row, name in enumerate(self.names)}

    def dofs(self, per_node: int) -> list[np.ndarray]:
        """Degrees of freedom of each."""
        return [
            (per_node * np.asarray(rows)[:, None] + np.arange(per_node)).ravel()
            for rows in self.rows
        ]

    def centres(self, positions: Float[Array, "n_nodes 3"]) -> list[Float[Array, "3"]]:
        """Mean position of the nodes of each."""
        return [jnp.mean(positions[np.asarray(rows)], axis=0) for rows in self.rows]


def rigid_modes(
    positions: Float[Array, "n_nodes 3"], per_node: int, centre: Float[Array, "3"]
) -> Float[Array, "n_dofs 6"]:
    """Degrees of freedom for unit translations, and unit rotations about `centre`."""
    arms = positions - centre[None]
    dtype, eye = positions.dtype, jnp.eye(3, dtype=positions.dtype)
    turned = jax.vmap(lambda s: jnp.cross(eye, s[None]).T)(arms)  # Column j: e_j × s.
    moved = jnp.broadcast_to(eye, (*arms.shape[:1], 3, 3))
    rows = jnp.concatenate([moved, turned], axis=2)
    if per_node == 6:
        rotations = jnp.concatenate([jnp.zeros((3, 3), dtype), eye], axis=1)
        below = jnp.broadcast_to(rotations, (*arms.shape[:1], 3, 6))
        rows = jnp.concatenate([rows, below], axis=1)
    return rows.reshape(-1, 6)


def per_node_of(K: Array, positions: Array, caller: str) -> int:
    """Degrees of freedom of a node; **raises** `ModelError` if it is neither 3 nor 6."""
    n, n_nodes = K.shape[0], positions.shape[0]
    if n_nodes == 0 or n not in (3 * n_nodes, 6 * n_nodes):
        raise ModelError(
            f"{caller}: K has {n} rows for {n_nodes} positions; nodes have 3 degrees of freedom "
            "(displacement), or 6 (displacement and rotation vector)"
        )
    return n // n_nodes

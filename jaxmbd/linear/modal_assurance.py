"""Comparison of mode shapes, and their order along a parameter."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact, Int

Shapes = Inexact[Array, "n m"] | Inexact[np.ndarray, "n m"]


class Followed(NamedTuple):
    """The modes of several configurations, in the order of those of the first one.

    - `order`: column of each mode in each configuration.
    - `assurance`: modal assurance between a mode and the same one of the configuration before, 1 in
      the first row. Small values mean steps of the parameter that are too large, or modes in a
      cluster, whose shapes are not unique.
    """

    order: Int[np.ndarray, "n_steps m"]
    assurance: Float[np.ndarray, "n_steps m"]


def modal_assurance(
    phi_a: Inexact[Array, "n m_a"], phi_b: Inexact[Array, "n m_b"]
) -> Float[Array, "m_a m_b"]:
    """Modal assurance criterion (aᴴ b)(bᴴ a) / (aᴴ a bᴴ b) of columns (Allemang 1982).

    Between 0 and 1, and 1 for columns that are equal but for a factor. Zero for columns of zeros.
    """
    size_a, size_b = (jnp.sum(jnp.abs(phi) ** 2, axis=0) for phi in (phi_a, phi_b))
    size = size_a[:, None] * size_b[None]
    product = jnp.abs(phi_a.conj().T @ phi_b) ** 2
    return jnp.where(size > 0.0, product / jnp.where(size > 0.0, size, 1.0), 0.0)


def follow(shapes: Sequence[Shapes]) -> Followed:
    """Match modes along a parameter: those of each configuration with those of the one before.

    The sum of the modal assurances of all pairs is as large as possible. Computed on the host.

    **Arguments:**

    - `shapes`: for each value of the parameter, mode shapes in columns. All arrays have one shape.

    **Raises** `ValueError` for no configurations, and for arrays of different shapes.
    """
    from scipy.optimize import linear_sum_assignment  # Imported late: takes long, and few use it.

    columns = [np.asarray(phi) for phi in shapes]
    if not columns:
        raise ValueError("no mode shapes to match: `shapes` is empty")
    if len({phi.shape for phi in columns}) > 1:
        found = ", ".join(str(phi.shape) for phi in columns)
        raise ValueError(f"mode shapes to match have one shape, not {found}")
    order = [np.arange(columns[0].shape[1])]
    assurance = [np.ones(columns[0].shape[1])]
    for before, after in pairwise(columns):
        mac = np.asarray(modal_assurance(jnp.asarray(before), jnp.asarray(after)))[order[-1]]
        rows, matched = linear_sum_assignment(mac, maximize=True)
        order.append(matched)
        assurance.append(mac[rows, matched])
    return Followed(np.stack(order), np.stack(assurance))

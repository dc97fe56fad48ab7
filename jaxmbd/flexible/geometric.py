"""Geometric stiffness of reduced bodies, as displacements of second order."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.model import unknown
from ..model.values import as_leaf, is_concrete
from ..programs import stored

# Relative size of singular values that count as zero, and of load data that has no mass to act on.
SINGULAR, UNRELATED = 1e-12, 1e-6


class GeometricStiffness(eqx.Module):
    """Geometric stiffness matrices of a finite element model for unit loads (Wallrapp &
    Schwertassek 1991).

    Each is the derivative of the tangent stiffness by a load, with the body held at its first
    interface and the load in equilibrium with the reactions there. Its rows and columns are those
    of K.

    **Arguments:**

    - `uniform`: for the body force ρ e_j per unit volume, j = x, y, z, shape `(3, n, n)`. A force
      of weight g is g times this one.
    - `linear`: for the body forces ρ x_i e_j, with the positions x_i, shape `(3, 3, n, n)` by i and
      j. Centrifugal and angular accelerations are sums of them.
    - `loads`: `{name: matrices}` for unit forces along x, y, z and unit moments about them at named
      nodes, shape `(6, n, n)`. Loads at other nodes do not stiffen the body.

    **Raises** `ModelError` for wrong shapes.
    """

    uniform: Float[Array, "3 n n"]
    linear: Float[Array, "3 3 n n"]
    loads: dict[str, Float[Array, "6 n n"]]

    def __init__(self, uniform: Any, linear: Any, loads: Mapping[str, Any] | None = None):
        who = "GeometricStiffness"
        self.uniform = as_leaf(uniform, None, f"{who}: uniform")
        n = self.uniform.shape[-1] if self.uniform.ndim > 0 else 0
        as_leaf(self.uniform, (3, n, n), f"{who}: uniform")
        self.linear = as_leaf(linear, (3, 3, n, n), f"{who}: linear")
        self.loads = {
            name: as_leaf(x, (6, n, n), f"{who}: loads: {name!r}")
            for name, x in (loads or {}).items()
        }


def stiffened(
    arrays: Mapping[str, Any],
    geometric: GeometricStiffness,
    shapes: Float[Array, "n k"],
    rows: Mapping[str, int],
    who: str,
) -> dict[str, Any]:
    """Arrays of a reduced body with displacements of second order that have this stiffness.

    A load does the work ½ ηᵀ ψ η through displacements ψ of second order, so that ψ = -K_geo for
    a unit load. Between the loads that are given, ψ is affine in the undeformed position, which
    makes the mass matrix the least one that is consistent with them.

    **Raises** `ModelError` for unknown nodes, and for body forces without mass to act on.
    """
    if geometric.uniform.shape[-1] != shapes.shape[0]:
        raise ModelError(
            f"{who}: matrices of geometric stiffness have {geometric.uniform.shape[-1]} rows, "
            f"but K has {shapes.shape[0]}"
        )
    for name in geometric.loads:
        if name not in rows:
            raise ModelError(unknown(f"{who}: geometric: unknown node", name, dict(rows)))
    first, second, error = _integrals(arrays, geometric, shapes)
    if is_concrete(error) and not float(error) < UNRELATED:
        raise ModelError(
            f"{who}: geometric stiffness for body forces along directions in which the body has "
            f"no extent (relative size {float(error):.1e}); check the order of `linear`, by i and j"
        )
    a, b = np.triu_indices(shapes.shape[1])
    pairs = jnp.zeros((len(rows), 6, len(a)), dtype=shapes.dtype)
    for name, matrices in geometric.loads.items():
        pairs = pairs.at[rows[name]].set(-_projected(matrices, shapes)[:, a, b])
    pairs = jnp.swapaxes(pairs, 1, 2)
    return {
        "first": first,
        "second": second,
        "translations": jnp.concatenate([arrays["translations"], pairs[..., :3]], axis=1),
        "rotations": jnp.concatenate([arrays["rotations"], pairs[..., 3:]], axis=1),
    }


def _projected(matrices: Float[Array, "*m n n"], shapes: Float[Array, "n k"]) -> Array:
    matrices = matrices.astype(shapes.dtype)
    return jnp.einsum("ia,...ij,jb->...ab", shapes, 0.5 * (matrices + matrices.mT), shapes)


@stored
def _integrals(
    arrays: Mapping[str, Any], geometric: GeometricStiffness, shapes: Float[Array, "n k"]
) -> tuple[Float[Array, "m 3"], Float[Array, "m 3 m 3"], Float[Array, ""]]:
    """s and S with pairs, and the part of the load data that no affine ψ has."""
    a, b = np.triu_indices(shapes.shape[1])
    uniform, linear = (_projected(x, shapes) for x in (geometric.uniform, geometric.linear))
    work = -jnp.concatenate([uniform[None], linear])[:, :, a, b]  # By (1, x_i), j and pair.
    first, second = arrays["first"], arrays["second"]
    # ∫ρ of products of (1, x, y, z), and of these with the fields.
    corner = jnp.concatenate([arrays["mass"][None], first[0]])[None]
    gram = jnp.concatenate([corner, jnp.concatenate([first[0][:, None], second[0, :, 0]], axis=1)])
    moments = jnp.concatenate([first[:, :, None], second[:, :, 0]], axis=2)
    size = jnp.sqrt(jnp.diagonal(gram))
    unit = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    inverse = jnp.linalg.pinv(gram * unit[:, None] * unit[None], rtol=SINGULAR, hermitian=True)
    affine = jnp.einsum("lm,mjp->ljp", inverse * unit[:, None] * unit[None], work)
    found = jnp.einsum("lm,mjp->ljp", gram, affine)
    scale = jnp.max(jnp.abs(work))
    error = jnp.max(jnp.abs(found - work)) / jnp.where(scale > 0, scale, 1.0)
    mixed = jnp.einsum("ail,ljp->aipj", moments, affine)
    of_pairs = jnp.einsum("lip,lm,mjq->piqj", affine, gram, affine)
    n, m = first.shape[0], len(a)
    S = jnp.concatenate(
        [
            jnp.concatenate([second, mixed], axis=2),
            jnp.concatenate([jnp.transpose(mixed, (2, 3, 0, 1)), of_pairs], axis=2),
        ]
    )
    s = jnp.concatenate([first, found[0].T])
    return s, S.reshape(n + m, 3, n + m, 3), error


__all__ = ["GeometricStiffness", "stiffened"]

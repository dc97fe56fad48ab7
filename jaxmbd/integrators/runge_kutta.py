"""One explicit Runge–Kutta step that differentiates in either mode."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree


def explicit_step(
    tableau: diffrax.ButcherTableau,
    term: diffrax.AbstractTerm,
    t0: Float[Array, ""],
    h: Float[Array, ""],
    y0: PyTree,
    args: PyTree,
) -> PyTree:
    """y(t0 + h) from y(t0), without error estimate and dense output.

    The stages are a scan, so that the program holds one copy of the vector field. The step of
    diffrax allows one mode of differentiation for each kind of loop over the stages; this step
    allows both, and omits the last stage if only the error estimate needs it.
    """
    A, b, c = _arrays(tableau)
    flat, unravel = ravel_pytree(y0)

    def stage(k: Float[Array, "s n"], row: tuple[Array, Array, Array]) -> tuple[Array, None]:
        a_i, c_i, i = row
        slope = term.vf(t0 + c_i * h, unravel(flat + h * (a_i @ k)), args)
        # Not `k.at[i].set`: a scatter, which generated code does not support.
        return jax.lax.dynamic_update_index_in_dim(k, ravel_pytree(slope)[0], i, 0), None

    rows = (jnp.asarray(A, flat.dtype), jnp.asarray(c, flat.dtype), jnp.arange(len(c)))
    k, _ = jax.lax.scan(stage, jnp.zeros((len(c), flat.size), dtype=flat.dtype), rows)
    return unravel(flat + h * (b.astype(flat.dtype) @ k))


def _arrays(tableau: diffrax.ButcherTableau) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients of the stages that the solution needs."""
    b = np.asarray(tableau.b_sol)
    needed = int(np.flatnonzero(b).max()) + 1
    A = np.zeros((needed, needed))
    for i, row in enumerate(tableau.a_lower[: needed - 1], start=1):
        A[i, :i] = row
    c = np.concatenate([[0.0], np.asarray(tableau.c)])
    return A, b[:needed], c[:needed]

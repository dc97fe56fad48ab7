"""Warning about motions that pass a position where branches of the motion of a loop meet."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import BifurcationWarning, warn
from ..mechanism.loops import block_in_words
from ..model.values import all_concrete
from ..programs import stored
from ..system import constraints
from ..system.abstract import AbstractSystem, State
from ..system.kernels import kernel
from .verdict import Verdict

# Largest number of entries of all Jacobians: their singular values take some tenths of a second.
MAX_ENTRIES = 500_000
# Errors of singular values, in units of the largest constraint residual; and how far above them a
# singular value must be.
DISTURBANCE, CLEAR = 30.0, 10.0
# Largest motion between saved states, by its size, and least cosine of the angles between their
# singular vectors. Measured with 3,000 linkages near change points and steps of the crank up to
# 0.6 rad: 6 false alarms, all within steps above 0.4 rad. A limit of 0.6 misses passages.
MOST_MOVED, LEAST_COSINE = 1.0, 0.7
# Rounding errors of single precision decide on the branch within 0.003 rad, the square root of a
# hundred of them. Measured: energies of successful motions off by up to 5 %.
SINGLE = 1e-10
NOT_DOUBLE = (
    "; in single precision it may turn into another branch, or change its energy by some percent: "
    "compare motion.energy, or take float64"
)
# Largest imaginary part of eigenvalues that count as real: double ones have half of all digits.
REAL = 1e-3


def warn_of_change_points(system: AbstractSystem, verdict: Verdict, ts: Any, states: Any) -> None:
    """Warn by `BifurcationWarning` of the first singular position that saved states pass smoothly.

    Not within transformations. Mechanisms without loops have no such positions.
    """
    n = constraints.n_constraints(system) if system.mechanism.topology.loops else 0
    if not (isinstance(ts, jax.Array) and isinstance(states, State) and states.q.ndim == 2):
        return
    if not 0 < n * system.nv * len(ts) <= MAX_ENTRIES or not all_concrete((system, ts, states)):
        return
    G, rates = jax.device_get(_evaluated(system, verdict.size, verdict.scales, ts, states))
    found = _first(np.asarray(ts), G, rates, float(verdict.residual))
    if found is not None:
        names = block_in_words(system.mechanism, constraints.row_names(system)[found[1]])
        single = np.finfo(G.dtype).eps > SINGLE
        warn(
            f"simulate: at about t = {found[0]:.6g} s the loop of {names} passes a singular "
            "position (a change point), where it could also go on in another way; this motion "
            "goes straight on, and play or small errors of lengths decide in a real mechanism"
            f"{NOT_DOUBLE if single else ''}",
            BifurcationWarning,
        )


@stored
def _evaluated(
    system: AbstractSystem, size: Array, scales: Array, ts: Array, states: State
) -> tuple[Array, Array]:
    """Jacobians and largest velocities at saved states, by sizes of the mechanism."""
    of_v = system.sizes(size)[1]

    def at(t: Array, y: State) -> tuple[Array, Array]:
        return kernel(_at)(system, of_v, scales, t, y)

    return jax.vmap(at)(ts, states)


def _at(
    system: AbstractSystem, of_v: Array, scales: Array, t: Array, y: State
) -> tuple[Array, Array]:
    c = system.configuration(t, y.q, y.z)
    G = constraints.jacobian(system, c) * of_v[None] / scales[:, None]
    return G, jnp.max(jnp.abs(y.v) / of_v)


def _first(
    ts: np.ndarray, G: np.ndarray, rates: np.ndarray, residual: float
) -> tuple[float, int] | None:
    """Time of the first passage, and the constraint row that takes part in it most.

    Along a smooth motion through a singular position a singular value that is not always zero
    changes its sign, if singular vectors are continued smoothly. Then G at the next saved state, in
    terms of the singular vectors U and V and of the singular values σ at this one,
    σ⁻¹ Uᵀ G V, has a negative eigenvalue: 1 - 1 / s, if G is singular after the part s of the way.
    """
    finite = np.isfinite(ts) & np.isfinite(rates) & np.isfinite(G).all(axis=(1, 2))
    ts, G, rates = ts[finite], G[finite], rates[finite]
    U, sigma, Vt = np.linalg.svd(G, full_matrices=False)
    limit = max(float(np.finfo(G.dtype).eps) ** 0.5, DISTURBANCE * residual)
    rank = int(np.sum(sigma > CLEAR * limit, axis=1).max(initial=0))
    if rank == 0:
        return None
    clear = np.flatnonzero(sigma[:, rank - 1] > CLEAR * limit)
    k, m = clear[:-1], clear[1:]
    near = (ts[m] - ts[k]) * np.maximum(rates[k], rates[m]) < MOST_MOVED
    k, m = k[near], m[near]
    U, V = np.swapaxes(U[:, :, :rank], 1, 2), np.swapaxes(Vt[:, :rank], 1, 2)
    turns = U[k] @ np.swapaxes(U[m], 1, 2), np.swapaxes(V[k], 1, 2) @ V[m]
    cosines = np.linalg.svd(np.stack(turns), compute_uv=False)[..., -1].min(axis=0)
    ratios = np.linalg.eigvals(U[k] @ G[m] @ V[k] / sigma[k, :rank, None])
    negative = (ratios.real < 0) & (np.abs(ratios.imag) < REAL * np.abs(ratios))
    passed = negative.any(axis=1) & (cosines > LEAST_COSINE)
    if not passed.any():
        return None
    i = np.argmax(passed)
    part = 1.0 / (1.0 - ratios[i][negative[i]].real.max())
    return float(ts[k[i]] + part * (ts[m[i]] - ts[k[i]])), int(np.argmax(np.abs(U[k[i], -1])))

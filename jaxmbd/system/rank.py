"""Rank of the constraints: degrees of freedom, redundant rows, singular positions.

All results are computed on the host from concrete values and cannot be traced.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import require_concrete
from ..programs import stored
from . import constraints, sizes
from .abstract import AbstractSystem, Coordinates, Time, Velocities, as_time

# Number of nearby configurations, number of attempts to compute them, and their distance: a
# rotation [rad], or a part of the size of the mechanism.
N_NEARBY, N_ATTEMPTS, DISTANCE = 3, 8, 0.1

# Gauss-Newton steps that close the joints of nearby configurations, and their relative cutoff of
# singular values: redundant rows contradict one another by about the residual of open joints.
N_STEPS, CUTOFF = 20, 1e-3

# With more independent rows than this, no nearby configurations are computed.
MAX_ROWS = 100


@dataclass(frozen=True)
class ConstraintRank:
    """Ranks of the Jacobian G of the constraints at a configuration.

    - `nv`: number of velocities; `n_rows`: number of constraints; `rank`: rank of G.
    - `position_rank`: rank of the holonomic rows.
    - `undriven_rank`: rank of the rows without drivers.
    - `generic_rank`: the largest rank here and at `n_nearby` configurations in the neighbourhood,
      to which the drivers may move.
    - `redundant`: number of dependent constraints of each joint (or coupling, driver, body) that
      has some, at the configuration with the largest rank.
    - `closes`: whether the joints are closed, or can be closed by a small displacement, and no
      joint is reversed.
    - `closeness`: the singular value of G that is the least nonzero one nearby, by its largest
      value there: 0 in a singular position, about 1 far from all, 1 without neighbours.
    - `weakest`: name of the joint (or coupling, driver, body) whose row takes part in it most.
    """

    nv: int
    n_rows: int
    rank: int
    position_rank: int
    undriven_rank: int
    generic_rank: int
    n_nearby: int
    redundant: dict[str, int]
    closes: bool
    closeness: float = 1.0
    weakest: str = ""

    @property
    def dof(self) -> int:
        """Number of independent velocities."""
        return self.nv - self.rank

    @property
    def position_dof(self) -> int:
        """Number of independent displacements: above `dof` with nonholonomic constraints."""
        return self.nv - self.position_rank

    @property
    def undriven_dof(self) -> int:
        """Number of independent velocities without the drivers."""
        return self.nv - self.undriven_rank

    @property
    def n_redundant(self) -> int:
        """Number of constraints that are redundant in all positions."""
        return self.n_rows - self.generic_rank

    @property
    def singular(self) -> bool:
        """True if the rank is smaller than in the neighbourhood (a singular position)."""
        return self.rank < self.generic_rank


def constraint_rank(system: AbstractSystem, t: float | Time, q: Coordinates) -> ConstraintRank:
    """Rank of G at time `t` [s] and coordinates `q`, shape `(nq,)`, and in their neighbourhood.

    Velocities are scaled by the mass and rows by their length, so that units do not matter. Joints
    with small residuals are closed first.

    **Raises** `ModelError` for traced values, and if the mass matrix is singular.
    """
    require_concrete("the rank of constraints", (system, q), "compute it outside jit")
    names = constraints.row_names(system)
    if not names:
        return ConstraintRank(system.nv, *[0] * 6, redundant={}, closes=True)
    start = _Configuration(system, as_time(t, system), q)
    closed = start if start.independent and start.is_closed else start.closed()
    here = closed or start
    is_small_loop = system.mechanism.topology.loops and len(names) <= MAX_ROWS
    nearby = _neighbours(here) if is_small_loop or here.rank < len(names) else []
    generic = max([here, *nearby], key=lambda configuration: configuration.rank)
    closeness, row = _closeness(here, nearby, generic.rank)
    dependent = zip(names, generic.dependent, strict=True)
    return ConstraintRank(
        nv=system.nv,
        n_rows=len(names),
        rank=here.rank,
        position_rank=here.rank_of(constraints.is_holonomic(system)),
        undriven_rank=here.rank_of(~_is_driven(system)),
        generic_rank=generic.rank,
        n_nearby=len(nearby),
        redundant=dict(Counter(name for name, is_dependent in dependent if is_dependent)),
        closes=closed is not None,
        closeness=closeness,
        weakest=names[row],
    )


class _Configuration:
    """One configuration: G, with rows scaled to unit length in the metric M⁻¹, and g."""

    def __init__(self, system: AbstractSystem, t: Time, q: Coordinates):
        self.system, self.t, self.q = system, t, q
        G, A, self.residuals, self.relative, self.size, self.angles = jax.device_get(
            _evaluate(system, t, q)
        )
        self.G, self.A = G.astype(float), A.astype(float)
        self.eps = float(jnp.finfo(q.dtype).eps)
        self.undriven = constraints.is_holonomic(system) & ~_is_driven(system)
        self.lengths = np.sqrt(np.maximum(np.diag(self.A), 0.0))
        self.scale = self.scale_of(self.lengths)

    def scale_of(self, lengths: np.ndarray) -> np.ndarray:
        """Inverse lengths of rows."""
        # Rows without effect, such as those of a planar loop across its plane, are rounding errors.
        nonzero = lengths > 1e3 * self.eps * lengths.max()
        return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=nonzero)

    @cached_property
    def L(self) -> np.ndarray:
        """Cholesky factor of the mass matrix."""
        try:
            return np.linalg.cholesky(np.asarray(self.system.mass(self.q), dtype=float))
        except np.linalg.LinAlgError as error:
            raise ModelError("the mass matrix is not positive definite") from error

    @cached_property
    def W(self) -> np.ndarray:
        """G L⁻ᵀ with rows scaled to unit length."""
        return self.scaled(self.scale)

    def scaled(self, scale: np.ndarray) -> np.ndarray:
        """G L⁻ᵀ with scaled rows."""
        return scale[:, None] * np.linalg.solve(self.L, self.G.T).T

    @cached_property
    def independent(self) -> bool:
        """True if a Cholesky factorization of W Wᵀ proves that all rows are independent.

        If it does, no singular values of W are needed, which take minutes for large mechanisms.
        """
        gram = self.scale[:, None] * self.A * self.scale
        try:
            np.linalg.cholesky(gram - 1e3 * self.eps * np.eye(len(gram)))
        except np.linalg.LinAlgError:
            return False
        return True

    @property
    def is_closed(self) -> bool:
        """True if all joints are closed and none is reversed; drivers are ignored."""
        closed = np.abs(self.relative[self.undriven]).max(initial=0.0) <= self.eps**0.5
        return bool(closed and not np.any(constraints.is_reversed(self.angles)))

    @property
    def tolerance(self) -> float:
        """Relative tolerance below which singular values count as zero."""
        return self.eps**0.5

    @cached_property
    def rank(self) -> int:
        """Rank of G."""
        return len(self.G) if self.independent else self._rank(self.W)

    def rank_of(self, rows: np.ndarray) -> int:
        """Rank of a part of the rows of G, selected by a boolean for each row."""
        if self.independent:
            return int(np.sum(rows))
        return self.rank if rows.all() else self._rank(self.W[rows])

    def _rank(self, W: np.ndarray) -> int:
        return self._n_above(np.linalg.svd(W, compute_uv=False))

    def _n_above(self, sigma: np.ndarray) -> int:
        """Number of nonzero singular values."""
        return int(np.sum(sigma > self.tolerance * sigma.max(initial=0.0)))

    @property
    def dependent(self) -> np.ndarray:
        """Mask of the rows that are part of a vanishing linear combination of rows."""
        if self.rank == len(self.G):
            return np.zeros(len(self.G), dtype=bool)
        vanishing = np.linalg.svd(self.W)[0][:, self.rank :]
        return np.linalg.norm(vanishing, axis=1) > self.tolerance**0.5

    @cached_property
    def free(self) -> np.ndarray:
        """Orthonormal directions, as columns, in which the joints remain closed."""
        rows = self.W[self.undriven]
        _, sigma, directions = np.linalg.svd(rows)
        return directions[self._n_above(sigma) :].T

    def moved(self, step: np.ndarray) -> "_Configuration":
        """The configuration after a step Lᵀ δ."""
        q = _retract(self.system, self.q, self._velocities(step))
        return _Configuration(self.system, self.t, q)

    def reach(self, step: np.ndarray) -> float:
        """Largest displacement of any frame: rotation [rad], or translation by `size`."""
        twists = np.asarray(_twists(self.system, self.t, self.q, self._velocities(step)))
        linear, angular = (np.linalg.norm(x, axis=1).max() for x in np.split(twists, 2, axis=1))
        return float(max(linear / self.size, angular))

    def closed(self, across: np.ndarray | None = None) -> "_Configuration | None":
        """A nearby configuration with closed joints, or None; drivers are ignored.

        All steps are perpendicular to the direction `across`, if it is given.
        """
        current = self
        for _ in range(N_STEPS):
            rows, residuals = (
                current.W[self.undriven],
                (current.scale * current.residuals)[self.undriven],
            )
            if across is not None:
                rows = np.concatenate([rows, across[None] / np.linalg.norm(across)])
                residuals = np.append(residuals, 0.0)
            step = -np.linalg.pinv(rows, CUTOFF) @ residuals
            reach = current.reach(step)
            if reach <= self.eps**0.75:
                return current if current.is_closed else None
            current = current.moved(step / max(reach, 1.0))
        return None

    def _velocities(self, step: np.ndarray) -> Velocities:
        return jnp.asarray(np.linalg.solve(self.L.T, step), dtype=self.q.dtype)


def _neighbours(here: _Configuration) -> list[_Configuration]:
    """Configurations with closed joints in random directions (of a fixed seed) from `here`."""
    neighbours, rng = [], np.random.default_rng(0)
    if here.free.shape[1] == 0:
        return neighbours
    for _ in range(N_ATTEMPTS):
        step = here.free @ rng.normal(size=here.free.shape[1])
        # Steps perpendicular to the direction, since others may return to a point where branches of
        # motion meet, or to one where a motion exists to first order only.
        displaced = here.moved(step * (DISTANCE / (here.reach(step) or 1.0)))
        neighbour = displaced.closed(across=step)
        if neighbour is not None:
            neighbours.append(neighbour)
        if len(neighbours) == N_NEARBY:
            break
    return neighbours


def _closeness(here: _Configuration, nearby: list[_Configuration], rank: int) -> tuple[float, int]:
    """The singular value of number `rank` by its largest value nearby, and its largest row.

    Rows have the same scale in all positions: the length of one may vanish in a singular one.
    """
    if rank == 0 or not nearby:
        return 1.0, 0
    scale = here.scale_of(np.max([x.lengths for x in (here, *nearby)], axis=0))
    U, sigma, _ = np.linalg.svd(here.scaled(scale))
    values = [np.linalg.svd(x.scaled(scale), compute_uv=False)[rank - 1] for x in nearby]
    largest = max(sigma[rank - 1], *values) or 1.0
    return float(sigma[rank - 1] / largest), int(np.argmax(np.abs(U[:, rank - 1])))


def _is_driven(system: AbstractSystem) -> np.ndarray:
    """Mask of the rows of drivers."""
    coordinate = len(constraints.coordinate_names(system))
    start = constraints.n_constraints(system) - coordinate
    start += sum(len(group.names) for group in system.mechanism.couplings)
    rows = np.arange(constraints.n_constraints(system))
    n = sum(len(group.names) for group in system.mechanism.drivers)
    return (start <= rows) & (rows < start + n)


@stored
def _evaluate(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Array, ...]:
    """G, G M⁻¹ Gᵀ, g, g by its scales, the extent of the mechanism, and misalignments of joints."""
    system = system.prepared()
    c = system.configuration(t, q)
    G, g = constraints.jacobian(system, c), constraints.residual(system, c)
    A, relative = G @ system.solve_mass(c, G.T), g / sizes.scales(system, c, G)
    return G, A, g, relative, sizes.extent(c), constraints.misalignment_angles(system, c)


@stored
def _twists(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
) -> Float[Array, "n_ports 6"]:
    return system.configuration(t, q).twists(v)


@stored
def _retract(system: AbstractSystem, q: Coordinates, dv: Velocities) -> Coordinates:
    return system.retract(q, dv)

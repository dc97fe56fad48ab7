"""Rank of the constraints: degrees of freedom, redundant rows, singular positions.

Worked out on the host from concrete numbers, for people to read; nothing here can be traced.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.values import all_concrete
from . import branches, constraints
from .abstract import AbstractSystem, Coordinates, Time, Velocities, as_time

# How many nearby configurations to compare with, in how many attempts, and how far away they are:
# by a turn [rad], or by a part of the size of the mechanism.
N_NEARBY, N_ATTEMPTS, DISTANCE = 3, 8, 0.1

# Steps of Gauss-Newton that close the joints there, and which singular values are zero to them:
# redundant rows contradict each other by about as much as the joints are open.
N_STEPS, CUTOFF = 20, 1e-3


@dataclass(frozen=True)
class ConstraintRank:
    """What the Jacobian G of the constraints says of a configuration.

    - `nv`: number of velocities; `n_rows`: number of constraints; `rank`: that of G.
    - `position_rank`: rank of the rows that constrain positions, and not velocities alone.
    - `undriven_rank`: rank of the rows that belong to no driver.
    - `generic_rank`: the largest rank here and at `n_nearby` configurations in the neighbourhood,
      the drivers let go.
    - `redundant`: for each joint (or coupling, driver, body) that takes part, how many of its
      constraints depend on others wherever the rank is largest.
    - `closes`: whether the joints are closed, or can be by a little, none the wrong way round.
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

    @property
    def dof(self) -> int:
        """Number of independent velocities that the constraints leave."""
        return self.nv - self.rank

    @property
    def position_dof(self) -> int:
        """The same of positions: more where there are nonholonomic constraints."""
        return self.nv - self.position_rank

    @property
    def undriven_dof(self) -> int:
        """Number of independent velocities without the drivers."""
        return self.nv - self.undriven_rank

    @property
    def n_redundant(self) -> int:
        """How many constraints could be left out, in all positions."""
        return self.n_rows - self.generic_rank

    @property
    def singular(self) -> bool:
        """Whether constraints depend on one another here that do not in the neighbourhood."""
        return self.rank < self.generic_rank


def constraint_rank(system: AbstractSystem, t: float | Time, q: Coordinates) -> ConstraintRank:
    """Rank of G at coordinates, shape `(nq,)`, and time [s], and in their neighbourhood.

    Velocities are measured by the mass, and rows by their own length, so that units do not matter.
    Joints that are a little open are closed first.

    **Raises** `ModelError` for what is being traced, and where the mass matrix is singular.
    """
    if not all_concrete((system, q)):
        raise ModelError("the rank of constraints needs concrete numbers; ask for it outside jit")
    names = constraints.row_names(system)
    if not names:
        return ConstraintRank(system.nv, *[0] * 6, redundant={}, closes=True)
    given = _Place(system, as_time(t, system), q)
    closed = given if given.independent and given.is_closed else given.closed()
    here = closed or given
    nearby = _neighbours(here) if here.rank < len(names) else []
    best = max([here, *nearby], key=lambda place: place.rank)
    repeating = zip(names, best.repeating, strict=True)
    return ConstraintRank(
        nv=system.nv,
        n_rows=len(names),
        rank=here.rank,
        position_rank=here.rank_of(constraints.is_holonomic(system)),
        undriven_rank=here.rank_of(~_is_driven(system)),
        generic_rank=best.rank,
        n_nearby=len(nearby),
        redundant=dict(Counter(name for name, takes_part in repeating if takes_part)),
        closes=closed is not None,
    )


class _Place:
    """One configuration: G, its rows scaled to unit length in the metric of the mass, and g."""

    def __init__(self, system: AbstractSystem, t: Time, q: Coordinates):
        self.system, self.t, self.q = system, t, q
        G, A, self.gaps, self.origins, self.angles = jax.device_get(_evaluate(system, t, q))
        self.G, self.A = G.astype(float), A.astype(float)
        self.eps = float(jnp.finfo(q.dtype).eps)
        self.held = constraints.is_holonomic(system) & ~_is_driven(system)
        lengths = np.sqrt(np.maximum(np.diag(self.A), 0.0))
        # Rows that constrain nothing, such as those of a loop across its plane, are rounding.
        counts = lengths > 1e3 * self.eps * lengths.max()
        self.scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=counts)

    @cached_property
    def L(self) -> np.ndarray:
        """Cholesky factor of the mass matrix."""
        try:
            return np.linalg.cholesky(np.asarray(self.system.mass(self.q), dtype=float))
        except np.linalg.LinAlgError as error:
            raise ModelError("the mass matrix is not positive definite") from error

    @cached_property
    def W(self) -> np.ndarray:
        """Rows of G L⁻ᵀ, made of unit length."""
        return self.scale[:, None] * np.linalg.solve(self.L, self.G.T).T

    @cached_property
    def independent(self) -> bool:
        """Whether W Wᵀ shows that no row depends on others; if not, it takes a closer look at W.

        The singular values of large mechanisms take minutes.
        """
        gram = self.scale[:, None] * self.A * self.scale
        try:
            np.linalg.cholesky(gram - 1e3 * self.eps * np.eye(len(gram)))
        except np.linalg.LinAlgError:
            return False
        return True

    @property
    def is_closed(self) -> bool:
        """Whether the joints are, none of them the wrong way round, drivers let go."""
        closed = np.abs(self.gaps[self.held]).max(initial=0.0) <= self.eps**0.5
        return bool(closed and not np.any(branches.is_reversed(self.angles)))

    @property
    def tolerance(self) -> float:
        """Singular values below this part of the largest one are zero."""
        return self.eps**0.5

    @cached_property
    def rank(self) -> int:
        """Rank of G."""
        return len(self.G) if self.independent else self._rank(self.W)

    def rank_of(self, rows: np.ndarray) -> int:
        """Rank of some of the rows."""
        if self.independent:
            return int(np.sum(rows))
        return self.rank if rows.all() else self._rank(self.W[rows])

    def _rank(self, W: np.ndarray) -> int:
        return self._n_above(np.linalg.svd(W, compute_uv=False))

    def _n_above(self, sigma: np.ndarray) -> int:
        """How many singular values are not zero."""
        return int(np.sum(sigma > self.tolerance * sigma.max(initial=0.0)))

    @property
    def repeating(self) -> np.ndarray:
        """For each row whether it takes part in a combination of rows that vanishes."""
        if self.rank == len(self.G):
            return np.zeros(len(self.G), dtype=bool)
        vanishing = np.linalg.svd(self.W)[0][:, self.rank :]
        return np.linalg.norm(vanishing, axis=1) > self.tolerance**0.5

    @cached_property
    def free(self) -> np.ndarray:
        """Orthonormal directions, as columns, that keep the joints closed."""
        held = self.W[self.held]
        _, sigma, directions = np.linalg.svd(held)
        return directions[self._n_above(sigma) :].T

    @property
    def size(self) -> float:
        """Largest extent of the mechanism [m], or 1 if it has none."""
        return float(np.ptp(self.origins, axis=0).max()) or 1.0

    def moved(self, step: np.ndarray) -> "_Place":
        """The configuration after a step, measured by the mass."""
        return _Place(self.system, self.t, _retract(self.system, self.q, self._velocities(step)))

    def reach(self, step: np.ndarray) -> float:
        """How far a step moves any frame: the larger of turn [rad] and part of the size."""
        twists = np.asarray(_twists(self.system, self.t, self.q, self._velocities(step)))
        linear, angular = (np.linalg.norm(x, axis=1).max() for x in np.split(twists, 2, axis=1))
        return float(max(linear / self.size, angular))

    def closed(self, across: np.ndarray | None = None) -> "_Place | None":
        """The place nearby where the joints are closed, drivers let go, if there is one.

        It is looked for in steps `across` a direction, where one is given.
        """
        place = self
        for _ in range(N_STEPS):
            rows, gaps = place.W[self.held], (place.scale * place.gaps)[self.held]
            if across is not None:
                rows = np.concatenate([rows, across[None] / np.linalg.norm(across)])
                gaps = np.append(gaps, 0.0)
            step = -np.linalg.pinv(rows, CUTOFF) @ gaps
            reach = place.reach(step)
            if reach <= self.eps**0.75:
                return place if place.is_closed else None
            place = place.moved(step / max(reach, 1.0))
        return None

    def _velocities(self, step: np.ndarray) -> Velocities:
        return jnp.asarray(np.linalg.solve(self.L.T, step), dtype=self.q.dtype)


def _neighbours(here: _Place) -> list[_Place]:
    """Configurations with closed joints in random directions (of a fixed seed) from here."""
    found, rng = [], np.random.default_rng(0)
    if here.free.shape[1] == 0:
        return found
    for _ in range(N_ATTEMPTS):
        step = here.free @ rng.normal(size=here.free.shape[1])
        # Steps across the direction, for others may lead back: to where branches of motion meet, or
        # where the first order promises a motion that there is not.
        first = here.moved(step * (DISTANCE / (here.reach(step) or 1.0)))
        there = first.closed(across=step)
        if there is not None:
            found.append(there)
        if len(found) == N_NEARBY:
            break
    return found


def _is_driven(system: AbstractSystem) -> np.ndarray:
    """For each row whether it belongs to a driver."""
    coordinate = len(constraints.coordinate_names(system))
    start = constraints.n_constraints(system) - coordinate
    start += sum(len(group.names) for group in system.mechanism.couplings)
    rows = np.arange(constraints.n_constraints(system))
    n = sum(len(group.names) for group in system.mechanism.drivers)
    return (start <= rows) & (rows < start + n)


@eqx.filter_jit
def _evaluate(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Array, ...]:
    """G, G M⁻¹ Gᵀ, g, the origins of all frames, and by how much joints miss their rotations."""
    system = system.prepared()
    c = system.configuration(t, q)
    G, g = constraints.jacobian(system, c), constraints.residual(system, c)
    return G, G @ system.solve_mass(c, G.T), g, c.ports.p, branches.angles(system, c)


@eqx.filter_jit
def _twists(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
) -> Float[Array, "n_ports 6"]:
    return system.configuration(t, q).twists(v)


@eqx.filter_jit
def _retract(system: AbstractSystem, q: Coordinates, dv: Velocities) -> Coordinates:
    return system.retract(q, dv)

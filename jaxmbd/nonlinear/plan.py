"""Index tables of a multifrontal elimination, computed once for each pattern on the host."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scalarjit.frontal import Fronts, Stage, whole

from ..system.sparsity import SparsityPattern
from .factorization import Residual

# Sparse Jacobians by few directional derivatives (Curtis, Powell and Reid 1974) -------------------
#
# Unknowns share a direction if no equation depends on more than one of them. The number of
# directions of a chain does not depend on its length: it is the number of unknowns around one body.


def directions(pattern: SparsityPattern, members: Sequence[np.ndarray]) -> np.ndarray:
    """Number of the direction of each unknown; `members` are the unknowns of each node."""
    coupled = neighbours(pattern)
    colours: list[int] = []  # The first direction of each colour.
    widths: list[int] = []
    taken: list[set[int]] = [set() for _ in members]  # Colours of unknowns in a node's equations.
    chosen = []
    for node, own in enumerate(members):
        blocked = set().union(*(taken[row] for row in coupled[node]))
        colour = next(k for k in range(len(widths) + 1) if k not in blocked)
        if colour == len(widths):
            widths.append(0)
        widths[colour] = max(widths[colour], own.size)
        for row in coupled[node]:
            taken[row].add(colour)
        chosen.append(colour)
    colours = np.concatenate([[0], np.cumsum(widths)]).tolist()
    direction = np.zeros(sum(own.size for own in members), dtype=np.int32)
    for own, colour in zip(members, chosen, strict=True):
        direction[own] = colours[colour] + np.arange(own.size)
    return direction


def compressed_jacobian(
    fn: Residual, x: Float[Array, "n"], direction: Int[np.ndarray, "n"]
) -> tuple[Float[Array, "n"] | None, Float[Array, "k n"]]:
    """fn(x), and its derivative along the sum of the unit vectors of each direction.

    None instead of fn(x) if it is not computed with the derivative.
    """
    numbers = jnp.arange(int(direction.max()) + 1, dtype=jnp.int32)

    def members(number: Array) -> Array:
        return (direction == number).astype(x.dtype)

    if fn.is_code:
        return fn.derivatives(x, jax.vmap(members)(numbers))
    value, along = jax.linearize(fn, x)
    # Sequential: the intermediate results of all directions together exceed the CPU's cache.
    return value, jax.lax.map(lambda number: along(members(number)), numbers)


# Elimination order of unknowns from their sparsity pattern, computed once on the host -------------
#
# A pivot is a set of nodes that are eliminated together: a body with the multipliers of the joint
# that carries it, whose block [[H, Bᵀ], [B, 0]] is regular. Multipliers of loop constraints are
# eliminated after the bodies of the loop. Each stage eliminates pivots that share no equation,
# pivots with the fewest neighbours first (multiple minimum degree, Liu 1985). A tree takes as many
# stages as it has levels, a chain the logarithm of its length. The remaining nodes are one dense
# pivot.

# Largest number of remaining unknowns that are eliminated together.
LAST = 40


@dataclass(frozen=True)
class Front:
    """One pivot: its eliminated nodes, and the later nodes that their equations depend on."""

    own: tuple[int, ...]
    boundary: tuple[int, ...]


def neighbours(pattern: SparsityPattern) -> list[set[int]]:
    """For each node, the nodes whose equations depend on its unknowns, itself included."""
    n = 1 + max((*pattern.velocities, *pattern.constraints))
    adjacent = [{node} for node in range(n)]
    for element in pattern.elements:
        for node in element:
            adjacent[node].update(element)
    return adjacent


def eliminate(pattern: SparsityPattern, sizes: Sequence[int]) -> list[list[Front]]:
    """Fronts of each stage; `sizes` are the numbers of unknowns of the nodes."""
    coupled = neighbours(pattern)
    left, waiting = _pivots(pattern)
    where = {node: first for first, own in left.items() for node in own}

    def size(nodes: Iterable[int]) -> int:
        return sum(sizes[node] for node in nodes)

    def independent() -> list[Front]:
        candidates = []
        for first, own in left.items():
            if not any(node in where for node in waiting[first]):
                boundary = set().union(*(coupled[node] for node in own)).difference(own)
                candidates.append((size(boundary), first, boundary))
        candidates.sort(key=lambda candidate: candidate[:2])
        fronts, taken, least = [], set(), candidates[0][0]
        for degree, first, boundary in candidates:
            # Pivots of high degree wait for later stages.
            if first not in taken and degree <= max(least, 2 * size(left[first])):
                fronts.append(Front(left[first], tuple(sorted(boundary))))
                taken.update(where[node] for node in boundary)
        return fronts

    stages = []
    while where:
        rest = tuple(sorted(where))
        fronts = [Front(rest, ())] if size(rest) <= LAST else independent()
        for front in fronts:
            for node in front.boundary:
                coupled[node].update(front.boundary)
                coupled[node].difference_update(front.own)
            for node in front.own:
                left.pop(where.pop(node), None)
        stages.append(fronts)
    return stages


def _pivots(
    pattern: SparsityPattern,
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Nodes of each pivot, and nodes that are eliminated before it, by its first node."""
    n = 1 + max(pattern.velocities)
    own = {node: [node] for node in range(n)}
    waiting: dict[int, tuple[int, ...]] = dict.fromkeys(range(n), ())
    for node, support in enumerate(pattern.supports, start=n):
        if len(support) == 1:
            own[support[0]].append(node)
        else:
            own[node], waiting[node] = [node], support
    return {first: tuple(nodes) for first, nodes in own.items()}, waiting


# Index tables of a multifrontal elimination, computed once for each pattern on the host -----------

# Largest number of fronts of a batch, and the overhead of a batch in numbers of fronts.
MOST, OVERHEAD = 64, 4

# Largest factor by which padding may raise the work to join stages of different sizes.
PADDING = 1.5


@dataclass(frozen=True, eq=False)
class FrontTables:
    """Tables of `c` sequential batches of `w` fronts of one size.

    Batches and fronts are padded; the index of padding is -1.

    - `n_boundary`: number of boundary unknowns of each front; `n` counts the eliminated ones too.
    - `at`, shape `(c, w, n)`: unknown of each row and column, eliminated ones first.
    - `slot`, shape `(c, w, n)`: slot of the node of each unknown in the front; the last is empty.
    - `coupled`, shape `(c, w, s, s)`: pairs of slots that are coupled by the Jacobian itself.
    - `place`, shape `(c, w, m, n)`: row in the update matrix of each of m child fronts;
      `matrices`, `vectors`, `width`, shape `(c, w, m)`: positions of the update matrices and
      vectors in their stores, and their size.
    - `boundary`, shape `(c, w, n_boundary)`: position of each boundary unknown in the solution.
    """

    n_boundary: int
    at: np.ndarray
    slot: np.ndarray
    coupled: np.ndarray
    place: np.ndarray
    matrices: np.ndarray
    vectors: np.ndarray
    width: np.ndarray
    boundary: np.ndarray


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan of differentiation and elimination of the unknowns of a pattern.

    - `direction`: for each unknown, the number of its directional derivative.
    - `owner`: for each unknown, its node.
    - `seen`, shape `(k, nodes)`: for each direction and node, the unknown of the direction on which
      equations of the node may depend, -1 for none.
    - `around`: for each multiplier, the velocity unknowns in its equations, -1 for none.
    - `order`: position of each unknown in the order of elimination.
    """

    direction: np.ndarray
    owner: np.ndarray
    seen: np.ndarray
    around: np.ndarray
    sequences: tuple[FrontTables, ...]
    order: np.ndarray


@lru_cache(maxsize=64)
def plan_of(pattern: SparsityPattern, counts: tuple[int, ...]) -> Plan:
    """The plan for `counts` unknowns of velocities and of constraints."""
    owners = [
        np.tile(np.asarray(nodes, dtype=np.int32), count // max(len(nodes), 1))
        for nodes, count in zip((pattern.velocities, pattern.constraints), counts, strict=False)
    ]
    owner = np.concatenate(owners)
    members = _members(owner)
    coupled = neighbours(pattern)
    stages = eliminate(pattern, [own.size for own in members])
    around = []
    for node in owners[1].tolist():
        near = np.concatenate([members[other] for other in sorted(coupled[node])])
        around.append(near[near < counts[0]])
    tables, order = _tables(stages, members, coupled)
    direction = directions(pattern, members)
    seen = np.full((int(direction.max()) + 1, len(members)), -1, dtype=np.int32)
    for node, others in enumerate(coupled):
        for unknowns in (members[other] for other in others):
            seen[direction[unknowns], node] = unknowns
    return Plan(direction, owner, seen, _padded(around), tables, order)


@lru_cache(maxsize=64)
def fronts_of(plan: Plan) -> Fronts:
    """The same elimination front by front, for generated code."""
    n, start, stages = plan.direction.size, 0, []
    left: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # By the place of an update matrix.
    n_updates = 0
    for sequence in plan.sequences:
        c, w, size = sequence.at.shape
        f, b = sequence.n_boundary, size - sequence.n_boundary
        width = whole(b) + whole(f)
        local = np.concatenate([np.arange(b), whole(b) + np.arange(f)])  # Columns of unknowns.
        at = sequence.at.reshape(c * w, size)
        slot, place = sequence.slot.reshape(c * w, size), sequence.place.reshape(c * w, -1, size)
        coupled = sequence.coupled.reshape(c * w, *sequence.coupled.shape[2:])
        matrices = sequence.matrices.reshape(c * w, -1)
        chosen = np.flatnonzero(at[:, 0] >= 0)
        rows, columns = (np.zeros((chosen.size, f), np.int64) for _ in range(2))
        source, target, first = [], [], [0]
        for k, front in enumerate(chosen.tolist()):
            own = at[front]
            near = coupled[front][slot[front][None, :], slot[front][:, None]]
            i, j = np.nonzero(near & (own[None, :] >= 0) & (own[:, None] >= 0))
            source.append(plan.direction[own[j]].astype(np.int64) * n + own[i])
            target.append(start + i * width + local[j])
            first.append(first[-1] + i.size)
            for child in range(place.shape[1]):
                where = np.flatnonzero(place[front, child] >= 0)
                if where.size:
                    of_rows, of_columns = left.pop(int(matrices[front, child]))
                    child_row = place[front, child, where]
                    of_rows[child_row] = start + where * width
                    of_columns[child_row] = local[where]
            left[n_updates + front * f * f] = rows[k], columns[k]
            start += size * width
        n_updates += c * w * f * f
        counts = at[chosen] >= 0
        numbers = chosen, counts[:, :b].sum(1), counts[:, b:].sum(1), at[chosen], np.array(first)
        lists = np.concatenate(source), np.concatenate(target)
        starts = start - size * width * np.arange(chosen.size, 0, -1)
        stages.append(Stage(b, f, c * w, *numbers, *lists, rows, columns, starts))
    return Fronts(n, start, tuple(stages))


def _members(owner: np.ndarray) -> list[np.ndarray]:
    """Unknowns of each node."""
    order = np.argsort(owner, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(owner))
    return np.split(order, ends[:-1])


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    width = max([0, *(len(row) for row in rows)])
    table = np.full((len(rows), width), -1, dtype=np.int32)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table


class _Shape(NamedTuple):
    """Largest numbers of eliminated and of boundary unknowns, of nodes, and of child fronts."""

    own: int
    boundary: int
    nodes: int
    children: int


@dataclass
class _Batch:
    """Fronts that are eliminated in parallel, and their padded sizes."""

    fronts: list[Front]
    shape: _Shape
    width: int


class _Left(NamedTuple):
    """Update of a front: boundary unknowns, and positions of matrix and vector in the stores."""

    unknowns: np.ndarray
    matrix: int
    vector: int
    width: int


def _tables(
    stages: list[list[Front]], members: list[np.ndarray], coupled: list[set[int]]
) -> tuple[tuple[FrontTables, ...], np.ndarray]:
    parents = _parents(stages)
    shapes = _shapes(stages, members, parents)
    sequences = _sequences(stages, shapes)
    order = np.zeros(sum(own.size for own in members), dtype=np.int32)
    waiting: dict[Front, list[_Left]] = {front: [] for fronts in stages for front in fronts}
    matrix = vector = unknown = 0
    for batch in (batch for batches in sequences for batch in batches):
        b, f = batch.shape[:2]
        for k, front in enumerate(batch.fronts):
            own = _joined(members, front.own)
            order[own] = unknown + k * b + np.arange(own.size)
            if front in parents:
                left = matrix + k * f * f, vector + k * f, f
                stays = _joined(members, front.boundary)
                waiting[parents[front]].append(_Left(stays, *left))
        matrix += batch.width * f * f
        vector += batch.width * f
        unknown += batch.width * b
    tables = [
        [_table(batch, waiting, members, coupled, order) for batch in batches]
        for batches in sequences
    ]
    stacked = tuple(
        FrontTables(batches[0].shape.boundary, *map(np.stack, zip(*rows, strict=True)))
        for batches, rows in zip(sequences, tables, strict=True)
    )
    return stacked, order


def _parents(stages: list[list[Front]]) -> dict[Front, Front]:
    """Parent of each front: the front that is the first to eliminate any of its boundary."""
    ordered = [front for fronts in stages for front in fronts]
    rank = {node: k for k, front in enumerate(ordered) for node in front.own}
    return {f: ordered[min(rank[node] for node in f.boundary)] for f in ordered if f.boundary}


def _shapes(
    stages: list[list[Front]], members: list[np.ndarray], parents: dict[Front, Front]
) -> list[_Shape]:
    """Largest sizes in each stage."""
    children = Counter(parents.values())
    return [
        _Shape(
            max(_joined(members, front.own).size for front in fronts),
            max(_joined(members, front.boundary).size for front in fronts),
            max(len(front.own) + len(front.boundary) for front in fronts),
            max(children[front] for front in fronts),
        )
        for fronts in stages
    ]


def _sequences(stages: list[list[Front]], shapes: list[_Shape]) -> list[list[_Batch]]:
    """Join stages of similar sizes, so that the program does not grow with the number of stages."""

    def cost(count: int, shape: _Shape) -> int:
        return count * (shape.own + shape.boundary) ** 2 * (shape.own + 2 * shape.children)

    groups: list[tuple[list[list[Front]], _Shape, int]] = []
    for fronts, shape in zip(stages, shapes, strict=True):
        alone = cost(len(fronts), shape)
        if groups:
            members, other, total = groups[-1]
            joint = _Shape(*map(max, shape, other))
            count = len(fronts) + sum(map(len, members))
            if cost(count, joint) <= PADDING * (total + alone):
                groups[-1] = ([*members, fronts], joint, total + alone)
                continue
        groups.append(([fronts], shape, alone))
    sequences = []
    for members, shape, _ in groups:
        width = _width([len(fronts) for fronts in members])
        pieces = [fronts[k : k + width] for fronts in members for k in range(0, len(fronts), width)]
        sequences.append([_Batch(piece, shape, width) for piece in pieces])
    return sequences


def _width(counts: list[int]) -> int:
    """Width of batches with the least cost of padding and of overhead."""
    widths = [2**k for k in range(MOST.bit_length())]
    return min(widths, key=lambda w: sum(-(-count // w) for count in counts) * (w + OVERHEAD))


def _joined(members: list[np.ndarray], nodes: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int32), *(members[node] for node in nodes)])


def _table(
    batch: _Batch,
    waiting: dict[Front, list[_Left]],
    members: list[np.ndarray],
    coupled: list[set[int]],
    order: np.ndarray,
) -> tuple[np.ndarray, ...]:
    (b, f, n_nodes, m), w = batch.shape, batch.width
    at = np.full((w, b + f), -1, dtype=np.int32)
    slot = np.full((w, b + f), n_nodes, dtype=np.int32)
    near = np.zeros((w, n_nodes + 1, n_nodes + 1), dtype=bool)
    place = np.full((w, m, b + f), -1, dtype=np.int32)
    where = np.zeros((3, w, m), dtype=np.int32)
    for i, front in enumerate(batch.fronts):
        own, stays = (_joined(members, nodes) for nodes in (front.own, front.boundary))
        at[i, : own.size], at[i, b : b + stays.size] = own, stays
        column = {int(unknown): j for j, unknown in enumerate(at[i]) if unknown >= 0}
        nodes = (*front.own, *front.boundary)
        for s, node in enumerate(nodes):
            slot[i, [column[int(unknown)] for unknown in members[node]]] = s
            # Entries of two boundary nodes are added when one of the nodes is eliminated.
            for r in range(len(nodes) if s < len(front.own) else len(front.own)):
                near[i, s, r] = nodes[r] in coupled[node]
        for j, left in enumerate(waiting[front]):
            columns = [column[int(unknown)] for unknown in left.unknowns]
            place[i, j, columns] = np.arange(left.unknowns.size)
            where[:, i, j] = left[1:]
    stays = at[:, b:]
    return at, slot, near, place, *where, np.where(stays >= 0, order[stays], -1).astype(np.int32)

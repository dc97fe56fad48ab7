"""Frames of straight beams that are welded at their ends, as one flexible body."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import FlexibleBody
from ..errors import ModelError
from ..model.model import unknown
from ..model.values import (
    as_count,
    as_instance,
    as_leaf,
    as_mapping,
    as_names,
    as_text,
    is_concrete,
)
from ..programs import stored
from .beam import THEORIES, as_section, check_units, material_of, positive
from .element import Fields, Material, SecondOrder, beam_fields, gauss, matrices, strains_at_nodes
from .mode_shapes import damping_matrix, modes, projected, shapes_of
from .sections import AbstractSection
from .skins import beam_skin, merged

# Smallest sine of the angle between a beam and the direction that its section is turned towards.
PARALLEL = 1e-3


class Member(eqx.Module):
    """A straight beam of a frame, from the node `start` to the node `end`.

    **Arguments:**

    - `start`, `end`: names of nodes.
    - `section`: its z is as close to `up` as possible, its y is normal to `up` and to the beam.
    - `E`, `G`: Young's and shear modulus [Pa]; `density` [kg/m³].
    - `n_elements`: finite elements of equal length.
    - `up`: a direction that is not parallel to the beam. Default: z.
    - `theory`: `"timoshenko"`, or `"bernoulli"` without shear.

    **Raises** `ModelError` for values that are not positive, and for moduli and density that no
    material has in SI units.
    """

    start: str = eqx.field(static=True)
    end: str = eqx.field(static=True)
    section: AbstractSection
    E: Float[Array, ""]
    G: Float[Array, ""]
    density: Float[Array, ""]
    n_elements: int = eqx.field(static=True)
    up: Float[Array, "3"]
    theory: str = eqx.field(static=True)

    def __init__(
        self,
        start: str,
        end: str,
        section: AbstractSection,
        E: Any,
        G: Any,
        density: Any,
        n_elements: int = 10,
        up: Any = (0.0, 0.0, 1.0),
        theory: str = "timoshenko",
    ):
        start, end = as_text(start, "Member: start"), as_text(end, "Member: end")
        caller = f"Member from {start!r} to {end!r}"
        if start == end:
            raise ModelError(f"{caller}: the ends must be two nodes")
        if theory not in THEORIES:
            raise ModelError(
                f"{caller}: theory must be 'timoshenko' or 'bernoulli', got {theory!r}"
            )
        self.start, self.end = start, end
        self.section = as_section(section, f"{caller}: section")
        self.E, self.G, self.density = (
            positive(x, f"{caller}: {name}")
            for name, x in (("E", E), ("G", G), ("density", density))
        )
        check_units(self.E, self.density, caller)
        self.n_elements, self.theory = as_count(n_elements, f"{caller}: n_elements"), theory
        self.up = as_leaf(up, (3,), f"{caller}: up")


class _Mesh(NamedTuple):
    """Nodes and rows of a frame; static.

    - `order`: names of members, such that each one but the first starts where others ended.
    - `flipped`: whether each of them is passed from its end to its start.
    - `chains`: for each of them its nodes in this direction. Named nodes come first, then inner
      nodes of the members as they were given.
    - `closed`: whether members form loops.
    """

    order: tuple[str, ...]
    flipped: tuple[bool, ...]
    chains: tuple[tuple[int, ...], ...]
    n_nodes: int
    closed: bool


def frame(
    nodes: Mapping[str, Any],
    members: Mapping[str, Member],
    interfaces: Sequence[str],
    n_modes: int = 6,
    method: str = "craig-bampton",
    frame: str = "clamped",
    basis: Any = "frozen",
    attachments: Sequence[str] = (),
    damping: Any = 0.0,
    stiffening: bool = True,
) -> FlexibleBody:
    """A flexible body of straight beams that are welded to each other at named nodes.

    The body's frame of reference has the axes and the origin of the positions of `nodes`. Nodes for
    frames are those of `nodes`, and `"beam[i]"`, the i-th node of the member `"beam"` from its
    start, with i from 0 to its `n_elements`. Strains are along the axes of the members. They are
    not unique at a node at which several members end: name the end of a member there.

    **Arguments:**

    - `nodes`: `{name: position}` [m].
    - `members`: `{name: Member}`; together they connect all nodes.
    - `interfaces`: names of nodes at which joints act.
    - `stiffening`: as in `beam`, for members that form no loop.
    - `n_modes`, `method`, `frame`, `attachments`, `damping`: as in `reduce`.
    - `basis`: as in `reduce`; or a `FlexibleBody` of another frame of the same members, whose mode
      shapes are used.

    **Raises** `ModelError` for unknown or unconnected nodes, for members without length or parallel
    to their `up`, and for stiffening of loops of members.
    """
    caller = "flexible.frame"
    nodes = as_mapping(nodes, f"{caller}: nodes", "{name: position}")
    members = as_mapping(members, f"{caller}: members", "{name: Member}")
    for name, member in members.items():
        as_instance(member, Member, f"{caller}: member {name!r}", "a flexible.Member")
    interfaces = as_names(interfaces, f"{caller}: interfaces")
    attachments = as_names(attachments, f"{caller}: attachments")
    positions = {name: as_leaf(p, (3,), f"{caller}: node {name!r}") for name, p in nodes.items()}
    mesh = _mesh(tuple(positions), members, interfaces, caller)
    if stiffening and mesh.closed:
        raise ModelError(
            f"{caller}: members form a loop, within which displacements of second order are not "
            "those of single rods; pass stiffening=False, or divide the frame into several bodies"
        )
    named = jnp.stack(list(positions.values()))
    given = tuple(members[name] for name in mesh.order)
    _check_geometry(mesh, named, given, caller)
    K, M, points = _assembled(named, given, mesh)

    known = {name: row for row, name in enumerate(positions)}
    for name in (*interfaces, *attachments):
        if name not in known:
            raise ModelError(unknown(f"{caller}: unknown node", name, known))

    def computed() -> Float[Array, "n k"]:
        ends = {name: known[name] for name in interfaces}
        return modes(K, M, points, ends, n_modes, method, frame, attachments, known)

    shapes = shapes_of(_basis(basis, mesh, members), computed, K.shape[0], caller)
    arrays = _body_arrays(K, M, shapes, points, given, mesh, damping, stiffening)
    skin = _skin(arrays["strains"], named, given, mesh)
    several = tuple(
        row
        for row in range(len(known))
        if sum(row in (chain[0], chain[-1]) for chain in mesh.chains) > 1
    )
    return FlexibleBody(
        **arrays, nodes={**known, **_names(mesh, members)}, skin=skin, without_strains=several
    )


def _mesh(
    names: tuple[str, ...], members: Mapping[str, Member], interfaces: Sequence[str], caller: str
) -> _Mesh:
    """Members as a tree from the first interface; **raises** `ModelError` for unknown nodes."""
    if not members or not interfaces:
        raise ModelError(f"{caller}: a frame has at least one member and one interface")
    for name in (*interfaces, *(end for m in members.values() for end in (m.start, m.end))):
        if name not in names:
            raise ModelError(unknown(f"{caller}: unknown node", name, dict.fromkeys(names)))
    inner, n_nodes = {}, len(names)
    for name, member in members.items():
        inner[name] = np.arange(n_nodes, n_nodes + member.n_elements - 1)
        n_nodes += member.n_elements - 1
    reached, order, flipped, chains = [interfaces[0]], [], [], []
    closed, waiting = False, dict(members)
    for node in reached:  # Grows within the loop.
        for name in [k for k, m in waiting.items() if node in (m.start, m.end)]:
            member = waiting.pop(name)
            back = member.end == node
            other = member.start if back else member.end
            ends = [[names.index(member.start)], inner[name], [names.index(member.end)]]
            chain = tuple(int(row) for row in np.concatenate(ends))
            order.append(name)
            flipped.append(back)
            chains.append(chain[::-1] if back else chain)
            if other in reached:
                closed = True
            else:
                reached.append(other)
    missing = [name for name in names if name not in reached]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise ModelError(f"{caller}: no members connect {interfaces[0]!r} with {listed}")
    return _Mesh(tuple(order), tuple(flipped), tuple(chains), n_nodes, closed)


def _check_geometry(mesh: _Mesh, named: Array, members: Sequence[Member], caller: str) -> None:
    if not is_concrete(named):
        return
    for name, chain, member in zip(mesh.order, mesh.chains, members, strict=True):
        along = np.asarray(named)[chain[-1]] - np.asarray(named)[chain[0]]
        length = np.linalg.norm(along)
        if not length > 0:
            raise ModelError(f"{caller}: the ends of {name!r} are at the same position")
        if not is_concrete(member.up):
            continue
        up = np.asarray(member.up)
        if not np.linalg.norm(np.cross(along, up)) > PARALLEL * length * np.linalg.norm(up):
            raise ModelError(
                f"{caller}: {name!r} is parallel to its direction up, {up.tolist()}, which then "
                "does not say where the z axis of the section is; give another one: up=[1, 0, 0]"
            )


def _axes(along: Float[Array, "3"], up: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Directions of a beam and of y and z of its section, as columns."""
    x = along / jnp.linalg.norm(along)
    y = jnp.cross(up.astype(x.dtype), x)
    y = y / jnp.linalg.norm(y)
    return jnp.stack([x, y, jnp.cross(x, y)], axis=1)


class _Placed(NamedTuple):
    """A member with its axes, the length of its elements, its material and its start."""

    axes: Float[Array, "3 3"]
    L: Float[Array, ""]
    material: Material
    start: Float[Array, "3"]


def _placed(named: Array, member: Member, chain: Any) -> _Placed:
    along = named[chain[-1]] - named[chain[0]]
    L = jnp.linalg.norm(along) / member.n_elements
    material = material_of(member.E, member.G, member.density, member.section, L, member.theory)
    return _Placed(_axes(along, member.up), L, material, named[chain[0]])


@stored
def _assembled(
    named: Float[Array, "m 3"], members: tuple[Member, ...], mesh: _Mesh
) -> tuple[Float[Array, "n n"], Float[Array, "n n"], Float[Array, "n_nodes 3"]]:
    """Stiffness and mass matrix, and positions of all nodes."""
    n_nodes = mesh.n_nodes
    n = 6 * n_nodes
    K, M = (jnp.zeros((n, n), dtype=named.dtype) for _ in range(2))
    points = jnp.zeros((n_nodes, 3), dtype=named.dtype)
    for member, nodes in zip(members, mesh.chains, strict=True):
        chain = np.asarray(nodes)
        at = _placed(named, member, chain)
        T = jnp.kron(jnp.eye(4, dtype=named.dtype), at.axes)
        rows = 6 * np.stack([chain[:-1], chain[1:]], axis=1)[:, :, None] + np.arange(6)
        rows = rows.reshape(-1, 12)
        place = rows[:, :, None], rows[:, None, :]
        of_element = [T @ x @ T.T for x in matrices(at.L, at.material)]
        blocks = [jnp.broadcast_to(x, (len(rows), 12, 12)) for x in of_element]
        K, M = K.at[place].add(blocks[0]), M.at[place].add(blocks[1])
        s = at.L * jnp.arange(len(chain), dtype=named.dtype)
        points = points.at[chain].set(at.start[None] + s[:, None] * at.axes[:, 0][None])
    return K, M, points


# Strains of a beam that is passed from its end to its start, about x and y turned by π about z.
_REVERSED = np.array([1.0, 1.0, -1.0, 1.0, 1.0, -1.0])


@stored
def _body_arrays(
    K: Array,
    M: Array,
    shapes: Array,
    points: Array,
    members: tuple[Member, ...],
    mesh: _Mesh,
    damping: Any,
    stiffening: bool,
) -> dict[str, Any]:
    """Arrays of the body. Its rows are the named nodes, then the nodes of each member."""
    n_named = _n_named(mesh)
    by_node = shapes.reshape(-1, 6, shapes.shape[1])
    mass, first, second = 0.0, 0.0, 0.0
    reached: dict[int, SecondOrder] = {}
    of_named: dict[int, tuple[Array, Array]] = {}
    rows, strains = [], []
    for member, nodes, back in zip(members, mesh.chains, mesh.flipped, strict=True):
        chain = np.asarray(nodes)
        at = _placed(points, member, chain)
        fields, strain = _member_fields(by_node[chain], at, stiffening, reached.get(nodes[0]))
        w = at.L * at.material.inertia[None] * jnp.asarray(gauss()[1], dtype=K.dtype)[:, None]
        mass = mass + at.material.inertia[0] * at.L * (len(chain) - 1)
        first = first + jnp.einsum("egai,g->ai", fields.fields[:, :, 0], w[:, 0])
        second = second + jnp.einsum("egfai,gf,egfbj->aibj", fields.fields, w, fields.fields)
        if fields.end is not None:
            reached[nodes[-1]] = fields.end
        turn = slice(None, None, -1) if back else slice(None)
        if back:
            strain = strain * jnp.asarray(_REVERSED, dtype=K.dtype)[None, None]
        rows.append(fields.nodes[turn])
        strains.append(strain[turn])
        for node, k in ((nodes[0], 0), (nodes[-1], -1)):
            of_named.setdefault(node, (fields.nodes[k], strain[k]))
    named = [of_named[row] for row in range(n_named)]
    at_nodes = jnp.concatenate([jnp.stack([x for x, _ in named]), *rows])
    stiffness = projected(K, shapes)
    return {
        "mass": jnp.asarray(mass),
        "first": jnp.asarray(first),
        "second": jnp.asarray(second),
        "stiffness": stiffness,
        "damping": damping_matrix(damping, stiffness, projected(M, shapes)),
        "positions": at_nodes[:, 0, :3],
        "translations": at_nodes[:, 1:, :3],
        "rotations": at_nodes[:, 1:, 3:],
        "strains": jnp.concatenate([jnp.stack([x for _, x in named]), *strains]),
    }


def _member_fields(
    shapes: Float[Array, "n 6 k"], at: _Placed, stiffening: bool, start: SecondOrder | None
) -> tuple[Fields, Float[Array, "n k 6"]]:
    """Fields of a member along the axes of the body, and strains along its own."""
    T = at.axes
    halves = shapes.reshape(-1, 2, 3, shapes.shape[-1])
    own = jnp.einsum("ji,nhjk->nhik", T, halves).reshape(shapes.shape)
    local = beam_fields(
        own, at.L, at.material.phi, stiffening, None if start is None else start.turned(T.T)
    )
    fields = local.fields @ T.T
    fields = fields.at[:, :, 0, 0].add(at.start)
    nodes = jnp.concatenate([local.nodes[..., :3] @ T.T, local.nodes[..., 3:] @ T.T], axis=-1)
    nodes = nodes.at[:, 0, :3].add(at.start)
    end = None if local.end is None else local.end.turned(T)
    return Fields(fields, nodes, end), strains_at_nodes(own, at.L, at.material.phi)


def _n_named(mesh: _Mesh) -> int:
    return mesh.n_nodes - sum(len(chain) - 2 for chain in mesh.chains)


def _names(mesh: _Mesh, members: Mapping[str, Member]) -> dict[str, int]:
    """Rows of the nodes of each member from its start."""
    names, row = {}, _n_named(mesh)
    for name in mesh.order:
        for i in range(members[name].n_elements + 1):
            names[f"{name}[{i}]"] = row
            row += 1
    return names


def _skin(strains: Array, named: Array, members: tuple[Member, ...], mesh: _Mesh) -> Any:
    """Surfaces of all members."""
    skins, row = [], _n_named(mesh)
    for member, chain, back in zip(members, mesh.chains, mesh.flipped, strict=True):
        rows = np.arange(row, row + len(chain))
        along = chain[::-1] if back else chain
        axes = _placed(named, member, along).axes
        skins.append(beam_skin(rows, member.section.outline(), axes, strains[rows]))
        row += len(chain)
    return merged(skins)


def _basis(basis: Any, mesh: _Mesh, members: Mapping[str, Member]) -> Any:
    """Convert the mode shapes of another frame to the degrees of freedom of this mesh."""
    if not isinstance(basis, FlexibleBody):
        return basis
    rows = dict(basis.nodes)
    inner = [rows[f"{name}[{i}]"] for name, m in members.items() for i in range(1, m.n_elements)]
    at, k = np.array([*range(_n_named(mesh)), *inner], dtype=int), basis.n_elastic
    both = jnp.concatenate([basis.translations[at, :k], basis.rotations[at, :k]], axis=2)
    return jnp.swapaxes(both, 1, 2).reshape(-1, k)

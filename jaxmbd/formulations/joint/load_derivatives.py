"""Derivatives of the loads on a rigid tree by positions and twists of its bodies.

A body's twist and displacement change its wrench, and those on bodies that forces connect with it,
by blocks of 6 × 6 numbers. Only these blocks are differentiated, in a few directions for all bodies
at once, whatever their number.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...lie import Pose, se3, so3
from ...mechanism.elements import Fields, FrameElements, JointElements, Motion
from ...mechanism.mechanism import Mechanism
from ...system.loads import total_loads
from .system import JointSystem
from .tree_configuration import JointConfiguration
from .tree_dynamics import applied_wrenches


class Blocks(NamedTuple):
    """Change of the wrench on a body by its own motion, and by that of another body.

    Along the world's axes and about the reference points, in columns.
    """

    own: Float[Array, "n_bodies 6 6"]
    beside: Float[Array, "n_pairs 6 6"]


class Plan(NamedTuple):
    """Bodies that are moved together, and those that forces connect.

    - `colours`: bodies of one colour act on no common body.
    - `pairs`: bodies with wrenches, and the bodies whose motion changes them, two lists.
    """

    colours: tuple[int, ...]
    pairs: tuple[tuple[int, ...], tuple[int, ...]]


def plan_of(system: JointSystem) -> Plan | None:
    """None for closed loops, flexible bodies, and elements of other kinds or with states.

    Couplings and drivers are no obstacle: they add no wrenches on bodies.
    """
    mechanism = system.mechanism
    known = all(type(x) in (Fields, FrameElements, JointElements) for x in mechanism.elements)
    rigid = mechanism.all_rigid and mechanism.n_states == 0
    constrained = system.constrained or system.intrinsic_names()
    if constrained or not (known and rigid and mechanism.n_bodies):
        return None
    return coloured(mechanism.n_bodies, connected(mechanism))


def connected(mechanism: Mechanism) -> tuple[tuple[int, ...], ...]:
    """Bodies, from 0, that each force between frames connects."""
    own = np.arange(mechanism.n_bodies + 1)
    carriers = np.concatenate([own, mechanism.port_bodies.array]) - 1
    found = set()
    for group in mechanism.elements:
        if isinstance(group, FrameElements):
            for ports in zip(*(rows.index for rows in group.ports), strict=True):
                found.add(tuple(sorted({int(carriers[port]) for port in ports} - {-1})))
    return tuple(sorted(x for x in found if len(x) > 1))


@lru_cache(maxsize=64)
def coloured(n: int, connected: tuple[tuple[int, ...], ...]) -> Plan:
    """The plan of `n` bodies."""
    near = [{k} for k in range(n)]
    for bodies in connected:
        for k in bodies:
            near[k].update(bodies)
    colours: list[int] = []
    for k in range(n):
        taken = {colours[i] for j in near[k] for i in near[j] if i < k}
        colours.append(next(x for x in range(k + 1) if x not in taken))
    pairs = [(a, b) for a in range(n) for b in sorted(near[a]) if a != b]
    return Plan(tuple(colours), (tuple(a for a, _ in pairs), tuple(b for _, b in pairs)))


def number_of_directions(plan: Plan) -> int:
    """Number of directions in which displacements differentiate the loads."""
    return 6 * (1 + max(plan.colours))


def wrenches_on_bodies(
    c: JointConfiguration, V: Float[Array, "n_bodies 6"]
) -> Float[Array, "n_bodies 6"]:
    """Applied wrenches about the reference points, at world twists of the bodies."""
    return _in_world(c, _along_axes(c, c.ports, _own_twists(c, V)))


class _Twists(NamedTuple):
    """Twists of bodies and of ports along their own axes."""

    of_bodies: Float[Array, "n_bodies 6"]
    of_ports: Float[Array, "n_ports 6"] | None


class _Wrenches(NamedTuple):
    """Wrenches along the axes of bodies and of ports; None without such."""

    on_bodies: Float[Array, "n_bodies 6"] | None
    on_ports: Float[Array, "n_ports 6"] | None


def _own_twists(c: JointConfiguration, V: Float[Array, "n_bodies 6"]) -> _Twists:
    bodies = jax.tree.map(lambda x: x[1 : c.mechanism.n_bodies + 1], c.shifted)
    of_bodies = jax.vmap(se3.transform_twist_back)(bodies, V)
    return _Twists(of_bodies, c.at_ports(V) if _have_frames(c.mechanism) else None)


def _have_frames(mechanism: Mechanism) -> bool:
    """True if forces act on ports, not on bodies alone."""
    return any(isinstance(group, FrameElements) for group in mechanism.elements)


def _along_axes(c: JointConfiguration, ports: Pose, twists: _Twists) -> _Wrenches:
    motion = Motion(replace(c, ports=ports), jnp.zeros(c.nv, c.q.dtype))
    motion.body_twists = twists.of_bodies
    if twists.of_ports is not None:
        motion.twists = twists.of_ports
    total = total_loads(motion)
    return _Wrenches(total.on_bodies, total.on_ports)


def _in_world(c: JointConfiguration, wrenches: _Wrenches) -> Float[Array, "n_bodies 6"]:
    frames = [x for x in c.mechanism.elements if isinstance(x, FrameElements)]
    loaded = {k for group in frames for rows in group.ports for k in rows.index}
    return applied_wrenches(c, *wrenches, loaded)


def by_displacements(c: JointConfiguration, plan: Plan, V: Float[Array, "n_bodies 6"]) -> Blocks:
    """Changes of wrenches by displacements of bodies, which take their twists along.

    The own ones are seen from the moved bodies.
    """
    mechanism, ground = c.mechanism, jnp.zeros((1, 6), c.q.dtype)
    twists, attached = _own_twists(c, V), len(mechanism.port_bodies)

    def moved(X: Pose, s: Array) -> Pose:
        return Pose(s[:3] + so3.cross(s[3:], X.p), so3.hat(s[3:]) @ X.R)

    def along(s: Float[Array, "n_bodies 6"]) -> Float[Array, "n_bodies 6"]:
        s = jnp.concatenate([ground, s])
        if _have_frames(mechanism):
            s = jnp.concatenate([s, mechanism.port_bodies.take(s)])
        dots = jax.vmap(moved)(jax.tree.map(lambda x: x[: len(s)], c.shifted), s)
        if not _have_frames(mechanism):
            still = lambda x: jnp.concatenate([x, jnp.zeros((attached, *x.shape[1:]), x.dtype)])  # noqa: E731
            dots = jax.tree.map(still, dots)
        return _in_world(c, jax.jvp(lambda x: _along_axes(c, x, twists), (c.ports,), (dots,))[1])

    return _in_all_directions(along, plan, c.q.dtype)


def by_twists(c: JointConfiguration, plan: Plan, V: Float[Array, "n_bodies 6"]) -> Blocks:
    """Changes of wrenches by world twists of bodies."""
    twists = _own_twists(c, V)

    def along(s: Float[Array, "n_bodies 6"]) -> Float[Array, "n_bodies 6"]:
        dots = _own_twists(c, s)
        return _in_world(c, jax.jvp(lambda x: _along_axes(c, c.ports, x), (twists,), (dots,))[1])

    return _in_all_directions(along, plan, c.q.dtype)


def _in_all_directions(along: Callable[[Array], Array], plan: Plan, dtype: Any) -> Blocks:
    """The blocks of a linear function of twists of the bodies."""
    of, n = np.asarray(plan.colours), len(plan.colours)
    colours = np.arange(1 + max(plan.colours))
    moves = np.eye(6)[None, :, None, :] * (of == colours[:, None])[:, None, :, None]
    twists = jnp.asarray(moves.reshape(-1, n, 6), dtype)
    changes = jnp.moveaxis(jax.vmap(along)(twists), 0, -1)  # Of bodies by components.
    changes = changes.reshape(n, 6, -1, 6)
    on, by = (np.asarray(rows, int) for rows in plan.pairs)
    return Blocks(changes[np.arange(n), :, of], changes[on, :, of[by]])

"""Elements of one kind, stacked, with the frames, joints or bodies that they act on.

A group gathers the positions and velocities that its elements depend on from a configuration, and
adds their loads to wrenches on ports and forces on joints. Loads, potentials, two-point loads,
state rates and sparsity are each assembled by one loop over `mechanism.elements`.
"""

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..forces import AbstractField, AbstractFrameElement, AbstractJointElement
from .groups import BodyGroup, IndexSet, in_order

if TYPE_CHECKING:
    from ..system.configuration import AbstractConfiguration

Wrenches = Float[Array, "n_ports 6"]
JointForces = dict[int, Float[Array, "_n _nv"]]  # By group, for groups with a force.


class Motion:
    """A configuration and velocities; twists and joint rates are computed at their first use."""

    def __init__(self, c: "AbstractConfiguration", v: Float[Array, "nv"]):
        self.c, self.v = c, v
        self._rates: dict[int, Float[Array, "_n _nv"]] = {}

    @cached_property
    def twists(self) -> Wrenches:
        """Twist of every port along its own axes."""
        return self.c.twists(self.v)

    @cached_property
    def body_twists(self) -> Float[Array, "n_bodies 6"]:
        """Twist of every body along its own axes."""
        return self.c.mechanism.body_ports.take(self.twists)

    def rates(self, g: int) -> Float[Array, "_n _nv"]:
        """Velocities of the joints of group `g`."""
        if g not in self._rates:
            self._rates[g] = self.c.rates(g, self.v)
        return self._rates[g]


class Loads:
    """Sums of loads: wrenches along the axes of bodies and ports, and forces on joints.

    - `on_bodies`: wrench of fields on every body; None without fields.
    - `on_ports`: wrench of other elements on every port; None without such elements.
    - `loaded`: rows of the ports with such a wrench; it is zero on the others.
    - `joint_forces`: force on every joint velocity, by group.
    """

    def __init__(self, c: "AbstractConfiguration"):
        self.c = c
        self.on_bodies: Float[Array, "n_bodies 6"] | None = None
        self.on_ports: Wrenches | None = None
        self.loaded: set[int] = set()
        self.joint_forces: JointForces = {}

    @property
    def wrenches(self) -> Wrenches:
        """Wrench on every port."""
        total = self._zeros() if self.on_ports is None else self.on_ports
        if self.on_bodies is None:
            return total
        return self.c.mechanism.body_ports.add_to(total, self.on_bodies)

    def add_body_wrenches(self, wrenches: Float[Array, "n_bodies 6"]) -> None:
        """Add a wrench on every body."""
        self.on_bodies = wrenches if self.on_bodies is None else self.on_bodies + wrenches

    def add_wrenches(self, ports: IndexSet, wrenches: Float[Array, "n 6"]) -> None:
        """Add wrenches on some ports."""
        total = self._zeros() if self.on_ports is None else self.on_ports
        self.on_ports = ports.add_to(total, wrenches)
        self.loaded.update(ports.index)

    def _zeros(self) -> Wrenches:
        return jnp.zeros((self.c.mechanism.n_ports, 6), dtype=self.c.q.dtype)

    def add_joint_forces(self, g: int, rows: IndexSet, forces: Float[Array, "n nv"]) -> None:
        """Add forces on the velocities of some joints of group `g`."""
        if g not in self.joint_forces:
            group = self.c.mechanism.joints[g]
            shape = len(group), group.joint.sizes()[1]
            self.joint_forces[g] = jnp.zeros(shape, dtype=self.c.q.dtype)
        self.joint_forces[g] = rows.add_to(self.joint_forces[g], forces)


class AbstractElementGroup(eqx.Module):
    """Elements of one kind, stacked along a leading axis.

    - `n_states`: number of first-order states of each element; `first_state`: index in z of the
      first one of the group. The others of the group follow.
    """

    element: eqx.AbstractVar[Any]
    names: eqx.AbstractVar[tuple[str, ...]]
    n_states: eqx.AbstractVar[int]
    first_state: eqx.AbstractVar[int]

    @abstractmethod
    def positions(self, c: "AbstractConfiguration") -> tuple[Any, ...]:
        """Positions on which potentials depend, for every element."""

    @abstractmethod
    def velocities(self, motion: Motion) -> tuple[Any, ...]:
        """Velocities on which loads depend, for every element."""

    @abstractmethod
    def add(self, total: Loads, load: Any) -> None:
        """Add the result of `loads` to a total."""

    def initial_states(self) -> Float[Array, "n n_states"]:
        """Initial z of every element."""
        n = len(self.names)  # vmap cannot infer n if an element has no arrays.
        return jax.vmap(lambda element: element.initial_states(), axis_size=n)(self.element)

    def states(self, z: Float[Array, "nz"] | None) -> Float[Array, "n n_states"]:
        """First-order states of every element; **raises** `ValueError` if a required z is None."""
        n, k = len(self.names), self.n_states
        if k == 0:
            return jnp.zeros((n, 0))
        if z is None:
            raise ValueError(
                f"{self.names[0]!r} has first-order states: configuration(t, q, z) needs z"
            )
        return z[self.first_state : self.first_state + n * k].reshape(n, k)

    def loads(self, motion: Motion) -> Any:
        """Load of every element."""
        c = motion.c
        args = *self.positions(c), *self.velocities(motion), self.states(c.z)
        return jax.vmap(lambda element, *args: element.load(c.t, *args))(self.element, *args)

    def potentials(self, c: "AbstractConfiguration") -> Float[Array, "n *k"]:
        """Potential energy of every element [J]."""
        positions = self.positions(c)
        return jax.vmap(lambda element, *at: element.potential(c.t, *at))(self.element, *positions)

    @property
    def has_potential(self) -> bool:
        """True if the kind of element overrides `potential`."""
        bases = AbstractFrameElement, AbstractJointElement, AbstractField
        return type(self.element).potential not in [base.potential for base in bases]


class FrameElements(AbstractElementGroup):
    """Elements between frames; `ports[k]` are the port rows of the k-th frame of each element."""

    element: AbstractFrameElement
    names: tuple[str, ...] = eqx.field(static=True)
    n_states: int = eqx.field(static=True)
    first_state: int = eqx.field(static=True)
    ports: tuple[IndexSet, ...] = eqx.field(static=True)

    def at_frames(self, x: Any) -> Any:
        """Entries of port data for every element and each of its frames, `(n, n_frames, …)`."""
        by_frame = [rows.take_tree(x) for rows in self.ports]
        return jax.tree.map(lambda *frames: jnp.stack(frames, axis=1), *by_frame)

    def positions(self, c: "AbstractConfiguration") -> tuple[Any, ...]:
        return (self.at_frames(c.ports),)

    def velocities(self, motion: Motion) -> tuple[Any, ...]:
        return (self.at_frames(motion.twists),)

    def add(self, total: Loads, load: Float[Array, "n n_frames 6"]) -> None:
        for k, rows in enumerate(self.ports):
            total.add_wrenches(rows, load[:, k])


class JointElements(AbstractElementGroup):
    """Elements on joints of one group; `rows` are the rows of the joints."""

    element: AbstractJointElement
    names: tuple[str, ...] = eqx.field(static=True)
    n_states: int = eqx.field(static=True)
    first_state: int = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)

    def positions(self, c: "AbstractConfiguration") -> tuple[Any, ...]:
        return (self.rows.take(c.coordinates(self.group)),)

    def velocities(self, motion: Motion) -> tuple[Any, ...]:
        return (self.rows.take(motion.rates(self.group)),)

    def add(self, total: Loads, load: Float[Array, "n nv"]) -> None:
        total.add_joint_forces(self.group, self.rows, load)


class Fields(AbstractElementGroup):
    """Fields, which act on every body."""

    element: AbstractField
    names: tuple[str, ...] = eqx.field(static=True)
    n_states: int = eqx.field(static=True)
    first_state: int = eqx.field(static=True)

    def positions(self, c: "AbstractConfiguration") -> tuple[Any, ...]:
        """Bodies and their poses; **raises** `NotImplementedError` unless all bodies are rigid."""
        if not c.mechanism.all_rigid:
            raise NotImplementedError("fields at bodies that are not rigid have loads only")
        bodies = c.mechanism.body_ports
        return c.mechanism.rigid, bodies.take_tree(c.ports)

    def velocities(self, motion: Motion) -> tuple[Any, ...]:
        return (motion.body_twists,)

    def loads(self, motion: Motion) -> Float[Array, "n_bodies 6"]:
        """Sum of the wrenches of all fields on every body, along its own axes."""
        mechanism = motion.c.mechanism
        if mechanism.all_rigid:
            return self._loads_of_kind(motion, mechanism.bodies[0])
        rows = [group.rows for group in mechanism.bodies]
        parts = [self._loads_of_kind(motion, group)[:, :6] for group in mechanism.bodies]
        return in_order(rows, mechanism.n_bodies, parts)

    def elastic_loads(self, motion: Motion) -> Float[Array, "n_elastic"]:
        """Sum of the forces of all fields on the elastic coordinates of all bodies."""
        parts = [
            self._loads_of_kind(motion, group)[:, 6:].ravel()
            for group in motion.c.mechanism.bodies
            if group.n_elastic > 0
        ]
        return jnp.concatenate([motion.v[:0], *parts])

    def _loads_of_kind(self, motion: Motion, group: BodyGroup) -> Float[Array, "n _k"]:
        """Loads on the twists and elastic rates of the bodies of one kind."""
        c, rigid = motion.c, isinstance(group.body, RigidBody)
        bodies = c.mechanism.body_ports
        X = group.rows.take_tree(bodies.take_tree(c.ports))
        args: tuple[Any, ...] = X, group.rows.take(motion.body_twists)
        if not rigid:
            args = *args, group.own(c.elastic)

        def on_bodies(field: AbstractField) -> Float[Array, "n _k"]:
            law = field.wrench if rigid else field.load_of_body
            return jax.vmap(lambda *args: law(c.t, *args))(group.body, *args)

        return jnp.sum(jax.vmap(on_bodies)(self.element), axis=0)

    def add(self, total: Loads, load: Float[Array, "n_bodies 6"]) -> None:
        total.add_body_wrenches(load)

    def potentials(self, c: "AbstractConfiguration") -> Float[Array, "n n_bodies"]:
        bodies = c.mechanism.body_ports.take_tree(c.ports)
        parts = []
        for group in c.mechanism.bodies:
            args: tuple[Any, ...] = group.body, group.rows.take_tree(bodies)
            rigid = isinstance(group.body, RigidBody)
            if not rigid:
                args = *args, group.own(c.elastic)

            def of_bodies(
                field: AbstractField, args: tuple[Any, ...] = args, rigid: bool = rigid
            ) -> Float[Array, "n"]:
                law = field.potential if rigid else field.potential_of_body
                return jax.vmap(lambda *args: law(c.t, *args))(*args)

            parts.append(jax.vmap(of_bodies)(self.element))
        return jnp.concatenate(parts, axis=1)

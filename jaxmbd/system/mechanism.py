"""A model lowered to stacked arrays and static rows: what every formulation starts from."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..bodies import RigidBody
from ..errors import ModelError
from ..forces import (
    AbstractField,
    AbstractForce,
    AbstractFrameForce,
    AbstractJointForce,
    Armature,
)
from ..joints import AbstractJoint, Free
from ..lie import Pose
from ..model import Frame, Model, ground
from ..model.model import references
from .couplings import CouplingGroup, lower_couplings
from .drivers import DriverGroup, lower_drivers
from .float_types import float_type, in_float_type
from .groups import ForceGroup, JointForceGroup, JointGroup, group_by, kind_of, stack
from .rows import Rows
from .topology import Topology, find_topology


class Mechanism(eqx.Module):
    """Bodies, joints and forces by kind, and the table of ports they touch.

    Ports 0 … n_bodies are the frames of the ground and of the bodies; the others follow, each
    fixed to the body of row `port_bodies` by the pose of `offsets`.
    """

    topology: Topology = eqx.field(static=True)
    bodies: RigidBody
    joints: tuple[JointGroup, ...]
    frame_forces: tuple[ForceGroup, ...]
    joint_forces: tuple[JointForceGroup, ...]
    rotors: tuple[JointForceGroup, ...]
    fields: tuple[ForceGroup, ...]
    couplings: tuple[CouplingGroup, ...]
    drivers: tuple[DriverGroup, ...]
    offsets: Pose
    port_bodies: Rows = eqx.field(static=True)
    port_names: tuple[str | None, ...] = eqx.field(static=True)

    @property
    def n_bodies(self) -> int:
        """Number of bodies, the ground not counted."""
        return self.topology.n_bodies

    @property
    def n_ports(self) -> int:
        """Number of ports, the ground's and the bodies' frames counted."""
        return 1 + self.n_bodies + len(self.port_bodies)

    @property
    def dtype(self) -> Any:
        """The float type of the system: the widest one among all numbers of the mechanism."""
        return float_type(self)

    @property
    def constrained_coordinates(self) -> tuple[int, ...]:
        """Groups of joints that couplings and drivers refer to."""
        found = {g for group in self.couplings for g in (group.group, group.source_group)}
        return tuple(sorted(found | {group.group for group in self.drivers}))

    @property
    def observed(self) -> tuple[int, ...]:
        """Groups of joints whose coordinates forces, rotors, couplings or drivers refer to."""
        found = {group.group for group in (*self.joint_forces, *self.rotors)}
        return tuple(sorted(found | set(self.constrained_coordinates)))

    def ports(self, bodies: Pose) -> Pose:
        """Poses of all ports from those of the bodies (rows 0 … n_bodies)."""
        if len(self.port_bodies) == 0:
            return bodies
        carriers = self.port_bodies.take_tree(bodies)
        attached = jax.vmap(Pose.__matmul__)(carriers, self.offsets)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), bodies, attached)

    def find_joint(self, name: str) -> tuple[int, int]:
        """Group of a joint and its row in it; **raises** `KeyError` for an unknown name."""
        for g, group in enumerate(self.joints):
            if name in group.names:
                return g, group.names.index(name)
        raise KeyError(name)

    def joint(self, name: str) -> AbstractJoint:
        """One joint, unstacked."""
        g, row = self.find_joint(name)
        return jax.tree.map(lambda x: x[row], self.joints[g].joint)


class _Ports:
    """The port table under construction."""

    def __init__(self, topology: Topology):
        self.topology = topology
        self.frames: list[Frame] = []
        self.names: list[str | None] = list(topology.bodies)

    def add(self, frames: Sequence[Frame], names: Sequence[str | None]) -> Rows:
        first = len(self.names)
        self.frames.extend(frames)
        self.names.extend(names)
        return Rows.of(range(first, len(self.names)))


def lower(model: Model, cut: Sequence[str] = ()) -> Mechanism:
    """Group the components of a model by kind and lay out its ports.

    A pure function of the leaves: under a transformation the result follows them. Joints named in
    `cut` close loops. The floats of the model have one type.

    **Raises** `ModelError`, naming the component, for values that make no sense and for forces
    that do not fit their joint, and for names in `cut` of joints that close no loop.
    """
    model.check_values()
    topology = find_topology(model.bodies, model.joints, cut)
    ports = _Ports(topology)
    ports.add([model.frames[name] for name in sorted(model.frames)], sorted(model.frames))
    dtype = float_type(model)
    joints = _lower_joints(model, topology, ports, dtype)
    forces = {name: model.forces[name] for name in sorted(model.forces)}
    frame_forces = _lower_frame_forces(forces, ports)
    place = {name: (g, i) for g, group in enumerate(joints) for i, name in enumerate(group.names)}
    _check_joint_forces(forces, joints, place, dtype)
    return Mechanism(
        topology=topology,
        bodies=_checked_bodies([(name, model.bodies[name]) for name in topology.bodies[1:]]),
        joints=joints,
        frame_forces=frame_forces,
        joint_forces=_lower_joint_forces(forces, AbstractJointForce, place),
        rotors=_lower_joint_forces(forces, Armature, place),
        fields=_lower_fields(forces),
        couplings=lower_couplings(model.couplings, joints, place),
        drivers=lower_drivers(model.drivers, joints, place),
        offsets=_poses(stack(ports.frames or [in_float_type(ground, dtype)])),
        port_bodies=Rows.of(topology.row[frame.body] for frame in ports.frames),
        port_names=tuple(ports.names),
    )


@jax.jit
def _poses(frames: Frame) -> Pose:
    """Poses of stacked frames in their bodies."""
    return jax.vmap(lambda frame: frame.pose)(frames)


def _checked_bodies(bodies: Sequence[tuple[str, RigidBody]]) -> RigidBody:
    """Stacked bodies; impossible values that are only known at run time raise there."""
    stacked = stack([body for _, body in bodies])
    if all(body.is_concrete() for _, body in bodies):
        return stacked  # Judged already, by name, in `Model.check_values`.
    bad = jax.vmap(lambda body: ~body.is_possible())(stacked)
    messages = [f"body {name!r}: mass or inertia is impossible" for name, _ in bodies]
    mass = eqx.branched_error_if(stacked.mass, jnp.any(bad), jnp.argmax(bad), messages)
    return eqx.tree_at(lambda body: body.mass, stacked, mass)


def _lower_joints(
    model: Model, topology: Topology, ports: _Ports, dtype: Any
) -> tuple[JointGroup, ...]:
    entries = []  # (name, joint, in_tree, reversed, child row less one), tree joints by child.
    for child, edge in enumerate(topology.edges):
        added = edge.joint in topology.floating
        floating = in_float_type(Free(ground, Frame(edge.joint)), dtype) if added else None
        joint = model.joints[edge.joint] if floating is None else floating
        entries.append((edge.joint, joint, True, edge.reversed, child))
    entries += [(name, model.joints[name], False, False, -1) for name in topology.loops]
    groups = []
    for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), *entry[2:4])):
        names = tuple(entry[0] for entry in members)
        joints = [entry[1] for entry in members]
        groups.append(
            JointGroup(
                joint=stack(joints),
                names=names,
                first=ports.add(
                    [j.predecessor for j in joints], [f"{n}.predecessor" for n in names]
                ),
                second=ports.add([j.successor for j in joints], [f"{n}.successor" for n in names]),
                in_tree=members[0][2],
                reversed=members[0][3],
                children=Rows.of(entry[4] for entry in members if entry[2]),
            )
        )
    return tuple(groups)


def _lower_frame_forces(forces: dict[str, AbstractForce], ports: _Ports) -> tuple[ForceGroup, ...]:
    entries = [(n, f) for n, f in forces.items() if isinstance(f, AbstractFrameForce)]
    groups = []
    for members in group_by(entries, key=lambda entry: kind_of(entry[1])):
        names = tuple(name for name, _ in members)
        frames = [references(force) for _, force in members]
        rows = tuple(
            ports.add(list(column), [None] * len(column)) for column in zip(*frames, strict=True)
        )
        groups.append(ForceGroup(stack([force for _, force in members]), names, rows))
    return tuple(groups)


def _lower_joint_forces(
    forces: dict[str, AbstractForce],
    kind: type[AbstractJointForce] | type[Armature],
    place: dict[str, tuple[int, int]],
) -> tuple[JointForceGroup, ...]:
    entries = [(n, f, *place[f.joint.name]) for n, f in forces.items() if isinstance(f, kind)]
    groups = []
    for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), entry[2])):
        ordered = sorted(members, key=lambda entry: entry[3])
        groups.append(
            JointForceGroup(
                stack([entry[1] for entry in ordered]),
                tuple(entry[0] for entry in ordered),
                ordered[0][2],
                Rows.of(entry[3] for entry in ordered),
            )
        )
    return tuple(groups)


def _lower_fields(forces: dict[str, AbstractForce]) -> tuple[ForceGroup, ...]:
    entries = [(n, f) for n, f in forces.items() if isinstance(f, AbstractField)]
    return tuple(
        ForceGroup(stack([f for _, f in members]), tuple(n for n, _ in members), ())
        for members in group_by(entries, key=lambda entry: kind_of(entry[1]))
    )


def _check_joint_forces(
    forces: dict[str, AbstractForce],
    joints: tuple[JointGroup, ...],
    place: dict[str, tuple[int, int]],
    dtype: Any,
) -> None:
    for name, force in forces.items():
        if isinstance(force, AbstractFrameForce | AbstractField):
            continue
        if not isinstance(force, AbstractJointForce | Armature):
            raise ModelError(
                f"force {name!r}: {type(force).__name__} is none of the kinds of force; derive it "
                "from AbstractFrameForce, AbstractJointForce or AbstractField"
            )
        joint = joints[place[force.joint.name][0]].joint
        nq, nv, _ = joint.sizes()
        who = f"force {name!r} on the {type(joint).__name__} joint {force.joint.name!r}"
        if isinstance(force, Armature):
            if nq != 1:
                raise ModelError(f"{who}: an armature needs a joint with one coordinate, not {nq}")
            continue
        shapes = ((), (nq,), (nv,))
        time, q, v = (jax.ShapeDtypeStruct(s, dtype) for s in shapes)
        try:
            got = jax.eval_shape(type(force).force, force, time, q, v).shape
        except (TypeError, ValueError) as error:
            raise ModelError(f"{who} does not fit its {nq} coordinates: {error}") from error
        if got != (nv,):
            raise ModelError(f"{who} returns shape {got}, the joint has {nv} velocities")

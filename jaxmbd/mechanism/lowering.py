"""Lowering of a model to a mechanism: components by kind, in stacked arrays, and ports."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..bodies import AbstractBody, MasslessLink, RigidBody, Rotor
from ..errors import ModelError
from ..forces import (
    AbstractElement,
    AbstractField,
    AbstractFrameElement,
    AbstractJointElement,
)
from ..forces.abstract_controller import AbstractController
from ..joints import Free, Spherical
from ..lie import Pose, so3
from ..model import Frame, Model, ground
from ..model.model import float_type, in_float_type, references
from ..programs import stored
from ..programs.tracing import branched_error_if
from .controllers import lower_controller
from .couplings import lower_couplings, lower_drivers
from .elements import AbstractElementGroup, Fields, FrameElements, JointElements
from .groups import BodyGroup, IndexSet, JointGroup, RotorGroup, group_by, kind_of, stack
from .mechanism import Mechanism
from .topology import Topology, find_topology


class _Ports:
    """The port table under construction."""

    def __init__(self, topology: Topology):
        self.topology = topology
        self.frames: list[Frame] = []
        self.names: list[str | None] = list(topology.bodies)

    def add(self, frames: Sequence[Frame], names: Sequence[str | None]) -> IndexSet:
        first = len(self.names)
        self.frames.extend(frames)
        self.names.extend(names)
        return IndexSet.of(range(first, len(self.names)))


def lower(model: Model, cut: Sequence[str] = (), joint_coordinates: bool = False) -> Mechanism:
    """Group the components of a model by kind, and lay out its ports.

    A pure function of the leaves, which works under JAX transformations. All floats of the model
    must have one type. Joints named in `cut` close loops.

    **Raises** `ModelError`, naming the component, for invalid values, for forces that do not match
    their joint, and for names in `cut` of joints that close no loop; for massless links with no
    mass beyond them in the tree. Without `joint_coordinates` it raises for all massless links, and
    for rotors on spherical joints.
    """
    forces = {name: force.lowered() for name, force in sorted(model.forces.items())}
    model = eqx.tree_at(lambda m: m.forces, model, forces)
    model.check_values()
    bodies = {name: body.lowered() for name, body in model.bodies.items()}
    model = eqx.tree_at(lambda m: m.bodies, model, bodies)
    links = [name for name, body in model.bodies.items() if isinstance(body, MasslessLink)]
    if links and not joint_coordinates:
        raise ModelError(
            f"body {links[0]!r} is a massless link: the mass matrix of this formulation would be "
            "singular; use JointCoordinates()"
        )
    topology = _topology(model, cut, links)
    massless = _massless(topology, links)
    ports = _Ports(topology)
    ports.add([model.frames[name] for name in sorted(model.frames)], sorted(model.frames))
    dtype = float_type(model)
    joints = _lower_joints(model, topology, ports, dtype)
    place = {name: (g, i) for g, group in enumerate(joints) for i, name in enumerate(group.names)}
    rotors = {name: model.rotors[name] for name in sorted(model.rotors)}
    _check_rotors(rotors, joints, place, joint_coordinates)
    elements = _lower_elements(forces, ports, joints, place, dtype)
    frames = [_in_body(frame, model.bodies) for frame in ports.frames]
    return Mechanism(
        topology=topology,
        massless=massless,
        bodies=_lower_bodies(model, topology, ports),
        joints=joints,
        elements=elements,
        rotors=_lower_rotors(rotors, place),
        couplings=lower_couplings(model.couplings, joints, place),
        drivers=lower_drivers(model.drivers, joints, place),
        offsets=_poses(stack(frames or [in_float_type(ground, dtype)])),
        port_bodies=IndexSet.of(topology.row[frame.body] for frame in ports.frames),
        port_names=tuple(ports.names),
    )


@stored
def _poses(frames: Frame) -> Pose:
    """Poses of stacked frames in their bodies."""
    return jax.vmap(lambda frame: frame.pose)(frames)


def _in_body(frame: Frame, bodies: Mapping[str, AbstractBody]) -> Frame:
    """The frame with its pose in the body at η = 0, if it is given relative to a node."""
    if frame.node is None:
        return frame
    body = bodies[frame.body]
    X = body.node_pose(body.node_row(frame.node))
    quat = so3.multiply(so3.from_matrix(X.R), frame.quat)
    return Frame(frame.body, X.apply(frame.p), quat=quat)


def _topology(model: Model, cut: Sequence[str], links: Sequence[str]) -> Topology:
    """The tree, in which massless links are not tips, and joints with rotors have coordinates.

    **Raises** `ModelError` for a rotor on a joint that closes a loop nevertheless.
    """
    of_links = [
        name
        for name, joint in model.joints.items()
        if {joint.predecessor.body, joint.successor.body} & set(links)
    ]
    topology = find_topology(model.bodies, model.joints, cut, of_links)
    geared = [rotor.joint.name for rotor in model.rotors.values()]
    if not set(geared) & set(topology.loops):
        return topology
    topology = find_topology(model.bodies, model.joints, cut, [*of_links, *geared])
    for name, rotor in model.rotors.items():
        if rotor.joint.name in topology.loops:
            raise ModelError(
                f"rotor {name!r} on joint {rotor.joint.name!r}, which closes a loop: the "
                "joint of a rotor must be in the tree; name another joint of the loop in "
                "JointCoordinates(cut=...)"
            )
    return topology


def _massless(topology: Topology, links: Sequence[str]) -> tuple[int, ...]:
    """Rows of massless links, without the ground; **raises** `ModelError` for one at a tip."""
    rows = sorted(topology.row[name] - 1 for name in links)
    without_mass = set(rows)
    for row in rows:
        subtree = range(row, int(topology.subtree_ends[row]) - 1)
        if without_mass.issuperset(subtree):
            raise ModelError(
                f"body {topology.bodies[row + 1]!r} is a massless link at a tip of the tree of "
                "joints: no mass resists its motion; give it a mass, or cut the loop elsewhere by "
                "JointCoordinates(cut=...)"
            )
    return tuple(rows)


def _lower_bodies(model: Model, topology: Topology, ports: _Ports) -> tuple[BodyGroup, ...]:
    dtype = float_type(model)
    nothing = RigidBody(*(np.zeros(shape, dtype) for shape in ((), (3, 3), (3,))))
    bodies = {
        name: nothing if isinstance(body, MasslessLink) else body
        for name, body in model.bodies.items()
    }
    entries = [(row, name, bodies[name]) for row, name in enumerate(topology.bodies[1:])]
    carriers = [topology.row[frame.body] - 1 for frame in ports.frames]
    nodes = [
        -1 if frame.node is None else model.bodies[frame.body].node_row(frame.node)
        for frame in ports.frames
    ]
    groups, first = [], 0
    for members in group_by(entries, key=lambda entry: (type(entry[2]), kind_of(entry[2]))):
        rows = {row: k for k, (row, _, _) in enumerate(members)}
        k = members[0][2].n_elastic
        groups.append(
            BodyGroup(
                body=_checked_bodies(
                    [(name, body) for _, name, body in members],
                    np.array(
                        [isinstance(model.bodies[name], MasslessLink) for _, name, _ in members]
                    ),
                ),
                names=tuple(name for _, name, _ in members),
                rows=IndexSet.of(rows),
                n_elastic=k,
                first=first,
                ports=IndexSet.of(port for port, body in enumerate(carriers) if body in rows),
                carriers=IndexSet.of(rows[body] for body in carriers if body in rows),
                nodes=IndexSet.of(
                    node for node, body in zip(nodes, carriers, strict=True) if body in rows
                ),
            )
        )
        first += k * len(members)
    return tuple(groups)


@eqx.filter_jit
def _impossible(bodies: AbstractBody) -> Bool[Array, "n"]:
    return jax.vmap(lambda body: ~body.is_possible())(bodies)


def _checked_bodies(
    bodies: Sequence[tuple[str, AbstractBody]], massless: np.ndarray
) -> AbstractBody:
    """Stack bodies; impossible values of traced leaves raise an error at run time."""
    stacked = stack([body for _, body in bodies])
    if all(body.is_concrete() for _, body in bodies):
        return stacked  # `Model.check_values` has checked them.
    bad = _impossible(stacked) & ~massless
    messages = [f"body {name!r}: mass or inertia is impossible" for name, _ in bodies]
    first, *rest = jax.tree.leaves(stacked)
    first = branched_error_if(first, jnp.any(bad), jnp.argmax(bad), messages)
    return jax.tree.unflatten(jax.tree.structure(stacked), [first, *rest])


def _lower_joints(
    model: Model, topology: Topology, ports: _Ports, dtype: Any
) -> tuple[JointGroup, ...]:
    # Entries (name, joint, in_tree, reversed, row of the child without the ground).
    entries = []
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
                children=IndexSet.of(entry[4] for entry in members if entry[2]),
            )
        )
    return tuple(groups)


Places = dict[str, tuple[int, int]]  # Group of each joint, and its row in the group.


def _lower_elements(
    elements: dict[str, Any],
    ports: _Ports,
    joints: tuple[JointGroup, ...],
    place: Places,
    dtype: Any,
) -> tuple[AbstractElementGroup, ...]:
    """Group elements by kind; elements on joints also by group of joints, in their order.

    One element of each group is checked, since the others have the same structure and shapes.
    """

    def key(entry: tuple[str, Any]) -> Any:
        element = entry[1]
        on = place[element.joint.name][0] if isinstance(element, AbstractJointElement) else None
        alone = entry[0] if isinstance(element, AbstractController) else None
        return type(element), kind_of(element), on, alone

    groups, first = [], 0
    for members in group_by(elements.items(), key):
        one = members[0][1]
        if isinstance(one, AbstractController):
            name = members[0][0]
            groups.append(lower_controller(name, one, joints, place, ports, first, dtype))
            first += groups[-1].n_states
            continue
        _check_element(members[0][0], one, joints, place, dtype)
        if isinstance(one, AbstractJointElement):
            members = sorted(members, key=lambda entry: place[entry[1].joint.name][1])
        names = tuple(name for name, _ in members)
        each = [element for _, element in members]
        stacked, k = stack(each), one.n_states
        if isinstance(one, AbstractFrameElement):
            frames = [references(element) for element in each]
            rows = [ports.add(list(part), [None] * len(part)) for part in zip(*frames, strict=True)]
            groups.append(FrameElements(stacked, names, k, first, tuple(rows)))
        elif isinstance(one, AbstractJointElement):
            places = [place[element.joint.name] for element in each]
            on = places[0][0], IndexSet.of(row for _, row in places)
            groups.append(JointElements(stacked, names, k, first, *on))
        else:
            groups.append(Fields(stacked, names, k, first))
        first += len(names) * k
    return tuple(groups)


def _lower_rotors(rotors: dict[str, Rotor], place: Places) -> tuple[RotorGroup, ...]:
    entries = [(name, rotor, *place[rotor.joint.name]) for name, rotor in rotors.items()]
    groups = []
    for members in group_by(entries, key=lambda entry: (kind_of(entry[1]), entry[2])):
        names, each, on, rows = zip(*sorted(members, key=lambda entry: entry[3]), strict=True)
        groups.append(RotorGroup(stack(each), names, on[0], IndexSet.of(rows)))
    return tuple(groups)


def _check_rotors(
    rotors: dict[str, Rotor],
    joints: tuple[JointGroup, ...],
    place: Places,
    joint_coordinates: bool,
) -> None:
    for name, rotor in rotors.items():
        joint = joints[place[rotor.joint.name][0]].joint
        spherical = isinstance(joint, Spherical)
        if joint.sizes()[0] != 1 and not (spherical and joint_coordinates):
            also = ", or JointCoordinates() for a spherical joint" if spherical else ""
            raise ModelError(
                f"rotor {name!r} on the {type(joint).__name__} joint {rotor.joint.name!r}: it "
                f"needs a joint with one coordinate, not {joint.sizes()[0]}{also}"
            )


def _check_element(
    name: str, element: AbstractElement, joints: tuple[JointGroup, ...], place: Places, dtype: Any
) -> None:
    """**Raises** `ModelError` for other types, and for wrong shapes of loads or rates."""
    caller, k, remedy = f"force {name!r}", element.n_states, "its arrays have other shapes"
    time, z = _like(dtype), _like(dtype, k)
    if isinstance(element, AbstractField):
        return
    if isinstance(element, AbstractFrameElement):
        n = len(references(element))
        X = jax.eval_shape(lambda: Pose(jnp.zeros((n, 3), dtype), jnp.zeros((n, 3, 3), dtype)))
        args, size, touched = (X, _like(dtype, n, 6), z), (n, 6), f"{n} frames"
    elif isinstance(element, AbstractJointElement):
        joint = joints[place[element.joint.name][0]].joint
        nq, nv, _ = joint.sizes()
        caller = f"{caller} on the {type(joint).__name__} joint {element.joint.name!r}"
        if nv == 0:
            raise ModelError(f"{caller}: this joint has no velocity on which a force can act")
        args, size = (_like(dtype, nq), _like(dtype, nv), z), (nv,)
        touched = f"{nq} coordinates and {nv} velocities"
        remedy = f"give one number for all, or one for each of the {nv} velocities"
        if nq != nv:
            remedy += ", and a spring on a quaternion by forces.RotationalSpring"
    else:
        raise ModelError(
            f"{caller}: {type(element).__name__} is not a kind of element; derive it from "
            "AbstractFrameForce, AbstractJointForce, AbstractField, or a kind with states"
        )
    misfit = f"{caller} does not fit its {touched}"
    _check_shape(element, "load", (time, *args), size, misfit, remedy)
    if k > 0:
        _check_shape(element, "state_rates", (time, *args), (k,), f"{caller}: its states", remedy)


def _like(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _check_shape(
    element: Any, method: str, args: Any, size: tuple[int, ...], caller: str, remedy: str
) -> None:
    try:
        returned = jax.eval_shape(getattr(type(element), method), element, *args).shape
    except (TypeError, ValueError, NotImplementedError) as error:
        # JAX's messages about broadcasting name neither the component nor a remedy.
        reason = remedy if "broadcasting" in str(error) else error
        raise ModelError(f"{caller}: {reason}") from error
    if returned != size:
        raise ModelError(
            f"{caller}: {method} returns shape {returned} where {size} is needed; {remedy}"
        )

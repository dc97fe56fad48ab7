"""Models from URDF files, the robot descriptions of ROS."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..bodies import MasslessLink, RigidBody
from ..contact import (
    AbstractSolid,
    AbstractSurface,
    Box,
    Coulomb,
    Cylinder,
    HalfSpace,
    HuntCrossley,
    Sphere,
)
from ..errors import InertiaWarning, ModelError, warn
from ..forces import (
    AbstractElement,
    CoulombFriction,
    Gravity,
    Material,
    ViscousFriction,
    contact_pairs,
)
from ..joints import AbstractJoint, Coupling, Fixed, Free, Planar, Prismatic, Revolute
from ..model import Frame, Model
from ..model.frame import GROUND
from ..model.model import unknown
from .urdf_parts import (
    Joint,
    JointLimits,
    Link,
    Mimic,
    Transmission,
    read_origin,
    read_transmission,
)
from .urdf_placement import Placement
from .urdf_tree import Assembly, Lump, Robot, hold_followers, lump_links, read_robot, without_world
from .urdf_xml import Element, MeshFolders, Roots, mesh_folders, read_xml

# Collision shapes of a URDF file ------------------------------------------------------------------

Meshes = str | Mapping[str, str]
TREATMENTS = ("box", "sphere", "skip")


def read_shapes(
    robot: Robot, assembly: Assembly, source: Any, meshes: Meshes, packages: Roots | None
) -> dict[str, AbstractSolid]:
    """Shapes of all links, by the name of the link, with numbers from 2 on for further ones."""
    folders = mesh_folders(source, packages)
    _check_treatments(meshes, robot)
    shapes: dict[str, AbstractSolid] = {}
    for link in robot.links.values():
        treatment = meshes if isinstance(meshes, str) else meshes.get(link.name, "box")
        body, X = assembly.places[link.name]
        for element in link.element.all("collision"):
            shape = _shape(element, body, X @ read_origin(element), folders, treatment)
            if shape is not None:
                shapes[_unused(link, shapes)] = shape
    return shapes


def _check_treatments(meshes: Meshes, robot: Robot) -> None:
    given = {meshes} if isinstance(meshes, str) else set(meshes.values())
    for treatment in given - set(TREATMENTS):
        raise ModelError(f"meshes: {treatment!r} is none of {', '.join(map(repr, TREATMENTS))}")
    for name in () if isinstance(meshes, str) else meshes:
        if name not in robot.links:
            raise ModelError(f"meshes: there is no link {name!r}")


def _unused(link: Link, shapes: Mapping[str, Any]) -> str:
    name, k = link.name, 1
    while name in shapes:
        k += 1
        name = f"{link.name} {k}"
    return name


def _shape(
    element: Element, body: str, X: Placement, folders: MeshFolders, treatment: str
) -> AbstractSolid | None:
    """The shape of a `<collision>`, or None for a mesh that is skipped."""
    geometry = element.required("geometry")
    if len(geometry.children) != 1:
        raise geometry.error(f"it needs one shape, got {len(geometry.children)}")
    (shape,) = geometry.children
    frame = Frame(body, X.p, quat=X.quat)
    match shape.tag:
        case "sphere":
            return Sphere(frame, _positive(shape, "radius"))
        case "cylinder":
            return Cylinder(frame, _positive(shape, "radius"), _positive(shape, "length"))
        case "box":
            size = shape.vector("size")
            if not np.all(size > 0.0):
                raise shape.error(f"size must be positive, got {size.tolist()}")
            return Box(frame, size)
        case "mesh":
            return _of_mesh(shape, body, X, folders, treatment)
    raise shape.error("unknown shape; known are sphere, cylinder, box, mesh")


def _of_mesh(
    shape: Element, body: str, X: Placement, folders: MeshFolders, treatment: str
) -> AbstractSolid | None:
    """The box around a mesh along its axes, or a ball of the mean of its edges."""
    if treatment == "skip":
        return None
    points = _vertices(shape, folders)
    if "scale" in shape.attributes:
        points = points * shape.vector("scale")
    low, high = points.min(axis=0), points.max(axis=0)
    frame = Frame(body, X.apply(0.5 * (low + high)), quat=X.quat)
    if treatment == "sphere":
        return Sphere(frame, 0.5 * float(np.mean(high - low)))
    if not np.all(high > low):
        raise shape.error("the box around this mesh is flat; give meshes='skip' for this link")
    return Box(frame, high - low)


def _vertices(shape: Element, folders: MeshFolders) -> np.ndarray:
    """Vertices of the mesh of a file [m], shape `(n, 3)`."""
    name = shape.text("filename")
    path = folders.find(name, shape)
    try:
        import meshio
    except ImportError as error:
        raise ImportError(
            'collision meshes need meshio: pip install "jaxmbd[fem]", or give meshes="skip"'
        ) from error
    try:
        with np.errstate(all="ignore"):  # Of text it reads the number of triangles first.
            points = np.asarray(meshio.read(path).points, dtype=float)
    except (Exception, SystemExit) as error:  # meshio leaves the program for unknown formats.
        raise shape.error(f"cannot read the mesh {name!r}: {error}") from error
    if points.ndim != 2 or points.shape[1:] != (3,) or not np.all(np.isfinite(points)):
        raise shape.error(f"the mesh {name!r} has no finite vertices in space")
    return points


def _positive(shape: Element, attribute: str) -> float:
    value = shape.number(attribute)
    if not value > 0.0:
        raise shape.error(f"{attribute} must be positive, got {value}")
    return value


Source = str | os.PathLike[str]

FLOATING_BASE = "floating_base"
FLOOR = "floor"
DEFLECTION = 2e-3  # Of one contact by the weight of the robot, by default [m].
WITH_AXIS = {
    "revolute": Revolute,
    "continuous": Revolute,
    "prismatic": Prismatic,
    "planar": Planar,
}
WITHOUT_AXIS = {"fixed": Fixed, "floating": Free}


def from_urdf(
    source: Source,
    *,
    floating_base: bool = False,
    merge_fixed: bool = True,
    mimic: str = "couple",
    gravity: Any = (0.0, 0.0, -9.81),
    contacts: bool | Material = False,
    surface: AbstractSurface | None = None,
    meshes: Meshes = "box",
    packages: Roots | None = None,
    balance_inertia: bool = False,
) -> Model:
    """Read a model from a URDF file.

    Bodies and joints have the names of the file's links and joints. Links that fixed joints
    connect are one body, with the name of the link nearest the root; the other links, and links on
    the ground, are marker frames of the model, so that `system.frames(t, q)` has the pose of every
    link. A link without mass that carries others by joints that move is a `MasslessLink`, which
    `JointCoordinates` represents.

    A joint's `damping` becomes a `ViscousFriction` of the name `"<joint> damping"`, its `friction`
    a `CoulombFriction` `"<joint> friction"`. Limits are not enforced, see `urdf_limits`. Elements
    without mass or motion are skipped: visual (see `urdf_visuals`), material, transmission (see
    `urdf_transmissions`), gazebo, calibration, safety_controller; collision too, unless `contacts`
    is given.

    **Arguments:**

    - `source`: path of the file, or the XML text itself.
    - `floating_base`: whether the root link moves freely, by a `Free` joint named
      `"floating_base"`; otherwise it is part of the ground, and its mass has no effect. A root
      `world` without mass stands for the ground: the link that it carries is the base.
    - `merge_fixed`: whether links are merged across fixed joints. If not, these are `Fixed` joints
      with reactions; links without mass or without inertia are merged in any case.
    - `mimic`: treatment of joints that follow another one: `"couple"` adds a `Coupling` of the
      joint's name, `"independent"` leaves them free, `"fixed"` fixes them at their offset.
      `urdf_mimics` returns the relations. A fixed joint follows no other joint.
    - `gravity`: acceleration of free fall, shape `(3,)` [m/s²], of the force named `"gravity"`; if
      None, there is no such force.
    - `contacts`: whether the collision shapes of all links that move touch a surface, by a
      `Contact` of the name `"<shape>-floor"` each. A `Material` gives its laws; True stands for
      `HuntCrossley(stiffness, 0.5, 1.5)` with a stiffness at which the weight of the robot on one
      point deflects by 2 mm, and `Coulomb(0.8)`. Links do not touch one another; `urdf_shapes` and
      `contact_pairs` make other pairs. Default: no contacts.
    - `surface`: `contact.HalfSpace`, `Terrain` or another surface. Default: the plane z = 0 of the
      ground.
    - `meshes`: treatment of collision meshes, for all or by link, as for `urdf_shapes`.
    - `packages`: folders of collision meshes, as for `urdf_visuals`.
    - `balance_inertia`: whether the principal moments of a body that no distribution of mass has
      are all replaced by their mean, as MuJoCo's `balanceinertia` does. Default: such a body is an
      error.

    **Warns** by `InertiaWarning`, with names and moments, of bodies that `balance_inertia` changed.

    **Raises** `ModelError`, with the file, the line and the element, if the file cannot be read or
    is malformed, if its joints do not form a tree, if a body is impossible, or if no mass resists
    the motion of a link.

    The format is described in the ROS documentation, "urdf/XML".

    For example:

        model = mbd.io.from_urdf("robot.urdf")
    """
    robot, assembly = _read(source, floating_base, merge_fixed, mimic)
    _check_massless(assembly)
    bodies = {name: _body(lump, balance_inertia) for name, lump in assembly.lumps.items()}
    _warn_of_balanced(assembly, bodies)
    if not bodies:
        raise robot.element.error("no link moves; floating_base=True frees the root")
    joints = {joint.name: _joint(joint, assembly) for joint in assembly.joints}
    if floating_base:
        if FLOATING_BASE in joints:
            joint = robot.joints[FLOATING_BASE]
            raise joint.element.error("the joint of a floating base has this name; rename this one")
        joints[FLOATING_BASE] = Free(_frame(GROUND, robot.origin), robot.root.name)
    forces: dict[str, AbstractElement] = {} if gravity is None else {"gravity": Gravity(gravity)}
    forces |= _friction(assembly.joints)
    if contacts is not False:
        material = _default_material(bodies) if contacts is True else contacts
        shapes = read_shapes(robot, assembly, source, meshes, packages)
        forces |= _touching(shapes, HalfSpace(GROUND) if surface is None else surface, material)
    markers = {
        link: _frame(body, X)
        for link, (body, X) in assembly.places.items()
        if link not in bodies and link != GROUND
    } | {link: Frame(GROUND) for link in robot.frames}
    couplings = {
        joint.name: Coupling(joint.name, *joint.mimic)
        for joint in assembly.joints
        if joint.mimic is not None and mimic == "couple"
    }
    return Model(bodies, joints, forces, markers, couplings)


def urdf_shapes(
    source: Source,
    *,
    floating_base: bool = False,
    merge_fixed: bool = True,
    mimic: str = "couple",
    meshes: Meshes = "box",
    packages: Roots | None = None,
) -> dict[str, AbstractSolid]:
    """Collision shapes of a URDF file on the bodies of `from_urdf`, for contacts of your own.

    The names are those of the links; further shapes of a link are `"<link> 2"` and so on. Cylinders
    are `contact.Cylinder`, which touches surfaces by points of its rims.

    **Arguments:** `source`, `floating_base`, `merge_fixed`, `mimic`: as for `from_urdf`; `meshes`:
    treatment of collision meshes. `"box"`: the box around the mesh along its axes; `"sphere"`: a
    ball in its middle, whose diameter is the mean of the edges of this box; `"skip"`: no shape. Or
    `{link: treatment}`, with boxes for other links. Default: `"box"`. Meshes need the extra `fem`.
    `packages`: folders of collision meshes, as for `urdf_visuals`.

    **Raises** `ModelError` as `from_urdf`, for unknown shapes, and for files of meshes that are
    missing, cannot be read, or are outside of the folders.
    """
    robot, assembly = _read(source, floating_base, merge_fixed, mimic)
    return read_shapes(robot, assembly, source, meshes, packages)


def _read(
    source: Source, floating_base: bool, merge_fixed: bool, mimic: str
) -> tuple[Robot, Assembly]:
    robot = read_robot(read_xml(source))
    if floating_base:
        robot = without_world(robot)
    if mimic not in ("couple", "independent", "fixed"):
        raise ModelError(f"mimic must be 'couple', 'independent' or 'fixed', got {mimic!r}")
    if mimic == "fixed":
        robot = hold_followers(robot)
    return robot, lump_links(robot, floating_base, merge_fixed)


def _touching(
    shapes: dict[str, AbstractSolid], surface: AbstractSurface, material: Material
) -> dict[str, AbstractElement]:
    """Contacts of all shapes that do not stand on the ground with the surface."""
    moving = {name: shape for name, shape in shapes.items() if shape.frame.body != GROUND}
    forces: dict[str, AbstractElement] = {}
    for name, shape in moving.items():
        if name == FLOOR:
            raise ModelError(f"contacts: the link {name!r} has the name of the surface; rename it")
        forces |= contact_pairs({name: shape, FLOOR: surface}, material)
    return forces


def _default_material(bodies: Mapping[str, RigidBody | MasslessLink]) -> Material:
    """Laws by the weight of the robot, see `from_urdf`."""
    weight = 9.81 * sum(float(x.mass) for x in bodies.values() if isinstance(x, RigidBody))
    return Material(HuntCrossley(weight / DEFLECTION**1.5, 0.5, exponent=1.5), Coulomb(0.8))


def urdf_limits(source: Source) -> dict[str, JointLimits]:
    """Bounds of the revolute, continuous and prismatic joints of a URDF file, by name.

    Models do not enforce them; use them to check a motion or a drive.

    **Raises** `ModelError` as `from_urdf`.
    """
    robot = read_robot(read_xml(source))
    return {name: joint.limits for name, joint in robot.joints.items() if joint.limits is not None}


def urdf_mimics(source: Source) -> dict[str, Mimic]:
    """Relations of the joints of a URDF file that mimic another one, by name.

    **Raises** `ModelError` as `from_urdf`.
    """
    robot = read_robot(read_xml(source))
    return {name: joint.mimic for name, joint in robot.joints.items() if joint.mimic is not None}


def urdf_transmissions(source: Source) -> dict[str, Transmission]:
    """Transmissions between actuators and joints of a URDF file, by name.

    They have no effect on the model. The speed of the actuator is `reduction` times that of the
    joint, the torque on the joint `reduction` times that of the actuator; the inertia of a motor
    behind it is a `Rotor` with this gear ratio.

    **Raises** `ModelError` as `from_urdf`, and for unknown joints.
    """
    document = read_xml(source)
    joints = read_robot(document).joints
    found = {}
    for element in document.all("transmission"):
        transmission = read_transmission(element)
        if transmission.joint not in joints:
            raise element.error(unknown("unknown joint", transmission.joint, joints))
        found[element.text("name")] = transmission
    return found


def _merged(lump: Lump) -> str:
    names = ", ".join(repr(link.name) for link in lump.links[1:])
    return f", together with {names}," if names else ""


def _check_massless(assembly: Assembly) -> None:
    """**Raises** `ModelError` for a link without mass whose motion no mass resists."""
    carriers = {joint.child: assembly.places[joint.parent][0] for joint in assembly.joints}
    with_mass = {name for name, lump in assembly.lumps.items() if lump.inertia()[0] > 0.0}
    resisted = set(with_mass)
    for name in with_mass:
        while name in carriers:
            name = carriers[name]
            resisted.add(name)
    free = {joint.child for joint in assembly.joints if joint.kind == "floating"}
    free |= set(assembly.lumps) - set(carriers)
    for name, lump in assembly.lumps.items():
        element, merged = lump.links[0].element, _merged(lump)
        if name not in resisted:
            raise element.error(
                f"it moves{merged} and has no mass, nor has a link beyond it; give it an "
                "<inertial>, or fix its joint"
            )
        if name not in with_mass and name in free:
            raise element.error(f"it floats{merged} and has no mass; give it an <inertial>")


def _body(lump: Lump, balance: bool) -> RigidBody | MasslessLink:
    mass, com, inertia = lump.inertia()
    if mass == 0.0 and not np.any(inertia):
        return MasslessLink()
    element, merged = lump.links[0].element, _merged(lump)
    if mass == 0.0:
        raise element.error(f"it moves{merged} and has no mass, but inertia; give it a mass")
    body = RigidBody(mass, inertia, com)
    problem = body.validate()
    if problem is not None and balance and np.trace(inertia) > 0.0:
        return RigidBody(mass, np.trace(inertia) / 3.0 * np.eye(3), com)
    if problem is not None:
        raise element.error(
            f"as a body{merged} {problem}; balance_inertia=True replaces its moments by their mean"
        )
    return body


def _warn_of_balanced(assembly: Assembly, bodies: Mapping[str, RigidBody | MasslessLink]) -> None:
    """Warn of the bodies whose inertia is no longer that of the file."""
    changes = []
    for name, body in bodies.items():
        inertia = assembly.lumps[name].inertia()[2]
        if isinstance(body, RigidBody) and not np.array_equal(body.inertia, jnp.asarray(inertia)):
            moments = ", ".join(f"{x:.4g}" for x in np.linalg.eigvalsh(inertia))
            changes.append(f"{name!r} from ({moments}) to {np.trace(inertia) / 3.0:.4g}")
    if changes:
        warn(
            "from_urdf: principal moments [kg m²] that no body has were replaced by their mean: "
            + "; ".join(changes),
            InertiaWarning,
        )


def _frame(body: str, X: Placement) -> Frame:
    return Frame(body, X.p, quat=X.quat)


def _joint(joint: Joint, assembly: Assembly) -> AbstractJoint:
    body, X = assembly.places[joint.parent]
    predecessor = _frame(body, X @ joint.origin)
    if joint.kind in WITHOUT_AXIS:
        return WITHOUT_AXIS[joint.kind](predecessor, joint.child)
    return WITH_AXIS[joint.kind](predecessor, joint.child, joint.axis)


def _friction(joints: Sequence[Joint]) -> dict[str, AbstractElement]:
    forces: dict[str, AbstractElement] = {}
    for joint in joints:
        if joint.damping > 0.0:
            forces[f"{joint.name} damping"] = ViscousFriction(joint.name, joint.damping)
        if joint.friction > 0.0:
            forces[f"{joint.name} friction"] = CoulombFriction(joint.name, joint.friction)
    return forces

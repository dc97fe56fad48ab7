"""Controllers as groups of one element, with the joints and ports that they read and act on."""

from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..forces.abstract_controller import AbstractController
from ..lie import Pose
from ..model.frame import Frame, JointReference
from ..model.model import unknown
from .elements import AbstractElementGroup, Loads, Motion
from .groups import IndexSet, JointGroup, stack
from .named_motion import AbstractNamedMotion, NamedMotion, Time, port_row

if TYPE_CHECKING:
    from ..system.configuration import AbstractConfiguration

Places = dict[str, tuple[int, int]]  # Group of each joint, and its row in the group.


class Output(NamedTuple):
    """Target of commands: the joint at `row` of `group`, or if `group` is -1, the port at `row`."""

    group: int
    row: int
    size: int


class ControllerGroup(AbstractElementGroup):
    """One controller, its leaves with a leading axis of length one.

    - `joints`: group and row of the joints that the controller reads or acts on; `ports`: rows of
      the ports that it reads or acts on.
    """

    element: AbstractController
    names: tuple[str, ...] = eqx.field(static=True)
    n_states: int = eqx.field(static=True)
    first_state: int = eqx.field(static=True)
    outputs: tuple[Output, ...] = eqx.field(static=True)
    joints: tuple[tuple[int, int], ...] = eqx.field(static=True)
    ports: tuple[int, ...] = eqx.field(static=True)

    def initial_states(self) -> Float[Array, "1 n_states"]:
        memory = super().initial_states()
        held = self.n_states - memory.shape[1]
        return jnp.pad(memory, ((0, 0), (0, held)))

    def positions(self, c: "AbstractConfiguration") -> tuple[Any, ...]:
        return ()

    def velocities(self, motion: Motion) -> tuple[Any, ...]:
        controller = jax.tree.map(lambda x: x[0], self.element)
        readings = controller.readings(NamedMotion(motion))
        return (jax.tree.map(lambda x: jnp.asarray(x)[None], readings),)

    def add(self, total: Loads, load: Float[Array, "1 n"]) -> None:
        start = 0
        for group, row, size in self.outputs:
            part, rows = load[:, start : start + size], IndexSet.of([row])
            if group < 0:
                total.add_wrenches(rows, part)
            else:
                total.add_joint_forces(group, rows, part)
            start += size

    def potentials(self, c: "AbstractConfiguration") -> Float[Array, "1"]:
        return jnp.zeros(1, dtype=c.q.dtype)

    @property
    def has_potential(self) -> bool:
        return False


class _Shapes(AbstractNamedMotion):
    """A motion of zeros that records the joints and ports that sensors read."""

    def __init__(
        self, joints: tuple[JointGroup, ...], place: Places, ports: tuple[Any, ...], dtype: Any
    ):
        self.groups, self.place, self.names, self.dtype = joints, place, ports, dtype
        self.joints: set[tuple[int, int]] = set()
        self.ports: set[int] = set()

    @property
    def t(self) -> Time:
        return jnp.zeros((), self.dtype)

    def joint_position(self, name: str) -> Float[Array, "..."]:
        nq, _ = self._sizes(name)
        return jnp.zeros(() if nq == 1 else nq, self.dtype)

    def joint_velocity(self, name: str) -> Float[Array, "..."]:
        nq, nv = self._sizes(name)
        return jnp.zeros(() if nq == 1 else nv, self.dtype)

    def pose(self, name: str) -> Pose:
        self.ports.add(port_row(self.names, name))
        return Pose(jnp.zeros(3, self.dtype), jnp.eye(3, dtype=self.dtype))

    def twist(self, name: str) -> Float[Array, "6"]:
        self.ports.add(port_row(self.names, name))
        return jnp.zeros(6, self.dtype)

    def _sizes(self, name: str) -> tuple[int, int]:
        if name not in self.place:
            raise ModelError(unknown("sensor: unknown joint", name, self.place))
        self.joints.add(self.place[name])
        return self.groups[self.place[name][0]].joint.sizes()[:2]


def lower_controller(
    name: str,
    controller: AbstractController,
    joints: tuple[JointGroup, ...],
    place: Places,
    ports: Any,
    first: int,
    dtype: Any,
) -> ControllerGroup:
    """The group of a controller.

    **Arguments:** `ports`: the table of ports under construction; `first`: index of the first
    state of the controller in z.

    **Raises** `ModelError`, naming the controller, for unknown joints and frames, and for a law
    whose commands do not match the outputs.
    """
    caller = f"controller {name!r}"
    shapes = _Shapes(joints, place, tuple(ports.names), dtype)
    try:
        readings = jax.eval_shape(lambda: controller.readings(shapes))
    except ModelError as error:
        raise ModelError(f"{caller}: {error}") from error
    outputs, labels = [], []
    for reference in controller.references():
        output, label = _output(caller, reference, joints, place, ports)
        outputs.append(output)
        labels.append(label)
    sizes = [output.size for output in outputs]
    try:
        controller.check(jax.ShapeDtypeStruct((), dtype), readings, dtype, labels, sizes)
    except ModelError as error:
        raise ModelError(f"{caller}: {error}") from error
    held = 0 if controller.period is None else sum(sizes)
    on_joints = {(output.group, output.row) for output in outputs if output.group >= 0}
    on_ports = {output.row for output in outputs if output.group < 0}
    return ControllerGroup(
        element=stack([controller]),
        names=(name,),
        n_states=controller.n_memory + held,
        first_state=first,
        outputs=tuple(outputs),
        joints=tuple(sorted(shapes.joints | on_joints)),
        ports=tuple(sorted(shapes.ports | on_ports)),
    )


def _output(
    caller: str, reference: Any, joints: tuple[JointGroup, ...], place: Places, ports: Any
) -> tuple[Output, str]:
    """Resolve where a controller's command acts; also return the name of the place for messages."""
    if isinstance(reference, Frame):
        (row,) = ports.add([reference], [None]).index
        return Output(-1, row, 6), f"frame on {reference.body}"
    name = reference.name
    # A floating body and its free joint have the same name. The output is the wrench on the body.
    is_joint = name in place and name not in ports.topology.floating
    is_frame = name in ports.names and not isinstance(reference, JointReference)
    if is_joint and is_frame:
        raise ModelError(
            f"{caller}: {name!r} is a joint and a frame; give Frame({name!r}) for the frame, or "
            "JointReference for the joint"
        )
    if is_joint:
        g, row = place[name]
        return Output(g, row, joints[g].joint.sizes()[1]), name
    if is_frame:
        return Output(-1, ports.names.index(name), 6), name
    known = dict.fromkeys([*place, *(x for x in ports.names if x is not None)])
    raise ModelError(unknown(f"{caller}: unknown output", name, known))

"""Report on a mechanism: tree, loops, coordinates, constraints, degrees of freedom."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import scalarjit
from scalarjit.cuda import kernel_of
from scalarjit.jaxprs import GENERATED, calls_of, holds

from .bodies import FlexibleBody
from .errors import AssemblyError, ModelError
from .joints.abstract import AbstractJoint, n_rows
from .mechanism.elements import AbstractElementGroup, Fields, Motion
from .mechanism.loops import Block, block_in_words, blocks
from .mechanism.mechanism import Mechanism
from .model.values import require_concrete
from .motion.arguments import as_start, as_system
from .motion.assemble import assemble
from .programs import with_progress
from .system import constraints
from .system.abstract import AbstractSystem, State, Time, as_time
from .system.acceleration import accelerations
from .system.rank import ConstraintRank, constraint_rank

WIDTH = 100
# Longer lists are cut short; deeper branches have their depth as a number instead of an indent.
MAX_LINES, MAX_NAMES, MAX_DEPTH = 40, 12, 16
# Largest `closeness` that is reported: about 0.01 rad from a singular position.
CLOSE = 0.1


@dataclass(frozen=True, repr=False)
class Inspection:
    """Structure and degrees of freedom of a mechanism, the result of `inspect`.

    - `bodies`: names; `joints`: kind by name, free joints of floating bodies included; `tree`: the
      body that each joint of the spanning tree carries; `blocks`: groups of loops and couplings
      that share joints (`joints`, `loop_constraints`, `couplings`); `drivers`: names.
    - `states`: number of first-order states by element, if it has any.
    - `nq`, `nv`: numbers of coordinates and velocities; `n_constraints`: number of constraints;
      `rank`: number of independent constraints at the state.
    - `dof`: number of independent velocities at the state, with rigid joints instead of springs
      that stand in for rigidity.
    - `redundant`: by joint, number of its constraints that depend on others in all positions.
    - `singular`: whether constraints depend on one another in this position only.
    - `not_generated`: why no machine code is generated for accelerations; None if it is. On a GPU,
      why those of a batch are not one kernel.
    - `problem`: why there is no rank; then `rank`, `dof`, `redundant` and `singular` are None.
    - `report`: the text, which is also that of `str` and `repr`.
    """

    bodies: tuple[str, ...]
    joints: dict[str, str]
    tree: dict[str, str]
    blocks: tuple[Block, ...]
    drivers: tuple[str, ...]
    states: dict[str, int]
    nq: int
    nv: int
    n_constraints: int
    rank: int | None
    dof: int | None
    redundant: dict[str, int] | None
    singular: bool | None
    not_generated: str | None
    problem: str | None
    report: str = field(compare=False)

    def __str__(self) -> str:
        return self.report

    def __repr__(self) -> str:
        return self.report


@with_progress
def inspect(system: Any, state: Any = None, t: float = 0.0) -> Inspection:
    """Report the structure of a mechanism and its degrees of freedom.

    `print` and notebooks show the result as a text. It lists bodies, joint tree, loops and the
    joints that close them, couplings, drivers, the meaning of the coordinates, number and rank of
    the constraints, degrees of freedom, redundant constraints, whether the position is singular or
    near a singular one, and the loop that can go on in several ways there,
    elements with first-order states, and whether accelerations are generated machine code: if not,
    the operation, and its force, that prevents it.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `state`: where to evaluate the constraints, a `State` or `{joint: coordinates}`, the `guess`
      of `assemble`. Default: the reference position.
    - `t`: time [s].

    Returns an `Inspection`. If the reference position cannot be assembled, its `problem` is the
    reason, and it has no rank.

    **Raises** `ModelError` under a transformation, since it needs concrete numbers, and for a state
    of another system; `AssemblyError` for joint values that cannot be assembled.

    For example:

        print(mbd.inspect(model, {"hinge": 0.3}))  # bodies, tree, loops, degrees of freedom
    """
    require_concrete("inspect", (system, state))
    system = as_system(system, "inspect")
    as_time(t, system)
    if state is not None:
        state = as_start(system, state, t, "inspect")
    mechanism = system.mechanism
    own = rigid = problem = None
    try:
        state = assemble(system, t=t) if state is None else state
        own = constraint_rank(system, t, state.q)
        rigid = constraint_rank(system.rigid(), t, state.q) if _has_springs(system) else own
    except (AssemblyError, ModelError) as error:
        problem = str(error)
    not_generated = why_not_generated(system)
    report = _report(system, own, rigid, problem, not_generated)
    edges = zip(mechanism.topology.edges, mechanism.topology.bodies[1:], strict=True)
    return Inspection(
        bodies=mechanism.topology.bodies[1:],
        joints={name: type(joint).__name__ for name, joint in _joints(mechanism).items()},
        tree={edge.joint: body for edge, body in edges},
        blocks=blocks(mechanism),
        drivers=tuple(name for group in mechanism.drivers for name in group.names),
        states={name: n for name, (_, n) in mechanism.state_places.items()},
        nq=system.nq,
        nv=system.nv,
        n_constraints=constraints.n_constraints(system),
        rank=None if own is None else own.rank,
        dof=None if rigid is None else rigid.dof,
        redundant=None if own is None else own.redundant,
        singular=None if own is None else own.singular,
        not_generated=not_generated,
        problem=problem,
        report=report,
    )


def _has_springs(system: AbstractSystem) -> bool:
    """True if springs stand in for some constraints."""
    return constraints.n_constraints(system) < constraints.n_constraints(system.rigid())


def _joints(mechanism: Mechanism) -> dict[str, AbstractJoint]:
    """Each joint by name; its leaves are those of all joints of its group."""
    return {name: group.joint for group in mechanism.joints for name in group.names}


def _report(
    system: AbstractSystem,
    own: ConstraintRank | None,
    rigid: ConstraintRank | None,
    problem: str | None,
    not_generated: str | None,
) -> str:
    mechanism = system.mechanism
    masses = np.asarray(mechanism.rigid.mass)
    elastic = _elastic(mechanism)
    bodies = [
        f"{name}: {mass:.4g} kg{elastic.get(name, '')}"
        for name, mass in zip(mechanism.topology.bodies[1:], masses, strict=True)
    ]
    sections = [
        (_count(len(bodies), "body", "bodies"), bodies),
        ("joint tree", _tree(mechanism)),
        ("loops and couplings" if mechanism.couplings else "loops", _loops(mechanism)),
        ("drivers", _drivers(mechanism)),
        (
            _count(system.nz, "first-order state"),
            [f"{name}: {n}" for name, (_, n) in mechanism.state_places.items()],
        ),
        (f"coordinates: {system.nq}, velocities: {system.nv}", system.coordinates_in_words()),
        (
            _count(constraints.n_constraints(system), "constraint"),
            [f"not evaluated: {problem}"]
            if own is None or rigid is None
            else [*_rank(own, rigid), *_change_point(mechanism, own)],
        ),
    ]
    lines = []
    for title, entries in sections:
        if entries:
            lines += [title, *_shortened(entries)]
    code = "generated machine code"
    code = "one kernel, a thread a state" if scalarjit.platform() == "cuda" else code
    way = f"left to XLA: {not_generated}" if not_generated else code
    lines += _shortened([f"accelerations: {way}", *filter(None, [scalarjit.why_no_gpu()])], "")
    return "\n".join(lines)


# Strain measures of `FlexibleBody.strains`, by their components.
STRAINS = {0: "elongation", 3: "twist", 4: "bending about y", 5: "bending about z"}


def _elastic(mechanism: Mechanism) -> dict[str, str]:
    """By body, main strain and frequency of each elastic coordinate, and strains that none has."""
    words = {}
    for group in mechanism.bodies:
        if not isinstance(group.body, FlexibleBody) or group.body.strains is None:
            continue
        for row, name in enumerate(group.names):
            body = jax.tree.map(lambda x, row=row: np.asarray(x[row]), group.body)
            length = np.linalg.norm(body.positions - body.positions[0], axis=1).max()
            sizes = np.abs(body.strains).max(axis=0)[:, list(STRAINS)] * [1, *[length] * 3]
            kinds = [list(STRAINS.values())[k] for k in sizes.argmax(axis=1)]
            stiffness, mass = np.diag(body.stiffness), np.diag(body.modal_mass())
            hertz = np.sqrt(np.maximum(stiffness / mass, 0.0)) / (2.0 * np.pi)
            listed = [f"{kind} at {f:.4g} Hz" for kind, f in zip(kinds, hertz, strict=True)]
            part = sizes > 1e-6 * sizes.max(axis=1, keepdims=True)
            rigid = [
                x for x, has in zip(STRAINS.values(), part.any(axis=0), strict=True) if not has
            ]
            words[name] = f"; elastic: {_names(listed)}"
            words[name] += f"; without {_names(rigid)}" if rigid else ""
    return words


def _tree(mechanism: Mechanism) -> list[str]:
    topology, joints, lines = mechanism.topology, _joints(mechanism), ["ground"]
    for row, edge in enumerate(topology.edges, start=1):
        joint, body = joints[edge.joint], topology.bodies[row]
        floats = ", which floats" if body in topology.floating else ""
        depth = int(topology.depths[row])
        indent = "  " * min(depth, MAX_DEPTH) + (f"[{depth}] " if depth > MAX_DEPTH else "")
        freedoms = f"{joint.sizes()[1]} dof"
        lines.append(
            f"{indent}{edge.joint}: {type(joint).__name__}, {freedoms}, carries {body}{floats}"
        )
    return lines


def _loops(mechanism: Mechanism) -> list[str]:
    joints, lines = _joints(mechanism), []
    for block in blocks(mechanism):
        closing = [
            f"{name} ({type(joints[name]).__name__}, {_count(n_rows(joints[name]), 'constraint')})"
            for name in block.loop_constraints
        ]
        by = [f"closed by {_names(closing)}"] if closing else []
        by += [f"coupled by {_names(block.couplings)}"] if block.couplings else []
        lines.append(f"{_names(block.joints) or 'no joint that moves'}: {'; '.join(by)}")
    return lines


def _drivers(mechanism: Mechanism) -> list[str]:
    return [
        f"{name} prescribes {mechanism.joints[group.group].names[row]}"
        for group in mechanism.drivers
        for name, row in zip(group.names, group.rows.index, strict=True)
    ]


def _rank(own: ConstraintRank, rigid: ConstraintRank) -> list[str]:
    """Rank, freedoms, redundancy and singularity, in words."""
    lines = [f"rank: {own.rank}"] if own.n_rows else []
    freedoms = f"degrees of freedom: {rigid.dof}"
    if rigid.position_dof != rigid.dof:
        freedoms += f" of velocities, {rigid.position_dof} of positions"
    if rigid.undriven_dof != rigid.dof:
        freedoms += f"; {rigid.undriven_dof} without the drivers"
    if own is not rigid:
        freedoms += f"; {own.dof} where springs stand in for rigidity"
    lines.append(freedoms)
    if own.n_redundant:
        lines.append(
            f"{own.n_redundant} of {own.n_rows} constraints are redundant (in "
            f"{_names(list(own.redundant))}): reactions there are minimum-norm ones"
        )
    if not own.closes:
        lines.append("the joints are open: the rank is that of the state as it is")
    if own.singular:
        lines.append(
            f"singular position: the rank is {own.generic_rank} nearby; "
            f"{own.generic_rank - own.rank} of the degrees of freedom here may not be motions"
        )
    elif own.n_redundant and own.undriven_dof and not own.n_nearby:
        lines.append("no position nearby closes: nothing can move, or this position is singular")
    return lines


def _change_point(mechanism: Mechanism, own: ConstraintRank) -> list[str]:
    """The loop whose motion is not unique at or near this position, in words."""
    if own.closeness > CLOSE:
        return []
    loop = f"change point of the loop of {block_in_words(mechanism, own.weakest)}"
    if own.singular:
        return [f"{loop}: the motion may go on in several ways"]
    return [
        f"near a {loop}: a singular value of its constraints is {own.closeness:.2g} of that "
        "0.1 rad from here"
    ]


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or f'{one}s'}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _shortened(lines: list[str], margin: str = "  ") -> list[str]:
    """Lines of a section, indented and at most `WIDTH` wide."""
    more = len(lines) - MAX_LINES
    shown = lines if more <= 0 else [*lines[:MAX_LINES], f"and {more} more"]
    wrapped = []
    for line in shown:
        indent = margin + " " * (len(line) - len(line.lstrip()))
        wrapped += textwrap.wrap(
            line.lstrip(), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    "
        )
    return wrapped


# Report whether accelerations are generated code, and why not -------------------------------------


def why_not_generated(system: AbstractSystem) -> str | None:
    """Why no machine code is generated for accelerations of a system; None if it is.

    Names the operation without a rule: of the first force or element with one, otherwise of the
    accelerations as a whole.
    """
    general = scalarjit.why_none()
    if general is not None:
        return general
    t, state = _shapes(system)
    floats, vdot = _accelerations_of(system)
    if holds({GENERATED}, jax.make_jaxpr(vdot)(floats, t, state).jaxpr):
        return _why_no_kernel(vdot, floats, t, state) if scalarjit.platform() == "cuda" else None
    for group in system.mechanism.elements:
        reason = _reason_of(system, group, t, state)
        if reason is not None:
            return f"{_short_reason(reason)} in {', '.join(map(repr, group.names))}"
    return _short_reason(_reason(vdot, floats, t, state) or type(system).__name__)


def _why_no_kernel(vdot: Callable[..., Array], floats: Any, t: Any, state: Any) -> str | None:
    """Why accelerations of a batch are not one kernel of a GPU; None if they are."""
    states = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), state)
    program = jax.make_jaxpr(jax.vmap(vdot, (None, None, 0)))(floats, t, states)
    kernels = (
        kernel_of(x["program"], x["batched"], x["linear"] > 0) for x in calls_of(program.jaxpr)
    )
    return next((x.reason for x in kernels if x.reason is not None), None)


def _accelerations_of(system: AbstractSystem) -> tuple[Any, Callable[..., Array]]:
    """The floats of a system, and accelerations as a function of floats, time and state."""
    floats, rest = eqx.partition(system, eqx.is_inexact_array)

    def vdot(floats: Any, t: Time, state: State) -> Array:
        return accelerations(eqx.combine(floats, rest), t, state)[0]

    return floats, vdot


def _reason(fn: Any, *args: Any) -> str | None:
    found = scalarjit.native_or_reason(fn, *args)
    return found if isinstance(found, str) and found != "no results" else None


def _short_reason(operation: str) -> str:
    """Name of an operation, and of the parameter that is not supported, without its value."""
    return operation.split("=")[0]


def _shapes(system: AbstractSystem) -> tuple[Any, Any]:
    """Shapes of a time and a state."""
    dtype, sizes = system.mechanism.dtype, (system.nq, system.nv, system.nz)

    def zeros() -> tuple[Time, State]:
        return jnp.zeros((), dtype), State(*(jnp.zeros(n, dtype) for n in sizes))

    return jax.eval_shape(zeros)


def _reason_of(
    system: AbstractSystem, group: AbstractElementGroup, t: Any, state: Any
) -> str | None:
    """Why no code is generated for a group's law, apart from kinematics."""
    if isinstance(group, Fields) and not system.mechanism.all_rigid:
        return None  # Loads of the field are derivatives of the bodies' kinetic energies.

    def arguments(t: Time, state: State) -> tuple[Any, ...]:
        c = system.configuration(t, state.q, state.z)
        return (*group.positions(c), *group.velocities(Motion(c, state.v)))

    inputs = jax.eval_shape(arguments, t, state)
    element, rest = eqx.partition(group.element, eqx.is_array)
    z = jax.ShapeDtypeStruct((len(group.names), group.n_states), system.mechanism.dtype)

    def law(element: Any, t: Time, z: Array, *inputs: Any) -> Any:
        elements = eqx.combine(element, rest)
        if isinstance(group, Fields):
            each = lambda field: jax.vmap(lambda *x: field.wrench(t, *x))(*inputs)  # noqa: E731
            return jax.vmap(each)(elements)
        return jax.vmap(lambda e, z, *x: e.load(t, *x, z))(elements, z, *inputs)

    return _reason(law, element, t, z, *inputs)

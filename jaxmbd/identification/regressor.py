"""The regressor: inverse dynamics as a matrix times the parameters in which it is linear."""

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..bodies import RigidBody
from ..errors import ModelError
from ..forces import (
    AsymmetricFriction,
    CoulombFriction,
    Gravity,
    JointTorque,
    StribeckFriction,
    TorsionalSpringDamper,
    ViscousFriction,
)
from ..inertia import to_inertial_parameters
from ..lie import so3
from ..mechanism.elements import AbstractElementGroup, Fields, Loads, Motion
from ..model.model import as_own, unknown
from ..model.values import as_mapping, as_names
from ..programs import stored
from ..programs.tracing import kernel
from ..signals import Constant
from ..system import constraints
from ..system.abstract import AbstractSystem, require_system
from ..system.configuration import AbstractConfiguration
from ..system.equation_residuals import motion_residual
from ..system.loads import generalized

INERTIAL = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")


@singledispatch
def linear_fields(element: Any) -> tuple[str, ...]:
    """Fields of an element in which its load is linear, such as `"forward.torque"`.

    Default: none. Register a kind of element of your own by `linear_fields.register`.
    """
    return ()


@linear_fields.register
def _(element: ViscousFriction) -> tuple[str, ...]:
    return ("coefficient",)


@linear_fields.register
def _(element: CoulombFriction) -> tuple[str, ...]:
    return ("torque",)


@linear_fields.register
def _(element: StribeckFriction) -> tuple[str, ...]:
    return "coulomb", "static", "viscous"


@linear_fields.register
def _(element: AsymmetricFriction) -> tuple[str, ...]:
    sides = ("forward", element.forward), ("backward", element.backward)
    return tuple(f"{side}.{field}" for side, law in sides for field in linear_fields(law))


@linear_fields.register
def _(element: TorsionalSpringDamper) -> tuple[str, ...]:
    return "stiffness", "damping"


@linear_fields.register
def _(element: JointTorque) -> tuple[str, ...]:
    return ("signal.value",) if isinstance(element.signal, Constant) else ()


class Regressor(eqx.Module):
    """Generalized forces `matrix @ parameters + rest` at one state or at many.

    - `matrix`: shape `(..., n, p)`; `names`: name of each column.
    - `parameters`: values of the model, shape `(p,)`.
    - `rest`: forces that depend on none of the parameters, shape `(..., n)`: those of springs,
      flexible bodies and prescribed loads.
    """

    matrix: Float[Array, "*batch n p"]
    names: tuple[str, ...] = eqx.field(static=True)
    parameters: Float[Array, "p"]
    rest: Float[Array, "*batch n"]

    def forces(self, parameters: Any = None) -> Float[Array, "*batch n"]:
        """The generalized forces, shape `(..., n)`. Default: those of the model's parameters."""
        theta = self.parameters if parameters is None else jnp.asarray(parameters)
        return self.matrix @ theta + self.rest

    def with_columns(self, columns: Mapping[str, Any], values: Any = 0.0) -> "Regressor":
        """The regressor with further columns, for laws that no element of the model has.

        **Arguments:**

        - `columns`: `{name: column}`, each of shape `(..., n)`.
        - `values`: parameters of these columns, one number for all or one for each.

        **Raises** `ModelError` for columns of another shape, and for names that exist.

        For example, dry friction of a hinge that grows with the square root of the speed:

            Y = mbd.regressor(system, 0.0, [[0.3]], [[1.0]], [[0.0]])
            Y = Y.with_columns({"root": jnp.sqrt(jnp.array([[1.0]]))})
        """
        given = as_mapping(columns, "with_columns: columns", "{name: column}")
        for name, column in given.items():
            if np.shape(column) != self.rest.shape:
                raise ModelError(
                    f"with_columns: {name!r} has shape {np.shape(column)}, needed is "
                    f"{self.rest.shape}"
                )
            if name in self.names:
                raise ModelError(f"with_columns: there is a column {name!r}")
        more = [jnp.asarray(column)[..., None] for column in given.values()]
        new = jnp.broadcast_to(jnp.asarray(values, self.parameters.dtype), (len(given),))
        return Regressor(
            jnp.concatenate([self.matrix, *more], axis=-1),
            (*self.names, *given),
            jnp.concatenate([self.parameters, new]),
            self.rest,
        )


def regressor(
    system: AbstractSystem,
    t: Any,
    q: Any,
    v: Any,
    vdot: Any,
    joints: Sequence[str] | None = None,
) -> Regressor:
    """The matrix Y of inverse dynamics M v̇ + b - f = Y θ + rest, in `JointCoordinates`.

    θ contains ten inertial parameters of each rigid body: mass m, first moments `mcx`, `mcy`, `mcz`
    [kg m], and moments of inertia `Ixx`, `Ixy`, `Iyy`, `Ixz`, `Iyz`, `Izz` about the origin of the
    body's frame along its axes [kg m²]. θ also contains the inertias of rotors, and the parameters
    in which friction, springs and constant torques on joints are linear. The names of the columns
    are such as `"rod.mcx"` and `"bearing.coefficient"`.

    The rows are the generalized forces, as of `inverse_dynamics`. With `joints` they are the forces
    on these joints that the motion requires, as of `driving_forces`: constraints of loops are
    eliminated by a projection onto the null space of their Jacobian. These rows are NaN if the
    joints cannot drive the mechanism.

    The state must satisfy the constraints of loops. Leading axes of `q`, `v`, `vdot` and `t` are
    those of many states.

    Source: Atkeson, An and Hollerbach (1986), "Estimation of inertial parameters of manipulator
    loads and links".

    **Raises** `ModelError` if the velocities are not those of joints, as in `JointCoordinates`, for
    elements with first-order states, for arrays of other shapes, and for unknown joints.

    For example:

        Y = mbd.regressor(system, 0.0, [0.3], [1.0], [0.0])
        Y.names, Y.matrix @ Y.parameters
    """
    require_system(system)
    if system.joint_velocities() is None:
        raise ModelError("regressor: system must be in JointCoordinates")
    if system.nz:
        names = ", ".join(map(repr, system.mechanism.state_places))
        raise ModelError(f"regressor: {names}: elements with first-order states have no regressor")
    sizes = {"q": system.nq, "v": system.nv, "vdot": system.nv}
    given = {name: as_own(x, system, name) for name, x in zip(sizes, (q, v, vdot), strict=True)}
    shape = np.shape(given["q"])[:-1]
    for name, x in given.items():
        if x.shape != (*shape, sizes[name]):
            raise ModelError(
                f"regressor: {name} has shape {x.shape}, needed is {(*shape, sizes[name])}"
            )
    time = as_own(t, system, "t")
    if time.shape not in ((), shape):
        raise ModelError(f"regressor: t has shape {time.shape}, needed is () or {shape}")
    names = None if joints is None else as_names(joints, "regressor: joints")
    for name in names or ():
        known = {n: None for group in system.mechanism.joints for n in group.names}
        if name not in known:
            raise ModelError(unknown("regressor: unknown joint", name, known))
    rows = [x.reshape(-1, x.shape[-1]) for x in given.values()]
    times = jnp.broadcast_to(time, shape).reshape(-1)
    q, v, vdot = rows
    matrix, parameters, rest = _regressors(system, times, q, v, vdot, names)
    matrix, rest = (x.reshape(*shape, *x.shape[1:]) for x in (matrix, rest))
    return Regressor(matrix, column_names(system), parameters, rest)


@stored
def _regressors(
    system: AbstractSystem,
    ts: Float[Array, "k"],
    q: Float[Array, "k nq"],
    v: Float[Array, "k nv"],
    vdot: Float[Array, "k nv"],
    joints: tuple[str, ...] | None,
) -> tuple[Float[Array, "k n p"], Float[Array, "p"], Float[Array, "k n"]]:
    theta = parameter_values(system)
    at = jax.vmap(lambda *row: _regressor(system, theta, joints, *row))
    matrix, rest = at(ts, q, v, vdot)
    return matrix, theta, rest


@kernel
def _regressor(
    system: AbstractSystem,
    theta: Float[Array, "p"],
    joints: tuple[str, ...] | None,
    t: Float[Array, ""],
    q: Float[Array, "nq"],
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
) -> tuple[Float[Array, "n p"], Float[Array, "n"]]:
    """The matrix and the rest at one state."""
    c = system.configuration(t, q)
    Y = regressor_at(system, c, v, vdot)
    rest = jnp.zeros(system.nv, Y.dtype)
    if not is_complete(system):
        rest = motion_residual(system, c, v, vdot) - Y @ theta
    return (Y, rest) if joints is None else _of_joints(system, c, joints, Y, rest, theta)


def regressor_at(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
) -> Float[Array, "nv p"]:
    """Y at one configuration; columns in the order of `column_names`."""
    parts = [_of_bodies(system, c, v, vdot), _of_rotors(system, vdot)]
    return jnp.concatenate([*parts, _of_elements(system, c, v)], axis=1)


# Bodies -------------------------------------------------------------------------------------------


def _rigid_rows(system: AbstractSystem) -> list[tuple[str, int]]:
    """Name and row of each rigid body with mass, in the order of the rows."""
    mechanism, found = system.mechanism, []
    for group in mechanism.bodies:
        if isinstance(group.body, RigidBody):
            found += zip(group.names, group.rows.index, strict=True)
    return sorted(
        ((name, row) for name, row in found if row not in mechanism.massless), key=lambda x: x[1]
    )


def _of_bodies(
    system: AbstractSystem,
    c: AbstractConfiguration,
    v: Float[Array, "nv"],
    vdot: Float[Array, "nv"],
) -> Float[Array, "nv _p"]:
    """Columns of the inertial parameters, Jᵀ A with the wrench A θ of each body."""
    ports = np.array([1 + row for _, row in _rigid_rows(system)], dtype=int)
    units = jnp.eye(system.nv, dtype=v.dtype)
    J = jax.vmap(c.twists)(units)[:, ports]
    A = (constraints.port_accelerations(system, c, v) + c.twists(vdot))[ports]
    g = jnp.zeros(3, v.dtype)
    for group in system.mechanism.elements:
        if isinstance(group, Fields) and isinstance(group.element, Gravity):
            g = g + jnp.sum(group.element.g, axis=0)
    X = jax.tree.map(lambda x: x[ports], c.ports)
    of_bodies = jax.vmap(lambda X, V, A: body_regressor(V, A, X.R.T @ g))
    columns = of_bodies(X, c.twists(v)[ports], A)
    return jnp.einsum("kbi,bij->kbj", J, columns).reshape(system.nv, -1)


def body_regressor(
    V: Float[Array, "6"], A: Float[Array, "6"], g: Float[Array, "3"]
) -> Float[Array, "6 10"]:
    """Wrench on a body at its origin per inertial parameter, along its own axes.

    `V` and `A` are the twist and its rate along these axes, `g` is gravity along them.
    """
    omega, alpha = V[3:], A[3:]
    a = A[:3] + so3.cross(omega, V[:3]) - g
    spin, zero = so3.hat(omega), jnp.zeros_like(g)
    force = [a[:, None], so3.hat(alpha) + spin @ spin, jnp.zeros((3, 6), g.dtype)]
    moment = [zero[:, None], -so3.hat(a), _moments(alpha) + spin @ _moments(omega)]
    return jnp.concatenate([jnp.concatenate(force, axis=1), jnp.concatenate(moment, axis=1)])


def _moments(w: Float[Array, "3"]) -> Float[Array, "3 6"]:
    """The matrix of I w for Ixx, Ixy, Iyy, Ixz, Iyz, Izz."""
    x, y, z = w
    o = jnp.zeros_like(x)
    return jnp.stack(
        [
            jnp.stack([x, y, o, z, o, o]),
            jnp.stack([o, x, y, o, z, o]),
            jnp.stack([o, o, o, x, y, z]),
        ]
    )


# Rotors and elements ------------------------------------------------------------------------------


def _of_rotors(system: AbstractSystem, vdot: Float[Array, "nv"]) -> Float[Array, "nv _p"]:
    """Columns n² v̇ of the inertias of rotors."""
    entries, columns = system.joint_velocities(), [jnp.zeros((system.nv, 0), vdot.dtype)]
    assert entries is not None  # `regressor` requires it.
    for rotors in system.mechanism.rotors:
        group = system.mechanism.joints[rotors.group]
        own = entries[rotors.group].array.reshape(len(group), -1)[rotors.rows.array]
        hits = np.zeros((system.nv, len(own)))
        hits[own, np.arange(len(own))[:, None]] = 1.0
        columns.append(vdot[:, None] * jnp.asarray(hits) * rotors.rotor.gear_ratio[None] ** 2)
    return jnp.concatenate(columns, axis=1)


def _leaf(element: Any, path: str) -> Any:
    for part in path.split("."):
        element = getattr(element, part)
    return element


def _linear_groups(system: AbstractSystem) -> Iterator[tuple[AbstractElementGroup, str]]:
    """Groups of elements and the names of their linear fields."""
    for group in system.mechanism.elements:
        for path in linear_fields(group.element):
            yield group, path


def _of_elements(
    system: AbstractSystem, c: AbstractConfiguration, v: Float[Array, "nv"]
) -> Float[Array, "nv _p"]:
    """Columns of elements, by the derivative of the generalized forces of each group."""
    motion, columns = Motion(c, v), [jnp.zeros((system.nv, 0), v.dtype)]
    for group, path in _linear_groups(system):

        def force(leaf: Array, group: Any = group, path: str = path) -> Array:
            changed = eqx.tree_at(lambda g: _leaf(g.element, path), group, leaf)
            total = Loads(c)
            changed.add(total, changed.loads(motion))
            return generalized(c, total.wrenches, total.joint_forces)

        derivative = jax.jacfwd(force)(_leaf(group.element, path))
        columns.append(-derivative.reshape(system.nv, -1))
    return jnp.concatenate(columns, axis=1)


def column_names(system: AbstractSystem) -> tuple[str, ...]:
    """Names of the columns: those of bodies in the order of their rows, of rotors, of elements."""
    names = [f"{body}.{name}" for body, _ in _rigid_rows(system) for name in INERTIAL]
    for rotors in system.mechanism.rotors:
        names += [f"{name}.inertia" for name in rotors.names]
    for group, path in _linear_groups(system):
        shape = np.shape(_leaf(group.element, path))[1:]
        shown = path.removeprefix("signal.")
        for name in group.names:
            entries = [f"[{i}]" for i in range(int(np.prod(shape)))] if shape else [""]
            names += [f"{name}.{shown}{entry}" for entry in entries]
    return tuple(names)


def parameter_values(system: AbstractSystem) -> Float[Array, "p"]:
    """Values of the parameters in the order of `column_names`."""
    mechanism = system.mechanism
    rows = np.array([row for _, row in _rigid_rows(system)], dtype=int)
    bodies = jax.tree.map(lambda x: x[rows], mechanism.rigid)
    parts = [jax.vmap(to_inertial_parameters)(bodies).ravel()]
    parts += [rotors.rotor.inertia for rotors in mechanism.rotors]
    parts += [_leaf(group.element, path).ravel() for group, path in _linear_groups(system)]
    return jnp.concatenate(parts)


def is_complete(system: AbstractSystem) -> bool:
    """True if the columns contain all forces, so that the rest is zero."""
    always_complete = (ViscousFriction, CoulombFriction, StribeckFriction, AsymmetricFriction)

    def covered(group: AbstractElementGroup) -> bool:
        element = group.element
        if isinstance(element, AsymmetricFriction):
            return all(isinstance(x, always_complete) for x in (element.forward, element.backward))
        constant = isinstance(element, JointTorque) and isinstance(element.signal, Constant)
        return constant or isinstance(element, (Gravity, *always_complete))

    return system.mechanism.all_rigid and all(map(covered, system.mechanism.elements))


# Forces on the driving joints ---------------------------------------------------------------------


def _of_joints(
    system: AbstractSystem,
    c: AbstractConfiguration,
    joints: tuple[str, ...],
    Y: Float[Array, "nv p"],
    rest: Float[Array, "nv"],
    theta: Float[Array, "p"],
) -> tuple[Float[Array, "k p"], Float[Array, "k"]]:
    """Forces f on joints: P Bᵀ f = P (Y θ + rest), P the projection onto the null space of G."""
    mechanism, names = system.mechanism, constraints.row_names(system)
    driven = {name for group in mechanism.drivers for name in group.names}
    keep = np.flatnonzero([name not in driven for name in names])
    units = jnp.eye(system.nv, dtype=Y.dtype)
    rates = [(g, row) for g, row in map(mechanism.find_joint, joints)]
    by_unit = jax.vmap(lambda v: jnp.concatenate([c.rates(g, v)[row] for g, row in rates]))
    B = by_unit(units).T
    P = units
    if len(keep):
        G = constraints.jacobian(system, c)[keep]
        cutoff = jnp.sqrt(jnp.finfo(G.dtype).eps)  # Redundant rows agree to the residual of loops.
        P = units - jnp.linalg.pinv(G, rtol=cutoff) @ G
    drives = P @ B.T
    right = P @ jnp.concatenate([Y, rest[:, None]], axis=1)
    force = jnp.linalg.pinv(drives, rtol=jnp.sqrt(jnp.finfo(Y.dtype).eps)) @ right
    left = (right - drives @ force) @ jnp.append(theta, 1.0)
    size = jnp.abs(right) @ jnp.abs(jnp.append(theta, 1.0))
    holds = jnp.max(jnp.abs(left)) <= 1e3 * jnp.finfo(Y.dtype).eps ** 0.75 * jnp.max(size)
    force = jnp.where(holds, force, jnp.nan)
    return force[:, :-1], force[:, -1]

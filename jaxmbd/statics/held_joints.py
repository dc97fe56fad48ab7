"""Systems at rest: drivers stop at their values, held joints keep theirs, loads are replaced."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..forces import AppliedForce, AppliedTorque, Gravity, JointTorque
from ..joints import Driver, Screw
from ..joints.components import coordinate_components
from ..mechanism.couplings import DriverGroup
from ..mechanism.groups import IndexSet, kind_of
from ..model.model import anonymous, unknown
from ..model.values import as_leaf
from ..signals import Constant
from ..system.abstract import AbstractSystem, State, Time


def at_rest(system: AbstractSystem, t: Time, state: State, hold: Sequence[str]) -> AbstractSystem:
    """The system with drivers that stay at their values, and a driver for each held coordinate.

    Names in `hold` are those of joints, or `"joint.0"` for the first coordinate of a joint.

    **Raises** `ModelError` for an unknown joint or coordinate, and for one that cannot be held.
    """
    stopped = tuple(_stopped(group, t) for group in system.mechanism.drivers)
    held = _held(system, t, state, hold)
    if not stopped and not held:
        return system
    mechanism = replace(system.mechanism, drivers=(*stopped, *held))
    return eqx.tree_at(lambda s: s.mechanism, system, mechanism)


def _stopped(group: DriverGroup, t: Time) -> DriverGroup:
    driver = eqx.tree_at(lambda d: d.motion, group.driver, Constant(group.prescribed(t)))
    return eqx.tree_at(lambda g: g.driver, group, driver)


def _held(
    system: AbstractSystem, t: Time, state: State, hold: Sequence[str]
) -> tuple[DriverGroup, ...]:
    mechanism, held = system.mechanism, []
    if not hold:
        return ()
    driven = {
        (group.group, row, group.component)
        for group in mechanism.drivers
        for row in group.rows.index
    }
    places = [(path, *_place(system, path)) for path in hold]
    values = system.configuration(t, state.q, state.z).joint_coordinates()
    for path, g, row, numbers in places:
        joint = mechanism.joints[g].joint
        units = [component.unit for component in coordinate_components(joint)]
        for k in numbers:
            if units[k] not in ("m", "rad"):
                raise ModelError(
                    f"hold: coordinate {k} of {path!r} is part of a quaternion and cannot be held; "
                    "hold a revolute or universal joint"
                )
            if (g, row, k) in driven:
                raise ModelError(f"hold: {path!r} has a driver already")
            driven.add((g, row, k))
            driver = Driver(mechanism.joints[g].names[row], Constant(values[g][row, k]), k)
            held.append(
                DriverGroup(
                    driver=jax.tree.map(lambda x: x[None], anonymous(driver)),
                    names=(f"hold {mechanism.joints[g].names[row]}.{k}",),
                    group=g,
                    rows=IndexSet.of([row]),
                    is_angle=units[k] == "rad" and not isinstance(joint, Screw),
                )
            )
    return tuple(held)


def _place(system: AbstractSystem, path: str) -> tuple[int, int, list[int]]:
    """Group, row and coordinates of a joint's name or of `"joint.number"`."""
    mechanism = system.mechanism
    known = {name: None for group in mechanism.joints for name in group.names}
    name, _, number = path.rpartition(".")
    if path in known:
        name, number = path, ""
    elif name not in known or not number.isdigit():
        raise ModelError(unknown("hold: unknown joint", path, known))
    g, row = mechanism.find_joint(name)
    nq = mechanism.joints[g].joint.sizes()[0]
    if number and int(number) >= nq:
        raise ModelError(
            f"hold: joint {name!r} has {nq} coordinates, none of number {number}; count from 0"
        )
    return g, row, [int(number)] if number else list(range(nq))


def with_loads(
    system: AbstractSystem, load: Mapping[str, Any] | None, caller: str = "load"
) -> AbstractSystem:
    """The system with other loads, by name; messages begin with `caller`.

    A value is an element of the same kind as the one of this name, which it replaces, or a factor
    of the load of a `Gravity`, `AppliedForce`, `AppliedTorque` or `JointTorque`.

    **Raises** `ModelError` for an unknown name, for an element of another kind, and for a factor of
    any other element.
    """
    for name, value in (load or {}).items():
        system = _with_load(system, name, value, caller)
    return system


def _with_load(system: AbstractSystem, name: str, value: Any, caller: str) -> AbstractSystem:
    elements = system.mechanism.elements
    known = {n: None for group in elements for n in group.names}
    if name not in known:
        raise ModelError(unknown(f"{caller}: unknown element", name, known))
    k = next(k for k, group in enumerate(elements) if name in group.names)
    group = elements[k]
    row = group.names.index(name)
    old = jax.tree.map(lambda x: x[row], group.element)
    if not (_is_number(value) or isinstance(value, eqx.Module)):
        raise ModelError(f"{caller}: {name!r} must be a factor or an element, got {value!r:.60}")
    new = anonymous(_scaled(name, old, value) if _is_number(value) else value)
    dtype = system.mechanism.dtype
    new = jax.tree.map(lambda x: jnp.asarray(x, dtype) if eqx.is_inexact_array(x) else x, new)
    if kind_of(new) != kind_of(old):
        raise ModelError(
            f"{caller}: {name!r} is a {type(old).__name__}, which only one with the same kind of "
            f"arguments can replace; got {type(value).__name__}"
        )
    stacked = jax.tree.map(lambda x, y: jnp.asarray(x).at[row].set(y), group.element, new)
    return eqx.tree_at(lambda s: s.mechanism.elements[k].element, system, stacked)


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) and eqx.is_array_like(value) and np.ndim(value) == 0


def _scaled(name: str, element: Any, factor: Any) -> Any:
    factor = as_leaf(factor, (), f"load: {name!r}")

    def times(x: Any) -> Any:
        return factor.astype(x.dtype) * x

    if isinstance(element, Gravity):
        return eqx.tree_at(lambda e: e.g, element, times(element.g))
    prescribed = isinstance(element, AppliedForce | AppliedTorque | JointTorque)
    if prescribed and isinstance(element.signal, Constant):
        return eqx.tree_at(lambda e: e.signal.value, element, times(element.signal.value))
    raise ModelError(
        f"load: {name!r} ({type(element).__name__}) has no load that a number can multiply; pass "
        "an element of this kind"
    )

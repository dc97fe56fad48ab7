"""Groups of stacked components of one kind, so that systems loop over kinds only."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..joints import AbstractJoint, Screw
from ..model.model import anonymous
from ..model.values import as_jax, is_concrete
from .index_sets import IndexSet


class JointGroup(eqx.Module):
    """Joints of one kind, stacked along a leading axis.

    - `first`, `second`: port rows of their frames F (predecessor) and M (successor).
    - `in_tree`: whether they are edges of the spanning tree.
    - `children`: for tree joints, the rows of their child bodies, without the ground.
    - `reversed`: for tree joints, whether M is on the parent.
    """

    joint: AbstractJoint
    names: tuple[str, ...] = eqx.field(static=True)
    first: IndexSet = eqx.field(static=True)
    second: IndexSet = eqx.field(static=True)
    in_tree: bool = eqx.field(static=True)
    reversed: bool = eqx.field(static=True)
    children: IndexSet = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def counts_no_turns(self) -> bool:
        """True if the coordinate is an angle that a pose determines within (-π, π] only."""
        return self.joint.rotation.nq == 1 and not isinstance(self.joint, Screw)


class RotorGroup(eqx.Module):
    """Rotors behind gears on joints of one group; `rows` are the rows of the joints."""

    rotor: Any
    names: tuple[str, ...] = eqx.field(static=True)
    group: int = eqx.field(static=True)
    rows: IndexSet = eqx.field(static=True)


def kind_of(component: Any) -> tuple[Any, ...]:
    """Structure, shapes and dtypes of a component; components can be stacked if these agree."""
    leaves, structure = jax.tree.flatten(anonymous(component))
    return (structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves))


def stack(components: Sequence[Any]) -> Any:
    """Stack components of one kind: every leaf gets a leading axis."""

    def stack_leaves(*leaves: Any) -> Any:
        if all(is_concrete(x) for x in leaves):
            return as_jax(np.stack([np.asarray(x) for x in leaves]))
        return jnp.stack(leaves)

    return jax.tree.map(stack_leaves, *[anonymous(x) for x in components])


def group_by(items: Iterable[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
    """Lists of items with equal keys, in the order in which the keys first appear."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())

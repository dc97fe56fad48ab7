"""Any subset of the six relative motions."""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.arguments import described
from ..model.frame import Frame, as_frame
from .abstract import AbstractJoint
from .rotation import AbstractRotation, AxisRotation, FreeRotation, NoRotation, TwoAxisRotation

MOTIONS = ("x", "y", "z", "rx", "ry", "rz")


class Generic(AbstractJoint):
    """Any subset of the translations along and the rotations about the axes of F.

    The coordinates are the free displacements [m], in the order x, y, z, followed by the free
    angles [rad]. If two rotations are free, the first is about an axis fixed in F and the second
    about one fixed in M, in the order x y, y z, z x. Three free rotations are a quaternion.

    **Arguments:**

    - `predecessor`, `successor`: a `Frame` each, or the name of a body for its own frame.
    - `free`: the free motions: names out of `"x"`, `"y"`, `"z"`, `"rx"`, `"ry"`, `"rz"`, or six
      booleans in this order.

    **Raises** `ModelError` for other names.

    For example:

        guide = joints.Generic("ground", "plate", free=["x", "rz"])
    """

    predecessor: Frame
    successor: Frame
    free: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, predecessor: Any, successor: Any, free: Sequence[Any]):
        self.predecessor = as_frame(predecessor, "Generic: predecessor")
        self.successor = as_frame(successor, "Generic: successor")
        if not isinstance(free, Iterable):
            listed = ", ".join(map(repr, MOTIONS))
            raise ModelError(f"Generic: free must be names out of {listed}, got {described(free)}")
        names = [free] if isinstance(free, str) else list(free)
        if len(names) == 6 and all(isinstance(name, bool | np.bool_) for name in names):
            names = [name for name, is_free in zip(MOTIONS, names, strict=True) if is_free]
        for name in names:
            if name not in MOTIONS:
                listed = ", ".join(map(repr, MOTIONS))
                raise ModelError(f"Generic: free: unknown motion {name!r}; known are {listed}")
        self.free = tuple(name for name in MOTIONS if name in names)

    @property
    def _order(self) -> tuple[int, int, int]:
        """Indices of the axes of F that are e1, e2 and e3, as the kinds of rotation require."""
        axes = [MOTIONS.index(name) - 3 for name in self.free if name.startswith("r")]
        if len(axes) == 1:  # The axis is e3.
            last = axes[0]
            return (last + 1) % 3, (last + 2) % 3, last
        if len(axes) == 2:  # The axes are e1 and e2.
            first = (3 - sum(axes) + 1) % 3
            return first, (first + 1) % 3, (first + 2) % 3
        return 0, 1, 2

    @property
    def translation(self) -> tuple[int, ...]:
        order = self._order
        return tuple(order.index("xyz".index(name)) for name in self.free if len(name) == 1)

    @property
    def rotation(self) -> AbstractRotation:
        n = sum(name.startswith("r") for name in self.free)
        return (NoRotation, AxisRotation, TwoAxisRotation, FreeRotation)[n]()

    def basis(self) -> Float[Array, "3 3"]:
        return jnp.eye(3, dtype=self.predecessor.p.dtype)[:, np.asarray(self._order)]

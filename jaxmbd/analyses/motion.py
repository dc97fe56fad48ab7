"""States of a system over time, with names."""

import abc
from collections.abc import Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.model import unknown
from ..system.abstract import AbstractSystem, NamedPoses, NamedTwists, State
from ..system.energy import Energy, Momentum, energy, momentum
from ..system.joint_states import JointState, joint_states
from ..system.loads import element_states

# Not typing.Self: checks of types at run time support it only if they decorate whole classes.
M = TypeVar("M", bound="AbstractMotion")


class AbstractMotion(eqx.Module):
    """States of a system over time, the result of an analysis.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n.
    - `system`: the system that moved.
    """

    ts: eqx.AbstractVar[Float[Array, "n"]]
    states: eqx.AbstractVar[State]
    system: eqx.AbstractVar[AbstractSystem]

    @abc.abstractmethod
    def rows(self: M, index: np.ndarray) -> M:
        """The motion at some of its times."""

    @property
    def frames(self) -> NamedPoses:
        """Poses over time: `frames["rod"].p`, shape `(n, 3)`, and `.R`, shape `(n, 3, 3)`."""
        return _frames(self.system, self.ts, self.states)

    @property
    def twists(self) -> NamedTwists:
        """Twists `[v, ω]` over time along the frames' own axes: `twists["rod"]`, `(n, 6)`."""
        return _twists(self.system, self.ts, self.states)

    @property
    def joints(self) -> Mapping[str, JointState]:
        """Joint motion over time: `joints["hinge"].q` and `.v`, shape `(n,)` or `(n, k)`."""
        return _joints(self.system, self.ts, self.states)

    @property
    def element_states(self) -> Mapping[str, Float[Array, "..."]]:
        """First-order states of elements over time: `element_states["motor"]`, `(n,)` or `(n, k)`.

        Empty if no element has first-order states.
        """
        return element_states(self.system, self.states)

    @property
    def energy(self) -> Energy:
        """Kinetic, potential and total energy over time [J], shape `(n,)`."""
        return _energies(self.system, self.ts, self.states)

    @property
    def momentum(self) -> Momentum:
        """Linear and angular momentum over time, shape `(n, 3)`."""
        return _momenta(self.system, self.ts, self.states)

    def finite(self: M) -> M:
        """The motion without rows after an event or a failure (not under `jit`).

        **Raises** `ModelError` for a batch, whose motions may end at different rows.
        """
        if self.ts.ndim != 1:
            raise ModelError(
                f"{type(self).__name__}.finite is for one motion, not for a batch of shape "
                f"{self.ts.shape[:-1]}; choose one with `motion`"
            )
        return self.rows(np.flatnonzero(np.isfinite(np.asarray(self.ts))))

    def motion(self: M, index: int | tuple[int, ...]) -> M:
        """One motion of a batch from `jax.vmap`."""
        return jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, self)

    def joint(self, name: str) -> JointState:
        """Motion of one joint; **raises** `KeyError`, with the known names, for an unknown one."""
        joints = self.joints
        if name not in joints:
            raise KeyError(unknown("unknown joint", name, joints))
        return joints[name]

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: frames, joints (`q_<joint>`, `v_<joint>`), first-order states
        (`z_<element>`), energy and momentum over time, with units; write it with
        `.to_netcdf(path, engine="h5netcdf")`. Needs the extra `io`.
        """
        from ..io.dataset import to_dataset

        return to_dataset(self)

    def plot(self, joints: Any = None, energy: bool = True, elements: Any = None) -> Any:
        """Coordinates and velocities of joints, first-order states, and the energy, over time.

        Needs the extra `viz`.

        **Arguments:** `joints`, `elements`: names of the joints, and of the elements with
        first-order states, to show; default: all. `energy`: whether to show it.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot: `figure.savefig(path)`.
        """
        from ..viz.plot import plot_solution

        return plot_solution(self, joints, energy, elements)

    def animate(self, path: Any = None, **options: Any) -> Any:
        """Animate the mechanism; needs the extra `viz`.

        **Arguments:** `path`: where to write a page (`.html`) that plays it without a network;
        `fps`, `speed` (0.1 is slow motion), `scale`, `trace` (frames whose paths to draw),
        `colors`, `labels`, `view`, `height`, `deformation` (factor for flexible bodies),
        `contours` (`"displacement"` or `"strain"`): see `jaxmbd.viz.animate.animate_solution`.

        **Returns** a `k3d.Plot`, shown by a notebook.
        """
        from ..viz.animate import animate_solution

        return animate_solution(self, path, **options)


@eqx.filter_jit
def _frames(system: AbstractSystem, ts: Array, states: State) -> NamedPoses:
    return jax.vmap(lambda t, y: system.frames(t, y.q))(ts, states)


@eqx.filter_jit
def _twists(system: AbstractSystem, ts: Array, states: State) -> NamedTwists:
    return jax.vmap(lambda t, y: system.twists(t, y.q, y.v))(ts, states)


@eqx.filter_jit
def _joints(system: AbstractSystem, ts: Array, states: State) -> dict[str, JointState]:
    return jax.vmap(lambda t, y: joint_states(system, t, y))(ts, states)


@eqx.filter_jit
def _energies(system: AbstractSystem, ts: Array, states: State) -> Energy:
    return jax.vmap(lambda t, y: energy(system, t, y))(ts, states)


@eqx.filter_jit
def _momenta(system: AbstractSystem, ts: Array, states: State) -> Momentum:
    return jax.vmap(lambda t, y: momentum(system, t, y))(ts, states)


__all__ = ["AbstractMotion"]

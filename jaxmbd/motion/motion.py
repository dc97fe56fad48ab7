"""States of a system over time, with names."""

import abc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..errors import ModelError
from ..lie import Pose, so3
from ..model.model import unknown
from ..model.values import all_concrete, described, is_concrete
from ..programs import stored
from ..programs.tracing import error_if, kernel, of_rows
from ..system.abstract import AbstractSystem, NamedPoses, NamedTwists, State, Time
from ..system.joint_states import JointState, joint_states
from ..system.loads import element_states
from ..system.mass_and_energy import Energy, Momentum, energy, momentum
from ..system.reactions import reactions

# Differences of two motions of the same bodies and joints -----------------------------------------


class MotionDifference(eqx.Module):
    """Differences of two motions at the same times, the result of `Solution.compare`.

    - `ts`: times [s], shape `(n,)`.
    - `distances`: `{frame: distance}` of the origins of bodies, marker frames and joint frames in
      both motions [m], shape `(n,)`.
    - `angles`: `{frame: angle}` of the rotation from one to the other [rad], shape `(n,)`.
    - `energy`: difference of the total energies, the other minus this [J], shape `(n,)`.

    Frames are compared by name, so that formulations, whose coordinates differ, can be compared.
    """

    ts: Float[Array, "n"]
    distances: dict[str, Float[Array, "n"]]
    angles: dict[str, Float[Array, "n"]]
    energy: Float[Array, "n"]

    @property
    def distance(self) -> Float[Array, ""]:
        """The largest distance of all frames and times [m]."""
        return jnp.max(jnp.stack(list(self.distances.values())))

    @property
    def angle(self) -> Float[Array, ""]:
        """The largest angle of all frames and times [rad]."""
        return jnp.max(jnp.stack(list(self.angles.values())))

    def __str__(self) -> str:
        width = max(len(name) for name in self.distances)
        lines = [f"{'frame':<{width}}  {'distance [m]':>12}  {'angle [rad]':>12}"]
        lines += [
            f"{name:<{width}}  {np.max(x):12.3g}  {np.max(self.angles[name]):12.3g}"
            for name, x in self.distances.items()
        ]
        return "\n".join([*lines, f"total energy: up to {np.max(np.abs(self.energy)):.3g} J"])


def compare(motion: "AbstractMotion", other: Any) -> MotionDifference:
    """Differences of two motions; see `Solution.compare`."""

    if not isinstance(other, AbstractMotion):
        raise ModelError(f"compare: the other motion is {described(other)}, not a motion")
    ts = motion.ts
    if jnp.shape(ts) != jnp.shape(other.ts):
        raise ModelError(
            f"compare: the motions have times of shape {jnp.shape(ts)} and {jnp.shape(other.ts)}; "
            "simulate one of them with saveat=other.ts"
        )
    times = other.ts.astype(ts.dtype)
    apart = jnp.abs(ts - times) > 1e-6 * jnp.max(jnp.abs(ts), where=jnp.isfinite(ts), initial=0.0)
    differ = jnp.any(apart & jnp.isfinite(ts + times))
    message = "compare: the motions have other times; simulate one of them with saveat=other.ts"
    if not all_concrete(differ):
        ts = error_if(ts, differ, message)
    elif differ:
        raise ModelError(message)
    own, theirs = motion.frames, other.frames
    known, others = own.keys(), theirs.keys()
    names = [name for name in known if name in others and name != "ground"]
    missing = sorted({*known} ^ {*others})
    if missing:
        raise ModelError(f"compare: only one of the motions has the frames {', '.join(missing)}")
    rows = (tuple(map(x.names.index, names)) for x in (own, theirs))
    distances, angles = _apart(own.pose, theirs.pose, *rows)
    change = other.energy.total.astype(ts.dtype) - motion.energy.total
    return MotionDifference(
        ts, dict(zip(names, distances, strict=True)), dict(zip(names, angles, strict=True)), change
    )


@stored
def _apart(
    own: Pose, theirs: Pose, rows: tuple[int, ...], others: tuple[int, ...]
) -> tuple[Float[Array, "m n"], Float[Array, "m n"]]:
    """Distances and angles between frames of two motions."""
    X = jax.tree.map(lambda x: x[:, np.array(rows)], own)
    Y = jax.tree.map(lambda x: x[:, np.array(others)], theirs)
    relative = jnp.swapaxes(X.R, 2, 3) @ Y.R.astype(X.R.dtype)
    turn = jax.vmap(jax.vmap(lambda R: so3.log(so3.from_matrix(R))))(relative)
    return _norms(X.p - Y.p.astype(X.p.dtype)).T, _norms(turn).T


def _norms(x: Float[Array, "n m 3"]) -> Float[Array, "n m"]:
    """Norms with a derivative of zero at zero."""
    squares = jnp.sum(x * x, axis=2)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), squares)


# Not typing.Self: checks of types at run time support it only if they decorate whole classes.
M = TypeVar("M", bound="AbstractMotion")


class AbstractMotion(eqx.Module):
    """States of a system over time, the result of an analysis.

    - `ts`: times [s], shape `(n,)`.
    - `states`: `State` with a leading axis of length n.
    - `system`: the system that moved.

    Frames, joints, reactions and energies are computed at the first access. They are available
    under `jit`, too, and raise `ModelError` if the motion has no states at saved times. All are
    JAX arrays, which do not take lists as indices: `motion.rows([0, -1]).joints["hinge"].q` has
    the first and the last row, as has `motion.joints["hinge"].q[np.array([0, -1])]`.
    """

    ts: eqx.AbstractVar[Float[Array, "n"]]
    states: eqx.AbstractVar[State]
    system: eqx.AbstractVar[AbstractSystem]

    @abc.abstractmethod
    def at_rows(self: M, index: Any) -> M:
        """The motion at some of its times, for an index that `rows` has checked."""

    def rows(self: M, index: Any) -> M:
        """The motion at some of its times: `motion.rows([0, -1])` is the first and the last one.

        **Arguments:** `index`: a slice, or a list or an array of integers or of booleans.

        **Raises** `ModelError` for an index outside the motion, another type, and a batch.
        """
        n = _times_of(self, "rows").shape[0]
        if not is_concrete(index):
            return self.at_rows(index)
        try:
            chosen = np.atleast_1d(np.arange(n)[index])
        except (IndexError, TypeError, ValueError):
            chosen = None
        if chosen is None or chosen.ndim != 1:
            raise ModelError(
                f"{type(self).__name__}.rows: index must be a slice, integers from {-n} to "
                f"{n - 1}, or {n} booleans, got {index!r}"
            )
        return self.at_rows(chosen)

    @property
    def frames(self) -> NamedPoses:
        """Poses over time: `frames["rod"].p`, shape `(n, 3)`, and `.R`, shape `(n, 3, 3)`."""
        return _once(self, "frames", _frames)

    @property
    def twists(self) -> NamedTwists:
        """Twists `[v, ω]` over time along the frames' own axes: `twists["rod"]`, `(n, 6)`."""
        return _once(self, "twists", _twists)

    @property
    def joints(self) -> Mapping[str, JointState]:
        """Joint motion over time: `joints["hinge"].q` and `.v`, shape `(n,)` or `(n, k)`."""
        return _once(self, "joints", _joints)

    @property
    def reactions(self) -> Mapping[str, Float[Array, "n 6"]]:
        """Reaction wrench `[f, τ]` [N, N m] of every joint over time: `reactions["pin"]`, `(n, 6)`.

        See `jaxmbd.reactions` for its frame and sign. After the end of a motion it is NaN.
        """
        return _once(self, "reactions", _reactions)

    @property
    def element_states(self) -> Mapping[str, Float[Array, "..."]]:
        """First-order states of elements over time: `element_states["motor"]`, `(n,)` or `(n, k)`.

        Empty if no element has first-order states.
        """
        return element_states(self.system, _states_of(self, "element_states"))

    @property
    def energy(self) -> Energy:
        """Kinetic, potential and total energy over time [J], shape `(n,)`."""
        return _once(self, "energy", _energies)

    @property
    def momentum(self) -> Momentum:
        """Linear and angular momentum over time, shape `(n, 3)`."""
        return _once(self, "momentum", _momenta)

    def finite(self: M) -> M:
        """The motion without rows after an event or a failure (not under `jit`).

        Rows with states that are not finite are left out as well.

        **Raises** `ModelError` for a batch, whose motions may end at different rows.
        """
        kept = np.isfinite(np.asarray(_times_of(self, "finite")))
        if isinstance(self.states, State):
            for x in map(np.asarray, (self.states.q, self.states.v, self.states.z)):
                kept = kept & np.all(np.isfinite(x), axis=1)
        return self.at_rows(np.flatnonzero(kept))

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

        _states_of(self, "to_xarray")
        return to_dataset(self)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` over the time [s]: `q_<joint>`, `v_<joint>`, `z_<element>`,
        positions such as `position.tip.x`, energies and momenta. Needs the extra `io`.
        """
        from ..io.dataset import to_table

        _states_of(self, "to_pandas")
        return to_table(self)

    def compare(self, other: Any) -> MotionDifference:
        """Differences to another motion of equally named bodies at the same times.

        The motions may be of different formulations, integrators or parameters. Save both at the
        same times by `saveat`.

        **Returns** a `MotionDifference`: distances and angles by frame, and energies, over time;
        `print` shows the largest ones.

        **Raises** `ModelError` for other times and other frames; under a transformation, other
        times are an error at run time.
        """
        return compare(self, other)

    def plot(
        self,
        joints: Any = None,
        energy: bool = True,
        elements: Any = None,
        *,
        contacts: Any = None,
        ax: Any = None,
    ) -> Any:
        """Joint coordinates and velocities, first-order states, contact forces and energy.

        Needs the extra `viz`.

        **Arguments:** `joints`, `elements`: names of the joints, and of the elements with
        first-order states, to show; default: all. `energy`: whether to show it. `contacts`: names
        of the contacts and tyres whose forces to show; default: all. `ax`: matplotlib axes for the
        coordinates of the joints alone, which must have one unit.

        **Returns** a `matplotlib.figure.Figure`, without `ax` outside of pyplot:
        `figure.savefig(path)`.
        """
        from ..viz.plot import plot_joints, plot_solution

        _states_of(self, "plot")
        if ax is not None:
            return plot_joints(self, joints, ax)
        return plot_solution(self, joints, energy, elements, contacts)

    def animate(self, path: Any = None, **options: Any) -> Any:
        """Animate the mechanism; needs the extra `viz`.

        **Arguments:**

        - `path`: a file that plays the motion without a network: a page (`.html`) or a picture
          (`.gif`). Default: no file.
        - `options` of pages: `fps`, `speed` (0.1 is slow motion), `scale`, `trace` (frames whose
          paths to draw), `colors`, `labels`, `view`, `height`, `deformation` (factor for flexible
          bodies), `contours` (`"displacement"` or `"strain"`), see
          `jaxmbd.viz.animate.animate_solution`; of pictures: those of
          `jaxmbd.viz.gif.gif_of_solution`.

        **Returns** a `k3d.Plot`, or a `Gif` if the path ends in `.gif`. Notebooks show both.

        **Raises** `ModelError` for a motion without saved states, a path with another ending, and
        invalid options.
        """
        _states_of(self, "animate")
        if path is not None and str(path).lower().endswith(".gif"):
            from ..viz.gif import gif_of_solution

            return gif_of_solution(self, path, **options)
        from ..viz.animate import animate_solution

        return animate_solution(self, path, **options)

    def snapshots(self, n: int = 5, **options: Any) -> Any:
        """Draw the mechanism at several times in one picture; needs the extra `viz`.

        **Arguments:**

        - `n`: number of poses, at equal times from the first to the last one.
        - `options`: `solid` (the pose that is drawn opaque, from 0; default: the last one),
          `trace`, `colors`, `visuals`, `view`, `scale`, `size`, `deformation`, `boxes`: as of
          `animate` for pictures; boxes are not drawn by default.

        **Returns** a `matplotlib.figure.Figure`: `figure.savefig(path)`.

        **Raises** `KeyError` for an unknown frame or body, and `ModelError` for a motion without
        saved states, a batch, fewer than two poses, and invalid options.

        For example:

            mbd.simulate(model, {"hinge": 0.3}, t1=0.5).snapshots(4, trace="tip")
        """
        _states_of(self, "snapshots")
        from ..viz.snapshots import plot_snapshots

        return plot_snapshots(self, n, **options)


class GivenMotion(AbstractMotion):
    """Given states of a system over time.

    - `ts`: times [s], shape `(n,)`; `states`: `State` with a leading axis of length n.
    """

    ts: Float[Array, "n"]
    states: State
    system: AbstractSystem

    def at_rows(self, index: Any) -> "GivenMotion":
        """The motion at some of its times, for an index that `rows` has checked."""
        ts, states = jax.tree.map(lambda x: x[index], (self.ts, self.states))
        return GivenMotion(ts, states, self.system)


_REMEDY = (
    "give times in saveat, without `fn` and `subs`; `raw.evaluate(t)` returns states of dense "
    "output, `ts` and `states` what was saved"
)
T = TypeVar("T")


def _states_of(motion: AbstractMotion, name: str) -> State:
    """Saved states of a motion; **raises** `ModelError` with the requested `name` if none."""
    if not isinstance(motion.states, State) or not eqx.is_array(motion.ts):
        raise ModelError(
            f"{type(motion).__name__}.{name}: the motion has no states at saved times; {_REMEDY}"
        )
    return motion.states


def _times_of(motion: AbstractMotion, name: str) -> Array:
    """Saved times of one motion; **raises** `ModelError` with the requested `name` otherwise."""
    if not eqx.is_array(motion.ts):
        raise ModelError(
            f"{type(motion).__name__}.{name}: the motion has no one sequence of saved times; "
            f"{_REMEDY}"
        )
    if motion.ts.ndim != 1:
        raise ModelError(
            f"{type(motion).__name__}.{name} is for one motion, not for a batch of shape "
            f"{motion.ts.shape[:-1]}; choose one with `motion`"
        )
    return motion.ts


def _once(motion: AbstractMotion, name: str, of: Callable[[AbstractSystem, Array, State], T]) -> T:
    """A quantity of all rows, which the motion keeps after the first access.

    Not if it is traced: the motion may live longer than the trace. The value is not a field, so
    that it is not part of the pytree.
    """
    kept = vars(motion).setdefault("_computed", {})
    if name in kept:
        return kept[name]
    values = motion.system, motion.ts, _states_of(motion, name)
    value = of(*values)
    if all_concrete(value):
        kept[name] = value
    return value


def _frames_at(system: AbstractSystem, t: Time, state: State) -> NamedPoses:
    return system.frames(t, state.q)


def _twists_at(system: AbstractSystem, t: Time, state: State) -> NamedTwists:
    return system.twists(t, state.q, state.v)


@stored
@with_room
def _along(fn: Callable[..., Any], system: AbstractSystem, ts: Array, states: State) -> Any:
    """fn(system, t, state) along a motion."""
    return of_rows(partial(fn, system), ts, states)


_reactions = partial(_along, reactions)  # Of two evaluations, each one operation.
_frames, _twists = partial(_along, _frames_at), partial(_along, _twists_at)
_joints, _energies, _momenta = (
    partial(_along, kernel(fn)) for fn in (joint_states, energy, momentum)
)

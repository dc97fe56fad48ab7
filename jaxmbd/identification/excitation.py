"""Motions that excite the base parameters of a mechanism within its limits."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..errors import DataError, ModelError
from ..model.model import unknown
from ..model.values import as_count, as_instance, as_leaf, as_mapping, as_positive, require_concrete
from ..programs import with_progress
from ..system.abstract import AbstractSystem, require_system
from ..system.constraints import row_names
from .base_parameters import BaseParameters, base_parameters
from .joint_order import joint_order
from .regressor import is_complete, parameter_values, regressor_at

KINDS = ("position", "velocity", "acceleration", "torque")
OBJECTIVES = ("condition", "determinant")
# Weights of the squared excess over limits, one after the other. The last ones leave an excess far
# below the part of the limits that the design keeps free.
WEIGHTS = (1e0, 1e2, 1e4)
FREE = 0.02  # Part of the limits that stays free, for what the penalty and the samples miss.
RATE = 0.03  # First step size of Adam, in parts of the limits.


class Excitation(eqx.Module):
    """A motion that excites base parameters, the result of `design_excitation`.

    - `ts`: sample times of one period, shape `(n,)`; `q`, `v`, `vdot`, `torque`: shape `(n, nv)`.
    - `joints`: names of the joints in the order of the columns.
    - `condition`: condition number of the reduced regressor of these samples.
    - `margins`: for each kind of limit the smallest distance from it as a part of its range, by
      joint, shape `(nv,)`; negative if the motion exceeds the limit.
    - `centre`, `cosines`, `sines`: the Fourier series of the positions, of the shapes `(nv,)`,
      `(k, nv)` and `(k, nv)`, whose harmonics are multiples of 2π / `period`.
    - `conditions`: condition numbers of all starts.
    """

    ts: Float[np.ndarray, "n"]
    q: Float[np.ndarray, "n nv"]
    v: Float[np.ndarray, "n nv"]
    vdot: Float[np.ndarray, "n nv"]
    torque: Float[np.ndarray, "n nv"]
    joints: tuple[str, ...] = eqx.field(static=True)
    condition: float
    margins: dict[str, Float[np.ndarray, "nv"]]
    period: float
    centre: Float[np.ndarray, "nv"]
    cosines: Float[np.ndarray, "k nv"]
    sines: Float[np.ndarray, "k nv"]
    conditions: Float[np.ndarray, "starts"]

    def at(
        self, ts: Any
    ) -> tuple[Float[Array, "n nv"], Float[Array, "n nv"], Float[Array, "n nv"]]:
        """Positions, velocities and accelerations at other times, shape `(n, nv)`."""
        return _series(jnp.asarray(ts), self.period, self.centre, self.cosines, self.sines)

    def plot(self) -> Any:
        """Positions, velocities, accelerations and torques over one period; needs `viz`.

        **Returns** a `matplotlib.figure.Figure` outside of pyplot: `figure.savefig(path)`.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 6.0), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True).ravel()
        for ax, kind, x in zip(axes, KINDS, (self.q, self.v, self.vdot, self.torque), strict=True):
            for name, column in zip(self.joints, x.T, strict=True):
                ax.plot(self.ts, column, label=name)
            ax.set_title(kind)
            ax.grid(alpha=0.3)
        for ax in axes[2:]:
            ax.set_xlabel("time [s]")
        axes[0].legend(fontsize="small")
        figure.suptitle(f"condition number {self.condition:.1f}")
        return figure

    def __str__(self) -> str:
        lines = [f"condition number {self.condition:.4g}, period {self.period:g} s"]
        for kind, margin in self.margins.items():
            k = int(np.argmin(margin))
            lines.append(f"least margin of {kind}: {margin[k]:.1%} at {self.joints[k]}")
        return "\n".join(lines)


@with_progress
def design_excitation(
    system: AbstractSystem,
    limits: Mapping[str, Mapping[str, Any]],
    period: float = 10.0,
    harmonics: int = 5,
    samples: int = 100,
    objective: str = "condition",
    starts: int = 4,
    steps: int = 400,
    base: BaseParameters | None = None,
    seed: int = 0,
) -> Excitation:
    """Design a periodic motion whose forces show the base parameters best, within limits.

    Positions are Fourier series. Adam's method with exact gradients minimizes the objective and
    the squared excess over the limits, whose weight grows.

    **Arguments:**

    - `system`: a tree in `JointCoordinates` whose joints have one coordinate each.
    - `limits`: `{joint: {"position": (low, high), "velocity": v, "acceleration": a,
      "torque": τ}}`, symmetric but for positions; every joint needs limits of position and
      velocity.
    - `period` [s], `harmonics`, `samples`: of the series; samples are equally spaced.
    - `objective`: `"condition"`, the condition number of the reduced regressor, or
      `"determinant"`, the smallest volume of the confidence region (D-optimality).
    - `starts`: number of random starts, of which the best within the limits is returned; `steps`:
      steps of each one for each of three weights.
    - `base`: the combinations to be shown. Default: all base parameters.
    - `seed`: a whole number from which starts are drawn.

    Torques in the limits are those of the model. Gravity, friction and rotors count.

    Source: Swevers, Ganseman, Tükel, De Schutter and Van Brussel (1997), "Optimal robot excitation
    and identification", for Fourier series.

    **Raises** `ModelError` for other systems, unknown joints, missing or wrong limits; `DataError`
    if no start ends within the limits.

    For example:

        limits = {"hinge": {"position": (-1.0, 1.0), "velocity": 2.0, "torque": 20.0}}
        excitation = mbd.design_excitation(system, limits, starts=1, steps=50)
        print(excitation)
    """
    require_concrete("design_excitation", (system, limits))
    arm, names, bounds = _checked(system, limits)
    period = as_positive(period, "design_excitation: period")
    shape = as_count(harmonics, "design_excitation: harmonics"), system.nv
    n = as_count(samples, "design_excitation: samples")
    if objective not in OBJECTIVES:
        raise ModelError(f"design_excitation: objective must be one of {OBJECTIVES}")
    n_starts = as_count(starts, "design_excitation: starts")
    n_steps = as_count(steps, "design_excitation: steps")
    base = base_parameters(system) if base is None else base
    as_instance(base, BaseParameters, "design_excitation: base", "BaseParameters")
    rng = np.random.default_rng(as_count(seed, "design_excitation: seed", 0))
    ts = period * np.arange(n) / n
    w = 2 * np.pi / period * np.arange(1, shape[0] + 1)
    # The series' speed is about half of the limit; unknowns are parts of the limits.
    size = bounds["velocity"][None] / w[:, None] / np.sqrt(shape[0])
    data = jnp.asarray(ts), jnp.asarray(period), jnp.asarray(size), _as_jax(bounds)
    first = 0.3 * rng.normal(size=(n_starts, 2, *shape))
    centre = rng.uniform(-0.5, 0.5, size=(n_starts, 1, shape[1]))
    columns = jnp.asarray(base.columns)
    ends = [
        _optimized(arm, columns, data, (jnp.asarray(c), jnp.asarray(x)), objective, n_steps)
        for c, x in zip(centre[:, 0], first, strict=True)
    ]
    found = [_excitation(arm, names, base, data, end) for end in ends]
    within = [x for x in found if min(m.min() for m in x.margins.values()) >= 0.0]
    if not within:
        raise DataError(
            "design_excitation: no start ended within the limits; give more steps or starts, a "
            "longer period, or wider limits"
        )
    best = min(within, key=lambda x: x.condition)
    return eqx.tree_at(lambda x: x.conditions, best, np.array([x.condition for x in found]))


def _as_jax(bounds: dict[str, np.ndarray]) -> dict[str, Array]:
    return {name: jnp.asarray(x) for name, x in bounds.items()}


def _checked(
    system: Any, limits: Any
) -> tuple[AbstractSystem, tuple[str, ...], dict[str, np.ndarray]]:
    """The system, joints in the order of the velocities, and arrays of limits by kind."""
    require_system(system)
    if system.joint_velocities() is None:
        raise ModelError("design_excitation: system must be in JointCoordinates")
    if row_names(system) or not is_complete(system) or system.nq != system.nv:
        raise ModelError(
            "design_excitation: the system must be a tree of rigid bodies with weight, friction "
            "and rotors, whose joints have one coordinate each"
        )
    order = joint_order(system)
    if order is None:
        raise ModelError("design_excitation: the joints must have one coordinate each")
    joints = tuple(order)
    given = as_mapping(limits, "design_excitation: limits", "{joint: {kind: limit}}")
    for name in given:
        if name not in joints:
            raise ModelError(unknown("design_excitation: limits: unknown joint", name, given))
    bounds = {kind: np.full(len(joints), np.inf) for kind in KINDS[1:]}
    low, high = np.zeros((2, len(joints)))
    for k, name in enumerate(joints):
        own = as_mapping(given.get(name), f"design_excitation: limits of {name!r}", "{kind: limit}")
        if not {"position", "velocity"} <= set(own) <= set(KINDS):
            raise ModelError(
                f"design_excitation: limits of {name!r} need position and velocity, and may have "
                f"acceleration and torque; got {sorted(own)}"
            )
        pair = as_leaf(own["position"], (2,), f"design_excitation: position of {name!r}")
        low[k], high[k] = np.asarray(pair)
        if not low[k] < high[k]:
            raise ModelError(f"design_excitation: position of {name!r}: {own['position']} is empty")
        for kind in KINDS[1:]:
            if kind in own:
                bounds[kind][k] = as_positive(own[kind], f"design_excitation: {kind} of {name!r}")
    return system, joints, {"low": low, "high": high, **bounds}


def _series(
    ts: Array, period: Any, centre: Any, cosines: Any, sines: Any
) -> tuple[Array, Array, Array]:
    """Positions, velocities and accelerations of a Fourier series."""
    w = 2 * jnp.pi / period * jnp.arange(1, len(cosines) + 1, dtype=ts.dtype)
    phase = ts[:, None] * w[None]
    cos, sin, w = jnp.cos(phase), jnp.sin(phase), w[:, None]
    q = centre[None] + cos @ cosines + sin @ sines
    v = cos @ (w * sines) - sin @ (w * cosines)
    return q, v, -(cos @ (w**2 * cosines)) - sin @ (w**2 * sines)


def _motion(data: tuple[Any, ...], x: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    ts, period, size, bounds = data
    centre = 0.5 * (bounds["low"] + bounds["high"]) + x[0] * (bounds["high"] - bounds["low"]) / 2
    return _series(ts, period, centre, size * x[1][0], size * x[1][1])


def _rows(system: AbstractSystem, motion: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """The regressor at all samples, and the torques."""

    def at(q: Array, v: Array, vdot: Array) -> Array:
        return regressor_at(system, system.configuration(jnp.zeros((), q.dtype), q), v, vdot)

    Y = jax.vmap(at)(*motion)
    return Y, Y @ parameter_values(system)


def _margins(
    bounds: dict[str, Array], motion: tuple[Array, Array, Array], torque: Array
) -> dict[str, Array]:
    """Smallest distances from limits by kind and joint, as parts of their ranges."""
    q, v, vdot = motion
    room = bounds["high"] - bounds["low"]
    found = {
        "position": jnp.min(jnp.minimum(bounds["high"][None] - q, q - bounds["low"][None]), 0)
        / room
    }
    for kind, x in zip(KINDS[1:], (v, vdot, torque), strict=True):
        found[kind] = 1.0 - jnp.max(jnp.abs(x), axis=0) / bounds[kind]
    return found


def _loss(
    x: tuple[Array, Array],
    system: AbstractSystem,
    columns: Array,
    data: tuple[Any, ...],
    weight: Array,
    objective: str,
) -> Array:
    """The logarithm of the objective, and the squared excess over limits at all samples."""
    motion, bounds = _motion(data, x), data[-1]
    Y, torque = _rows(system, motion)
    W = Y[..., columns].reshape(-1, len(columns))
    values = jnp.linalg.svd(W, compute_uv=False)
    if objective == "condition":
        value = jnp.log(values[0] / values[-1])
    else:
        value = -jnp.mean(jnp.log(values))
    q, v, vdot = motion
    middle = 0.5 * (bounds["low"] + bounds["high"])
    half = 0.5 * (bounds["high"] - bounds["low"])
    used = [jnp.abs(q - middle[None]) / half[None]]
    limits = [bounds[kind][None] for kind in KINDS[1:]]
    used += [jnp.abs(y) / limit for y, limit in zip((v, vdot, torque), limits, strict=True)]
    excess = [jnp.sum(jnp.maximum(y - (1.0 - 2 * FREE), 0.0) ** 2) for y in used]
    return value + weight * sum(excess) / len(q)


@eqx.filter_jit
def _optimized(
    system: AbstractSystem,
    columns: Array,
    data: tuple[Any, ...],
    x: tuple[Array, Array],
    objective: str,
    n_steps: int,
) -> tuple[Array, Array]:
    """The unknowns after Adam's steps with growing weights."""

    def stage(x: tuple[Array, Array], weight: Array) -> tuple[tuple[Array, Array], None]:
        optimizer = optax.adam(optax.cosine_decay_schedule(RATE, n_steps, 0.02))

        def step(carry: Any, _: None) -> tuple[Any, None]:
            x, memory = carry
            gradient = jax.grad(_loss)(x, system, columns, data, weight, objective)
            with jax.numpy_dtype_promotion("standard"):  # optax mixes its own types.
                change, memory = optimizer.update(gradient, memory)
            return (optax.apply_updates(x, change), memory), None

        (x, _), _ = jax.lax.scan(step, (x, optimizer.init(x)), None, length=n_steps)
        return x, None

    return jax.lax.scan(stage, x, jnp.asarray(WEIGHTS, x[0].dtype))[0]


def _excitation(
    system: AbstractSystem,
    names: tuple[str, ...],
    base: BaseParameters,
    data: tuple[Any, ...],
    x: tuple[Array, Array],
) -> Excitation:
    ts, period, _, bounds = data
    motion = _motion(data, x)
    Y, torque = eqx.filter_jit(_rows)(system, motion)
    W = np.asarray(Y)[..., list(base.columns)].reshape(-1, len(base))
    values = np.linalg.svd(W, compute_uv=False)
    fine = _series(jnp.linspace(0.0, period, 10 * len(ts)), period, *(arrays := _arrays(data, x)))
    margins = _margins(bounds, fine, eqx.filter_jit(_rows)(system, fine)[1])
    shown = {k: np.asarray(m) for k, m in margins.items() if np.any(np.isfinite(m))}
    centre, cosines, sines = (np.asarray(a) for a in arrays)
    condition = float(values[0] / values[-1])
    q, v, vdot, torque = (np.asarray(y) for y in (*motion, torque))
    return Excitation(
        np.asarray(ts), q, v, vdot, torque, names, condition, shown, float(period),
        centre, cosines, sines, np.zeros(0),
    )  # fmt: skip


def _arrays(data: tuple[Any, ...], x: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """Centre, cosines and sines of the series."""
    _, _, size, bounds = data
    centre = 0.5 * (bounds["low"] + bounds["high"]) + x[0] * (bounds["high"] - bounds["low"]) / 2
    return centre, size * x[1][0], size * x[1][1]

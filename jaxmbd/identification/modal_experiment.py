"""Natural frequencies and damping ratios at an equilibrium."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from ..errors import DataError
from ..linear import Eigen, modal_assurance
from ..linearization import Linearization, linearize
from ..model import Model
from ..model.values import as_mapping, is_count
from ..sensors import JointPosition
from ..system.abstract import AbstractSystem, State
from .prediction import Simulator
from .record_equilibrium import BoundRest, Rest, rest_of
from .records import AbstractBoundRecord, AbstractRecord, numbers

# Modes oscillate if Im λ exceeds this many square roots of the machine epsilon, times the largest
# |λ|: eigenvalues of rigid-body modes are zero up to one such root.
OSCILLATING = 10.0


class ModalExperiment(AbstractRecord):
    """Measured natural frequencies, and damping ratios, near an equilibrium.

    Measured modes are matched to those modes of the model that oscillate, in the order of their
    frequencies. With `shapes` they are matched by the modal assurance criterion, MAC =
    |ψᴴ φ|² / (ψᴴ ψ · φᴴ φ) of measured shapes ψ and shapes φ of the model: the pair of the largest
    MAC first, then the largest of the remaining modes. The match is repeated for each model.

    **Arguments:**

    - `frequencies`: |λ| / 2π [Hz] as in `Modes`, shape `(m,)`, in increasing order if modes are
      matched by order.
    - `deviations`: their standard deviations [Hz], a number or shape `(m,)`.
    - `damping_ratios`: -Re λ / |λ|, shape `(m,)`, and `damping_deviations`, a number or shape
      `(m,)`. Default: not measured.
    - `modes`: numbers of the measured modes among the oscillating modes of the model, from 0, shape
      `(m,)`. Default: 0 to m - 1.
    - `shapes`: `{sensor: amplitudes}`, real or complex, shape `(m,)` or `(m, k)` for a sensor with
      k readings; the scale of a shape is arbitrary. Sensors are those of displacements in the same
      unit, of joints or given to `identify`.
    - `load`, `guess`, `states`, `t`, `method`: of the equilibrium, as for `StaticExperiment`.
    - `name`: name in messages.

    **Raises** `DataError`, with the record's name, for numbers that are not finite or not positive,
    for shapes that differ, and for frequencies that do not increase.
    """

    frequencies: Float[Array, "m"]
    deviations: Float[Array, "m"]
    damping_ratios: Float[Array, "k"]
    damping_deviations: Float[Array, "k"]
    modes: tuple[int, ...] = eqx.field(static=True)
    shapes: dict[str, Complex[Array, "m *n"]]
    rest: Rest
    name: str = eqx.field(static=True)

    def __init__(
        self,
        frequencies: Any,
        deviations: Any,
        *,
        damping_ratios: Any = None,
        damping_deviations: Any = None,
        modes: Sequence[int] | None = None,
        shapes: Mapping[str, Any] | None = None,
        load: Mapping[str, Any] | None = None,
        guess: Mapping[str, Any] | None = None,
        states: Mapping[str, Any] | None = None,
        t: Any = 0.0,
        method: str = "auto",
        name: str = "modal experiment",
    ):
        self.name = name
        label = f"{name}: frequencies"
        self.frequencies = jnp.atleast_1d(numbers(frequencies, label, positive=True))
        size = self.frequencies.shape
        if len(size) != 1 or not size[0]:
            raise DataError(f"{label} have shape {size}, expected one or more, shape (m,)")
        self.deviations = numbers(deviations, f"{name}: deviations", size, positive=True)
        if (damping_ratios is None) != (damping_deviations is None):
            raise DataError(f"{name}: give both damping_ratios and damping_deviations, or neither")
        known = damping_ratios is not None
        label = f"{name}: damping_ratios"
        empty = self.frequencies[:0]
        self.damping_ratios = empty if not known else jnp.atleast_1d(numbers(damping_ratios, label))
        if known and self.damping_ratios.shape != size:
            raise DataError(
                f"{label} have shape {self.damping_ratios.shape}, frequencies {size}; put modes "
                "with measured damping in a record of their own"
            )
        self.damping_deviations = (
            empty if not known else numbers(damping_deviations, label, size, positive=True)
        )
        shapes = as_mapping(shapes, f"{name}: shapes", "{sensor: amplitudes}", DataError)
        self.modes = _modes(name, modes, shapes, self.frequencies)
        self.shapes = {key: _amplitudes(name, key, x, size[0]) for key, x in sorted(shapes.items())}
        self.rest = rest_of(name, load, guess, states, t, (), method)

    def labels(self) -> tuple[str, ...]:
        number = self.modes if self.modes else range(self.frequencies.size)
        damping = [f"damping ratio {k}" for k, _ in zip(number, self.damping_ratios, strict=False)]
        return (*(f"frequency {k} [Hz]" for k in number), *damping)

    def sensors(self) -> tuple[str, ...]:
        return ()

    def bound(self, simulator: Simulator, model: Model, noise: Mapping[str, float]) -> "BoundModes":
        for key in self.shapes:
            if key not in simulator.sensors and key not in model.joints:
                known = ", ".join(sorted([*simulator.sensors, *model.joints]))
                raise DataError(
                    f"{self.name}: shapes: no sensor {key!r}; there are joints and `sensors`: "
                    f"{known}"
                )
        rest, system, state = self.rest.bound(simulator, model)
        sensors = _outputs(self.shapes, simulator)
        linear = linearize(system, rest.t, state, outputs=sensors)
        m = self.frequencies.size
        parts = [x.reshape(m, -1) for x in self.shapes.values()]
        shapes = jnp.concatenate(parts, axis=1) if parts else None
        if shapes is not None and shapes.shape[1] != len(linear.outputs):
            raise DataError(
                f"{self.name}: shapes have {shapes.shape[1]} amplitudes of each mode, the sensors "
                f"read {len(linear.outputs)}: {', '.join(linear.outputs)}"
            )
        count = int(jnp.sum(_oscillates(linear.eigen())))
        needed = max(self.modes, default=m - 1) + 1
        if count < needed:
            raise DataError(
                f"{self.name}: mode {needed - 1} was measured, but the starting model has "
                f"{count} modes that oscillate; start from a model with less damping, or omit the "
                "mode"
            )
        return BoundModes(
            jnp.concatenate([self.frequencies, self.damping_ratios]),
            jnp.concatenate([self.deviations, self.damping_deviations]),
            shapes,
            rest,
            self.modes,
            tuple(self.shapes),
            linear.coordinates,
            linear.velocities,
            m,
        )


def _modes(
    name: str, modes: Sequence[int] | None, shapes: Any, frequencies: Float[Array, "m"]
) -> tuple[int, ...]:
    """Numbers of the modes of the model; none if shapes match them."""
    m = frequencies.size
    if shapes:
        if modes is not None:
            raise DataError(f"{name}: give `modes` or `shapes`, which match modes, not both")
        return ()
    chosen = tuple(range(m) if modes is None else np.atleast_1d(np.asarray(modes)).tolist())
    if not all(is_count(k, least=0) for k in chosen):
        raise DataError(f"{name}: modes must be whole numbers from 0, got {modes!r:.60}")
    if len(chosen) != m or len(set(chosen)) != m or min(chosen) < 0:
        raise DataError(
            f"{name}: modes are {m} different numbers from 0, one for each frequency, got "
            f"{list(chosen)}"
        )
    ordered = np.asarray(frequencies)[np.argsort(chosen)]
    if np.any(np.diff(ordered) < 0):
        raise DataError(
            f"{name}: frequencies {ordered.tolist()} decrease from mode to mode, but modes are "
            "matched in the order of their frequencies; sort them, or give `shapes`"
        )
    return chosen


def _amplitudes(name: str, key: str, value: Any, m: int) -> Complex[Array, "m *n"]:
    try:
        array = np.asarray(value, dtype=complex)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: shapes: {key!r} is not numeric") from error
    if array.ndim not in (1, 2) or array.shape[0] != m:
        raise DataError(f"{name}: shapes: {key!r} has shape {array.shape}, expected ({m},)")
    if not np.all(np.isfinite(array)):
        raise DataError(f"{name}: shapes: {key!r} is not finite; omit this sensor or the mode")
    return jnp.asarray(array, dtype=jnp.result_type(complex))


def _outputs(names: Any, simulator: Simulator) -> dict[str, Any]:
    return {key: simulator.sensors.get(key, JointPosition(key)) for key in names}


def _oscillates(eigen: Eigen) -> Bool[Array, "n"]:
    """Mask of the eigenvalues of oscillating modes that have a positive imaginary part."""
    eps = jnp.finfo(eigen.values.real.dtype).eps
    least = OSCILLATING * float(eps) ** 0.5 * jnp.max(jnp.abs(eigen.values))
    return eigen.values.imag > least


class BoundModes(AbstractBoundRecord):
    """A modal record that fits a model, with the coordinates of its linearization."""

    measured: Float[Array, "*batch k"]
    deviations: Float[Array, "*batch k"]
    shapes: Complex[Array, "*batch m ny"] | None
    rest: BoundRest
    modes: tuple[int, ...] = eqx.field(static=True)
    sensors: tuple[str, ...] = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)
    n_frequencies: int = eqx.field(static=True)

    def predicted(
        self, simulator: Simulator, model: Model
    ) -> tuple[Float[Array, "k"], Bool[Array, ""]]:
        sensors = _outputs(self.sensors, simulator)

        def reader(system: AbstractSystem, state: State) -> tuple[Array, Bool[Array, ""]]:
            linear = linearize(
                system,
                self.rest.t,
                state,
                outputs=sensors,
                coordinates=self.coordinates,
                velocities=self.velocities,
            )
            eigen = linear.eigen()
            rows, enough = self._matched(linear, jax.lax.stop_gradient(eigen))
            values = eigen.values[rows]
            size = jnp.abs(values)
            damped = self.measured.size > self.n_frequencies
            ratios = -values.real / size if damped else size[:0]
            return jnp.concatenate([size / (2 * jnp.pi), ratios]), enough

        (values, enough), exist = self.rest.read(simulator, model, reader)
        return values[0], enough[0] & exist

    def _matched(
        self, linear: Linearization, eigen: Eigen
    ) -> tuple[Int[Array, "m"], Bool[Array, ""]]:
        """Rows of the eigenvalues of the measured modes, and whether there are enough."""
        oscillates = _oscillates(eigen)
        if self.shapes is None:
            size = jnp.where(oscillates, jnp.abs(eigen.values), jnp.inf)
            order = jnp.argsort(size)[jnp.array(self.modes)]
            return order, jnp.all(jnp.isfinite(size[order]))
        read = jax.lax.stop_gradient(linear.C).astype(eigen.right.dtype) @ eigen.right
        mac = modal_assurance(self.shapes.T, read)
        return pairs(jnp.where(oscillates[None], mac, -1.0))


def pairs(scores: Float[Array, "m n"]) -> tuple[Int[Array, "m"], Bool[Array, ""]]:
    """A column for each row, by the largest scores first, and whether none is negative."""
    m, n = scores.shape

    def pair(_: Any, carry: Any) -> Any:
        left, columns, okay = carry
        i, j = jnp.unravel_index(jnp.argmax(left), (m, n))
        okay = okay & (left[i, j] >= 0)
        left = left.at[i].set(-2.0).at[:, j].set(-2.0)
        return left, columns.at[i].set(j.astype(columns.dtype)), okay

    start = scores, jnp.zeros(m, jnp.int32), jnp.array(True)
    _, columns, okay = jax.lax.fori_loop(0, m, pair, start)
    return columns, okay

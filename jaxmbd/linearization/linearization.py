"""Linearization of the equations of motion at an operating point."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scalarjit.with_room import with_room

from ..errors import ModelError, OperatingPointWarning, warn
from ..linear import Eigen, eig
from ..model.values import all_concrete, as_mapping
from ..motion.arguments import as_start, as_system, check_numbers
from ..programs import stored, with_progress
from ..programs.tracing import kernel
from ..system import constraints, sizes
from ..system.abstract import AbstractSystem, State, Time, as_time
from ..system.equation_residuals import violations
from ..system.projection import as_rigid
from ..system.sizes import length
from .coordinates import Coordinates, candidate_sizes, coordinates_at
from .inputs import Input, find_inputs
from .matrices import Directions, matrices

if TYPE_CHECKING:
    from .frequency_response import FrequencyResponse
    from .modes import Modes

# A point counts as steady if its accelerations are those of displacements below this number, in
# float32 below ten times the square root of the machine epsilon.
STEADY = 1e-6


class Linearization(eqx.Module):
    """ẋ = A x + B u, y = C x + D u near an operating point, the result of `linearize`.

    x = (p, w, z): increments p of independent joint coordinates, deviations w of their velocities
    and of the first-order states z. u and y are deviations of inputs and outputs.

    - `A`, `B`, `C`, `D`: shapes `(n, n)`, `(n, nu)`, `(ny, n)`, `(ny, nu)`.
    - `states`, `inputs`, `outputs`: names of the entries of x, u and y.
    - `coordinates`: names of the joint coordinates p; `velocities`: those of w. The same, unless
      constraints are nonholonomic.
    - `system`, `t`, `state`: the operating point; `reading`: the outputs there, shape `(ny,)`.
    - `rates`: ẇ and ż there; `second_rates`: their time derivatives along the motion. Both are zero
      in an equilibrium and in a steady motion.
    - `directions`: changes of q and v for unit p and w.
    """

    A: Float[Array, "*batch n n"]
    B: Float[Array, "*batch n nu"]
    C: Float[Array, "*batch ny n"]
    D: Float[Array, "*batch ny nu"]
    reading: Float[Array, "*batch ny"]
    rates: Float[Array, "*batch r"]
    second_rates: Float[Array, "*batch r"]
    directions: Directions
    system: AbstractSystem
    t: Float[Array, "*batch"]
    state: State
    states: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)

    def eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors of A with derivatives, see `jaxmbd.linear.eig`."""
        return eig(self.A)

    def modes(self, n: int | None = None) -> "Modes":
        """Eigenvalues, frequencies, damping ratios and shapes, see `Modes`.

        **Arguments:** `n`: number of modes, the slowest ones; required under a transformation, and
        then the modes have derivatives. Default: all.

        **Raises** `ModelError` if there are fewer than `n` modes, under a transformation without
        `n`, and for a batch of linearizations.
        """
        from .modes import modes_of

        return modes_of(self, n)

    def frequency_response(self, w: Any) -> "FrequencyResponse":
        """C (iω - A)⁻¹ B + D at angular frequencies `w`, shape `(k,)` [rad/s].

        **Raises** `ModelError` without inputs or outputs.
        """
        from .frequency_response import frequency_response_of

        return frequency_response_of(self, w)

    def displaced(self, x: Float[Array, "n"]) -> State:
        """The state at small deviations x, to first order."""
        n_p, n_w = len(self.coordinates), len(self.velocities)
        p, w, z = jnp.split(x, [n_p, n_p + n_w])
        of = self.directions
        dv = of.follow @ p + of.velocities @ w
        change = jnp.concatenate([of.displacements @ p, dv, z])
        return self.system.displaced(self.state, change)

    def to_scipy(self) -> Any:
        """A `scipy.signal.StateSpace` of the four matrices."""
        from scipy.signal import StateSpace

        return StateSpace(*(np.asarray(x) for x in (self.A, self.B, self.C, self.D)))

    def to_control(self) -> Any:
        """A `control.StateSpace` with named states, inputs and outputs; needs the extra `control`.

        **Raises** `ImportError` if the package `control` is not installed.
        """
        try:
            import control  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                "to_control needs the extra control: pip install 'jaxmbd[control]'"
            ) from error
        given = (np.asarray(x) for x in (self.A, self.B, self.C, self.D))
        names = {"states": self.states, "inputs": self.inputs, "outputs": self.outputs}
        labels = {key: list(value) for key, value in names.items()}
        return control.ss(*given, **labels)  # pyright: ignore[reportAttributeAccessIssue]


@with_progress
def linearize(
    system: Any,
    t: float | Time = 0.0,
    state: Any = None,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, Callable[..., Any]] | None = None,
    coordinates: Sequence[str] | None = None,
    velocities: Sequence[str] | None = None,
) -> Linearization:
    """Linearize the equations of motion at an equilibrium or in a steady motion.

    The matrices are exact derivatives, for open and closed mechanisms, with redundant and with
    nonholonomic constraints, in all formulations. Springs instead of rigidity are replaced by
    rigid bodies, in the nearest position without deformation. In a steady motion coordinates move
    with it: entries of x are deviations from the moving point, and A is constant if the equations
    do not depend on its position.

    The matrices are differentiable. Under `jit`, `grad` and `vmap` give `coordinates`, for example
    those of a linearization outside.

    **Arguments:**

    - `system`: of `formulate`, or a `Model`, which is formulated in joint coordinates.
    - `t`: time [s]. Default: 0.
    - `state`: the operating point, a `State` or `{joint: coordinates}`, the `guess` of `assemble`.
      Default: the reference position at rest.
    - `inputs`: `{name: path}` of signals or numbers of forces: `"forces.motor.voltage"`, or the
      name of a force with one signal. Entries of an array are `name[i]`.
    - `outputs`: `{name: sensor}`, see `jaxmbd.sensors`.
    - `coordinates`: names of independent joint coordinates: a joint, or `joint[i]` for the i-th
      velocity of a joint with several. Default: chosen, joints of the spanning tree first.
    - `velocities`: those of the coordinates whose velocities are independent, if constraints are
      nonholonomic. Default: chosen, or `coordinates` if these are given.

    **Warns** by `OperatingPointWarning` if the point is neither an equilibrium nor a steady motion,
    with the largest acceleration. The result then describes deviations from the motion through this
    point, for a short time.

    **Raises** `ModelError` for unknown joints, forces and fields, for outputs that are not
    callable, for states that are not finite or do not satisfy the constraints, for dependent
    coordinates, and if derivatives are not finite.

    For example:

        rest = mbd.equilibrium(model)
        linear = mbd.linearize(model, 0.0, rest.state)
        print(linear.modes())
    """
    system = as_system(system, "linearize")
    time, given = as_time(t, system), {} if state is None else state
    state = as_start(system, given, time, "linearize", must_be_finite=False)
    system, state = as_rigid(system, time, state)
    places = find_inputs(system, as_mapping(inputs, "linearize: inputs", "{name: path}"))
    sensors = as_mapping(outputs, "linearize: outputs", "{name: sensor}")
    for name, sensor in sensors.items():
        if not callable(sensor):
            raise ModelError(f"linearize: outputs: {name!r} is not a sensor, got {sensor!r}")
    concrete = all_concrete((system, time, state))
    if concrete:
        check_state(system, time, state)
    if velocities is not None and coordinates is None:
        raise ModelError("linearize: velocities need coordinates; give both, or none")
    chosen = coordinates_at(system, time, state, coordinates, velocities)
    result = linearized(system, time, state, chosen, places, sensors)
    if concrete and all_concrete(result.A):
        _check_finite(result)
        _warn_unless_steady(result, chosen)
    return result


def linearized(
    system: AbstractSystem,
    t: Time,
    state: State,
    coordinates: Coordinates,
    inputs: tuple[Input, ...] = (),
    sensors: Mapping[str, Callable[..., Any]] | None = None,
) -> Linearization:
    """The linearization in known coordinates, without checks; it can be traced."""
    sensors = dict(sensors or {})
    at = matrices(system, t, state, coordinates, inputs, tuple(sensors.values()))
    z_names: list[str] = []
    for name, (_, count) in system.mechanism.state_places.items():
        z_names += [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]
    return Linearization(
        *at[:4],
        at.reading,
        at.rates,
        at.second_rates,
        at.directions,
        system,
        t,
        state,
        states=(*coordinates.names, *coordinates.rate_names, *z_names),
        inputs=tuple(label for place in inputs for label in place.labels),
        outputs=_output_names(system, t, state, sensors),
        coordinates=coordinates.names,
        velocities=tuple(coordinates.names[i] for i in coordinates.within),
    )


def _output_names(
    system: AbstractSystem, t: Time, state: State, sensors: Mapping[str, Callable[..., Any]]
) -> tuple[str, ...]:
    names: list[str] = []
    for name, sensor in sensors.items():
        shape = eqx.filter_eval_shape(sensor, system, t, state).shape
        indices = np.ndindex(*shape)
        names += [name + "".join(f"[{i}]" for i in index) for index in indices]
    return tuple(names)


@stored
@with_room
def _violations(system: AbstractSystem, t: Time, state: State) -> tuple[Array, ...]:
    system = system.prepared()
    scale = sizes.scales_at(system, t, state.q)
    return *kernel(_violations_at)(system, t, state, scale), scale


def _violations_at(
    system: AbstractSystem, t: Time, state: State, scale: Array
) -> tuple[Array, ...]:
    return violations(system, system.configuration(t, state.q, state.z), state.v, scale)


def check_state(system: AbstractSystem, t: Time, state: State, caller: str = "linearize") -> None:
    """Check that a state is finite and satisfies the constraints.

    **Raises** `ModelError`, naming entries or constraints, if not.
    """
    check_numbers(system, state, caller)
    limit = float(jnp.finfo(state.q.dtype).eps) ** 0.5
    names = constraints.row_names(system)
    if not names:
        return
    position, velocity, speed, scale = jax.device_get(_violations(system, t, state))
    for what, unit, residual, tolerance in (
        ("open", "m or sine of an angle", position, limit * scale),
        # Velocities at rest are what a motion left, of unknown speed.
        ("violated by the velocities", "m/s or rad/s", velocity, limit * (1.0 + speed) * scale),
    ):
        worst: dict[str, float] = {}
        for name, x, most in zip(names, np.abs(residual), tolerance, strict=True):
            if not x <= most:
                worst[name] = max(worst.get(name, 0.0), float(x))
        listed = ", ".join(f"{n!r} by {x:.3g}" for n, x in worst.items())
        if listed:
            raise ModelError(
                f"{caller}: these joints are {what}: {listed} ({unit}); compute the state by "
                "`assemble`, or project it by `Projection`"
            )


def _check_finite(result: Linearization) -> None:
    """**Raises** `ModelError`, with the name of a state or an output, if a row is not finite."""
    upper = np.concatenate([np.asarray(result.A), np.asarray(result.B)], axis=1)
    lower = np.concatenate([np.asarray(result.C), np.asarray(result.D)], axis=1)
    bad = np.flatnonzero(~np.isfinite(np.concatenate([upper, lower])).all(axis=1))
    if bad.size:
        name = (*result.states, *result.outputs)[bad[0]]
        raise ModelError(
            f"linearize: the equation of {name!r} is not finite: its force or sensor has no "
            "derivative at this point, or the constraints do not determine the accelerations to "
            "rounding; displace the point, or compare `accelerations` and `inspect` there"
        )


def _warn_unless_steady(result: Linearization, chosen: Coordinates) -> None:
    """Warn if the velocities w or the states z change, now or in the next moment.

    All are compared in units of the sizes of displacements, and of z by itself.
    """
    n = len(result.coordinates)
    names = result.states[n:]
    limit = max(STEADY, 10 * float(jnp.finfo(result.A.dtype).eps) ** 0.5)
    unit = np.ones(len(result.states))
    rows = [*chosen.positions, *chosen.velocities]
    sizes = np.asarray(_candidate_sizes(result.system, result.t, result.state))
    unit[: len(rows)] = sizes[np.array(rows, int)]
    A = np.abs(np.asarray(result.A)) * unit / unit[:, None]
    scale = limit * max(1.0, A.max(initial=0.0)) * unit[n:]
    for x, what in ((result.rates, "rate"), (result.second_rates, "second derivative")):
        values = np.asarray(x)
        size = np.abs(values) / scale
        if size.size and not size.max() <= 1:
            worst = int(np.argmax(np.where(np.isnan(size), np.inf, size)))
            warn(
                f"linearize: the point is neither an equilibrium nor a steady motion: the {what} "
                f"of {names[worst]!r} is {float(values[worst]):.3g} (SI units); compute an "
                "equilibrium first, or read the result as that of a short time",
                OperatingPointWarning,
            )
            return


@stored
def _candidate_sizes(system: AbstractSystem, t: Time, state: State) -> Float[Array, "n"]:
    return candidate_sizes(system, length(system.prepared(), t, state))

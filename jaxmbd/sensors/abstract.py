"""What a sensor is: a reading that a state determines."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float

from ..errors import ModelError
from ..mechanism.elements import Motion
from ..mechanism.named_motion import AbstractNamedMotion, NamedMotion
from ..model import Model
from ..system.abstract import AbstractSystem, State, Time, as_state, as_time


class AbstractSensor(eqx.Module):
    """A reading that a state determines; any callable of these arguments will do as well."""

    @abstractmethod
    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        """The reading at one instant."""

    @property
    def kinematic(self) -> bool:
        """Whether positions and velocities determine the reading, by `read`."""
        return False

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        """The reading of kinematics that were computed already; **raises** `ModelError` if the
        sensor is not kinematic."""
        raise ModelError(f"{type(self).__name__} is no sensor of positions and velocities alone")

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        """Of all readings that mean the same as a given one, the nearest to what was measured.

        The residual of a fit is its difference to that. Default: the reading itself. Both arrays
        may have leading axes, such as that of time.
        """
        return reading


class AbstractKinematicSensor(AbstractSensor):
    """A reading that positions and velocities determine; controllers may use it."""

    @property
    def kinematic(self) -> bool:
        return True

    @abstractmethod
    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        """The reading of kinematics that were computed already."""

    def __call__(
        self, system: AbstractSystem, t: float | Time, state: State
    ) -> Float[Array, "..."]:
        return _read(self, system, as_time(t, system), as_state(state, system))


@eqx.filter_jit
def _read(
    sensor: AbstractKinematicSensor, system: AbstractSystem, t: Time, state: State
) -> Float[Array, "..."]:
    c = system.configuration(t, state.q, state.z)
    return sensor.read(NamedMotion(Motion(c, state.v)))


def nearest_reading(
    sensor: Callable[..., Array],
    model: Model,
    reading: Float[Array, "*n"],
    measured: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    """`AbstractSensor.nearest` of any sensor; the reading itself of other callables."""
    if not isinstance(sensor, AbstractSensor):
        return reading
    return sensor.nearest(model, reading, measured)


__all__ = ["AbstractKinematicSensor", "AbstractSensor", "nearest_reading"]

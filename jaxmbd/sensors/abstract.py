"""Base classes of sensors."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float

from ..errors import ModelError
from ..mechanism.elements import Motion
from ..mechanism.named_motion import AbstractNamedMotion, NamedMotion
from ..model import Model
from ..programs import stored
from ..system.abstract import AbstractSystem, State, Time, as_state, as_time


class AbstractSensor(eqx.Module):
    """A reading as a function of a state; any callable with these arguments can replace it."""

    @abstractmethod
    def __call__(self, system: AbstractSystem, t: Time, state: State) -> Float[Array, "..."]:
        """The reading at one time."""

    @property
    def kinematic(self) -> bool:
        """True if `read` computes the reading from positions and velocities only."""
        return False

    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        """The reading from computed kinematics; **raises** `ModelError` if the sensor is not
        kinematic."""
        raise ModelError(f"{type(self).__name__} is not a sensor of positions and velocities only")

    def nearest(
        self, model: Model, reading: Float[Array, "*n"], measured: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        """The reading nearest to `measured` among all that are equivalent to `reading`.

        The residual of a fit is the difference of both. Default: the reading itself. Both arrays
        may have leading axes, such as that of time.
        """
        return reading


class AbstractKinematicSensor(AbstractSensor):
    """A reading as a function of positions and velocities; controllers may use it."""

    @property
    def kinematic(self) -> bool:
        return True

    @abstractmethod
    def read(self, motion: AbstractNamedMotion) -> Float[Array, "..."]:
        """The reading from computed kinematics."""

    def __call__(
        self, system: AbstractSystem, t: float | Time, state: State
    ) -> Float[Array, "..."]:
        return _read(self, system, as_time(t, system), as_state(state, system))


@stored
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
    """`AbstractSensor.nearest` for sensors; the reading itself for other callables."""
    if not isinstance(sensor, AbstractSensor):
        return reading
    return sensor.nearest(model, reading, measured)

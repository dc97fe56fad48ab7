"""Joint states and the motion of frames by name, from a configuration and velocities."""

from abc import ABC, abstractmethod

from jaxtyping import Array, Float

from ..errors import ModelError
from ..lie import Pose
from ..model.model import unknown
from .elements import Motion

Time = Float[Array, ""]


class AbstractNamedMotion(ABC):
    """The quantities that kinematic sensors read: the time, and four quantities by name.

    Each method **raises** `ModelError` for an unknown name.
    """

    @property
    @abstractmethod
    def t(self) -> Time:
        """Time [s]."""

    @abstractmethod
    def joint_position(self, name: str) -> Float[Array, "..."]:
        """Coordinates of a joint, shape `(nq,)`, or `()` for one coordinate [rad or m]."""

    @abstractmethod
    def joint_velocity(self, name: str) -> Float[Array, "..."]:
        """Velocities of a joint, shape `(nv,)`, or `()` for one coordinate [rad/s or m/s]."""

    @abstractmethod
    def pose(self, name: str) -> Pose:
        """Pose in the world of a body's frame, a marker frame or a frame of a joint."""

    @abstractmethod
    def twist(self, name: str) -> Float[Array, "6"]:
        """Twist `[v, ω]` of a frame as in `pose`, along its own axes [m/s, rad/s]."""


class NamedMotion(AbstractNamedMotion):
    """The named motion at a configuration and velocities."""

    def __init__(self, motion: Motion):
        self._motion = motion

    @property
    def t(self) -> Time:
        return self._motion.c.t

    def joint_position(self, name: str) -> Float[Array, "..."]:
        g, row = self._joint(name)
        q = self._motion.c.coordinates(g)
        return q[row, 0] if q.shape[1] == 1 else q[row]

    def joint_velocity(self, name: str) -> Float[Array, "..."]:
        g, row = self._joint(name)
        v = self._motion.rates(g)
        nq, _, _ = self._motion.c.mechanism.joints[g].joint.sizes()
        return v[row, 0] if nq == 1 else v[row]

    def pose(self, name: str) -> Pose:
        ports, row = self._motion.c.ports, self._port(name)
        return Pose(ports.p[row], ports.R[row])

    def twist(self, name: str) -> Float[Array, "6"]:
        return self._motion.twists[self._port(name)]

    def _joint(self, name: str) -> tuple[int, int]:
        mechanism = self._motion.c.mechanism
        places = {name for group in mechanism.joints for name in group.names}
        if name not in places:
            raise ModelError(unknown("sensor: unknown joint", name, dict.fromkeys(places)))
        return mechanism.find_joint(name)

    def _port(self, name: str) -> int:
        return port_row(self._motion.c.mechanism.port_names, name)


def port_row(names: tuple[str | None, ...], name: str) -> int:
    """Row of a named port; **raises** `ModelError` for an unknown name."""
    if name not in names:
        known = {known: None for known in names if known is not None}
        raise ModelError(unknown("sensor: unknown frame", name, known))
    return names.index(name)

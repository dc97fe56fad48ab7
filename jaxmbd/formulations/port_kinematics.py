"""Joint coordinates of formulations that have none: read off the poses of the joints' frames."""

import equinox as eqx
from jaxtyping import Array, Float

from ..lie import Pose
from ..system import joint_motion
from ..system.abstract import AbstractKinematics
from ..system.mechanism import Mechanism


class PortKinematics(AbstractKinematics):
    """Kinematics in which joints follow from ports."""

    ports: eqx.AbstractVar[Pose]
    mechanism: eqx.AbstractVar[Mechanism]

    def joint_coordinates(self) -> tuple[Float[Array, "_n _nq"], ...]:
        return tuple(joint_motion.coordinates(g, self.ports) for g in self.mechanism.joints)

    def joint_rates(self, v: Float[Array, "nv"]) -> tuple[Float[Array, "_n _nv"], ...]:
        twists = self.twists(v)
        return tuple(
            joint_motion.rates(group, self.ports, q, twists)
            for group, q in zip(self.mechanism.joints, self.joint_coordinates(), strict=True)
        )

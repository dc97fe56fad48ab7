"""The configuration of a mechanism, the result of forward kinematics.

Poses, joint coordinates and the linear maps from velocities are computed once per configuration and
used by mass, bias, constraints and forces.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..lie import Pose
from ..mechanism.mechanism import Mechanism
from . import joint_motion

# Not typing.Self, which run-time type checkers accept only if they decorate the whole class.
Own = TypeVar("Own", bound="AbstractConfiguration")


class AbstractConfiguration(eqx.Module):
    """Poses of all ports at a time, and the linear maps from velocities.

    Generalized forces are the transposes of these maps.

    - `t`: time [s]; `q`: coordinates, shape `(nq,)`.
    - `z`: first-order states of elements, shape `(nz,)`; None if no loads are required.
    - `ports`: poses of all ports in the world, stacked.
    - `relative`: X_FM of the joints of each group; None for groups that no constraint, force,
      coupling or driver refers to.
    """

    t: eqx.AbstractVar[Float[Array, ""]]
    q: eqx.AbstractVar[Float[Array, "nq"]]
    z: eqx.AbstractVar[Float[Array, "nz"] | None]
    mechanism: eqx.AbstractVar[Mechanism]
    ports: eqx.AbstractVar[Pose]
    relative: eqx.AbstractVar[tuple[Pose | None, ...]]

    @property
    @abstractmethod
    def nv(self) -> int:
        """Number of velocities."""

    def with_states(self: Own, z: Float[Array, "nz"]) -> Own:
        """The same configuration with other first-order states."""
        return replace(self, z=z)

    @abstractmethod
    def twists(self, v: Float[Array, "nv"]) -> Float[Array, "n_ports 6"]:
        """Twist of every port along its own axes; linear in `v`."""

    @abstractmethod
    def coordinates(self, g: int) -> Float[Array, "_n _nq"]:
        """Coordinates of the joints of group `g`."""

    @abstractmethod
    def rates(self, g: int, v: Float[Array, "nv"]) -> Float[Array, "_n _nv"]:
        """Velocities of the joints of group `g`; linear in `v`."""

    @property
    def elastic(self) -> Float[Array, "n_elastic"]:
        """Elastic coordinates η of all bodies, shape `(n_elastic,)`. Default: shape `(0,)`."""
        return self.q[:0]

    def elastic_rates(self, v: Float[Array, "nv"]) -> Float[Array, "n_elastic"]:
        """η̇; linear in `v`."""
        return v[:0]

    def relative_poses(self, g: int) -> Pose:
        """X_FM of the joints of group `g`."""
        X_FM = self.relative[g]
        if X_FM is None:
            X_FM = self.mechanism.joints[g].relative_poses(self.ports)
        return X_FM

    def relative_twists(self, g: int, twists: Float[Array, "n_ports 6"]) -> Float[Array, "n 6"]:
        """V_FM of the joints of group `g`, expressed and taken at M, from twists of all ports."""
        return joint_motion.relative_twists(
            self.mechanism.joints[g], self.relative_poses(g), twists
        )

    def joint_coordinates(self) -> tuple[Float[Array, "_n _nq"], ...]:
        """Coordinates of every joint, by group."""
        return tuple(self.coordinates(g) for g in range(len(self.mechanism.joints)))

    def joint_rates(self, v: Float[Array, "nv"]) -> tuple[Float[Array, "_n _nv"], ...]:
        """Velocities of every joint, by group; linear in `v`."""
        return tuple(self.rates(g, v) for g in range(len(self.mechanism.joints)))

    @abstractmethod
    def coordinate_rates(self, g: int, v: Float[Array, "nv"]) -> Float[Array, "_n _nq"]:
        """Time derivatives of `coordinates`; linear in `v`."""

    @abstractmethod
    def coordinate_bias(
        self,
        g: int,
        v: Float[Array, "nv"],
        twists: Float[Array, "n_ports 6"],
        accelerations: Float[Array, "n_ports 6"],
    ) -> Float[Array, "_n _nq"]:
        """Second time derivatives of `coordinates` at v̇ = 0.

        **Arguments:** `twists`: twists of all ports; `accelerations`: their rates at v̇ = 0.
        """

    @abstractmethod
    def coordinate_loads(
        self, g: int, force: Float[Array, "_n _nq"]
    ) -> tuple[Float[Array, "n_ports 6"], Float[Array, "_n _nv"]]:
        """Wrenches on ports and forces on joints equivalent to a force on `coordinates`.

        The map is the transpose of `coordinate_rates`.
        """


class AbstractPortConfiguration(AbstractConfiguration):
    """A configuration in which joint coordinates follow from the poses of the ports."""

    def coordinate_rates(self, g: int, v: Float[Array, "nv"]) -> Float[Array, "_n _nq"]:
        V_FM = self.relative_twists(g, self.twists(v))
        return joint_motion.coordinate_rates(self.mechanism.joints[g], self.relative_poses(g), V_FM)

    def coordinate_bias(
        self,
        g: int,
        v: Float[Array, "nv"],
        twists: Float[Array, "n_ports 6"],
        accelerations: Float[Array, "n_ports 6"],
    ) -> Float[Array, "_n _nq"]:
        group, X_FM = self.mechanism.joints[g], self.relative_poses(g)
        return joint_motion.coordinate_bias(group, X_FM, twists, accelerations)

    def coordinate_loads(
        self, g: int, force: Float[Array, "_n _nq"]
    ) -> tuple[Float[Array, "n_ports 6"], Float[Array, "_n _nv"]]:
        group, X_FM = self.mechanism.joints[g], self.relative_poses(g)
        n_ports = self.mechanism.n_ports
        wrenches = joint_motion.coordinate_wrenches(group, X_FM, force, n_ports)
        return wrenches, jnp.zeros((len(group), group.joint.sizes()[1]), dtype=force.dtype)

    def coordinates(self, g: int) -> Float[Array, "_n _nq"]:
        group = self.mechanism.joints[g]
        X_FM = self.relative_poses(g)
        return jax.vmap(lambda joint, X: joint.coordinates(X))(group.joint, X_FM)

    def rates(self, g: int, v: Float[Array, "nv"]) -> Float[Array, "_n _nv"]:
        V_FM = self.relative_twists(g, self.twists(v))
        return joint_motion.rates(self.mechanism.joints[g], self.coordinates(g), V_FM)


def world_frame(dtype: jnp.dtype) -> Pose:
    """The pose of the ground, stacked with length one."""
    return Pose(jnp.zeros((1, 3), dtype=dtype), jnp.eye(3, dtype=dtype)[None])

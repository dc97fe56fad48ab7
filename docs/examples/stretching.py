"""A kind of body with an elastic coordinate: a rod that stretches along its axis."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.extend import AbstractBody, Pose


class StretchingRod(AbstractBody):
    """A slender rod from the origin along x, whose points move by η x / L along it.

    **Arguments:** `mass` [kg]; `length` L [m]; `stiffness` of its end against its start [N/m];
    `damping` [N s/m]. Its moment of inertia about its axis is that of a radius of L / 100.
    """

    mass: Float[Array, ""]
    length: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]

    def __init__(self, mass: Any, length: Any, stiffness: Any, damping: Any = 0.0):
        self.mass, self.length = jnp.asarray(mass), jnp.asarray(length)
        self.stiffness, self.damping = jnp.asarray(stiffness), jnp.asarray(damping)

    @property
    def n_elastic(self):
        return 1

    def kinetic_energy(self, eta, V, eta_dot):
        # Points at s L, 0 ≤ s ≤ 1, move at v + ω × (s r) + s η̇ e_x: linear in s.
        stretched = jnp.stack([self.length + eta[0], jnp.zeros(()), jnp.zeros(())])
        end = jnp.cross(V[3:], stretched) + jnp.stack([eta_dot[0], jnp.zeros(()), jnp.zeros(())])
        start = V[:3]
        about_axis = 0.5 * self.mass * (0.01 * self.length) ** 2
        moving = start @ start + start @ end + end @ end / 3.0
        return 0.5 * self.mass * moving + 0.5 * about_axis * V[3] ** 2

    def frame(self, offset, eta):
        return Pose(offset.p.at[0].add(eta[0] * offset.p[0] / self.length), offset.R)

    def elastic_energy(self, eta):
        return 0.5 * self.stiffness * eta[0] ** 2

    def damping_force(self, eta, eta_dot):
        return self.damping * eta_dot


def double_pendulum(stiffness=500.0):
    """Two stretching rods that hang from one another."""
    rod = StretchingRod(mass=1.0, length=0.5, stiffness=stiffness)
    return mbd.Model(
        bodies={"upper": rod, "lower": rod},
        joints={
            "shoulder": mbd.joints.Revolute("ground", "upper", [0, 1, 0]),
            "elbow": mbd.joints.Spherical(mbd.Frame("upper", [0.5, 0, 0]), "lower"),
        },
        forces={"gravity": mbd.forces.Gravity()},
    )


def checks():
    """Both formulations give one motion, which keeps its energy."""
    ends = []
    for formulation in (mbd.JointCoordinates(), mbd.MaximalCoordinates()):
        system = mbd.formulate(double_pendulum(), formulation)
        state = mbd.assemble(system, {"shoulder": 0.4, "elbow": [0.1, 0.2, 0.3]})
        mbd.testing.check_system(system, state)
        end = mbd.rollout(system, state, 1e-3, 200)
        last = mbd.State(end.q[-1], end.v[-1])
        before, after = (mbd.energy(system, 0.0, x).total for x in (state, last))
        assert abs(after - before) < 1e-8
        ends.append(system.frames(0.2, last.q)["lower"].p)
    assert jnp.allclose(*ends, atol=1e-8)

"""Coordinates of a mechanism whose joints move in fixed proportions."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd.extend import AbstractConfiguration, AbstractFormulation, AbstractSystem, solve_spd


class ProportionalCoordinates(AbstractFormulation):
    """q = B y in the joint coordinates q of an open tree, with `ratios` B of shape `(nq, k)`."""

    ratios: Float[Array, "nq k"] = eqx.field(converter=jnp.asarray)

    def system(self, model):
        joints, B = mbd.formulate(model, mbd.JointCoordinates()), self.ratios
        if joints.nq != joints.nv or joints.constrained or model.couplings:
            raise mbd.ModelError("ProportionalCoordinates needs an open tree without couplings")
        if B.shape[0] != joints.nq:
            raise mbd.ModelError(
                f"the ratios have {B.shape[0]} rows, the joints {joints.nq} entries"
            )
        return ProportionalSystem(joints, B)


class ProportionalSystem(AbstractSystem):
    """The equations of `JointCoordinates`, projected: M_y = Bᵀ M B, b_y = Bᵀ b."""

    joints: AbstractSystem
    B: Float[Array, "nq k"]

    @property
    def mechanism(self):
        return self.joints.mechanism

    @property
    def nq(self):
        return self.B.shape[1]

    @property
    def nv(self):
        return self.B.shape[1]

    @property
    def constrained(self):
        return ()

    def retract(self, q, dv):
        return q + dv

    def rates(self, q, v):
        return v

    def velocities(self, q, q_dot):
        return q_dot

    def configuration(self, t, q, z=None):
        return ProportionalConfiguration(q, self.joints.configuration(t, self.B @ q, z), self.B)

    def mass_at(self, c):
        return self.B.T @ self.joints.mass_at(c.joints) @ self.B

    def solve_mass(self, c, f):
        return solve_spd(self.mass_at(c), f)

    def bias_at(self, c, v):
        return self.B.T @ self.joints.bias_at(c.joints, self.B @ v)

    def internal_potential(self, q):
        return jnp.zeros((), dtype=q.dtype)

    def intrinsic_constraint(self, c):
        return jnp.zeros(0, dtype=c.q.dtype)

    def intrinsic_names(self):
        return []

    def _nearest(self, x):
        return solve_spd(self.B.T @ self.B, self.B.T @ x)

    def from_tree(self, values, elastic=None):
        return self._nearest(self.joints.from_tree(values))

    def from_tree_rates(self, values, rates, elastic=None):
        return self._nearest(self.joints.from_tree_rates(values, rates))


class ProportionalConfiguration(AbstractConfiguration):
    """That of the joints, its velocities in proportion to those of y."""

    q: Float[Array, "k"]
    joints: AbstractConfiguration
    B: Float[Array, "nq k"]

    @property
    def t(self):
        return self.joints.t

    @property
    def z(self):
        return self.joints.z

    def with_states(self, z):
        return replace(self, joints=self.joints.with_states(z))

    @property
    def mechanism(self):
        return self.joints.mechanism

    @property
    def ports(self):
        return self.joints.ports

    @property
    def relative(self):
        return self.joints.relative

    @property
    def nv(self):
        return self.B.shape[1]

    def twists(self, v):
        return self.joints.twists(self.B @ v)

    def coordinates(self, g):
        return self.joints.coordinates(g)

    def rates(self, g, v):
        return self.joints.rates(g, self.B @ v)

    def coordinate_rates(self, g, v):
        return self.joints.coordinate_rates(g, self.B @ v)

    def coordinate_bias(self, g, v, twists, accelerations):
        return self.joints.coordinate_bias(g, self.B @ v, twists, accelerations)

    def coordinate_loads(self, g, force):
        return self.joints.coordinate_loads(g, force)


def checks():
    """A finger whose second joint turns 0.7 times as far as the first."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(0.1, 0.05), [0.025, 0, 0])
    model = mbd.Model(
        bodies={"near": rod, "far": rod},
        joints={
            "knuckle": mbd.joints.Revolute(mbd.ground, "near", [0, 1, 0]),
            "tip": mbd.joints.Revolute(mbd.Frame("near", [0.05, 0, 0]), "far", [0, 1, 0]),
        },
        forces={"gravity": mbd.forces.Gravity()},
    )
    system = mbd.formulate(model, ProportionalCoordinates([[1.0], [0.7]]))
    state = mbd.assemble(system, {"knuckle": 0.5, "tip": 0.35}, {"knuckle": 2.0, "tip": 1.4})
    mbd.testing.check_system(system, state)

    # A constraint does the same in joint coordinates.
    coupling = mbd.joints.Coupling("tip", "knuckle", 0.7)
    coupled = model.with_(couplings={"belt": coupling})
    other = mbd.formulate(coupled, mbd.JointCoordinates())
    there = mbd.assemble(other, {"knuckle": 0.5}, {"knuckle": 2.0})
    ours, _ = mbd.accelerations(system, 0.0, state)
    theirs, _ = mbd.accelerations(other, 0.0, there)
    assert jnp.allclose(jnp.asarray([1.0, 0.7]) * ours, theirs, rtol=1e-9)

"""Kinds of bodies that are not rigid, against rigid bodies with joints and springs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints
from jaxmbd.bodies import AbstractBody, RigidBody
from jaxmbd.mechanism.groups import rigid_part
from tests.marks import thorough_but

FORMULATIONS = [mbd.JointCoordinates(), mbd.MaximalCoordinates()]
HOUSING = mbd.inertia.shifted(mbd.inertia.box(2.0, [0.6, 0.2, 0.3]), [0.2, 0.1, 0.0])
STIFFNESS, DAMPING = 300.0, 2.0


class Housing(AbstractBody):
    """A rigid body with a point mass on a spring and damper, which slides along x."""

    rigid: RigidBody
    point: Float[Array, ""]
    at: Float[Array, "3"]

    @property
    def n_elastic(self) -> int:
        return 1

    def kinetic_energy(self, eta, V, eta_dot):
        along = jnp.asarray([1.0, 0.0, 0.0])
        p = self.at + eta[0] * along
        moves = V[:3] + jnp.cross(V[3:], p) + eta_dot[0] * along
        none = jnp.zeros(0)
        return self.rigid.kinetic_energy(none, V, none) + 0.5 * self.point * (moves @ moves)

    def frame(self, offset, eta):
        """Frames at y > 0.3 are on the point, others on the housing."""
        slides = jnp.where(offset.p[1] > 0.3, eta[0], 0.0)
        return mbd.lie.Pose(offset.p.at[0].add(slides), offset.R)

    def elastic_energy(self, eta):
        return 0.5 * STIFFNESS * eta[0] ** 2

    def damping_force(self, eta, eta_dot):
        return DAMPING * eta_dot


class Gyrostat(AbstractBody):
    """A rigid body with a wheel that keeps its spin relative to it."""

    rigid: RigidBody
    spin: Float[Array, "3"]

    def kinetic_energy(self, eta, V, eta_dot):
        return self.rigid.kinetic_energy(eta, V, eta_dot) + self.spin @ V[3:]


def elements() -> dict:
    """A spring to the point, and gravity."""
    return {
        "gravity": forces.Gravity([1.0, -2.0, -9.81]),
        "spring": forces.SpringDamper(Frame("ground", [1, 0, 1]), Frame("lower", [0.1, 0, 0]), 40),
    }


ROD = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.05), [0.5, 0, 0])
AT = [0.3, 0.4, 0.1]


def elastic_model(point=0.7) -> mbd.Model:
    """A housing on a hinge; a rod hangs from the point that slides in it."""
    hinges = {
        "hinge": joints.Revolute("ground", Frame("housing", [-0.1, 0, 0]), [0, 1, 1]),
        "ball": joints.Spherical(Frame("housing", AT), Frame("lower")),
    }
    housing = Housing(HOUSING, jnp.asarray(point), jnp.asarray(AT))
    return mbd.Model({"housing": housing, "lower": ROD}, hinges, elements())


def rigid_model() -> mbd.Model:
    """The same with the point as a small body on a prismatic joint."""
    tiny = RigidBody(0.7, 1e-12 * np.ones(3))
    hinges = {
        "hinge": joints.Revolute("ground", Frame("housing", [-0.1, 0, 0]), [0, 1, 1]),
        "slide": joints.Prismatic(Frame("housing", AT), Frame("point"), [1, 0, 0]),
        "ball": joints.Spherical(Frame("point"), Frame("lower")),
    }
    spring = forces.TorsionalSpringDamper("slide", STIFFNESS, DAMPING)
    bodies = {"housing": HOUSING, "point": tiny, "lower": ROD}
    return mbd.Model(bodies, hinges, {**elements(), "slide": spring})


GUESS = {"hinge": 0.7, "ball": [0.3, -0.2, 0.4]}
RATES = {"hinge": 1.5, "ball": [0.5, 1.0, -2.0]}


def moving(system):
    """A state with a deformation, whose velocities the joints allow."""
    joint = mbd.formulate(elastic_model(), mbd.JointCoordinates())
    state = mbd.assemble(joint, GUESS, RATES, elastic={"housing": 0.05})
    state = mbd.State(state.q, state.v.at[-1].set(0.8))
    if isinstance(system, type(joint)):
        return state
    # The same state by the poses and twists of the bodies.
    poses, twists = joint.frames(0.0, state.q), joint.twists(0.0, state.q, state.v)
    q, v = [], []
    for name in ("housing", "lower"):
        q += [poses[name].p, mbd.lie.so3.from_matrix(poses[name].R)]
        v.append(twists[name])
    return mbd.State(jnp.concatenate([*q, state.q[-1:]]), jnp.concatenate([*v, state.v[-1:]]))


@pytest.mark.long
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS))
def test_accelerations_are_those_of_a_prismatic_joint(formulation):
    system = mbd.formulate(elastic_model(), formulation)
    state = moving(system)
    vdot, _ = mbd.accelerations(system, 0.0, state)
    other = mbd.formulate(rigid_model(), mbd.JointCoordinates())
    there = mbd.assemble(other, {**GUESS, "slide": 0.05}, {**RATES, "slide": 0.8})
    expected, _ = mbd.accelerations(other, 0.0, there)
    energies = [mbd.energy(s, 0.0, x) for s, x in ((system, state), (other, there))]
    for name in ("kinetic", "field", "elastic"):
        np.testing.assert_allclose(*(getattr(x, name) for x in energies), rtol=1e-9)
    momenta = [mbd.momentum(s, 0.0, x) for s, x in ((system, state), (other, there))]
    np.testing.assert_allclose(momenta[0].angular, momenta[1].angular, rtol=1e-8)
    # Rates of joints at the same position, with accelerations in the place of velocities.
    rates = mbd.joint_states(other, 0.0, mbd.State(there.q, expected))
    assert set(rates) == {"hinge", "slide", "ball"}
    np.testing.assert_allclose(vdot[-1], rates["slide"].v, rtol=1e-7)
    own = mbd.joint_states(system, 0.0, mbd.State(state.q, vdot))
    np.testing.assert_allclose(own["hinge"].v, rates["hinge"].v, rtol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", FORMULATIONS[1:])
def test_system_keeps_its_contract(formulation):
    system = mbd.formulate(elastic_model(), formulation)
    mbd.testing.check_system(system, moving(system))


@pytest.mark.thorough
def test_implicit_steps_agree_with_explicit_ones():
    ends = []
    for formulation in FORMULATIONS:
        system = mbd.formulate(elastic_model(), formulation)
        state = moving(system)
        implicit = mbd.rollout(system, state, 5e-4, 100, mbd.GeneralizedAlpha())
        explicit = mbd.rollout(system, state, 5e-3, 10)
        ends += [system.frames(0.05, x.q[-1])["lower"].p for x in (implicit, explicit)]
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], atol=2e-6)


@pytest.mark.thorough
def test_gradient_by_a_mass():
    def eta(point):
        system = mbd.formulate(elastic_model(point), mbd.JointCoordinates())
        return mbd.rollout(system, moving(system), 1e-2, 5).q[-1, -1]

    x, step = jnp.asarray(0.7), 1e-5
    by_difference = (eta(x + step) - eta(x - step)) / (2.0 * step)
    np.testing.assert_allclose(jax.grad(eta)(x), by_difference, rtol=1e-6)


@pytest.mark.long
def test_a_spin_turns_as_a_wheel_does():
    """Euler's equations of a gyrostat: J ω̇ + ω × (J ω + h) = 0."""
    inertia, spin = np.array([0.3, 0.4, 0.5]), np.array([0.2, -0.1, 0.6])
    body = Gyrostat(RigidBody(1.0, inertia), jnp.asarray(spin))
    omega = np.array([1.0, 2.0, -0.5])
    expected = -np.cross(omega, inertia * omega + spin) / inertia
    for formulation in FORMULATIONS:
        system = mbd.formulate(mbd.Model({"body": body}), formulation)
        state = mbd.assemble(system, rates={"body": [0, 0, 0, *omega]})
        vdot, _ = mbd.accelerations(system, 0.0, state)
        np.testing.assert_allclose(vdot[3:], expected, rtol=1e-12)


def test_rigid_part_is_that_of_a_rigid_body():
    found = jax.jit(rigid_part)(HOUSING)
    np.testing.assert_allclose(found.com, HOUSING.com, rtol=1e-12)
    np.testing.assert_allclose(found.inertia, HOUSING.inertia, atol=1e-14)


@pytest.mark.parametrize("formulation", [mbd.NaturalCoordinates(), mbd.PointCoordinates()])
def test_other_coordinates_refuse_bodies_that_are_not_rigid(formulation):
    with pytest.raises(mbd.ModelError, match=r"body 'housing'.* represents rigid bodies only"):
        mbd.formulate(elastic_model(), formulation)


@pytest.mark.thorough
def test_schemes_of_rigid_bodies_refuse_others():
    system = mbd.formulate(elastic_model(), mbd.MaximalCoordinates())
    with pytest.raises(mbd.IncompatibleIntegrator, match="EnergyMomentum"):
        mbd.rollout(system, moving(system), 1e-2, 1, mbd.EnergyMomentum())


@pytest.mark.long
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e3])
def test_bodies_of_any_size_are_possible(size):
    """Moments of inertia and the unit of modal masses may be many decades apart."""
    section = flexible.General(
        A=1e-4 * size**2, Iy=1e-9 * size**4, Iz=2e-9 * size**4, J=3e-9 * size**4
    )
    body = flexible.beam(size, 1e9, 4e8, 1000.0, section, 4, 2)
    assert mbd.Model({"beam": body}).bodies["beam"].is_possible()
    assert not eqx.tree_at(lambda b: b.mass, body, 0.3 * body.mass).is_possible()

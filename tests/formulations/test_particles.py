"""Particles in the place of a body: masses, and what forces come to on them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.formulations.nodal import placement
from jaxmbd.system import loads
from tests import models

T = jnp.asarray(0.0)


@pytest.mark.long
@pytest.mark.smoke
@pytest.mark.parametrize("d", [1, 2, 3])
def test_masses_have_the_moments_of_the_body(d):
    """And the mass matrix of the primary ones is that of any affine motion, as it must be."""
    rng = np.random.default_rng(d)
    points, mass = jnp.asarray(rng.normal(size=(d + 1, d))), jnp.asarray(2.0)
    half = rng.normal(size=(d, d))
    second = jnp.asarray(half @ half.T)
    m = placement.masses(points, mass, second)
    s = placement.from_primary(d + 1) @ points
    assert m.shape == ((d + 1) * (d + 2) // 2,)
    assert jnp.sum(m) == pytest.approx(2.0)
    np.testing.assert_allclose(m @ s, 0.0, atol=1e-12)
    np.testing.assert_allclose(jnp.einsum("n,ni,nj->ij", m, s, s), second, atol=1e-11)
    M = placement.primary_mass(points, mass, second)
    inverse = np.linalg.inv(np.hstack([np.ones((d + 1, 1)), points]))
    blocks = np.block([[2.0, np.zeros((1, d))], [np.zeros((d, 1)), second]])
    np.testing.assert_allclose(M, inverse.T @ blocks @ inverse, atol=1e-10)
    assert np.linalg.eigvalsh(M).min() > 0


def test_masses_may_be_negative():
    """A short heavy body with far particles."""
    m = placement.masses(jnp.array([[-2.0], [2.0]]), jnp.asarray(1.0), jnp.asarray([[1.0 / 3]]))
    assert m.min() > 0
    m = placement.masses(jnp.array([[-0.2], [0.2]]), jnp.asarray(1.0), jnp.asarray([[1.0 / 3]]))
    assert m.min() < -1


def rod(load, particles):
    """A rod of 2 m in the xy plane from the ground, nothing else than a load on it."""
    body = mbd.inertia.rod(1.0, 2.0)
    hinge = {"hinge": joints.Revolute("ground", Frame("rod", [-1, 0, 0]))}
    model = mbd.Model({"rod": body}, hinge, {"load": load})
    return mbd.formulate(model, mbd.PointCoordinates("xy", {"rod": particles}))


@eqx.filter_jit
def applied(system, q):
    return loads.applied(system, system.configuration(T, q), jnp.zeros_like(q))


@pytest.mark.thorough
@pytest.mark.parametrize("along", [0.0, 0.5, 1.0, 1.7])
def test_forces_are_shared_by_weights(along):
    """Σ αᵢ = 1, Σ αᵢ sᵢ = s_P; one end of the rod is on the ground."""
    force = jnp.array([0.3, -2.0, 0.0])
    system = rod(forces.AppliedForce(Frame("rod", [along, 0, 0]), force), ("hinge", (1.0, 0, 0)))
    q = mbd.assemble(system, {"hinge": 0.0}).q
    weight = (along + 1.0) / 2.0
    np.testing.assert_allclose(applied(system, q), weight * force[:2], atol=1e-13)


@pytest.mark.long
def test_a_couple_is_forces_across_the_rod():
    """± m / d at its two ends."""
    system = rod(forces.AppliedTorque("rod", [0.0, 0.0, 3.0]), ("hinge", (1.0, 0, 0)))
    q = mbd.assemble(system, {"hinge": 0.4}).q
    across = np.array([-np.sin(0.4), np.cos(0.4)])
    np.testing.assert_allclose(applied(system, q), 3.0 / 2.0 * across, atol=1e-13)


@pytest.mark.thorough
def test_particles_may_be_anywhere():
    """Particles placed by hand or at joints give the same motion, shared or not."""
    model = models.chain(2, joints.Spherical)
    places = [(0.1, 0.2, 0.3), (0.7, -0.2, 0.1), (0.3, 0.6, -0.4), (0.2, 0.1, 0.9)]
    by_hand = {"link0000": places, "link0001": ["jlink0001", *places[1:]]}
    seen = []
    for given in (None, by_hand):
        system = mbd.formulate(model, mbd.PointCoordinates(particles=given))
        state = models.random_state(system, seed=2)
        vdot, _ = mbd.accelerations(system, T, state)
        moved = mbd.State(state.q, vdot)
        seen.append({n: j.v for n, j in mbd.joint_states(system, T, moved).items()})
    models.near(*seen, 1e-9)


@pytest.mark.thorough
def test_gradient_by_where_particles_are_is_zero():
    """They are leaves, and the motion of the body does not depend on them."""
    model = models.chain(1)

    @eqx.filter_jit
    @jax.grad
    def slope(place):
        places = ["jlink0000", (0.4, 0.1, 0.0), (0.1, 0.5, 0.1), place]
        system = mbd.formulate(model, mbd.PointCoordinates(particles={"link0000": places}))
        state = mbd.assemble(system, {"jlink0000": 0.3}, {"jlink0000": 1.0})
        vdot, _ = mbd.accelerations(system, T, state)
        return mbd.joint_states(system, T, mbd.State(state.q, vdot))["jlink0000"].v

    np.testing.assert_allclose(slope(jnp.array([0.2, 0.1, 0.8])), 0.0, atol=1e-9)

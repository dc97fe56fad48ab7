"""The intrinsic schemes of Bauchau et al.: order, invariants, refused systems, gradients."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd
from benchmarks.papers import forced_body
from jaxmbd import Frame, forces, inertia, joints
from jaxmbd.lie import (
    Cayley,
    CayleyGibbsRodrigues,
    EulerRodrigues,
    Exponential,
    WienerMilenkovic,
)
from jaxmbd.lie.parameterization import AbstractParameterization
from jaxmbd.system import equation_residuals
from tests import models
from tests.derivatives import check_gradient
from tests.marks import thorough_but

KINDS = (
    Exponential(),
    EulerRodrigues(),
    CayleyGibbsRodrigues(),
    WienerMilenkovic(),
    Cayley(),
)


class Chosen(AbstractParameterization):
    """One of `KINDS` by its number, so that all share what is compiled."""

    which: Array

    def quaternion(self, p):
        return jax.lax.switch(self.which, [kind.quaternion for kind in KINDS], p)

    def parameters(self, q):
        return jax.lax.switch(self.which, [kind.parameters for kind in KINDS], q)

    def motion(self, Q):
        return jax.lax.switch(self.which, [kind.motion for kind in KINDS], Q)

    def cayley_ratio(self, Q):
        return jax.lax.switch(self.which, [kind.cayley_ratio for kind in KINDS], Q)

    def _cayley_ratio(self, p):
        raise NotImplementedError


def name_of(value):
    return value.__name__ if isinstance(value, type) else type(value).__name__


# Cayley's motions turn as Cayley, Gibbs and Rodrigues do.
FORMS = [(mbd.RotationIncrements, kind) for kind in KINDS[:4]]
FORMS += [(mbd.MotionIncrements, kind) for kind in KINDS]
each_form = pytest.mark.parametrize(("form", "kind"), FORMS, ids=name_of)
SCHEMES = {
    "energy-momentum": mbd.EnergyMomentum,
    "energy-decaying": mbd.EnergyDecaying,
    "generalized-alpha": lambda increments: mbd.GeneralizedAlpha(0.8, increments=increments),
}
EXACT = [mbd.RotationIncrements(CayleyGibbsRodrigues()), mbd.MotionIncrements(Cayley())]
each_exact = pytest.mark.parametrize(
    "increments", thorough_but(EXACT[:1], EXACT), ids=lambda increments: type(increments).__name__
)


def chosen(form, kind):
    return form(Chosen(jnp.asarray(KINDS.index(kind))))


@pytest.fixture(scope="module")
def forced():
    return forced_body.system(), forced_body.start()


@eqx.filter_jit
def errors_after_half_a_second(forced, method, batched):
    """e_D and e_R with 128 and with 256 steps.

    One run after the other, or both as a batch, which takes several times as long to trace.
    """
    system, start = forced

    def run(n):
        states = mbd.rollout(system, start, dt=0.5 / n, n_steps=256, integrator=method)
        end = jax.tree.map(lambda x: x[n.astype(int) - 1], states)
        return jnp.stack(forced_body.errors(end, jnp.asarray(0.5)))

    each = jax.vmap(run) if batched else functools.partial(jax.lax.map, run)
    return each(jnp.array([128.0, 256.0]))


@pytest.mark.thorough
@each_form
@pytest.mark.parametrize("scheme", thorough_but(["generalized-alpha"], SCHEMES))
def test_order(forced, scheme, form, kind):
    method, batched = SCHEMES[scheme](chosen(form, kind)), scheme == "energy-momentum"
    coarse, fine = errors_after_half_a_second(forced, method, batched)
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.05)


@eqx.filter_jit
def followed(system, states):
    """Energies, momenta and gaps of a motion."""

    def look(state):
        gaps = equation_residuals.position_residual(system, jnp.asarray(0.0), state.q)
        return mbd.energy(system, 0.0, state), mbd.momentum(system, 0.0, state), gaps

    return jax.vmap(look)(states)


def run(system, start, method, dt, n_steps):
    states = mbd.rollout(system, start, dt=dt, n_steps=n_steps, integrator=method)
    return followed(system, jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, states))


@pytest.fixture(scope="module")
def free():
    """A free body that turns about its centre of mass, which is at rest."""
    com, spin = np.array([0.1, -0.2, 0.3]), np.array([1.5, -0.8, 2.0])
    body = inertia.principal(2.0, [0.5, 0.7, 1.0], com=com)
    system = mbd.formulate(mbd.Model({"body": body}), mbd.MaximalCoordinates())
    start = mbd.assemble(system)
    return system, mbd.State(start.q, jnp.concatenate([-jnp.cross(spin, com), jnp.asarray(spin)]))


def keeps_energy_and_momentum(free, increments):
    energy, momentum, _ = run(*free, mbd.EnergyMomentum(increments), 0.02, 5000)
    assert np.ptp(energy.total) < 1e-13 * energy.total[0]
    assert np.ptp(momentum.angular, axis=0).max() < 1e-13 * np.linalg.norm(momentum.angular[0])
    assert np.abs(momentum.linear).max() < 1e-13


@pytest.mark.long
@pytest.mark.parametrize("increments", EXACT, ids=name_of)
def test_free_body_keeps_energy_and_momentum(free, increments):
    keeps_energy_and_momentum(free, increments)


@pytest.mark.thorough
@each_form
def test_every_form_keeps_energy_and_momentum(free, form, kind):
    keeps_energy_and_momentum(free, chosen(form, kind))


@pytest.mark.thorough
@each_exact
def test_free_body_loses_energy_steadily_and_keeps_momentum(free, increments):
    energy, momentum, _ = run(*free, mbd.EnergyDecaying(increments), 0.02, 5000)
    losses = -np.diff(energy.kinetic)
    assert losses.min() > 0
    assert losses.sum() < 1e-3 * energy.kinetic[0]
    assert np.ptp(momentum.angular, axis=0).max() < 1e-13 * np.linalg.norm(momentum.angular[0])


def top():
    """A heavy top on a ball joint."""
    body = inertia.shifted(inertia.principal(1.0, [0.02, 0.02, 0.03]), [0, 0, 0.4])
    model = mbd.Model(
        {"top": body},
        {"tip": joints.Spherical(mbd.ground, "top")},
        {"weight": forces.Gravity()},
    )
    return model, {"tip": [0.4, 0.0, 0.0]}, {"tip": [0.1, 0.2, 40.0]}


def linked():
    """Two bodies that fly: a hinge with a torsional spring, and a spring across."""
    bodies = {"a": models.random_body(np.random.default_rng(0))}
    bodies["b"] = models.random_body(np.random.default_rng(1))
    model = mbd.Model(
        bodies,
        {
            "free": joints.Free(mbd.ground, "a"),
            "hinge": joints.Revolute(Frame("a", [0.4, 0, 0]), "b", axis=[0, 1, 0.5]),
        },
        {
            "coil": forces.TorsionalSpringDamper("hinge", 40.0, rest=0.3),
            "spring": forces.SpringDamper(
                Frame("a", [0, 0.5, 0]), Frame("b", [0, 0, 0.5]), 50.0, rest_length=0.3
            ),
        },
    )
    return model, {"hinge": 0.5}, {"free": [0.2, 0.1, -0.3, 1.0, 2.0, -1.0], "hinge": 2.0}


@pytest.mark.thorough
@each_exact
@pytest.mark.parametrize("make", thorough_but([linked], [top, linked]))
def test_joints_and_potentials_keep_energy_and_momentum(make, increments):
    model, guess, rates = make()
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    start = mbd.assemble(system, guess, rates)
    energy, momentum, gaps = run(system, start, mbd.EnergyMomentum(increments), 0.005, 1000)
    scale = energy.kinetic.max()
    assert np.abs(energy.total - energy.total[0]).max() < 2e-12 * scale
    assert np.ptp(energy.kinetic) > 0.01 * scale
    assert np.abs(gaps).max() < 1e-13
    kept = momentum.angular[:, 2] if make is top else momentum.angular
    assert np.ptp(kept, axis=0).max() < 1e-11


@pytest.mark.thorough
def test_decaying_scheme_keeps_momentum_between_bodies_and_loses_energy():
    model, guess, rates = linked()
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    start = mbd.assemble(system, guess, rates)
    energy, momentum, gaps = run(system, start, mbd.EnergyDecaying(), 0.005, 1000)
    assert np.ptp(momentum.angular, axis=0).max() < 1e-11
    assert np.abs(gaps).max() < 1e-13
    means = energy.total[1:].reshape(10, 100).mean(1)
    assert (np.diff(means) < 0).all()
    assert means[-1] > 0.99 * energy.total[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method", [mbd.EnergyMomentum(), pytest.param(mbd.EnergyDecaying(), marks=pytest.mark.thorough)]
)
def test_drives_and_dampers(method):
    """A driven, damped chain: the same end as the index-1 equations', to the order."""
    model = models.chain(2)
    extra = {
        "oil": forces.ViscousFriction("jlink0001", 0.3),
        "drive": forces.JointTorque("jlink0000", mbd.signals.Sine(3.0, 1.0)),
    }
    model = mbd.Model(model.bodies, model.joints, {**model.forces, **extra})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    start = mbd.assemble(system, {"jlink0000": 0.4}, {"jlink0001": 1.0})
    exact = mbd.rollout(system, start, dt=0.01, n_steps=50)

    def error(n):
        states = mbd.rollout(system, start, dt=0.5 / n, n_steps=50, integrator=method)
        return jnp.abs(states.q[n - 1] - exact.q[-1]).max()

    errors = [error(n) for n in (25, 50)]
    assert errors[1] < 2e-3
    assert 3.0 < errors[0] / errors[1] < 5.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method",
    [pytest.param(mbd.EnergyMomentum(), marks=pytest.mark.thorough), mbd.EnergyDecaying()],
    ids=models.name_of,
)
def test_gradients(method):
    """Derivatives by mass, spin and gravity; in reverse mode, slow to compile, for one scheme."""
    model, guess, rates = top()
    start = mbd.assemble(mbd.formulate(model, mbd.MaximalCoordinates()), guess, rates)

    def end(inputs):
        scale, rate, lift = inputs
        own = eqx.tree_at(lambda m: m.bodies["top"].mass, model, replace_fn=lambda m: m * scale)
        own = eqx.tree_at(lambda m: m.forces["weight"].g, own, replace_fn=lambda g: g + lift)
        system = mbd.formulate(own, mbd.MaximalCoordinates())
        state = mbd.State(start.q, start.v * rate)
        states = mbd.rollout(system, state, dt=0.01, n_steps=10, integrator=method)
        return states.q[-1] @ jnp.linspace(-1.0, 1.0, 7)

    check_gradient(end, reverse=isinstance(method, mbd.EnergyMomentum))


@pytest.mark.parametrize(
    "method",
    [mbd.EnergyMomentum(), mbd.EnergyDecaying(), mbd.GeneralizedAlpha(increments=EXACT[0])],
)
def test_what_is_refused(method):
    plain = models.chain(2)
    with pytest.raises(mbd.IncompatibleIntegrator, match=r"JointSystem has others; use Maximal"):
        method.check(mbd.formulate(plain, mbd.JointCoordinates()))
    rotors = {"rotor": mbd.Rotor("jlink0000", 0.01, 10.0)}
    geared = mbd.Model(plain.bodies, plain.joints, plain.forces, rotors=rotors)
    with pytest.raises(mbd.IncompatibleIntegrator, match="rotor 'rotor' has an angle of its"):
        method.check(mbd.formulate(geared, mbd.MaximalCoordinates()))

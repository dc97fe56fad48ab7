"""Simo and Gonzalez' step: what it keeps, its order, the papers' mechanism, and its gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.system import constraints, equation_residuals, loads
from jaxmbd.system.discrete_gradients import conservative_force_between
from tests import models
from tests.derivatives import check_gradient
from tests.formulations import mechanisms
from tests.marks import thorough_but

T = jnp.asarray(0.3)
KINDS = {
    "springs": mbd.NaturalCoordinates(1e5),
    "rigid": mbd.NaturalCoordinates(rigid=True),
    "particles": mbd.PointCoordinates(),
}
each_kind = pytest.mark.parametrize(
    "kind", thorough_but(["particles"], ["springs", "rigid", "particles"])
)


@eqx.filter_jit
def watch(system, states):
    """Energy, momentum and gaps over time."""
    found = jax.vmap(lambda s: (mbd.energy(system, 0.0, s), mbd.momentum(system, 0.0, s)))(states)
    return *found, jax.vmap(lambda q: equation_residuals.position_residual(system, T, q))(states.q)


def drift(values):
    return np.abs(np.asarray(values) - np.asarray(values)[0]).max()


@pytest.mark.thorough
@each_kind
def test_energy_and_momentum_are_kept(kind):
    """Bodies that float, with springs between points and springs of an angle."""
    model = models.conservative(models.floating_tree())
    system = mbd.formulate(model, KINDS[kind])
    start = models.random_state(system, seed=4, scale=0.5)
    newton = mbd.Newton(tolerance=0.0)
    states = mbd.rollout(system, start, 0.02, 400, mbd.SimoGonzalez(newton))
    energy, momentum, gaps = watch(system, states)
    largest = float(jnp.max(energy.kinetic))
    assert np.ptp(energy.kinetic) > 0.1 * largest
    assert drift(energy.total) < 1e-12 * largest
    assert drift(momentum.linear) < 1e-13 * np.abs(momentum.linear).max()
    assert drift(momentum.angular) < 1e-12 * np.abs(momentum.angular).max()
    assert jnp.max(jnp.abs(gaps), initial=0.0) < 1e-12


@pytest.mark.thorough
def test_forces_over_a_step_do_the_work_of_potentials():
    """Potentials on joints of every kind, along any step, and springs of the formulation."""
    model = models.conservative(models.random_tree(2))
    model = mbd.Model(model.bodies, model.joints, model.forces)
    system = mbd.formulate(model, mbd.NaturalCoordinates(50.0, penalty=20.0))
    q = models.random_state(system, seed=1).q
    step = jnp.asarray(0.1 * np.random.default_rng(0).normal(size=q.shape))

    @eqx.filter_jit
    def work(system, q, end):
        given = (end - q) @ conservative_force_between(system, T, q, end)
        held = (end - q) @ system.internal_force_between(q, end)
        whole = loads.potential(system, system.configuration(T, q)) - loads.potential(
            system, system.configuration(T, end)
        )
        own = system.internal_potential(end) - system.internal_potential(q)
        return given - held, whole, held, own

    for end in (q + step, q + 1e-7 * step):
        given, lost, held, gained = work(system, q, end)
        assert given == pytest.approx(float(lost), rel=1e-6, abs=1e-12)
        assert held == pytest.approx(float(gained), rel=1e-6, abs=1e-12)
        assert abs(lost) > 1e-8


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_order(kind):
    """Errors fall by 4 when steps are halved; springs are soft here, so that steps resolve them."""
    model, guess = mechanisms.three_link()
    formulation = mbd.NaturalCoordinates(200.0) if kind == "springs" else KINDS[kind]
    system = mbd.formulate(model, formulation)
    start = mbd.assemble(system, guess, {"ball1": [0.3, 0.5, -0.2], "ball3": [0.2, -1.0, 0.4]})
    counts = (320, 640, 1280) if kind == "springs" else (20, 40, 80)
    ends = [mbd.rollout(system, start, 0.4 / n, n, mbd.SimoGonzalez()).q[-1] for n in counts]
    rate = jnp.linalg.norm(ends[0] - ends[1]) / jnp.linalg.norm(ends[1] - ends[2])
    assert jnp.log2(rate) == pytest.approx(2.0, abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    "stiffness", [None, *(pytest.param(k, marks=pytest.mark.thorough) for k in (8e4, 1e6))]
)
def test_three_links_like_the_reference(shared_data, stiffness):
    """The paper's step and springs, the first 4 of its 12 s; None constrains in their place.

    What springs add falls by 1 / k: 6.1e3 / k at its largest here.
    """
    data = mechanisms.recorded(shared_data, "three_link")
    model, guess = mechanisms.three_link()
    rigid = stiffness is None
    formulation = mbd.NaturalCoordinates(stiffness or 1.0, rigid=rigid)
    system = mbd.formulate(model, formulation)
    states = mbd.rollout(system, mbd.assemble(system, guess), 0.005, 800, mbd.SimoGonzalez())
    energy, _, _ = watch(system, states)
    assert drift(energy.total) < 1e-12 * float(jnp.max(energy.kinetic))
    wanted = np.asarray(data["variants"]["A_pp"]["com3"])[1:41]
    path = jax.vmap(lambda q: system.frames(0.0, q)["link3"].p)(states.q[19::20])
    error = np.abs(path - wanted).max()
    assert error < (4e-4 if rigid else 1e-3 + 7e3 / stiffness)
    assert rigid or error > 5e3 / stiffness


@pytest.mark.smoke
@pytest.mark.thorough
def test_float32_keeps_energy_to_its_precision():
    model, guess = mechanisms.three_link()
    system, start = jax.tree.map(
        lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x,
        (lambda s: (s, mbd.assemble(s, guess)))(mbd.formulate(model, mbd.NaturalCoordinates(8e4))),
    )
    states = mbd.rollout(system, start, 0.005, 400, mbd.SimoGonzalez())
    energy, _, _ = watch(system, states)
    assert energy.total.dtype == jnp.float32
    assert drift(energy.total) < 1e-4 * float(jnp.max(energy.kinetic))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [pytest.param("springs", marks=pytest.mark.thorough), "particles"])
def test_gradient(kind):
    def end(x):
        stiffness, speed, weight = x
        model = models.chain(1)
        model = eqx.tree_at(lambda m: m.bodies["link0000"].mass, model, weight)
        formulation = mbd.NaturalCoordinates(1e3 * stiffness) if kind == "springs" else KINDS[kind]
        model = mbd.Model(
            model.bodies,
            model.joints,
            {**model.forces, "drag": mbd.forces.ViscousFriction("jlink0000", stiffness)},
        )
        system = mbd.formulate(model, formulation)
        start = mbd.assemble(system, {"jlink0000": 0.3}, {"jlink0000": speed})
        q = mbd.rollout(system, start, 0.02, 10, mbd.SimoGonzalez()).q[-1]
        return q @ jnp.linspace(-1.0, 1.0, q.size)

    check_gradient(end, reverse=kind == "springs")


@pytest.mark.thorough
def test_couplings_are_refused():
    model = models.chain(2)
    coupling = {"gear": mbd.joints.Coupling("jlink0001", "jlink0000", 2.0)}
    model = mbd.Model(model.bodies, model.joints, couplings=coupling)
    system = mbd.formulate(model, mbd.NaturalCoordinates())
    assert constraints.n_constraints(system) == 1
    start = mbd.assemble(system, {"jlink0000": 0.3})
    with pytest.raises(mbd.IncompatibleIntegrator, match=r"two-point form of couplings .*'gear'"):
        mbd.rollout(system, start, 0.01, 2, mbd.SimoGonzalez())

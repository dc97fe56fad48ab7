"""Bodies that are built from numbers of the model: derivatives, and a fit of their numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import Frame, flexible, forces, joints

NUMBERS = {"length": 0.5, "E": 7e9, "G": 2.8e9, "density": 2700.0}
OPTIONS = {"n_elements": 3, "n_modes": 2, "theory": "bernoulli", "stiffening": False}


def arguments(width=0.03, height=0.02, damping=0.01, **changed):
    section = flexible.Rectangle(width, height)
    return {**NUMBERS, **OPTIONS, "section": section, "damping": damping, **changed}


def cantilever(body):
    return mbd.Model(
        {"rod": body},
        {"clamp": joints.Fixed("ground", Frame("rod", node="base"))},
        {"gravity": forces.Gravity()},
        frames={"tip": Frame("rod", node="tip")},
    )


@pytest.mark.long
def test_formulate_builds_the_body():
    """With derivatives by the numbers; frequencies of a slender beam are proportional to √E and to
    1 / L²."""
    body = flexible.Parametric(flexible.beam, **arguments())
    built = flexible.beam(**arguments())
    model = cantilever(body)
    (group,) = mbd.formulate(model).mechanism.bodies
    for found, expected in zip(*map(jax.tree.leaves, (group.body, built)), strict=True):
        np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)

    @eqx.filter_jit
    @eqx.filter_grad
    def slopes(model):
        (group,) = mbd.formulate(model).mechanism.bodies
        return jnp.log(jax.tree.map(lambda x: x[0], group.body).frequencies()[0])

    by = slopes(model).bodies["rod"].numbers
    assert 7e9 * by["E"] == pytest.approx(0.5, rel=1e-9)
    assert 0.5 * by["length"] == pytest.approx(-2.0, rel=1e-2)
    assert 0.02 * by["section"].height == pytest.approx(1.0, rel=1e-2)
    assert by["damping"] == 0.0


@pytest.mark.long
def test_messages():
    with pytest.raises(mbd.ModelError, match="E must be positive"):
        flexible.Parametric(flexible.beam, **arguments(E=-1.0))
    with pytest.raises(mbd.ModelError, match="give the arguments of build by name"):
        flexible.Parametric(flexible.beam, n_modes=2)
    body = flexible.Parametric(flexible.beam, **arguments())
    with pytest.raises(mbd.ModelError, match="unknown node 'top'"):
        mbd.Model({"rod": body}, {"clamp": joints.Fixed("ground", Frame("rod", node="top"))})


@eqx.filter_jit
def measured(numbers):
    """Frequencies [Hz] and damping ratios of the cantilever by E, width and damping."""
    E, width, damping = numbers
    model = cantilever(flexible.Parametric(flexible.beam, **arguments(width, 0.02, damping, E=E)))
    (group,) = mbd.formulate(model).mechanism.bodies
    body = jax.tree.map(lambda x: x[0], group.body)
    stiffness, mass = jnp.diagonal(body.stiffness), jnp.diagonal(body.modal_mass())
    ratios = jnp.diagonal(body.damping) / (2.0 * jnp.sqrt(stiffness * mass))
    return jnp.concatenate([body.frequencies() / (2.0 * jnp.pi), ratios])


@pytest.mark.long
def test_modulus_width_and_damping_follow_from_frequencies():
    """Bending in two planes: √(E/ρ) times the height and the width. Gauss-Newton."""
    truth = jnp.array([7e9, 0.03, 0.01])
    target, scale = measured(truth), truth
    logarithms = jnp.log(jnp.array([8e9, 0.035, 0.02]) / scale)
    slopes = jax.jit(jax.jacfwd(lambda x: jnp.log(measured(jnp.exp(x) * scale) / target)))
    for _ in range(6):
        misfit = np.log(np.asarray(measured(jnp.exp(logarithms) * scale) / target))
        step = np.linalg.lstsq(np.asarray(slopes(logarithms)), misfit, rcond=None)[0]
        logarithms = logarithms - step
    np.testing.assert_allclose(logarithms, 0.0, atol=1e-9)


@pytest.mark.thorough
def test_modulus_and_damping_follow_from_a_motion():
    """The tip of a cantilever, released under its weight: deflection and decay."""
    truth, deviation = np.array([7e9, 0.02]), 1e-6

    def model(E, damping):
        numbers = arguments(damping=damping, E=E, n_modes=1)
        return cantilever(flexible.Parametric(flexible.beam, **numbers))

    ts = np.linspace(0.0, 0.2, 81)
    tip = mbd.sensors.FramePosition("tip")
    system = mbd.formulate(model(*truth))
    motion = mbd.simulate(
        system,
        mbd.assemble(system),
        t1=ts[-1],
        saveat=ts,
        integrator=mbd.GeneralizedAlpha(1.0),
        dt=1.25e-4,
    )
    read = jax.jit(jax.vmap(lambda t, state: tip(system, t, state)[2]))
    heights = np.asarray(read(jnp.asarray(ts), motion.states))
    assert np.ptp(heights) > 100 * deviation
    noise = deviation * np.random.default_rng(0).normal(size=ts.shape)
    record = mbd.Experiment(ts, {"height": heights + noise})
    fit = mbd.identify(
        model(6e9, 0.04),
        record,
        {
            "E": mbd.Parameter("bodies.rod.numbers.E", mbd.transforms.Positive()),
            "damping": mbd.Parameter("bodies.rod.numbers.damping", mbd.transforms.Positive()),
        },
        sensors={"height": lambda system, t, state: tip(system, t, state)[2]},
        noise={"height": deviation},
        substeps=8,
    )
    errors = fit.values - truth
    assert np.all(np.abs(errors) < 4 * fit.standard_errors + 1e-3 * truth), fit
    assert np.all(fit.standard_errors < 0.02 * truth), fit


@pytest.mark.thorough
def test_modulus_and_damping_follow_from_a_modal_record():
    """A clamped rod that is tapped: 0.1 % of two frequencies, and 0.001 of their damping."""
    truth = np.array([7e9, 0.02])

    def clamped(E, damping):
        body = flexible.Parametric(flexible.beam, **arguments(E=E, damping=damping))
        return mbd.Model({"rod": body}, {"vice": joints.Fixed("ground", Frame("rod", node="base"))})

    body = clamped(*truth).bodies["rod"]
    assert isinstance(body, flexible.Parametric)
    exact = np.asarray(body.built().frequencies()) / (2.0 * np.pi)
    rng = np.random.default_rng(3)
    record = mbd.ModalExperiment(
        exact * (1.0 + 1e-3 * rng.normal(size=2)),
        1e-3 * exact,
        damping_ratios=0.02 + 1e-3 * rng.normal(size=2),
        damping_deviations=1e-3,
    )
    positive = mbd.transforms.Positive()
    chosen = {
        name: mbd.Parameter(f"bodies.rod.numbers.{name}", positive) for name in ("E", "damping")
    }
    fit = mbd.identify(clamped(5e9, 0.01), record, chosen)
    assert np.all(np.abs(fit.values - truth) < 4 * fit.standard_errors), fit
    assert np.all(fit.standard_errors < [1e-2 * truth[0], 2e-3]), fit

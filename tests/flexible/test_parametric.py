"""Bodies that are built from numbers of the model: derivatives, and fits of their numbers."""

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


def cantilever(body, load=(0.0, -6.0, -9.81)):
    return mbd.Model(
        {"rod": body},
        {"clamp": joints.Fixed("ground", Frame("rod", node="base"))},
        {"gravity": forces.Gravity(load)},
        frames={"tip": Frame("rod", node="tip")},
    )


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


def test_messages():
    with pytest.raises(mbd.ModelError, match="E must be positive"):
        flexible.Parametric(flexible.beam, **arguments(E=-1.0))
    with pytest.raises(mbd.ModelError, match="give the arguments of build by name"):
        flexible.Parametric(flexible.beam, n_modes=2)
    body = flexible.Parametric(flexible.beam, **arguments())
    with pytest.raises(mbd.ModelError, match="unknown node 'top'"):
        mbd.Model({"rod": body}, {"clamp": joints.Fixed("ground", Frame("rod", node="top"))})


SELECT = {
    "E": mbd.Parameter("bodies.rod.numbers.E", mbd.transforms.Positive()),
    "width": mbd.Parameter("bodies.rod.numbers.section.width", mbd.transforms.Positive()),
    "damping": mbd.Parameter("bodies.rod.numbers.damping", mbd.transforms.Positive()),
}
TRUTH = np.array([7e9, 0.03, 0.01])


def start():
    body = flexible.Parametric(flexible.beam, **arguments(E=8e9, width=0.035, damping=0.02))
    return cantilever(body)


@pytest.mark.thorough
def test_modulus_width_and_damping_from_frequencies():
    """Bending in two planes: √(E/ρ) times the height and the width."""
    modes = flexible.beam(**arguments()).frequencies() / (2 * np.pi)
    record = mbd.ModalExperiment(
        modes, 1e-4 * modes, damping_ratios=[0.01, 0.01], damping_deviations=1e-4
    )
    fit = mbd.identify(start(), [record], SELECT)
    np.testing.assert_allclose(fit.values / TRUTH, 1.0, rtol=1e-6)


@pytest.mark.thorough
def test_modulus_width_and_damping_from_motion():
    """A straight cantilever is let go in a field of gravity; gauges measure its strain."""
    sensors = {"rod": mbd.sensors.Modal("rod")}
    system = mbd.formulate(cantilever(flexible.beam(**arguments())))
    ts = np.linspace(0.0, 0.12, 61)
    motion = mbd.simulate(system, mbd.assemble(system), t1=0.12, dt=2e-4, saveat=ts)
    record = mbd.Experiment(ts, {"rod": np.asarray(motion.states.q)})
    fit = mbd.identify(start(), record, SELECT, sensors=sensors, substeps=8)
    np.testing.assert_allclose(fit.values / TRUTH, 1.0, rtol=1e-4)

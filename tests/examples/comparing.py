"""Helpers for tests of the mechanisms among the examples."""

import runpy
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd.formulations.joint.tree_configuration import split
from jaxmbd.system import equation_residuals

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = (
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
    mbd.PointCoordinates(),
)


def example(name):
    """Names that the script of an example defines; it may import scripts beside it."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def carried_over(state, system, other):
    """A state of joint coordinates in another formulation."""
    rates = split(system.mechanism, system.layout, state.v)
    values = system.values(state.q)
    return mbd.State(other.from_tree(values), other.from_tree_rates(values, rates))


@eqx.filter_jit
def look(system, t, state):
    """Accelerations of bodies, reactions, forces of drivers, energies, and gaps of a state."""
    vdot, _ = mbd.accelerations(system, t, state)
    tangents = jnp.ones_like(t), system.rates(state.q, state.v), vdot
    rates = jax.jvp(system.twists, (t, state.q, state.v), tangents)[1]
    drivers = mbd.driving_forces(system, t, state) if system.mechanism.drivers else {}
    return {
        "accelerations": {name: rates[name] for name in system.mechanism.topology.bodies[1:]},
        "reactions": mbd.reactions(system, t, state),
        "drivers": drivers,
        "energy": mbd.energy(system, t, state),
        "gaps": (
            equation_residuals.position_residual(system, t, state.q),
            equation_residuals.velocity_residual(system, t, state),
        ),
    }


def check_slopes(outputs, inputs, tolerance=1e-6):
    """Derivatives of `outputs(inputs)`, shape `(k,)`, along a direction of each of the inputs.

    Forwards against central differences of fourth order, and against reverse mode. Returns the
    slopes of the outputs by the name of the input.
    """
    rng, h = np.random.default_rng(0), 2e-4
    inputs = {name: jnp.array(x, dtype=float) for name, x in inputs.items()}  # Not weakly typed.
    forwards = eqx.filter_jit(lambda x, d: jax.jvp(outputs, (x,), (d,)))
    backwards = eqx.filter_jit(jax.grad(lambda x, weights: outputs(x) @ weights))
    still, found = jax.tree.map(jnp.zeros_like, inputs), {}
    n_outputs = jax.eval_shape(outputs, inputs).size
    gradients = [backwards(inputs, unit) for unit in jnp.eye(n_outputs)]
    for name, x in inputs.items():
        along = jnp.asarray(np.abs(x).max() * rng.uniform(0.5, 1.5, np.shape(x)))

        def at(s, name=name, x=x, along=along):
            return forwards(inputs | {name: x + s * along}, still | {name: along})

        value, slope = map(np.asarray, at(0.0))
        difference = (8 * (at(h)[0] - at(-h)[0]) - (at(2 * h)[0] - at(-2 * h)[0])) / (12 * h)
        # Beside rounding errors of differences, ε |value| / h, if an output does not depend on the
        # input.
        scale = np.maximum(np.abs(slope), 1e-5 * np.abs(value))
        assert (np.abs(difference - slope) <= tolerance * scale).all(), (name, difference, slope)
        reverse = [jnp.sum(gradient[name] * along) for gradient in gradients]
        np.testing.assert_allclose(reverse, slope, rtol=1e-9, atol=1e-9 * np.abs(value).max())
        found[name] = slope
    return found

"""Steps of integrators on random mechanisms, against finer steps in joint coordinates."""

import functools

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from tests.properties import looking
from tests.properties.draws import SAME_MATERIAL, UNITS, draw
from tests.properties.templates import TEMPLATES

GEARS, BALLS = "geared cranks", "a crank and balls"
PROJECTED = mbd.ExplicitRK(diffrax.Tsit5(), mbd.Projection())
# A template, a formulation, an integrator and its order.
CASES = {
    "semi-implicit, beams in a chain": ("beams in a chain", "joint", mbd.SemiImplicitEuler(), 1),
    "alpha, beams in a chain": ("beams in a chain", "joint", mbd.GeneralizedAlpha(0.8), 2),
    "projected, joint": (GEARS, "joint", PROJECTED, 5),
    "projected, maximal": (GEARS, "maximal", PROJECTED, 5),
    "BDF(2), joint": (GEARS, "joint", mbd.BDF(2), 1),
    "BDF(2), maximal": (GEARS, "maximal", mbd.BDF(2), 1),
    "BDF(5), joint": (GEARS, "joint", mbd.BDF(5), 5),
    "alpha of index 2, joint": (GEARS, "joint", mbd.GeneralizedAlpha(0.8, index=2), 2),
    "alpha of index 2, maximal": (GEARS, "maximal", mbd.GeneralizedAlpha(0.8, index=2), 2),
    "projected, transformed": (GEARS, "transformed", PROJECTED, 5),
    "energy-momentum": (BALLS, "maximal", mbd.EnergyMomentum(), 2),
    "energy-decaying": (BALLS, "maximal", mbd.EnergyDecaying(), 2),
    "Simo-Gonzalez, natural": (BALLS, "natural", mbd.SimoGonzalez(), 2),
    "Simo-Gonzalez, points": (BALLS, "point", mbd.SimoGonzalez(), 2),
    "alpha, natural": (BALLS, "natural", mbd.GeneralizedAlpha(0.8), 2),
}
REFERENCE = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())
N, FINER = 6, 8  # Steps, and steps of the reference in each.


@eqx.filter_jit
def steps(system, state, h, n, method):
    """Poses and twists of all bodies after each of n steps."""
    states = mbd.rollout(system, state, h, n, method)
    return eqx.filter_vmap(lambda q, v: looking.poses_and_twists(system, q, v))(states.q, states.v)


def in_si_units(units, motion):
    p, R, V = map(np.asarray, motion)
    return p / units.length, R, units.twists(V)


def longest_step(case):
    """A step [s] in SI units that resolves the motion and the vibration of a draw."""
    seen, system = case.look(), case.in_joint_coordinates
    rates, K = [seen["speed"], np.sqrt(np.max(np.abs(seen["twist rates"])))], 0.0 * seen["mass"]
    for name, (first, k) in system.mechanism.elastic_places.items():
        entries = system.nv - system.mechanism.n_elastic + first + np.arange(k)
        K[np.ix_(entries, entries)] = case.model.bodies[name].stiffness
    squares = np.linalg.eigvals(np.linalg.solve(seen["mass"], K)).real
    return 0.04 / max(*rates, np.sqrt(max(squares)) * case.units.time)


def errors(case, formulation, method, h, exact):
    """Largest errors of poses [m], and of twists times h, after any of N steps."""
    system, state = case.system(formulation)
    units = case.units
    found = in_si_units(units, steps(system, state, jnp.asarray(h * units.time), N, method))
    exact = [x[FINER - 1 :: FINER] for x in exact]
    p, R, V = (np.max(np.abs(x - y)) for x, y in zip(found, exact, strict=True))
    return np.array([np.maximum(p, R), h * V])


def reference(case, h):
    system, state = case.system()
    h = jnp.asarray(h * case.units.time / FINER)
    return in_si_units(case.units, steps(system, state, h, N * FINER, REFERENCE))


@functools.cache
def cases(name):
    """Draws in motion in all units, and one at zero; for each the length of a step [s].

    With them comes the motion in steps of this length, and of a quarter of it.
    """
    units, found = SAME_MATERIAL if TEMPLATES[name].sketch(0).beams else UNITS, {}
    draws = {unit: draw(name, "ordinary", 0, units=unit) for unit in units}
    for where, case in {**draws, "zero": draw(name, "ordinary", 1, at_zero=True)}.items():
        h = longest_step(case)
        found[where] = case, h, [reference(case, x) for x in (h, h / 4)]
    return found


# Poses after N steps of length h have errors of the order h^(p + 1), and so have twists times h.
LOST, ROUNDING = 0.7, 1e-12


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_steps_have_the_order_of_their_method(case):
    """From states at zero and in motion, in all units."""
    name, formulation, method, order = CASES[case]
    found = []
    for where, (drawn, h, (far, near)) in cases(name).items():
        coarse = errors(drawn, formulation, method, h, far)
        fine = errors(drawn, formulation, method, h / 4, near)
        allowed = coarse / 4 ** (order + 1 - LOST) + ROUNDING
        if not np.all(fine <= allowed):
            found.append(f"{where}: {coarse} with steps of {h:.2g} s, {fine} with a quarter")
    assert not found, "\n".join(found)

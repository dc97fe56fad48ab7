"""Properties of accelerations of any mechanism in motion, in every formulation."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.testing.assertions import direction, dot
from tests.marks import thorough_but
from tests.properties.draws import (
    MASSES,
    SAME_MATERIAL,
    UNITS,
    along_constraints,
    condition,
    draw,
    seed_of,
)
from tests.properties.templates import TEMPLATES

# Errors of accelerations in units of the precision, of the number of bodies and of the condition
# number; residuals in units of the precision, and powers at least.
ERROR, MISS = 1e3, 1e2

# A formulation may be worse conditioned than the mechanism. That excuses errors up to this part,
# and up to another part of the power in single precision.
EXCUSED, EXCUSED_POWER = 0.05, 5e-3

DTYPES = ("float64", "float32")


def look(case, formulation, dtype):
    """Quantities of a draw, or None if its accelerations are NaN."""
    seen = case.look(formulation, dtype)
    return seen if np.isfinite(seen["vdot"]).all() else None


def failures(seen, reference, conditions, eps):
    """Messages about the properties that do not hold, with numbers.

    **Arguments:** `conditions`, of the mechanism and of the formulation.
    """
    n, rates = len(reference["twist rates"]), reference["twist rates"]
    worst = np.max(seen["miss"] / seen["miss scale"], initial=0.0) / eps
    if not worst <= MISS:
        yield f"G v̇ + γ is {worst:.1e} roundings from zero, {MISS:.0e} are allowed"
    power = np.abs(seen["unexplained power"]) / eps
    allowed = MISS * min(conditions[0], 1e2)
    if eps > 1e-10:
        allowed = max(allowed, min(conditions[1], EXCUSED_POWER / eps))
    if not power <= allowed * seen["power scale"]:
        power = power / seen["power scale"]
        yield f"the energy's rate is {power:.1e} roundings off the power, {allowed:.1e} are allowed"
    scale = np.max(np.abs(rates)) + reference["speed"] ** 2 + 9.81
    error = np.max(np.abs(seen["twist rates"] - rates)) / scale / eps
    mine, excused = (ERROR * n * kappa for kappa in conditions)
    allowed = max(mine, min(excused, EXCUSED / eps))
    if not error <= allowed:
        yield f"accelerations are {error:.1e} roundings off, {allowed:.1e} are allowed"


def is_well_posed(name, masses, dtype):
    return dtype == "float64" and masses in ("ordinary", "wide") and TEMPLATES[name].n <= 103


VARIED = ["a controlled four-bar", "beams in a chain"]
RIGID = [name for name in TEMPLATES if name != "beams in a chain"]


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["a four-bar within 10 links"], RIGID))
def test_formulations_agree_and_constraints_hold(name):
    """Against joint coordinates in float64; the energy's rate is the power of the forces."""
    found, template = [], TEMPLATES[name]
    for masses, k in ((masses, k) for masses in MASSES for k in range(template.draws)):
        case = draw(name, masses, k)
        wholes = {f: look(case, f, "float64") for f in template.formulations}
        reference = wholes["joint"]
        conditions = {f: None if whole is None else condition(whole) for f, whole in wholes.items()}
        for formulation, dtype in product(wholes, DTYPES):
            whole, eps = wholes[formulation], float(np.finfo(dtype).eps)
            seen = whole if dtype == "float64" else look(case, formulation, dtype)
            where = f"{name}, seed {seed_of(name, masses, k)}, {formulation}, {dtype}"
            if seen is None and is_well_posed(name, masses, dtype):
                found.append(f"{where}: NaN")
            if seen is None or reference is None or whole is None:
                continue
            kappas = conditions["joint"], conditions[formulation]
            if is_well_posed(name, masses, dtype) and not kappas[0] * eps < 1e-6:
                found.append(f"{where}: a condition number of {kappas[0]:.1e} proves nothing")
            found += [f"{where}: {miss}" for miss in failures(seen, reference, kappas, eps)]
    assert not found, "\n".join(found)


def variants(name):
    """Draws in other units and at zero, each with the draw of equal accelerations."""
    units = SAME_MATERIAL if TEMPLATES[name].sketch(0).beams else UNITS
    for k in range(min(TEMPLATES[name].draws, 2)):
        ordinary = draw(name, "ordinary", k)
        for other in units:
            if other != "SI units":
                yield f"draw {k} in {other}", draw(name, "ordinary", k, units=other), ordinary
        at_zero = draw(name, "ordinary", k, at_zero=True)
        yield f"draw {k} at zero", at_zero, at_zero


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIED)
def test_units_change_nothing_and_zero_is_no_special_place(name):
    """All properties of accelerations hold in other units, and those of SI units are the same."""
    found = []
    for where, case, ordinary in variants(name):
        reference = ordinary.look()
        for formulation in TEMPLATES[name].formulations:
            seen = look(case, formulation, "float64")
            if seen is None:
                found.append(f"{name}, {where}, {formulation}: NaN")
                continue
            kappas = condition(reference), condition(ordinary.look(formulation))
            misses = failures(seen, reference, kappas, float(np.finfo("float64").eps))
            found += [f"{name}, {where}, {formulation}: {miss}" for miss in misses]
    assert not found, "\n".join(found)


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIED)
def test_velocities_off_the_constraints_have_the_accelerations_of_those_nearby(name):
    """Those of the nearest velocities that satisfy the constraints, up to the violation."""
    found = []
    for k, formulation in product(
        range(min(TEMPLATES[name].draws, 2)), TEMPLATES[name].formulations
    ):
        case = draw(name, "ordinary", k)
        seen = case.look(formulation)
        kappa = condition(seen)
        noise = np.random.default_rng(k).normal(size=len(seen["vdot"]))
        for size in (1e-9, 1e-6, 1e-3):
            changes = size * noise, along_constraints(seen, size * noise)
            off, nearest = (case.look(formulation, change=x)["vdot"] for x in changes)
            change, whole = np.max(np.abs(off - nearest)), np.max(np.abs(nearest))
            speed = seen["speed"] + size
            if not change <= 1e2 * kappa * size * speed + 1e-11 * kappa * whole:
                seed = seed_of(name, "ordinary", k)
                found.append(f"{name}, seed {seed}, {formulation}, {size}: {change:.1e}")
    assert not found, "\n".join(found)


OVERDRIVEN = ["a crank and a rocker driven", "two parallel cranks driven"]


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", thorough_but(DTYPES[:1], DTYPES))
@pytest.mark.parametrize("name", thorough_but(OVERDRIVEN[:1], OVERDRIVEN))
def test_drivers_that_contradict_one_another_give_nan(name, dtype):
    """Drivers that agree, with otherwise equal numbers, give finite results."""
    found = []
    for masses, k in ((masses, k) for masses in MASSES for k in range(TEMPLATES[name].draws)):
        for disagreement in (0.0, 10.0):
            case = draw(name, masses, k, disagreement)
            for formulation in TEMPLATES[name].formulations:
                failed = look(case, formulation, dtype) is None
                if failed != (disagreement > 0):
                    seed = seed_of(name, masses, k)
                    found.append(f"{name}, seed {seed}, {formulation}: {disagreement} rad/s²")
    assert not found, "\n".join(found)


@eqx.filter_jit
def scalar(floats, rest, w):
    system, state = eqx.combine(floats, rest)
    return w @ mbd.accelerations(system, 0.0, state)[0]


slope = eqx.filter_jit(jax.grad(scalar))

DIFFERENTIABLE = [
    "a floating tree",
    "a four-bar",
    "a crank and balls",
    "a Bennett linkage",
    "geared links",
    "a crank and a rocker driven",
]


@pytest.mark.thorough
@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("formulation", ["joint", "maximal"])
def test_gradients_are_central_differences(name, formulation):
    """Along a random direction of all leaves and of the state."""
    found, h = [], 1e-6  # A longer step opens redundant loops too far
    for k in range(TEMPLATES[name].draws):
        system, state = draw(name, "ordinary", k).system(formulation)
        floats, rest = eqx.partition((system, state), eqx.is_inexact_array)
        rng = np.random.default_rng(k)
        u = jax.tree.map(lambda x, dx: x * dx, floats, direction(floats, rng))
        w = jnp.asarray(rng.normal(size=system.nv))

        def at(s, floats=floats, u=u, rest=rest, w=w):
            return float(scalar(jax.tree.map(lambda x, dx: x + s * dx, floats, u), rest, w))

        gradient = float(dot(slope(floats, rest, w), u))
        near, far = ((at(s) - at(-s)) / (2 * s) for s in (h, 2 * h))
        # The error of a difference is a third of what halving its step changes, and rounding.
        allowed = 2 * abs(near - far) + 1e-6 * (abs(near) + abs(at(0.0)))
        if not abs(gradient - near) <= allowed:
            found.append(
                f"{name}, seed {seed_of(name, 'ordinary', k)}, {formulation}: the gradient is "
                f"{gradient:.9g}, the difference {near:.9g} ± {allowed:.1e}"
            )
    assert not found, "\n".join(found)

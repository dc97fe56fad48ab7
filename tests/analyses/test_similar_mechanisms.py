"""Default tolerances: mechanisms of any size, mass and time have similar motions."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints
from tests.marks import thorough_but

# Units of length, mass and time in SI units. Powers of two: similar motions are equal to rounding.
MILLI, MICRO, KILO = 2.0**-10, 2.0**-20, 2.0**10
UNITS = {
    "millimetres": (MILLI, 1.0, 1.0),
    "micrometres": (MICRO, MICRO**3, 1.0),
    "tonnes": (1.0, KILO, 1.0),
    "milligrams": (1.0, MICRO, 1.0),
    "milliseconds": (1.0, 1.0, MILLI),
    "small": (MILLI, MILLI**3, MILLI),
    "large and slow": (KILO, KILO**3, KILO),
}


def oscillator(length, mass, time, damping=0.05, amplitude=0.1):
    """A box on a spring, its damping ratio, and the state that releases it."""
    stiffness, loss = mass / time**2, 2 * damping * mass / time
    model = mbd.Model(
        {"box": mbd.inertia.box(mass, [length] * 3)},
        {"slide": joints.Prismatic(mbd.ground, "box", axis=[1, 0, 0])},
        {"spring": forces.TorsionalSpringDamper("slide", stiffness, loss)},
    )
    return model, {"slide": amplitude * length}


@pytest.mark.parametrize("amplitude", [0.1, 1e-3, 1e-5])
@pytest.mark.parametrize("units", UNITS)
def test_a_vibration_of_any_size_is_the_closed_form(units, amplitude):
    unit = UNITS[units]
    model, start = oscillator(*unit, amplitude=amplitude)
    motion = mbd.simulate(model, start, t1=20.0 * unit[2])
    t, w = np.asarray(motion.ts) / unit[2], np.sqrt(1 - 0.05**2)
    exact = np.exp(-0.05 * t) * (np.cos(w * t) + 0.05 / w * np.sin(w * t))
    found = np.asarray(motion.joint("slide").q) / (amplitude * unit[0])
    np.testing.assert_allclose(found, exact, atol=1e-7)


def rod(length, mass, size=0.5):
    """A rod that hangs from its end."""
    body = mbd.inertia.rod(mass, size * length)
    return mbd.inertia.shifted(body, [0, 0, -0.5 * size * length])


def pendulum(length, mass, time):
    """Two rods under gravity, which swing from rest."""
    joint = joints.Revolute(mbd.ground, "upper", axis=[0, 1, 0])
    elbow = joints.Revolute(mbd.Frame("upper", [0, 0, -0.5 * length]), "lower", axis=[0, 1, 0])
    model = mbd.Model(
        {"upper": rod(length, mass), "lower": rod(length, mass)},
        {"hinge": joint, "elbow": elbow},
        {"gravity": forces.Gravity([0, 0, -9.81 * length / time**2])},
    )
    return model, {"hinge": 1.0}, {}


def slider_crank(length, mass, time):
    """A crank, a rod and a slider on a spring with a damper; a loop."""
    tip, end = mbd.Frame("crank", [0, 0, -0.2 * length]), mbd.Frame("rod", [0, 0, -0.5 * length])
    y = [0, 1, 0]
    model = mbd.Model(
        {
            "crank": rod(length, mass, 0.2),
            "rod": rod(length, mass),
            "slider": mbd.inertia.box(mass, [0.1 * length] * 3),
        },
        {
            "bearing": joints.Revolute(mbd.ground, "crank", axis=y),
            "pin": joints.Revolute(tip, "rod", axis=y),
            "guide": joints.Prismatic(mbd.ground, "slider", axis=[0, 0, 1]),
            "end": joints.Revolute(end, "slider", axis=y),
        },
        {
            "gravity": forces.Gravity([-9.81 * length / time**2, 0, 0]),
            "spring": forces.SpringDamper(
                mbd.Frame("ground", [0, 0, -0.9 * length]),
                "slider",
                40 * mass / time**2,
                mass / time,
            ),
        },
    )
    return model, {"bearing": 0.7, "guide": -0.6 * length}, {"bearing": 5.0 / time}


def thrown(length, mass, time):
    """A box that flies and tumbles about its middle axis."""
    model = mbd.Model(
        {"box": mbd.inertia.box(mass, [0.3 * length, 0.2 * length, 0.1 * length])},
        {"free": joints.Free(mbd.ground, "box")},
        {"gravity": forces.Gravity([0, 0, -9.81 * length / time**2])},
    )
    twist = np.array([5 * length, length, 8 * length, 0.1, 6.0, 0.2]) / time
    return model, {}, {"free": twist}


def beam(length, mass, time):
    """A steel beam that turns about its end; `mass` and `time` follow from the size."""
    section = mbd.flexible.General(
        A=1e-4 * length**2, Iy=1e-9 * length**4, Iz=2e-9 * length**4, J=3e-9 * length**4
    )
    body = mbd.flexible.beam(length, 2.1e11, 8e10, 7800.0, section, 4, n_modes=2)
    hinge = joints.Revolute(mbd.ground, mbd.Frame("beam", node="base"), axis=[0, 1, 0])
    gravity = forces.Gravity([0, 0, -981.0 * length / time**2])
    return mbd.Model({"beam": body}, {"hinge": hinge}, {"gravity": gravity}), {}, {}


ALL = [mbd.JointCoordinates(), mbd.MaximalCoordinates()]


@pytest.mark.long
@pytest.mark.parametrize("formulation", thorough_but(ALL[:1], ALL), ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("build", [pendulum, slider_crank, thrown, beam])
def test_similar_mechanisms_have_similar_motions(build, formulation):
    """No step depends on units of length and mass: motions are equal to rounding."""

    def motion(length, mass, time):
        model, start, rates = build(length, mass, time)
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, start, rates, hold=list(rates))
        span = 0.02 if build is beam else 1.0
        found = mbd.simulate(system, state, t1=span * time, throw=False)
        assert found.result == mbd.RESULTS.successful
        q, v = (np.asarray(x) for x in system.sizes(jnp.asarray(length)))
        return np.asarray(found.states.q) / q, np.asarray(found.states.v) / (v / time)

    reference = motion(1.0, 1.0, 1.0)
    for name in ["small", "large and slow"] if build is beam else UNITS:
        part = 1e-10 if UNITS[name][2] == 1.0 else 1e-6
        for found, expected in zip(motion(*UNITS[name]), reference, strict=True):
            limit = part * np.abs(expected).max()
            np.testing.assert_allclose(found, expected, rtol=0, atol=limit, err_msg=name)

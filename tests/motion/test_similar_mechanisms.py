"""Default tolerances: mechanisms of any size, mass and time have similar results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import jaxmbd as mbd
from jaxmbd import forces, joints
from tests.marks import thorough_but

# Units of length, mass and time in SI units. Powers of two: similar motions are equal to rounding.
MILLI, MICRO, NANO, KILO = 2.0**-10, 2.0**-20, 2.0**-30, 2.0**10
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("units", [*UNITS, "nanometres"])
def test_a_controlled_vibration_of_any_size_is_the_closed_form(units):
    """The integral of the controller is a first-order state, whose size is not known."""
    length, mass, time = (NANO, NANO**3, 1.0) if units == "nanometres" else UNITS[units]
    servo = mbd.PID("slide", kp=4 * mass / time**2, ki=2 * mass / time**3, kd=mass / time)
    model, start = oscillator(length, mass, time)
    motion = mbd.simulate(model.with_(forces={"spring": servo}), start, t1=20.0 * time)
    A = np.array([[0.0, 1.0, 0.0], [-4.0, -1.0, 1.0], [-2.0, 0.0, 0.0]])
    exact = np.array([expm(A * t) @ [0.1, 0.0, 0.0] for t in np.asarray(motion.ts) / time])
    found = np.asarray(motion.joint("slide").q) / length
    np.testing.assert_allclose(found, exact[:, 0], atol=3e-9)
    integral = np.asarray(motion.states.z)[:, 0] * time**2 / (mass * length)
    np.testing.assert_allclose(integral, exact[:, 2], atol=3e-9)


@pytest.mark.long
def test_states_that_leave_zero_suddenly_are_accurate():
    """The setpoint jumps within a step. Errors are those of small motions, not of the unit of z."""
    (model, _), target = oscillator(1.0, 1.0, 1.0), 1e-6
    jump = mbd.signals.Function(lambda t: jnp.where(t > 0.37, target, 0.0))
    servo = mbd.PID("slide", kp=4.0, ki=2.0, kd=1.0, setpoint=jump)
    motion = mbd.simulate(model.with_(forces={"spring": servo}), {}, t1=5.0)
    A = np.array([[0.0, 1, 0, 0], [-4, -1, 1, 4], [-2, 0, 0, 2], [0, 0, 0, 0]])
    after = np.maximum(np.asarray(motion.ts) - 0.37, 0.0)
    exact = [(expm(A * t) @ [0, 0, 0, target])[0] for t in after]
    np.testing.assert_allclose(motion.joint("slide").q, exact, atol=1e-5 * target)


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
    """No step depends on units of length, mass and time: motions are equal to rounding.

    Gains of Baumgarte's terms, the default beside constraints, are per second.
    """
    joint = isinstance(formulation, mbd.JointCoordinates)
    method = None if joint else mbd.ExplicitRK(stabilization=mbd.Projection())

    def motion(length, mass, time):
        model, start, rates = build(length, mass, time)
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, start, rates, hold=list(rates))
        span = 0.02 if build is beam else 1.0
        found = mbd.simulate(system, state, t1=span * time, integrator=method, throw=False)
        assert found.result == mbd.RESULTS.successful
        q, v = (np.asarray(x) for x in system.sizes(jnp.asarray(length)))
        return np.asarray(found.states.q) / q, np.asarray(found.states.v) / (v / time)

    reference = motion(1.0, 1.0, 1.0)
    for name in ["small", "large and slow"] if build is beam else UNITS:
        for found, expected in zip(motion(*UNITS[name]), reference, strict=True):
            limit = 1e-10 * np.abs(expected).max()
            np.testing.assert_allclose(found, expected, rtol=0, atol=limit, err_msg=name)


def equilibria(formulation, length, mass, time):
    """The equilibrium of the slider-crank, and its natural frequency."""
    model, start, _ = slider_crank(length, mass, time)
    system = mbd.formulate(model, formulation)
    rest = mbd.equilibrium(system, mbd.assemble(system, start), method="newton")
    slide = mbd.joint_states(system, 0.0, rest.state)["guide"].q
    return slide / length, rest.eigenvalues * time**2


def driven(formulation, length, mass, time):
    """Kinematics of the slider-crank with a driver."""
    model, start, _ = slider_crank(length, mass, time)
    motor = joints.Driver("bearing", mbd.signals.Sine(0.5, 2.0 / time, 0.4))
    system = mbd.formulate(model.with_(drivers={"motor": motor}), formulation)
    motion = mbd.kinematics(system, np.linspace(0.0, 0.3, 7) * time, start)
    slide = motion.joint("guide")
    return slide.q / length, slide.v * time / length


def fitted(formulation, length, mass, time):
    """A mass from readings of a slide in the unit of length."""
    model, start = oscillator(length, mass, time)
    ts = np.linspace(0.0, 6.0, 13)
    w = np.sqrt(1 - 0.05**2)
    exact = np.exp(-0.05 * ts) * (np.cos(w * ts) + 0.05 / w * np.sin(w * ts))
    readings = 0.1 * length * (exact + 0.01 * np.cos(37 * ts))
    record = mbd.Experiment(ts * time, {"slide": readings}, guess=start)
    heavy = model.with_(bodies={"box": mbd.inertia.box(1.5 * mass, [length] * 3)})
    fit = mbd.identify(heavy, record, ["bodies.box.mass"], formulation=formulation)
    return (np.asarray(fit.model.bodies["box"].mass) / mass,)


def buckled(formulation, length, mass, time):
    """The critical load of a hinged rod."""
    tip = mbd.Frame("rod", [length, 0.0, 0.0])
    stiffness = mass * (length / time) ** 2
    model = mbd.Model(
        {"rod": mbd.inertia.shifted(mbd.inertia.rod(mass, length), [0.5 * length, 0, 0])},
        {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        {
            "spring": forces.TorsionalSpringDamper("hinge", stiffness),
            "load": forces.AppliedForce(tip, [-mass * length / time**2, 0, 0]),
        },
    )
    system = mbd.formulate(model, formulation)
    return (mbd.buckling(system, mbd.assemble(system), "load").factors,)


ANALYSES = {
    "equilibria": equilibria,
    "driven": driven,
    "fitted": fitted,
    "buckled": buckled,
}


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(["buckled"], ANALYSES))
def test_results_do_not_depend_on_units(name):
    """Models in kilograms and micrometres or kilometres, and small ones in SI units."""
    units = [(1 / MICRO, 1.0, 1.0), (MILLI, 1.0, 1.0), UNITS["micrometres"], UNITS["small"]]
    for formulation in ALL:
        reference = ANALYSES[name](formulation, 1.0, 1.0, 1.0)
        for unit in units:
            for found, expected in zip(ANALYSES[name](formulation, *unit), reference, strict=True):
                scale = float(np.max(np.abs(np.asarray(expected))))
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * scale)


@pytest.mark.long
@pytest.mark.parametrize("units", UNITS)
def test_small_inertias_have_an_inverse_in_single_precision(units):
    model, _ = oscillator(*UNITS[units])
    model = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), model)
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    state = mbd.assemble(system)
    v = jnp.arange(1.0, 7.0, dtype=jnp.float32)
    c = system.configuration(jnp.zeros((), jnp.float32), state.q)
    np.testing.assert_allclose(system.solve_mass(c, system.apply_mass(c, v)), v, rtol=1e-5)


@pytest.mark.long
def test_springs_at_rest_are_in_equilibrium_in_any_unit():
    """Two links on stiff springs, without other loads: loads at rest are rounding errors."""
    angles = jnp.array([0.3, 0.4])

    def links(length, mass, time):
        def at(x, y):
            return length * jnp.array([x, y, 0.0])

        body = mbd.inertia.principal(mass, mass * length**2 / 12 * jnp.ones(3))
        body = mbd.inertia.shifted(body, at(0.5, 0.0))
        near = jnp.array([jnp.cos(0.3), jnp.sin(0.3)])
        far = near + jnp.array([jnp.cos(0.7), jnp.sin(0.7)])
        springs = {
            name: forces.SpringDamper(
                mbd.Frame("ground", at(*anchor)),
                mbd.Frame(link, at(1.0, 0.0)),
                1e9 * mass / time**2,
                rest_length=length * jnp.linalg.norm(tip - jnp.array(anchor)),
            )
            for name, link, anchor, tip in [
                ("first", "near", (0.0, 0.7), near),
                ("second", "far", (0.9, 1.3), far),
            ]
        }
        return mbd.Model(
            {"near": body, "far": body},
            {
                "root": joints.Revolute(mbd.ground, "near", axis=[0, 0, 1]),
                "knee": joints.Revolute(mbd.Frame("near", at(1.0, 0.0)), "far", axis=[0, 0, 1]),
            },
            springs,
        )

    @jax.jit
    def run(unit, start):
        system = mbd.formulate(links(*unit), mbd.JointCoordinates())
        state = mbd.assemble(system, {"root": start[0], "knee": start[1]})
        found = mbd.equilibrium(system, state, throw=False)
        joint = mbd.joint_states(system, 0.0, found.state)
        ended = found.result == mbd.RESULTS.successful
        return jnp.stack([joint["root"].q, joint["knee"].q]), found.eigenvalues, ended

    expected = run(jnp.ones(3), angles)[1]
    for unit in ((1.0, 1.0, 1.0), (1.0, 1.0, MICRO**-2), *UNITS.values()):
        for start in (angles, angles + jnp.array([-0.05, 0.1])):
            found, eigenvalues, ended = run(jnp.array(unit), start)
            assert ended, unit
            np.testing.assert_allclose(found, angles, atol=1e-14)
            np.testing.assert_allclose(eigenvalues * unit[2] ** 2, expected, rtol=1e-9)

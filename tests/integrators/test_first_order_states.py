"""First-order states in every integrator: a motor's current coupled to a pendulum."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.model.frame import JointReference
from tests.marks import thorough_but

N, RESISTANCE, CONSTANT = 80, 2.0, 1.5


def voltage(t):
    return 4.0 + jnp.sin(3.0 * t)


class Winding(forces.AbstractJointElement):
    """L di/dt = u(t) - R i + b i² - k v, torque k i; with b > 0 it can burn out."""

    joint: JointReference
    inductance: Float[Array, ""]
    boost: Float[Array, ""]

    @property
    def n_states(self):
        return 1

    def load(self, t, q, v, z):
        return CONSTANT * z

    def state_rates(self, t, q, v, z):
        drop = RESISTANCE * z - self.boost * z**2
        return (voltage(t) - drop - CONSTANT * v) / self.inductance


class Resistor(forces.AbstractJointForce):
    """The winding without inductance."""

    joint: JointReference

    def force(self, t, q, v):
        return CONSTANT * (voltage(t) - CONSTANT * v) / RESISTANCE


ROD = mbd.inertia.shifted(mbd.inertia.rod(mass=1.0, length=1.0, radius=0.05), [0.5, 0, 0])


def model(motor):
    hinge = joints.Revolute("ground", Frame("rod"), [0, 1, 0])
    return mbd.Model({"rod": ROD}, {"hinge": hinge}, {"motor": motor, "gravity": forces.Gravity()})


def wound(inductance, boost=0.0):
    return model(Winding(JointReference("hinge"), jnp.asarray(inductance), jnp.asarray(boost)))


JOINT, MAXIMAL = mbd.JointCoordinates(), mbd.MaximalCoordinates()
NATURAL = mbd.NaturalCoordinates(rigid=True)
METHODS = {
    "explicit": (None, JOINT, 5),
    "explicit, maximal": (diffrax.Heun(), MAXIMAL, 2),
    "alpha": (mbd.GeneralizedAlpha(0.8), JOINT, 2),
    "alpha 0": (mbd.GeneralizedAlpha(0.0), JOINT, 2),
    "trapezoidal": (mbd.GeneralizedAlpha.trapezoidal(), JOINT, 2),
    "alpha, maximal": (mbd.GeneralizedAlpha(0.8), MAXIMAL, 2),
    "alpha, index 2": (mbd.GeneralizedAlpha(0.8, index=2), MAXIMAL, 2),
    "bdf 2": (mbd.BDF(2), JOINT, 2),
    "bdf 2, maximal": (mbd.BDF(2), MAXIMAL, 2),
    "bdf 4": (mbd.BDF(4), JOINT, 4),
    "energy-momentum": (mbd.EnergyMomentum(), MAXIMAL, 2),
    "energy-decaying": (mbd.EnergyDecaying(), MAXIMAL, 2),
    "simo-gonzalez": (mbd.SimoGonzalez(), NATURAL, 2),
}
REGULAR = ["explicit", "alpha"]
IMPLICIT = [name for name in METHODS if not name.startswith("explicit")]
# Those that end a fast decay instead of letting it oscillate, by more than 2 digits in 10 steps.
DAMPING = ["alpha 0", "bdf 2", "bdf 2, maximal", "bdf 4", "energy-decaying"]

# Rows of [step, inductance, current at the start, boost].
INDUCTANCE, CHANGE = 0.5, 1e-4
TINY = 1e-4 * RESISTANCE / N  # A time constant of 1e-4 of the step.
SETTLED = (4.0 - CONSTANT * 0.5) / RESISTANCE
ROWS = {
    "20 steps": (1 / 20, INDUCTANCE, 0.4, 0.0),
    "40 steps": (1 / 40, INDUCTANCE, 0.4, 0.0),
    "80 steps": (1 / 80, INDUCTANCE, 0.4, 0.0),
    "more": (1 / 80, INDUCTANCE + CHANGE, 0.4, 0.0),
    "less": (1 / 80, INDUCTANCE - CHANGE, 0.4, 0.0),
    "stiff": (1 / 80, TINY, SETTLED, 0.0),
    "unsettled": (1 / 80, TINY, SETTLED + 1.0, 0.0),
    "burnt out": (1 / 80, 1e-3, 10.0, 1e4),
}
LIST = jnp.asarray(list(ROWS.values()))


def start(formulation):
    system = mbd.formulate(wound(INDUCTANCE), formulation)
    return mbd.assemble(system, {"hinge": 0.3}, {"hinge": 0.5})


def seen(system, states):
    """Angle, rate and current at every time."""

    def one(state):
        R = system.frames(0.0, state.q)["rod"].R
        rate = system.twists(0.0, state.q, state.v)["rod"][4]
        return jnp.stack([jnp.arctan2(-R[2, 0], R[0, 0]), rate, state.z[0]])

    return jax.vmap(one)(states)


def motion(method, formulation, state, row):
    """Angle, rate and current after each of `N` steps."""
    h, inductance, current, boost = row
    system = mbd.formulate(wound(inductance, boost), formulation)
    state = mbd.State(state.q, state.v, current[None])
    return seen(system, mbd.rollout(system, state, h, N, method))


@eqx.filter_jit
def motions(method, formulation, state, rows):
    return jax.lax.map(lambda row: motion(method, formulation, state, row), rows)


@pytest.fixture(scope="module")
def found():
    """Motions of a method for all rows, by name."""
    kept = {}

    def of(name):
        if name not in kept:
            method, formulation, _ = METHODS[name]
            each = np.asarray(motions(method, formulation, start(formulation), LIST))
            kept[name] = dict(zip(ROWS, each, strict=True))
        return kept[name]

    return of


@pytest.fixture(scope="module")
def exact():
    """With and without inductance, at 80 times within a second."""
    fine = motions(diffrax.Dopri8(), JOINT, start(JOINT), LIST[2:3])[0]
    system = mbd.formulate(model(Resistor(JointReference("hinge"))), JOINT)
    state = mbd.assemble(system, {"hinge": 0.3}, {"hinge": 0.5})
    states = mbd.rollout(system, state, 1 / N, N, diffrax.Dopri8())
    times = np.arange(1, N + 1) / N
    current = (voltage(times) - CONSTANT * states.v[:, 0]) / RESISTANCE
    return np.asarray(fine), np.stack([states.q[:, 0], states.v[:, 0], current], axis=1)


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(REGULAR, METHODS))
def test_order(found, exact, name):
    """Errors of angle, rate and current together; largest errors at 20 times."""
    order, motion = METHODS[name][2], found(name)
    errors = [
        np.abs(motion[f"{n} steps"][n // 20 - 1 : n : n // 20] - exact[0][3::4]).max(axis=0)
        for n in (20, 40, 80)
    ]
    slope = np.log2(errors[1] / errors[2])
    np.testing.assert_array_less(order - 0.35, slope)
    assert np.max(errors[2]) < (2e-2 if order == 2 else 5e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(REGULAR[1:], IMPLICIT))
def test_a_time_constant_far_below_the_step(found, exact, name):
    stiff = found(name)["stiff"]
    np.testing.assert_allclose(stiff, exact[1], atol=0.015)


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(REGULAR[1:], IMPLICIT))
def test_a_start_off_the_fast_decay(found, exact, name):
    """The motion hardly sees it; the current oscillates where the method damps nothing."""
    motion = found(name)["unsettled"]
    np.testing.assert_allclose(motion[:, :2], exact[1][:, :2], atol=0.08)
    off = np.abs(motion[:, 2] - exact[1][:, 2])
    assert off.max() < 1.2
    if name in DAMPING:
        assert off[10:].max() < 0.015


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(REGULAR[1:], IMPLICIT))
def test_states_without_solution_end_a_rollout(found, name):
    assert np.isnan(found(name)["burnt out"][-1]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(REGULAR[1:], METHODS))
def test_gradient_by_the_inductance(found, name):
    method, formulation, _ = METHODS[name]
    by_difference = (found(name)["more"][-1] - found(name)["less"][-1]) / (2.0 * CHANGE)
    along, state = jnp.zeros(4).at[1].set(1.0), start(formulation)

    def end(row):
        return motion(method, formulation, state, row)[-1]

    forward = eqx.filter_jit(lambda row: jax.jvp(end, (row,), (along,))[1])(LIST[2])
    np.testing.assert_allclose(forward, by_difference, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_gradient_in_reverse(found, name):
    method, formulation, _ = METHODS[name]
    by_difference = (found(name)["more"][-1] - found(name)["less"][-1]) / (2.0 * CHANGE)
    weights, state = jnp.asarray([1.0, -0.7, 0.4]), start(formulation)

    @eqx.filter_jit
    def slope(row):
        return jax.grad(lambda row: weights @ motion(method, formulation, state, row)[-1])(row)

    assert slope(LIST[2])[1] == pytest.approx(float(weights @ by_difference), rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", thorough_but(REGULAR[:1], METHODS))
def test_batches(found, name):
    """Lanes of different steps and inductances, one without solution."""
    method, formulation, _ = METHODS[name]
    state = start(formulation)
    together = jax.jit(jax.vmap(lambda row: motion(method, formulation, state, row)))(LIST)
    rows = [i for i, row in enumerate(ROWS) if row not in ("stiff", "unsettled", "burnt out")]
    each = np.stack(list(found(name).values()))
    np.testing.assert_allclose(together[jnp.asarray(rows)], each[rows], rtol=1e-9, atol=1e-10)


ADAPTIVE = {
    "alpha": mbd.GeneralizedAlpha(0.8),
    "bdf": mbd.BDF(3),
    "explicit": diffrax.Tsit5(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", thorough_but(["alpha"], ADAPTIVE))
def test_adaptive_steps(exact, name):
    """If a pendulum moves slowly, the current alone sets the steps."""
    system, state = mbd.formulate(wound(INDUCTANCE), JOINT), start(JOINT)
    state = mbd.State(state.q, state.v, jnp.asarray([0.4]))

    @jax.jit
    def run(tolerance):
        solution = mbd.simulate(
            system,
            state,
            t1=1.0,
            controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            integrator=ADAPTIVE[name],
            saveat=jnp.arange(1, N + 1) / N,
        )
        return seen(system, solution.states), solution.raw.stats["num_steps"]

    (coarse, few), (fine, many) = run(1e-3), run(1e-6)
    off = [np.abs(np.asarray(x) - exact[0]).max(axis=0) for x in (coarse, fine)]
    np.testing.assert_array_less(off[1], [5e-4] * 3)
    np.testing.assert_array_less(off[1], 0.3 * off[0] + 1e-6)
    assert few < many


class Alone(forces.AbstractJointElement):
    """A current that nothing acts on and that acts on nothing."""

    joint: JointReference
    decay: Float[Array, ""]

    @property
    def n_states(self):
        return 1

    def load(self, t, q, v, z):
        return 0.0 * z

    def state_rates(self, t, q, v, z):
        return 3.0 * jnp.cos(20.0 * t) - self.decay * z


@pytest.mark.thorough
@pytest.mark.parametrize(
    "method",
    [
        mbd.GeneralizedAlpha(0.8),
        *(pytest.param(m, marks=pytest.mark.thorough) for m in (mbd.BDF(2), mbd.BDF(4))),
    ],
    ids=lambda method: type(method).__name__,
)
def test_error_of_states_alone_sets_the_steps(method):
    """The rod hangs at rest."""
    system = mbd.formulate(model(Alone(JointReference("hinge"), jnp.asarray(5.0))), JOINT)
    state = mbd.assemble(system, {"hinge": jnp.pi / 2}, states={"motor": 0.2})

    @jax.jit
    def run(tolerance):
        controller = diffrax.PIDController(rtol=0.0, atol=tolerance)
        given = {"t1": 1.0, "controller": controller, "integrator": method}
        solution = mbd.simulate(system, state, saveat=diffrax.SaveAt(t1=True), **given)
        return solution.states.z[-1, 0], solution.raw.stats["num_steps"]

    t = 1.0
    forced = 3.0 * (5.0 * np.cos(20.0 * t) + 20.0 * np.sin(20.0 * t)) / 425.0
    exact = forced + (0.2 - 15.0 / 425.0) * np.exp(-5.0 * t)
    (coarse, few), (fine, many) = run(1e-4), run(1e-6)
    assert abs(fine - exact) < 0.2 * abs(coarse - exact) + 1e-7
    assert abs(fine - exact) < 1e-4
    assert 20 < few < many / 1.8


class Sampled(forces.AbstractJointElement):
    """A torque that is set from the motion every 0.1 s and held in between."""

    joint: JointReference
    gain: Float[Array, ""]
    every: Float[Array, ""]

    @property
    def n_states(self):
        return 1

    @property
    def period(self):
        return self.every

    def load(self, t, q, v, z):
        return z

    def state_rates(self, t, q, v, z):
        return jnp.zeros_like(z)

    def update(self, t, q, v, z):
        return -self.gain * (q + v) - 0.1 * z


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        mbd.ExplicitRK(),
        *(
            pytest.param(m, marks=pytest.mark.thorough)
            for m in (mbd.GeneralizedAlpha(0.8), mbd.BDF(2))
        ),
    ],
    ids=lambda method: type(method).__name__,
)
def test_sampled_elements(method):
    """They act at the start of a step, and the method then starts again."""
    element = Sampled(JointReference("hinge"), jnp.asarray(3.0), jnp.asarray(0.1))
    system = mbd.formulate(model(element), JOINT)
    state = mbd.assemble(system, {"hinge": 0.3}, {"hinge": 0.5})
    h = 0.025
    states = mbd.rollout(system, state, h, 12, method)
    one_period = eqx.filter_jit(lambda state, t: mbd.rollout(system, state, h, 4, method, t))
    parts, last = [], state
    for k in range(3):  # A rollout of its own for each period.
        part = one_period(last, 0.1 * k)
        parts.append(part)
        last = jax.tree.map(lambda x: x[-1], part)
    expected = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    for part in "qvz":
        np.testing.assert_allclose(
            getattr(states, part), getattr(expected, part), rtol=1e-9, atol=1e-11
        )
    first = -3.0 * (0.3 + 0.5)
    np.testing.assert_allclose(states.z[:4, 0], first, rtol=1e-12)
    assert abs(states.z[4, 0] - first) > 0.1
    saved = diffrax.SaveAt(ts=h * np.arange(1, 13))
    until = {"t1": 12 * h, "dt": h, "max_steps": 20, "saveat": saved}
    solution = mbd.simulate(system, state, integrator=method, **until)
    np.testing.assert_allclose(solution.states.q, states.q, rtol=1e-9)
    np.testing.assert_allclose(solution.states.v, states.v, rtol=1e-9)


@pytest.mark.thorough
def test_a_current_that_has_no_solution_is_an_error_that_names_the_step():
    system, state = mbd.formulate(wound(1e-3, 1e4), JOINT), start(JOINT)
    state = mbd.State(state.q, state.v, jnp.asarray([10.0]))
    with pytest.raises(mbd.SimulationError, match=r"no solution of the step of 0\.01 s from t = 0"):
        mbd.simulate(system, state, t1=0.1, dt=0.01, integrator=mbd.GeneralizedAlpha(0.8))

"""Linearization against closed forms, other formulations and nonlinear motions."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Jaxpr

import jaxmbd as mbd
from jaxmbd import Frame, ModelError, OperatingPointWarning, forces, joints, sensors
from tests.linearization import linearized_models as models
from tests.marks import thorough_but
from tests.models import name_of

REGULAR = models.FORMULATIONS[:2]


def eigenvalues(A) -> np.ndarray:
    return np.sort_complex(np.linalg.eigvals(np.asarray(A)))


@pytest.mark.long
@pytest.mark.parametrize("formulation", thorough_but(REGULAR[:1], models.FORMULATIONS), ids=name_of)
def test_cart_pendulum(formulation):
    system = mbd.formulate(models.cart_pendulum(), formulation)
    outputs = {
        "position": sensors.JointPosition("slide"),
        "acceleration": sensors.Accelerometer("cart"),
    }
    linear = mbd.linearize(
        system, 0.0, mbd.assemble(system), inputs={"force": "push"}, outputs=outputs
    )
    A, B = models.cart_pendulum_matrices()
    assert linear.states == ("slide", "pivot", "slide rate", "pivot rate")
    assert linear.inputs == ("force",)
    assert linear.outputs == ("position", *(f"acceleration[{i}]" for i in range(3)))
    np.testing.assert_allclose(linear.A, A, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(linear.B, B, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(linear.C, [[1, 0, 0, 0], A[2], [0] * 4, [0] * 4], atol=1e-11)
    np.testing.assert_allclose(linear.D, [[0], B[2], [0], [0]], atol=1e-12)
    np.testing.assert_allclose(linear.reading, [0, 0, 0, models.GRAVITY], atol=1e-12)
    scipy_model = linear.to_scipy()
    np.testing.assert_array_equal(scipy_model.A, linear.A)
    response = linear.frequency_response([1.0, 3.0])
    C, D = np.asarray(linear.C), np.asarray(linear.D)
    G = C @ np.linalg.solve(3j * np.eye(4) - A, B) + D
    np.testing.assert_allclose(response.values[1], G, rtol=1e-12, atol=1e-14)


@pytest.fixture(scope="module")
def four_bar_point() -> tuple[float, dict[str, float], complex]:
    """Angle of the crank in equilibrium, its joint angles, and λ of θ̈ = -(V'' θ + c θ̇)/m."""

    def positions(theta):
        """Joint angles and centres of mass by the intersection of two circles, x right, z up."""
        turn = lambda a: jnp.stack([jnp.cos(a), -jnp.sin(a)])  # noqa: E731
        A, B = 0.3 * turn(theta), jnp.array([0.6, 0.0])
        d = B - A
        D = jnp.sqrt(d @ d)
        along = (0.7**2 - 0.5**2 + D**2) / (2 * D)
        height = jnp.sqrt(0.7**2 - along**2)
        P = A + along * d / D + height * jnp.stack([-d[1], d[0]]) / D
        coupler = jnp.arctan2(-(P - A)[1], (P - A)[0])
        rocker = jnp.arctan2(-(P - B)[1], (P - B)[0])
        centres = jnp.stack([A / 2, (A + P) / 2, (B + P) / 2])
        return centres, jnp.stack([theta, coupler, rocker])

    masses, lengths = 1.0 + jnp.array([0.3, 0.7, 0.5]), jnp.array([0.3, 0.7, 0.5])

    def potential(theta):
        centres, _ = positions(theta)
        stretch = centres[1] - jnp.array([0.2, 0.9])
        weight = models.GRAVITY * masses @ centres[:, 1]
        return weight + 15.0 * stretch @ stretch + 2.0 * (theta - models.REST) ** 2

    def inertia(theta):
        moved, turned = jax.jvp(positions, (theta,), (jnp.ones(()),))[1]
        return masses @ (jnp.sum(moved**2, axis=1) + lengths**2 / 12 * turned**2)

    theta = jnp.asarray(models.GUESS["left"])
    for _ in range(20):
        theta = theta - jax.grad(potential)(theta) / jax.hessian(potential)(theta)
    assert abs(jax.grad(potential)(theta)) < 1e-12
    stiffness, m, c = jax.hessian(potential)(theta), inertia(theta), 0.05
    value = complex(-c / (2 * m), np.sqrt(stiffness / m - (c / (2 * m)) ** 2))
    _, angles = positions(theta)
    guess = {"left": angles[0], "crank pin": angles[1] - angles[0], "right": angles[2]}
    return float(theta), {name: float(x) for name, x in guess.items()}, value


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", models.FORMULATIONS[::2], ids=name_of)
def test_prestressed_four_bar(formulation, four_bar_point):
    _, guess, expected = four_bar_point
    system = mbd.formulate(models.four_bar(), formulation)
    state = mbd.assemble(system, guess, hold=("left",))
    linear = mbd.linearize(system, 0.0, state, coordinates=["left"])
    np.testing.assert_allclose(
        eigenvalues(linear.A), [expected.conjugate(), expected], rtol=1e-10, atol=0
    )


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", REGULAR, ids=name_of)
def test_redundant_loop(formulation):
    system = mbd.formulate(models.door(), formulation)
    linear = mbd.linearize(system, 0.0, mbd.assemble(system, {"lower": 0.2, "upper": 0.2}))
    J = models.DOOR_INERTIA
    np.testing.assert_allclose(linear.A, [[0, 1], [-3.0 / J, -2.0 / J]], rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_states_of_a_motor_and_a_controller():
    """J θ̈ = k i,  L i̇ = u - R i - k θ̇ with the PID's torque -kp θ - I - kd θ̇, İ = ki θ."""
    J, k, R, L, kp, ki, kd = 0.5 * 0.4**2 / 3 + 0.0, 0.3, 2.0, 0.1, 5.0, 3.0, 0.7
    rod = mbd.inertia.shifted(mbd.inertia.rod(0.5, 0.4), [0.2, 0, 0])
    model = mbd.Model(
        {"rod": rod},
        {"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 0, 1])},
        {
            "motor": forces.DCMotor("hinge", k, voltage=0.0, resistance=R, inductance=L),
            "pid": mbd.PID("hinge", kp=kp, ki=ki, kd=kd),
        },
    )
    system = mbd.formulate(model)
    linear = mbd.linearize(
        system,
        0.0,
        mbd.assemble(system),
        inputs={"u": "forces.motor.voltage", "target": "pid"},
        outputs={"current": sensors.ElementState("motor")},
    )
    assert linear.states == ("hinge", "hinge rate", "motor", "pid")
    A = [
        [0, 1, 0, 0],
        [-kp / J, -kd / J, k / J, 1 / J],
        [0, -k / L, -R / L, 0],
        [-ki, 0, 0, 0],
    ]
    np.testing.assert_allclose(linear.A, A, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        linear.B, [[0, 0], [0, kp / J], [1 / L, 0], [0, ki]], rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(linear.C, [[0, 0, 1, 0]], atol=0)


@pytest.mark.long
def test_motion_after_a_small_input(cart_system):
    """A motion under a small constant force F differs from the linear one by terms of order F³.

    The terms of order F² vanish, since the mechanism is its own mirror image.
    """
    from scipy.signal import lsim

    dt, n = 0.005, 100
    model = models.cart_pendulum()
    state = mbd.assemble(cart_system)
    linear = mbd.linearize(cart_system, 0.0, state, inputs={"force": "push"})
    ts = dt * np.arange(n + 1)
    given = np.asarray(linear.A), np.asarray(linear.B), np.eye(4), np.zeros((4, 1))

    def error(force):
        pushed = eqx.tree_at(lambda m: m.forces["push"].signal.value, model, jnp.asarray(force))
        moved = mbd.rollout(mbd.formulate(pushed), state, dt, n, mbd.ExplicitRK())
        x = np.concatenate([moved.q, moved.v], axis=1)
        _, y, _ = lsim(given, np.full(n + 1, force), ts)
        assert np.abs(x).max() > 0.1 * force
        return x - y[1:]

    ratio = np.abs(error(0.2)).max() / np.abs(error(0.1)).max()
    np.testing.assert_allclose(ratio, 8.0, rtol=0.05)


@pytest.mark.long
def test_conversion_to_control(cart_system):
    control = pytest.importorskip("control")
    position = {"position": sensors.JointPosition("slide")}
    linear = mbd.linearize(
        cart_system, 0.0, mbd.assemble(cart_system), inputs={"force": "push"}, outputs=position
    )
    converted = linear.to_control()
    assert isinstance(converted, control.StateSpace)
    for name in "ABCD":
        np.testing.assert_array_equal(getattr(converted, name), getattr(linear, name))
    assert tuple(converted.state_labels) == linear.states
    assert tuple(converted.input_labels) == linear.inputs == ("force",)
    assert tuple(converted.output_labels) == linear.outputs == ("position",)


def rolling_disc(radius: float, mass: float, rest: float) -> mbd.Model:
    """A thin disc on hinges for spin and lean, on a carriage in the plane; both are light."""
    I_d = mass * radius**2 / 4
    z = [0, 0, radius]
    light = mbd.inertia.principal(rest, [rest] * 3)
    return mbd.Model(
        {
            "carriage": light,
            "fork": light,
            "disc": mbd.inertia.principal(mass, [I_d, 2 * I_d, I_d]),
        },
        {
            "plane": joints.Planar(mbd.ground, "carriage", axis=[0, 0, 1]),
            "lean": joints.Revolute("carriage", "fork", axis=[1, 0, 0]),
            "spin": joints.Revolute(Frame("fork", z), "disc", axis=[0, 1, 0]),
            "contact": joints.RollingDisc(mbd.ground, "disc", radius),
        },
        {"gravity": forces.Gravity()},
    )


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", thorough_but(REGULAR[:1], REGULAR), ids=name_of)
def test_rolling_disc(formulation):
    """Lean φ of a disc that rolls straight: I' φ̈ + (J' J Ω² / I - m g r) φ = 0.

    I' = I + m r², J' = J + m r² with I about a diameter, J about the axis: stable if
    Ω² > m g r I / (J J'). Source: Neimark and Fufaev (1972), ch. III.
    """
    r, m, g = 0.5, 2.0, models.GRAVITY
    system = mbd.formulate(rolling_disc(r, m, 1e-8), formulation)
    inertia, spin = m * r**2 / 4, m * r**2 / 2
    for speed in (0.5, 2.0):
        rates = {"plane": [speed, 0, 0], "spin": speed / r}
        state = mbd.assemble(system, {}, rates, hold=tuple(rates))
        linear = mbd.linearize(system, 0.0, state)
        square = m * g * r - (spin + m * r**2) * spin * (speed / r) ** 2 / inertia
        root = np.emath.sqrt(square / (inertia + m * r**2))
        values = eigenvalues(linear.A)
        assert values.size == 8  # 5 positions, 3 velocities.
        for expected in (root, -root):
            nearest = np.argmin(np.abs(values - expected))
            np.testing.assert_allclose(values[nearest], expected, rtol=1e-6)
            values = np.delete(values, nearest)
        # Defective zeros are split by roots of rounding errors.
        np.testing.assert_allclose(values, 0.0, atol=1e-3)


@pytest.mark.parametrize("formulation", thorough_but(REGULAR[:1], REGULAR), ids=name_of)
def test_a_joint_without_coordinates(formulation):
    """A body in a plane on a massless rod, which is a distance: λ² = -g / l below its bearing."""
    length = 0.7
    model = mbd.Model(
        {"bob": mbd.inertia.box(2.0, [0.1, 0.1, 0.1])},
        {
            "plane": joints.Planar(mbd.ground, "bob", axis=[0, 1, 0]),
            "rod": joints.Distance(mbd.ground, "bob", length=length),
        },
        {"gravity": forces.Gravity()},
    )
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, {"plane": [0, length, 0]}, hold=["plane"])
    root = 1j * np.sqrt(models.GRAVITY / length)
    linear = mbd.linearize(system, 0.0, state)
    np.testing.assert_allclose(eigenvalues(linear.A), [-root, 0, 0, root], atol=1e-7)


@pytest.mark.thorough
def test_steady_rotation():
    """A ball on an arm of a freely turning shaft, about cos φ = g / (h Ω²).

    (a + i) φ̈ = a Ω² sin φ cos φ - m g h sin φ, a = m h², and (J + i + a sin² φ) Ω is constant.
    """
    h, m, J, i, speed, g = 0.6, 1.5, 4.0, 0.1, 7.0, models.GRAVITY
    model = mbd.Model(
        {
            "shaft": mbd.inertia.principal(1.0, [2.5, 2.5, J]),
            "ball": mbd.inertia.principal(m, [i] * 3, com=[0, 0, -h]),
        },
        {
            "shaft": joints.Revolute(mbd.ground, "shaft", axis=[0, 0, 1]),
            "arm": joints.Revolute("shaft", "ball", axis=[0, 1, 0]),
        },
        {"gravity": forces.Gravity()},
    )
    phi = np.arccos(g / (h * speed**2))
    found = []
    for formulation in REGULAR:
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, {"arm": phi, "shaft": 0.4}, {"shaft": speed})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.append(mbd.linearize(system, 0.0, state))
    s, c = np.sin(phi), np.cos(phi)
    a = m * h**2
    # δΩ = -2 a s c Ω δφ / (J + i + a s²).
    own = -a * speed**2 * np.cos(2 * phi) + m * g * h * c
    square = (own + 4 * a**2 * s**2 * c**2 * speed**2 / (J + i + a * s**2)) / (a + i)
    for linear in found:
        assert linear.states[0] == "shaft"
        largest = np.max(np.linalg.eigvals(linear.A).imag)
        np.testing.assert_allclose(largest**2, square, rtol=1e-10)
    np.testing.assert_allclose(found[0].A, found[1].A, atol=1e-9)


@pytest.mark.thorough
def test_points_that_are_not_steady():
    system = mbd.formulate(models.cart_pendulum())
    with pytest.warns(OperatingPointWarning, match=r"the rate of 'pivot rate' is 11\.4"):
        mbd.linearize(system, 0.0, mbd.assemble(system, {"pivot": 0.5}))
    # Accelerations vanish at this moment only.
    with pytest.warns(OperatingPointWarning, match=r"second derivative of 'pivot rate'"):
        mbd.linearize(system, 0.0, mbd.assemble(system, rates={"pivot": 0.5}))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("force", "slope"),
    [
        (forces.CoulombFriction("slide", 0.4, transition_velocity=0.01), 40.0),
        (forces.JointStop("slide", -0.1, 0.0, stiffness=1e4, damping=10.0, transition=1e-3), 0.0),
        (forces.LuGreFriction("slide", 0.4, 0.6, 0.1, 300.0, 2.0, 0.1), 2.1),
    ],
    ids=lambda x: type(x).__name__,
)
def test_friction_and_stops_at_rest(force, slope):
    """At rest, at the limit of a stop: dry friction is a damper of its slope at zero velocity."""
    model = models.cart_pendulum()
    system = mbd.formulate(mbd.Model(model.bodies, model.joints, model.forces | {"extra": force}))
    A = np.asarray(mbd.linearize(system, 0.0, mbd.assemble(system)).A)
    B = models.cart_pendulum_matrices()[1]
    assert np.all(np.isfinite(A))
    np.testing.assert_allclose(A[2:4, 2], -slope * B[2:, 0], rtol=1e-12)


MISUSES = {
    "unknown force 'pus'; known are 'gravity', 'push'": {"inputs": {"u": "pus"}},
    "no 'sinal'; known are": {"inputs": {"u": "forces.push.sinal"}},
    "force 'gravity' has 0 signals": {"inputs": {"u": "gravity"}},
    "unknown joint 'sled'; known are 'pivot', 'slide'": {"coordinates": ["sled", "pivot"]},
    "1 given, but 2 positions are independent": {"coordinates": ["slide"]},
    "sensor: unknown joint 'sled'": {"outputs": {"a": sensors.JointPosition("sled")}},
}


@pytest.mark.long
@pytest.mark.parametrize("message", MISUSES)
def test_misuse(message, cart_system):
    with pytest.raises(ModelError, match=message):
        mbd.linearize(cart_system, 0.0, mbd.assemble(cart_system), **MISUSES[message])


@pytest.fixture(scope="module")
def cart_system():
    return mbd.formulate(models.cart_pendulum())


@pytest.mark.long
def test_invalid_states(cart_system):
    state = mbd.assemble(cart_system)
    bad = mbd.State(state.q.at[1].set(jnp.nan), state.v)
    with pytest.raises(ModelError, match=r"state.q must be finite, and is not at \[1\]"):
        mbd.linearize(cart_system, 0.0, bad)
    system = mbd.formulate(models.door())
    wide = eqx.tree_at(
        lambda s: s.mechanism.offsets.p, system, system.mechanism.offsets.p.at[-1, 0].add(0.01)
    )
    with pytest.raises(ModelError, match=r"joints are open: '(upper|lower)' by 0.01"):
        mbd.linearize(wide, 0.0, mbd.assemble(system))
    with pytest.raises(ModelError, match=r"under jit, grad or vmap give coordinates="):
        jax.jit(lambda q: mbd.linearize(cart_system, 0.0, mbd.State(q, state.v)).A)(state.q)


@pytest.mark.thorough
def test_drivers_are_no_inputs():
    model = mbd.Model(
        {"rod": mbd.inertia.rod(1.0, 1.0)},
        {"hinge": joints.Revolute(mbd.ground, Frame("rod", [0.5, 0, 0]))},
        drivers={"drive": joints.Driver("hinge", 0.0)},
    )
    system = mbd.formulate(model)
    with pytest.raises(ModelError, match=r"'drive' prescribes a position"):
        mbd.linearize(system, 0.0, mbd.assemble(system), inputs={"u": "drive"})


def clamped_beam(E, formulation):
    """A clamped beam: elastic coordinates are the only ones that move."""
    section = mbd.flexible.Rectangle(0.01, 0.02)
    beam = mbd.flexible.beam(1.0, E, 8e10, 7850.0, section, n_elements=2, n_modes=2)
    tip = mbd.Frame("rod", node="tip")
    clamp = joints.Fixed("ground", mbd.Frame("rod", node="base"))
    load = forces.AppliedForce(tip, [-1.0, 0.0, 0.0])
    system = mbd.formulate(mbd.Model({"rod": beam}, {"clamp": clamp}, {"load": load}), formulation)
    return system, mbd.assemble(system)


ELASTIC = "among 'rod elastic\\[0\\]', 'rod elastic\\[1\\]'"


@pytest.mark.long
@pytest.mark.parametrize("caller", ["linearize", "buckling"])
@pytest.mark.parametrize("given", [(), ("rod elastic[1]",)])
def test_too_few_elastic_coordinates(caller, given):
    def result(E):
        system, state = clamped_beam(E, mbd.JointCoordinates())
        if caller == "linearize":
            return mbd.linearize(system, 0.0, state, coordinates=given).A[0, 0]
        return mbd.buckling(system, state, "load", coordinates=given).factors[0]

    with pytest.raises(ModelError, match=f"{caller}: coordinates: {len(given)} given.* {ELASTIC}"):
        result(2.1e11)
    with pytest.raises(
        ModelError, match=f"{caller}: coordinates: {len(given)} given.* 2.*{ELASTIC}"
    ):
        jax.grad(result)(2.1e11)


@pytest.mark.long
def test_unknown_elastic_coordinates():
    system, state = clamped_beam(2.1e11, mbd.JointCoordinates())
    with pytest.raises(ModelError, match=r"'rod'; known are 'rod elastic\[0\]', .* v\[0\] to v\[1"):
        mbd.linearize(system, 0.0, state, coordinates=["rod"])


def test_programs_are_not_printed(cart_system, monkeypatch):
    """JAX prints functions without a name for its messages: of `jax.linearize`, whole programs."""
    printed = []
    monkeypatch.setattr(Jaxpr, "__repr__", lambda _: printed.append(1) or "")

    def matrix(state: mbd.State) -> jax.Array:
        return mbd.linearize(cart_system, 0.0, state, coordinates=["slide", "pivot"]).A

    eqx.filter_eval_shape(matrix, mbd.assemble(cart_system))
    assert not printed


def test_bodies_of_springs_are_linearized_where_they_rest():
    """An equilibrium stretches them, which opens joints of rigid bodies."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])
    hinge = joints.Revolute("ground", "rod", axis=[0, 1, 0])
    spring = mbd.forces.TorsionalSpringDamper("hinge", 5.0, 0.1)
    forces = {"gravity": mbd.forces.Gravity(), "spring": spring}
    model = mbd.Model({"rod": rod}, {"hinge": hinge}, forces)

    def eigenvalues(system):
        rest = mbd.equilibrium(system, {"hinge": 0.3})
        return mbd.linearize(system, 0.0, rest.state).modes().eigenvalues

    expected = eigenvalues(mbd.formulate(model))
    found = eigenvalues(mbd.formulate(model, mbd.NaturalCoordinates()))
    np.testing.assert_allclose(found, expected, rtol=1e-6)

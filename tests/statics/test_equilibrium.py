"""Static equilibrium against closed forms and among methods and formulations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from benchmarks import rest_table
from jaxmbd import Frame, forces, ground, joints
from tests.marks import thorough_but
from tests.models import four_bar as open_four_bar

Y = (0.0, 1.0, 0.0)
RIGID = mbd.NaturalCoordinates(rigid=True)


def link(mass=1.7595, length=1.5):
    return mbd.inertia.shifted(
        mbd.inertia.rod(mass, length, radius=0.01), jnp.stack([0.5 * length, 0.0 * length, 0.0])
    )


def pendulum(**more):
    return mbd.Model(
        bodies={"rod": link()},
        joints={"hinge": joints.Revolute(ground, "rod", axis=Y)},
        forces={"gravity": forces.Gravity(), **more},
    )


@pytest.mark.parametrize("way", [mbd.JointCoordinates(), mbd.MaximalCoordinates(), RIGID])
def test_a_body_that_cannot_move_rests(way):
    """In some coordinates it has no velocities at all."""
    weld, gravity = {"weld": joints.Fixed(ground, "rod")}, {"gravity": forces.Gravity()}
    system = mbd.formulate(mbd.Model({"rod": link(mass=2.0)}, weld, gravity), way)
    rest = mbd.equilibrium(system)
    assert rest.stable
    np.testing.assert_allclose(rest.reactions["weld"][2], 2.0 * 9.81, rtol=1e-12)
    assert mbd.linearize(system, 0.0, rest.state).A.shape == (0, 0)
    path = mbd.load_path(system, rest.state, "gravity", [0.5, 1.0])
    assert np.asarray(path.converged).all()


def inverted(stiffness, mass=2.0, length=1.0):
    """A mass on a light rod that stands on a spring hinge; its angle from the vertical."""
    tip = mbd.RigidBody(mass, 1e-9 * np.eye(3), np.array([length, 0.0, 0.0]))
    frame = Frame("ground", quat=(np.sqrt(0.5), 0.0, -np.sqrt(0.5), 0.0))
    return mbd.Model(
        bodies={"rod": tip},
        joints={"hinge": joints.Revolute(frame, "rod", axis=Y)},
        forces={
            "gravity": forces.Gravity(),
            "spring": forces.TorsionalSpringDamper("hinge", stiffness),
        },
    )


def four_bar():
    """Four parallel hinges in a loop, and a spring on the crank."""
    model = open_four_bar()
    pin = joints.Revolute(Frame("crank", (0.5, 0, 0)), "coupler", axis=Y)
    return mbd.Model(
        bodies=model.bodies,
        joints={**model.joints, "crank pin": pin},
        forces={
            "gravity": forces.Gravity(),
            "spring": forces.TorsionalSpringDamper("left", 20.0, rest=-1.0),
        },
    )


def door(stiffness=3.0, mass=20.0, wind=1.0, high=1.8, tilt=0.0):
    """A door on two hinges, redundant, with a spring in one and a wind that stays along y.

    The line of the hinges is tilted in the plane of x and z [rad].
    """
    axis = jnp.stack([jnp.sin(tilt), jnp.zeros(()), jnp.cos(tilt)])
    size = 0.8, 0.05, 2.0

    def hinge(z):
        places = Frame("ground", z * axis), Frame("door", z * axis)
        return joints.Revolute(*places, axis=axis)

    return mbd.Model(
        bodies={"door": mbd.inertia.shifted(mbd.inertia.box(mass, size), (0.4, 0, 1))},
        joints={"lower": hinge(0.2), "upper": hinge(high)},
        forces={
            "gravity": forces.Gravity(),
            "spring": forces.TorsionalSpringDamper("lower", stiffness, rest=0.4),
            "wind": forces.AppliedForce(
                Frame("door", (0.8, 0, 1.0)), wind * jnp.array([0.0, 1.0, 0.0])
            ),
        },
    )


def wheel(gravity=(2.0, 0.0, -9.81), **more):
    return mbd.Model(
        bodies={"wheel": mbd.RigidBody(2.0, np.diag([0.1, 0.2, 0.1]), np.zeros(3))},
        joints={
            "plane": joints.Planar(ground, "wheel", axis=Y),
            "rim": joints.RollingDisc(ground, "wheel", 0.4),
        },
        forces={"gravity": forces.Gravity(gravity), **more},
    )


def angle(system, found, joint="hinge"):
    return mbd.joint_states(system, 0.0, found.state)[joint].q


@pytest.fixture(scope="module")
def hanging():
    return mbd.formulate(pendulum())


@pytest.mark.long
@pytest.mark.parametrize("method", thorough_but(["auto"], ["auto", "newton", "drainage"]))
def test_a_pendulum_falls_from_the_horizontal_to_the_bottom(hanging, method):
    found = mbd.equilibrium(hanging, mbd.assemble(hanging), method=method)
    assert float(angle(hanging, found)) == pytest.approx(np.pi / 2, abs=1e-12)
    potential = mbd.energy(hanging, 0.0, found.state).potential
    assert float(potential) == pytest.approx(-1.7595 * 9.81 * 0.75, rel=1e-14)
    assert round(float(potential), 4) == -12.9455
    assert found.stable
    assert found.free == ()
    assert found.result == mbd.RESULTS.successful
    expected = 1.5 * 9.81 / 1.5  # Uniform rod about its end: m g L/2 by m L²/3.
    assert float(found.eigenvalues[0]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.long
def test_drainage_counts_the_turns_that_it_wound(hanging):
    found = mbd.equilibrium(hanging, mbd.assemble(hanging, {"hinge": 0.1 + 2 * np.pi}))
    assert float(angle(hanging, found)) == pytest.approx(2.5 * np.pi, abs=1e-12)
    assert float(found.turned["hinge"]) == pytest.approx(np.pi / 2 - 0.1, abs=0.01)


@pytest.mark.thorough
def test_drainage_does_not_stop_where_a_motion_begins(hanging):
    """At the start nothing moves: kinetic energy and increment are zero, the force is not."""
    found = mbd.equilibrium(hanging, mbd.assemble(hanging), method=mbd.Drainage(tolerance=1e-3))
    assert float(angle(hanging, found)) == pytest.approx(np.pi / 2, abs=0.01)


@pytest.mark.thorough
def test_a_creeping_drainage_lengthens_its_steps(hanging):
    method = mbd.Drainage(omega=jnp.asarray(4.0 * 9.81**0.5))
    found = mbd.equilibrium(hanging, mbd.assemble(hanging), method=method)
    assert float(angle(hanging, found)) == pytest.approx(np.pi / 2, abs=1e-12)
    assert int(found.steps[0]) < 300


@pytest.mark.thorough
def test_other_numbers_of_a_method_use_the_same_program(hanging, caplog):
    state = mbd.assemble(hanging, {"hinge": 1.0})

    def solve(omega, max_steps, max_displacement):
        drain = mbd.Drainage(omega=omega, max_steps=max_steps)
        newton = mbd.StaticNewton(max_displacement=max_displacement)
        return [mbd.equilibrium(hanging, state, method=method) for method in (drain, newton)]

    solve(4.0, 2000, 1.0)
    with jax.log_compiles():
        drained, iterated = solve(3.0, 500, 0.3)
    assert not [record for record in caplog.records if "_equilibrium" in record.getMessage()]
    assert float(angle(hanging, drained)) == pytest.approx(np.pi / 2, abs=1e-12)
    assert int(iterated.steps[1]) > 2


@pytest.mark.long
def test_newton_names_an_unstable_equilibrium_and_auto_leaves_it(hanging):
    top = mbd.assemble(hanging, {"hinge": -np.pi / 2})
    with pytest.warns(mbd.UnstableEquilibriumWarning, match="'hinge' moves away"):
        found = mbd.equilibrium(hanging, top, method="newton")
    assert not found.stable
    assert found.unstable == ("hinge",)
    assert found.result == mbd.RESULTS.equilibrium_unstable
    with pytest.warns(mbd.UnstableEquilibriumWarning, match="left along"):
        found = mbd.equilibrium(hanging, top)
    assert found.stable
    assert int(found.left_unstable) == 1
    assert abs(np.sin(float(angle(hanging, found)))) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.long
def test_auto_drains_only_where_newtons_method_goes_uphill(hanging):
    near = mbd.equilibrium(hanging, mbd.assemble(hanging, {"hinge": 1.0}))
    assert near.steps.tolist()[0] == 0
    assert float(near.turned["hinge"]) == pytest.approx(np.pi / 2 - 1.0, abs=1e-12)
    far = mbd.equilibrium(hanging, mbd.assemble(hanging, {"hinge": -1.0}))
    assert float(far.steps[0]) > 0
    for found in (near, far):
        assert float(angle(hanging, found)) == pytest.approx(np.pi / 2, abs=1e-12)
        assert int(found.left_unstable) == 0


@pytest.mark.thorough
def test_auto_does_not_end_at_a_saddle_that_newtons_method_finds_downhill():
    """One of two pendulums is almost upright: their energy falls on the way to the saddle."""
    one = pendulum()
    model = mbd.Model(
        {"rod": link(), "second": link()},
        {**one.joints, "other": joints.Revolute(ground, "second", axis=Y)},
        one.forces,
    )
    system = mbd.formulate(model)
    state = mbd.assemble(system, {"hinge": -np.pi / 2 + 1e-3, "other": 1.0})
    found = mbd.equilibrium(system, state)
    assert found.stable
    assert int(found.left_unstable) == 0
    assert int(found.steps[0]) > 0
    # Downhill from the first state, not beyond the top.
    assert float(angle(system, found)) == pytest.approx(np.pi / 2, abs=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("load", [1.2, 2.0])
def test_a_spring_hinge_bends_as_theta_by_sine(load):
    """θ / sin θ = m g l / k beyond the pitchfork at k = m g l."""
    system = mbd.formulate(inverted(2.0 * 9.81 / load))
    found = mbd.equilibrium(system, mbd.assemble(system, {"hinge": 0.1}))
    theta = float(angle(system, found))
    assert theta / np.sin(theta) == pytest.approx(load, rel=1e-10)
    assert found.stable


@pytest.mark.long
def test_below_the_critical_load_the_spring_hinge_stands():
    system = mbd.formulate(inverted(2.0 * 9.81 / 0.8))
    found = mbd.equilibrium(system, mbd.assemble(system, {"hinge": 0.1}))
    assert float(angle(system, found)) == pytest.approx(0.0, abs=1e-12)
    # (k - m g l) / m l².
    assert float(found.eigenvalues[0]) == pytest.approx(9.81 / 0.8 - 9.81, rel=1e-6)


@pytest.fixture(scope="module")
def bar():
    system = mbd.formulate(four_bar())
    state = mbd.assemble(system, {"left": 0.3, "crank pin": -0.5})
    return system, state, mbd.equilibrium(system, state)


def _in_world(system, found, name):
    R = system.frames(0.0, found.state.q)[f"{name}.successor"].R
    return np.asarray(R @ found.reactions[name][:3])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("formulation", "method"),
    [
        (mbd.JointCoordinates(), "drainage"),
        (mbd.MaximalCoordinates(), "newton"),
        pytest.param(mbd.MaximalCoordinates(), "drainage", marks=pytest.mark.thorough),
        pytest.param(RIGID, "newton", marks=pytest.mark.thorough),
        pytest.param(RIGID, "drainage", marks=pytest.mark.thorough),
        (mbd.PointCoordinates(), "newton"),
        (mbd.PointCoordinates(), "drainage"),
    ],
)
def test_methods_and_formulations_agree_on_a_four_bar(bar, formulation, method):
    system, state, first = bar
    other = mbd.formulate(four_bar(), formulation)
    # All joints: from zeros the others may close the loop elsewhere, after several turns.
    guess = {name: x.q for name, x in mbd.joint_states(system, 0.0, state).items()}
    found = mbd.equilibrium(other, mbd.assemble(other, guess), method=method)
    for name in ("left", "right"):
        assert abs(angle(other, found, name) - angle(system, first, name)) < 1e-10
        expected = _in_world(system, first, name)
        assert np.abs(_in_world(other, found, name) - expected).max() < 1e-9
    assert float(found.eigenvalues[0]) == pytest.approx(float(first.eigenvalues[0]), rel=1e-9)
    # One for each degree of freedom, without those of directions that the loop holds.
    assert found.eigenvalues.shape == found.imaginary.shape == first.eigenvalues.shape == (1,)


@pytest.mark.thorough
def test_methods_agree_on_a_four_bar_of_springs(bar):
    """In natural coordinates whose springs stand in for rigidity, the same rest by both methods."""
    system, state, _ = bar
    other = mbd.formulate(four_bar(), mbd.NaturalCoordinates(1e6))
    guess = {name: x.q for name, x in mbd.joint_states(system, 0.0, state).items()}
    start = mbd.assemble(other, guess)
    drained, found = (
        mbd.equilibrium(other, start, method=method) for method in ("drainage", "newton")
    )
    for name in ("left", "right"):
        assert abs(angle(other, drained, name) - angle(other, found, name)) < 1e-10


@pytest.mark.thorough
def test_the_potential_of_a_four_bar_is_stationary_and_least(bar):
    system, _, found = bar
    energies = []
    for change in (-1e-3, 0.0, 1e-3):
        left = float(angle(system, found, "left")) + change
        near = {name: x.q for name, x in mbd.joint_states(system, 0.0, found.state).items()}
        moved = mbd.assemble(system, {**near, "left": left}, hold="left")
        energies.append(float(mbd.energy(system, 0.0, moved).potential))
    assert energies[1] < min(energies[0], energies[2])
    assert abs(energies[2] - energies[0]) < 1e-3 * (energies[0] + energies[2] - 2 * energies[1])


@pytest.mark.thorough
def test_redundant_hinges_share_reactions_of_minimum_norm():
    system = mbd.formulate(door())
    found = mbd.equilibrium(system, mbd.assemble(system, {"lower": 1.0}), method="newton")
    theta = float(angle(system, found, "lower"))
    assert 3.0 * (theta - 0.4) == pytest.approx(0.8 * np.cos(theta), abs=1e-12)
    lower, upper = (_in_world(system, found, name) for name in ("lower", "upper"))
    assert (lower + upper) == pytest.approx(np.array([0.0, -1.0, 20.0 * 9.81]), abs=1e-9)


@pytest.mark.thorough
def test_redundant_hinges_on_a_tilted_line_do_not_hold_a_door():
    """All rows of the second hinge are rounding errors: the door rests as on the first one."""
    model = door(tilt=0.3)
    single = mbd.Model(model.bodies, {"lower": model.joints["lower"]}, model.forces)
    angles = []
    for each in (model, single):
        system = mbd.formulate(each)
        start = mbd.assemble(system, dict.fromkeys(each.joints, 1.0))
        angles.append(
            float(angle(system, mbd.equilibrium(system, start, method="newton"), "lower"))
        )
    assert angles[0] == pytest.approx(angles[1], abs=1e-12)
    assert abs(angles[0] - 1.0) > 0.1


def rolling_wheel():
    """A wheel on a slope that a spring holds, and a state in which the spring is stretched."""
    system = mbd.formulate(
        wheel(spring=forces.SpringDamper(Frame("ground", (0, 0, 0.4)), "wheel", 50.0))
    )
    return system, mbd.assemble(system, {"plane": [0.4, -0.4, 0.0]})


@pytest.mark.thorough
def test_a_wheel_rolls_to_rest():
    system, state = rolling_wheel()
    found = mbd.equilibrium(system, state)
    x, _, turn = np.asarray(angle(system, found, "plane"))
    assert x == pytest.approx(2.0 * 2.0 / 50.0, abs=1e-12)
    assert abs(turn) == pytest.approx((0.4 - x) / 0.4, abs=1e-10)
    assert float(found.eigenvalues[0]) == pytest.approx(50.0 / (2.0 + 0.2 / 0.4**2), rel=1e-9)


@pytest.mark.thorough
def test_a_wheel_on_a_level_plane_is_free_and_on_a_slope_rolls_away():
    level = mbd.formulate(wheel((0.0, 0.0, -9.81)))
    state = mbd.assemble(level, {"plane": [0.7, -0.4, 0.2]})
    found = mbd.equilibrium(level, state)
    assert found.free == ("plane",)
    assert found.stable
    # Rounding errors of 1e-17 N in each of three steps, by the inertia that remains, 1e-8 of the
    # loads' own rate, are 5e-11.
    assert np.abs(found.state.q - state.q).max() < 2e-10
    slope = mbd.formulate(wheel())
    with pytest.raises(mbd.EquilibriumError, match="'plane' moves on without stiffness"):
        mbd.equilibrium(slope, state)
    lost = mbd.equilibrium(slope, state, throw=False)
    assert lost.result == mbd.RESULTS.unbounded_motion


@pytest.mark.thorough
def test_a_motor_rests_at_its_stall_torque():
    motor = forces.DCMotor(
        "hinge", 0.05, gear_ratio=50.0, voltage=3.0, resistance=1.2, inductance=0.01
    )
    system = mbd.formulate(pendulum(motor=motor))
    found = mbd.equilibrium(system, mbd.assemble(system, {"hinge": 0.2}))
    assert float(found.state.z[0]) == pytest.approx(3.0 / 1.2, rel=1e-12)
    torque = 50.0 * 0.05 * 3.0 / 1.2
    weight = 1.7595 * 9.81 * 0.75
    assert weight * np.cos(float(angle(system, found))) == pytest.approx(-torque, rel=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize(("tilt", "sticks"), [(0.3, True), (0.6, False)])
def test_bristles_hold_a_block_up_to_their_static_force(tilt, sticks):
    weight = 9.81 * np.sin(tilt), 0.0, -9.81 * np.cos(tilt)
    model = mbd.Model(
        bodies={"block": mbd.inertia.box(2.0, (0.1, 0.1, 0.1))},
        joints={"slide": joints.Prismatic(ground, "block", axis=(1, 0, 0))},
        forces={
            "gravity": forces.Gravity(weight),
            "friction": forces.LuGreFriction("slide", 6.0, 8.0, 0.01, 1e4, damping=100.0),
        },
    )
    system = mbd.formulate(model)
    state = mbd.assemble(system)
    if not sticks:
        with pytest.raises(mbd.EquilibriumError, match="'slide'"):
            mbd.equilibrium(system, state, method="newton")
        return
    found = mbd.equilibrium(system, state, method="newton")
    assert 1e4 * float(found.state.z[0]) == pytest.approx(2.0 * weight[0], rel=1e-10)


@pytest.mark.thorough
def test_held_joints_keep_their_coordinates_and_take_the_load(hanging):
    state = mbd.assemble(hanging, {"hinge": 0.3})
    found = mbd.equilibrium(hanging, state, hold="hinge")
    assert float(angle(hanging, found)) == pytest.approx(0.3, abs=1e-14)
    weight = 1.7595 * 9.81 * 0.75 * np.cos(0.3)
    assert abs(float(found.multipliers[0])) == pytest.approx(weight, rel=1e-12)
    slope = jax.grad(
        lambda q: angle(
            hanging, mbd.equilibrium(hanging, mbd.State(q, state.v), hold="hinge")
        ).sum()
    )
    assert float(slope(state.q)[0]) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.long
def test_loads_are_replaced_by_name(hanging):
    state = mbd.assemble(hanging, {"hinge": 0.3})
    sideways = mbd.equilibrium(hanging, state, load={"gravity": forces.Gravity((9.81, 0, 0))})
    assert float(angle(hanging, sideways)) == pytest.approx(0.0, abs=1e-12)
    half = mbd.equilibrium(hanging, state, load={"gravity": 0.5})
    assert float(half.eigenvalues[0]) == pytest.approx(0.5 * 9.81, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fast"}, "method must be"),
        ({"hold": "hing"}, "unknown joint 'hing'"),
        ({"hold": "hinge.1"}, "none of number 1"),
        ({"load": {"wind": 1.0}}, "unknown element 'wind'"),
        ({"load": {"gravity": forces.JointTorque("hinge", 1.0)}}, "which only one with the same"),
    ],
)
def test_invalid_arguments_are_named(hanging, options, message):
    with pytest.raises(mbd.ModelError, match=message):
        mbd.equilibrium(hanging, mbd.assemble(hanging), **options)


@pytest.mark.thorough
def test_a_free_body_falls_for_ever():
    model = mbd.Model({"stone": mbd.inertia.box(2.0, (0.1, 0.1, 0.1))}, {}, {"g": forces.Gravity()})
    system = mbd.formulate(model)
    with pytest.raises(mbd.EquilibriumError, match="'stone' moves on without stiffness"):
        mbd.equilibrium(system, mbd.assemble(system), method="newton")


@pytest.mark.long
def test_it_runs_under_jit_and_vmap(hanging):
    starts = jax.vmap(lambda a: mbd.State(a[None], jnp.zeros(1)))(jnp.array([0.0, 1.0, -1.4]))
    found = jax.jit(jax.vmap(lambda s: mbd.equilibrium(hanging, s, method="newton")))(starts)
    assert np.abs(np.cos(found.state.q)).max() < 1e-12
    assert found.stable.tolist() == [True, True, False]


@pytest.mark.long
def test_solves_with_bodies_without_joints():
    """The mass matrix of maximal coordinates for no right-hand side at all."""
    system = mbd.formulate(mbd.Model({"rod": link()}, {}, {}), mbd.MaximalCoordinates())
    c = system.configuration(0.0, mbd.assemble(system).q)
    none = jnp.zeros((system.nv, 0))
    assert system.solve_mass(c, none).shape == none.shape
    assert system.whiten(system.mass_factor(c), none).shape == none.shape


@pytest.mark.long
def test_a_rod_of_springs_rests_on_a_ball_joint():
    """Rounding errors of its stiff springs turn the thin rod about its axis as fast as loads."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), [0.25, 0, 0])
    ball = {"ball": joints.Spherical("ground", "rod")}
    model = mbd.Model({"rod": rod}, ball, {"gravity": mbd.forces.Gravity()})
    system = mbd.formulate(model, mbd.NaturalCoordinates())
    starts = np.random.default_rng(0).normal(size=(10, 4))
    for start in starts / np.linalg.norm(starts, axis=1)[:, None]:
        rest = mbd.equilibrium(system, {"ball": start})
        assert rest.stable
        lowest = -0.25 * 9.81
        np.testing.assert_allclose(mbd.energy(system, 0.0, rest.state).potential, lowest, rtol=1e-5)


@pytest.mark.long
def test_the_last_correction_of_a_step_counts():
    """A four-bar of springs is exact after several corrections; by the first one it was refused."""
    model = rest_table.four_bar(jnp.asarray(rest_table.NUMBERS))
    half = {"method": "newton", "load": {"gravity": 0.5}}
    tree, system = mbd.formulate(model), mbd.formulate(model, mbd.NaturalCoordinates())
    rigid = mbd.equilibrium(tree, {"left": 0.3}, **half)
    values = {name: joint.q for name, joint in mbd.joint_states(tree, 0.0, rigid.state).items()}
    rest = mbd.equilibrium(system, values, **half)
    for name in model.bodies:
        found, expected = (
            x.frames(0.0, y.state.q)[name].p for x, y in ((system, rest), (tree, rigid))
        )
        np.testing.assert_allclose(found, expected, atol=1e-4)

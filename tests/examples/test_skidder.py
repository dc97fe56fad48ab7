"""A grapple skidder that drops on a washboard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxmbd as mbd
from tests.examples import comparing

EXAMPLE = comparing.example("skidder")
STEP, AWAY = 2e-5, 1e-4  # Of the angles in differences, and beside the kink at rest [rad].


def test_strokes_follow_the_angles():
    """A stroke is zero in the reference position; its slope is the lever arm of the cylinder."""
    stroke = EXAMPLE["stroke"]
    for name, pin in (("arch", "arch pin"), ("boom", "boom pin")):
        assert float(stroke(name, 0.0, 0.0)) == pytest.approx(0.0, abs=1e-15)
        pins = {key: np.array(p)[[0, 2]] for key, p in EXAMPLE["PINS"].items()}
        along = pins[f"{name} eye"] - pins[f"{name} foot"]
        out = pins[f"{name} eye"] - pins[pin]
        # An angle about y turns z towards x.
        lever = (along[0] * out[1] - along[1] * out[0]) / np.hypot(*along)
        h, first = 1e-5, {"arch": (1.0, 0.0), "boom": (0.0, 1.0)}[name]
        ends = [float(stroke(name, s * h * first[0], s * h * first[1])) for s in (-1.0, 1.0)]
        assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(lever, rel=1e-8)


@pytest.mark.long
def test_the_model_has_two_loops_that_share_the_arch():
    topology = mbd.formulate(EXAMPLE["model"](), mbd.JointCoordinates()).mechanism.topology
    assert set(topology.loops) == {"arch eye", "boom eye"}
    names = topology.bodies[1:]
    weight = sum(float(EXAMPLE["model"]().bodies[name].mass) for name in names)
    assert len(names) == 15
    assert weight == pytest.approx(17_220.0)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_machine_drops_and_comes_to_rest(tmp_path):
    files = {name: tmp_path / f"{name}.png" for name in ("png", "energies", "modes")}
    motion, damped, rest, linear, (value, slopes) = EXAMPLE["main"](**files)
    kinetic, potential = np.asarray(EXAMPLE["energies_of"](motion)).T
    # It rolls back into the ditch, and loses energy.
    place = motion.frames["rear frame"].p
    assert place[-1, 0] < place[0, 0] - 0.2
    assert kinetic[-1] < 0.1 * kinetic.max()
    assert potential[-1] < potential[0] - 0.7e5
    drained = np.asarray(EXAMPLE["energies_of"](damped))[-1]
    assert drained[0] < 1e-3 * kinetic.max()
    assert drained[1] == pytest.approx(potential[-1], abs=3e3)
    # The ground bears the weight, and the machine is where the drained motion ended, nearly.
    system, still = motion.system, rest.state
    on_log = mbd.contacts(system, 0.0, still)["log on ground"].force
    on_tyres = mbd.tyre_contacts(system, 0.0, still)
    total = sum(x.force for x in on_tyres.values()) + jnp.sum(on_log, axis=0)
    weight = 9.81 * sum(float(x.mass) for x in EXAMPLE["model"]().bodies.values())
    np.testing.assert_allclose(total, [0.0, 0.0, weight], atol=1e-3 * weight)
    assert bool(rest.stable)
    assert float(rest.eigenvalues[0]) > 5.0
    loads, last = (
        np.asarray(EXAMPLE["wheel_loads"](system, state))
        for state in (still, jax.tree.map(lambda x: x[-1], damped.states))
    )
    np.testing.assert_allclose(loads, last, rtol=0.05)
    assert all(path.is_file() for path in files.values())
    assert linear.A.shape == (57, 57)
    assert EXAMPLE["slowest"](linear).real < -0.1
    assert float(value) == pytest.approx(loads.min() / loads.mean(), rel=1e-6)
    # Against differences of equilibria that are found again. At rest, the margin has a kink.
    find, at = EXAMPLE["margin_and_slopes"], dict.fromkeys(slopes, jnp.zeros(()))
    for name, slope in slopes.items():
        points = (-STEP, STEP, AWAY - STEP, AWAY, AWAY + STEP)
        found = [find(at | {name: jnp.float64(x)}, still) for x in points]  # Not of a weak type.
        left, right, low, _, high = (float(x) for x, _ in found)
        sides = (float(value) - left) / STEP, (right - float(value)) / STEP
        assert min(sides) < float(slope) < max(sides), name
        smooth = float(found[3][1][name])
        # Newton's method ends within some 1e-10 of the margin.
        assert (high - low) / (2 * STEP) == pytest.approx(smooth, rel=5e-6), name


def test_the_picture_is_painted():
    frames = {"frame": mbd.Pose(np.zeros(3), np.eye(3))}
    paint = comparing.example("skidder_picture")["paint"]
    bodies = [*EXAMPLE["BOXES"], "log", *(f"{name} wheel" for name in EXAMPLE["CORNERS"])]
    bodies += [f"{name} {part}" for name in EXAMPLE["CYLINDERS"] for part in ("barrel", "rod")]
    axes = Figure().add_subplot()
    paint(axes, EXAMPLE, dict.fromkeys(bodies, frames["frame"]))
    (faces,) = axes.collections
    assert len(faces.get_paths()) > 5000
    assert np.isfinite(axes.get_xlim()).all()


@pytest.mark.thorough
def test_pressures_of_the_oil_hold_like_its_spring():
    """Accelerations from the same strokes, with the pressures of these strokes."""
    model, above = EXAMPLE["model"], EXAMPLE["above"]
    spring = mbd.formulate(model(), mbd.JointCoordinates())
    state = above(spring, boom=1e-4)
    of_joints = mbd.joint_states(spring, 0.0, state)
    wanted, _ = mbd.accelerations(spring, 0.0, state)
    oil = mbd.formulate(model(pressures=True), mbd.JointCoordinates())
    rate = EXAMPLE["BULK"] / EXAMPLE["OIL"]
    state = above(oil, boom=1e-4)
    z = state.z
    for name in EXAMPLE["CYLINDERS"]:  # Assembly moves the other one by 3e-7 m.
        first, count = oil.mechanism.state_places[f"{name} oil"]
        pressures = rate * of_joints[f"{name} cylinder"].q * jnp.array([-1.0, 1.0])
        z = z.at[first : first + count].set(pressures)
    found, _ = mbd.accelerations(oil, 0.0, mbd.State(state.q, state.v, z))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())
    without, _ = mbd.accelerations(oil, 0.0, state)
    assert np.abs(without - wanted).max() > 1.0

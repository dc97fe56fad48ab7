"""A car on four tyres beside the bicycle model."""

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from tests.examples import comparing

EXAMPLE = comparing.example("car")


def test_wishbones_and_rack_close_two_loops():
    """Each side has a ball joint and a tie rod outside the tree, and the rack has a driver."""
    system = mbd.formulate(EXAMPLE["model"](EXAMPLE["step_steer"](0.01)), mbd.JointCoordinates())
    loops = {f"{name} {joint}" for name in ("fl", "fr") for joint in ("tie rod", "upper ball")}
    assert set(system.mechanism.topology.loops) == loops
    assert system.nv == 23  # Of the chassis 6, rack 1, wheels 4, arms 4, ball joints 6, slides 2.


@pytest.mark.thorough
def test_wheels_are_at_their_hubs():
    system = mbd.formulate(EXAMPLE["model"](EXAMPLE["step_steer"](0.01)), mbd.JointCoordinates())
    frames = jax.jit(lambda q: system.frames(0.0, q))(mbd.assemble(system).q)
    for name, hub in EXAMPLE["hubs"]().items():
        X = jax.tree.map(np.asarray, frames[f"{name} wheel"])
        np.testing.assert_allclose(X.p + X.R @ np.asarray(hub), hub, atol=1e-12)


@pytest.mark.thorough
def test_the_car_turns_like_the_bicycle_and_changes_lanes(tmp_path):
    _, changing, (found, wanted) = EXAMPLE["main"](
        png=tmp_path / "plot.png", html=tmp_path / "motion.html"
    )
    assert found == pytest.approx(wanted, rel=0.01)
    # It understeers: a neutral car would turn by V / L.
    assert wanted < 0.8 * EXAMPLE["SPEED"] / (EXAMPLE["FRONT"] + EXAMPLE["REAR"])
    seen = np.asarray(EXAMPLE["looks"](changing))
    weight = 2.0 * sum(total for total, _ in EXAMPLE["loads"]().values())
    assert np.min(seen[..., 0]) > 0
    np.testing.assert_allclose(np.sum(seen[0, :, 0]), weight, rtol=1e-9)
    p = np.asarray(changing.frames["chassis"].p)
    assert 1.0 < p[-1, 1] < 4.0
    heading = changing.frames["chassis"].R[-1, 1, 0]
    assert abs(heading) < 0.02
    assert (tmp_path / "plot.png").is_file()
    assert (tmp_path / "motion.html").is_file()

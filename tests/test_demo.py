"""The command line's main job."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import demo
from jaxmbd.cli import main


@pytest.mark.thorough
def test_demo_finds_the_truth_and_shows_it(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    for label, true in zip(demo.SELECTED, demo.TRUTH, strict=True):
        line = next(line for line in said.splitlines() if line.startswith(label))
        _, shown, estimate, error = map(float, line[len(label) :].split())
        assert shown == pytest.approx(true, abs=5e-5)
        assert abs(estimate - true) < 5 * error + 5e-5  # The table rounds to four decimals.
    assert (tmp_path / "out" / "fit.png").stat().st_size > 10_000
    assert "tip" in (tmp_path / "out" / "motion.html").read_text()


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert main(["demo", "--out", str(blocker / "out")]) == 1
    assert str(blocker) in capsys.readouterr().err


def test_commands_are_required(capsys):
    with pytest.raises(SystemExit):
        main([])
    assert "demo" in capsys.readouterr().err


@pytest.mark.thorough
def test_recordings_are_noisy_and_repeatable():
    first, again = (demo.record(demo.pendulum(demo.TRUTH), 3) for _ in range(2))
    np.testing.assert_array_equal(first[0].measurements["elbow"], again[0].measurements["elbow"])
    clean = mbd.predict(demo.pendulum(demo.TRUTH), first[0])
    scatter = np.std(first[0].measurements["elbow"] - clean["elbow"])
    assert scatter == pytest.approx(demo.NOISE, rel=0.2)

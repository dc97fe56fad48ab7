"""`jaxmbd check-data`: the exit status, and what it prints."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.cli import main

pytest.importorskip("pandas")
TS = 0.01 * np.arange(500)
ANGLE, RATE = 40 * np.sin(4 * TS), 160 * np.cos(4 * TS)


def written(folder, late=0.0):
    """A model and a log of it, in degrees and milliseconds."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])
    hinge = mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])
    mbd.io.save_model(mbd.Model({"rod": rod}, {"hinge": hinge}), folder / "rod.json")
    noise = np.random.default_rng(0).normal(size=(2, 500))
    angle = ANGLE + 0.01 * noise[0]
    rate = 160 * np.cos(4 * (TS - late)) + 0.3 * noise[1]
    rows = [f"{1e3 * t:.0f},{a},{b}" for t, a, b in zip(TS, angle, rate, strict=True)]
    (folder / "run.csv").write_text("\n".join(["t,q,w", *rows]))
    files = [str(folder / "rod.json"), str(folder / "run.csv")]
    return ["check-data", *files, "--time", "t:ms", "--joint", "hinge=q:deg"]


@pytest.mark.long
def test_status_of_accepted_and_refused_data(tmp_path, capsys):
    arguments = written(tmp_path)
    picture = tmp_path / "run.png"
    speed = ["--velocity", "hinge=w:deg/s"]
    assert main([*arguments, *speed, "--plot", str(picture)]) == 0
    assert "verdict: ok" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000
    assert main([*arguments, "--velocity", "hinge=w"]) == 1
    assert "readings seem to be in degrees" in capsys.readouterr().out
    assert main([*written(tmp_path, late=0.008), *speed]) == 1
    assert "late by 8." in capsys.readouterr().out


def test_status_of_errors(tmp_path, capsys):
    arguments = written(tmp_path)
    assert main([*arguments, "--velocity", "hinge"]) == 2
    assert "'hinge' is not of the form NAME=CHANNEL" in capsys.readouterr().err
    assert main([*arguments[:-1], "hinge=x"]) == 2
    assert "no column 'x'" in capsys.readouterr().err
    assert main([*arguments[:-2]]) == 2
    assert "pass --joint or --velocity" in capsys.readouterr().err
    (tmp_path / "model.txt").write_text("")
    assert main(["check-data", str(tmp_path / "model.txt"), *arguments[2:]]) == 2
    assert "a model is a file .json, .urdf or .xml" in capsys.readouterr().err

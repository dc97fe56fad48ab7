"""The measured rig: a fit of two records must predict the third better than the owners' values."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import jaxmbd as mbd

SCRIPT = Path(__file__).parents[2] / "examples" / "identify_double_pendulum.py"


@pytest.mark.thorough
def test_fit_predicts_an_unseen_record(shared_data, tmp_path, capsys):
    example = runpy.run_path(str(SCRIPT))
    page, unseen = tmp_path / "fit.html", example["UNSEEN"]
    found, errors = example["main"](shared_data / "double_pendulum", report=page)
    ours, theirs = errors[unseen]
    # At 0.1, 0.5 and 2 s ahead; 1.12, 1.23 and 1.57 were measured.
    assert ([1.1, 1.2, 1.5] * ours < theirs).all(), f"fit {ours}, published {theirs}"
    assert not found.unseen
    said = capsys.readouterr().out
    assert f"{unseen} " in said
    assert all(f"{name} (fitted)" in said for name in errors if name != unseen)
    assert "Records that the fit has not seen" in page.read_text()


def test_folder_without_the_record(tmp_path):
    with pytest.raises(SystemExit, match="no record"):
        runpy.run_path(str(SCRIPT))["main"](tmp_path)


@pytest.mark.thorough
def test_the_steps_of_the_tutorial_on_a_record(shared_data, tmp_path):
    """The way of "Your robot's log", from the file to a certificate, in windows of 0.5 s."""
    example = runpy.run_path(str(SCRIPT))
    path, columns = shared_data / "double_pendulum" / "20230629-143524.csv", {}
    for k in (1, 2):
        columns |= {f"joint{k}": mbd.io.Channel(f"pos{k}"), f"tau{k}": mbd.io.Channel(f"tau{k}")}
    log = mbd.io.read_log(path, columns, time=mbd.io.Channel("time"))
    names = ["joint1", "joint2"]
    motion = mbd.smooth_motion(log["joint1"].ts, np.stack([log[x].values for x in names], axis=1))
    noise = dict(zip(names, motion.noise.tolist(), strict=True))
    torques = {"joint1": "tau1", "joint2": "tau2"}
    record = mbd.Experiment.from_log(log, names, torques=torques, name="run")
    q, v = ({x: y[:, k] for k, x in enumerate(names)} for y in (motion.q, motion.v))
    windows = record.windows(250, 250, q, v)
    model, parameters = example["rig"](example["ROUGH"], 0.05), example["select"]()
    assert mbd.check_data(model, windows, parameters, noise=noise).verdict == "ok"
    fit = mbd.identify(model, windows[:12], parameters, noise=noise, fit_initial_states=True)
    certificate = fit.certificate(tmp_path, validation=windows[12:], sources=[path])
    # Residuals of records are correlated, and viscous friction is not determined.
    failed = {x["name"] for x in certificate["evidence"]["checks"] if not x["passed"]}
    assert "residuals are white (p > 0.01)" in failed
    assert "the fit converged" not in failed
    assert max(certificate["evidence"]["validation"].values()) < 0.02
    assert (tmp_path / "report.html").exists()

"""The measured rig: a fit of one record must predict another as well as the owners' values."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "identify_double_pendulum.py"


def test_fit_predicts_an_unseen_record(shared_data, capsys):
    example = runpy.run_path(str(SCRIPT))
    fit = example["main"](shared_data / "double_pendulum")
    published = example["rig"](example["PUBLISHED"], transition=0.01)
    unseen = shared_data / "double_pendulum" / "20230629-143747.csv"
    ours, theirs = (example["prediction_errors"](m, unseen) for m in (fit.model, published))
    assert (ours <= theirs * 1.001).all(), f"fit {ours}, published {theirs}"
    said = capsys.readouterr().out
    assert "not told apart by the data" in said
    assert "20230629-143747" in said


def test_folder_without_the_record(tmp_path):
    with pytest.raises(SystemExit, match="no record"):
        runpy.run_path(str(SCRIPT))["main"](tmp_path)

"""The measured rig: a fit of one record must predict another as well as the owners' values."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "identify_double_pendulum.py"


@pytest.mark.thorough
def test_fit_predicts_an_unseen_record(shared_data, tmp_path, capsys):
    fitted, unseen = "20230629-143601.csv", "20230629-143747.csv"
    for name in (fitted, unseen):
        (tmp_path / name).symlink_to(shared_data / "double_pendulum" / name)
    _, errors = runpy.run_path(str(SCRIPT))["main"](tmp_path)
    ours, theirs = errors[unseen]
    assert (ours <= theirs * 1.001).all(), f"fit {ours}, published {theirs}"
    said = capsys.readouterr().out
    assert "not told apart by the data" in said
    assert "20230629-143747" in said


def test_folder_without_the_record(tmp_path):
    with pytest.raises(SystemExit, match="no record"):
        runpy.run_path(str(SCRIPT))["main"](tmp_path)

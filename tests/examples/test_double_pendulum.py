"""The measured rig: a fit of two records must predict the third better than the owners' values."""

import runpy
from pathlib import Path

import pytest

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

"""Records from files, good and bad."""

import numpy as np
import pytest

import jaxmbd as mbd

GOOD = "time,angle,torque\n0,0.1,1\n0.01,0.2,2\n0.02,0.3,3\n"


def write(tmp_path, text):
    path = tmp_path / "run.csv"
    path.write_text(text)
    return path


def test_columns_by_name(tmp_path):
    record = mbd.io.read_record(write(tmp_path, GOOD), ["torque", "time"])
    np.testing.assert_array_equal(record["torque"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(record["time"], [0.0, 0.01, 0.02])
    assert "angle" not in record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (GOOD.replace("angle", "angel"), "no column 'angle'; there are time, angel, torque"),
        ("time,angle,torque\n0,0.1,1\n", "two or more lines"),
        (GOOD[:-4], r"line 4: 2 fields .* truncated"),
        (GOOD.replace("0.2", "open"), "line 3: 'angle' is no number: 'open'"),
        (GOOD.replace("0.2", "nan"), "line 3: 'angle' is not finite"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(mbd.DataError, match=message):
        mbd.io.read_record(write(tmp_path, text), ["time", "angle"])


def test_missing_file(tmp_path):
    with pytest.raises(mbd.DataError, match="cannot be read"):
        mbd.io.read_record(tmp_path / "none.csv", ["time"])

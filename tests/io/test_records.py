"""Records from files, good and bad."""

import subprocess
import sys

import numpy as np
import pytest

import jaxmbd as mbd

GOOD = "time,angle,torque\n0,0.1,1\n0.01,0.2,2\n0.02,0.3,3\n"


def write(tmp_path, text):
    path = tmp_path / "run.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_by_name(tmp_path):
    record = mbd.io.read_record(write(tmp_path, GOOD), ["torque", "time"])
    np.testing.assert_array_equal(record["torque"], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(record["time"], [0.0, 0.01, 0.02])
    assert "angle" not in record


def test_files_with_a_byte_order_mark_or_without_a_header(tmp_path):
    wanted = mbd.io.read_record(write(tmp_path, GOOD), ["time", "angle"])
    marked = mbd.io.read_record(write(tmp_path, "\ufeff" + GOOD), ["time", "angle"])
    numbers = GOOD[GOOD.index("0") :]
    names = ["time", "angle", "torque"]
    bare = mbd.io.read_record(write(tmp_path, numbers), ["time", "angle"], header=names)
    for record in (marked, bare):
        np.testing.assert_array_equal(record["time"], wanted["time"])
        np.testing.assert_array_equal(record["angle"], wanted["angle"])
    twice = write(tmp_path, GOOD.replace("torque", "time"))
    assert mbd.io.read_record(twice, ["angle"])["angle"].tolist() == [0.1, 0.2, 0.3]
    with pytest.raises(mbd.DataError, match=r"columns 1, 2 have the name 't'; .* in header"):
        mbd.io.read_record(write(tmp_path, numbers), ["t"], header=["t", "t", "torque"])
    with pytest.raises(mbd.DataError, match=r"line 1: 3 fields where the header has 2"):
        mbd.io.read_record(write(tmp_path, numbers), ["t"], header=["t", "x"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (GOOD.replace("angle", "angel"), "no column 'angle'; there are time, angel, torque"),
        ("time,angle,torque\n0,0.1,1\n", "two or more lines"),
        (GOOD[:-4], r"line 4: 2 fields .* truncated"),
        (GOOD.replace("0.2", "open"), "line 3: 'angle' is not a number: 'open'"),
        (
            GOOD.replace("0.2", "nan"),
            "line 3: 'angle' is not finite: 'nan', in 1 of 3 lines; remove",
        ),
        (GOOD.replace("0.2", ""), "line 3: 'angle' is not finite: '', in 1 of 3 lines; remove"),
        (GOOD[GOOD.index("0") :], r"first line has numbers.* header=\[\.\.\.\]"),
        (GOOD.replace("torque", "angle"), r"columns 2, 3 have the name 'angle'; .*header=\["),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(mbd.DataError, match=message):
        mbd.io.read_record(write(tmp_path, text), ["time", "angle"])


def test_missing_file(tmp_path):
    with pytest.raises(mbd.DataError, match="cannot be read"):
        mbd.io.read_record(tmp_path / "none.csv", ["time"])


def test_missing_samples_are_told_with_their_number_and_first_time():
    readings = np.array([0.0, np.nan, 0.0, np.inf])
    message = r"'hinge' is not finite in row 1 at 0.5 s, and in 2 of 4 rows in all; pass valid="
    with pytest.raises(mbd.DataError, match=message):
        mbd.Experiment([0.0, 0.5, 1.0, 1.5], {"hinge": readings})


@pytest.mark.long
def test_files_are_read_without_the_packages_of_other_kinds_of_files():
    code = "import sys; sys.modules['mujoco'] = sys.modules['pandas'] = None; import jaxmbd.io"
    subprocess.run([sys.executable, "-c", code], check=True)

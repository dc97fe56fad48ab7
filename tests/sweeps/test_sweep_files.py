"""Files of a sweep that are not as they were written: seen, named and computed again."""

import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
from jaxmbd.sweeps import store
from tests.sweeps.test_sweep import DIMS, same, scenarios, swing, undisturbed


def damaged_value(path):
    """A number of the results by another one, 12.5 for 25: one byte."""
    content = path.read_bytes()
    value = xr.load_dataset(path)["path"].values[0]
    at = content.index(value.tobytes()) + 6
    path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])


@pytest.mark.long
def test_damaged_chunks_are_computed_again(tmp_path):
    """With a warning that names files and scenarios; also those in the place of another one."""
    options = {"chunk": 2, "dims": DIMS, "folder": tmp_path, "progress": False}
    whole = mbd.sweep(swing, scenarios(), **options)
    files = [tmp_path / f"chunk_{k:06d}.nc" for k in range(5)]
    contents = [path.read_bytes() for path in files]
    same(mbd.sweep(swing, scenarios(), **options), whole)
    damaged_value(files[0])
    assert not np.array_equal(xr.load_dataset(files[0])["path"], whole["path"][:2], equal_nan=True)
    files[1].write_bytes(contents[1][:-1])
    files[2].write_bytes(contents[3])
    files[4].write_bytes(b"")
    with pytest.warns(mbd.DamagedFileWarning, match="4 chunks") as said:
        same(mbd.sweep(swing, scenarios(), **options), whole)
    (warning,) = said
    for text in (
        "chunk_000000.nc (scenarios 0 to 1) does not match its checksum",
        "chunk_000001.nc (scenarios 2 to 3) has no checksum",
        "chunk_000002.nc (scenarios 4 to 5) does not match its checksum",
        "chunk_000004.nc (scenarios 8 to 9) has no checksum",
    ):
        assert text in str(warning.message)
    assert "chunk_000003" not in str(warning.message)
    same(mbd.sweep(swing, scenarios(), **options), whole)


def small_store(folder, manifest=None):
    manifest = manifest or dict.fromkeys(store.MEANINGS, "") | {"chunk": 2, "n": 3}
    return store.Store(folder, manifest)


def small_chunk():
    numbers = np.array([25.0, -1.5])
    return xr.Dataset({"x": ("scenario", numbers), "failed": ("scenario", numbers < 0)})


def test_every_damaged_byte_is_seen(tmp_path):
    small_store(tmp_path).write(0, small_chunk())
    path = tmp_path / "chunk_000000.nc"
    content, rng = path.read_bytes(), np.random.default_rng(0)
    offsets = {*rng.choice(len(content), 500, replace=False).tolist()}
    offsets |= {*range(len(content) - len(store.MARK) - store.DIGITS, len(content))}
    at = content.index(np.float64(25.0).tobytes())
    for offset in sorted(offsets | {*range(at, at + 16)}):
        other = content[offset] ^ int(rng.integers(1, 256))
        path.write_bytes(content[:offset] + bytes([other]) + content[offset + 1 :])
        with pytest.warns(mbd.DamagedFileWarning, match=r"chunk_000000.nc \(scenarios 0 to 1\)"):
            assert small_store(tmp_path).load([0, 1]) == {}
    for length in (0, 1, 8, len(content) // 2, *range(len(content) - 100, len(content))):
        path.write_bytes(content[:length])
        with pytest.warns(mbd.DamagedFileWarning, match="has no checksum: cut short"):
            assert small_store(tmp_path).load([0]) == {}
    path.write_bytes(content)
    xr.testing.assert_identical(small_store(tmp_path).load([0])[0], small_chunk())
    path.write_bytes(content + b" ")
    with pytest.warns(mbd.DamagedFileWarning):
        assert small_store(tmp_path).load([0]) == {}


def test_checksums_bind_chunks_to_their_sweep(tmp_path):
    """A whole file from the folder of another sweep, whose manifest differs in one part."""
    own = dict.fromkeys(store.MEANINGS, "") | {"chunk": 2, "n": 3}
    small_store(tmp_path / "own", own).write(0, small_chunk())
    written = (tmp_path / "own" / "chunk_000000.nc").read_bytes()
    for part in (*store.MEANINGS, "n"):
        other = own | {part: 1 if part in ("chunk", "n") else "other"}
        folder = tmp_path / part
        kept = small_store(folder, other)
        (folder / "chunk_000000.nc").write_bytes(written)
        with pytest.warns(mbd.DamagedFileWarning, match="of other scenarios"):
            assert kept.load([0]) == {}


@pytest.mark.long
def test_chunks_without_checksum_are_computed_again(tmp_path):
    """Files of an earlier version are netCDF without a checksum."""
    options = {"chunk": 4, "dims": DIMS, "folder": tmp_path, "progress": False}
    mbd.sweep(swing, scenarios(), **options)
    for path in tmp_path.glob("chunk_*.nc"):
        path.write_bytes(path.read_bytes()[: -len(store.MARK) - store.DIGITS])
    with pytest.warns(mbd.DamagedFileWarning, match="3 chunks.*of an earlier version"):
        same(mbd.sweep(swing, scenarios(), **options), undisturbed())


def test_a_file_that_changes_during_a_sweep_is_an_error(tmp_path):
    kept = small_store(tmp_path)
    kept.write(0, small_chunk())
    path = tmp_path / "chunk_000000.nc"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match=r"chunk_000000.nc \(scenarios 0 to 1\).*call sweep again"):
        kept.read(0)

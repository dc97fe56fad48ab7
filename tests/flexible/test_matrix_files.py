"""Files of stiffness and mass matrices."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import flexible

from .test_reduction import truss

NODES = 10 * np.arange(16) + 7


def write(path, A, form, triangle=np.triu):
    lines = ["* written by a test"]
    for i, j in np.argwhere(triangle(A) != 0):
        if form == "nodes":
            lines.append(
                f"{NODES[i // 3]},{i % 3 + 1}, {NODES[j // 3]},{j % 3 + 1}, {A[i, j]:.16E}"
            )
        else:
            lines.append(f"{i + 1} {j + 1} {A[i, j]:.16E}".replace("E", "D"))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    """The truss in t, mm and s: forces in N."""
    K, M, _ = truss()
    return (
        write(tmp_path / "job_STIF.mtx", K / 1e3, "nodes", np.tril),
        write(tmp_path / "job_MASS.mtx", M / 1e3, "nodes"),
    )


UNITS = {"length": 1e-3, "mass_unit": 1e3}


def test_matrices_by_nodes(files):
    K, M, _ = truss()
    found = flexible.read_matrices(*files, **UNITS, total_mass=np.trace(M) / 3)
    np.testing.assert_allclose(found.K, K, rtol=1e-14)
    np.testing.assert_allclose(found.M, M, rtol=1e-14)
    np.testing.assert_array_equal(found.nodes, NODES)


def test_matrices_by_rows(tmp_path):
    K, M, _ = truss()
    paths = [write(tmp_path / name, A, "rows") for name, A in (("job.sti", K), ("job.mas", M))]
    dofs = tmp_path / "job.dof"
    dofs.write_text("".join(f"{NODES[i // 3]}.{i % 3 + 1}\n" for i in range(48)))
    found = flexible.read_matrices(*paths, dofs)
    np.testing.assert_allclose(found.K, K, rtol=1e-14)
    with pytest.raises(mbd.ModelError, match="need the file `dofs`"):
        flexible.read_matrices(*paths)
    dofs.write_text("7.1\n7.2\n")
    with pytest.raises(mbd.ModelError, match="the file of freedoms has 2 lines"):
        flexible.read_matrices(*paths, dofs)


def test_units_of_rotations(tmp_path):
    """Of a node with six freedoms: moments and tensors of inertia."""
    path = tmp_path / "one.mtx"
    path.write_text("".join(f"1 {i} 1 {i} 2.0\n" for i in range(1, 7)))
    found = flexible.read_matrices(path, path, length=1e-3, mass_unit=1e3, time=10.0)
    np.testing.assert_allclose(np.diagonal(found.M), 2e3 * np.array([1, 1, 1, 1e-6, 1e-6, 1e-6]))
    np.testing.assert_allclose(found.K, found.M / 100.0)


def test_messages(files, tmp_path):
    M = truss()[1]
    stiffness, mass = files

    def changed(name, change):
        path = tmp_path / name
        path.write_text(change(stiffness.read_text()))
        return path

    cut = changed("cut.mtx", lambda text: text[:-40])
    short = changed("short.mtx", lambda text: "\n".join(text.splitlines()[:-8]) + "\n")
    lines = stiffness.read_text().splitlines()
    other = next(line for line in lines[1:] if line.split(",")[0] != line.split(",")[2].strip())
    a, b, c, d, value = (x.strip() for x in other.split(","))
    skewed = changed("skewed.mtx", lambda text: text + f"{c},{d},{a},{b},{-float(value)}\n")
    binary = tmp_path / "binary.mtx"
    binary.write_bytes(bytes(range(128, 256)))
    (tmp_path / "body.mnf").write_bytes(b"")
    for match, given, options in (
        ("is not an entry.*truncated", (cut, mass), {}),
        ("has no stiffness or no mass; the file is truncated", (short, mass), {}),
        ("is not symmetric", (skewed, mass), {}),
        ("is not text", (binary, mass), {}),
        ("Adams modal neutral file is binary", (tmp_path / "body.mnf", mass), {}),
        ("the sum of M is .*check mass_unit", files, {"total_mass": np.trace(M) / 3e3}),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            flexible.read_matrices(*given, **UNITS, **options)

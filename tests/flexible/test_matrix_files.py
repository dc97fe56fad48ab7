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


def field(value, width):
    """A number of Nastran in a field, with an exponent without a letter in small fields."""
    if isinstance(value, int):
        return f"{value:<{width}}"
    if width == 16:
        return f"{value:.9E}".replace("E", "D").ljust(16)
    return f"{value:.1E}".replace("E", "").replace("+0", "+").replace("-0", "-").ljust(8)


def dmig(name, A, form):
    """Bulk data of the lower triangle of a symmetric matrix."""
    width, star = (16, "*") if form == "large" else (8, "")
    lines = ["$ written by a test", f"DMIG    {name:<8}       0       6       2       0"]
    for j in range(len(A)):
        rows = [i for i in range(j, len(A)) if A[i, j] != 0]
        entries = [(int(NODES[i // 3]), i % 3 + 1, float(A[i, j])) for i in rows]
        head = [int(NODES[j // 3]), j % 3 + 1]
        if form == "free":
            flat = [f"{n},{c},{a:.16E}," for n, c, a in entries]
            lines.append(f"DMIG,{name},{head[0]},{head[1]},,{flat[0]}")
            lines += [f",{a},{b}" for a, b in zip(flat[1::2], [*flat[2::2], ""], strict=False)]
            continue
        cells = ["".join([*(field(x, width) for x in entry), " " * width]) for entry in entries]
        start = f"DMIG{star:<4}{name:<{width}}{field(head[0], width)}{field(head[1], width)}"
        if form == "large":
            lines += [start, *(f"*       {cell}" for cell in cells)]
        else:
            lines.append(start + " " * 8 + cells[0])
            lines += [f"+       {''.join(cells[k : k + 2])}" for k in range(1, len(cells), 2)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("form", "rtol"), [("small", 0.06), ("large", 1e-9), ("free", 1e-14)])
def test_matrices_of_nastran(tmp_path, form, rtol):
    """Small fields have two digits here."""
    K, M, _ = truss()
    path = tmp_path / "job.pch"
    path.write_text(dmig("KAAX", K, form) + "ENDDATA\n" + dmig("MAAX", M, form))
    found = flexible.read_matrices(path, path, names=("KAAX", "maax"))
    np.testing.assert_allclose(found.K, K, rtol=rtol, atol=1e-12 * K.max())
    np.testing.assert_allclose(found.M, M, rtol=rtol)
    np.testing.assert_array_equal(found.nodes, NODES)


def test_messages_of_nastran(tmp_path):
    path = tmp_path / "job.bdf"
    entry = "DMIG,KAAX,1,1,,1,1,2.0\n"
    for match, text in (
        ("has the matrices KAAX, MAAX; pass names", entry + entry.replace("K", "M")),
        ("has the matrices none", "GRID,1,,0.,0.,0.\n"),
        ("is complex", "DMIG,KAAX,0,6,3,0\n" + entry),
        ("is rectangular", "DMIG,KAAX,0,9,2,0\n" + entry),
        ("has scalar points", entry + "DMIG,KAAX,9,0,,9,0,2.0\n"),
        ("the DMIG entry at line 2 of job.bdf cannot be read", entry + "DMIG,KAAX,1,1,,1,1,x\n"),
        ("has no entries of KAAX", "DMIG,KAAX,0,6,2,0\n"),
    ):
        path.write_text(text)
        with pytest.raises(mbd.ModelError, match=match):
            flexible.read_matrices(path, path)
    path.write_text(entry)
    with pytest.raises(mbd.ModelError, match="has no matrix 'MAAX'; it has KAAX"):
        flexible.read_matrices(path, path, names=("KAAX", "MAAX"))


def test_units_of_rotations(tmp_path):
    """Moments and tensors of inertia of a node with six freedoms."""
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

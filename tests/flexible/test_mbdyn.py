"""Modal files of MBDyn: a beam with lumped masses, written and read."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import flexible
from jaxmbd.flexible.beam import _assembled

N = 4
LABELS = 10 * np.arange(N + 1) + 100
UNITS = {"length": 1e-3, "mass_unit": 1e3}


@pytest.fixture(scope="module")
def given():
    """A beam with rigid lumps: its body, and its modes, in SI units."""
    section = flexible.Rectangle(0.04, 0.02)
    numbers = (jnp.asarray(x) for x in (7e10, 2.6e10, 2700.0))
    _, K, _, positions = _assembled(*numbers, section, jnp.asarray(0.25), "timoshenko", N)
    lump = np.array([0.3, 0.3, 0.3, 1e-4, 2e-4, 3e-4])
    M = np.diag(np.tile(lump, N + 1))
    ends = {"base": 0, "tip": N}
    shapes = flexible.modes(K, jnp.asarray(M), positions, ends, 2)
    body = flexible.reduce(K, M, positions, ends, 2, basis=shapes)
    return body, np.asarray(positions), np.asarray(shapes), lump


def groups_of(body, positions, shapes, lump):
    """Record groups in mm, t and s."""
    k = shapes.shape[1]
    by_node = shapes.reshape(N + 1, 6, k) * np.array([1e3] * 3 + [1.0] * 3)[None, :, None]
    lumps = lump * np.array([1e-3] * 3 + [1e3] * 3)
    mass, com = 1e-3 * float(body.mass), 1e3 * np.asarray(body.first[0] / body.mass)
    return {
        1: f"REV0 {N + 1} {k} 0 0 0",
        2: LABELS,
        3: np.zeros(k),
        4: np.zeros(k),
        5: 1e3 * positions[:, 0],
        6: 1e3 * positions[:, 1],
        7: 1e3 * positions[:, 2],
        8: by_node.transpose(2, 0, 1),
        9: 1e3 * np.asarray(body.modal_mass()),
        10: 1e3 * np.asarray(body.stiffness),
        11: np.tile(lumps, N + 1),
        12: np.concatenate([[mass], com, np.zeros(9)]),
        13: 1e3 * 0.01 * np.asarray(body.stiffness),
    }


def write(path, groups):
    lines = ["** MBDyn MODAL DATA FILE"]
    for number, content in groups.items():
        lines.append(f"** RECORD GROUP {number}, SOME COMMENT")
        if isinstance(content, str):
            lines += [
                "**   REVISION  NODE  NORMAL, ATTACHMENT, CONSTRAINT, REJECTED MODES.",
                content,
            ]
            continue
        for k, part in enumerate(content if np.ndim(content) == 3 else [content]):
            lines.append(f"**    NORMAL MODE SHAPE # {k + 1}")
            flat = [
                f"{x:d}" if np.issubdtype(type(x), np.integer) else f"{x:.16E}".replace("E", "D")
                for x in np.ravel(part)
            ]
            lines += [" ".join(flat[i : i + 6]) for i in range(0, len(flat), 6)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.long
def test_body_is_the_one_that_was_written(tmp_path, given):
    body = given[0]
    found = flexible.read_mbdyn(write(tmp_path / "beam.fem", groups_of(*given)), **UNITS)
    for name in ("mass", "first", "second", "stiffness"):
        expected = np.asarray(getattr(body, name))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(getattr(found, name), expected, atol=1e-13 * scale, err_msg=name)
    np.testing.assert_allclose(found.damping, 0.01 * found.stiffness, rtol=1e-13)
    assert dict(found.nodes) == {str(label): row for row, label in enumerate(LABELS)}
    for name, row in body.nodes:
        own = {"base": 0, "tip": N}[name]
        np.testing.assert_allclose(found.positions[own], body.positions[row], atol=1e-14)
        np.testing.assert_allclose(found.translations[own], body.translations[row], atol=1e-12)
        np.testing.assert_allclose(found.rotations[own], body.rotations[row], atol=1e-12)


@pytest.mark.long
def test_messages(tmp_path, given):
    groups = groups_of(*given)
    path = tmp_path / "beam.fem"
    skewed, lumps = groups[10].copy(), groups[11].copy()
    skewed[0, 1] += skewed[1, 1]
    lumps[0] *= 2.0
    for match, change in (
        ("has no record group 11", {11: None}),
        ("group 8 of beam.fem has .* numbers, but its header requires", {8: groups[8][:-1]}),
        ("group 10 of beam.fem is not symmetric", {10: skewed}),
        ("differ between directions", {11: lumps}),
        ("modal masses of group 9 of beam.fem differ by", {9: 1.1 * groups[9]}),
        ("mass of group 12 of beam.fem differ by", {12: 1.1 * groups[12]}),
        ("group 5 of beam.fem: could not convert", {5: "a b c d e"}),
        ("must be finite", {6: np.full(N + 1, np.nan)}),
    ):
        kept = {k: x for k, x in {**groups, **change}.items() if x is not None}
        with pytest.raises(mbd.ModelError, match=match):
            flexible.read_mbdyn(write(path, kept), **UNITS)
    with pytest.raises(mbd.ModelError, match="read it by read_mbdyn"):
        flexible.read_matrices(path, path)
    path.write_bytes(bytes(range(128, 256)))
    with pytest.raises(mbd.ModelError, match="is not text"):
        flexible.read_mbdyn(path)

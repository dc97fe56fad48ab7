"""Reduction of matrices of finite elements: exactness for lumped masses, and messages."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxmbd as mbd
from jaxmbd import flexible
from jaxmbd.flexible.beam import _assembled
from jaxmbd.mechanism.groups import rigid_part

ENDS = {"left": [0, 1, 2, 3], "right": [12, 13, 14, 15]}


def truss(stiffness=1e5):
    """Nodes of a square lattice tower along x, joined by springs: K, M and positions."""
    corners = [(0, 0), (0.2, 0), (0.2, 0.3), (0, 0.3)]
    positions = np.array([[0.4 * i, *corner] for i in range(4) for corner in corners])
    n = len(positions)
    K = np.zeros((n, 3, n, 3))
    for a, b in itertools.combinations(range(n), 2):
        if abs(a // 4 - b // 4) > 1:
            continue
        d = positions[b] - positions[a]
        block = stiffness * np.outer(d, d) / (d @ d) ** 1.5
        for i, j, sign in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)):
            K[i, :, j] += sign * block
    masses = np.random.default_rng(0).uniform(0.5, 1.5, n)
    return K.reshape(3 * n, 3 * n), np.kron(np.diag(masses), np.eye(3)), positions


def reduced(**options):
    K, M, positions = truss()
    given = {"K": K, "M": M, "positions": positions, "interfaces": ENDS, "n_modes": 3}
    return flexible.reduce(**{**given, **options})


@pytest.mark.long
def test_kinetic_energy_is_that_of_the_masses():
    """At a deformation, for any velocities, point by point."""
    K, M, positions = truss()
    arrays = [jnp.asarray(x) for x in (K, M, positions)]
    Phi = np.asarray(flexible.modes(arrays[0], arrays[1], arrays[2], ENDS, 3))
    body = reduced(basis=Phi)
    rng = np.random.default_rng(1)
    eta, eta_dot = 0.1 * rng.normal(size=(2, body.n_elastic))
    V = rng.normal(size=6)
    p = positions + (Phi @ eta).reshape(-1, 3)
    moves = V[:3] + np.cross(V[3:], p) + (Phi @ eta_dot).reshape(-1, 3)
    expected = 0.5 * np.diagonal(M)[::3] @ np.sum(moves**2, axis=1)
    found = body.kinetic_energy(*map(jnp.asarray, (eta, V, eta_dot)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.long
def test_all_modes_give_the_frequencies_of_the_full_model():
    """Craig-Bampton with rigid interfaces is exact if the interfaces are rigid and all modes kept;
    here against the full matrices projected on rigid interfaces."""
    K, M, positions = truss()
    body = reduced(n_modes=24)
    held = np.arange(12, 48)  # The left interface does not move.
    T = np.zeros((48, 30))
    T[12:36, :24] = np.eye(24)
    arms = positions[12:] - positions[12:].mean(axis=0)
    for i, arm in enumerate(arms):
        rows = 36 + 3 * i + np.arange(3)
        T[rows, 24:27] = np.eye(3)
        T[rows, 27:] = np.cross(np.eye(3), arm).T
    T = T[held]
    values = scipy.linalg.eigvalsh(T.T @ K[12:, 12:] @ T, T.T @ M[12:, 12:] @ T)
    np.testing.assert_allclose(body.frequencies(), np.sqrt(values), rtol=1e-7)


@pytest.mark.long
def test_interfaces_turn_with_their_nodes():
    body = reduced()
    names = dict(body.nodes)
    np.testing.assert_allclose(body.translations[names["left"]], 0.0, atol=1e-12)
    np.testing.assert_allclose(body.rotations[names["left"]], 0.0, atol=1e-12)
    np.testing.assert_allclose(body.positions[names["right"]], [1.2, 0.1, 0.15], atol=1e-12)
    assert np.abs(body.rotations[names["right"]]).max() > 1e-3


@pytest.mark.long
def test_lumped_masses_with_rotations():
    """A mass and a tensor of inertia at each node of a beam give the inertia at η = 0."""
    n, L = 4, 0.25
    E, G, density, length = (jnp.asarray(x) for x in (7e10, 2.6e10, 2700.0, L))
    section = flexible.Rectangle(0.04, 0.02)
    _, K, _, positions = _assembled(E, G, density, section, length, "timoshenko", n)
    lump = mbd.inertia.box(0.3, [0.2, 0.04, 0.02])
    own_inertia = np.asarray(lump.inertia)
    inertia = np.zeros((n + 1, 6, n + 1, 6))
    for i in range(n + 1):
        inertia[i, :3, i, :3] = 0.3 * np.eye(3)
        inertia[i, 3:, i, 3:] = own_inertia
    M = inertia.reshape(6 * (n + 1), -1)
    body = flexible.reduce(K, M, positions, {"base": 0, "tip": n}, 2)
    own = rigid_part(body)
    x = np.asarray(positions[:, 0])
    steiner = 0.3 * np.sum((x - 0.5) ** 2) * np.diag([0, 1, 1])
    np.testing.assert_allclose(own.mass, 1.5, rtol=1e-12)
    np.testing.assert_allclose(own.com, [0.5, 0, 0], atol=1e-12)
    np.testing.assert_allclose(own.inertia, 5 * own_inertia + steiner, atol=1e-12)
    modal = np.einsum("aibi->ab", body.second[1:, :, 1:])
    np.testing.assert_allclose(modal, np.eye(len(modal)), atol=1e-9)


@pytest.mark.long
def test_derivative_by_stiffness():
    def lowest(stiffness):
        K, M, positions = truss()
        body = flexible.reduce(stiffness * K, M, positions, ENDS, 3)
        return body.frequencies()[0]

    slope = jax.grad(lowest)(1.0)
    np.testing.assert_allclose(slope, 0.5 * lowest(1.0), rtol=1e-9)


def test_messages():
    K, M, positions = truss()
    supported = K.copy()
    supported[0, 0] += 1e5
    turned = M.copy()
    turned[0, 0] *= 2.0
    for match, options in (
        ("K must be symmetric", {"K": K + np.triu(K, 1)}),
        ("K must not be indefinite", {"K": -K}),
        ("M must not be indefinite", {"M": -M}),
        (
            "K resists the rigid motion along x, .*export the matrices of the free body",
            {"K": supported},
        ),
        ("K resists the rigid rotation about x", {"positions": positions[:, [0, 2, 1]]}),
        ("M differs between directions", {"M": turned}),
        ("K has 48 rows for 15 positions", {"positions": positions[:15]}),
        ("node 'left' has the rows .*, but there are 16 nodes", {"interfaces": {"left": [46, 47]}}),
        ("unknown node 'top'; known are 'left', 'right'", {"attachments": ("top",)}),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            reduced(**options)

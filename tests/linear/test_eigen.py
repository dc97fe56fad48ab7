"""Eigenvalues, eigenvectors and their derivatives: distinct, repeated, and defective ones."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.linear import eig, eigh

STEP = 1e-4


@jax.jit
def solved(A):
    return jax.tree.map(lambda x: x, eig(A))


def parts(A):
    eigen = eig(A)
    return eigen.values, eigen.right, eigen.left


@jax.jit
def slopes(A, dA):
    return jax.jvp(parts, (A,), (dA,))[1]


@jax.jit
def products(A, cotangents):
    return jax.vjp(parts, A)[1](cotangents)[0]


def difference(f, *inputs_and_directions):
    """Central difference of fourth order of a function of arrays, by pairs (x, dx)."""

    def at(s):
        return f(*(x + s * STEP * dx for x, dx in inputs_and_directions))

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)


def hermitian(x):
    return np.asarray(x).conj().T


def projector(A, center, radius):
    """Spectral projector of the eigenvalues in a circle, by an integral along it (Kato 1976)."""
    n, total = len(A), 0.0
    for angle in 2 * np.pi * (np.arange(64) + 0.5) / 64:
        arm = radius * np.exp(1j * angle)
        total = total + arm * np.linalg.inv((center + arm) * np.eye(n) - np.asarray(A)) / 64
    return total


def similar(block, seed=0):
    """A matrix with given Jordan blocks, its basis moderately conditioned."""
    rng = np.random.default_rng(seed)
    n = len(block)
    X = rng.normal(size=(n, n)) + 2 * np.eye(n)
    return X @ np.asarray(block) @ np.linalg.inv(X), rng.normal(size=(n, n))


def jordan(values, coupled=()):
    J = np.diag(np.asarray(values, dtype=float))
    for k in coupled:
        J[k, k + 1] = 1.0
    return J


def free_masses(k):
    """States (x, v) of three masses in a row that nothing holds: a rigid-body mode at zero."""
    K = k * jnp.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])
    lower = jnp.concatenate([-K / jnp.array([[1.0], [2.0], [3.0]]), jnp.zeros((3, 3))], axis=1)
    return jnp.concatenate([jnp.eye(3, 6, 3), lower])


@pytest.mark.long
@pytest.mark.smoke
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_derivatives_of_distinct_eigenvalues_are_differences(seed):
    rng = np.random.default_rng(seed)
    A, dA = jnp.asarray(rng.normal(size=(6, 6))), jnp.asarray(rng.normal(size=(6, 6)))
    assert np.any(np.abs(np.imag(solved(A).values)) > 0.1)
    forward = slopes(A, dA)
    for found, pick in zip(forward, ("values", "right", "left"), strict=True):
        expected = difference(lambda A, pick=pick: getattr(solved(A), pick), (A, dA))
        np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.long
@pytest.mark.parametrize("coupled", [(), (0, 3)])
def test_reverse_mode_is_forward_mode(coupled):
    A, dA = similar(jordan([0, 0, -1, -3, -3, -4], coupled))
    rng = np.random.default_rng(3)
    forward = slopes(jnp.asarray(A), jnp.asarray(dA))
    cotangents = tuple(
        jnp.asarray(rng.normal(size=x.shape) + 1j * rng.normal(size=x.shape)) for x in forward
    )
    gradient = products(jnp.asarray(A), cotangents)
    assert gradient.dtype == jnp.float64
    expected = sum(
        np.sum(np.asarray(c) * np.asarray(x)).real for c, x in zip(cotangents, forward, strict=True)
    )
    assert np.sum(np.asarray(gradient) * dA) == pytest.approx(expected, rel=1e-9)


@pytest.mark.long
def test_normalization_and_order():
    rng = np.random.default_rng(4)
    A = rng.normal(size=(7, 7))
    eigen = solved(jnp.asarray(A))
    V, W, values = np.asarray(eigen.right), np.asarray(eigen.left), np.asarray(eigen.values)
    np.testing.assert_allclose(A @ V, V * values, atol=1e-12)
    np.testing.assert_allclose(hermitian(W) @ V, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(V, axis=0), 1.0, rtol=1e-12)
    largest = V[np.argmax(np.abs(V), axis=0), range(7)]
    np.testing.assert_allclose(np.imag(largest), 0.0, atol=1e-14)
    assert np.all(np.real(largest) > 0.0)
    assert np.all(np.diff(np.abs(values)) > -1e-12)
    pairs = np.flatnonzero(np.imag(values) > 0.0)
    np.testing.assert_allclose(values[pairs + 1], values[pairs].conj())
    np.testing.assert_allclose(V[:, pairs + 1], V[:, pairs].conj(), atol=1e-12)
    assert np.all(np.imag(V[:, np.imag(values) == 0.0]) == 0.0)
    assert np.all(np.asarray(eigen.condition) >= 1.0 - 1e-12)
    assert not np.any(eigen.defective)


def test_order_does_not_depend_on_rounding():
    """Modes of one frequency and different damping, in states that are turned at random."""
    damping = np.array([0.1, 0.2, 0.3])
    exact = np.array(
        [z for c in damping for z in (-c + 1j * np.sqrt(1 - c * c), -c - 1j * np.sqrt(1 - c * c))]
    )
    blocks = np.zeros((6, 6))
    for k, c in enumerate(damping):
        blocks[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = [[0, 1], [-1, -2 * c]]
    expected = exact[[4, 5, 2, 3, 0, 1]]
    for seed in range(8):
        found = solved(jnp.asarray(similar(blocks, seed)[0])).values
        np.testing.assert_allclose(found, expected, atol=1e-12)


REPEATED = {
    "semisimple": (jordan([-1, -1, -1, -2, -4, -5]), slice(0, 3), -1.0),
    "defective": (jordan([-1, -1, -2, -3, -4, -5], [0]), slice(0, 2), -1.0),
    "defective at zero": (jordan([0, 0, -2, -3, -4, -5], [0]), slice(0, 2), 0.0),
    "two blocks": (jordan([0, 0, 0, 0, -2, -3], [0, 2]), slice(0, 4), 0.0),
    "one block of three": (jordan([0, 0, 0, -2, -3, -4], [0, 1]), slice(0, 3), 0.0),
}


@pytest.mark.parametrize("name", [name for name in REPEATED if "three" not in name])
def test_clusters(name):
    """Their derivatives against those of the spectral projector, which is smooth."""
    block, members, center = REPEATED[name]
    A, dA = similar(block)
    eigen = solved(jnp.asarray(A))
    d_values, d_right, d_left = (np.asarray(x) for x in slopes(jnp.asarray(A), jnp.asarray(dA)))
    size = members.stop
    assert np.array_equal(eigen.cluster, [0] * size + list(range(size, 6)))
    assert np.array_equal(eigen.defective, [name != "semisimple"] * size + [False] * (6 - size))
    assert np.all((np.asarray(eigen.condition) > 1e4)[members] == (name != "semisimple"))
    errors = np.abs(np.asarray(eigen.values)[members] - center)
    assert np.all(errors <= np.asarray(eigen.errors)[members])

    # The mean of the cluster: the trace of A P by the size.
    mean = difference(lambda A: np.trace(A @ projector(A, center, 0.5)) / size, (A, dA))
    np.testing.assert_allclose(d_values[members], mean, rtol=1e-6)
    for k in range(size, 6):
        alone = partial(projector, center=complex(eigen.values[k]), radius=0.3)
        slope = difference(lambda A, alone=alone: np.trace(A @ alone(A)), (A, dA))
        np.testing.assert_allclose(d_values[k], slope, rtol=1e-7)
        # Of v wᴴ, whatever their lengths.
        V, W = np.asarray(eigen.right)[:, k], np.asarray(eigen.left)[:, k]
        found = np.outer(d_right[:, k], W.conj()) + np.outer(V, d_left[:, k].conj())
        np.testing.assert_allclose(found, difference(alone, (A, dA)), atol=3e-7)

    # v and w remain in the invariant subspaces: to first order (1 - P) v is zero.
    P, dP = projector(A, center, 0.5), difference(lambda A: projector(A, center, 0.5), (A, dA))
    V, W = np.asarray(eigen.right)[:, members], np.asarray(eigen.left)[:, members]
    outside = np.eye(6) - P
    np.testing.assert_allclose(outside @ d_right[:, members], dP @ V, atol=1e-6)
    np.testing.assert_allclose(
        hermitian(d_left[:, members]) @ outside, hermitian(W) @ dP, atol=1e-6
    )
    # Inside only lengths change.
    inside = P @ d_right[:, members]
    along = np.sum(V.conj() * inside, axis=0)
    np.testing.assert_allclose(inside, V * along, atol=1e-6)


def test_left_vectors_of_a_repeated_eigenvalue_are_biorthogonal():
    A, dA = similar(REPEATED["semisimple"][0])
    eigen = solved(jnp.asarray(A))
    _, d_right, d_left = (np.asarray(x) for x in slopes(jnp.asarray(A), jnp.asarray(dA)))
    V, W = np.asarray(eigen.right), np.asarray(eigen.left)
    np.testing.assert_allclose(hermitian(W) @ V, np.eye(6), atol=1e-12)
    change = hermitian(d_left) @ V + hermitian(W) @ d_right
    np.testing.assert_allclose(change, 0.0, atol=1e-10)


@pytest.mark.long
def test_exact_jordan_block_is_finite():
    """A rigid-body mode by itself, and one beside an oscillator."""
    for A in (
        np.array([[0.0, 1.0], [0.0, 0.0]]),
        np.array([[0, 1.0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, -4, 0]]),
    ):
        eigen = solved(jnp.asarray(A))
        tangents = slopes(jnp.asarray(A), jnp.ones_like(jnp.asarray(A)))
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((eigen, tangents)))
        np.testing.assert_array_equal(eigen.values[:2], 0.0)
        assert np.all(eigen.defective[:2])
        assert not np.any(eigen.defective[2:])
    slope = np.asarray(slopes(jnp.asarray(A), jnp.ones((4, 4)))[0])
    for k in (2, 3):
        alone = partial(projector, center=complex(eigen.values[k]), radius=0.5)
        exact = difference(lambda A, alone=alone: np.trace(A @ alone(A)), (A, np.ones((4, 4))))
        assert slope[k] == pytest.approx(exact, rel=1e-7)


def test_block_of_three_that_is_exact():
    """Eigenvalues of triangular matrices are exact, and so are their distances."""
    rng = np.random.default_rng(5)
    A = np.triu(0.3 * rng.normal(size=(6, 6)), 1) + REPEATED["one block of three"][0]
    dA = rng.normal(size=(6, 6))
    eigen = solved(jnp.asarray(A))
    assert np.array_equal(eigen.cluster, [0, 0, 0, 3, 4, 5])
    d_values, d_right, d_left = (np.asarray(x) for x in slopes(jnp.asarray(A), jnp.asarray(dA)))
    mean = difference(lambda A: np.trace(A @ projector(A, 0.0, 1.0)) / 3, (A, dA))
    np.testing.assert_allclose(d_values[:3], mean, rtol=1e-7)
    for k in (3, 4, 5):
        alone = partial(projector, center=complex(eigen.values[k]), radius=0.4)
        V, W = np.asarray(eigen.right)[:, k], np.asarray(eigen.left)[:, k]
        found = np.outer(d_right[:, k], W.conj()) + np.outer(V, d_left[:, k].conj())
        expected = difference(alone, (A, dA))
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.long
def test_frequencies_beside_a_rigid_body_mode():
    """They grow like √k."""
    k = 1e4

    def frequencies(k):
        return jnp.abs(eig(free_masses(k)).values)

    found, slope = jax.jit(lambda k: jax.jvp(frequencies, (k,), (1.0,)))(k)
    gradient = jax.jit(jax.grad(lambda k: jnp.sum(frequencies(k)[2:])))(k)
    np.testing.assert_allclose(slope[2:], found[2:] / (2 * k), rtol=1e-10)
    assert gradient == pytest.approx(float(np.sum(found[2:])) / (2 * k), rel=1e-10)
    eigen = solved(free_masses(k))
    assert np.all(np.abs(eigen.values[:2]) <= eigen.errors[:2])
    assert np.array_equal(eigen.defective, [True, True, False, False, False, False])


def test_units_of_states_change_nothing():
    A, _ = similar(REPEATED["semisimple"][0], seed=6)
    units = np.array([1e-4, 1e3, 1.0, 1e5, 1e-3, 10.0])
    one, other = (solved(jnp.asarray(x)) for x in (A, A * units / units[:, None]))
    np.testing.assert_allclose(one.values, other.values, rtol=1e-11)
    np.testing.assert_array_equal(one.cluster, other.cluster)
    # The balancing is by powers of two.
    np.testing.assert_allclose(one.condition[3:], other.condition[3:], rtol=0.3)


@pytest.mark.long
def test_vmap_mixes_matrices_with_and_without_clusters():
    blocks = [jordan([-1, -1, -2, -3], [0]), jordan([-1, -1, -2, -2]), jordan([-1, -2, -3, -4])]
    As, dAs = (jnp.asarray(x) for x in zip(*map(similar, blocks), strict=True))
    together, rates = jax.jit(jax.vmap(lambda A, dA: jax.jvp(parts, (A,), (dA,))))(As, dAs)
    for k, (A, dA) in enumerate(zip(As, dAs, strict=True)):
        for found, expected in zip(rates, slopes(A, dA), strict=True):
            np.testing.assert_allclose(found[k][..., 2:], expected[..., 2:], atol=1e-9)
        np.testing.assert_allclose(together[0][k], solved(A).values, atol=1e-12)


@pytest.mark.long
def test_single_precision():
    rng = np.random.default_rng(7)
    A, dA = rng.normal(size=(5, 5)), rng.normal(size=(5, 5))
    small = slopes(jnp.asarray(A, jnp.float32), jnp.asarray(dA, jnp.float32))
    for found, expected in zip(small, slopes(jnp.asarray(A), jnp.asarray(dA)), strict=True):
        assert found.dtype == jnp.complex64
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    eigen = solved(free_masses(1e4).astype(jnp.float32))
    assert np.array_equal(eigen.defective, [True, True, False, False, False, False])


def test_calls_outside_jit_compile_once(caplog):
    A = jnp.asarray(similar(REPEATED["defective"][0])[0])
    jax.block_until_ready(eig(A))
    with jax.log_compiles():
        jax.block_until_ready(eig(2.0 * A))
    compiled = [record.getMessage() for record in caplog.records]
    assert not [message for message in compiled if "while" in message or "decompose" in message]


@pytest.mark.long
def test_values_that_are_not_traced_agree_with_traced_ones():
    """The same functions with NumPy's arrays, which return arrays of JAX."""
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(6, 6)), np.zeros((6, 6)), np.eye(6, k=1)]
    # Vectors of a block of three are determined to a few digits only.
    blocks += [similar(x[0])[0] for name, x in REPEATED.items() if "three" not in name]
    for A in blocks + [x.astype(np.float32) for x in blocks[:2]]:
        found, expected = eig(jnp.asarray(A)), solved(jnp.asarray(A))
        tolerance = 1e-9 if A.dtype == np.float64 else 1e-4
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert isinstance(x, jax.Array)
            assert x.dtype == y.dtype
        np.testing.assert_array_equal(found.cluster, expected.cluster)
        np.testing.assert_array_equal(found.defective, expected.defective)
        for name in ("values", "right", "left"):
            x, y = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance, err_msg=name)


def undamped(Q, P=None):
    n = len(Q)
    return np.block([[np.zeros((n, n)), np.eye(n) if P is None else P], [Q, np.zeros((n, n))]])


UNDAMPED = {
    "oscillating": undamped(-np.diag([1.0, 4.0, 9.0]) - 0.1),
    "unstable ones too": undamped(np.array([[-4.0, 1.0], [0.3, 2.0]])),
    "flutter": undamped(np.array([[-4.0, 3.0], [-3.0, -4.0]])),
    "of any kind": undamped(np.random.default_rng(5).normal(size=(5, 5))),
    "other rates, rounded": undamped(
        -np.diag([1.0, 4.0, 9.0]) - 0.1, np.diag([2.0, 0.5, 30.0]) + 1e-15
    ),
    "rates of several coordinates": undamped(
        -np.diag([1.0, 4.0, 9.0]) - 0.1, np.eye(3) + 0.3 * np.eye(3, k=1)
    ),
    "fast and slow": undamped(-np.diag([1e-6, 1.0, 1e6]) - 1e-7),
    "free": np.asarray(free_masses(7.0)),
    "no rates": undamped(-np.eye(2), np.zeros((2, 2))),
    "with a state besides": np.block(
        [
            [np.asarray(undamped(-np.diag([1.0, 4.0]) - 0.1)), 0.2 * np.eye(4, 1)],
            [np.eye(1, 4, 2), np.array([[-3.0]])],
        ]
    ),
    "a state alone": np.array([[-2.0]]),
}


@pytest.mark.parametrize("name", UNDAMPED)
def test_undamped_motion_by_a_problem_of_half_the_size(name):
    """Agrees with LAPACK's results for the whole matrix, which traced matrices are solved by."""
    A = UNDAMPED[name]
    found, expected = jax.tree.map(np.asarray, (eig(jnp.asarray(A)), solved(jnp.asarray(A))))
    np.testing.assert_array_equal(found.cluster, expected.cluster)
    np.testing.assert_array_equal(found.defective, expected.defective)
    size = 100.0 * found.errors
    assert np.all(np.abs(found.values - expected.values) <= size + 1e-12)
    apart = ~found.defective
    for x, y in ((found.right, expected.right), (found.left, expected.left)):
        np.testing.assert_allclose(x[:, apart], y[:, apart], atol=1e-9, rtol=1e-9)
    for side, x in ((A, found.right), (A.T, found.left)):
        values = found.values if side is A else found.values.conj()
        off = np.abs(side @ x - x * values[None]).max(axis=0)
        assert np.all(off <= (size + 1e-12) * np.abs(x).max(axis=0))


@pytest.mark.long
def test_nan_and_no_entries():
    assert np.all(np.isnan(solved(jnp.full((3, 3), jnp.nan)).values))
    empty = eig(jnp.zeros((0, 0)))
    assert empty.values.shape == (0,)
    assert empty.right.shape == (0, 0)
    one = solved(jnp.array([[3.0]]))
    np.testing.assert_array_equal(one.values, [3.0])
    np.testing.assert_array_equal(one.right, [[1.0]])


def modes(K, M):
    symmetric = eigh(K, M)
    return symmetric.values, symmetric.vectors


def symmetric(rng, n):
    X = rng.normal(size=(n, n))
    return X + X.T


@pytest.mark.smoke
def test_modes_of_distinct_frequencies():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(5, 5))
    K, M = symmetric(rng, 5), X @ X.T + np.eye(5)
    dK, dM = symmetric(rng, 5), symmetric(rng, 5)
    values, vectors = map(np.asarray, jax.jit(modes)(K, M))
    np.testing.assert_allclose(K @ vectors, M @ vectors * values, atol=1e-11)
    np.testing.assert_allclose(vectors.T @ M @ vectors, np.eye(5), atol=1e-12)
    assert np.all(vectors[np.argmax(np.abs(vectors), axis=0), range(5)] > 0.0)
    arrays = [jnp.asarray(x) for x in (K, M, dK, dM)]
    forward = jax.jit(lambda K, M, dK, dM: jax.jvp(modes, (K, M), (dK, dM))[1])(*arrays)
    for k, found in enumerate(forward):
        expected = difference(
            lambda K, M, k=k: np.asarray(jax.jit(modes)(jnp.asarray(K), jnp.asarray(M))[k]),
            (K, dK),
            (M, dM),
        )
        np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
    cotangents = tuple(jnp.asarray(rng.normal(size=x.shape)) for x in forward)
    by_K, by_M = jax.jit(lambda K, M, c: jax.vjp(modes, K, M)[1](c))(*arrays[:2], cotangents)
    expected = sum(np.sum(np.asarray(c * x)) for c, x in zip(cotangents, forward, strict=True))
    assert np.sum(by_K * dK) + np.sum(by_M * dM) == pytest.approx(expected, rel=1e-10)


def test_modes_of_one_frequency():
    """The mean of repeated values, and the projector onto the modes' span."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(5, 5)) + 2 * np.eye(5)
    M = X @ X.T
    K = X @ np.diag([0.0, 0.0, 3.0, 3.0, 7.0]) @ X.T
    dK, dM = symmetric(rng, 5), 0.1 * symmetric(rng, 5)
    found = jax.jit(eigh)(K, M)
    assert np.array_equal(found.cluster, [0, 0, 2, 2, 4])
    d_values, d_vectors = map(
        np.asarray, jax.jit(lambda *x: jax.jvp(modes, x[:2], x[2:])[1])(K, M, dK, dM)
    )
    vectors = np.asarray(found.vectors)
    for members, center in ((slice(0, 2), 0.0), (slice(2, 4), 3.0), (slice(4, 5), 7.0)):

        def span(K, M, center=center):
            return projector(np.linalg.solve(M, K), center, 1.0).real

        def mean(K, M, center=center):
            return np.trace(np.linalg.solve(M, K) @ span(K, M, center)) / np.trace(
                span(K, M, center)
            )

        slope = difference(mean, (K, dK), (M, dM))
        np.testing.assert_allclose(d_values[members], slope, rtol=1e-6)
        # The projector is Φ Φᵀ M.
        phi, d_phi = vectors[:, members], d_vectors[:, members]
        change = (d_phi @ phi.T + phi @ d_phi.T) @ M + phi @ phi.T @ dM
        np.testing.assert_allclose(change, difference(span, (K, dK), (M, dM)), atol=1e-7)


def test_modes_in_single_precision_and_of_a_singular_mass():
    K, M = jnp.diag(jnp.array([1.0, 4.0], jnp.float32)), jnp.eye(2, dtype=jnp.float32)
    found = jax.jit(eigh)(K, M)
    assert found.values.dtype == found.vectors.dtype == jnp.float32
    np.testing.assert_allclose(found.values, [1.0, 4.0], rtol=1e-6)
    assert np.all(np.isnan(jax.jit(eigh)(K, -M).values))
    assert eigh(jnp.zeros((0, 0)), jnp.zeros((0, 0))).values.shape == (0,)


def test_large_and_small_entries_in_single_precision():
    """LAPACK scales such matrices, and may forget to scale the eigenvalues back."""
    A = np.array([[1.0, 1.0], [0.999, 2.4]])
    for size in (1e-15, 1e12, 1e15):
        found = np.asarray(eig(jnp.asarray(size * A, jnp.float32)).values)
        expected = size * np.sort(np.linalg.eigvals(A))
        np.testing.assert_allclose(np.sort(found.real), expected, rtol=1e-6)

"""Kernels for GPUs, computed on the CPU, against JAX; and their text, assembled for a card."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import scalarjit
from scalarjit import cuda, cuda_call, cuda_tuning, lengths
from scalarjit.cuda import kernel_of
from tests.scalarjit.ptxas import assembled, ptxas
from tests.scalarjit.random_programs import arguments, close, random_function
from tests.scalarjit.test_calls import steps

pytest.importorskip("llvmlite")

A = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))
X = jnp.linspace(0.1, 0.7, 3)
XS = jnp.stack([X, X**2, -X, 0 * X, 1 - X, X + 2, 3 * X])
MANY = (None, 0)


def made(fn, *args):
    found = scalarjit.native_of(fn, *args)
    assert found is not None
    return found


def emulated(fn, *args, always=True):
    """Results by kernels on the CPU."""
    with scalarjit.emulated_gpu():
        lowered = jax.jit(fn).lower(*args)
        assert not always or "scalarjit_emulated_" in lowered.as_text()
        return lowered.compile()(*args)


def check(fn, *args, rtol=1e-12):
    found, wanted = emulated(fn, *args), jax.jit(fn)(*args)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-14), found, wanted
    )


def of_card(fn, *args):
    """Calls of kernels in a program for a GPU."""
    with scalarjit.emulated_gpu():
        lowered = jax.jit(fn).trace(*args).lower(lowering_platforms=("cuda",))
    return re.findall(r'name = "(\w+)"', lowered.as_text()), lowered.as_text()


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("seed", range(12))
def test_random_functions(seed, dtype):
    fn, given = random_function(seed), arguments(seed, dtype, (5,))
    one = scalarjit.native_of(fn, *(x[0] for x in given))
    if one is None:
        pytest.skip("no generated code")
    close(
        emulated(jax.vmap(one), *given, always=False), jax.vmap(fn)(*given), dtype, f"seed {seed}"
    )


def several(A, x):
    """Results of several types, one of them empty and one the same for all states."""
    return jnp.sin(A @ x), x[0] > 0.3, jnp.argmax(x), jnp.zeros((0, 2)), A.sum(0), jnp.float32(x[1])


def test_results_of_several_types():
    fn = made(several, A, X)
    check(jax.vmap(fn, MANY), A, XS)
    check(jax.vmap(fn, (0, None)), jnp.stack([A, 2 * A]), X)
    check(fn, A, X)


def nested(A, x):
    """Two loops, one within the other, and results of the outer one in another order."""
    x, count, *kept = steps(A, x, 4)
    return x, count, *kept, jnp.flip(kept[1], 0) + kept[0][:, None]


@pytest.mark.long
@pytest.mark.parametrize("local", [0, cuda.LOCAL])
def test_loops(monkeypatch, local):
    """Rows that loops write are in a thread's own memory, or in the card's."""
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)
    monkeypatch.setattr(cuda, "LOCAL", local)

    def fn(A, x):  # Another object for each case, so that its code is generated anew.
        return nested(A, x + local)

    own = made(fn, A, X)
    check(jax.vmap(own, MANY), A, XS)
    assert (kernel_of(own.program, (False, True)).work > 0) == (local == 0)
    total = lambda A, x: jnp.sum(own(A, x)[0] ** 2)  # noqa: E731
    check(jax.vmap(jax.grad(total, (0, 1)), MANY), A, XS, rtol=1e-10)
    check(jax.grad(lambda A, xs: jnp.sum(jax.vmap(total, MANY)(A, xs))), A, XS, rtol=1e-10)
    check(lambda A, xs: jax.jvp(lambda A: jax.vmap(own, MANY)(A, xs)[0], (A,), (A,)), A, XS)


def test_loops_without_a_limit():
    """Each state has its own number of rounds: Newton's method for a root."""

    def root(a):
        def step(carry):
            x, _, n = carry
            change = (x * x - a) / (2 * x)
            return x - change, jnp.abs(change), n + 1

        x, _, n = lax.while_loop(lambda c: c[1] > 1e-12, step, (a, jnp.ones(()), 0))
        return x, n

    a = jnp.array([2.0, 1e6, 1.0, 1e-3])
    found = emulated(jax.vmap(made(root, a[0])), a)
    np.testing.assert_allclose(found[0], jnp.sqrt(a), rtol=1e-12)
    assert len(set(np.asarray(found[1]))) == 4


@pytest.mark.long
def test_dense_factorizations():
    def solved(A, x):
        B = A @ A.T + jnp.diag(jnp.exp(x))
        q, r = jnp.linalg.qr(A + jnp.diag(x))
        return (
            jnp.linalg.solve(B, x),
            jnp.linalg.cholesky(B),
            jnp.linalg.svd(A * x[:, None])[1],
            q @ r,
        )

    large = jnp.asarray(np.random.default_rng(1).normal(size=(9, 9)))
    check(jax.vmap(made(solved, A, X), MANY), A, XS, rtol=1e-10)
    xs = jnp.linspace(-1.0, 1.0, 36).reshape(4, 9)
    check(jax.vmap(made(solved, large, xs[0]), MANY), large, xs, rtol=1e-8)


def test_batches_of_batches():
    fn = made(lambda A, x: jnp.sin(A @ x), A, X)
    As = jnp.stack([A, 2 * A])
    check(jax.vmap(jax.vmap(fn, MANY), (0, None)), As, XS)
    check(jax.vmap(jax.vmap(fn, (0, None)), MANY), As, XS)
    assert emulated(jax.vmap(fn, MANY), A, XS[:1]).shape == (1, 3)
    with scalarjit.emulated_gpu():
        assert jax.vmap(fn, MANY)(A, XS[:0]).shape == (0, 3)


def test_programs_for_a_card_hold_the_kernel():
    def fn(A, x):
        return lax.fori_loop(0, 100_000, lambda k, x: jnp.sin(A @ x) + jnp.sum(jnp.exp(A)), x)

    own = made(fn, A, X)
    calls, text = of_card(jax.vmap(own, MANY), A, XS)
    assert calls == ["prepare", "states"]
    assert "__gpu$xla.gpu.ptx" in text
    assert str(cuda.COUNT) not in text
    assert "mov.u64" in text
    with scalarjit.enabled(False):
        calls, _ = of_card(jax.vmap(own, MANY), A, XS)
    assert calls == ["prepare", "states"]  # The function was made before.


REASONS = {
    "operations": "more than 2, on a GPU",
    "no rule": "erf on a GPU",
    "arrays": "more than 1 arrays",
    "memory": "more than 8 bytes",
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_is_left_to_jax(monkeypatch, reason):
    """Programs that are too long, and functions without a rule for GPUs."""
    fn = jax.scipy.special.erf if reason == "no rule" else jnp.tan
    if reason == "memory":
        monkeypatch.setattr(cuda, "LOCAL", 0)
        monkeypatch.setattr(cuda, "MOST_WORK", 8)
    monkeypatch.setattr(cuda, "MOST", 2 if reason == "operations" else 100)
    kernel_of.cache_clear()
    monkeypatch.setattr(cuda, "MOST_ARRAYS", 1 if reason == "arrays" else 100)
    own = made(lambda x: fn(x) * jnp.cos(x), X)
    found = kernel_of(own.program, (True,))
    assert found.reason is not None
    assert REASONS[reason] in found.reason
    calls, _ = of_card(jax.vmap(own), XS)
    assert calls == []
    with scalarjit.emulated_gpu():
        np.testing.assert_allclose(jax.jit(jax.vmap(own))(XS), fn(XS) * jnp.cos(XS), rtol=1e-14)


def test_launches():
    """Threads cover all states, and not many more."""
    own = made(lambda x: jnp.sin(x), X)
    for count in (1, 31, 4096, 1_000_000):
        _, text = of_card(jax.vmap(own), jax.ShapeDtypeStruct((count, 3), X.dtype))
        grid, block = (int(re.search(rf"{x}_x = (\d+)", text).group(1)) for x in ("grid", "block"))
        assert count <= grid * block < count + block
        assert f", {count};" in text


def launch_in(text):
    """Threads of a block, and the limit on registers, of a program for a card."""
    block = int(re.search(r"block_x = (\d+)", text).group(1))
    most = re.search(r"maxnreg (\d+)", text)
    return block, most and int(most.group(1))


def test_the_fastest_launch_is_remembered(monkeypatch, tmp_path):
    """With a clock for which the launch with 64 threads and 168 registers is the fastest."""
    monkeypatch.setenv("SCALARJIT_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda_tuning, "_found", {})
    tried = []

    def seconds(run, args):
        np.testing.assert_allclose(run(*args), jnp.sin(XS), rtol=1e-14)
        tried.append(cuda_tuning.CANDIDATES[len(tried) // 2])
        return 1.0 if tried[-1] == (64, 168) else 2.0

    monkeypatch.setattr(cuda_tuning, "_seconds", seconds)
    fn = jax.vmap(made(lambda x: jnp.sin(x), X))
    with scalarjit.emulated_gpu():
        times = scalarjit.tune(fn, XS, repeats=2)
        kernel = kernel_of(fn.__wrapped__.program, (True,))
        assert min(times, key=times.get) == (64, 168)
        assert list(times) == list(cuda_tuning.CANDIDATES)
        for _ in range(2):  # From memory, and as another process.
            assert cuda_tuning.launch_of(kernel.ptx, len(XS)) == (64, 168)
            cuda_tuning._found.clear()
        assert cuda_tuning.launch_of(kernel.ptx, 16 * len(XS)) == cuda_tuning.usual(16 * len(XS))
    _, text = of_card(fn, XS)
    assert launch_in(text) == (64, 168)
    with cuda_tuning.on_trial(cuda_tuning.Launch(256, 128)):
        _, text = of_card(lambda x: fn(x), XS)
    assert launch_in(text) == (256, 128)


def test_what_cannot_be_tuned():
    with pytest.raises(RuntimeError, match="no kernels for a GPU: JAX runs on the CPU"):
        scalarjit.tune(jnp.sin, XS)
    with scalarjit.emulated_gpu(), pytest.raises(ValueError, match="has no kernel of a batch"):
        scalarjit.tune(jnp.sin, XS)


@pytest.mark.long
def test_text_with_a_limit_on_registers_is_assembled():
    own = made(lambda A, x: nested(A, x), A, X)
    kernel = kernel_of(own.program, (False, True))
    found, free = (assembled(ptxas(), x) for x in (cuda_tuning.limited(kernel.ptx, 40), kernel.ptx))
    assert found["states"]["registers"] <= 40 < free["states"]["registers"]


@pytest.mark.long
def test_text_is_assembled_for_a_card(monkeypatch):
    """ptxas accepts kernels of both kinds: with rows in a thread's memory and in the card's."""
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)
    for local in (0, cuda.LOCAL):
        monkeypatch.setattr(cuda, "LOCAL", local)
        own = made(lambda A, x, local=local: nested(A, x * (1 + local)), A, X)
        kernel = kernel_of(own.program, (False, True))
        assert "mul.f64" not in kernel.ptx  # All roundings are explicit: nothing is contracted.
        assert "add.f64" not in kernel.ptx
        found = assembled(ptxas(), kernel.ptx)
        assert found["states"]["registers"] <= 255
        assert found["states"]["spill stores"] == 0


def test_arguments_that_are_left_out():
    """Arrays that a program does not read are no arguments of its kernel."""
    own = made(lambda x, y, z: jnp.sin(x) + z.sum(), X, X, jnp.zeros((0, 3)))
    kernel = kernel_of(own.program, (True, True, True))
    assert kernel.args == (0,)
    check(jax.vmap(own), XS, XS, jnp.zeros((7, 0, 3)))
    assert cuda_call.CALL.startswith("__gpu$")


def test_batches_divided_among_devices():
    """As on several cards: each device has a kernel for its own states."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("states",))
    along = jax.sharding.PartitionSpec("states")
    one = scalarjit.jit(lambda x: jnp.sin(x) * x[0])
    many = jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=along, out_specs=along)
    check(many, XS)
    calls, _ = of_card(many, XS)
    assert calls == ["states"]

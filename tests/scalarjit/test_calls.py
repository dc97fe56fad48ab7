"""Generated code inside of JAX's programs: batches, loops, exports, and what is left to JAX."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import scalarjit
from scalarjit import emit, graph, handler, lengths, machine_code, module, switch, threads
from scalarjit.parameters import uncovered
from scalarjit.registered import PREFIX, code_of

pytest.importorskip("llvmlite")

A = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))
X = jnp.linspace(0.1, 0.7, 3)


def turned(A, x):
    return jnp.sin(A @ x), x[0] > jnp.sum(x) / 4, jnp.argmax(x)


def close(found, expected, rtol=1e-12):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol), found, expected)


def made(fn, *args, **options):
    with scalarjit.enabled(True):
        found = scalarjit.native_of(fn, *args, **options)
    assert found is not None
    return found


def test_results_of_several_types():
    fn, x = made(turned, A, X), jnp.stack([X, -X, 3 * X])
    close(fn(A, X), turned(A, X))
    close(jax.vmap(fn, (None, 0))(A, x), jax.vmap(turned, (None, 0))(A, x))


@pytest.mark.long
def test_batches_of_batches():
    fn = made(turned, A, X)
    As, xs = jnp.stack([A, 2 * A]), jnp.stack([X, X**2, -X, 0 * X, 1 - X])
    for axes in [((0, None), (None, 0)), ((None, 0), (0, None)), ((None, 0), (None, 0))]:
        own = jax.vmap(jax.vmap(fn, axes[0]), axes[1])
        given = As if axes[0][0] == 0 or axes[1][0] == 0 else A, xs
        if axes[0][1] == axes[1][1] == 0:
            given = given[0], jnp.stack([xs, 2 * xs])
        close(own(*given), jax.vmap(jax.vmap(turned, axes[0]), axes[1])(*given))


def test_sums_of_empty_arrays():
    def fn(x):
        return jnp.sum(x[:, None] * jnp.zeros((1, 0)), axis=0), jnp.sum(x[:0])

    close(made(fn, X)(X), fn(X))


def test_calls_within_calls():
    """Programs of one state are parts of others; those of batches are called by them."""
    inner = made(jnp.sin, X)
    own = made(lambda x: inner(x) * 2, X)
    assert own.program.eqns[0].primitive.name == "scalarjit_call"
    close(own(X), 2 * jnp.sin(X))
    close(jax.jit(jax.vmap(own))(jnp.outer(X, X)), 2 * jnp.sin(jnp.outer(X, X)))
    with scalarjit.enabled(True):
        batch = scalarjit.native_or_reason(lambda x: jax.vmap(inner)(x[None] * 2), X)
    assert isinstance(batch, scalarjit.NativeFunction)
    close(batch(X), jnp.sin(2 * X)[None])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_without_double_precision(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        x = jnp.linspace(0.1, 0.7, 3, dtype=dtype)
        given = lambda x: jnp.sin(x)[jnp.array([2, 0, 0])] + jnp.argmax(x).astype(x.dtype)  # noqa: E731
        own, xs = made(given, x), jnp.stack([x, -x])
        found, expected = jax.vmap(own)(xs), jax.vmap(given)(xs)
        assert found.dtype == dtype
        close(found, expected, rtol=1e-6)


def test_large_arrays_are_left_to_jax():
    large = jnp.ones((400, 400))
    for fn, x in ((lambda x: x @ x, large), (lambda x: jnp.outer(x, x), large[0])):
        with scalarjit.enabled(True):
            reason = str(scalarjit.native_or_reason(fn, x))
        assert "operations" in reason or "an array or a product as large" in reason


def test_batches_of_no_state():
    assert jax.vmap(made(jnp.sin, X))(jnp.zeros((0, 3))).shape == (0, 3)


def test_calls_in_loops_and_of_several_threads():
    fn = made(lambda x: jnp.cos(x) * 0.9, X)
    run = jax.jit(lambda x: lax.scan(lambda x, _: (fn(x), x[0]), x, None, length=1000))
    expected = lax.scan(lambda x, _: (jnp.cos(x) * 0.9, x[0]), X, None, length=1000)
    close([run(X) for _ in range(3)], [expected] * 3)


def test_batches_in_several_threads(monkeypatch):
    """Divided calls, of several threads at once and in loops, make the numbers of whole calls."""
    xs = jnp.asarray(np.random.default_rng(0).normal(size=(1001, 3)))

    def ends(many):
        monkeypatch.setattr(threads, "MANY_OPERATIONS", many)
        code_of.cache_clear()
        fn = made(lambda x: jnp.sin(A @ x) * 1.25 + jnp.exp(-x), X)
        step = lambda x, _: (jax.vmap(fn)(x), None)  # noqa: E731
        run = jax.jit(lambda xs: lax.scan(step, xs, None, length=50)[0])
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda k: np.asarray(run(xs)), range(20)))

    whole, divided = ends(10**12), ends(1)
    code_of.cache_clear()
    for found in (*whole, *divided):
        np.testing.assert_array_equal(found, whole[0])


def test_vector_code_that_llvm_does_not_schedule(monkeypatch):
    monkeypatch.setenv("SCALARJIT_CACHE", "")
    A, xs = jnp.arange(9.0).reshape(3, 3), jnp.linspace(0.1, 2.0, 60).reshape(20, 3)
    expected = jax.jit(jax.vmap(lambda x: jnp.sin(A @ x) * 3.25))(xs)
    for most, factor in ((0, 3.25), (15_000, 3.5)):  # Off, and on again.
        monkeypatch.setattr(machine_code, "MOST_SCHEDULED", most)
        fn = made(lambda A, x, factor=factor: jnp.sin(A @ x) * factor, A, xs[0])
        found = jax.jit(jax.vmap(fn, (None, 0)))(A, xs)
        close(found, factor / 3.25 * expected)


def steps(A, x, n=30):
    """Two loops, one within the other, with values that do not vary in them."""

    def inner(k, x):
        return x + 1e-3 * jnp.cos(A @ x) * jnp.exp(-(A[1] ** 2)) * (k + 1)

    def outer(carry, row):
        x, count = carry
        x = lax.fori_loop(0, 7, inner, x) + row
        return (x, count + 1), (x[0] * count, A[0] * row[0])

    rows = jnp.tile(x, (n, 1)) * jnp.arange(float(n))[:, None]
    (x, count), kept = lax.scan(outer, (x, 0), rows, reverse=True)
    return x, count, *kept


@pytest.mark.long
@pytest.mark.parametrize("shares", [True, False])
def test_loops_that_stay_loops(monkeypatch, shares):
    monkeypatch.setattr(lengths, "MAX_UNROLLED", 0)
    for limit in ("PART", "LONG"):
        monkeypatch.setattr(emit, limit, 20)
    if not shares:
        monkeypatch.setattr(graph, "MAX_SHARED_ITERATIONS", 0)

    def fn(A, x):  # Another object for each case, so that its code is generated anew.
        return steps(A, x + float(shares))

    own, xs = made(fn, A, X), jnp.stack([X, X**2, -X, 0 * X, 1 - X, X, X, X, X])
    close(own(A, X), fn(A, X))
    close(jax.vmap(own, (None, 0))(A, xs), jax.vmap(fn, (None, 0))(A, xs))
    total = lambda fn: lambda A, x: jnp.sum(fn(A, x)[0] ** 2)  # noqa: E731
    slopes = [jax.jit(jax.vmap(jax.grad(total(f), (0, 1)), (None, 0)))(A, xs) for f in (own, fn)]
    close(*slopes, rtol=1e-10)  # Sums of large numbers of both signs.


def test_long_loops_are_not_unrolled():
    def long(x):
        return lax.fori_loop(0, 100_000, lambda k, x: jnp.sin(x) + x / 2, x)

    own = made(long, X)
    code = code_of(own.program, (True,))
    assert code.shared + code.varying < 200
    close(own(X), long(X))


LEFT = {
    "reshape with dimensions": lambda A: jnp.reshape(A, (3, 3), order="F"),
    "dot_general with preferred_element_type": lambda A: jnp.matmul(
        A, A.T, preferred_element_type=jnp.float32
    ).astype(A.dtype),
    "dot_general with precision": lambda A: jnp.matmul(
        A, A.T, precision=lax.DotAlgorithmPreset.F32_F32_F32
    ),
    "sin with accuracy": lambda A: lax.sin(A, accuracy=lax.AccuracyMode.HIGHEST),
    "convert_element_type with new_dtype": lambda A: A.astype(jnp.float16).astype(A.dtype),
    "a computed index among 65 places": lambda A: jnp.resize(A + 1, 65)[jnp.argmax(A)],
    "traced values": None,
}


def test_loops_without_a_limit():
    """The number of rounds follows from the numbers; states of a batch have their own."""

    def fn(x):
        start = x, jnp.zeros((), jnp.int32)
        return lax.while_loop(
            lambda now: now[0][0] < 9, lambda now: (now[0] * 1.5, now[1] + 1), start
        )

    own, xs = made(fn, X), jnp.stack([X, 5 * X, 100 + X])
    close(own(X), fn(X))
    close(jax.vmap(own)(xs), jax.vmap(fn)(xs))
    for batch in (xs[:1], xs):
        close(made(jax.vmap(fn), batch)(batch), jax.vmap(fn)(batch))
    close(jax.jvp(lambda x: own(x)[0], (X,), (X,)), jax.jvp(lambda x: fn(x)[0], (X,), (X,)))


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_jax(name):
    with scalarjit.enabled(True):
        if name == "traced values":
            reasons = []
            jax.jit(lambda A: reasons.append(scalarjit.native_or_reason(lambda x: A @ x, X)))(A)
            (reason,) = reasons
        else:
            reason = scalarjit.native_or_reason(LEFT[name], A)
    assert isinstance(reason, str)
    assert reason.startswith(name)


@pytest.mark.parametrize("name", ["sin", "scan", "gather"])
def test_a_parameter_of_a_later_release(name):
    """One that is not in the table is one that no rule reads."""

    def fn(A):
        step = lambda total, row: (jnp.sin(total) + row[jnp.array([0, 1])], None)  # noqa: E731
        return lax.scan(step, A[0, :2], A)[0]

    (scan,) = (x for x in jax.make_jaxpr(fn)(A).jaxpr.eqns if x.primitive.name == "scan")
    inside = {x.primitive.name: x for x in scan.params["jaxpr"].jaxpr.eqns}
    equation = scan if name == "scan" else inside[name]
    assert uncovered(equation) is None
    changed = equation.replace(params=equation.params | {"novelty": 1})
    assert uncovered(changed) == f"{name} with novelty=1"


def test_exports_have_none_of_it():
    fn = jax.jit(jax.vmap(made(lambda x: jnp.sin(x) @ A, X, otherwise=lambda x: jnp.cos(x) @ A)))
    x = jax.ShapeDtypeStruct((5, 3), X.dtype)
    assert PREFIX in fn.lower(x).as_text()
    text = fn.trace(x).lower(lowering_platforms=("rocm",)).as_text()
    assert PREFIX not in text
    assert "stablehlo.cosine" in text
    assert "stablehlo.sine" not in text
    (n,) = export.symbolic_shape("n")
    exported = export.export(fn, platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((n, 3), X.dtype))
    assert PREFIX not in exported.mlir_module()
    close(exported.call(X[None]), jnp.cos(X[None]) @ A)


def test_the_switch(monkeypatch):
    monkeypatch.setenv(switch.VARIABLE, "1")
    assert scalarjit.native_of(jnp.sin, X) is not None
    with scalarjit.enabled(False):
        assert scalarjit.native_or_reason(jnp.sin, X) == "generated code is switched off"
        with scalarjit.enabled(True):
            assert scalarjit.native_of(jnp.sin, X) is not None
    monkeypatch.setenv(switch.VARIABLE, "on")
    with pytest.raises(ValueError, match="SCALARJIT is 'on': set it to 0"):
        scalarjit.native_of(jnp.sin, X)


def test_without_llvmlite_there_is_one_warning(monkeypatch):
    monkeypatch.setattr(switch, "is_installed", lambda: False)
    monkeypatch.setattr(switch, "_warned", [])
    monkeypatch.delenv(switch.VARIABLE, raising=False)
    with scalarjit.enabled(False):
        assert scalarjit.native_of(jnp.sin, X) is None
    with pytest.warns(RuntimeWarning, match="llvmlite, which is not installed"):
        assert scalarjit.native_of(jnp.sin, X) is None
    assert scalarjit.native_or_reason(jnp.sin, X) == "the package llvmlite is not installed"
    with scalarjit.enabled(True):
        assert scalarjit.native_of(jnp.sin, X) is None


def frame(size, stage, extension=0):
    """A call frame of XLA as bytes, without arguments and results."""
    words = np.zeros(size // 8, np.int64)
    words[[0, 1, 4]] = size, extension, stage
    return words


def test_queries_of_the_handler():
    fn = made(jnp.sin, X)
    close(fn(X), jnp.sin(X))
    from scalarjit import registered

    name = code_of(fn.program, (False,)).name
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(registered._loaded[name].handler)
    metadata = np.full(6, -1, np.int64)
    extension = np.array([32, handler.METADATA_TYPE, 0, metadata.ctypes.data])
    asked = frame(handler.FRAME_SIZE, handler.EXECUTE, extension.ctypes.data)
    assert call(asked.ctypes.data) is None
    assert tuple(metadata[1:4]) == (24, 0, handler.MINOR << 32 | handler.MAJOR)
    # Errors are made by a function of XLA, here by one that hands the address of its message back.
    texts = []
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))

    @kind
    def create(error):
        texts.append(ctypes.string_at(error[2]).decode())
        return 1

    api = np.zeros(20, np.int64)
    api[handler.ERROR_CREATE // 8] = ctypes.cast(create, ctypes.c_void_p).value
    for size, stage in ((96, handler.EXECUTE), (handler.FRAME_SIZE, 0)):
        wrong = np.concatenate([frame(size, stage), np.zeros(30, np.int64)])
        wrong[2] = api.ctypes.data
        assert call(wrong.ctypes.data) == 1
    assert texts == [handler.TEXT] * 2


def test_batches_that_store_many_results_are_left_to_jax(monkeypatch):
    monkeypatch.setattr(module, "MAX_STORES", 5)
    few, many = (made(lambda x, n=n: jnp.tile(jnp.sin(x), n), X) for n in (1, 2))
    assert code_of(few.program, (True,)).name is not None
    found = code_of(many.program, (True,))
    assert (found.name, found.reason) == (
        None,
        "about 6 instructions that store results of a batch",
    )
    assert code_of(many.program, (False,)).name is not None
    close(jax.vmap(many)(X[None]), jnp.tile(jnp.sin(X), 2)[None])

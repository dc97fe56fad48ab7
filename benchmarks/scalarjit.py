"""Small functions by scalarjit, by XLA and by Numba, on one core.

    python -m benchmarks.scalarjit

Prints Markdown: the time to trace and compile a batch, without caches on disk, and microseconds a
state. "Loop" is one state 1000 times in a compiled loop, each of which depends on the one before;
batches are calls from Python. Gradients are those of the sum of squares of the results. Numba is
optional (`pip install numba`); its functions are written by hand, without gradients. Times are the
shortest of several rounds, in which all ways take turns; the process keeps to one core where the
system allows it.
"""

import importlib.util
import os
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Before BLAS loads.
os.environ["SCALARJIT_CACHE"] = ""
if hasattr(os, "sched_setaffinity"):  # Before XLA counts the cores.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np

import scalarjit
from benchmarks.machine import machine

ALONE, SIZES, ROUNDS, SECONDS = 1000, (1, 64, 4096), 10, 0.02
LINKS = 6
AXES = np.eye(3)[[2, 1, 1, 0, 1, 0]]
OFFSETS = np.random.default_rng(0).uniform(0.1, 0.5, (LINKS, 3))


def pendulum(x: jax.Array) -> jax.Array:
    """Rates of a double pendulum: two angles and their rates; masses and lengths are 1."""
    a, b, u, v = x
    d, g = a - b, 9.81
    s, c = jnp.sin(d), jnp.cos(d)
    below = 3 - jnp.cos(2 * d)
    one = -3 * g * jnp.sin(a) - g * jnp.sin(a - 2 * b) - 2 * s * (v**2 + u**2 * c)
    two = 2 * s * (2 * u**2 + 2 * g * jnp.cos(a) + v**2 * c)
    return jnp.stack([u, v, one / below, two / below])


def solve(x: jax.Array) -> jax.Array:
    """Solve (B Bᵀ + 6 I) y = b by Cholesky's factorization; x is B with b as its last column."""
    B, b = x[:, :6], x[:, 6]
    return jsl.cho_solve(jsl.cho_factor(B @ B.T + 6 * jnp.eye(6), lower=True), b)


def arm(q: jax.Array) -> jax.Array:
    """Position of the tip of an arm of six hinges."""
    R, p = jnp.eye(3), jnp.zeros(3)
    for k in range(LINKS):
        x, y, z = AXES[k]
        cross = jnp.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        R = R @ (jnp.eye(3) + jnp.sin(q[k]) * cross + (1 - jnp.cos(q[k])) * cross @ cross)
        p = p + R @ OFFSETS[k]
    return p


def pendulum_by_hand(x: np.ndarray, out: np.ndarray) -> None:
    """`pendulum` for Numba."""
    a, b, u, v = x
    d, g = a - b, 9.81
    s, c = np.sin(d), np.cos(d)
    below = 3 - np.cos(2 * d)
    out[0], out[1] = u, v
    out[2] = -3 * g * np.sin(a) - g * np.sin(a - 2 * b) - 2 * s * (v**2 + u**2 * c)
    out[3] = 2 * s * (2 * u**2 + 2 * g * np.cos(a) + v**2 * c)
    out[2] /= below
    out[3] /= below


def solve_by_hand(x: np.ndarray, out: np.ndarray) -> None:
    """`solve` for Numba."""
    L = np.empty((6, 6))
    for i in range(6):
        for j in range(i + 1):
            total = 6.0 if i == j else 0.0
            for k in range(6):
                total += x[i, k] * x[j, k]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = np.sqrt(total) if i == j else total / L[j, j]
    for i in range(6):
        out[i] = x[i, 6]
        for k in range(i):
            out[i] -= L[i, k] * out[k]
        out[i] /= L[i, i]
    for i in range(5, -1, -1):
        for k in range(i + 1, 6):
            out[i] -= L[k, i] * out[k]
        out[i] /= L[i, i]


def arm_by_hand(q: np.ndarray, out: np.ndarray) -> None:
    """`arm` for Numba."""
    R, turned = np.eye(3), np.empty((3, 3))
    out[:] = 0.0
    for k in range(LINKS):
        s, c = np.sin(q[k]), np.cos(q[k])
        x, y, z = AXES[k]
        for i in range(3):  # Rows times the rotation about a unit vector.
            a, b, e = R[i]
            along = (1 - c) * (a * x + b * y + e * z)
            turned[i, 0] = c * a + s * (b * z - e * y) + along * x
            turned[i, 1] = c * b + s * (e * x - a * z) + along * y
            turned[i, 2] = c * e + s * (a * y - b * x) + along * z
        R[:] = turned
        for i in range(3):
            for j in range(3):
                out[i] += R[i, j] * OFFSETS[k, j]


def of_numba() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """For each function, one of a batch and one of the loop, compiled by Numba when first called.

    They write into their last argument.
    """
    from numba import njit

    def both(fn: Callable[..., None]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        one = njit(fn)

        @njit
        def batch(x: np.ndarray, out: np.ndarray) -> None:
            for k in range(len(x)):
                one(x[k], out[k])

        @njit
        def loop(x: np.ndarray, out: np.ndarray) -> None:
            x = x.copy()
            for _ in range(ALONE):
                one(x, out)
                x += 1e-9 * out.sum()

        return batch, loop

    by_hand = {"pendulum": pendulum_by_hand, "solve": solve_by_hand, "arm": arm_by_hand}
    return {name: both(fn) for name, fn in by_hand.items()}


FUNCTIONS = {
    "pendulum": (pendulum, (4,), (4,), "rates of a double pendulum"),
    "solve": (solve, (6, 7), (6,), "6 × 6 Cholesky solve"),
    "arm": (arm, (LINKS,), (3,), "tip of a 6-link arm"),
}


def by_jax(jit: Callable[..., Any], fn: Callable[[jax.Array], jax.Array], x: Any) -> Any:
    """Seconds to compile a batch, the loop and batches as functions without arguments."""

    def loop(x: jax.Array) -> jax.Array:
        step = lambda x, _: (x + 1e-9 * jnp.sum(fn(x)), None)  # noqa: E731
        return jax.lax.scan(step, x, None, length=ALONE)[0]

    batch = jax.jit(jax.vmap(jit(fn)))
    start = time.perf_counter()
    batch.lower(x).compile()
    compiling = time.perf_counter() - start
    run = jit(loop)
    given = [jnp.asarray(x[:n]) for n in SIZES]
    first = jnp.asarray(x[0])
    calls = [lambda: jax.block_until_ready(run(first))]
    return compiling, calls + [lambda x=x: jax.block_until_ready(batch(x)) for x in given]


def by_numba(functions: Any, x: np.ndarray, shape: tuple[int, ...]) -> Any:
    """The same by Numba."""
    batch, loop = functions
    start = time.perf_counter()
    batch(x, np.empty((len(x), *shape)))
    compiling = time.perf_counter() - start

    def of_batch(n: int) -> Callable[[], np.ndarray]:
        given, out = x[:n], np.empty((n, *shape))

        def run() -> np.ndarray:
            batch(given, out)
            return out

        return run

    first, out = x[0], np.empty(shape)
    return compiling, [lambda: loop(first, out), *map(of_batch, SIZES)]


def shortest(ways: list[Callable[[], Any]]) -> list[float]:
    """The shortest seconds of a call, of several rounds in turn."""
    counts = []
    for run in ways:
        run()
        scalarjit.optimize()
        start = time.perf_counter()
        run()
        counts.append(max(1, int(SECONDS / (time.perf_counter() - start))))
    found = [np.inf] * len(ways)
    for _ in range(ROUNDS):
        for k, (run, count) in enumerate(zip(ways, counts, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                run()
            found[k] = min(found[k], (time.perf_counter() - start) / count)
    return found


def rows(name: str, written: Any) -> list[str]:
    """Rows of the table of one function."""
    fn, shape, of_result, label = FUNCTIONS[name]
    x = np.random.default_rng(1).normal(size=(max(SIZES), *shape))

    def slope(x: jax.Array) -> jax.Array:
        return jax.grad(lambda x: jnp.sum(fn(x) ** 2))(x)

    table = []
    for what, own in (("value", fn), ("gradient", slope)):
        ways = {"scalarjit": by_jax(scalarjit.jit, own, x), "XLA": by_jax(jax.jit, own, x)}
        if written and own is fn:
            ways["Numba"] = by_numba(written[name], x, of_result)
        expected = np.asarray(ways["XLA"][1][-1]())
        for _, calls in ways.values():
            np.testing.assert_allclose(calls[-1](), expected, rtol=1e-7, atol=1e-9)
        counts = ALONE, *SIZES
        columns = zip(*(calls for _, calls in ways.values()), strict=True)
        times = zip(*map(shortest, map(list, columns)), strict=True)
        for (way, (compiling, _)), found in zip(ways.items(), times, strict=True):
            numbers = [f"{1e6 * t / n:.3g}" for t, n in zip(found, counts, strict=True)]
            table.append(f"| {label} | {what} | {way} | {compiling:.2f} | {' | '.join(numbers)} |")
            label = what = ""
    return table


def main() -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    written = of_numba() if importlib.util.find_spec("numba") else None
    for start in (scalarjit.jit(jnp.tan), jax.jit(jnp.tan)):  # Starts of LLVM and XLA.
        jax.block_until_ready(start(jnp.ones(2)))
    if written:
        from numba import __version__, njit

        njit(lambda x: x)(1.0)
        print(f"Numba {__version__}")
    print(f"{machine()} One core.\n")
    head = "| | | | compile [s] | loop | " + " | ".join(f"batch of {n}" for n in SIZES)
    print(f"{head} |\n|{'---|' * (5 + len(SIZES))}")
    for name in FUNCTIONS:
        print("\n".join(rows(name, written)), flush=True)


if __name__ == "__main__":
    main()

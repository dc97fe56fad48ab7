"""The example of the package's README, and `jit` as it is used there."""

import inspect
import re
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scalarjit
from scalarjit.registered import PREFIX

pytest.importorskip("llvmlite")


def run(code):
    known = {"scalarjit": scalarjit, "jax": jax, "jnp": jnp}
    exec(compile(code, "example", "exec"), known)
    return known


def test_the_example_of_the_readme():
    text = (Path(scalarjit.__file__).parent / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    made = run(code)
    mu = 398600.0
    np.testing.assert_allclose(made["accelerations"], np.full((4096, 3), -mu * 3**-1.5), rtol=1e-12)
    np.testing.assert_allclose(made["gradient"], -(3**-0.5), rtol=1e-12)
    program = jax.jit(made["rates"]).lower((jnp.ones(3), jnp.ones(3)), mu).as_text()
    assert PREFIX in program
    assert "sqrt" not in program


def test_the_example_of_jit():
    code = inspect.getdoc(scalarjit.jit).partition("For example:\n\n")[2]
    found = run(textwrap.dedent(code))["many"]
    np.testing.assert_allclose(found, np.tile([1, -np.sin(1)], (1000, 1)), rtol=1e-14)


def test_public_names_have_docstrings():
    assert all(getattr(scalarjit, name).__doc__ for name in scalarjit.__all__)


def test_functions_that_are_left_to_xla():
    """Those without a rule, with traced values of another function, and without `jit`."""
    fft = scalarjit.jit(lambda x: jnp.fft.fft(x).real)
    x = jnp.arange(4.0)
    np.testing.assert_allclose(fft(x), np.fft.fft(x).real)
    slope = jax.grad(lambda a: scalarjit.jit(lambda x: jnp.sum(a * x**2))(x))(2.0)
    assert slope == 14.0
    with jax.disable_jit():
        seen = []
        scalarjit.jit(lambda x: seen.append(float(x[1])) or x)(x)
    assert seen == [1.0]


def test_options_and_pytrees():
    @scalarjit.jit
    def total(x, *rest, scale):
        return {"sum": scale * (x["a"] + sum(rest)), "count": jnp.asarray(len(rest))}

    found = total({"a": jnp.ones(2)}, 1.0, 2.0, scale=0.5)
    np.testing.assert_array_equal(found["sum"], [2.0, 2.0])
    assert found["count"] == 2

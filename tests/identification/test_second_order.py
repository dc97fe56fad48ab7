"""Products with second derivatives of a misfit, against differences and whole matrices."""

import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import optimize

import jaxmbd as mbd
from tests.identification.test_identify import NOISE, SELECT, experiment, pendulum, records

H = 1e-4  # Of differences; free numbers are of order one.


@functools.cache
def misfit():
    """Two records of different lengths with starts of their own, outliers, and a prior."""
    known = mbd.priors.Normal(2.1, 0.05)
    select = SELECT | {
        "stiffness": mbd.Parameter("forces.spring.stiffness", mbd.transforms.Positive(), known)
    }
    return mbd.misfit(
        pendulum(0.8, 0.11, 1.98),
        records(lengths=(12, 9)),
        select,
        noise={"hinge": NOISE},
        loss=mbd.losses.PseudoHuber(),
        fit_initial_states=True,
        integrator=diffrax.Heun(),  # Of two stages, soon compiled.
    )


def differences(fn, x):
    """Central differences of fourth order, a column for each number."""

    def along(direction):
        near, far = (fn(x + k * H * direction) - fn(x - k * H * direction) for k in (1, 2))
        return (8 * near - far) / (12 * H)

    return jnp.stack([along(direction) for direction in jnp.eye(x.size)], axis=-1)


X = 0.06 * np.linspace(0.0, 1.0, 7)  # Away from the start.
V = np.array([0.3, -1.0, 0.4, 0.8, 0.1, -0.6, 0.2])


def close(ours, theirs, relative):
    np.testing.assert_allclose(ours, theirs, atol=relative * float(jnp.max(jnp.abs(theirs))))


@pytest.mark.thorough
def test_gauss_newton_is_that_of_the_jacobian():
    m, x = misfit(), misfit().start + X
    look = eqx.filter_jit(lambda x, v: (m(x), m.residuals(x), m.gauss_newton(x).mv(v)))
    value, r, product = look(x, V)
    assert r.shape == (2 * 12 + 1,)  # Zero where the shorter record has ended.
    assert float(value) == pytest.approx(0.5 * float(r @ r), rel=1e-14)
    J = differences(lambda x: look(x, V)[1], x)
    close(product, J.T @ (J @ V), 1e-7)
    assert m.labels == ["stiffness", "friction", "inertia"]


@pytest.mark.thorough
def test_second_derivatives():
    """Against differences of the gradient, and through the rule of blocks that solvers use."""
    m = misfit()
    x, unravel = m.start + X, ravel_pytree(m.problem.unknowns())[1]

    def by_blocks(x):
        return 0.5 * jnp.sum(m.problem.flat(unravel(x)) ** 2)

    look = eqx.filter_jit(lambda x, v: (jax.grad(m)(x), m.hessian(x).mv(v)))
    gradient, product = look(x, V)
    close(product, differences(lambda x: look(x, V)[0], x) @ V, 1e-7)
    # Residuals are large here, and the Hessian is not that of Gauss and Newton.
    assert float(jnp.max(jnp.abs(m.gauss_newton(x).mv(jnp.asarray(V)) - product))) > 1.0
    along = jax.jit(lambda x, v: jax.jvp(jax.grad(by_blocks), (x,), (v,)))
    for ours, theirs in zip(along(x, V), (gradient, product), strict=True):
        close(ours, theirs, 1e-9)


@pytest.mark.thorough
def test_second_derivatives_through_implicit_steps():
    select = ["forces.spring.stiffness", "forces.bearing.coefficient"]
    record = experiment(0.5, 0.0, 0.4 * np.ones(8))
    integrator = mbd.GeneralizedAlpha()
    m = mbd.misfit(pendulum(), record, select, noise={"hinge": 0.1}, integrator=integrator)
    x, v = 1.1 * m.start, jnp.array([1.0, -0.5])
    look = eqx.filter_jit(lambda x: (jax.grad(m)(x), m.hessian(x).mv(v)))
    ahead, behind = (look(x + h * v)[0] for h in (H, -H))
    close(look(x)[1], (ahead - behind) / (2 * H), 1e-6)


@pytest.mark.thorough
def test_other_minimizers_end_where_identify_does():
    """Minimizers with products with the Hessian, and conjugate gradients in Gauss–Newton steps."""
    start, options = pendulum(0.8, 0.11, 1.98), {"noise": {"hinge": NOISE}}
    fit = mbd.identify(start, records(), SELECT, **options)
    m = mbd.misfit(start, records(), SELECT, **options)
    value_and_slope = eqx.filter_jit(lambda x: jax.value_and_grad(m)(x))
    product = eqx.filter_jit(lambda x, v: m.hessian(x).mv(v))
    found = optimize.minimize(value_and_slope, m.start, jac=True, hessp=product, method="trust-ncg")
    np.testing.assert_allclose(m.report(jnp.asarray(found.x)), fit.values, rtol=1e-5)

    @eqx.filter_jit
    def step(x):
        solver = lx.CG(rtol=1e-10, atol=1e-10)
        # jaxlib 0.10 cannot compile the errors of a solve by products with this operator.
        solve = lx.linear_solve(m.gauss_newton(x), jax.grad(m)(x), solver, throw=False)
        return x - solve.value, solve.result == lx.RESULTS.successful

    x = m.start
    for _ in range(8):
        x, is_solved = step(x)
        assert is_solved
    np.testing.assert_allclose(m.report(x), fit.values, rtol=1e-5)

"""Geometric stiffness of reduced bodies, from the matrices of beam elements."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import flexible
from jaxmbd.flexible.beam import _assembled
from jaxmbd.flexible.reduction import stiffened

from .beams import SLENDER, spinning_frequencies

FLAP = {1: 3.6816, 5: 6.4495}
N = 24


def tension(forces):
    """Geometric stiffness of a chain of beam elements under these axial forces, both planes."""
    h, n = 1.0 / len(forces), 6 * (len(forces) + 1)
    K = np.zeros((n, n))
    bending = np.array(
        [
            [36, 3 * h, -36, 3 * h],
            [3 * h, 4 * h**2, -3 * h, -(h**2)],
            [-36, -3 * h, 36, -3 * h],
            [3 * h, -(h**2), -3 * h, 4 * h**2],
        ]
    ) / (30 * h)
    for e, force in enumerate(forces):
        for rows, signs in (([1, 5, 7, 11], [1, 1, 1, 1]), ([2, 4, 8, 10], [1, -1, 1, -1])):
            at = 6 * e + np.array(rows)
            K[np.ix_(at, at)] += force * bending * np.outer(signs, signs)
    return K


@functools.cache
def matrices(n=N):
    """K, lumped M and positions of a unit beam, and its geometric stiffness."""
    h, x = 1.0 / n, np.linspace(0.0, 1.0, n + 1)
    values = (jnp.asarray(v) for v in (1e9, 4e8, 1000.0))
    _, K, _, positions = _assembled(*values, SLENDER, jnp.asarray(h), "bernoulli", n)
    shares = np.full(n + 1, h)
    shares[[0, -1]] = 0.5 * h
    M = np.kron(np.diag(shares), np.diag([1, 1, 1, 2e-6, 1e-6, 1e-6]))
    # Axial forces with the base held: what acts beyond the middle of each element.
    middle = 0.5 * (x[1:] + x[:-1])
    beyond = middle[:, None] < x[None]
    uniform, linear = np.zeros((3, len(K), len(K))), np.zeros((3, 3, len(K), len(K)))
    uniform[0] = tension(beyond @ shares)
    linear[0, 0] = tension(beyond @ (shares * x))
    pull = np.zeros((6, len(K), len(K)))
    pull[0] = tension(np.ones(n))
    return np.asarray(K), M, np.asarray(positions), uniform, linear, pull


@functools.cache
def reduced(with_data=True):
    K, M, positions, uniform, linear, pull = matrices()
    given = flexible.GeometricStiffness(uniform, linear, {"tip": pull}) if with_data else None
    return flexible.reduce(K, M, positions, {"base": 0}, 6, nodes={"tip": N}, geometric=given)


@pytest.mark.long
@pytest.mark.parametrize("omega", [1, 5])
def test_a_spinning_cantilever_gains_stiffness(omega):
    own = spinning_frequencies(reduced(), [0.0, 0.0, omega])
    expected = np.sort([FLAP[omega], np.sqrt(FLAP[omega] ** 2 - omega**2)])
    np.testing.assert_allclose(own[:2], expected, rtol=1e-3)


@pytest.mark.long
def test_without_data_it_loses_stiffness():
    with pytest.raises(AssertionError):
        spinning_frequencies(reduced(False), [0.0, 0.0, 5.0])


@pytest.mark.long
def test_displacements_at_a_node_do_the_work_of_the_load():
    """Euler's load on the tip, through the displacement of second order of its node."""
    body, load = reduced(), np.pi**2 / 4.0

    def lowest(P):
        def energy(eta):
            shift = body.coefficients(eta)[1:] @ body.translations[dict(body.nodes)["tip"]]
            return body.elastic_energy(eta) + P * shift[0]

        return float(jnp.linalg.eigvalsh(jax.hessian(energy)(jnp.zeros(body.n_elastic)))[0])

    assert lowest(0.99 * load) > 0 > lowest(1.01 * load)


@pytest.mark.long
def test_weight_softens_a_column():
    """Greenhill: a column of unit stiffness buckles under 7.8373 times its unit weight."""
    body = reduced()

    def lowest(weight):
        def energy(eta):
            c = body.coefficients(eta)
            return body.elastic_energy(eta) + weight * (c @ body.first)[0]

        return float(jnp.linalg.eigvalsh(jax.hessian(energy)(jnp.zeros(body.n_elastic)))[0])

    assert lowest(0.99 * 7.8373) > 0 > lowest(1.01 * 7.8373)


@pytest.mark.long
def test_messages():
    K, M, positions, uniform, linear, pull = matrices()

    def build(uniform=uniform, linear=linear, loads=None, **options):
        given = flexible.GeometricStiffness(uniform, linear, loads)
        return flexible.reduce(K, M, positions, {"base": 0}, 2, geometric=given, **options)

    mbd.Model({"beam": build()})  # Masses are consistent: S is not indefinite.
    for match, options in (
        ("uniform must be an array of shape", {"uniform": uniform[0]}),
        ("linear must be an array of shape", {"linear": uniform}),
        ("have 6 rows, but K has", {"uniform": uniform[:, :6, :6], "linear": linear[..., :6, :6]}),
        ("unknown node 'top'; known are 'base'", {"loads": {"top": pull}}),
        ("requires frame='clamped'", {"frame": "mean-axis", "method": "free"}),
    ):
        with pytest.raises(mbd.ModelError, match=match):
            build(**options)


def test_body_forces_need_mass_to_act_on():
    """A line along x has no mass away from it for the body force ρ y e_x."""
    moments = np.zeros((2, 3, 2, 3))
    moments[0, 0, 0, 0] = 1.0 / 3.0
    arrays = {
        "mass": jnp.ones(()),
        "first": jnp.asarray([[0.5, 0, 0], [0, 0, 0.1]]),
        "second": jnp.asarray(moments),
        "translations": jnp.zeros((1, 1, 3)),
        "rotations": jnp.zeros((1, 1, 3)),
    }
    linear = np.zeros((3, 3, 6, 6))
    linear[1, 0] = np.eye(6)

    def build(given):
        data = flexible.GeometricStiffness(np.zeros((3, 6, 6)), given)
        return stiffened(arrays, data, jnp.ones((6, 1)), {"base": 0}, "reduce")

    # ρ x e_y acts on the line.
    assert build(np.swapaxes(linear, 0, 1))["second"].shape == (3, 3, 3, 3)
    with pytest.raises(mbd.ModelError, match="directions in which the body has no extent"):
        build(linear)

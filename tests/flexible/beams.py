"""Beams with unit length, bending stiffness and mass, and small linear models of one body."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from jaxmbd import flexible
from jaxmbd.mechanism.groups import required_force
from jaxmbd.system.mass_and_energy import inertia_matrix

# E I = ρ A = L = 1, with a radius of gyration of 1e-3: rotary inertia does not matter.
SLENDER = flexible.General(A=1e-3, Iy=1e-9, Iz=1e-9, J=2e-9)
ROUND = flexible.Round(0.05)


def unit_beam(n_elements=10, n_modes=6, **options):
    """An Euler-Bernoulli beam in units of its own."""
    options = {"theory": "bernoulli", **options}
    return flexible.beam(1.0, 1e9, 4e8, 1000.0, SLENDER, n_elements, n_modes, **options)


@functools.cache
def thick_beam(**options):
    """A short beam of aluminium with all kinds of motion."""
    options = {"n_elements": 4, "n_modes": 2, "interfaces": ("base", "tip"), **options}
    section = flexible.Rectangle(0.04, 0.02)
    return flexible.beam(0.5, 7e10, 2.6e10, 2700.0, section, **options)


@jax.jit
def _spinning(body, omega):
    """Stiffness, gyroscopic and mass matrix of η about the equilibrium of a spinning frame."""
    k = body.n_elastic

    def force(eta, eta_dot):
        u = jnp.concatenate([jnp.zeros(3), omega, eta_dot])
        u_dot = jnp.zeros_like(u)
        return required_force(body, eta, u, u_dot)[6:]

    still = jnp.zeros(k)

    def newton(eta, _):
        J = jax.jacfwd(force)(eta, still)
        return eta - jnp.linalg.solve(J, force(eta, still)), None

    eta, _ = jax.lax.scan(newton, still, None, length=5)
    K, G = (jax.jacfwd(force, i)(eta, still) for i in (0, 1))
    return K, G, inertia_matrix(body, eta)[6:, 6:]


def spinning_frequencies(body, omega):
    """Angular frequencies [rad/s], ascending, in a frame that turns about its origin at `omega`."""
    K, G, M = (np.asarray(x) for x in _spinning(body, jnp.asarray(omega, dtype=float)))
    k = len(K)
    left = np.block([[np.zeros((k, k)), np.eye(k)], [-K, -G]])
    right = scipy.linalg.block_diag(np.eye(k), M)
    values = np.linalg.eigvals(np.linalg.solve(right, left))
    assert np.abs(values.real).max() < 1e-6 * np.abs(values).max()
    return np.sort(values.imag[values.imag > 0])

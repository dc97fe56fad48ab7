"""Modal assurance, and modes followed through crossing frequencies."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd.linear import eigh, follow, modal_assurance


@pytest.mark.long
def test_assurance_of_equal_and_orthogonal_shapes():
    rng = np.random.default_rng(0)
    phi = np.linalg.qr(rng.normal(size=(4, 3)) + 1j * rng.normal(size=(4, 3)))[0]
    factors = np.array([2.0j, -3.0, 0.1 + 1j])
    found = modal_assurance(jnp.asarray(phi), jnp.asarray(phi * factors))
    np.testing.assert_allclose(found, np.eye(3), atol=1e-14)
    between = jnp.asarray(phi[:, :1] + phi[:, 1:2])
    np.testing.assert_allclose(
        modal_assurance(jnp.asarray(phi), between)[:, 0], [0.5, 0.5, 0], atol=1e-14
    )
    assert np.all(modal_assurance(jnp.zeros((4, 1)), jnp.asarray(np.real(phi))) == 0.0)


def test_modes_keep_their_places_where_frequencies_cross():
    def shapes(k):
        return eigh(jnp.diag(jnp.array([1.0, k, 4.0])), jnp.eye(3)).vectors

    followed = follow([shapes(k) for k in (0.5, 2.0, 5.0, 0.3)])
    np.testing.assert_array_equal(followed.order, [[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 1, 2]])
    np.testing.assert_allclose(followed.assurance, 1.0)


def test_shapes_that_do_not_match():
    with pytest.raises(ValueError, match=r"not \(2, 2\), \(3, 3\)"):
        follow([np.eye(2), np.eye(3)])
    with pytest.raises(ValueError, match="no mode shapes"):
        follow([])

"""Slip laws against closed forms and their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import tyres

FORCE = 4000.0
LOAD = jnp.asarray(FORCE)
LAWS = {
    "linear": tyres.Linear([12.0, 10.0], [0.9, 0.8], 0.03),
    "brush": tyres.Brush([12.0, 10.0], [0.9, 0.8], 0.03),
    "magic": tyres.MagicFormula([10.0, 8.0], [1.5, 1.3], [0.9, 0.8], [-0.5, 0.4], 0.03),
}
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


@pytest.mark.long
@every_law
def test_slope_at_zero_and_sliding(law):
    """The slope at zero slip is the slip stiffness, and slip is resisted, at most by friction."""
    zero = jnp.zeros(2)
    slope = jax.jacfwd(law.force)(zero, LOAD)
    np.testing.assert_allclose(slope, np.diag(-LOAD * law.friction / law.saturation), rtol=1e-12)
    np.testing.assert_allclose(jax.jacrev(law.force)(zero, LOAD), slope, rtol=1e-12)
    for s in np.random.default_rng(0).normal(size=(20, 2)):
        force = law.force(jnp.asarray(s), LOAD)
        assert s @ np.asarray(force) < 0
        assert np.linalg.norm(force / law.friction) <= LOAD * (1 + 1e-12)
    assert np.all(np.asarray(law.force(jnp.ones(2), jnp.zeros(()))) == 0)
    assert float(law.pneumatic_trail(zero)) == pytest.approx(0.03)


def test_brush_is_the_parabola_of_pacejka():
    law, mu, c = LAWS["brush"], 0.8, 10.0
    for theta in (0.1, 0.5, 0.999, 1.0, 3.0):
        slip = jnp.asarray([0.0, 3.0 * mu * theta / c])
        part = min(theta, 1.0)
        wanted = -3.0 * mu * FORCE * part * (1.0 - part + part**2 / 3.0)
        np.testing.assert_allclose(law.force(slip, LOAD), [0.0, wanted], rtol=1e-12, atol=1e-9)
        moment = mu * FORCE * 0.09 * part * (1.0 - part) ** 3
        found = -law.pneumatic_trail(slip) * law.force(slip, LOAD)[1]
        np.testing.assert_allclose(found, moment, rtol=1e-10, atol=1e-9)


def test_magic_formula_at_known_points():
    law = LAWS["magic"]
    B, C, E, D = 10.0, 1.5, -0.5, 0.9 * FORCE
    for s in (0.02, 0.1, 0.7):
        curved = B * s - E * (B * s - np.arctan(B * s))
        wanted = -D * np.sin(C * np.arctan(curved))
        np.testing.assert_allclose(law.force(jnp.asarray([s, 0.0]), LOAD)[0], wanted, rtol=1e-12)
    # The peak D is where the argument of the sine is a right angle.
    slips = jnp.stack([jnp.linspace(0.0, 1.0, 20001), jnp.zeros(20001)], axis=1)
    sizes = -jax.vmap(law.force, (0, None))(slips, LOAD)[:, 0]
    assert float(jnp.max(sizes)) == pytest.approx(D, rel=1e-6)
    simple = tyres.MagicFormula(8.0, 1.3, 0.8)
    peak = jnp.asarray([0.0, np.tan(np.pi / 2.6) / 8.0])
    np.testing.assert_allclose(simple.force(peak, LOAD), [0.0, -0.8 * FORCE], rtol=1e-12)


@every_law
def test_combined_slip_of_like_axes_has_the_direction_of_slip(law):
    """With equal numbers along x and y the force is opposite to the slip, as large as for pure."""
    same = jax.tree.map(lambda x: x[:1] + 0.0 * x if x.ndim else x, law)
    pure = same.force(jnp.asarray([0.15, 0.0]), LOAD)[0]
    both = same.force(0.15 * jnp.asarray([0.6, -0.8]), LOAD)
    np.testing.assert_allclose(both, pure * np.array([0.6, -0.8]), rtol=1e-12)

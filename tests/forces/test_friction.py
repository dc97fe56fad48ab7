"""Stribeck's curve and friction that knows its direction: their laws, limits and derivatives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, joints, testing
from tests.derivatives import difference

T = jnp.asarray(0.7)
COULOMB, STATIC, STRIBECK, VISCOUS, SMALL = 1.2, 1.9, 0.08, 0.4, 1e-3
CURVE = forces.StribeckFriction("hinge", COULOMB, STATIC, STRIBECK, VISCOUS, SMALL)
OTHER = forces.StribeckFriction("hinge", 0.7, 0.8, 0.05, 0.1, SMALL)
BOTH = forces.AsymmetricFriction(CURVE, OTHER, SMALL)
V = jnp.asarray([-2.0, -0.3, -0.05, -2e-3, -1e-4, 1e-4, 2e-3, 0.05, 0.3, 2.0])
LEAVES = (
    "coulomb",
    "static",
    "stribeck_velocity",
    "viscous",
    "transition_velocity",
    "exponent",
)


@jax.jit
def law(friction, v):
    """Forces at many velocities, taken for those of one joint."""
    return friction.force(T, jnp.zeros_like(v), v)


slopes = jax.jit(jax.jacrev(law, argnums=(0, 1)))


def wanted(v, exponent=2.0):
    """The law in words of its own, one velocity at a time."""
    faded = np.exp(-((abs(v) / STRIBECK) ** exponent))
    dry = (COULOMB * (1.0 - faded) + STATIC * faded) * np.tanh(abs(v) / SMALL)
    return -np.sign(v) * (dry + VISCOUS * abs(v))


@pytest.mark.smoke
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
def test_closed_form(exponent):
    curve = eqx.tree_at(lambda f: f.exponent, CURVE, jnp.asarray(exponent))
    np.testing.assert_allclose(law(curve, V), [wanted(v, exponent) for v in V.tolist()], rtol=1e-13)
    assert curve.potential(T, jnp.zeros(1)) == 0


def test_numbers_for_each_velocity():
    each = forces.StribeckFriction("sleeve", (1.0, 2.0), (1.5, 3.0), (0.1, 0.2), (0.0, 1.0), SMALL)
    dry = [1.0 + 0.5 * np.exp(-1.0), 2.0 + np.exp(-1.0)]
    np.testing.assert_allclose(
        law(each, np.array([0.1, -0.2])), [-dry[0], dry[1] + 0.2], rtol=1e-14
    )


def test_curve_rises_to_static_and_falls_to_coulomb():
    v = np.geomspace(1e-6, 10.0, 1000)
    force = -np.asarray(law(CURVE, v))
    assert 0.995 * STATIC < np.max(force[v < STRIBECK]) < STATIC
    np.testing.assert_allclose(force[v > 0.6], COULOMB + VISCOUS * v[v > 0.6], rtol=1e-14)
    slow = v[v < 3.0 * SMALL]
    assert np.all(np.diff(force[: len(slow)]) > 0)
    falling = (v > 0.01) & (v < 0.1)
    assert np.all(np.diff(force[falling]) < 0)


def test_steady_speed_and_creep():
    """Friction balances a load at a sliding speed, and below static friction at a creeping one."""
    load = 2.5
    np.testing.assert_allclose(
        law(CURVE, V.at[0].set((load - COULOMB) / VISCOUS))[0], -load, rtol=1e-14
    )
    creep = SMALL * np.arctanh(0.8)
    # At this speed the loss of static friction and the viscous part are of the order 1e-3.
    np.testing.assert_allclose(law(CURVE, V.at[0].set(creep))[0], -0.8 * STATIC, rtol=1e-3)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0])
def test_at_rest(exponent):
    """No force, the slope by hand, and derivatives by every coefficient, which vanish."""
    curve = eqx.tree_at(lambda f: f.exponent, CURVE, jnp.asarray(exponent))
    # At rest, and so near to it that squares are no numbers any more.
    v = jnp.asarray([0.0, 1e-300, 1e-160, 1e-100])
    by_leaf, by_speed = slopes(curve, v)
    assert law(curve, v)[0] == 0.0
    np.testing.assert_allclose(jnp.diag(by_speed), -STATIC / SMALL - VISCOUS, rtol=1e-14)
    for name in LEAVES:
        np.testing.assert_allclose(getattr(by_leaf, name), 0.0, atol=1e-40)


def test_derivatives_by_coefficients():
    """In either direction, against derivatives by hand."""
    x, v = 0.6, 0.6 * STRIBECK
    faded = np.exp(-(x**2))
    by_hand = {
        "coulomb": 1.0 - faded,
        "static": faded,
        "stribeck_velocity": (STATIC - COULOMB) * faded * 2.0 * x**2 / STRIBECK,
        "viscous": v,
        "transition_velocity": 0.0,  # tanh(48) is 1.
        "exponent": -(STATIC - COULOMB) * faded * x**2 * np.log(x),
    }
    by_leaf, _ = slopes(CURVE, jnp.asarray([v, -v, v, -v]))
    for name in LEAVES:
        expected = by_hand[name] * np.array([-1.0, 1.0, -1.0, 1.0])
        np.testing.assert_allclose(getattr(by_leaf, name), expected, rtol=1e-12, atol=1e-15)


def test_friction_only_takes_energy():
    """Forward weaker than backward and the other way round, and with one of them left out."""
    v = np.concatenate([-np.geomspace(1e-9, 10.0, 500), np.geomspace(1e-9, 10.0, 500)])
    nothing = forces.StribeckFriction("hinge", 0.0, 0.0, 0.05)
    sides = (CURVE, OTHER, nothing)
    laws = [forces.AsymmetricFriction(a, b, w) for a in sides for b in sides for w in (SMALL, 0.5)]
    for friction in (CURVE, OTHER, *laws):
        assert np.all(law(friction, v) * v <= 0)


def test_either_direction_has_its_own_law():
    found, fast = law(BOTH, V), np.abs(V) > 0.02
    for side, friction in ((V > 0, CURVE), (V < 0, OTHER)):
        expected = law(friction, V)
        np.testing.assert_allclose(found[fast & side], expected[fast & side], rtol=1e-14)
    # Between, by hand, for two laws of one coefficient each.
    pair = forces.AsymmetricFriction(
        forces.ViscousFriction("hinge", 3.0), forces.ViscousFriction("hinge", 1.0), 0.2
    )
    np.testing.assert_allclose(law(pair, V), -(2.0 + np.tanh(V / 0.2)) * V, rtol=1e-14)
    _, by_speed = slopes(BOTH, jnp.zeros(4))
    np.testing.assert_allclose(jnp.diag(by_speed), -(STATIC + 0.8) / 2 / SMALL - 0.25, rtol=1e-14)


def test_like_laws_in_both_directions_are_one():
    np.testing.assert_allclose(
        law(forces.AsymmetricFriction(CURVE, CURVE), V), law(CURVE, V), rtol=1e-14
    )


def test_derivatives_reach_either_law():
    """Derivatives of a mixture by all coefficients of both laws, against differences."""

    @jax.jit
    def work(friction):
        return law(friction, V) @ V

    along = jax.tree.map(jnp.ones_like, BOTH)
    forward = sum(jax.tree.leaves(jax.grad(work)(BOTH)))
    assert difference(work, BOTH, along, h=1e-6) == pytest.approx(float(forward), rel=1e-7)


def test_contract():
    testing.check_joint_force(
        BOTH, joints.Revolute("ground", "rod"), jax.random.key(0), passive=True
    )


def test_single_precision():
    small = jax.tree.map(lambda x: x.astype(jnp.float32), BOTH)
    found = law(small, V.astype(jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, law(BOTH, V), rtol=1e-5)
    near_rest = slopes(small, jnp.float32([0.0, 1e-38, 1e-30, 1e-20]))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(near_rest))


def rubbing(friction):
    return mbd.Model(
        {"rod": mbd.inertia.rod(1.0, 1.0)},
        {"hinge": joints.Revolute("ground", "rod"), "top": joints.Revolute("ground", "rod")},
        {"bearing": friction},
    )


GOOD = {"coulomb": 1.0, "static": 1.5, "stribeck_velocity": 0.1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stribeck_velocity": 0.0}, "stribeck_velocity must be positive, got 0.0"),
        ({"transition_velocity": -1.0}, "transition_velocity must be positive, got -1.0"),
        ({"exponent": 0.0}, "exponent must be positive, got 0.0"),
        ({"coulomb": -1.0}, "coulomb must not be negative, got -1.0"),
        ({"static": [1.0, -1.0]}, "static must not be negative, got [ 1. -1.]"),
        ({"viscous": -1.0}, "viscous must not be negative, got -1.0"),
        ({"exponent": [1.0, 2.0]}, "StribeckFriction: exponent must be a number, got shape (2,)"),
    ],
)
def test_errors(options, message):
    with pytest.raises(mbd.ModelError) as caught:
        rubbing(forces.StribeckFriction("hinge", **{**GOOD, **options}))
    assert message in str(caught.value)


def test_errors_of_two_directions():
    bad = forces.StribeckFriction("hinge", 1.0, 1.5, -0.1)
    with pytest.raises(mbd.ModelError, match="'bearing': backward: stribeck_velocity must be pos"):
        rubbing(forces.AsymmetricFriction(CURVE, bad))
    with pytest.raises(mbd.ModelError, match="'bearing': transition_velocity must be positive"):
        rubbing(forces.AsymmetricFriction(CURVE, OTHER, 0.0))
    with pytest.raises(mbd.ModelError, match="forward is on joint 'hinge', backward on 'top'"):
        rubbing(forces.AsymmetricFriction(CURVE, forces.ViscousFriction("top", 1.0)))
    with pytest.raises(
        mbd.ModelError, match="backward must be friction, but TorsionalSpringDamper"
    ):
        forces.AsymmetricFriction(CURVE, forces.TorsionalSpringDamper("hinge", 1.0))
    with pytest.raises(mbd.ModelError, match="forward must be friction on a joint, got"):
        forces.AsymmetricFriction(0.3, CURVE)

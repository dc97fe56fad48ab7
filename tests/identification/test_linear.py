"""Base parameters, fits of forces with possible bodies, and smoothed motions."""

import equinox as eqx
import jax
import numpy as np
import pytest

import jaxmbd as mbd
from benchmarks import tx40
from jaxmbd import forces, inertia, joints
from jaxmbd.identification import linear

G = 9.81


def double_pendulum(masses=(1.0, 2.0)):
    """Two rods in the plane of x and z, of lengths 1 and 0.5, with viscous friction."""
    rods = (inertia.rod(m, length) for m, length in zip(masses, (1.0, 0.5), strict=True))
    upper, lower = (
        inertia.shifted(rod, [half, 0, 0]) for rod, half in zip(rods, (0.5, 0.25), strict=True)
    )
    return mbd.Model(
        {"lower": lower, "upper": upper},
        {
            "shoulder": joints.Revolute(mbd.ground, "upper", [0, 1, 0]),
            "elbow": joints.Revolute(mbd.Frame("upper", [1.0, 0, 0]), "lower", [0, 1, 0]),
        },
        {"gravity": forces.Gravity(), "oil": forces.ViscousFriction("elbow", 0.1)},
    )


@pytest.fixture(scope="module")
def system():
    return mbd.formulate(double_pendulum(), mbd.JointCoordinates())


@pytest.fixture(scope="module")
def data(system):
    """The regressor at 300 states, and exact torques."""
    q, v, vdot = np.random.default_rng(0).normal(scale=2.0, size=(3, 300, 2))
    Y = mbd.regressor(system, 0.0, q, v, vdot)
    return Y, np.asarray(Y.forces())


@pytest.mark.long
def test_base_parameters_are_the_known_combinations(system, data):
    """Of a planar double pendulum: J1 + m2 l², m1 c1x + m2 l, m1 c1z, J2, m2 c2x, m2 c2z, b."""
    base = mbd.base_parameters(data[0])
    assert set(base.names) == {
        "upper.mcx + lower.m",
        "upper.mcz",
        "upper.Iyy + lower.m",
        "lower.mcx",
        "lower.mcz",
        "lower.Iyy",
        "oil.coefficient",
    }
    assert "upper.m" in base.without_effect
    assert "lower.Ixx" in base.without_effect
    np.testing.assert_allclose(
        np.asarray(base.reduce(data[0]) @ base.values(data[0].parameters)), data[1], atol=1e-12
    )
    drawn = mbd.base_parameters(system, seed=3)
    assert drawn.names == base.names
    assert "7 base parameters of 21" in str(base)


@pytest.mark.long
def test_least_squares_finds_the_truth_within_its_errors(data):
    Y, exact = data
    rng, z = np.random.default_rng(7), []
    base = mbd.base_parameters(Y)
    truth = np.asarray(base.values(Y.parameters))
    for _ in range(12):
        noise = rng.normal(size=exact.shape) * [0.5, 0.1]
        fit = mbd.identify_linear(Y, exact + noise, base=base)
        z.append((fit.values - truth) / fit.standard_errors)
    assert 0.75 < np.std(z) < 1.3  # 84 numbers.
    np.testing.assert_allclose(fit.deviations, [0.5, 0.1], rtol=0.1)
    np.testing.assert_allclose(fit.rms, [0.5, 0.1], rtol=0.1)
    assert np.all(fit.relative_errors[truth > 0.05] < 5.0)


@pytest.mark.long
def test_exact_forces_give_the_model(data):
    Y, exact = data
    missing = exact.copy()
    missing[::7, 1] = np.nan
    fit = mbd.identify_linear(Y, missing, deviations=[1e-3, 1e-3])
    assert fit.converged
    np.testing.assert_allclose(fit.values, fit.base.values(Y.parameters), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fit.parameters, Y.parameters, rtol=1e-6, atol=1e-7)
    model = fit.model(double_pendulum((5.0, 5.0)))
    np.testing.assert_allclose(model.bodies["lower"].mass, 2.0, rtol=1e-6)
    np.testing.assert_allclose(model.forces["oil"].coefficient, 0.1, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("prior", [0.1, 1.0, 10.0])
def test_bodies_are_possible_though_least_squares_is_not(data, prior):
    """Forces that no possible pendulum has: the moment of inertia of the lower rod is negative."""
    Y, _ = data
    theta = np.array(Y.parameters)
    theta[Y.names.index("lower.Iyy")] = -0.05
    fit = mbd.identify_linear(Y, Y.forces(theta), deviations=[0.1, 0.1], prior=prior)
    assert fit.values[fit.base.names.index("lower.Iyy")] < 0.0
    assert fit.converged
    assert all(body.validate() is None for body in fit.bodies.values())
    assert fit.parameters[fit.names.index("lower.Iyy")] > 0.0
    assert np.all(fit.rms_possible > fit.rms)


def test_the_prior_decides_on_what_forces_do_not_show(data):
    """The mass of the upper rod has no effect: it stays that of the model."""
    Y, exact = data
    theta = eqx.tree_at(lambda Y: Y.parameters, Y, 1.3 * Y.parameters)
    fit = mbd.identify_linear(theta, exact, deviations=[1e-2, 1e-2])
    np.testing.assert_allclose(fit.values, fit.base.values(Y.parameters), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fit.bodies["upper"].mass, 1.3, rtol=0.3)
    np.testing.assert_allclose(
        fit.base.values(fit.parameters), fit.base.values(Y.parameters), rtol=1e-3, atol=1e-4
    )


def test_derivatives_of_the_search_are_those_of_its_cost(data, monkeypatch):
    """With bodies, a coefficient that stays positive, and a parameter of any sign."""
    searches = []
    minimum = linear._Search.minimum
    monkeypatch.setattr(
        linear._Search, "minimum", lambda search: searches.append(search) or minimum(search)
    )
    Y, exact = data
    mbd.identify_linear(Y.with_columns({"offset": np.ones_like(exact)}), exact, [1.0, 1.0])
    (search,) = searches
    x = 0.2 * np.random.default_rng(0).normal(size=22)
    step = 1e-5 * np.eye(22)
    both = [[search.cost(x + h * dx) for dx in step] for h in (1, -1)]
    values, gradients = ([[part[k] for part in side] for side in both] for k in (0, 1))
    difference = (np.array(values[0]) - np.array(values[1])) / 2e-5
    np.testing.assert_allclose(search.cost(x)[1], difference, rtol=1e-6, atol=1e-4)
    difference = (np.array(gradients[0]) - np.array(gradients[1])) / 2e-5
    np.testing.assert_allclose(search.hessian(x), difference, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize(
    ("mass", "moments", "message"),
    [
        (-1.0, [0.1, 0, 0.1, 0, 0, 0.1], "'lower' of the model: mass must be positive"),
        (1.0, [0.1, 0, 0.1, 0, 0, 0.2], "'lower' of the model: its mass is on a plane"),
    ],
)
def test_bodies_of_the_model_must_be_possible(data, mass, moments, message):
    Y, exact = data
    theta = np.array(Y.parameters)
    start = Y.names.index("lower.m")
    theta[start : start + 10] = [mass, 0, 0, 0, *moments]
    with pytest.raises(mbd.ModelError, match=message):
        mbd.identify_linear(eqx.tree_at(lambda Y: Y.parameters, Y, theta), exact)


@pytest.mark.long
def test_further_columns(data):
    Y, exact = data
    root = np.sqrt(np.abs(exact))
    more = Y.with_columns({"root": root}, 0.3)
    np.testing.assert_allclose(more.forces(), exact + 0.3 * root, rtol=1e-12, atol=1e-12)
    fit = mbd.identify_linear(more, exact + 0.7 * root, deviations=[1e-3, 1e-3])
    np.testing.assert_allclose(fit.parameters[-1], 0.7, rtol=1e-6)
    with pytest.raises(mbd.ModelError, match="'root' has shape"):
        Y.with_columns({"root": root[0]})
    with pytest.raises(mbd.ModelError, match=r"there is a column 'lower\.m'"):
        Y.with_columns({"lower.m": root})


def test_smoothing_differentiates_to_the_noise():
    """Positions with noise of 1e-4 at 100 Hz: accelerations are within their errors."""
    ts = 0.01 * np.arange(1000)
    rng = np.random.default_rng(0)
    w = np.array([1.0, 2.5, 6.0])
    exact = np.sin(ts[:, None] * w), w * np.cos(ts[:, None] * w), -(w**2) * np.sin(ts[:, None] * w)
    noisy = exact[0] + 1e-4 * rng.normal(size=exact[0].shape)
    noisy[100:105, 1] = np.nan
    motion = mbd.smooth_motion(ts, noisy)
    np.testing.assert_allclose(motion.noise, 1e-4, rtol=0.1)
    found = motion.q, motion.v, motion.vdot
    errors = motion.q_error, motion.v_error, motion.vdot_error
    for x, expected, error in zip(found, exact, errors, strict=True):
        z = (x - expected) / error
        assert np.sqrt(np.mean(z[50:-50] ** 2)) < 1.6
    relative = np.std(motion.vdot - exact[2], axis=0) / np.std(exact[2], axis=0)
    assert np.all(relative < 0.01)
    assert motion.intervals[2] > motion.intervals[0]


def test_wrong_data_are_refused(system, data):
    Y, exact = data
    with pytest.raises(mbd.DataError, match="forces have shape"):
        mbd.identify_linear(Y, exact[:5])
    with pytest.raises(mbd.DataError, match="2 positive numbers"):
        mbd.identify_linear(Y, exact, deviations=[1.0])
    with pytest.raises(mbd.DataError, match="more states"):
        mbd.base_parameters(jax.tree.map(lambda x: x[:2] if x.ndim > 1 else x, Y))
    with pytest.raises(mbd.DataError, match="increase"):
        mbd.smooth_motion([0.0, 0.0], [1.0, 2.0])
    with pytest.raises(mbd.DataError, match="16 needed"):
        mbd.smooth_motion([0.0, 1.0], [1.0, 2.0])


@pytest.mark.long
def test_torques_of_a_measured_robot_on_held_out_rows(shared_data):
    """Every joint is better than published; with other friction the errors are a third at most."""
    folder = shared_data / "tx40"
    rows = slice(0, int(0.6 * tx40.GIVEN)), slice(int(0.6 * tx40.GIVEN), None)
    names = ["viscous and dry friction", "with speed and load"]
    _, results = tx40.judge(folder, *rows, {name: tx40.MODELS[name] for name in names})
    published = np.array(tx40.PUBLISHED["best possible model, published"])
    plain, better = (results[name] for name in names)
    assert np.all(plain.filtered < published)
    assert np.all(better.filtered < published)
    assert np.all(better.filtered[:4] < published[:4] / 3)
    for result in results.values():
        assert result.fit.converged
        assert all(body.validate() is None for body in result.fit.bodies.values())

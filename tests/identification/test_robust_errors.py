"""Standard errors that allow for correlated residuals, by closed forms and by repeated noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxmbd as mbd
from jaxmbd.identification.correlated_errors import (
    Motion,
    Readings,
    _degrees,
    _lost,
    _windowed,
    correlation_lags,
    join_records,
    robust_of,
)
from jaxmbd.identification.losses import Cauchy
from tests.identification.test_identify import experiment

STEP = 0.01


def autoregression(rng, shape, rho):
    """Noise of variance one, along the last axis, with correlation ρ from sample to sample."""
    e = rng.normal(size=shape)
    x = [e[..., 0]]
    for k in range(1, shape[-1]):
        x.append(rho * x[-1] + np.sqrt(1 - rho**2) * e[..., k])
    return np.stack(x, axis=-1)


def blank(n):
    return mbd.Experiment(STEP * np.arange(n), {"y": np.zeros(n)})


def test_windows_at_all_places_are_the_weighted_products():
    """Newey and West's sum, pair by pair, at times that are not equally spaced."""
    rng = np.random.default_rng(0)
    ts, z, B = np.sort(rng.uniform(0, 1, 40)), rng.normal(size=(40, 2)), 0.13
    weights = np.maximum(1 - np.abs(np.subtract.outer(ts, ts)) / B, 0)
    wanted = np.einsum("sk,st,tk->k", z, weights, z)
    np.testing.assert_allclose(_windowed(ts, z, B), wanted, rtol=1e-10)
    pulls = np.abs(z)[:, None]
    motion = Motion(ts, {}, z, pulls, np.zeros((40, 1, 1)))
    products = np.einsum("sk,st,tk->k", z**2, weights**2, z**2)
    wanted = np.sum(z**2, axis=0) ** 2 / products - 1
    np.testing.assert_allclose(_degrees([motion], B), wanted, rtol=1e-9)


def mean_of(ts, n_records):
    """A number that is the mean of all readings of records of one length."""
    share = np.full((len(ts), 1, 1), 1 / (len(ts) * n_records))
    J = np.full((len(ts), 1, 1), 1 / np.sqrt(len(ts) * n_records))
    return [Motion(ts, {}, share[:, 0], share, J)] * n_records


def test_few_records_and_short_ones_are_corrected_for():
    """m whole records leave m - 1 degrees; long ones Kiefer and Vogelsang's intervals (2005)."""
    records, long = mean_of(STEP * np.arange(50), 8), 1e6
    left = 1 - _lost(records[0], long) / np.sum(records[0].pulls ** 2)
    assert left[0] == pytest.approx(1 - 1 / 8, rel=1e-3)
    assert _degrees(records, long)[0] == pytest.approx(8 - 1, rel=1e-3)
    (record,) = mean_of(STEP * np.arange(1000), 1)
    for b in (0.05, 0.1, 0.2):
        degrees, lost = _degrees([record], 10 * b)[0], _lost(record, 10 * b)[0]
        reach = stats.t.ppf(0.975, degrees) / np.sqrt(1 - lost / np.sum(record.pulls**2))
        assert reach == pytest.approx(1.96 + 2.9694 * b + 0.416 * b**2 - 0.5324 * b**3, rel=0.03)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_correlation_is_seen(rho):
    series = autoregression(np.random.default_rng(1), (4, 4000), rho)
    wanted = 2 * rho / (1 - rho**2)
    # The tail within the band is left out.
    assert correlation_lags(list(series)) == pytest.approx(wanted, rel=0.3, abs=0.1)


def test_swings_of_a_correlation_do_not_end_it():
    """The autocorrelation is a damped oscillation whose amplitude falls like exp(-h/30)."""
    h = np.arange(4000)
    rng = np.random.default_rng(2)
    answer = np.exp(-h / 30) * np.cos(0.1 * h)
    x = np.convolve(rng.normal(size=8000), answer)[4000:8000]
    assert correlation_lags([x]) == pytest.approx(30, rel=0.4)


@functools.cache
def influences(n, n_records=2):
    """Derivatives of readings that swing, by three numbers, a record after the other."""
    t = np.arange(n) / n
    swings = [np.sin(30 * t + i) for i in range(2 * n_records)]
    columns = [
        np.stack([a, t * b, np.exp(-3 * t) * (a + b)], axis=1)
        for a, b in zip(swings[::2], swings[1::2], strict=True)
    ]
    return np.stack(columns)


def linear_fit(J, noise):
    """Estimates, whose truth is zero, reaches of both kinds of intervals, errors of both kinds."""
    m, n, p = J.shape
    flat, e = J.reshape(m * n, p), noise.reshape(m * n)
    found = np.linalg.lstsq(flat, e)[0]
    r, covariance = e - flat @ found, np.linalg.inv(flat.T @ flat)
    errors = np.sqrt(r @ r / (m * n - p) * np.diagonal(covariance))
    robust = robust_of(
        [blank(n)] * m,
        list(r.reshape(m, n, 1)),
        list(J[:, :, None]),
        [np.ones((n, 1))] * m,
        np.zeros((0, p)),
        np.linalg.cholesky(covariance),
        np.eye(p),
    )
    own = np.sqrt(robust.variances)
    reach = stats.t.ppf(0.975, m * n - p) * errors, stats.t.ppf(0.975, robust.degrees) * own
    return found, *reach, own, errors


def repeated(J, rho, n=150):
    """Shares of both kinds of intervals that contain the truth, and the median ratio of errors."""
    rng = np.random.default_rng(0)
    fits = [linear_fit(J, autoregression(rng, J.shape[:2], rho)) for _ in range(n)]
    found, naive, robust, own, errors = (np.array(x) for x in zip(*fits, strict=True))
    shares = [np.mean(np.abs(found) < reach, axis=0) for reach in (naive, robust)]
    return *shares, np.median(own / errors, axis=0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rho", "n", "n_records"),
    [
        (0.5, 200, 2),
        (0.9, 400, 2),
        pytest.param(0.9, 100, 20, marks=pytest.mark.thorough),
        pytest.param(0.97, 2000, 2, marks=pytest.mark.thorough),
    ],
)
def test_robust_intervals_cover_the_truth_where_residuals_are_correlated(rho, n, n_records):
    naive, robust, ratio = repeated(influences(n, n_records), rho)
    assert naive.max() < 0.85
    assert robust.min() >= 0.85
    assert robust.max() <= 0.995
    assert ratio.min() > 1.3


@pytest.mark.long
def test_both_intervals_agree_where_residuals_are_not_correlated():
    naive, robust, ratio = repeated(influences(200), 0.0)
    for share in (naive, robust):
        assert share.min() >= 0.9
        assert share.max() <= 0.99
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)


@pytest.mark.long
def test_what_the_fit_takes_of_the_noise_is_put_back():
    """Three fitted numbers take a quarter of the variance of 12 residuals; errors allow for it."""
    J, rng = influences(12, 1), np.random.default_rng(7)
    naive = np.sqrt(np.diagonal(np.linalg.inv(J[0].T @ J[0])))
    own = [linear_fit(J, rng.normal(size=(1, 12)))[3] for _ in range(400)]
    np.testing.assert_allclose(np.mean(np.square(own), axis=0), naive**2, rtol=0.1)


@pytest.mark.long
def test_a_loss_that_outliers_hardly_pull_at():
    """Robust errors of a mean are the scatter of repeated means."""
    rng, loss, n = np.random.default_rng(3), Cauchy(), 300
    slope = jax.vmap(jax.grad(loss))
    e = rng.normal(size=(120, n)) + 30 * rng.normal(size=(120, n)) * (rng.random((120, n)) < 0.2)

    @jax.jit
    def look(r):
        return loss(r), slope(r), loss.bends(r)

    means, errors = [], []
    for x in e:
        mean = np.median(x)
        for _ in range(20):
            root, d, bends = map(np.asarray, look(jnp.asarray(x - mean)))
            mean += np.sum(root * d) / np.sum(bends * d**2)
        assert np.abs(np.sum(root * d)) < 1e-8
        J = d[:, None, None]
        parts = [blank(n)], [root[:, None]], [J], [bends[:, None]]
        found = robust_of(*parts, np.zeros((0, 1)), np.ones((1, 1)), np.ones((1, 1)))
        means.append(mean)
        errors.append(np.sqrt(found.variances[0]))
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(means), rel=0.15)


def parts_of(record, length, stride):
    zeros = {"hinge": np.zeros(len(record.ts))}
    return record.windows(length, stride, zeros, zeros)


def test_windows_of_a_record_are_one_motion():
    """However they overlap; records of their own are not, even where their clocks are alike."""
    rng = np.random.default_rng(4)
    record, other = (experiment(0.0, 0.0, rng.normal(size=41)) for _ in range(2))

    def count(parts):
        readings = [
            Readings(np.asarray(x.measurements["hinge"])[:, None], one, one)
            for x in parts
            for one in [np.ones((len(x.ts), 1, 1))]
        ]
        return [len(m.ts) for m in join_records(parts, readings)]

    assert count([record, other]) == [41, 41]
    assert count([record, record]) == [41, 41]  # It does not begin later.
    assert count(parts_of(record, 10, 10)) == [41]
    assert count(parts_of(record, 10, 5)) == [41]
    assert count(parts_of(record, 10, 12)) == [33]
    assert count([*parts_of(record, 20, 20), *parts_of(other, 20, 20)]) == [41, 41]
    late = record.part(21, 41)
    assert count([record.part(0, 31), other.part(21, 41), late]) == [31, 20, 20]


def test_readings_that_count_twice_make_no_error_smaller():
    """The error of a mean over windows that overlap by half is that of 200 readings."""
    record = experiment(0.0, 0.0, np.random.default_rng(6).normal(size=201))
    parts = parts_of(record, 10, 5)
    y = [np.asarray(x.measurements["hinge"])[:, None] for x in parts]
    ones = [np.ones((11, 1))] * len(parts)
    J, n = [x[:, None] for x in ones], 11 * len(parts)
    r = [x - np.mean(y) for x in y]
    scale = np.full((1, 1), 1 / np.sqrt(n))
    found = robust_of(parts, r, J, ones, np.zeros((0, 1)), scale, np.ones((1, 1)))
    assert found.bandwidth < 0.05
    assert found.variances[0] == pytest.approx(np.mean(np.square(r)) / 200, rel=0.2)
    readings = [Readings(a, x / n, x * scale[0, 0]) for a, x in zip(r, J, strict=True)]
    (motion,) = join_records(parts, readings)
    share = _lost(motion, 0.01) / np.sum(motion.pulls**2)
    assert share == pytest.approx(1 / 200, rel=0.1)

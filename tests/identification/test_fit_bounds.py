"""Fits whose minimum lies beyond a bound of a transform, or beyond the bodies that are possible."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
from jaxmbd.identification.bounds import bounds_at
from jaxmbd.identification.parameters import Subject, select_parameters
from jaxmbd.identification.residuals import Linearization
from jaxmbd.identification.statistics import statistics
from jaxmbd.model.model import in_float_type

T = mbd.transforms
LAMINA = [1e-2, 2e-2, 3e-2]
IYY = mbd.Parameter("bodies.rod.inertia", T.Entries((1, 1), inner=T.Positive()))


def pendulum(moments=(1e-3, 1e-3, 1e-3), friction=5e-4, mass=0.05):
    return mbd.Model(
        {"rod": mbd.RigidBody(mass, moments, [0, 0, -0.4])},
        {"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        {"gravity": mbd.forces.Gravity(), "viscous": mbd.forces.ViscousFriction("hinge", friction)},
    )


def bounds_of(model, select, measured, free=None, deviation=1e-3, dtype=jnp.float64):
    """Bounds at free numbers, if the data are the reported numbers with errors, `measured`."""
    model = in_float_type(model, dtype)
    selected = select_parameters(Subject(model, {}), select)
    start, unravel = ravel_pytree(selected.free())
    x = start if free is None else jnp.asarray(free, dtype)
    D, bodies = jax.jacfwd(lambda x: selected.numbers(unravel(x)))(x)
    deviation = deviation * np.abs(measured) + 1e-30
    D = np.asarray(D)
    r = (np.asarray(selected.report(unravel(x))) - measured) / deviation
    J = D / deviation[:, None]
    linear = statistics(J, selected.free_labels(), 1.0)
    step = -linear.directions @ (linear.directions.T @ (J.T @ r))
    line = Linearization(r, J, D, bodies)
    return bounds_at(selected, unravel(x), line, step)


FRICTION = "forces.viscous.coefficient"
SHARE = {"c": mbd.Parameter(FRICTION, T.Bounded(2e-4, 2e-3))}
POSITIVE = {"c": mbd.Parameter(FRICTION, T.Positive())}


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize(
    ("select", "free", "measured", "inequality"),
    [
        (POSITIVE, -30.0, -1e-4, "c > 0"),
        (POSITIVE, -2000.0, -1e-4, "c > 0"),  # The exponential is zero, and so is its derivative.
        (POSITIVE, -30.0, np.exp(-30.0), None),
        (POSITIVE, np.log(1e-4), 1.0001e-4, None),
        (SHARE, -15.0, 1e-4, "c > 0.0002"),
        (SHARE, -2000.0, 1e-4, "c > 0.0002"),
        (SHARE, 15.0, 3e-3, "c < 0.002"),
        (SHARE, 2000.0, 3e-3, "c < 0.002"),
        (SHARE, 0.0, 1.1e-3, None),
    ],
)
def test_bounds_of_transforms_are_told(select, free, measured, inequality, dtype):
    result = bounds_of(pendulum(), select, np.array([measured]), [free], dtype=dtype)
    assert [x.inequality for x in result.found] == ([] if inequality is None else [inequality])
    assert result.limited.tolist() == [inequality is not None]
    assert not result.of_bodies


def inertia(*entries):
    return {str(i): mbd.Parameter("bodies.rod.inertia", T.Entries((i, i))) for i in entries}


def triangle(a, b, c):
    return f"body 'rod': I_{a} + I_{b} >= I_{c} (triangle inequality of the moments of inertia)"


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize(
    ("moments", "select", "measured", "found"),
    [
        (LAMINA, inertia(2), [4e-2], {triangle("xx", "yy", "zz"): ("2",)}),
        (LAMINA, inertia(2), [2.5e-2], {}),  # It starts at the edge, and moves away from it.
        (LAMINA, inertia(0, 2), [1e-2, 4e-2], {triangle("xx", "yy", "zz"): ("0", "2")}),
        (LAMINA, {"f": mbd.Parameter("bodies.rod.inertia", T.Scaled())}, [2.0], {}),
        (LAMINA, {"m": "bodies.rod.mass"}, [2.0], {}),
        (
            [1e-9, 0.1, 0.1],
            inertia(0),
            [-1e-3],
            {triangle("xx", "yy", "zz"): ("0",), triangle("xx", "zz", "yy"): ("0",)},
        ),
        ([1e-4, 0.1, 0.1], inertia(0), [1e-4], {}),
    ],
)
def test_the_edge_of_possible_bodies_is_told(moments, select, measured, found, dtype):
    body = mbd.RigidBody(1.0, moments)
    model = eqx.tree_at(lambda m: m.bodies["rod"], pendulum(), body)
    result = bounds_of(model, select, np.array(measured), dtype=dtype)
    assert {x.inequality: x.parameters for x in result.found} == found
    assert result.of_bodies == bool(found)


@pytest.mark.long
def test_a_body_in_any_axes_and_a_mass_at_the_edge():
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    body = mbd.RigidBody(1.0, turn @ np.diag(LAMINA) @ turn.T)
    model = eqx.tree_at(lambda m: m.bodies["rod"], pendulum(), body)
    moments = T.PhysicalInertia().report(body.inertia, body.inertia)
    outside = T.PhysicalInertia().report(
        jnp.asarray(turn @ np.diag([1e-2, 2e-2, 4e-2]) @ turn.T), body.inertia
    )
    select = {"J": mbd.Parameter("bodies.rod.inertia", PlainInertia())}
    (bound,) = bounds_of(model, select, np.asarray(outside)).found
    assert bound.inequality.endswith("moments of inertia, 0.01 + 0.02 >= 0.03")
    assert len(bound.parameters) == moments.size
    light = eqx.tree_at(lambda m: m.bodies["rod"].mass, model, jnp.asarray(1e-9))
    (bound,) = bounds_of(light, {"m": "bodies.rod.mass"}, np.array([-1.0])).found
    assert bound == (("m",), "body 'rod': mass > 0")


@pytest.mark.long
def test_a_whole_body_at_the_edge():
    """Its moments are at a bound, its mass and centre are not."""
    whole = {"rod": mbd.Parameter("bodies.rod", T.PhysicalBody())}
    flat = eqx.tree_at(lambda m: m.bodies["rod"], pendulum(), mbd.RigidBody(1.0, [1, 2, 3 - 1e-7]))
    (bound,) = bounds_of(flat, whole, np.array([1.0, 0, 0, 0, 1, 2, 3.5, 0, 0, 0])).found
    assert bound.inequality == triangle("xx", "yy", "zz")
    assert "rod Jzz" in bound.parameters
    assert "rod mass" not in bound.parameters


class PlainInertia(T.PhysicalInertia):
    """An inertia by its moments and products, which may be impossible."""

    def to_free(self, reference):
        return self.report(reference, reference)

    def to_value(self, free, reference):
        xx, yy, zz, xy, xz, yz = free
        return jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def test_a_cable_at_the_edge():
    cable = mbd.bodies.ANCFCable(1.0, EA=1e4, EI=1e-9, mass_per_length=1.0, n_elements=2)
    model = eqx.tree_at(lambda m: m.bodies["rod"], pendulum(), cable)
    select = {"EI": "bodies.rod.EI", "damping": "bodies.rod.damping"}
    result = bounds_of(model, select, np.array([-1.0, -1.0]))
    assert [x.inequality[12:] for x in result.found] == ["EI > 0", "damping >= 0"]


def test_errors_conditional_on_a_row_are_those_of_the_remaining_unknowns():
    """The covariance in the plane a · x = 0, by an explicit basis, and by elimination."""
    rng = np.random.default_rng(1)
    J, a = rng.normal(size=(40, 3)) * [1e3, 1.0, 1e-3], np.array([[1.0, 2.0, 0.0]])
    held = statistics(J, ["x", "y", "z"], 1.0, a)
    basis = np.array([[-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]).T
    wanted = basis @ np.linalg.inv((J @ basis).T @ (J @ basis)) @ basis.T
    np.testing.assert_allclose(held.covariance, wanted, rtol=1e-6, atol=1e-9 * wanted.max())
    assert statistics(J, ["x", "y", "z"], 1.0, np.eye(3)).covariance.max() == 0.0
    fixed = statistics(J, ["x", "y", "z"], 1.0, np.eye(3)[:1]).covariance
    wanted = np.linalg.inv(J[:, 1:].T @ J[:, 1:])
    np.testing.assert_allclose(fixed[1:, 1:], wanted, rtol=1e-6, atol=1e-9 * wanted.max())


def record_of(model):
    ts = np.linspace(0, 1, 41)
    angles = mbd.predict(model, ts, {"hinge": 0.5}, substeps=2)["hinge"]
    return mbd.Experiment(ts, {"hinge": angles}, guess={"hinge": 0.5})


def fit_of(select, start):
    record = record_of(pendulum([3e-3, 3e-3, 3e-3]))
    return mbd.identify(start, record, select, noise={"hinge": 1e-3}, substeps=2)


@pytest.mark.long
def test_a_fit_that_ends_at_the_edge_says_so(tmp_path):
    """The inertia of the data is beyond the triangle inequality of the other two moments."""
    with pytest.warns(mbd.BoundWarning, match=r"I_xx \+ I_zz >= I_yy .*PhysicalInertia"):
        fit = fit_of({"iyy": IYY}, pendulum())
    assert fit["iyy"] == pytest.approx(2e-3, rel=1e-4)
    assert dict(fit) == {"iyy": fit["iyy"]}
    assert ("iyy" in fit, list(fit), len(fit)) == (True, ["iyy"], 1)
    assert fit.bounds == [(("iyy",), triangle("xx", "zz", "yy"))]
    assert fit.result == mbd.RESULTS.at_bound
    assert "no error at the bound of iyy: body 'rod'" in str(fit)
    assert "converged\n" not in str(fit) + "\n"
    assert np.isnan([*fit.interval("iyy"), *fit.interval("iyy", robust=True)]).all()
    fit.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text()
    assert "iyy (at a bound)" in page
    assert "I_xx + I_zz &gt;= I_yy" in page


@pytest.mark.thorough
def test_other_parameters_reach_their_minimum_on_the_edge():
    """The friction that is best with the inertia at its bound, found by a fit without it."""
    select = {"iyy": IYY, "c": POSITIVE["c"]}
    with pytest.warns(mbd.BoundWarning):
        fit = fit_of(select, pendulum(friction=5e-3))
    alone = fit_of(POSITIVE, pendulum([1e-3, 2e-3, 1e-3], friction=5e-3))
    assert fit.result == mbd.RESULTS.at_bound
    assert fit["c"] == pytest.approx(alone["c"], rel=1e-3)
    assert fit.standard_error("c") == pytest.approx(alone.standard_error("c"), rel=1e-2)
    assert np.isnan(fit.standard_error("iyy"))


@pytest.mark.thorough
def test_a_physical_inertia_has_no_edge():
    """The moment that the data determine has an error; the others have none."""
    select = {"rod": mbd.Parameter("bodies.rod.inertia", T.PhysicalInertia())}
    with pytest.warns(mbd.RankWarning):
        fit = fit_of(select, pendulum())
    assert fit["rod Jyy"] == pytest.approx(3e-3, rel=1e-6)
    assert np.isfinite(fit.standard_errors).tolist() == [False, True, *4 * [False]]
    assert fit.bounds == []
    assert fit.result == mbd.RESULTS.successful
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = fit_of({"rod": mbd.Parameter("bodies.rod.inertia", T.Scaled())}, pendulum())
    assert scaled["rod (factor)"] == pytest.approx(3.0, rel=1e-6)

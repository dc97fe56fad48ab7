"""Fits to deflections, frequencies and motions, and analyses that start from an equilibrium."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints
from jaxmbd.errors import DataError, EquilibriumError
from jaxmbd.identification.modal_experiment import pairs
from jaxmbd.identification.prediction import motions_only
from jaxmbd.identification.records import split_experiments

G = 9.81
TRUTH = {"strut": 15e3, "tyre": 180e3}
SELECT = {
    name: mbd.Parameter(f"forces.{name}.stiffness", mbd.transforms.Positive()) for name in TRUTH
}
MASS = mbd.Parameter("bodies.car.mass", mbd.transforms.Positive())
UP = [0.0, 0.0, 1.0]


def quarter_car(strut=TRUTH["strut"], tyre=TRUTH["tyre"], car=300.0, damping=500.0):
    """A wheel on its tyre, and a quarter of a car on its strut, which move vertically."""
    return mbd.Model(
        bodies={
            "wheel": inertia.principal(40.0, [1.0, 1.0, 1.0]),
            "car": inertia.principal(car, [50.0, 50.0, 50.0]),
        },
        joints={
            "lower": joints.Prismatic(mbd.ground, "wheel", axis=UP),
            "upper": joints.Prismatic("wheel", "car", axis=UP),
        },
        forces={
            "gravity": forces.Gravity(),
            "tyre": forces.TorsionalSpringDamper("lower", tyre),
            "strut": forces.TorsionalSpringDamper("upper", strut, damping=damping),
            "load": forces.AppliedForce("car", [0.0, 0.0, 0.0]),
        },
    )


def deflections(load, strut=TRUTH["strut"], tyre=TRUTH["tyre"]):
    """Changes of both springs by a weight on the car, in closed form."""
    return {"lower": -load / tyre, "upper": -load / strut}


def frequencies(strut=TRUTH["strut"], tyre=TRUTH["tyre"], car=300.0, damping=500.0):
    """Frequencies and damping ratios of a quarter car from its matrices, in floor coordinates."""
    M, d = np.diag([40.0, car]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    K, D = strut * d + np.diag([tyre, 0.0]), damping * d
    A = np.block([[np.zeros((2, 2)), np.eye(2)], [-np.linalg.solve(M, K), -np.linalg.solve(M, D)]])
    values = np.linalg.eigvals(A)
    values = values[values.imag > 0]
    values = values[np.argsort(np.abs(values))]
    return np.abs(values) / (2 * np.pi), -values.real / np.abs(values)


def weights(loads=(500.0, 1000.0), noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return [
        mbd.StaticExperiment(
            {k: x + noise * rng.normal() for k, x in deflections(load).items()},
            {"lower": 1e-4, "upper": 1e-4},
            load={"load": forces.AppliedForce("car", [0.0, 0.0, -load])},
            change=True,
            name=f"weight of {load:g} N",
        )
        for load in loads
    ]


START = quarter_car(strut=20e3, tyre=140e3)


@pytest.mark.thorough
def test_two_stiffnesses_from_deflections_alone():
    fit = mbd.identify(START, weights(), SELECT)
    np.testing.assert_allclose(fit.values, list(TRUTH.values()), rtol=1e-6)
    # dx = F / k of both weights, each with a deviation of 0.1 mm.
    slopes = np.array([500.0, 1000.0])[:, None] / np.array(list(TRUTH.values())) ** 2
    expected = 1e-4 / np.linalg.norm(slopes, axis=0)
    np.testing.assert_allclose(fit.standard_errors, expected, rtol=1e-5)
    np.testing.assert_allclose(fit.robust_errors, expected, rtol=1e-5)
    assert fit.degrees_of_freedom == np.inf
    assert [x.name for x in fit.comparisons] == ["weight of 500 N", "weight of 1000 N"]
    assert fit.comparisons[1].labels == ("lower", "upper")
    np.testing.assert_allclose(fit.comparisons[1].predicted[1], -1000.0 / TRUTH["strut"], rtol=1e-5)
    assert "weight of 500 N: " in str(fit)
    assert "substep" not in str(fit)


@pytest.mark.thorough
def test_absolute_readings_contain_the_sag_under_weight():
    sag = {"lower": -340.0 * G / TRUTH["tyre"], "upper": -300.0 * G / TRUTH["strut"]}
    one = mbd.StaticExperiment(sag, name="sag")
    doubled = mbd.StaticExperiment({k: 2 * x for k, x in sag.items()}, load={"gravity": 2.0})
    noise = {"lower": 1e-4, "upper": 1e-4}
    fit = mbd.identify(START, [one, doubled], SELECT, noise=noise)
    np.testing.assert_allclose(fit.values, list(TRUTH.values()), rtol=1e-6)


@pytest.mark.thorough
def test_stiffness_and_mass_from_frequencies_and_a_deflection():
    hz, damping = frequencies(car=280.0)
    modal = mbd.ModalExperiment(
        hz, 0.01, damping_ratios=damping, damping_deviations=0.01, name="shaker"
    )
    deflection = mbd.StaticExperiment(
        {"upper": deflections(1000.0)["upper"]},
        {"upper": 1e-4},
        load={"load": forces.AppliedForce("car", [0.0, 0.0, -1000.0])},
        change=True,
    )
    fit = mbd.identify(START, [modal, deflection], SELECT | {"mass": MASS})
    np.testing.assert_allclose(fit.values, [*TRUTH.values(), 280.0], rtol=1e-5)
    (of_modes, _) = fit.comparisons
    assert of_modes.labels == (
        *("frequency 0 [Hz]", "frequency 1 [Hz]"),
        *("damping ratio 0", "damping ratio 1"),
    )
    np.testing.assert_allclose(of_modes.predicted, [*hz, *damping], rtol=1e-5)


@pytest.mark.thorough
def test_errors_of_frequencies_agree_with_differences():
    modal = mbd.ModalExperiment(frequencies()[0], [0.01, 0.2])
    fit = mbd.identify(quarter_car(), modal, SELECT)
    h, rows = 1e-6, []
    for name, k in TRUTH.items():
        up, down = (frequencies(**{name: k * (1 + s * h)})[0] for s in (1, -1))
        rows.append((up - down) / (2 * h * k) / np.array([0.01, 0.2]))
    J = np.stack(rows, axis=1)
    np.testing.assert_allclose(fit.covariance, np.linalg.inv(J.T @ J), rtol=1e-5)


@pytest.fixture(scope="module")
def all_kinds():
    """A fit of a motion, two weights and two frequencies, all with noise; a prior of the mass."""
    rng = np.random.default_rng(3)
    ts, truth = np.linspace(0.0, 0.5, 26), quarter_car()
    guess = {"upper": -0.1}
    motion = mbd.Experiment(ts, {"upper": np.zeros(26)}, guess=guess)
    readings = np.asarray(mbd.predict(truth, motion, noise={"upper": 1e-3})["upper"])
    motion = mbd.Experiment(ts, {"upper": readings + 1e-3 * rng.normal(size=26)}, guess=guess)
    modal = mbd.ModalExperiment(frequencies()[0] + [0.005, -0.02], [0.01, 0.05], name="shaker")
    mass = mbd.Parameter(MASS.where, MASS.transform, prior=mbd.priors.Normal(302.0, 3.0))
    return mbd.identify(
        START, [motion, *weights(noise=1e-4), modal], SELECT | {"mass": mass}, noise={"upper": 1e-3}
    )


@pytest.mark.thorough
def test_motions_deflections_and_frequencies_together(all_kinds):
    lower, upper = all_kinds.intervals(0.99).T
    truth = np.array([*TRUTH.values(), 300.0])
    assert np.all((lower < truth) & (truth < upper))
    assert np.all(upper - lower < 0.1 * truth)
    # 26 readings and 3 unknowns, which the other records determine in part.
    assert 23 < all_kinds.degrees_of_freedom < 26
    assert np.all(np.isfinite(all_kinds.robust_errors))
    assert len(all_kinds.overlays) == 1
    assert len(all_kinds.comparisons) == 3


@pytest.mark.thorough
def test_the_report_lists_deflections_and_frequencies(all_kinds, tmp_path):
    all_kinds.report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text()
    assert "shaker" in page
    assert "frequency 1 [Hz]" in page
    assert "weight of 1000 N" in page
    shown = [x for x in all_kinds.plot().axes if x.axison]
    assert len(shown) == sum(map(len, all_kinds.overlays)) + len(all_kinds.comparisons)


@pytest.mark.thorough
def test_a_report_without_motions(tmp_path):
    mbd.identify(START, weights(), SELECT).report(tmp_path / "fit.html")
    page = (tmp_path / "fit.html").read_text()
    assert "weight of 500 N" in page
    assert "autocorrelation" not in page


@pytest.mark.thorough
def test_intervals_contain_the_truth_as_often_as_they_say():
    """Deflections and frequencies have known deviations: 95 % of 120 intervals, at least 108."""
    rng, n, hits = np.random.default_rng(11), 60, 0
    hz = frequencies()[0]
    for i in range(n):
        modal = mbd.ModalExperiment(hz + rng.normal(size=2) * [0.01, 0.1], [0.01, 0.1])
        fit = mbd.identify(quarter_car(), [*weights((1000.0,), 1e-4, i), modal], SELECT)
        lower, upper = fit.intervals().T
        hits += int(np.sum((lower < list(TRUTH.values())) & (list(TRUTH.values()) < upper)))
    assert 108 <= hits <= 119


@pytest.mark.thorough
def test_misfit_and_its_gradients_take_all_kinds():
    modal = mbd.ModalExperiment(frequencies()[0], 0.05)
    forward, reverse = (
        mbd.misfit(START, [*weights(), modal], SELECT, jacobian=way)
        for way in ("forward", "reverse")
    )
    x = forward.start
    gradient = jax.grad(forward)(x)
    np.testing.assert_allclose(jax.grad(forward.by_blocks)(x), gradient, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(reverse.by_blocks)(x), gradient, rtol=1e-8)
    value = eqx.filter_jit(forward)
    for i in range(2):
        h = 1e-5 * jnp.eye(2)[i]
        np.testing.assert_allclose((value(x + h) - value(x - h)) / 2e-5, gradient[i], rtol=1e-6)


@pytest.mark.thorough
def test_shapes_match_modes_that_cross():
    """Two oscillators side by side; the measured order is not that of the starting model."""

    def model(first, second):
        body = inertia.principal(1.0, [1.0, 1.0, 1.0])
        return mbd.Model(
            bodies={"a": body, "b": body},
            joints={
                "x": joints.Prismatic(mbd.ground, "a", axis=[1, 0, 0]),
                "y": joints.Prismatic(mbd.ground, "b", axis=[0, 1, 0]),
            },
            forces={
                "first": forces.TorsionalSpringDamper("x", first),
                "second": forces.TorsionalSpringDamper("y", second),
            },
        )

    hz = np.sqrt([400.0, 100.0]) / (2 * np.pi)
    modal = mbd.ModalExperiment(hz, 0.01, shapes={"x": [1.0, 0.05], "y": [0.1, -1.0]})
    fit = mbd.identify(
        model(90.0, 300.0), modal, ["forces.first.stiffness", "forces.second.stiffness"]
    )
    np.testing.assert_allclose(fit.values, [400.0, 100.0], rtol=1e-6)


def test_pairs_take_the_largest_scores_first_and_no_column_twice():
    columns, okay = pairs(jnp.array([[0.9, 0.8, -1.0], [0.95, 0.1, -1.0]]))
    assert columns.tolist() == [1, 0]
    assert bool(okay)
    assert not bool(pairs(jnp.array([[0.9, -1.0], [0.95, -1.0]]))[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mbd.StaticExperiment({"upper": np.nan}, name="sag"), "sag: 'upper' is not finite"),
        (lambda: mbd.StaticExperiment({}, name="sag"), "sag: there are no measurements"),
        (lambda: mbd.StaticExperiment({"upper": 1.0}, {"upper": 0.0}), "must be positive"),
        (lambda: mbd.StaticExperiment({"upper": 1.0}, {"low": 1.0}), "'low', which is not"),
        (lambda: mbd.StaticExperiment({"upper": 1.0}, change=True), "give `load`"),
        (lambda: mbd.StaticExperiment({"upper": 1.0}, method="best"), "method must be one of"),
        (lambda: mbd.ModalExperiment([1.0, np.nan], 0.1, name="shaker"), "shaker: frequencies is"),
        (lambda: mbd.ModalExperiment([2.0, 1.0], 0.1), "sort them, or give `shapes`"),
        (lambda: mbd.ModalExperiment([1.0], 0.1, modes=[0, 1]), "one for each frequency"),
        (lambda: mbd.ModalExperiment([1.0], [0.1, 0.1]), r"shape \(2,\), expected \(1,\)"),
        (lambda: mbd.ModalExperiment([1.0], 0.1, damping_ratios=[0.1]), "damping_deviations"),
        (lambda: mbd.ModalExperiment([1.0], 0.1, shapes={"upper": [np.nan]}), "not finite"),
    ],
)
def test_invalid_records_name_the_record_and_a_remedy(make, message):
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.long
@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([mbd.StaticExperiment({"upper": 1.0}, name="sag")], "sag: 'upper' has no standard dev"),
        ([mbd.StaticExperiment({"door": 1.0}, name="sag")], "sag: no sensor 'door'.*upper"),
        (
            [mbd.StaticExperiment({"upper": [1.0]}, {"upper": 1.0}, name="sag")],
            r"sag: 'upper' has shape \(1,\)",
        ),
        (
            [mbd.StaticExperiment({"upper": 1.0}, {"upper": 1.0}, load={"wind": 2.0}, name="sag")],
            "sag: .*wind",
        ),
        ([mbd.ModalExperiment([1.0, 2.0, 3.0], 0.1, name="shaker")], "shaker: mode 2 .* has 2"),
        (
            [
                mbd.Experiment([0.0, 0.1], {"upper": [0.0, 0.0]}),
                mbd.ModalExperiment([1.0], 0.1, name="shaker"),
            ],
            "give the noise of 'upper': with 'shaker'",
        ),
        ([], "there are no experiments"),
    ],
)
def test_records_that_do_not_fit_the_model_are_named(records, message):
    with pytest.raises(DataError, match=message):
        mbd.identify(START, records, SELECT)


@pytest.mark.thorough
def test_a_record_without_equilibrium_is_named():
    loose = mbd.Model(
        quarter_car().bodies,
        quarter_car().joints,
        {"gravity": forces.Gravity(), "strut": quarter_car().forces["strut"]},
    )
    record = mbd.StaticExperiment({"upper": 1.0}, {"upper": 1.0}, name="without tyre")
    with pytest.raises(EquilibriumError, match=r"without tyre: .*'lower'.*`load`"):
        mbd.identify(loose, record, {"strut": SELECT["strut"]})


def test_experiments_of_other_kinds_are_named():
    with pytest.raises(DataError, match="identify: experiment 0 is a float"):
        split_experiments([3.0], "identify")
    with pytest.raises(DataError, match=r"StaticExperiment, which has no motion.*equilibrium"):
        motions_only(weights(), "predict")


@pytest.mark.thorough
def test_misfits_of_a_pendulum_that_a_spring_holds_upright():
    """Its gradient agrees with differences; a spring too weak to hold it has no misfit."""
    length, mass, stiffness = 0.5, 2.0, 15.0  # m g l = 9.81 N m/rad.
    select = {"k": mbd.Parameter("forces.spring.stiffness", mbd.transforms.Positive())}

    def misfit(rest):
        rod = inertia.shifted(inertia.principal(mass, [0.01, 0.01, 0.01]), [0, 0, length])
        model = mbd.Model(
            bodies={"rod": rod},
            joints={"hinge": joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
            forces={
                "gravity": forces.Gravity(),
                "spring": forces.TorsionalSpringDamper("hinge", stiffness, rest=rest),
            },
        )
        return mbd.misfit(model, mbd.StaticExperiment({"hinge": 0.3}, {"hinge": 0.1}), select)

    @eqx.filter_jit
    def slope(misfit, x):
        return jax.value_and_grad(misfit)(x)

    q = 0.2  # Root of k (q - 0.1) = m g l sin(q), by Newton's method.
    for _ in range(50):
        q -= (stiffness * (q - 0.1) - G * np.sin(q)) / (stiffness - G * np.cos(q))
    leaning, h = misfit(rest=0.1), 1e-5
    x = leaning.start
    at, gradient = slope(leaning, x)
    np.testing.assert_allclose(at, 0.5 * ((q - 0.3) / 0.1) ** 2, rtol=1e-9)
    difference = (slope(leaning, x + h)[0] - slope(leaning, x - h)[0]) / (2 * h)
    np.testing.assert_allclose(gradient[0], difference, rtol=1e-6)
    upright = misfit(rest=0.0)
    np.testing.assert_allclose(slope(upright, x)[0], 0.5 * 3.0**2, rtol=1e-9)
    assert slope(upright, x + np.log(6.0 / stiffness))[0] == np.inf

"""Certificates of fits: their evidence, their files, and what `verify` finds."""

import json
import re

import diffrax
import jax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import cli
from jaxmbd.identification import assessment, certificate
from jaxmbd.identification.assessment import units_of
from jaxmbd.identification.fit import Overlay, Search
from jaxmbd.identification.held import horizon_errors
from jaxmbd.identification.minimizers import LevenbergMarquardt
from jaxmbd.io.problem_files import load_problem, save_problem
from jaxmbd.motion.results import RESULTS
from tests.identification.test_identify import NOISE, experiment, pendulum, records, true_angles
from tests.motion.test_recompilation import Programs

STIFFNESS = {"stiffness": "forces.spring.stiffness"}


@pytest.fixture(scope="module")
def fit():
    recorded = records(starts=((0.5, 0.0), (-0.8, 2.0), (0.3, 1.0)), lengths=(240, 240, 240))
    return mbd.identify(pendulum(stiffness=1.8), recorded, STIFFNESS)


@pytest.fixture(scope="module")
def folder(fit, tmp_path_factory):
    made = tmp_path_factory.mktemp("certificate")
    log = made / "log.csv"
    log.write_text("t,hinge\n")
    fit.certificate(made / "all", validation=records(seed=3), sources=[log])
    return made / "all"


def overlays(*series):
    return [{"s": Overlay(np.arange(len(x)) * 0.1, np.zeros(len(x)), x)} for x in series]


def test_whiteness_by_hand():
    rng = np.random.default_rng(1)
    x = rng.normal(size=100)
    found = assessment.whiteness(overlays(x))["s"]
    y, n = x - x.mean(), len(x)
    rho = [np.sum(y[k:] * y[: n - k]) / np.sum(y * y) for k in range(1, 21)]
    by_hand = n * (n + 2) * sum(r**2 / (n - k) for k, r in enumerate(rho, start=1))
    assert found["statistic"] == pytest.approx(by_hand, rel=1e-12)
    assert found["lags"] == 20
    assert found["first"] == pytest.approx(rho[0], rel=1e-12)


def test_whiteness_of_noise_and_of_correlated_noise():
    """White noise is refused as often as the level says, an autoregression always."""
    rng = np.random.default_rng(0)
    white = [assessment.whiteness(overlays(*rng.normal(size=(2, 200))))["s"] for _ in range(300)]
    share = np.mean([x["p"] < 0.05 for x in white])
    assert 0.02 < share < 0.09
    colored = np.cumsum(rng.normal(size=300))
    assert assessment.whiteness(overlays(colored))["s"]["p"] < 1e-6


def test_feasibility_by_hand():
    """Second moments are (J₁ + J₂ + J₃)/2 - Jᵢ: 0.25, 0.25, 0.75."""
    good = mbd.inertia.principal(2.0, [1.0, 1.0, 0.5], com=[0.3, 0, 0])
    model = mbd.Model({"rod": good}, {"hinge": mbd.joints.Revolute(mbd.ground, "rod")})
    found = assessment.feasibility(model, ["rod"])["rod"]
    assert found["possible"]
    assert found["fitted"]
    assert found["least"] == pytest.approx(0.25 / 0.75)
    assert found["triangle"] == pytest.approx(0.5 / 2.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "transform", "unit"),
    [
        ("forces.spring.stiffness", None, ["N m/rad"]),
        ("forces.bearing.coefficient", mbd.transforms.Positive(), ["N m s/rad"]),
        ("bodies.rod.inertia", mbd.transforms.Scaled(), ["1"]),
        ("bodies.rod.com", None, ["m"] * 3),
        ("bodies.rod", mbd.transforms.PhysicalBody(), ["kg", *["m"] * 3, *["kg m²"] * 6]),
        ("forces.gravity.g", None, ["m/s²"] * 3),
        (lambda model: model.forces["spring"].rest, None, ["rad"]),
    ],
)
def test_units(path, transform, unit):
    problem = mbd.Problem(pendulum(), records(), {"p": mbd.Parameter(path, transform)})
    assert units_of(problem.residuals("test").selected) == unit


@pytest.mark.long
@pytest.mark.parametrize(
    "integrator",
    [
        None,
        diffrax.Heun(),
        mbd.ExplicitRK(diffrax.Dopri5(), mbd.Projection()),
        mbd.GeneralizedAlpha(rho_inf=0.7),
        mbd.BDF(),
    ],
    ids=str,
)
def test_problems_come_back(integrator, tmp_path):
    """Model, records, parameters in their order, and options, to the last bit."""
    select = {
        "z": mbd.Parameter("bodies.rod", mbd.transforms.PhysicalBody()),
        "a": mbd.Parameter(
            "sensors.late.bias", mbd.transforms.Bounded(-1.0, 1.0), mbd.priors.Normal(0.0, 0.1)
        ),
    }
    late = mbd.sensors.Calibrated(mbd.sensors.JointPosition("hinge"), bias=0.1)
    problem = mbd.Problem(
        pendulum(),
        [*records(), mbd.ModalExperiment([2.0], deviations=[0.1])],
        select,
        sensors={"late": late},
        noise={"hinge": NOISE},
        loss=mbd.losses.Cauchy(),
        formulation=mbd.JointCoordinates(),
        integrator=integrator,
        fit_initial_states=True,
    )
    search = Search(LevenbergMarquardt(max_steps=7), 2, 0.1, 3)
    save_problem(problem, search, [], tmp_path / "problem.json")
    again, of_search, validation = load_problem(tmp_path / "problem.json")
    assert [*again.select] == ["z", "a"]
    assert of_search == search
    assert validation == []
    for name in vars(problem):
        x, y = (jax.tree.flatten(getattr(p, name)) for p in (problem, again))
        assert x[1] == y[1], name
        for a, b in zip(x[0], y[0], strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b)), name


@pytest.mark.long
def test_what_files_cannot_hold(tmp_path):
    problem = mbd.Problem(pendulum(), records(), {"k": lambda m: m.forces["spring"].stiffness})
    search = Search(LevenbergMarquardt(), 1, 0.3, 0)
    with pytest.raises(mbd.DataError, match=r"parameters by their paths"):
        save_problem(problem, search, [], tmp_path / "problem.json")
    own = mbd.Problem(pendulum(), records(), STIFFNESS, sensors={"hinge": lambda s, t, y: y.q[0]})
    with pytest.raises(mbd.DataError, match=r"sensors.hinge is a function"):
        save_problem(own, search, [], tmp_path / "problem.json")


def test_differences_in_words():
    old = {"a": [1.0, 2.0], "p": "x", "deep": {"n": 3, "gone": 1.0}}
    new = {"a": [1.0 + 1e-9, 2.1], "p": "y", "deep": {"n": 3}}
    assert list(certificate._differences(old, new, "evidence")) == [
        "evidence: a[1]: 2 in the certificate, now 2.1",
        "evidence: p: 'x' in the certificate, now 'y'",
        "evidence: deep: gone is no longer there",
    ]
    of = {"name": "k", "standard_error": 0.1, "estimate": 5.0}
    moved = of | {"estimate": 5.00006}
    assert list(certificate._differences(of, moved, "parameters[0]")) == []


@pytest.mark.thorough
def test_errors_over_horizons(fit):
    """Of noise of the sensor and of the initial state, and growing for a wrong model."""
    found = horizon_errors(fit, fit.problem.experiments, (0.1, 0.5, 1.5))
    assert found["windows"] >= 20
    assert {*found["errors"]["hinge"]} == {"one step", "0.1 s", "0.5 s", "1.5 s"}
    for rms in found["errors"]["hinge"].values():
        assert 0.6 * NOISE < rms < 2.0 * NOISE


@pytest.mark.thorough
def test_horizons_of_a_wrong_model_and_of_exact_data(fit):
    exact = experiment(0.5, 0.0, true_angles(0.5, 0.0, 240))
    right = mbd.identify(pendulum(stiffness=1.8), exact, STIFFNESS)
    errors = horizon_errors(right, [exact], (0.5, 3.0))["errors"]["hinge"]
    assert errors["0.5 s"] < 1e-7
    assert errors["3 s"] is None
    wrong = mbd.identify(pendulum(stiffness=1.8, friction=0.3), fit.problem.experiments, STIFFNESS)
    of_wrong = horizon_errors(wrong, fit.problem.experiments, (0.1, 0.5))["errors"]["hinge"]
    assert of_wrong["0.5 s"] > 5 * NOISE
    assert of_wrong["0.5 s"] > 1.3 * of_wrong["one step"]


@pytest.mark.long
def test_cross_validation_by_hand(fit):
    """Fits of two records, with errors in the third."""
    found = assessment.cross_validation(fit)
    recorded, squares = fit.problem.experiments, []
    for i, record in enumerate(recorded):
        rest = [x for k, x in enumerate(recorded) if k != i]
        one = mbd.identify(pendulum(stiffness=1.8), rest, STIFFNESS)
        error = np.asarray(mbd.predict(one.model, record)["hinge"] - record.measurements["hinge"])
        squares.append(np.mean(error**2))
    assert found["folds"] == 3
    assert found["rms"]["hinge"] == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-6)
    assert found["ratio"]["hinge"] == pytest.approx(found["rms"]["hinge"] / fit.rms["hinge"])


@pytest.mark.long
def test_a_record_without_readings_is_as_if_left_out():
    """With its initial state among the unknowns; other records left out need no new programs."""
    recorded = records(starts=((0.5, 0.0), (-0.8, 2.0), (0.3, 1.0)), lengths=(60, 60, 60))
    fit = mbd.identify(pendulum(stiffness=1.8), recorded, STIFFNESS, fit_initial_states=True)
    first, second, third = recorded
    apart = assessment.refit(fit, [second, third])
    without = assessment.refit(fit, [assessment._without_readings(first), second, third])
    np.testing.assert_allclose(without.values, apart.values, rtol=1e-7)
    np.testing.assert_allclose(without.initial_states[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(without.initial_states[1:], apart.initial_states, atol=1e-7)
    assert without.result == apart.result == RESULTS.successful
    with Programs() as programs:
        assessment.refit(fit, [first, assessment._without_readings(second), third])
    assert programs.count == 0


@pytest.mark.long
def test_certificate_and_its_page(folder, fit):
    content = json.loads((folder / "certificate.json").read_text())
    assert content["schema"] == 1
    assert content["verdict"] == "accepted"
    assert {*content["files"]} == {"problem.json", "model.json", "report.html"}
    assert [*content["sources"]] == ["../log.csv"]
    (row,) = content["evidence"]["parameters"]
    assert row["unit"] == "N m/rad"
    assert row["estimate"] == fit["stiffness"]
    assert content["evidence"]["validation"]["hinge"] == pytest.approx(NOISE, rel=0.2)
    page = (folder / "report.html").read_text()
    for text in ("stiffness", "N m/rad", "Ljung", "left out", "after 0.5 s", "possible", "<svg"):
        assert text in page
    assert not re.search(r"""(src|href)=["']https?:""", page)
    model = mbd.io.load_model(folder / "model.json")
    assert model.forces["spring"].stiffness == fit.model.forces["spring"].stiffness


@pytest.mark.long
def test_verification_and_changed_bytes(folder, capsys):
    check = mbd.verify(folder)
    assert check.passed
    assert str(check) == "nothing differs; verdict: accepted"
    for name in ("report.html", "model.json", "certificate.json", "../log.csv"):
        file, spot = folder / name, 20
        data = bytearray(file.read_bytes())
        data[spot if len(data) > spot else 0] ^= 1
        kept = file.read_bytes()
        file.write_bytes(bytes(data))
        if name == "certificate.json":
            assert cli.main(["verify", str(folder)]) == 1
            assert "certificate.json: its bytes were changed" in capsys.readouterr().out
        else:
            found = mbd.verify(folder).differences
            assert found == (f"{name}: its bytes were changed",)
        file.write_bytes(kept)
    assert cli.main(["verify", str(folder)]) == 0


@pytest.mark.thorough
def test_changed_data_change_the_numbers(folder):
    file = folder / "problem.json"
    kept = file.read_text()
    content = json.loads(kept)
    first = content["options"]["experiments"]["list"][0]["fields"]["measurements"]["dict"]["hinge"]
    first["array"][60] += 0.2
    file.write_text(json.dumps(content))
    found = mbd.verify(folder).differences
    file.write_text(kept)
    assert found[0] == "problem.json: its bytes were changed"
    assert any("stiffness: estimate" in x for x in found)
    assert any("rms: hinge" in x for x in found)


def test_errors(tmp_path):
    with pytest.raises(mbd.DataError, match="there is no certificate"):
        mbd.verify(tmp_path)
    assert cli.main(["verify", str(tmp_path)]) == 2
    (tmp_path / "certificate.json").write_text("{}")
    with pytest.raises(mbd.DataError, match="not a complete certificate"):
        mbd.verify(tmp_path)
    with pytest.raises(mbd.DataError, match="no threshold 'x'"):
        certificate._thresholds({"x": 1.0})
    with pytest.raises(mbd.DataError, match="'whiteness_p' must be positive"):
        certificate._thresholds({"whiteness_p": -1.0})


@pytest.mark.thorough
def test_horizons_with_samples_that_do_not_count(fit):
    """Every other reading is left out, and its value is wrong."""
    masked = []
    for record in fit.problem.experiments:
        counts = np.arange(len(record.ts)) % 2 == 0
        readings = np.where(counts, record.measurements["hinge"], np.nan)
        masked.append(
            mbd.Experiment(
                record.ts,
                {"hinge": readings},
                record.guess,
                record.rates,
                valid={"hinge": counts},
            )
        )
    of_half = mbd.identify(pendulum(stiffness=1.8), masked, STIFFNESS)
    errors = horizon_errors(of_half, masked, (0.1, 0.5))["errors"]["hinge"]
    for rms in errors.values():
        assert 0.6 * NOISE < rms < 2.0 * NOISE
    found = assessment.whiteness(of_half.overlays)["hinge"]
    assert found["p"] > 0.01

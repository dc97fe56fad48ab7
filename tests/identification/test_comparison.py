"""Comparison of models: ranks with reasons, criteria by hand."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification import comparison
from tests.identification.test_identify import pendulum, records

BEARING = "forces.bearing.coefficient"


@pytest.fixture(scope="module")
def recorded():
    return records(starts=((0.5, 0.0), (-0.8, 2.0), (0.3, 1.0)), lengths=(150, 150, 150))


@pytest.fixture(scope="module")
def fits(recorded):
    """The truth is viscous; the second model has a number too many, the third another law."""
    dry = mbd.forces.CoulombFriction("hinge", 0.05, 0.05)
    plain = pendulum(friction=0.15)
    return {
        "dry": mbd.identify(
            plain.with_(forces={"bearing": dry}), recorded, ["forces.bearing.torque"]
        ),
        "both": mbd.identify(
            plain.with_(forces={"dry": dry}), recorded, [BEARING, "forces.dry.torque"]
        ),
        "viscous": mbd.identify(plain, recorded, [BEARING]),
    }


@pytest.mark.long
def test_criteria_by_hand(fits):
    """n log(rms²) plus 2 k or k log n; the variance counts as a number."""
    found = mbd.compare_models(fits, cross_validate=False)
    by_hand = {}
    for name, fit in fits.items():
        n, k = 450, len(fit.labels) + 1
        deviance = n * np.log(fit.rms["hinge"] ** 2)
        by_hand[name] = deviance + 2 * k, deviance + k * np.log(n)
    least = np.min([*by_hand.values()], axis=0)
    for x in found.candidates:
        assert (x.aic, x.bic) == pytest.approx(tuple(by_hand[x.name] - least), abs=1e-6)
        assert x.left_out is None
        assert x.error >= 1.0
        assert "no records were left out" in x.reason
    assert found.names == ["viscous", "both", "dry"]


@pytest.mark.thorough
def test_the_true_law_is_first_with_reasons(fits):
    found = mbd.compare_models(fits)
    assert found.names == ["viscous", "both", "dry"]
    viscous, both, dry = found.candidates
    assert "within 2 %" in viscous.reason
    assert f"{both.bic:.3g} above the first" in both.reason
    assert 2 < both.bic < 8  # About log(450) = 6.1 for a number that the data do not need.
    assert "% above the least; its residuals are not white" in dry.reason
    assert dry.error > 2
    assert viscous.whiteness > 0.01 > dry.whiteness
    printed = str(found)
    assert printed.splitlines()[1].startswith("viscous")
    assert printed.splitlines()[-1] == f"3. dry: {dry.reason}"
    axes = found.plot().axes
    assert [x.get_text() for x in axes[0].get_yticklabels()] == ["dry", "both", "viscous"]


def candidate(name, error, bic, problems=(), n=1):
    return comparison.Candidate(name, n, {}, {"s": error}, error, bic, bic, 0.5, problems, "")


def test_order_and_reasons():
    """Errors first, then the criterion where errors are alike; a failed fit is last."""
    made = [
        candidate("failed", 1.0, 0.0, ("at a bound",)),
        candidate("far", 1.5, 10.0),
        candidate("near", 1.01, 20.0),
        candidate("best", 1.015, 5.0),
        candidate("farther", 1.7, 1.0),
    ]
    ranked = comparison._ranked(made)
    assert [x.name for x in ranked] == ["best", "near", "far", "farther", "failed"]
    assert ranked[1].reason.endswith("the Bayesian criterion is 15 above the first")
    assert ranked[2].reason == "errors in records left out are 48.5 % above the least"
    assert ranked[-1].reason == "at a bound"


@pytest.mark.long
def test_errors(fits, recorded):
    with pytest.raises(mbd.DataError, match="two fits or more, got 1"):
        mbd.compare_models({"one": fits["dry"]})
    with pytest.raises(mbd.DataError, match="'x' is a int, not a Fit"):
        mbd.compare_models({"x": 1, "y": fits["dry"]})
    with pytest.raises(mbd.DataError, match=r"needs \{name: fit\}"):
        mbd.compare_models(3.0)
    other = mbd.identify(pendulum(friction=0.15), recorded[:2], [BEARING])
    with pytest.raises(mbd.DataError, match="'b' and 'a' must be fits of the same motions"):
        mbd.compare_models({"a": fits["viscous"], "b": other})

"""Passages of loops through positions where branches of their motion meet, and their report."""

from typing import Any

import diffrax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.motion.motion_warnings import _first
from tests.formulations.test_redundant import four_bar
from tests.marks import thorough_but

# Lengths of crank, coupler, rocker and frame.
PARALLELOGRAM, KITE, CRANK_ROCKER = (
    (0.2, 0.5, 0.2, 0.5),
    (0.2, 0.2, 0.5, 0.5),
    (0.2, 0.5, 0.45, 0.6),
)
LEFT, RIGHT = 1.0, -1.0  # Side of the line from crank pin to bearing on which the rocker pin is.


def directions(lengths, side, angle):
    """Angles of coupler and rocker to the frame, for angles of the crank."""
    a, b, c, d = lengths
    pin = a * np.exp(1j * np.asarray(angle))
    line = d - pin
    along = (b**2 - c**2 + abs(line) ** 2) / (2 * abs(line))
    across = np.sqrt(np.maximum(b**2 - along**2, 0.0))
    tip = pin + line / abs(line) * (along + 1j * side * across)
    return np.angle(tip - pin), np.angle(tip - d)


def samples(lengths, sides, angle):
    """G of a planar four-bar at a crank that turns at 1 rad/s, with two rows without effect.

    `sides`: of each sample: `LEFT` and `RIGHT` change at change points.
    """
    a, b, c, _ = lengths
    coupler, rocker = directions(lengths, sides, angle)
    x = [-a * np.sin(angle), -b * np.sin(coupler), c * np.sin(rocker)]
    y = [a * np.cos(angle), b * np.cos(coupler), -c * np.cos(rocker)]
    G = np.zeros((len(angle), 4, 3))
    G[:, 1], G[:, 3] = np.stack(x, axis=1), np.stack(y, axis=1)
    return G


def passage(G, angle, error=1e-15) -> Any:
    """What `_first` finds, in coordinates and rows turned by fixed rotations."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in G.shape[1:])
    ones = np.ones(len(angle))
    return _first(angle, left @ G @ right, ones, error)


@pytest.mark.parametrize("n", [100, 31])
@pytest.mark.parametrize("lengths", [PARALLELOGRAM, KITE])
def test_branches_that_cross_are_told_from_those_that_do_not(lengths, n):
    """Straight on is the other side of the diagonal; on the same side a linkage turns sharply."""
    angle = np.linspace(0.5, 5.5, n)
    G = samples(lengths, np.where(angle < np.pi, LEFT, RIGHT), angle)
    at, _ = passage(G, angle)
    assert at == pytest.approx(np.pi, abs=2 * (angle[1] - angle[0]))
    assert passage(G[angle < 3.1], angle[angle < 3.1]) is None
    if lengths == PARALLELOGRAM:
        assert passage(samples(lengths, LEFT, angle), angle) is None


@pytest.mark.parametrize("off", [0.3, 0.03, 1e-3, 1e-5])
def test_positions_near_singular_ones_are_not_passages(off):
    """Linkages with shorter cranks keep their side in every turn, in coarse and dense samples."""
    for lengths in (PARALLELOGRAM, KITE):
        others = (lengths[0] * (1 - off), *lengths[1:])
        for n in (60, 200, 3000):
            angle = np.linspace(0.5, 12.0, n)
            assert passage(samples(others, LEFT, angle), angle) is None


def test_two_passages_at_once_do_not_cancel():
    angle = np.linspace(0.5, 5.5, 60)
    G = samples(PARALLELOGRAM, np.where(angle < np.pi, LEFT, RIGHT), angle)
    both = np.zeros((60, 8, 6))
    both[:, :4, :3], both[:, 4:, 3:] = G, 1.7 * G
    assert passage(both, angle)[0] == pytest.approx(np.pi, abs=0.1)


def test_violated_constraints_and_long_intervals_decide_nothing():
    angle = np.linspace(0.5, 5.5, 60)
    G = samples(PARALLELOGRAM, np.where(angle < np.pi, LEFT, RIGHT), angle)
    assert passage(G, angle, error=0.1) is None
    assert passage(G[::20], angle[::20]) is None


def moved(method, lengths, side, angle, rate, load=1.0):
    """Angles of the joints over a second under weight, and the change of energy as a part.

    `method`: formulation and integrator; `load`: mass of the coupler by that of another bar.
    """
    formulation, integrator = method
    model = four_bar(lengths).with_(forces={"spring": None})
    body: Any = model.bodies["coupler"]
    heavy = mbd.RigidBody(load * body.mass, load * body.inertia, body.com)
    system = mbd.formulate(model.with_(bodies={"coupler": heavy}), formulation)
    coupler, rocker = directions(lengths, side, angle)
    guess = {"A": angle, "B": coupler - angle, "D": rocker}
    start = mbd.assemble(system, guess, {"A": rate}, hold=["A"])
    motion = mbd.simulate(system, start, t1=1.0, integrator=integrator)
    total = np.asarray(motion.energy.total)
    change = np.abs(total - total[0]).max() / np.max(motion.energy.kinetic)
    return *(np.unwrap(motion.joint(name).q) for name in "ABD"), change


METHODS = {
    "joint": (mbd.JointCoordinates(), None),
    "maximal": (mbd.MaximalCoordinates(), None),
    "partitioning": (
        mbd.JointCoordinates(),
        mbd.ExplicitRK(diffrax.Tsit5(), mbd.CoordinatePartitioning()),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("method", thorough_but(["joint"], METHODS))
def test_motions_under_weight_pass_change_points_straight_on(method):
    """Energy and branch of parallelograms, antiparallelograms and kites, and the warning.

    Linkages that pass no change point give none.
    """
    for lengths, side, angle, rate, load in [
        (PARALLELOGRAM, LEFT, 1.0, 20.0, 1.0),
        (PARALLELOGRAM, LEFT, 0.3, -1.0, 10.0),
        (PARALLELOGRAM, RIGHT, 1.0, 20.0, 1.0),
        (KITE, LEFT, 1.0, 20.0, 5.0),
        (KITE, LEFT, 1.0, -20.0, 1.0),
    ]:
        with pytest.warns(mbd.BifurcationWarning, match="passes a singular"):
            A, B, D, change = moved(METHODS[method], lengths, side, angle, rate, load)
        assert change < 1e-6
        n = np.floor(A / np.pi)
        assert np.ptp(n) >= 1
        coupler, rocker = directions(lengths, np.where(n % 2 == 0, side, -side), A)
        clear = np.abs(np.sin(A)) > 0.1
        for found, expected in ((A + B, coupler), (D, rocker)):
            off = np.angle(np.exp(1j * (found - expected)))
            np.testing.assert_allclose(off[clear], 0.0, atol=1e-6)
    for lengths, side, angle, rate in [
        (PARALLELOGRAM, RIGHT, -1.0, 0.5),
        (CRANK_ROCKER, LEFT, 1.0, 20.0),
        ((0.1999, 0.5, 0.2, 0.5), LEFT, 1.0, 10.0),
    ]:
        assert moved(METHODS[method], lengths, side, angle, rate)[-1] < 1e-6

"""Designed motions excite better than random ones, within limits."""

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import forces, inertia, joints


def arm():
    upper, lower = (inertia.shifted(inertia.rod(m, 0.5), [0.25, 0, 0]) for m in (2.0, 1.0))
    return mbd.Model(
        {"upper": upper, "lower": lower},
        {
            "shoulder": joints.Revolute(mbd.ground, "upper", [0, 1, 0]),
            "elbow": joints.Revolute(mbd.Frame("upper", [0.5, 0, 0]), "lower", [0, 1, 0]),
        },
        {"gravity": forces.Gravity()},
    )


LIMITS = {
    name: {"position": (-1.0, 1.5), "velocity": 3.0, "acceleration": 20.0, "torque": torque}
    for name, torque in (("shoulder", 30.0), ("elbow", 8.0))
}


@pytest.fixture(scope="module")
def system():
    return mbd.formulate(arm(), mbd.JointCoordinates())


@pytest.mark.long
def test_the_motion_keeps_its_limits_and_excites_better(system):
    found = mbd.design_excitation(
        system, LIMITS, period=4.0, harmonics=3, samples=40, starts=2, steps=150
    )
    assert found.joints == ("shoulder", "elbow")
    ts = np.linspace(0.0, 4.0, 1001)
    q, v, vdot = (np.asarray(x) for x in found.at(ts))
    np.testing.assert_allclose(np.gradient(q, ts, axis=0)[1:-1], v[1:-1], atol=1e-2)
    np.testing.assert_allclose(np.gradient(v, ts, axis=0)[1:-1], vdot[1:-1], atol=1e-1)
    assert np.all((q > -1.0) & (q < 1.5))
    assert np.all(np.abs(v) < 3.0)
    assert np.all(np.abs(vdot) < 20.0)
    torque = np.asarray(mbd.regressor(system, 0.0, q, v, vdot).forces())
    assert np.all(np.abs(torque) < [30.0, 8.0])
    np.testing.assert_allclose(torque[0], found.torque[0], rtol=1e-9, atol=1e-9)
    assert all(np.all(margin >= 0.0) for margin in found.margins.values())
    base = mbd.base_parameters(system)
    again = base.condition(mbd.regressor(system, 0.0, found.q, found.v, found.vdot))
    np.testing.assert_allclose(found.condition, again, rtol=1e-9)
    # Single sines of the same size, out of phase.
    w = 2 * np.pi / 4.0
    wave = np.stack([np.sin(w * ts), np.sin(2 * w * ts + 1.0)], axis=-1)
    rates = np.stack([w * np.cos(w * ts), 2 * w * np.cos(2 * w * ts + 1.0)], axis=-1)
    plain = mbd.regressor(system, 0.0, 0.25 + wave, rates, -wave * [w**2, 4 * w**2])
    assert found.condition < base.condition(plain) / 1.5
    assert found.plot().axes
    assert "condition number" in str(found)


def test_wrong_limits_are_refused(system):
    with pytest.raises(mbd.ModelError, match="need position and velocity"):
        mbd.design_excitation(system, {"shoulder": LIMITS["shoulder"]})
    with pytest.raises(mbd.ModelError, match="unknown joint 'knee'"):
        mbd.design_excitation(system, {**LIMITS, "knee": LIMITS["elbow"]})

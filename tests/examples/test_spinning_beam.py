"""The example of a beam that is spun up."""

import numpy as np
import pytest

from .comparing import example


@pytest.mark.thorough
def test_frequency_at_rest():
    script = example("spinning_beam")
    stiffness, mass = 6.895e10 * 8.218e-9, 2766.67 * 7.3e-5
    first = 1.8751040687**2 * np.sqrt(stiffness / (mass * script["LENGTH"] ** 4))
    np.testing.assert_allclose(script["beam"]().frequencies()[0], first, rtol=1e-4)


@pytest.mark.thorough
def test_it_lags_and_comes_back():
    """The largest lag is near that of the steady load at the largest angular acceleration."""
    t, deflection = example("spinning_beam")["motion"]()
    # A load q0 x / L with q0 = ρ A L 0.77 rad/s², and 1.12 times the stiffness at rest.
    static = 11.0 * 2766.67 * 7.3e-5 * 8.0**5 * 0.77 / (120.0 * 6.895e10 * 8.218e-9) / 1.12
    assert np.abs(deflection).max() == pytest.approx(static, rel=0.05)
    assert np.abs(deflection[t > 15.0]).max() < 0.02

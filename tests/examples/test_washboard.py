"""Crates on a slope and a ball on a washboard."""

import numpy as np
import pytest

from tests.examples import comparing

EXAMPLE = comparing.example("washboard")


@pytest.mark.thorough
def test_crates_stick_slide_and_tip(tmp_path):
    slides, rolling, (place, slope) = EXAMPLE["main"](png=tmp_path / "plot.png")
    moved = {
        name: np.linalg.norm(x.frames["crate"].p[-1] - x.frames["crate"].p[0])
        for name, x in slides.items()
    }
    assert moved["sticks"] < 2e-3
    # Bristles yield first: a little more than sliding with the full friction from the start.
    dry = 0.5 * 9.81 * (np.sin(EXAMPLE["SLOPE"]) - 0.3 * np.cos(EXAMPLE["SLOPE"])) * 0.8**2
    assert dry < moved["slides"] < 1.02 * dry
    R = slides["tips"].frames["crate"].R
    assert np.sum(R[-1] * R[0]) < 1.1  # 1 + 2 cos of the angle turned.
    assert np.mean(EXAMPLE["pushes"](rolling) == 0) > 0.2
    steps = [1e-5 * k for k in (-1.0, 1.0)]
    ends = [
        float(EXAMPLE["roll"](EXAMPLE["AMPLITUDE"] + h, t1=1.0).frames["ball"].p[-1, 0])
        for h in steps
    ]
    assert place == pytest.approx(np.mean(ends), abs=1e-6)
    assert slope == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=2e-2)
    assert (tmp_path / "plot.png").is_file()

"""The built documentation plays animations: stored pages, completed by k3d's script."""

import base64
import re
import zlib

import msgpack
import pytest

from docs import animations

STORED = sorted(animations.STORED.glob("*.html"))


def test_all_pages_are_stored():
    assert {path.stem for path in STORED} == set(animations.NAMES)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_page_plays_without_a_network(path, tmp_path):
    """It has k3d's script, poses over time, the bar, and loads nothing."""
    stored = path.read_text(encoding="utf-8")
    assert len(stored) < 500_000  # Every version stays in the repository.
    page = animations.completed(stored)
    assert len(page) > len(stored) + 500_000
    assert animations.without_script(page) == stored
    assert 'slider.setAttribute("aria-label", "time")' in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)\s*=", stored)
    packed = base64.b64decode(re.search(r"var data = '([^']*)'", page)[1])
    objects = msgpack.unpackb(zlib.decompress(packed), strict_map_key=False)["objects"]
    moving = [x for x in objects if len(x.get("model_matrix", {})) > 20]
    assert len(moving) > 5


def test_pages_of_another_form_are_errors():
    with pytest.raises(ValueError, match="0 scripts of k3d"):
        animations.without_script("<html></html>")

"""Fused programs are what the CPU runs where no machine code is generated."""

import pytest

from jaxmbd import native


@pytest.fixture(autouse=True)
def _no_generated_code():
    with native.enabled(False):
        yield

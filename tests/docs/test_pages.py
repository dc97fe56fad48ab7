"""What the pages say: their code runs, files they name exist, no public name is missing."""

import re
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

import jaxmbd as mbd

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "pages"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def names():
    """What the code on the pages takes for granted."""
    model = mbd.Model(
        bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), [0.5, 0, 0])},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=[0, 1, 0])},
        forces={
            "gravity": mbd.forces.Gravity(),
            "bearing": mbd.forces.ViscousFriction("hinge", 0.1),
        },
        frames={"tip": mbd.Frame("rod", [1.0, 0, 0])},
    )
    ts = np.linspace(0.0, 0.5, 26)
    angles = 0.3 + 7.0 * ts**2 + 1e-3 * np.sin(1e3 * ts)
    known = {"mbd": mbd, "eqx": eqx, "jax": jax, "jnp": jnp, "diffrax": diffrax}
    return known | {"optimistix": optimistix, "model": model, "ts": ts, "angles": angles}


@pytest.mark.parametrize("page", ["model", "simulation", "gradients", "identification"])
def test_code_of_a_page_runs(page):
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text())
    assert blocks
    known = names()
    for block in blocks:
        exec(compile(block, f"{page}.md", "exec"), known)
    if page == "simulation":
        tip = known["motion"].frames["tip"].p
        np.testing.assert_allclose(tip[-1, 2], -0.9, atol=1e-6)
    if page == "gradients":
        assert known["ends"].shape == (1024, 3)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`([\w/]+\.(?:py|ipynb))`", page.read_text())
    homes = (ROOT, ROOT / "jaxmbd", ROOT / "tests")
    missing = [path for path in named if not any((home / path).is_file() for home in homes)]
    assert not missing


def test_public_names_are_in_the_reference():
    text = (PAGES / "api.md").read_text()
    missing = []
    for name in mbd.__all__:
        public = getattr(mbd, name)
        wanted = public.__name__ if isinstance(public, type(re)) else f"jaxmbd.{name}"
        if not re.search(rf"^\.\. .*:: {re.escape(wanted)}(\.\w+)*$", text, re.MULTILINE):
            missing.append(name)
    errors = {"AssemblyError", "DataError", "IncompatibleIntegrator", "ModelError"}
    assert set(missing) == {"Pose", "SimulationError"} | errors  # In the modules lie and errors.

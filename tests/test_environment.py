"""The report of the environment, and the public names with the libraries that they import."""

import getpass
import platform
import subprocess
import sys

import jax
import pytest

import jaxmbd as mbd


@pytest.fixture(autouse=True)
def running_backend():
    """XLA reads its flags when a backend starts, and ends the process if it does not know one."""
    jax.devices()


def test_versions_devices_and_flags(monkeypatch):
    flags = "--xla_a=false --xla_dump_to=/home/someone/dump --xla_b /home/other C:\\x"
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setenv("SCALARJIT", "0")
    lines = mbd.report_environment().splitlines()
    assert f"jax {jax.__version__}" in lines
    assert f"{len(jax.devices())} device(s), cpu: cpu" in lines
    assert "jax_enable_x64 = True" in lines
    assert "SCALARJIT = 0" in lines
    shown = [line for line in lines if line.startswith("XLA flag")]
    assert shown == [
        "XLA flag --xla_a=false",
        "XLA flag --xla_dump_to=(left out)",
        "XLA flag --xla_b",
    ]


def test_no_names_of_the_machine(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "/etc/flags.txt")
    text = mbd.report_environment()
    assert "XLA flag file (left out)" in text
    assert not {"/", "\\"} & {*text}
    assert not {platform.node(), getpass.getuser()} & {*text.split()}


def test_every_public_name_is_listed():
    for part in (mbd, mbd.flexible):
        assert set(part.__all__) <= set(dir(part))
        assert all(getattr(part, name) is not None for name in part.__all__)


def test_no_imports_before_first_use():
    """A model and its equations need JAX and equinox alone; analyses import what they use."""
    script = """
import sys
import jaxmbd as mbd

slow = "diffrax equinox jax lineax llvmlite matplotlib numpy optax optimistix scipy xarray".split()
print(*(name for name in slow if name in sys.modules), sep=",")
mbd.Model, mbd.joints.Revolute, mbd.forces.Gravity, mbd.formulate, mbd.accelerations
print(*(name for name in slow if name in sys.modules), sep=",")
mbd.simulate, mbd.flexible.beam, mbd.equilibrium
print(*(name for name in slow if name in sys.modules), sep=",")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    first, model, analyses = done.stdout.splitlines()
    assert first == ""
    assert model == "equinox,jax,numpy"
    assert analyses == "diffrax,equinox,jax,lineax,numpy,optimistix"


@pytest.mark.long
def test_first_use_inside_a_transformation():
    """Modules that are first imported while JAX traces hold no traced arrays."""
    script = """
import jax
import jaxmbd as mbd

with jax.checking_leaks():
    jax.jit(lambda: [getattr(mbd, name) for name in mbd.__all__] and 0)()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_names_that_do_not_exist():
    for part in (mbd, mbd.flexible):
        with pytest.raises(AttributeError, match=f"module '{part.__name__}' has no attribute 'x'"):
            _ = part.x

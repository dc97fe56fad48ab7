"""The report of the environment: complete, and without names and paths of a machine."""

import getpass
import platform

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
    monkeypatch.setenv("JAXMBD_FUSED", "0")
    lines = mbd.report_environment().splitlines()
    assert f"jax {jax.__version__}" in lines
    assert f"{len(jax.devices())} device(s), cpu: cpu" in lines
    assert "jax_enable_x64 = True" in lines
    assert "JAXMBD_FUSED = 0" in lines
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
    assert set(mbd.__all__) <= set(dir(mbd))
    assert all(getattr(mbd, name) is not None for name in mbd.__all__)

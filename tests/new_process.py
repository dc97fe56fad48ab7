"""Clear what this process remembers, so that a test can act as a new process."""

from jaxmbd.programs import storage, tracing
from tests.scalarjit import new_process


def forget() -> None:
    """Forget the programs of this process, as a new process does."""
    for known in (storage._known, tracing._known):
        known.clear()
    new_process.forget("jaxmbd", "tests")


def make_room() -> None:
    """Forget them, and give their memory back to the system."""
    forget()
    new_process.give_back()

"""Wrong calls of the whole public interface, several hundred, made from a table of valid calls.

Each is an error of the package that names the argument or the component: no exception of another
library, no result, and no endless run.
"""

import os
import warnings

import jax
import pytest

import jaxmbd as mbd
from tests.bad_calls import (
    BODIES,
    CALLS,
    CONTACT,
    FLEXIBLE,
    FORCES,
    JOINTS,
    SLOW,
    WITHOUT_VALID_CALL,
)
from tests.marks import thorough_but

pytestmark = pytest.mark.skipif(
    os.environ.get("JAXMBD_TEST_SHAPES") == "1", reason="the checks of types refuse these first"
)

ERRORS = (mbd.ModelError, mbd.DataError, mbd.AssemblyError)
# Names of the components in the table, one of which a message has if it has not the argument's.
COMPONENTS = ("'part'", "rod", "hinge", "run", "record", "experiment", "Parameter", "file")


def names_its_subject(message: str, call: str, argument: str) -> bool:
    own = call.rpartition(".")[2].split()[0]
    return any(word.lower() in message.lower() for word in (argument, own, *COMPONENTS))


def problems(call: str) -> list[str]:
    """Wrong calls of one function that are not refused as they should be."""
    found = []
    for argument, name, value in CALLS[call].wrong():
        wrong = f"{call}({argument}: {name})"
        try:
            CALLS[call].run(**{argument: value})
        except ERRORS as error:
            if not names_its_subject(str(error), call, argument):
                found.append(f"{wrong} names nothing: {error}")
        except Exception as error:
            found.append(f"{wrong} raises {type(error).__name__}: {error}")
        else:
            found.append(f"{wrong} is accepted")
    return found


@pytest.mark.long
@pytest.mark.parametrize("call", thorough_but(set(CALLS) - SLOW, CALLS))
def test_wrong_calls_are_refused_by_name(call, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not problems(call)


def test_there_are_many_wrong_calls():
    assert sum(1 for call in CALLS.values() for _ in call.wrong()) >= 470


@pytest.mark.thorough
@pytest.mark.parametrize("call", [name for name in CALLS if name not in WITHOUT_VALID_CALL])
def test_the_calls_of_the_table_are_valid(call, capsys):
    """Without this test, wrong calls could be refused for another reason than the wrong value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CALLS[call].run()


@pytest.mark.long
def test_components_are_checked_where_other_numbers_are_traced():
    """The checks of a component find the same within `jit`, where `replace` calls them."""
    parts = {**BODIES, **JOINTS, **FORCES, **CONTACT, **FLEXIBLE}
    made = {
        name: call.function(**call.given)
        for name, call in parts.items()
        if name not in WITHOUT_VALID_CALL
    }
    checked = {name: x for name, x in made.items() if hasattr(x, "validate")}
    assert len(checked) > 40
    found = {}

    def check(y):
        for name, x in checked.items():
            found[name] = x.validate()
        return y

    jax.make_jaxpr(check)(1.0)
    assert found == {name: x.validate() for name, x in checked.items()}

"""Room for frames and objects of functions that are called deep inside of others."""

import gc
import threading

import pytest

from scalarjit.with_room import with_room


def test_arguments_results_and_name_are_those_of_the_function():
    def total(a, *rest, scale=1):
        """Sum."""
        return scale * sum((a, *rest))

    roomy = with_room(total)
    assert roomy(1, 2, 3, scale=2) == 12
    assert (roomy.__name__, roomy.__doc__) == ("total", "Sum.")
    assert with_room(roomy)(5) == 5


def test_functions_below_a_deep_stack_return():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    assert with_room(down)(900) == 900


@pytest.fixture
def thresholds():
    """Sets thresholds of garbage collection, and those of before afterwards."""
    before = gc.get_threshold()
    yield gc.set_threshold
    gc.set_threshold(*before)


def test_collections_are_rarer_until_the_outer_function_ends(thresholds):
    thresholds(700, 10, 10)
    seen = with_room(lambda: (with_room(gc.get_threshold)(), gc.get_threshold()))()
    assert seen == ((50_000, 20, 10), (50_000, 20, 10))
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (10**6, 50, 10)], ids=["none", "rarer"])
def test_users_thresholds_stay_where_collections_are_rarer_already(thresholds, own):
    thresholds(*own)
    assert with_room(gc.get_threshold)() == own
    assert gc.get_threshold() == own


def test_thresholds_come_back_after_an_error(thresholds):
    thresholds(700, 10, 10)
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 / 0)()
    assert gc.get_threshold() == (700, 10, 10)


def test_thresholds_come_back_with_the_last_of_two_threads(thresholds):
    thresholds(700, 10, 10)
    inside, go_on = threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert go_on.wait(30)

    thread = threading.Thread(target=with_room(wait))
    thread.start()
    assert inside.wait(30)
    with_room(int)()
    assert gc.get_threshold() == (50_000, 20, 10)  # The other one is not done.
    go_on.set()
    thread.join(30)
    assert gc.get_threshold() == (700, 10, 10)

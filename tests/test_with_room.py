"""Room for frames of functions that are called deep inside of others."""

from jaxmbd._with_room import with_room


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

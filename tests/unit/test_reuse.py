"""What was made is taken again for equal arguments, and for these alone."""

import pytest

from ipusim.base.cache import Cache


def test_equal_arguments_get_what_was_made_of_the_first():
    made = []

    def make(*arguments):
        made.append(arguments)
        return list(arguments)

    cache = Cache()
    first = cache(make, (1, "a"), 2)
    assert cache(make, (1, "a"), 2) is first
    assert cache(make, (1, "b"), 2) == [(1, "b"), 2]
    assert cache(lambda *arguments: "of another function", (1, "a"), 2) == "of another function"
    assert made == [((1, "a"), 2), ((1, "b"), 2)]


def test_what_is_raised_is_not_kept():
    cache, tries = Cache(), []

    def make():
        tries.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            cache(make)
    assert len(tries) == 2


def test_the_oldest_of_many_go():
    cache, made = Cache(), []
    for number in [*range(65), 0, 64]:
        cache(made.append, number)
    assert made == [*range(65), 0]


def test_the_first_of_equal_values_stands_for_all():
    cache = Cache()
    one, other = (1, [2]), (1, [2])
    assert cache.first_equal(one) is one
    assert cache.first_equal(other) is one


def test_a_first_value_is_known_by_what_is_given_in_its_place():
    class Never:
        """What nobody should compare."""

        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("compared")

    def make(*_):
        return []

    cache = Cache()
    one, other = Never(), Never()
    assert cache.first_equal(one, substitute="one") is one
    assert cache.first_equal(other, substitute="other") is other
    assert cache.first_equal(Never(), substitute="one") is one
    made = cache(make, one, 3)
    assert cache(make, other, 3) is not made
    assert cache(make, one, 3) is made


def test_first_values_count_at_their_places_and_with_all_that_is_beside_them():
    made = []

    def make(*arguments):
        made.append(arguments)
        return arguments

    cache = Cache()
    one, other = cache.first_equal((1,)), cache.first_equal((2,))
    asked = [(one, other), (other, one), (one, one), (one, 5), (one, 6), (other, 5), (5, one)]
    for arguments in [*asked, *asked]:
        assert cache(make, *arguments) == arguments
    assert made == asked


def test_first_values_that_were_forgotten_are_told_apart_still():
    cache = Cache()
    values = [cache.first_equal((number,)) for number in range(200)]
    for _ in range(2):
        for value in values:
            assert cache(list, value) == [*value]

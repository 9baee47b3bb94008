"""What was made is taken again for equal arguments, and for these alone."""

from __future__ import annotations

import pytest

from ipusim.base.reuse import Reuse


def test_equal_arguments_get_what_was_made_of_the_first():
    made = []

    def make(*arguments):
        made.append(arguments)
        return list(arguments)

    again = Reuse()
    first = again(make, (1, "a"), 2)
    assert again(make, (1, "a"), 2) is first
    assert again(make, (1, "b"), 2) == [(1, "b"), 2]
    assert again(lambda *arguments: "of another function", (1, "a"), 2) == "of another function"
    assert made == [((1, "a"), 2), ((1, "b"), 2)]


def test_what_is_raised_is_not_kept():
    again, tries = Reuse(), []

    def make():
        tries.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            again(make)
    assert len(tries) == 2


def test_the_oldest_of_many_go():
    again, made = Reuse(), []
    for number in [*range(65), 0, 64]:
        again(made.append, number)
    assert made == [*range(65), 0]


def test_the_first_of_equal_values_stands_for_all():
    again = Reuse()
    one, other = (1, [2]), (1, [2])
    assert again.first(one) is one
    assert again.first(other) is one


def test_a_first_value_is_known_by_what_is_given_in_its_place():
    class Never:
        """What nobody should compare."""

        __hash__ = None

        def __eq__(self, other):
            raise AssertionError("compared")

    def make(*_):
        return []

    again = Reuse()
    one, other = Never(), Never()
    assert again.first(one, by="one") is one
    assert again.first(other, by="other") is other
    assert again.first(Never(), by="one") is one
    made = again(make, one, 3)
    assert again(make, other, 3) is not made
    assert again(make, one, 3) is made


def test_first_values_count_at_their_places_and_with_all_that_is_beside_them():
    made = []

    def make(*arguments):
        made.append(arguments)
        return arguments

    again = Reuse()
    one, other = again.first((1,)), again.first((2,))
    asked = [(one, other), (other, one), (one, one), (one, 5), (one, 6), (other, 5), (5, one)]
    for arguments in [*asked, *asked]:
        assert again(make, *arguments) == arguments
    assert made == asked


def test_first_values_that_were_forgotten_are_told_apart_still():
    again = Reuse()
    values = [again.first((number,)) for number in range(200)]
    for _ in range(2):
        for value in values:
            assert again(list, value) == [*value]

"""What was made is taken again for equal arguments, and for these alone."""

from __future__ import annotations

import pytest

from ipusim.reuse import Reuse


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

"""The nearest known name for an unknown one: a misspelling, or a synonym."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Final

from ipusim.base.foreign_words import folded, ours

#: How much two names have in common where one may stand for the other, as difflib measures it; at 0.5 half of all
#: English words are near some key of a scenario.
_ALIKE: Final = 0.55
#: Names that a hint offers at most: where several have the same words, and where several are one mistake away, as
#: short ones often are.
_FEW: Final = 3
_MOST: Final = 5
#: Names that a message lists at most, and of more the nearest.
_LISTED: Final = 24
_NEAREST: Final = 12
#: Digits of a number in a name that are looked at, for int() takes long over very many.
_DIGITS: Final = 20
_NUMBER: Final = re.compile(r"\d+")


def same(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name out of ``names`` that ``wrong`` is but for case and separators, or that others call so.

    None where there is none.
    """
    if not isinstance(wrong, str):
        return None
    known = list(names)
    spelt = {folded(name): name for name in reversed(known)}
    return spelt.get(folded(wrong)) or next((name for name in ours(wrong) if name in known), None)


def nearest(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name out of ``names`` that is nearest to ``wrong`` in any case, or None where none is near.

    What others call one of them is as near as can be.
    """
    return next(iter(all_nearest(wrong, names)), None)


def all_nearest(wrong: object, names: Iterable[str]) -> Sequence[str]:
    """Return the names out of ``names`` that are nearest to ``wrong`` in any case, several where they are equally near.

    Nearest are what others call so, then names that one mistake of a letter makes ``wrong`` of, then the next smaller
    and larger one of names that differ from it in their number, then names that have all of its words, and last the
    name that looks most like it.

    >>> all_nearest("pod32", ("m2000", "pod16", "pod64", "pod256"))
    ['pod16', 'pod64']
    """
    if not isinstance(wrong, str):
        return ()
    known = list(names)
    if (name := same(wrong, known)) is not None:
        return (name,)
    word = wrong.lower()
    if near := one_mistake_away(word, known):
        return near
    lower = {name.lower(): name for name in known}
    near = _by_number(word, lower) or _by_words(word, lower) or get_close_matches(word, lower, 1, _ALIKE)
    return [lower[name] for name in near]


def one_mistake_away(wrong: str, names: Iterable[str]) -> list[str]:
    """Return the names out of ``names`` that one mistake of a letter makes ``wrong`` of in any case, at most a few."""
    return by_likeness(wrong, [name for name in names if _one_mistake(wrong.lower(), name.lower())])[:_MOST]


def by_likeness(wrong: object, names: Iterable[str]) -> list[str]:
    """Return ``names`` sorted by likeness to ``wrong``, the most similar first; unsorted where that is no text."""
    if not isinstance(wrong, str):
        return list(names)
    matcher = SequenceMatcher(b=wrong.lower())

    def difference(name: str) -> float:
        matcher.set_seq1(name.lower())
        return -matcher.ratio()

    return sorted(names, key=difference)


def listed(names: Sequence[str], wrong: object, more: str = "") -> str:
    """Return names with commas between them for a message: of many those that look most like ``wrong``, and how many
    others there are; ``more`` says where these stand.
    """
    if len(names) <= _LISTED:
        return ", ".join(names)
    first = dict.fromkeys([*all_nearest(wrong, names), *by_likeness(wrong, names)])
    return f"{', '.join([*first][:_NEAREST])} and {len(names) - _NEAREST} more{more}"


def _one_mistake(wrong: str, right: str) -> bool:
    """Whether one letter too many, too few or wrong, or two in each other's place, make ``wrong`` of ``right``."""
    if not wrong or not right or len(wrong) == len(right) == 1:
        return False
    at = next((at for at, (one, other) in enumerate(zip(wrong, right, strict=False)) if one != other), len(right))
    at = min(at, len(wrong))
    swapped = wrong[at : at + 2] == right[at : at + 2][::-1] and wrong[at + 2 :] == right[at + 2 :]
    return swapped or wrong[at + 1 :] in (right[at:], right[at + 1 :]) or wrong[at:] == right[at + 1 :]


def _by_number(wrong: str, names: Iterable[str]) -> list[str]:
    """Return the names of the next smaller and the next larger number, of those that are ``wrong`` but for a number."""
    if len(numbers := _NUMBER.findall(wrong)) != 1:
        return []
    number = int(numbers[0][:_DIGITS])
    alike = {
        int(other[0]): name
        for name in names
        if _NUMBER.sub("#", name) == _NUMBER.sub("#", wrong) and len(other := _NUMBER.findall(name)) == 1
    }
    below, above = [other for other in alike if other <= number], [other for other in alike if other > number]
    return [alike[other] for other in (*([max(below)] if below else []), *([min(above)] if above else []))]


def _by_words(wrong: str, names: Iterable[str]) -> list[str]:
    """Return the names that have all words of ``wrong``, and more, if they are few."""
    words = {*re.split(r"[\W_]+", wrong)} - {""}
    having = [name for name in names if words and words < {*re.split(r"[\W_]+", name)}]
    return by_likeness(wrong, having) if len(having) <= _FEW else []


def expected_last(got: str, hint: str, expected: str) -> str:
    """Return a message whose hint comes before what is expected, which is long to tell."""
    return f"{got}{hint} Expected {expected}" if hint.endswith("?") else f"{got}{hint}; expected {expected}"


def did_you_mean(wrong: object, names: Iterable[str], quoted: bool = False) -> str:
    """Return ``; did you mean ...?`` with the nearest of ``names``, or nothing when none is near."""
    *others, last = [repr(name) if quoted else name for name in all_nearest(wrong, names)] or [""]
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""

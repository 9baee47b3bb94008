"""Find the known name nearest to an unknown name: a misspelling, or a synonym."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Final

from ipusim.base.foreign_words import keys_for, spelling_key

#: Minimum similarity of names for a suggestion, by difflib's measure; at 0.5, every second English word resembles some
#: key of a scenario.
_LEAST_SIMILARITY: Final = 0.55
#: Maximum number of names with the same words in a hint.
_MOST_WITH_SAME_WORDS: Final = 3
#: Maximum number of names in a hint that are a single typing mistake away, as many short names are.
_MOST_WITH_ONE_MISTAKE: Final = 5
#: Maximum number of names that a message lists in full.
_MOST_LISTED_NAMES: Final = 24
#: Number of nearest names that a message lists out of more names.
_MOST_NEAREST_NAMES: Final = 12
#: Digits read of a number in a name, as int() is slow for very many.
_DIGITS: Final = 20
_NUMBER: Final = re.compile(r"\d+")


def equal_name(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name that equals ``wrong`` apart from case and separators; None if no name does.

    A synonym of ``wrong`` counts as equal.
    """
    if not isinstance(wrong, str):
        return None
    candidates = list(names)
    spelt = {spelling_key(name): name for name in reversed(candidates)}
    return spelt.get(spelling_key(wrong)) or next((name for name in keys_for(wrong) if name in candidates), None)


def nearest(wrong: object, names: Iterable[str]) -> str | None:
    """Return the name nearest to ``wrong`` regardless of case; None if no name is near."""
    return next(iter(all_nearest(wrong, names)), None)


def all_nearest(wrong: object, names: Iterable[str]) -> Sequence[str]:
    """Return the names nearest to ``wrong`` regardless of case: all that are equally near, or an empty sequence.

    The order of preference: synonyms, names a single typing mistake away, names with the next smaller and larger
    number but otherwise equal, names that contain the words of ``wrong``, and finally the most similar name.

    >>> all_nearest("pod32", ("m2000", "pod16", "pod64", "pod256"))
    ['pod16', 'pod64']
    """
    if not isinstance(wrong, str):
        return ()
    candidates = list(names)
    if (name := equal_name(wrong, candidates)) is not None:
        return (name,)
    word = wrong.lower()
    if near := one_mistake_away(word, candidates):
        return near
    lower = {name.lower(): name for name in candidates}
    near = _by_number(word, lower) or _by_words(word, lower) or get_close_matches(word, lower, 1, _LEAST_SIMILARITY)
    return [lower[name] for name in near]


def one_mistake_away(wrong: str, names: Iterable[str]) -> list[str]:
    """Return a few names a single typing mistake away from ``wrong``, regardless of case."""
    return by_likeness(wrong, [name for name in names if _one_mistake(wrong.lower(), name.lower())])[
        :_MOST_WITH_ONE_MISTAKE
    ]


def by_likeness(wrong: object, names: Iterable[str]) -> list[str]:
    """Return ``names`` by similarity to ``wrong``, most similar first. The order stays if ``wrong`` is not text."""
    if not isinstance(wrong, str):
        return list(names)
    matcher = SequenceMatcher(b=wrong.lower())

    def difference(name: str) -> float:
        matcher.set_seq1(name.lower())
        return -matcher.ratio()

    return sorted(names, key=difference)


def list_names(names: Sequence[str], wrong: object, more: str = "") -> str:
    """Return names separated by commas, for a message.

    A long list shows the names nearest to ``wrong``, and the number of the rest. ``more`` says where to find the rest.
    """
    if len(names) <= _MOST_LISTED_NAMES:
        return ", ".join(names)
    first = dict.fromkeys([*all_nearest(wrong, names), *by_likeness(wrong, names)])
    return f"{', '.join([*first][:_MOST_NEAREST_NAMES])} and {len(names) - _MOST_NEAREST_NAMES} more{more}"


def _one_mistake(wrong: str, right: str) -> bool:
    """Whether an extra, missing, wrong or swapped letter turns ``right`` into ``wrong``."""
    if not wrong or not right or len(wrong) == len(right) == 1:
        return False
    index = next((index for index, (a, b) in enumerate(zip(wrong, right, strict=False)) if a != b), len(right))
    index = min(index, len(wrong))
    is_swap = wrong[index : index + 2] == right[index : index + 2][::-1] and wrong[index + 2 :] == right[index + 2 :]
    return is_swap or wrong[index + 1 :] in (right[index:], right[index + 1 :]) or wrong[index:] == right[index + 1 :]


def _by_number(wrong: str, names: Iterable[str]) -> list[str]:
    """Return the names with the next smaller and larger number, otherwise equal to ``wrong``."""
    if len(numbers := _NUMBER.findall(wrong)) != 1:
        return []
    number = int(numbers[0][:_DIGITS])
    name_of_number = {
        int(match[0]): name
        for name in names
        if _NUMBER.sub("#", name) == _NUMBER.sub("#", wrong) and len(match := _NUMBER.findall(name)) == 1
    }
    smaller, larger = (
        [match for match in name_of_number if match <= number],
        [match for match in name_of_number if match > number],
    )
    return [
        name_of_number[match] for match in (*([max(smaller)] if smaller else []), *([min(larger)] if larger else []))
    ]


def _by_words(wrong: str, names: Iterable[str]) -> list[str]:
    """Return names that contain the words of ``wrong`` and further words; empty if too many names do."""
    words = {*re.split(r"[\W_]+", wrong)} - {""}
    matches = [name for name in names if words and words < {*re.split(r"[\W_]+", name)}]
    return by_likeness(wrong, matches) if len(matches) <= _MOST_WITH_SAME_WORDS else []


def expected_last(problem: str, hint: str, right: str) -> str:
    """Return a message with the problem, then the hint, and last the expected values, which take most space."""
    return f"{problem}{hint} Expected {right}" if hint.endswith("?") else f"{problem}{hint}; expected {right}"


def did_you_mean(wrong: object, names: Iterable[str], quoted: bool = False) -> str:
    """Return ``; did you mean ...?`` with the nearest of ``names``; an empty text if no name is near."""
    *first, last = [repr(name) if quoted else name for name in all_nearest(wrong, names)] or [""]
    return f"; did you mean {', '.join(first)}{' or ' if first else ''}{last}?" if last else ""

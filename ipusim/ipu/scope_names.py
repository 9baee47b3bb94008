"""Short names of layers, as a scenario has them, out of the scopes that they stand in."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

#: Letters that a name in a scenario may not have, and how long it may be.
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 64
#: The number that a framework puts behind a name of its own.
_NUMBER: Final = re.compile(r"_\d+$")


def short_names(names: Sequence[str], frameworks: Collection[str] = ()) -> tuple[str, ...]:
    """Return a name for each layer, of its name with all scopes; those of the framework's own choice are left out.

    It is the innermost scope, with as many of those around it as tell it from the others. Names that stay the same
    get a number.

    >>> short_names(["FCModel/dense256/dense", "FCModel/logits/dense_1", "a/relu", "b/relu"], ["dense"])
    ('dense256', 'logits', 'a_relu', 'b_relu')
    """
    parts = _parts(names, frameworks)
    found: list[str] = []
    for own in parts:
        depths = [depth for depth in range(1, len(own)) if sum(each[-depth:] == own[-depth:] for each in parts) == 1]
        name = plain_name("_".join(own[-depths[0] :] if depths else own), "layer")
        new, number = name, 0
        while new in found:
            number += 1
            new = f"{name[: _LONGEST - 5]}_{number}"
        found.append(new)
    return tuple(found)


def plain_name(text: str, instead: str) -> str:
    """Return a text as a name that a scenario may have: ``instead``, and what is left of it, where it is none."""
    name = _OTHERS.sub("_", text).strip("_-")
    return (name if name and not name[0].isdigit() else f"{instead}{name}")[:_LONGEST]


def _parts(names: Sequence[str], frameworks: Collection[str]) -> list[list[str]]:
    """Return scopes and own name of each layer, without the latter where the framework chose it and scopes tell."""
    parts = [[part for part in name.split("/") if part] for name in names]
    scopes = [own[:-1] for own in parts]
    return [
        own[:-1] if own[:-1] and _NUMBER.sub("", own[-1]) in frameworks and scopes.count(own[:-1]) == 1 else own
        for own in parts
    ]

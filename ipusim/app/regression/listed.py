"""Fingerprints of long lists: first items as text, and hashes of blocks to locate differences.

Pins, files with recorded results of a run, contain fingerprints. A block is one of several equal parts of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

#: Hex digits of a hash.
DIGITS: Final = 16
#: Number of blocks of a list longer than its stored text.
_BLOCKS: Final = 16


@dataclass(frozen=True)
class Items:
    """List stored as fingerprint in a pin.

    Attributes:
        count: length of the list.
        text: function from an item's number to its text.
        content: function from a range of numbers to the items' bytes, equal for equal items.
    """

    count: int
    text: Callable[[int], str]
    content: Callable[[int, int], bytes]


def hashed(content: bytes) -> str:
    """Return the hash of bytes in a pin's form."""
    return sha256(content).hexdigest()[:DIGITS]


def fingerprint(items: Items, most: int) -> dict[str, Any]:
    """Return a list's fingerprint: first items as text, and hashes of its blocks."""
    size = -(-items.count // _BLOCKS) or 1
    starts = range(0, items.count, size) if items.count > most else range(1)
    size = size if items.count > most else items.count
    return {
        "count": items.count,
        "first": [items.text(number) for number in range(min(most, items.count))],
        "hashes": [hashed(items.content(start, min(start + size, items.count))) for start in starts],
    }


@dataclass(frozen=True)
class ListChange:
    """First difference of two lists.

    Attributes:
        first, last: range of items that contains the first difference; equal if the item is known.
        was, new_text: old and new text of the item; empty if unknown or missing.
    """

    first: int
    last: int
    was: str = ""
    new_text: str = ""


def first_difference(pinned: dict[str, Any], items: Items) -> ListChange | None:
    """Return the first difference of a list from a stored fingerprint; None if equal."""
    texts: Sequence[str] = pinned["first"]
    current = fingerprint(items, len(texts))
    if current == pinned:
        return None
    for number, was in enumerate(texts):
        text = items.text(number) if number < items.count else ""
        if text != was:
            return ListChange(number, number, was, text)
    count = min(pinned["count"], items.count)
    if items.count != pinned["count"] and count == len(texts):
        return ListChange(count, count, "", items.text(count) if count < items.count else "")
    if items.count != pinned["count"]:
        return ListChange(len(texts), count)
    size = -(-items.count // _BLOCKS) or 1
    part = next(
        (n for n, pair in enumerate(zip(pinned["hashes"], current["hashes"], strict=False)) if pair[0] != pair[1]), 0
    )
    return ListChange(max(part * size, len(texts)), min((part + 1) * size, items.count) - 1)

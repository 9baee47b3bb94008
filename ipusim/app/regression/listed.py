"""Fingerprints of long lists: the first items as text and hashes of blocks, which locate the first difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

#: Hex digits of a hash.
DIGITS: Final = 16
#: Blocks of a list that is longer than what is kept of it as text.
_BLOCKS: Final = 16


@dataclass(frozen=True)
class Items:
    """A list that a pin stores as a fingerprint.

    Attributes:
        count: its length.
        text: gives the text of the item of a number.
        content: gives the bytes of the items from one number up to another, which equal items have equal.
    """

    count: int
    text: Callable[[int], str]
    content: Callable[[int, int], bytes]


def hashed(content: bytes) -> str:
    """Return the hash of bytes as a pin has it."""
    return sha256(content).hexdigest()[:DIGITS]


def fingerprint(items: Items, most: int) -> dict[str, Any]:
    """Return the fingerprint of a list: the texts of its first items, and the hashes of its blocks."""
    size = -(-items.count // _BLOCKS) or 1
    starts = range(0, items.count, size) if items.count > most else range(1)
    size = size if items.count > most else items.count
    return {
        "count": items.count,
        "first": [items.text(number) for number in range(min(most, items.count))],
        "hashes": [hashed(items.content(start, min(start + size, items.count))) for start in starts],
    }


@dataclass(frozen=True)
class Where:
    """Where two lists begin to differ.

    Attributes:
        first, last: the items among which the first one that differs is; the same where it is known.
        was, now: their texts; empty where it is not known, or where a list has no such item.
    """

    first: int
    last: int
    was: str = ""
    now: str = ""


def first_difference(pinned: dict[str, Any], items: Items) -> Where | None:
    """Return where a list begins to differ from a stored fingerprint; None where it is the same."""
    texts: Sequence[str] = pinned["first"]
    now = fingerprint(items, len(texts))
    if now == pinned:
        return None
    for number, was in enumerate(texts):
        text = items.text(number) if number < items.count else ""
        if text != was:
            return Where(number, number, was, text)
    count = min(pinned["count"], items.count)
    if items.count != pinned["count"] and count == len(texts):
        return Where(count, count, "", items.text(count) if count < items.count else "")
    if items.count != pinned["count"]:
        return Where(len(texts), count)
    size = -(-items.count // _BLOCKS) or 1
    at = next((n for n, pair in enumerate(zip(pinned["hashes"], now["hashes"], strict=False)) if pair[0] != pair[1]), 0)
    return Where(max(at * size, len(texts)), min((at + 1) * size, items.count) - 1)

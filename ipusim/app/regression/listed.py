"""Fingerprint long lists: first items as text, and hashes of blocks to locate differences.

Pins, files with recorded results of a run, contain fingerprints. A block is one of several equal parts of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def hash_of(content: bytes) -> str:
    """Return the hash of bytes in a pin's form."""
    return sha256(content).hexdigest()[:DIGITS]


def fingerprint(items: Items, most: int) -> dict[str, Any]:
    """Return a list's fingerprint: the first ``most`` items as text, and hashes of blocks.

    A list of at most ``most`` items is a single block.
    """
    size = -(-items.count // _BLOCKS) or 1
    starts = range(0, items.count, size) if items.count > most else range(1)
    size = size if items.count > most else items.count
    return {
        "count": items.count,
        "first": [items.text(number) for number in range(min(most, items.count))],
        "hashes": [hash_of(items.content(start, min(start + size, items.count))) for start in starts],
    }


def first_difference(noun: str, pinned: Mapping[str, Any] | None, items: Items | None) -> str:
    """Return the first difference of a list from a stored fingerprint in words; empty if equal.

    Beyond the stored texts, only the block of the item is known.
    """
    if pinned is None or items is None:
        return f"{noun}s were {'none' if pinned is None else 'some'}, are {'none' if items is None else 'some'}"
    texts, was_count, count = pinned["first"], pinned["count"], items.count
    current = fingerprint(items, len(texts))
    if current == pinned:
        return ""
    for number, pinned_text in enumerate(texts):
        text = items.text(number) if number < count else ""
        if text != pinned_text:
            return f"{noun} {number:,} was {pinned_text or 'none'}, is {text or 'none'}"
    first, last = len(texts), min(was_count, count)
    first_text = items.text(first) if first < count else ""
    if was_count != count and first == last:
        return f"{noun} {first:,} was none, is {first_text or 'none'}"
    if was_count == count:
        size = -(-count // _BLOCKS) or 1
        pairs = enumerate(zip(pinned["hashes"], current["hashes"], strict=False))
        block = next((number for number, (old, new) in pairs if old != new), 0)
        first, last = max(block * size, first), min((block + 1) * size, count) - 1
        first_text = items.text(first)
    start_words = f", now starting with {first_text}" if first_text else ""
    counts = "" if was_count == count else f"; there were {was_count:,}, there are {count:,}"
    return f"the first {noun} that differs is one of {first:,} to {last:,}{start_words}{counts}"

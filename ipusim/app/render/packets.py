"""Many protobuf messages that differ in their numbers alone, made at once.

The library makes one message, with a mark in place of each number that differs;
here the marks are replaced for thousands of messages by a few array operations:
measured, 0.4 us for two packets with ten numbers, where the library by itself
takes 3 us. A mark is a number whose bytes occur nowhere else in the message: a
varint as wide as the largest of the numbers needs, or a fixed64. Smaller numbers
are filled up with leading zeros, which every reader takes
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.render.arrays import Integers

Bytes = npt.NDArray[np.uint8]

#: Bits of a number in each byte of a varint; the eighth says that another byte follows.
_BITS: Final = 7
_MORE: Final = 1 << _BITS
#: Bytes of the shortest mark, so that no few bytes of anything else look like it.
_SHORTEST: Final = 4
#: Set in the mark of a fixed64, so that it is told from the zeros around a small one.
_HIGH: Final = 1 << 62


def filled(
    message: Callable[[Mapping[str, int]], bytes],
    varints: Mapping[str, Integers],
    fixed: Mapping[str, Integers] | None = None,
) -> list[bytes]:
    """Return a message for each position in the columns of numbers, which have one length and are not negative.

    ``message`` gets a mark for each name, and returns a message with the marks where the numbers belong;
    a mark may stand in it several times. ``varints`` and ``fixed`` say how the field is encoded.
    """
    columns: dict[str, tuple[bytes, Bytes]] = {}
    marks: dict[str, int] = {}
    for name, values in varints.items():
        width = max(_SHORTEST, -(-int(values.max(initial=0)).bit_length() // _BITS))
        marks[name] = (1 << _BITS * (width - 1)) + len(marks) + 1
        columns[name] = _varints(np.array([marks[name]]), width).tobytes(), _varints(values, width)
    for name, values in (fixed or {}).items():
        marks[name] = _HIGH + len(marks) + 1
        little = values.astype("<u8")
        columns[name] = np.array([marks[name]], dtype="<u8").tobytes(), little.view(np.uint8).reshape(len(values), -1)
    blank = message(marks)
    count = len(next(iter(varints.values())))
    table = np.tile(np.frombuffer(blank, dtype=np.uint8), (count, 1))
    for mark, digits in columns.values():
        for position in _positions(blank, mark):
            table[:, position : position + len(mark)] = digits
    packets: list[bytes] = table.view(f"V{len(blank)}").ravel().tolist()
    return packets


def _varints(values: Integers, width: int) -> Bytes:
    """Return numbers as varints of ``width`` bytes, shape (numbers, width)."""
    digits = (values[:, np.newaxis] >> _BITS * np.arange(width) & (_MORE - 1)).astype(np.uint8)
    digits[:, :-1] |= _MORE
    return digits


def _positions(message: bytes, mark: bytes) -> Iterator[int]:
    """Yield where a mark stands in a message."""
    position = message.find(mark)
    while position >= 0:
        yield position
        position = message.find(mark, position + len(mark))

"""Encode batches of protobuf messages that differ only in numbers.

The protobuf library makes one message with a placeholder for each number. NumPy then fills the placeholders of
thousands of copies with a few array operations: 0.4 us for two packets with ten numbers, against 3 us with the library.
A placeholder's bytes occur once in the message. It is a varint as wide as the column's largest number, or a fixed64.
Smaller numbers get leading zeros, which every protobuf reader accepts
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.app.render.arrays import Integers

Bytes = npt.NDArray[np.uint8]

#: Payload bits of a varint's byte.
_BITS: Final = 7
#: Eighth bit of a varint's byte, which announces another byte.
_MORE: Final = 1 << _BITS
#: Minimum number of bytes of a placeholder, so no other part of a message equals it by chance.
_SHORTEST: Final = 4
#: Bit set in every fixed64 placeholder: without it, the zero bytes around small numbers would equal it.
_HIGH: Final = 1 << 62


def fill(
    message: Callable[[Mapping[str, int]], bytes],
    varints: Mapping[str, Integers],
    fixed64: Mapping[str, Integers] | None = None,
) -> list[bytes]:
    """Return one message for each row of the columns.

    All columns have the same length, and no number is negative.

    Args:
        message: builds the message from a placeholder for each name; a placeholder may occur several times.
        varints: columns encoded as varints.
        fixed64: columns encoded as fixed64.
    """
    columns: dict[str, tuple[bytes, Bytes]] = {}
    marks: dict[str, int] = {}
    for name, values in varints.items():
        width = max(_SHORTEST, -(-int(values.max(initial=0)).bit_length() // _BITS))
        marks[name] = (1 << _BITS * (width - 1)) + len(marks) + 1
        columns[name] = _varints(np.array([marks[name]]), width).tobytes(), _varints(values, width)
    for name, values in (fixed64 or {}).items():
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
    """Yield the offsets of a placeholder in a message."""
    position = message.find(mark)
    while position >= 0:
        yield position
        position = message.find(mark, position + len(mark))

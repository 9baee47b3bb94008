"""Define a collective as data: elements sent between participants, round by round.

Algorithms of this package make such values; :mod:`~ipusim.hardware.collectives.cost` prices them, and
:mod:`~ipusim.hardware.collectives.run` carries them out on arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.hardware.system import System

Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]


class Transfer(NamedTuple):
    """Elements sent from one IPU to another in a round.

    Attributes:
        source: logical IPU that sends.
        target: logical IPU that receives.
        start: first element in the source's buffer.
        stop: element after the last; an empty transfer has ``stop`` equal to ``start``.
        reduce: whether the target adds the elements to its buffer instead of overwriting.
        shift: offset of the elements in the target's buffer, relative to ``start``.
    """

    source: int
    target: int
    start: int
    stop: int
    reduce: bool = False
    shift: int = 0

    def __str__(self) -> str:
        """Return the transfer as ``0→2 +[5:8]``: source, target, ``+`` for a sum, and elements.

        ``@`` and the start in the target's buffer follow if the elements are shifted.
        """
        position = f"@{self.start + self.shift}" if self.shift else ""
        return f"{self.source}→{self.target} {'+' if self.reduce else ''}[{self.start}:{self.stop}]{position}"


Round = tuple[Transfer, ...]


@dataclass(frozen=True)
class Collective:
    """A collective: the rounds after which every participant holds a result.

    Transfers of a round read the buffers as they were before the round. A buffer of ``elements`` is cut into a chunk
    per participant, with ceil(elements / participants) elements; the last chunks may be shorter or empty. Chunk k
    belongs to participant k.

    Attributes:
        operation: computed result. ``all_reduce``: the sum of whole buffers, at every participant; ``reduce_scatter``:
            sum of the participant's chunk; ``all_gather``: every participant's chunk, at every participant;
            ``all_to_all``: chunk k of every participant, at participant k.
        algorithm: the algorithm's name, for people.
        participants: logical IPUs with a buffer, in chunk order.
        elements: elements per whole buffer.
        itemsize: bytes per element.
        rounds: transfers, round by round.

    Raises DeviceError for empty, duplicate or negative participants, QuantityError for a negative number of elements or
    an itemsize below 1.
    """

    operation: Operation
    algorithm: str
    participants: tuple[int, ...]
    elements: int
    itemsize: int
    rounds: tuple[Round, ...] = ()

    def __post_init__(self) -> None:
        """Refuse impossible buffers."""
        if not self.participants or len(set(self.participants)) < self.count or min(self.participants) < 0:
            raise DeviceError(f"{self.name}: expected one or more different IPUs from 0 up, got {self.participants}")
        if self.elements < 0:
            raise QuantityError(f"{self.name}: expected a number of elements from 0 up, got {self.elements}")
        if self.itemsize < 1:
            raise QuantityError(f"{self.name}: expected elements of 1 byte or more, got {self.itemsize}")

    def __str__(self) -> str:
        """Return the collective as text: a headline, then a line per round."""
        head = (
            f"{self.name} of {self.elements} x {self.itemsize} bytes over IPUs {' '.join(map(str, self.participants))}"
        )
        rounds = (f"round {number}: {', '.join(map(str, transfer))}" for number, transfer in enumerate(self.rounds))
        return "\n".join((head, *rounds))

    @property
    def name(self) -> str:
        """Operation and algorithm: ``all_reduce (ring)``."""
        return f"{self.operation} ({self.algorithm})"

    @property
    def count(self) -> int:
        """Number of participants."""
        return len(self.participants)

    @property
    def chunk(self) -> int:
        """Elements of the longest chunk: ceil(elements / participants)."""
        return -(-self.elements // self.count)

    def chunk_of(self, rank: int) -> slice:
        """Return the elements of a whole buffer that belong to participant ``rank``."""
        return slice(min(self.chunk * rank, self.elements), min(self.chunk * (rank + 1), self.elements))

    def with_rounds(self, rounds: Iterable[Round]) -> Collective:
        """Return this collective with the given rounds, or without rounds if the buffer is empty."""
        return replace(self, rounds=tuple(rounds) if self.elements else ())

    def message_bytes(self, number: int) -> int:
        """Return the bytes per message of round ``number``.

        Replicas of a graph run the same program, so all messages of a round have the length of the longest; shorter
        messages are padded.
        """
        return self.itemsize * max((transfer.stop - transfer.start for transfer in self.rounds[number]), default=0)


def chunks(start: int, stop: int, count: int) -> list[slice]:
    """Return the elements from ``start`` to ``stop`` in ``count`` chunks, equally long except the last.

    >>> chunks(0, 7, 3)
    [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    """
    longest = -(-(stop - start) // count)
    bounds = [min(start + longest * number, stop) for number in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def side_by_side(parts: Sequence[Sequence[Round]]) -> list[Round]:
    """Return merged rounds in which the rounds of every part run simultaneously."""
    return [tuple(transfer for part_round in rounds for transfer in part_round) for rounds in zip(*parts, strict=True)]


def in_physical_order(system: System, participants: Sequence[int]) -> list[int]:
    """Return logical IPUs in the order of physical positions, rung by rung and pod by pod.

    Raises DeviceError for an IPU outside the device.
    """
    for ipu in participants:
        if not 0 <= ipu < system.count:
            raise DeviceError(f"{system.name}: no IPU {ipu} in a device of {system.count} IPUs")
    return sorted(participants, key=lambda ipu: system.ipus[ipu])

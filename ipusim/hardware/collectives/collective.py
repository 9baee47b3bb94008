"""A collective as data: the elements that participants send one another, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.hardware.system import System

Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]


class Transfer(NamedTuple):
    """Elements that one IPU sends to another in one round.

    Attributes:
        source, target: logical IPUs.
        start, stop: the elements of the source's buffer that travel; none when equal.
        reduce: whether the target adds them to what it holds, or replaces that.
        shift: how much further on in its own buffer the target puts them.
    """

    source: int
    target: int
    start: int
    stop: int
    reduce: bool = False
    shift: int = 0

    def __str__(self) -> str:
        """Return the transfer as ``0→2 +[5:8]``: from, to, ``+`` when it adds, elements, ``@`` position if another."""
        position = f"@{self.start + self.shift}" if self.shift else ""
        return f"{self.source}→{self.target} {'+' if self.reduce else ''}[{self.start}:{self.stop}]{position}"


Round = tuple[Transfer, ...]


@dataclass(frozen=True)
class Collective:
    """One collective: the rounds after which every participant holds its result.

    All transfers of a round read what was there before the round. A buffer of
    ``elements`` is cut into one chunk per participant, each of
    ceil(elements / participants) but for the last ones, which may be shorter or
    empty; chunk k belongs to participant k.

    Attributes:
        operation: what it computes. ``all_reduce``: the sum of all whole buffers, to all;
            ``reduce_scatter``: to each the sum of its own chunk; ``all_gather``: each one's
            own chunk to all; ``all_to_all``: chunk k of each to participant k.
        algorithm: how, for people.
        participants: logical IPUs, each with a buffer of its own, in the order of their chunks.
        elements: elements of a whole buffer.
        itemsize: bytes of an element.
        rounds: transfers, round by round.

    Raises DeviceError for participants that are none, twice there or negative,
    QuantityError for a negative number of elements or an itemsize below 1.
    """

    operation: Operation
    algorithm: str
    participants: tuple[int, ...]
    elements: int
    itemsize: int
    rounds: tuple[Round, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no buffers can be."""
        if not self.participants or len(set(self.participants)) < self.count or min(self.participants) < 0:
            raise DeviceError(f"{self.name}: expected one or more different IPUs from 0 up, got {self.participants}")
        if self.elements < 0:
            raise QuantityError(f"{self.name}: expected a number of elements from 0 up, got {self.elements}")
        if self.itemsize < 1:
            raise QuantityError(f"{self.name}: expected elements of 1 byte or more, got {self.itemsize}")

    def __str__(self) -> str:
        """Return the collective as text: what it is, then a line for each round."""
        head = (
            f"{self.name} of {self.elements} x {self.itemsize} bytes over IPUs {' '.join(map(str, self.participants))}"
        )
        rounds = (f"round {number}: {', '.join(map(str, transfer))}" for number, transfer in enumerate(self.rounds))
        return "\n".join((head, *rounds))

    @property
    def name(self) -> str:
        """The operation and its algorithm: ``all_reduce (ring)``."""
        return f"{self.operation} ({self.algorithm})"

    @property
    def count(self) -> int:
        """The number of participants."""
        return len(self.participants)

    @property
    def chunk(self) -> int:
        """Elements of the longest chunk: ceil(elements / participants)."""
        return -(-self.elements // self.count)

    def chunk_of(self, rank: int) -> slice:
        """Return the elements of a whole buffer that belong to participant number ``rank``."""
        return slice(min(self.chunk * rank, self.elements), min(self.chunk * (rank + 1), self.elements))

    def with_rounds(self, rounds: Iterable[Round]) -> Collective:
        """Return this collective with these rounds, or with none when there are no elements to move."""
        return replace(self, rounds=tuple(rounds) if self.elements else ())

    def message_bytes(self, number: int) -> int:
        """Return the bytes of each message of round ``number``.

        The replicas of a graph run one and the same program, so every message of a
        round is as long as the longest, and shorter ones travel padded.
        """
        return self.itemsize * max((transfer.stop - transfer.start for transfer in self.rounds[number]), default=0)


def chunks(start: int, stop: int, count: int) -> list[slice]:
    """Return the elements from ``start`` to ``stop`` in ``count`` chunks, all but the last ones equally long.

    >>> chunks(0, 7, 3)
    [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    """
    longest = -(-(stop - start) // count)
    bounds = [min(start + longest * number, stop) for number in range(count + 1)]
    return [slice(here, there) for here, there in pairwise(bounds)]


def side_by_side(parts: Sequence[Sequence[Round]]) -> list[Round]:
    """Return rounds in which equally many rounds of each part happen at the same time."""
    return [tuple(transfer for round_of in together for transfer in round_of) for together in zip(*parts, strict=True)]


def as_they_lie(system: System, participants: Sequence[int]) -> list[int]:
    """Return logical IPUs in the order of their positions in the machine, rung by rung and pod by pod.

    Raises DeviceError for an IPU that the device does not have.
    """
    for ipu in participants:
        if not 0 <= ipu < system.count:
            raise DeviceError(f"{system.name}: no IPU {ipu} in a device of {system.count} IPUs")
    return sorted(participants, key=lambda ipu: system.ipus[ipu])

"""The Timeline: read-only integer columns of spans, and what they are spans of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from ipusim.errors import TimelineError

Column = npt.NDArray[np.int64]

#: Value of ``ipu`` for a span that occupies every IPU at once (a synchronisation, a merged copy): those of
#: its replica, or of all replicas where that is NONE.
ALL_IPUS: Final = -1
#: Value of a column that does not apply to a span.
NONE: Final = -1


class SpanKind(IntEnum):
    """What an IPU, a link direction or the host does during a span."""

    FORWARD = 0
    BACKWARD = 1
    RECOMPUTE = 2
    WEIGHT_UPDATE = 3
    #: All IPUs meet before a merged inter-IPU copy: sync, overhead and hop latency.
    SYNC = 4
    #: The merged inter-IPU copy itself, from its first byte to the last link's last byte.
    EXCHANGE = 5
    #: One link direction carries its share of a merged copy (on a link's track, not an IPU's).
    LINK = 6
    #: Host to IPU copy, on the IPU that holds the first stage.
    INFEED = 7
    #: IPU to host copy, on the IPU that holds the last stage.
    OUTFEED = 8
    #: An IPU waits because the host is behind (infeed empty, or outfeed full).
    HOST_WAIT = 9
    #: An IPU has finished its part of a time-step and waits for slower ones.
    SYNC_WAIT = 10
    #: The host prepares one infeed element or takes one outfeed element (on the host's track).
    HOST = 11
    #: All replicas sum up their gradients before the weight update: sync, overhead, and every round of the collectives.
    ALL_REDUCE = 12
    #: An IPU loads from the Streaming Memory beside it.
    REMOTE_LOAD = 13
    #: An IPU stores to the Streaming Memory beside it.
    REMOTE_STORE = 14
    #: Host to IPU copy on the I/O tiles, beside the passes of the same IPU; the same from IPU to host; and
    #: a wait of the I/O tiles because the host is behind.
    OVERLAPPED_INFEED = 15
    OVERLAPPED_OUTFEED = 16
    OVERLAPPED_WAIT = 17
    #: An IPU and its likes in the other replicas put together what each stores a part of: sync and every round.
    ALL_GATHER = 18


#: Kinds on the I/O tiles of an IPU, which work beside its other tiles.
IO_TILE_KINDS: Final = (SpanKind.OVERLAPPED_INFEED, SpanKind.OVERLAPPED_OUTFEED, SpanKind.OVERLAPPED_WAIT)
#: Kinds that are a stage's own arithmetic.
COMPUTE_KINDS: Final = (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.RECOMPUTE, SpanKind.WEIGHT_UPDATE)


class Span(NamedTuple):
    """One row of a Timeline. Times are cycles of the tile clock; ``cause`` is a row number.

    ``cause`` is the span whose end released this one, or NONE for the first. ``ipu`` is the
    logical IPU of the device, ALL_IPUS for all at once, and NONE (the same value) on link and
    host tracks, where ``link`` says which track it is: an index into ``info.links`` for LINK
    spans, and for HOST spans 0 for the infeed and 1 for the outfeed. ``replica`` is NONE for
    what all replicas do together, and on link tracks.
    ``micro_batch`` counts from 0 in each execution of the pipeline, ``time_step`` too;
    ``execution`` counts from 0 over the whole run.
    """

    start: int
    end: int
    kind: int
    ipu: int
    stage: int
    micro_batch: int
    time_step: int
    execution: int
    link: int
    bytes: int
    cause: int
    replica: int


@dataclass(frozen=True)
class TimelineInfo:
    """What a Timeline's columns refer to.

    Attributes:
        name: of the program.
        system: name of the system, such as ``c2_server``.
        clock_hz: tile clock, cycles per second.
        ipus: physical number of each logical IPU of the device.
        selection_order: ZIGZAG, SNAKE or HOOF, as used.
        schedule: name of the schedule.
        training: whether the pipeline trains.
        stages: stage names.
        mapping: logical IPU of each stage in replica 0; in replica r, r x shards further on.
        count: gradient accumulation count.
        overlap: overlap length V, the slots of a full time-step.
        time_steps: emitted time-steps of one execution.
        executions: executions of the pipeline in the run.
        executions_per_step: the repeat count.
        micro_batch_size: samples in a micro-batch.
        links: name of each link direction that carries traffic, such as ``0→1 rung``.
        replicas: replicas of the pipeline, each on equally many consecutive logical IPUs.
        positions: the place in the pipeline of each stage; concurrent ones share theirs. Empty: each its own.
    """

    name: str
    system: str
    clock_hz: int
    ipus: tuple[int, ...]
    selection_order: str
    schedule: str
    training: bool
    stages: tuple[str, ...]
    mapping: tuple[int, ...]
    count: int
    overlap: int
    time_steps: int
    executions: int
    executions_per_step: int
    micro_batch_size: int
    links: tuple[str, ...]
    replicas: int = 1
    positions: tuple[int, ...] = ()

    @property
    def position_of(self) -> tuple[int, ...]:
        """The place in the pipeline of each stage."""
        return self.positions or tuple(range(len(self.stages)))

    @property
    def shards(self) -> int:
        """The number of IPUs of one replica."""
        return len(self.ipus) // self.replicas

    @property
    def stages_of_ipu(self) -> dict[int, tuple[int, ...]]:
        """The stages on each logical IPU that holds any, of all replicas, in rising order."""
        held: dict[int, tuple[int, ...]] = {}
        for replica in range(self.replicas):
            for stage, ipu in enumerate(self.mapping):
                place = replica * self.shards + ipu
                held[place] = (*held.get(place, ()), stage)
        return dict(sorted(held.items()))


class Timeline:
    """Spans as columns, sorted by start (equal starts in the order in which they ended); read-only.

    Every field of :class:`Span` is an int64 array attribute of that name. Two
    Timelines are equal when their info and all their columns are.
    """

    start: Column
    end: Column
    kind: Column
    ipu: Column
    stage: Column
    micro_batch: Column
    time_step: Column
    execution: Column
    link: Column
    bytes: Column
    cause: Column
    replica: Column

    def __init__(self, info: TimelineInfo, columns: npt.NDArray[np.int64]) -> None:
        """Take ``columns`` of shape (spans, 12) in the order of Span's fields, already sorted."""
        self.info = info
        # A view of an array in column order is taken as it is: the recorder hands its own over.
        self._table = np.asfortranarray(columns, dtype=np.int64).reshape(-1, len(Span._fields), order="A").view()
        self._table.flags.writeable = False
        for index, name in enumerate(Span._fields):
            setattr(self, name, self._table[:, index])

    def __len__(self) -> int:
        """The number of spans."""
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        """Compare info and every column."""
        if not isinstance(other, Timeline):
            return NotImplemented
        return self.info == other.info and np.array_equal(self._table, other._table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Name the run, its spans and its length."""
        return f"<Timeline of {self.info.name}: {len(self)} spans, {self.makespan_cycles} cycles>"

    def __iter__(self) -> Iterator[Span]:
        """Yield each row as a Span."""
        return map(Span._make, self._table.tolist())

    @property
    def makespan_cycles(self) -> int:
        """The end of the last span, in cycles; 0 for an empty Timeline."""
        return int(self.end.max()) if len(self) else 0

    def rows(self, *kinds: SpanKind) -> npt.NDArray[np.int64]:
        """Return the row numbers of all spans of these kinds, in order."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    def on_each_ipu(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return ``rows``, those of all IPUs once for each that they occupy, and the logical IPU of each."""
        shared = self.ipu[rows] == ALL_IPUS
        replica = self.replica[rows]
        whole = replica == NONE
        repeats = np.where(shared, np.where(whole, len(self.info.ipus), self.info.shards), 1)
        first = np.where(shared, np.where(whole, 0, replica * self.info.shards), self.ipu[rows])
        nth = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return np.repeat(rows, repeats), np.repeat(first, repeats) + nth

    def save(self, file: Path | BinaryIO) -> None:
        """Write the Timeline as an npz archive; equal Timelines give equal bytes."""
        header = np.frombuffer(json.dumps(asdict(self.info), ensure_ascii=False).encode(), dtype=np.uint8)
        columns: dict[str, Any] = {name: np.ascontiguousarray(getattr(self, name)) for name in Span._fields}
        np.savez_compressed(file, info=header, **columns)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> Timeline:
        """Read back what :meth:`save` wrote.

        Raises TimelineError for a file that is no Timeline, OSError for one that cannot be read.
        """
        try:
            with np.load(file) as archive:
                loaded = json.loads(archive["info"].tobytes().decode())
                fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in loaded.items()}
                timeline = cls(TimelineInfo(**fields), np.stack([archive[name] for name in Span._fields], axis=1))
        except (ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            name = file if isinstance(file, Path) else getattr(file, "name", "the file")
            raise TimelineError(f"{name}: expected a Timeline as ipusim saves it, found something else") from error
        timeline._check_ranges(file)
        return timeline

    def _check_ranges(self, file: Path | BinaryIO) -> None:
        """Refuse columns that point outside the run; raises TimelineError."""
        info = self.info
        ends = {"ipu": len(info.ipus), "stage": len(info.stages), "execution": info.executions, "cause": len(self)}
        ends["replica"] = info.replicas
        wrong = [name for name, end in ends.items() if ((c := getattr(self, name)) < NONE).any() or (c >= end).any()]
        if not len(self) or wrong or (self.start > self.end).any() or info.clock_hz < 1:
            name = file if isinstance(file, Path) else getattr(file, "name", "the file")
            what = f"columns that point outside the run: {', '.join(wrong)}" if wrong else "no run in it"
            raise TimelineError(f"{name}: expected a Timeline as ipusim saves it, found {what}")

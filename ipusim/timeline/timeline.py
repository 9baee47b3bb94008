"""The Timeline: read-only integer columns of spans, and what they are spans of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

from ipusim.errors import FileError, TimelineError
from ipusim.files import array_names, open_file, read_arrays
from ipusim.pipeline.plan import Sync, order_and_sync
from ipusim.timeline.host_track import HostTrack
from ipusim.timeline.kinds import IPU_KINDS, SpanKind, of_kinds
from ipusim.timeline.repeats import Blocks, Repeat, read_repeats
from ipusim.units import format_bytes

Column = npt.NDArray[np.int64]

#: Value of a column that does not apply to a span.
NONE: Final = -1
#: Value of ``ipu`` for a span that occupies every IPU at once (a synchronisation, a merged copy): those of
#: its replica, or of all replicas where that is NONE. A file has NONE there, as its kind tells: it lies on IPUs.
ALL_IPUS: Final = -2

#: Latest cycle that a run may reach, and most bytes of a copy; what no count of a run, or its clock in Hz, exceeds;
#: most IPUs, stages, links or letters of a name: bounds on what a file may say.
_LATEST: Final = 2**62
_MOST: Final = 2**53
_LONGEST: Final = 4096
#: Most spans of a run: one of more would take more memory than a run may.
MOST_SPANS: Final = 5_000_000
#: Most bytes of the text that a file has of what its columns refer to; and of all arrays in it, unpacked.
_MOST_INFO_BYTES: Final = 1 << 23
_MOST_BYTES: Final = MOST_SPANS * 12 * 8 + _MOST_INFO_BYTES
#: The array of a file that holds the blocks of a run which repeats itself.
_REPEATS: Final = "repeats"
#: Characters of the names of a stage's layers that are all told.
_LAYERS_TEXT: Final = 400
#: Characters of a wrong value that a message shows.
_SHOWN: Final = 60


class Span(NamedTuple):
    """One row of a Timeline. Times are cycles of the tile clock; ``cause`` is a row number.

    ``cause`` is the span whose end released this one, or NONE for the first. ``ipu`` is the
    logical IPU of the device, ALL_IPUS for all at once, and NONE on link and
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
        time_steps: emitted time-steps of one execution; 1 in point-to-point, where its pipeline is numbered as one.
        executions: executions of the pipeline in the run.
        executions_per_step: the repeat count.
        micro_batch_size: samples in a micro-batch.
        links: name of each link direction that carries traffic, such as ``0→1 rung``.
        replicas: replicas of the pipeline, each on equally many consecutive logical IPUs.
        positions: the place in the pipeline of each stage; concurrent ones share theirs. Empty: each its own.
        hosts: hosts that run the same, each on a device of its own.
        title: what the run is of, in a few words; empty where no one says it. It is for people to read: infos that
            differ in it alone are equal.
        sync: how IPUs wait for each other; files that do not say it are of lock-step.
        layers: names of the layers of each stage, in one text; empty where stages have none.
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
    sync: Sync = Sync.LOCK_STEP
    layers: tuple[str, ...] = ()
    hosts: int = 1
    title: str = field(default="", compare=False)

    @property
    def order_and_sync(self) -> str:
        """The schedule with its sync mode, as titles have them: ``1f1b in point-to-point``."""
        return order_and_sync(self.schedule, self.sync)

    @property
    def has_time_steps(self) -> bool:
        """Whether IPUs meet after time-steps."""
        return self.sync.meets

    @property
    def position_of(self) -> tuple[int, ...]:
        """The place in the pipeline of each stage."""
        return self.positions or tuple(range(len(self.stages)))

    @property
    def layers_of(self) -> tuple[str, ...]:
        """The names of each stage's layers, in one text; an empty one where it has none."""
        return self.layers or ("",) * len(self.stages)

    @property
    def shards(self) -> int:
        """The number of IPUs of one replica."""
        return len(self.ipus) // self.replicas

    @property
    def ipu_rows(self) -> range:
        """The logical IPUs from the top row down, as every picture, page, trace file and table lists them.

        By number, which is replica by replica; the physical IPU that each is on orders nothing.
        """
        return range(len(self.ipus))

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
    Timelines are equal when their info, all their columns and their blocks are.

    A run that repeats itself is recorded in part: ``repeats`` are blocks of rows that happen several times. Rows are
    those of the first copy of each block, and rows behind a block have the times and numbers that they have behind its
    last copy. What sums rows up counts each :attr:`weights` times, and what follows causes from row to row does so on
    the :meth:`contiguous` Timeline.

    Attributes:
        info: what the columns refer to.
        repeats: blocks of rows that happen several times, sorted by their first row, outer ones first.
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

    def __init__(self, info: TimelineInfo, columns: npt.NDArray[np.int64], repeats: Sequence[Repeat] = ()) -> None:
        """Take ``columns`` of shape (rows, 12) in the order of Span's fields, already sorted."""
        self.info = info
        self.repeats = tuple(repeats)
        # A view of an array in column order is taken as it is: the recorder hands its own over.
        self._table = np.asfortranarray(columns, dtype=np.int64).reshape(-1, len(Span._fields), order="A").view()
        self._table.flags.writeable = False
        for index, name in enumerate(Span._fields):
            setattr(self, name, self._table[:, index])

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        """Compare info, every column and the blocks."""
        if not isinstance(other, Timeline):
            return NotImplemented
        alike = (self.info, self.repeats) == (other.info, other.repeats)
        return alike and np.array_equal(self._table, other._table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Name the run, its spans and its length."""
        return f"<Timeline of {self.info.name}: {self.spans_in_all} spans, {self.makespan_cycles} cycles>"

    def __iter__(self) -> Iterator[Span]:
        """Yield each row as a Span."""
        return map(Span._make, self._table.tolist())

    @property
    def makespan_cycles(self) -> int:
        """The end of the last span, in cycles; 0 for an empty Timeline."""
        return int(self.end.max()) if len(self) else 0

    def about(self, info: TimelineInfo) -> Timeline:
        """Return the same spans with another info."""
        return Timeline(info, self._table, self.repeats)

    @cached_property
    def _blocks(self) -> Blocks:
        return Blocks(self.repeats, len(self))

    @property
    def spans_in_all(self) -> int:
        """The number of spans of the run, those of all copies of blocks included."""
        return self._blocks.spans

    @cached_property
    def weights(self) -> Column:
        """How many spans each row stands for, shape (rows,): 1 outside of blocks."""
        return self._blocks.weights()

    def contiguous(self) -> Timeline:
        """Return the run with each block once: a shorter run of its own, in which causes end when their spans begin."""
        if not self.repeats:
            return self
        added = self._blocks.added(self.execution)
        table = self._moved(added, -1)
        _, micro_batches, time_steps, executions = added
        info = replace(
            self.info,
            count=self.info.count - int(micro_batches.max()),
            time_steps=self.info.time_steps - int(time_steps.max()),
            executions=self.info.executions - int(executions.max()),
        )
        return Timeline(info, table)

    def stretched(self, info: TimelineInfo, repeats: Sequence[Repeat]) -> Timeline:
        """Return the run of ``info`` in which blocks of this one happen several times; :meth:`contiguous` undoes it.

        Args:
            info: of the longer run.
            repeats: blocks of this Timeline's rows, which has none yet.
        """
        table = self._moved(Blocks(repeats, len(self)).added(self.execution), 1)
        return Timeline(info, table, repeats)

    def _moved(self, added: tuple[Column, Column, Column, Column], sign: int) -> npt.NDArray[np.int64]:
        """Return the columns with cycles, micro-batches, time-steps and executions added to their numbers."""
        cycles, micro_batches, time_steps, executions = added
        table = self._table.copy(order="F")
        for names, more in (
            (("start", "end"), cycles),
            (("micro_batch",), micro_batches),
            (("time_step",), time_steps),
            (("execution",), executions),
        ):
            for name in names:
                column = table[:, Span._fields.index(name)]
                column += np.where(column == NONE, 0, sign * more)
        return table

    def expanded(self) -> Timeline:
        """Return the run with every copy of every block as rows of their own."""
        return self if not self.repeats else self._of_copies(None)

    def spans(self, begin: int, end: int) -> Timeline:
        """Return the spans that touch a window of cycles, every copy of blocks there as rows of their own.

        Args:
            begin, end: of the window, in cycles from the start of the run.

        Returns:
            A Timeline of the same info; a span's cause is NONE where that lies outside of the window.
        """
        return self._of_copies((begin, end))

    def _of_copies(self, window: tuple[int, int] | None) -> Timeline:
        copies = self._blocks.written_out(self.start, self.end, window)
        table = np.empty((len(copies.row), len(Span._fields)), dtype=np.int64, order="F")
        added = {
            "start": copies.cycles,
            "end": copies.cycles,
            "micro_batch": copies.micro_batches,
            "time_step": copies.time_steps,
            "execution": copies.executions,
        }
        for index, name in enumerate(Span._fields):
            column = getattr(self, name)[copies.row]
            table[:, index] = np.where(column == NONE, NONE, column + added[name]) if name in added else column
        cause = self._blocks.causes(self.cause)[copies.row]
        cause = np.where(cause == NONE, NONE, cause + copies.causes)
        if window is not None:
            start, end = table[:, Span._fields.index("start")], table[:, Span._fields.index("end")]
            kept = np.flatnonzero((start < window[1]) & (end > window[0]))
            table, cause, position = table[kept], cause[kept], copies.position[kept]
            at = np.minimum(np.searchsorted(position, cause), max(len(position) - 1, 0))
            cause = np.where((cause != NONE) & (position[at] == cause), at, NONE) if len(position) else cause
        table[:, Span._fields.index("cause")] = cause
        return Timeline(self.info, table)

    def rows(self, *kinds: SpanKind) -> npt.NDArray[np.int64]:
        """Return the row numbers of all spans of these kinds, in order."""
        return np.flatnonzero(of_kinds(self.kind, kinds))

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
        """Write the Timeline as an npz archive; equal Timelines of one title give equal bytes."""
        header = np.frombuffer(json.dumps(asdict(self.info), ensure_ascii=False).encode(), dtype=np.uint8)
        columns: dict[str, Any] = {name: np.ascontiguousarray(getattr(self, name)) for name in Span._fields}
        columns["ipu"] = np.where(self.ipu == ALL_IPUS, NONE, self.ipu)
        if self.repeats:
            columns[_REPEATS] = np.array(self.repeats, dtype=np.int64)
        np.savez_compressed(file, info=header, **columns)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> Timeline:
        """Read back what :meth:`save` wrote.

        Raises TimelineError for a file that is no Timeline, OSError for one that cannot be read.
        """
        try:
            with open_file(file) if isinstance(file, Path) else nullcontext(file) as opened:
                repeats = [_REPEATS] if _REPEATS in array_names(opened) else []
                arrays = read_arrays(opened, ("info", *Span._fields, *repeats), _MOST_BYTES)
            columns = _read_columns(arrays)
            blocks = read_repeats(arrays[_REPEATS], len(columns)) if repeats else ()
            found = cls(_read_info(arrays["info"]), columns, blocks)
            found._check_ranges()
        except FileError as error:
            name = file if isinstance(file, Path) else getattr(file, "name", "the file")
            raise TimelineError(
                f"{name}: expected a Timeline as ipusim saves it, found something else: {error}"
            ) from error
        shared = (found.ipu == NONE) & of_kinds(found.kind, IPU_KINDS)
        table = found._table.copy(order="F")
        table[shared, Span._fields.index("ipu")] = ALL_IPUS
        return cls(found.info, table, found.repeats)

    def _check_ranges(self) -> None:
        """Refuse what no run records, which a reader would stumble over; raises FileError."""
        info = self.info
        ends = {
            "start": _LATEST,
            "end": _LATEST,
            "kind": len(SpanKind),
            "ipu": len(info.ipus),
            "stage": len(info.stages),
            "micro_batch": info.count,
            "time_step": info.time_steps + 1,  # the weight update has the number behind the last
            "execution": info.executions,
            "link": max(len(info.links), len(HostTrack)),
            "bytes": _LATEST,
            "cause": len(self),
            "replica": info.replicas,
        }
        lowest = {"start": 0, "end": 0, "kind": 0}
        wrong = [
            name
            for name, end in ends.items()
            if ((column := getattr(self, name)) < lowest.get(name, NONE)).any() or (column >= end).any()
        ]
        if wrong:
            raise FileError(f"columns that point outside the run: {', '.join(wrong)}")
        if (self.start > self.end).any() or (np.diff(self.start) < 0).any():
            raise FileError("spans that end before they start, or are out of order")
        if not info.executions <= self.spans_in_all:
            raise FileError(f"{self.spans_in_all} spans of {info.executions} executions")


def _read_columns(arrays: dict[str, npt.NDArray[Any]]) -> Column:
    """Return the columns as one table; raises FileError unless they are whole numbers of one length."""
    shape = arrays["start"].shape
    for name in Span._fields:
        if arrays[name].dtype != np.int64 or arrays[name].shape != shape or len(shape) != 1:
            raise FileError(f"column {name} is {arrays[name].dtype} of {arrays[name].shape}, start has {shape}")
    return np.stack([arrays[name] for name in Span._fields], axis=1)


def _read_info(text: npt.NDArray[Any]) -> TimelineInfo:
    """Return what the JSON text says; raises FileError for other JSON, and for a run that cannot be."""
    if text.nbytes > _MOST_INFO_BYTES:
        raise FileError(f"info of {format_bytes(text.nbytes)}, expected at most {format_bytes(_MOST_INFO_BYTES)}")
    try:
        loaded = json.loads(text.tobytes())
    except (ValueError, RecursionError) as error:
        raise FileError(f"info is not JSON: {error}") from error
    required = {each.name for each in fields(TimelineInfo) if each.default is MISSING}
    kinds = get_type_hints(TimelineInfo)
    if not isinstance(loaded, dict) or not required <= loaded.keys() <= kinds.keys():
        raise FileError(f"info has not the keys {', '.join(kinds)}")
    for name, value in loaded.items():
        if not _FITS[kinds[name]](value):
            raise FileError(f"info has {name} {str(value)[:_SHOWN]}")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in loaded.items()}
    given["sync"] = Sync(given.get("sync", Sync.LOCK_STEP))
    info = TimelineInfo(**given)
    if not (
        info.ipus
        and info.stages
        and len(info.ipus) % info.replicas == 0
        and len(info.mapping) == len(info.position_of) == len(info.stages) > max(info.position_of)
        and max(info.mapping) < info.shards
        and len(info.layers) in (0, len(info.stages))
    ):
        raise FileError("info of IPUs, stages, mapping and replicas that do not go together")
    return info


def layers_text(names: Sequence[str]) -> str:
    """Return names of layers as one text; of very many the first ones, the last, and how many there are."""
    text = ", ".join(names)
    if len(text) <= _LAYERS_TEXT:
        return text
    first = text[: text.rindex(", ", 0, _LAYERS_TEXT)]
    return f"{first}, ... {names[-1]} ({len(names)} layers)"


def ends_text(layers: str) -> str:
    """Return the first and the last of the layers that a text as :func:`layers_text` returns it names.

    >>> ends_text("flatten, dense256, dense128, dense64"), ends_text("flatten"), ends_text("")
    ('flatten to dense64', 'flatten', '')
    """
    first, *others = layers.split(", ")
    if not others:
        return first
    last = others[-1].removeprefix("... ").partition(" (")[0]
    return f"{first} to {last}"


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST


#: Whether a value, as JSON has it, is one of a field of that type.
_FITS: Final[dict[Any, Callable[[Any], bool]]] = {
    int: lambda value: _is_count(value) and value > 0,
    str: _is_text,
    bool: lambda value: isinstance(value, bool),
    Sync: lambda value: value in [*Sync],
    tuple[int, ...]: lambda value: isinstance(value, list) and len(value) <= _LONGEST and all(map(_is_count, value)),
    tuple[str, ...]: lambda value: isinstance(value, list) and len(value) <= _LONGEST and all(map(_is_text, value)),
}

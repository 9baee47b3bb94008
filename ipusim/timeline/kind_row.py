"""Define the properties of a span kind: a row of the table in :mod:`ipusim.timeline.kinds`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ipusim.base.looks import Look
from ipusim.pipeline.ops import Pass
from ipusim.timeline.time_parts import Idle


class Track(Enum):
    """Track of spans: on or beside an IPU, on a link or a host."""

    IPU = "IPU"
    IO_TILES = "I/O tiles"
    SEND = "sends"
    LINK = "link"
    HOST = "host"

    @property
    def is_on_ipu(self) -> bool:
        """Whether spans occupy an IPU; other spans run ahead of or behind the pipeline."""
        return self in (Track.IPU, Track.IO_TILES)


class Part(Enum):
    """Part of an execution to which a span belongs; a part ends with its last span. Waits belong to no part.

    The time between session runs belongs to no execution.
    """

    PIPELINE = "pipeline"
    UPDATE = "weight update"
    WAIT = "wait"
    BETWEEN_RUNS = "between session runs"


@dataclass(frozen=True)
class Use:
    """Category of an IPU's cycles, possibly shared between kinds.

    Attributes:
        name: prefix of the ``_cycles`` key in ``summary.json``.
        column: heading in the table of IPUs; empty without a separate column.
        rank: rank of the column from the left; equal ranks keep the order of the kinds' numbers.
        sync_modes: modes that show the column even if its cycles are 0: modes in which IPUs wait for each other after
            every time-step ("time_steps"), the other modes ("no_time_steps"), both or neither.
        is_arithmetic: whether the cycles are a stage's arithmetic.
        idle: cause of the IPU's idleness; None for arithmetic. None also for waits: their cause is the awaited
            activity.
    """

    name: str
    column: str = ""
    rank: int = 9
    sync_modes: tuple[Literal["time_steps", "no_time_steps"], ...] = ()
    is_arithmetic: bool = False
    idle: Idle | None = None


@dataclass(frozen=True)
class Row:
    """The properties of a kind.

    Attributes:
        number: number of the kind, kept in saved Timelines.
        doc: description of the span's activity.
        name: name of slices in trace files. Perfetto colours a slice by its name without digits: the names of passes
            are chosen so that hues on a track differ clearly. Plain ``F1.3`` and ``B1.3`` would both be pink.
        category: category of slices in trace files.
        look: colours and pattern in pictures; None for kinds outside the rows of IPUs.
        use: category of the cycles; None for kinds beside an IPU's row, or on another track.
        track: track of the spans.
        part: part of an execution that ends with the span.
        names_micro_batch: whether a slice's name ends with the micro-batch.
        of_pass: pass of a stage over a micro-batch; a slice's name begins with the pass's letter.

    Raises ValueError for a use without computation and without a cause of idleness, unless the part is a wait.
    """

    number: int
    doc: str
    name: str
    category: str
    look: Look | None = None
    use: Use | None = None
    track: Track = Track.IPU
    part: Part = Part.PIPELINE
    names_micro_batch: bool = False
    of_pass: Pass | None = None

    def __post_init__(self) -> None:
        """Refuse a use without arithmetic and without a cause of idleness, unless the span is a wait."""
        is_complete = self.use is None or self.use.is_arithmetic or self.use.idle is not None or self.part is Part.WAIT
        if not is_complete:
            raise ValueError(f"{self.name}: expected a use that computes, or why an IPU is idle in it")

    @property
    def is_pass(self) -> bool:
        """Whether the kind is a pass of a stage over a micro-batch."""
        return self.of_pass is not None

    @property
    def fills_slot(self) -> bool:
        """Whether the span fills a slot of the time-step, like every pass except recomputations."""
        return self.is_pass and self.of_pass is not Pass.RECOMPUTE

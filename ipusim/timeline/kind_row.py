"""The properties of a kind of spans: a row of the table in :mod:`ipusim.timeline.kinds`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ipusim.base.looks import Look
from ipusim.pipeline.ops import Pass
from ipusim.timeline.time_parts import Idle


class Track(Enum):
    """Where spans lie: on an IPU, beside one (its I/O tiles, its sends), on a link direction, on a host's queue."""

    IPU = "IPU"
    IO_TILES = "I/O tiles"
    SEND = "sends"
    LINK = "link"
    HOST = "host"

    @property
    def of_ipu(self) -> bool:
        """Whether spans of the kind occupy an IPU; others run ahead of the pipeline and behind it."""
        return self in (Track.IPU, Track.IO_TILES)


class Part(Enum):
    """The part of an execution that ends with a span: its pipeline, its weight update, or neither: a wait ends none.

    What is between two session runs is no part of either's executions.
    """

    PIPELINE = "pipeline"
    UPDATE = "weight update"
    WAIT = "wait"
    BETWEEN = "between session runs"


@dataclass(frozen=True)
class Use:
    """The use that an IPU's cycles are counted as; kinds may share one.

    Attributes:
        name: in ``summary.json``, with ``_cycles`` behind it.
        column: in the table of IPUs; empty without a column of its own.
        rank: of that column, from the left; those of one rank stand in the order of their kinds' numbers.
        always: whether the column is there where no IPU has any such cycles: in sync modes in which IPUs meet after
            each time-step ("meets"), in the others ("alone"), in all of them, or in none.
        computes: whether that is a stage's own arithmetic.
        idle: why the IPU is idle meanwhile; None where it computes, and for waits, which are what they wait for.
    """

    name: str
    column: str = ""
    rank: int = 9
    always: tuple[Literal["meets", "alone"], ...] = ()
    computes: bool = False
    idle: Idle | None = None


@dataclass(frozen=True)
class Row:
    """The properties of a kind.

    Attributes:
        number: of the kind, which saved Timelines hold.
        doc: what happens in such a span.
        name: of its slices in trace files. Perfetto colours a slice by its name without digits: those of passes
            have hues far from each other and from what stands beside them on a track; ``F1.3`` and
            ``B1.3`` by themselves would both be pink.
        category: of its slices in trace files.
        look: in pictures; None for what lies on no IPU's row.
        use: what its cycles are counted as; None for what is not counted, as it is no IPU's or lies beside the rest.
        track: where it lies.
        part: what of an execution its end ends.
        numbered: whether a slice's name has the micro-batch behind it.
        of_pass: the pass of a stage over a micro-batch that it is; a slice's name begins with the pass's letter.

    Raises ValueError for a use that does not say why an IPU that does not compute is idle.
    """

    number: int
    doc: str
    name: str
    category: str
    look: Look | None = None
    use: Use | None = None
    track: Track = Track.IPU
    part: Part = Part.PIPELINE
    numbered: bool = False
    of_pass: Pass | None = None

    def __post_init__(self) -> None:
        """Refuse a use that neither computes nor waits and does not say why the IPU is idle meanwhile."""
        known = self.use is None or self.use.computes or self.use.idle is not None or self.part is Part.WAIT
        if not known:
            raise ValueError(f"{self.name}: expected a use that computes, or why an IPU is idle in it")

    @property
    def is_pass(self) -> bool:
        """Whether it is a pass of a stage over a micro-batch."""
        return self.of_pass is not None

    @property
    def fills_slot(self) -> bool:
        """Whether it fills a slot of its time-step, as all passes but recomputations do."""
        return self.is_pass and self.of_pass is not Pass.RECOMPUTE

"""Define a span (a row of a Timeline, such as a pass) and its description, known in advance."""

from __future__ import annotations

from typing import Final, NamedTuple

from ipusim.timeline.kinds import SpanKind

#: Value of a column that does not apply to a span.
NONE: Final = -1
#: Value of ``ipu`` for a span on every IPU of its replica, or of the device if the replica is NONE: a synchronisation
#: or a merged copy. A file stores NONE instead, as the kind implies the IPUs.
ALL_IPUS: Final = -2


class Span(NamedTuple):
    """A row of a Timeline; inapplicable fields are NONE, -1.

    Attributes:
        start: first cycle, counted from the beginning of the run.
        end: cycle after the last.
        kind: number of a :class:`SpanKind`.
        ipu: logical IPU of the device, ALL_IPUS for every IPU, NONE on tracks of links and of the host.
        stage: number of the stage.
        micro_batch: number from 0 within an execution of the pipeline.
        time_step: number from 0 within an execution of the pipeline.
        execution: number from 0 within the run.
        link: index into ``info.links``, or number of the host's track: a ``HostTrack``, such as 0 infeed and 1 outfeed.
        bytes: bytes moved.
        cause: row of the span whose end released this span, NONE for the first span.
        replica: number of the replica; NONE for joint activities of replicas, and on tracks of links.

    Example:
        >>> from ipusim.api import Request, SpanKind, assemble, execute
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> timeline = execute(assemble(Request.from_dict(options))).timeline
        >>> span = next(span for span in timeline if span.kind == SpanKind.BACKWARD)
        >>> span.start, span.end, span.ipu, span.stage, span.micro_batch, span.cause
        (2000, 4000, 1, 1, 0, 2)
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


class Description(NamedTuple):
    """Common fields of spans that differ only in time; a subset of Span's fields."""

    kind: SpanKind
    ipu: int = NONE
    stage: int = NONE
    micro_batch: int = NONE
    link: int = NONE
    bytes: int = 0
    replica: int = 0

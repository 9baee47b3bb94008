"""A span: one row of a Timeline, and its description, which is known before it happens."""

from __future__ import annotations

from typing import Final, NamedTuple

from ipusim.timeline.kinds import SpanKind

#: Value of a column that does not apply to a span.
NONE: Final = -1
#: Value of ``ipu`` for a span that occupies every IPU at once (a synchronisation, a merged copy): those of
#: its replica, or of all replicas where that is NONE. A file has NONE there, as its kind tells: it lies on IPUs.
ALL_IPUS: Final = -2


class Span(NamedTuple):
    """One row of a Timeline; what does not apply is NONE, -1.

    Attributes:
        start, end: cycles of the tile clock from the beginning of the run.
        kind: number of a :class:`SpanKind`.
        ipu: logical IPU of the device, ALL_IPUS for all at once, NONE on tracks of links and of the host.
        stage: number of the stage.
        micro_batch, time_step: from 0 in each execution of the pipeline.
        execution: from 0 over the whole run.
        link: which track it is of the links, an index into ``info.links``, or of the host: 0 infeed, 1 outfeed.
        bytes: what is moved.
        cause: row of the span whose end released this one, NONE for the first.
        replica: NONE for what all replicas do together, and on tracks of links.

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
    """What spans have in common that differ in time only; the fields are those of Span."""

    kind: SpanKind
    ipu: int = NONE
    stage: int = NONE
    micro_batch: int = NONE
    link: int = NONE
    bytes: int = 0
    replica: int = 0

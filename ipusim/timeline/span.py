"""A span: one row of a Timeline, and what is known of it before it happens."""

from __future__ import annotations

from typing import Final, NamedTuple

from ipusim.timeline.kinds import SpanKind

#: Value of a column that does not apply to a span.
NONE: Final = -1
#: Value of ``ipu`` for a span that occupies every IPU at once (a synchronisation, a merged copy): those of
#: its replica, or of all replicas where that is NONE. A file has NONE there, as its kind tells: it lies on IPUs.
ALL_IPUS: Final = -2


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


class Description(NamedTuple):
    """What spans have in common that differ in time only; the fields are those of Span."""

    kind: SpanKind
    ipu: int = NONE
    stage: int = NONE
    micro_batch: int = NONE
    link: int = NONE
    bytes: int = 0
    replica: int = 0

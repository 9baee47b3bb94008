"""Timelines: integer columns of spans, recorded by the machine.

As ``timelines`` of :mod:`ipusim.api` this room offers the table of span kinds, and the meaning of a Timeline's columns
and tracks.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.timeline.file import check_apart, read_repeats
    from ipusim.timeline.host_track import HostTrack
    from ipusim.timeline.kind_row import Part, Track
    from ipusim.timeline.kinds import (
        COMPUTE_KINDS,
        IO_TILE_KINDS,
        IPU_KINDS,
        LOOKS,
        PASS_OF_KIND,
        PASSES,
        SEND_KINDS,
        USES,
        by_number,
        kinds_with,
        of_kinds,
    )
    from ipusim.timeline.repeats import Repeat
    from ipusim.timeline.time_parts import Idle, TimePart
    from ipusim.timeline.timeline import ALL_IPUS, MOST_SPANS, NONE, TimelineInfo, ends_text, layers_text
else:
    __getattr__, __dir__ = lazy(__name__)

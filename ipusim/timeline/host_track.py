"""Number the host's tracks in a Timeline: values of ``link`` in HOST spans."""

from __future__ import annotations

from enum import IntEnum


class HostTrack(IntEnum):
    """A kind of host work; saved Timelines hold the numbers. A new kind takes the next number."""

    INFEED = 0
    OUTFEED = 1
    TABLES = 2
    NETWORK = 3
    VARIABLES = 4
    OUTSIDE = 5
    #: Feeds of the second copies of stages.
    SECOND_INFEED = 6
    SECOND_OUTFEED = 7

    @property
    def word(self) -> str:
        """Name in trace files."""
        return self.name.lower()

    def of_copy(self, copy: int) -> HostTrack:
        """Return the track of this feed for a copy of the stages."""
        return HostTrack[f"SECOND_{self.name}"] if copy else self

    @property
    def is_permanent(self) -> bool:
        """Whether trace files show the track even if idle."""
        return self in (HostTrack.INFEED, HostTrack.OUTFEED)

    @property
    def of_all_replicas(self) -> bool:
        """Whether replicas share the track, which a Timeline then lists with replica 0."""
        return self in (HostTrack.NETWORK, HostTrack.VARIABLES)

"""The host's tracks in a Timeline: values of ``link`` in HOST spans."""

from __future__ import annotations

from enum import IntEnum


class HostTrack(IntEnum):
    """A kind of the host's work. A new one takes the next number, as saved Timelines hold the numbers."""

    INFEED = 0
    OUTFEED = 1
    TABLES = 2
    NETWORK = 3
    VARIABLES = 4
    OUTSIDE = 5
    #: The feeds of the second copies of stages.
    SECOND_INFEED = 6
    SECOND_OUTFEED = 7

    @property
    def word(self) -> str:
        """Its name in trace files."""
        return self.name.lower()

    def of_copy(self, copy: int) -> HostTrack:
        """Return the track of this feed for a copy of the stages."""
        return HostTrack[f"SECOND_{self.name}"] if copy else self

    @property
    def always(self) -> bool:
        """Whether trace files show it also where it is idle."""
        return self in (HostTrack.INFEED, HostTrack.OUTFEED)

    @property
    def of_all_replicas(self) -> bool:
        """Whether there is one for all replicas, which a Timeline has with the first, and not one for each."""
        return self in (HostTrack.NETWORK, HostTrack.VARIABLES)

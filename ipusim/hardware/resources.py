"""The resources of a run: IPUs, link directions, host ports, hosts, their network, Streaming Memories."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """Something that works on one thing after the other, or on several at once.

    Attributes:
        kind: such as ``IPU`` or ``link``.
        name: of one of that kind: the number of a logical IPU, of a machine, or of a replica, a link's label.
        track: of hosts and their ports, what they work on, as a Timeline numbers it (HostTrack).
    """

    kind: str
    name: int | str = 0
    track: int | None = None

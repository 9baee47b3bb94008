"""Resources of a run: IPUs, link directions, host ports, hosts, their network, Streaming Memories."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """A resource that executes tasks sequentially, or several simultaneously.

    Attributes:
        kind: kind of the resource, such as ``IPU`` or ``link``.
        name: number of a logical IPU, machine or replica, or a link's label.
        track: task of a host or port, numbered like a Timeline's HostTrack.
    """

    kind: str
    name: int | str = 0
    track: int | None = None

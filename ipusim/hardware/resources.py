"""Name the resources of a run: IPUs, link directions, host ports, hosts, their network, Streaming Memories."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """A resource that carries out work of a simulated run; disturbances change a resource's speed.

    Attributes:
        kind: kind of the resource, such as ``IPU`` or ``link``.
        name: number of a logical IPU, IPU-Machine or replica, or a link's label.
        track: kind of work of a host or host port, such as infeeds, as a
            :class:`~ipusim.timeline.host_track.HostTrack` value; None for other resources.
    """

    kind: str
    name: int | str = 0
    track: int | None = None

"""Name the resources that share a piece of work, such as IPUs, link directions and host connections.

The clock looks up speeds and delays under these names (:class:`ipusim.hardware.resources.Resource`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ipusim.hardware.links import LinkDirection
from ipusim.hardware.resources import Resource
from ipusim.timeline.host_track import HostTrack

#: Resources that work together on a piece of work; the slowest resource determines its end.
Workers = tuple[Resource, ...]
#: Network between hosts.
NETWORK: Final[Workers] = (Resource("network"),)
#: The host's program, between session runs.
HOST_PROGRAM: Final[Workers] = (Resource("host program"),)


def ipus(numbers: Iterable[int]) -> Workers:
    """Return logical IPUs of the device."""
    return tuple(Resource("IPU", number) for number in numbers)


@lru_cache(maxsize=4096)  # called for every link in every round
def link(direction: LinkDirection) -> Workers:
    """Return a link direction."""
    return links([direction.label])


def links(labels: Iterable[str]) -> Workers:
    """Return link directions by label, such as ``0→1 rung``."""
    return tuple(Resource("link", label) for label in labels)


def host_ports(track: HostTrack, replicas: Iterable[int]) -> Workers:
    """Return the connections between the host and the IPUs of ``replicas``."""
    return tuple(Resource("host port", replica, track) for replica in replicas)


def hosts(track: HostTrack, replicas: Iterable[int] = (0,)) -> Workers:
    """Return the host's resources on a track, one per replica; a resource shared by replicas belongs to replica 0."""
    return tuple(Resource("host", replica, track) for replica in replicas)


def streaming_memory(machine: int) -> Workers:
    """Return the Streaming Memory of an IPU-Machine, by the machine's number."""
    return (Resource("Streaming Memory", machine),)

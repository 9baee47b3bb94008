"""What works in a run: IPUs, link directions, host ports, hosts, their network, Streaming Memories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ipusim.timeline.host_track import HostTrack


class Resource(NamedTuple):
    """Something that works on one thing after the other, or on several at once.

    Attributes:
        kind: such as ``IPU`` or ``link``.
        name: of one of that kind: the number of a logical IPU, of a machine, or of a replica, a link's label.
        track: of hosts and their ports, what they work on.
    """

    kind: str
    name: int | str = 0
    track: HostTrack | None = None


#: Those who do a piece of work together: it ends when the slowest of them has done it.
Workers = tuple[Resource, ...]
#: The network between hosts.
NETWORK: Final[Workers] = (Resource("network"),)
#: The host's program, between two session runs.
HOST_PROGRAM: Final[Workers] = (Resource("host program"),)


def ipus(numbers: Iterable[int]) -> Workers:
    """Return logical IPUs of the device."""
    return tuple(Resource("IPU", number) for number in numbers)


def links(labels: Iterable[str]) -> Workers:
    """Return link directions by their labels, such as ``0→1 rung``."""
    return tuple(Resource("link", label) for label in labels)


def host_ports(track: HostTrack, replicas: Iterable[int]) -> Workers:
    """Return the way between the IPUs of each of ``replicas`` and the host."""
    return tuple(Resource("host port", replica, track) for replica in replicas)


def hosts(track: HostTrack, replicas: Iterable[int] = (0,)) -> Workers:
    """Return what the host does on a track for each of ``replicas``; of all of them together with the first."""
    return tuple(Resource("host", replica, track) for replica in replicas)


def streaming_memory(machine: int) -> Workers:
    """Return the Streaming Memory of a machine."""
    return (Resource("Streaming Memory", machine),)

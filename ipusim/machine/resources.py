"""The resources that do a piece of work together, by kind and name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ipusim.hardware.links import LinkDirection
from ipusim.hardware.resources import Resource
from ipusim.timeline.host_track import HostTrack

#: Resources that do a piece of work together: it ends when the slowest of them has done it.
Workers = tuple[Resource, ...]
#: The network between hosts.
NETWORK: Final[Workers] = (Resource("network"),)
#: The host's program, between two session runs.
HOST_PROGRAM: Final[Workers] = (Resource("host program"),)


def ipus(numbers: Iterable[int]) -> Workers:
    """Return logical IPUs of the device."""
    return tuple(Resource("IPU", number) for number in numbers)


@lru_cache(maxsize=4096)  # asked for of every link in every round
def link(direction: LinkDirection) -> Workers:
    """Return one link direction."""
    return links([direction.label])


def links(labels: Iterable[str]) -> Workers:
    """Return link directions by their labels, such as ``0→1 rung``."""
    return tuple(Resource("link", label) for label in labels)


def host_ports(track: HostTrack, replicas: Iterable[int]) -> Workers:
    """Return the way between the IPUs of each of ``replicas`` and the host."""
    return tuple(Resource("host port", replica, track) for replica in replicas)


def hosts(track: HostTrack, replicas: Iterable[int] = (0,)) -> Workers:
    """Return the host's resource on a track for each of ``replicas``; a joint one is the first replica's."""
    return tuple(Resource("host", replica, track) for replica in replicas)


def streaming_memory(machine: int) -> Workers:
    """Return the Streaming Memory of a machine."""
    return (Resource("Streaming Memory", machine),)

"""What works in a run: IPUs, link directions, host ports, hosts, their network, Streaming Memories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ipusim.base.errors import DeviceError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_numbers

#: The names of a system's resources of each kind.
Resources = Mapping[str, Collection[int | str]]


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

    def check(self, resources: Resources) -> None:
        """Raise DeviceError where ``resources`` have no such one."""
        if self.kind not in resources:
            expected = f"expected a resource out of {', '.join(sorted(resources))}, got {self.kind!r}"
            raise DeviceError(expected + did_you_mean(self.kind, resources))
        names = resources[self.kind]
        if self.name not in names:
            known = f"numbers {format_numbers(len(names))}" if isinstance(names, range) else ", ".join(map(str, names))
            raise DeviceError(f"expected a resource of the kind {self.kind!r} out of {known}, got {self.name!r}")

"""What works in a run: IPUs, link directions, host ports, hosts, their network, Streaming Memories."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from ipusim.base.errors import DeviceError
from ipusim.base.near_names import did_you_mean
from ipusim.base.units import format_numbers

if TYPE_CHECKING:
    from ipusim.hardware.system import System


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

    def check(self, system: System) -> None:
        """Raise DeviceError where ``system`` has no such resource."""
        kinds = {"IPU", "link", "host port", "host", "network", "host program", "Streaming Memory"}
        if self.kind not in kinds:
            expected = f"expected a resource out of {', '.join(sorted(kinds))}, got {self.kind!r}"
            raise DeviceError(expected + did_you_mean(self.kind, kinds))
        names = _names(self.kind, system)
        if self.name not in names:
            known = f"numbers {format_numbers(len(names))}" if isinstance(names, range) else ", ".join(map(str, names))
            raise DeviceError(f"expected a resource of the kind {self.kind!r} out of {known}, got {self.name!r}")


def _names(kind: str, system: System) -> Collection[int | str]:
    """Return the names of a device's resources of a kind."""
    if kind == "link":
        devices = [system] if system.joined is None else [system, system.joined]
        pairs = ((device.topology, pair) for device in devices for pair in product(device.ipus, repeat=2))
        return sorted({direction.label for topology, pair in pairs for direction in topology.route(*pair)})
    if kind == "Streaming Memory":
        return sorted({system.streaming_memory_of(ipu) for ipu in range(system.count)})
    counts = {"IPU": system.count, "host port": system.replicas, "host": system.replicas}
    return range(counts.get(kind, 1))

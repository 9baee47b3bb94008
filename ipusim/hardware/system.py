"""Define a System: the IPUs that run a program, their positions, and the cost of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.hardware.copies import NOTHING_FIXED, CopyCost, FixedParts, LinkLoad, bytes_by_direction, nominal_sync_ns
from ipusim.hardware.disturbances import Disturbance, dead_cables, problems_of
from ipusim.hardware.formulas import Cycles, join, total, whole
from ipusim.hardware.links import Channel
from ipusim.hardware.orders import physical_ipus
from ipusim.hardware.placed import Placement
from ipusim.hardware.pods import POD_IPUS
from ipusim.hardware.rounding import duration_cycles, transfer_cycles
from ipusim.hardware.topology import Route, Topology

#: Frameworks with a separate rate for host code.
FRAMEWORKS: Final = ("popart", "tensorflow1", "tensorflow2", "pytorch")
#: Frameworks whose programs PopART compiles.
ON_POPART: Final = ("popart", "pytorch")
#: Bytes of a merged copy, by (source, target) logical IPU.
Traffic = Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class System(Placement):
    """A device of a machine, with IPUs in a selection order.

    Attributes:
        name: name of the machine.
        ipu: generation of the IPUs, with the clock in use.
        ipus: physical numbers of the logical IPUs in the machine.
        selection_order: ZIGZAG, SNAKE or HOOF.
        order_reason: reason for the order, as a sentence.
        topology: the device's IPU-Links, and GW-Links between several pods.
        host: the host's rates.
        rates: rates that price passes and communication between IPUs.
        free: whether sync, links, host and weight updates cost nothing; updates with given cycles keep these cycles.
        replicas: replicas of the program, on consecutive logical IPUs.
        streaming: Streaming Memory per four physical IPUs; None without remote buffers.
        io_tiles: tiles per IPU reserved for host copies; ``ipu`` excludes the tiles.
        hosts: hosts that train together, with equal devices.
        joined: device of all hosts' IPUs, host by host, if gradients are summed over links; None if hosts sum them.
        framework: framework whose host code runs between session runs, one of :data:`FRAMEWORKS`; None for no host
            code.
        optimizer_update_interval: number of session runs after which the program sends its optimizer's values again.
            0 means never; None means 1 with a framework.
        optimizer_values: number of values that a PyTorch program sends for each variable; None for the default.
        disturbances: deviations from the rates, set by :meth:`disturbed`.

    Raises:
        DeviceError: if ``ipus`` differ from ``topology``'s IPUs, or the replicas do not divide the IPUs.

    Example:
        >>> from ipusim.api import hardware
        >>> system = hardware.build_system("m2000", mapping=(0, 1, 2, 3))
        >>> system.ipu.name, system.ipus, system.selection_order
        ('GC200', (0, 1, 3, 2), 'SNAKE')
    """

    joined: System | None = None
    disturbances: tuple[Disturbance, ...] = ()

    @property
    def undisturbed(self) -> System:
        """The same system without disturbances; every cable works."""
        if not self.disturbances:
            return self
        return replace(self, topology=replace(self.topology, dead=frozenset()), disturbances=())

    def disturbed(self, disturbances: Sequence[Disturbance]) -> System:
        """Return the same system with disturbances; cables that are dead from the start leave the topology.

        Args:
            disturbances: the complete set of disturbances.

        Returns:
            The system.

        Raises:
            DeviceError: for the first disturbance impossible on this system.
        """
        for number, key, text in problems_of(disturbances, self):
            raise DeviceError(f"disturbance {number}: {key}: {text}")
        topology = self.topology.drop(dead) if (dead := dead_cables(disturbances, self)) else self.topology
        return replace(self, topology=topology, disturbances=tuple(disturbances))

    def __str__(self) -> str:
        """Return the system as a single line."""
        numbers = " ".join(map(str, self.ipus))
        clock = f"{self.clock_hz / 1e9:g} GHz"
        return (
            f"{self.name}: {self.count} x {self.ipu.name} at {clock}, selection order {self.selection_order}: {numbers}"
        )

    @property
    def clock_hz(self) -> int:
        """Tile clock."""
        return self.ipu.clock_hz

    @property
    def shards(self) -> int:
        """Number of IPUs per replica."""
        return self.count // self.replicas

    @property
    def learners(self) -> int:
        """Number of replicas on all hosts; these replicas share a weight update."""
        return self.replicas * self.hosts

    @property
    def pods(self) -> int:
        """Number of pods that the device spans; 1 if IPU-Links join the whole device."""
        return -(-self.count // POD_IPUS)

    @property
    def sync_cycles(self) -> int:
        """Cycles to synchronise the device's IPUs; 0 for a single IPU.

        The cycles are the sum of the sync within an IPU, the signal among the IPUs, and the skew between arrivals.
        """
        if self.count == 1 or self.free:
            return 0
        nominal = self._duration(nominal_sync_ns(self.rates, self.count, self.pods))
        return Cycles(total, nominal, self.ipu.internal_sync_cycles, Cycles(whole, self.rates.sync_skew_cycles))

    @property
    def exchanging(self) -> FixedParts:
        """Fixed parts of a copy between IPUs, without sync and latency."""
        if self.count == 1 or self.free:
            return NOTHING_FIXED
        rates = self.rates
        return FixedParts(
            pre_copy_cycles=Cycles(whole, rates.pre_copy_cycles),
            exchange_cycles=self._duration(rates.exchange_ns(self.count)),
            post_copy_cycles=Cycles(whole, rates.post_copy_cycles),
        )

    def framework_cycles(self, nanoseconds: Fraction) -> int:
        """Return the cycles of a framework's host work between session runs.

        Args:
            nanoseconds: duration of the host work.

        Returns:
            Cycles of the tile clock; 0 without a framework.
        """
        return 0 if self.framework is None else self._duration(nanoseconds)

    @property
    def host_sync_cycles(self) -> int:
        """Synchronisation cycles between an IPU and the host."""
        return self._duration(self.host.sync_ns)

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from one logical IPU to another.

        Args:
            source: logical IPU that sends.
            target: logical IPU that receives.

        Returns:
            The route, in physical IPU numbers.

        Raises:
            DeviceError: for an IPU outside the device.
        """
        for ipu in (source, target):
            if not 0 <= ipu < self.count:
                raise DeviceError(f"{self.name}: no IPU {ipu} in a device of {self.count} IPUs")
        return self.topology.route(self.ipus[source], self.ipus[target])

    def merged_copy(self, traffic: Traffic) -> CopyCost:
        """Return the cost of a merged inter-IPU copy.

        Args:
            traffic: bytes by (source, target) logical IPU; entries of 0 bytes do not count.

        Returns:
            Parts of the copy's time; only the sync if no bytes move.

        Raises:
            DeviceError: for a copy from an IPU to itself, or an IPU outside the device.
            QuantityError: for a negative number of bytes.
        """
        routed: list[tuple[Route, int]] = []
        for (source, target), byte_count in traffic.items():
            if source == target:
                raise DeviceError(f"{self.name}: an inter-IPU copy must leave its IPU, got one from {source} to itself")
            if byte_count < 0:
                raise QuantityError(
                    f"{self.name}: expected bytes from 0 up from {source} to {target}, got {byte_count}"
                )
            route = self.route(source, target)
            if byte_count:
                routed.append((route, byte_count))
        if not routed:
            return CopyCost(FixedParts(self.sync_cycles), ())
        # Equal computations are made once: routes over the same channels have equal latency, and equal bytes on links
        # of a kind take equal cycles.
        routes_by_channels = {tuple(direction.channel for direction in route): route for route, _ in routed}
        latency_ns = max(
            sum(direction.latency_ns(self.rates) for direction in route) for route in routes_by_channels.values()
        )
        cycles: dict[tuple[Channel, int], int] = {}
        links = []
        for direction, byte_count in bytes_by_direction(routed):
            key = direction.channel, byte_count
            if key not in cycles:
                cycles[key] = self.transfer_cycles(byte_count, direction.bytes_per_s(self.rates))
            links.append(LinkLoad(direction, byte_count, cycles[key]))
        fixed_parts = self.exchanging._replace(
            sync_cycles=self.sync_cycles, latency_cycles=self._duration(Fraction(latency_ns))
        )
        return CopyCost(fixed_parts, tuple(links))

    def infeed_cycles(self, byte_count: int) -> int:
        """Return an IPU's cycles to read from the host's buffer.

        Args:
            byte_count: number of bytes.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.infeed_bytes_per_s)

    def outfeed_cycles(self, byte_count: int) -> int:
        """Return an IPU's cycles to write to the host's buffer.

        Args:
            byte_count: number of bytes.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.outfeed_bytes_per_s)

    def host_fill_cycles(self, byte_count: int) -> int:
        """Return the host's cycles to write infeed bytes into the buffer.

        Args:
            byte_count: number of bytes.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.host_fill_bytes_per_s)

    def host_data_cycles(self, byte_count: int) -> int:
        """Return the host's cycles of sample production, shared by replicas.

        Args:
            byte_count: bytes of the samples.

        Returns:
            Cycles of the tile clock; 0 with an unlimited data rate, and on the free system.
        """
        rate = self.host.data_rate_bytes_per_s
        return 0 if rate is None else self.transfer_cycles(byte_count, rate)

    def host_compute_cycles(self, calls: int, operations: Fraction | int) -> int:
        """Return the cycles of floating-point operations on the host.

        Args:
            calls: number of library calls.
            operations: total operations of the calls.

        Returns:
            Cycles of the tile clock.
        """
        start = self._duration(calls * self.host.operation_ns)
        return join(start, self.transfer_cycles(operations, self.host.operations_per_s))

    def host_drain_cycles(self, byte_count: int) -> int:
        """Return the host's cycles to read outfeed bytes from the buffer.

        Args:
            byte_count: number of bytes.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.host_drain_bytes_per_s)

    def without_io_tiles(self) -> System:
        """Return the same device with I/O tiles turned into computing tiles."""
        return replace(self, ipu=self.ipu.without_tiles(-self.io_tiles), io_tiles=0)

    def reordered(self, order: str) -> System:
        """Return the same device with the IPUs in another selection order.

        Args:
            order: ZIGZAG, SNAKE or HOOF.

        Returns:
            The device, with another mapping from logical to physical IPUs. Disturbances name logical IPUs, so a
            disturbed cable is another physical cable.

        Raises:
            DeviceError: for an unknown order, or an order in which no cable joins the IPUs of a disturbed cable.
        """
        device = replace(
            self.undisturbed,
            ipus=physical_ipus(self.topology.ipus, order, self.shards),
            selection_order=order,
            order_reason=f"{order} was asked for.",
        )
        return device.disturbed(self.disturbances)

    def replica(self, number: int) -> System:
        """Return a replica's part of the device, as a separate device.

        Routes are the same as in the whole device. A replica is a single IPU, a ladder of adjacent rungs (pairs of
        linked IPUs), or a whole pod, which is a closed loop. So shortest paths stay inside the replica, except around
        dead cables.

        Args:
            number: number of the replica, from 0.

        Returns:
            A device with a single replica.
        """
        if self.replicas == 1:
            return self
        ipus = self.ipus[number * self.shards : (number + 1) * self.shards]
        # A whole pod is a closed loop; any smaller part is a ladder.
        looped = self.shards == POD_IPUS
        around = self.topology if self.topology.dead else None
        return replace(
            self,
            ipus=ipus,
            topology=Topology(min(ipus), self.shards, looped, self.topology.rung, around=around),
            replicas=1,
            disturbances=(),
        )

    def transfer_cycles(self, byte_count: int | Fraction, bytes_per_s: Fraction) -> int:
        """Return the cycles of a transfer at a rate.

        Args:
            byte_count: number of bytes.
            bytes_per_s: the rate.

        Returns:
            Cycles of the tile clock, rounded up; 0 on the free system.
        """
        cycles = transfer_cycles(byte_count, bytes_per_s, self.clock_hz)
        return 0 if self.free else cycles

    def _duration(self, nanoseconds: Fraction) -> int:
        return 0 if self.free else duration_cycles(nanoseconds, self.clock_hz)

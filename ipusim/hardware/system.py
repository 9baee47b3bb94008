"""A System: the IPUs that a program runs on, where each sits, and what moving bytes among them costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.hardware.copies import NOTHING_FIXED, CopyCost, FixedParts, LinkLoad, bytes_by_direction, nominal_sync_ns
from ipusim.hardware.disturbances import Disturbance, dead_cables, problems_of
from ipusim.hardware.formulas import Cycles, joined, total, whole
from ipusim.hardware.links import Channel
from ipusim.hardware.orders import laid_out
from ipusim.hardware.placed import OPTIMIZER_INTERVALS, Placed
from ipusim.hardware.pods import POD_IPUS
from ipusim.hardware.rounding import duration_cycles, transfer_cycles
from ipusim.hardware.topology import Route, Topology

#: Frameworks whose host code has a rate of its own.
FRAMEWORKS: Final = tuple(OPTIMIZER_INTERVALS)
#: Those whose programs PopART compiles.
ON_POPART: Final = ("popart", "pytorch")
#: Bytes of one merged copy, summed by (source, target) logical IPU.
Traffic = Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class System(Placed):
    """One device of a machine, its IPUs in a selection order.

    Attributes:
        name: name of the machine.
        ipu: generation of its IPUs, with the clock in use.
        ipus: physical number in the machine of each logical IPU.
        selection_order: ZIGZAG, SNAKE or HOOF.
        order_reason: why that order, as a sentence.
        topology: the device's IPU-Links, and GW-Links when it has several pods.
        host: the host's rates.
        rates: what prices passes, and what the IPUs do together.
        free: whether sync, links, host and weight updates counted from layers cost nothing; given cycles hold.
        replicas: replicas of the program, each on consecutive logical IPUs.
        streaming: the Streaming Memory of every four physical IPUs, where remote buffers are enabled; else None.
        io_tiles: tiles of each IPU that are set aside for host copies; ``ipu`` is without them.
        hosts: hosts that train together, each with a device like this one.
        joined: the device that the IPUs of all hosts are part of, one host's behind the other's, where they sum up over
            their links; None where the hosts do.
        framework: whose host code runs between session runs, one of :data:`FRAMEWORKS`; None where none counts.
        updates_optimizer: session runs from one time that the program sends its optimizer's values anew to the next;
            0: never; None: as with its framework (``optimizer_interval``).
        disturbances: what works otherwise than the rates say, all of them at once, as :meth:`disturbed` puts them.

    Raises:
        DeviceError: when ``ipus`` are not those of ``topology``, or the replicas do not divide them.

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
        """The same system without disturbances, all of whose cables carry."""
        if not self.disturbances:
            return self
        return replace(self, topology=replace(self.topology, dead=frozenset()), disturbances=())

    def disturbed(self, disturbances: Sequence[Disturbance]) -> System:
        """Return the same system with disturbances, in whose topology dead cables carry nothing.

        Args:
            disturbances: all of them.

        Returns:
            The system.

        Raises:
            DeviceError: for the first that this system cannot have.
        """
        for number, key, text in problems_of(disturbances, self):
            raise DeviceError(f"disturbance {number}: {key}: {text}")
        topology = self.topology.without(dead) if (dead := dead_cables(disturbances, self)) else self.topology
        return replace(self, topology=topology, disturbances=tuple(disturbances))

    def __str__(self) -> str:
        """Return the system in one line."""
        numbers = " ".join(map(str, self.ipus))
        clock = f"{self.clock_hz / 1e9:g} GHz"
        return f"{self.name}: {self.count} x {self.ipu.name} at {clock}, {self.selection_order} {numbers}"

    @property
    def clock_hz(self) -> int:
        """The tile clock."""
        return self.ipu.clock_hz

    @property
    def shards(self) -> int:
        """The number of IPUs of one replica."""
        return self.count // self.replicas

    @property
    def learners(self) -> int:
        """The number of replicas of all hosts, which one weight update is of."""
        return self.replicas * self.hosts

    @property
    def pods(self) -> int:
        """The number of pods that the device spans; 1 when IPU-Links join all of it."""
        return -(-self.count // POD_IPUS)

    @property
    def sync_cycles(self) -> int:
        """Cycles in which all IPUs of the device synchronise; 0 for a single IPU.

        The tiles of each, the signal among the IPUs, and what its tiles and they are apart when they arrive.
        """
        if self.count == 1 or self.free:
            return 0
        nominal = self._duration(nominal_sync_ns(self.rates, self.count, self.pods))
        return Cycles(total, nominal, self.ipu.internal_sync_cycles, Cycles(whole, self.rates.sync_skew_cycles))

    @property
    def exchanging(self) -> FixedParts:
        """Fixed parts of a superstep that exchanges anything between IPUs, but for sync and latency."""
        if self.count == 1 or self.free:
            return NOTHING_FIXED
        rates = self.rates
        return FixedParts(
            pre_copy_cycles=Cycles(whole, rates.pre_copy_cycles),
            exchange_cycles=self._duration(rates.exchange_ns(self.count)),
            post_copy_cycles=Cycles(whole, rates.post_copy_cycles),
        )

    def framework_cycles(self, nanoseconds: Fraction) -> int:
        """Return the cycles of what a framework's host does between session runs.

        Args:
            nanoseconds: for how long it does that.

        Returns:
            Cycles of the tile clock; 0 where no framework counts.
        """
        return 0 if self.framework is None else self._duration(nanoseconds)

    @property
    def host_sync_cycles(self) -> int:
        """Cycles of one synchronisation of an IPU with the host."""
        return self._duration(self.host.sync_ns)

    def route(self, source: int, target: int) -> Route:
        """Return the link directions from one logical IPU to another.

        Args:
            source, target: logical IPUs.

        Returns:
            The route, in physical IPU numbers.

        Raises:
            DeviceError: for an IPU that the device does not have.
        """
        for ipu in (source, target):
            if not 0 <= ipu < self.count:
                raise DeviceError(f"{self.name}: no IPU {ipu} in a device of {self.count} IPUs")
        return self.topology.route(self.ipus[source], self.ipus[target])

    def merged_copy(self, traffic: Traffic) -> CopyCost:
        """Return the cost of one merged inter-IPU copy.

        Args:
            traffic: bytes from one logical IPU to another; entries of 0 bytes are no copy.

        Returns:
            The parts of its time; without any copy only the sync is left.

        Raises:
            DeviceError: for a copy from an IPU to itself or to an IPU that the device does not have.
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
        # Routes over the same channels take the same latency, and as many bytes on links of a kind the same cycles.
        alike = {tuple(direction.channel for direction in route): route for route, _ in routed}
        latency_ns = max(sum(direction.latency_ns(self.rates) for direction in route) for route in alike.values())
        cycles: dict[tuple[Channel, int], int] = {}
        links = []
        for direction, byte_count in bytes_by_direction(routed):
            key = direction.channel, byte_count
            if key not in cycles:
                cycles[key] = self.transfer_cycles(byte_count, direction.bytes_per_s(self.rates))
            links.append(LinkLoad(direction, byte_count, cycles[key]))
        fixed = self.exchanging._replace(
            sync_cycles=self.sync_cycles, latency_cycles=self._duration(Fraction(latency_ns))
        )
        return CopyCost(fixed, tuple(links))

    def infeed_cycles(self, byte_count: int) -> int:
        """Return the cycles in which one IPU reads bytes from the host's buffer.

        Args:
            byte_count: how many.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.infeed_bytes_per_s)

    def outfeed_cycles(self, byte_count: int) -> int:
        """Return the cycles in which one IPU writes bytes to the host's buffer.

        Args:
            byte_count: how many.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.outfeed_bytes_per_s)

    def host_fill_cycles(self, byte_count: int) -> int:
        """Return the cycles in which the host writes bytes of an infeed into its buffer.

        Args:
            byte_count: how many.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.host_fill_bytes_per_s)

    def host_data_cycles(self, byte_count: int) -> int:
        """Return the cycles in which the host makes bytes of samples, for whichever of its replicas.

        Args:
            byte_count: how many.

        Returns:
            Cycles of the tile clock; 0 without a limit to the host's data rate, and on the free system.
        """
        rate = self.host.data_rate_bytes_per_s
        return 0 if rate is None else self.transfer_cycles(byte_count, rate)

    def host_compute_cycles(self, calls: int, operations: Fraction | int) -> int:
        """Return the cycles in which the host does floating-point operations.

        Args:
            calls: of a library, in which they are done.
            operations: of all calls together.

        Returns:
            Cycles of the tile clock.
        """
        begun = self._duration(calls * self.host.operation_ns)
        return joined(begun, self.transfer_cycles(operations, self.host.operations_per_s))

    def host_drain_cycles(self, byte_count: int) -> int:
        """Return the cycles in which the host reads bytes of an outfeed from its buffer.

        Args:
            byte_count: how many.

        Returns:
            Cycles of the tile clock; 0 on the free system.
        """
        return self.transfer_cycles(byte_count, self.host.host_drain_bytes_per_s)

    def without_io_tiles(self) -> System:
        """Return the same device with all tiles of its IPUs computing."""
        return replace(self, ipu=self.ipu.without_tiles(-self.io_tiles), io_tiles=0)

    def reordered(self, order: str) -> System:
        """Return the same device with its IPUs in another selection order.

        Args:
            order: SNAKE, HOOF, ZIGZAG or AUTO.

        Returns:
            The device; logical IPUs are other physical ones.

        Raises:
            DeviceError: for an unknown order.
        """
        return replace(
            self,
            ipus=laid_out(self.topology.ipus, order, self.shards),
            selection_order=order,
            order_reason=f"{order} was asked for.",
        )

    def replica(self, number: int) -> System:
        """Return the part of the device that a replica runs on, as a device of its own.

        Its routes are those that it has in the whole: a replica's IPUs are whole rungs side by side, at
        most half of a torus unless they are all of it, so that no shortest path leaves them but round dead cables.

        Args:
            number: of the replica, from 0.

        Returns:
            A device of one replica.
        """
        if self.replicas == 1:
            return self
        ipus = self.ipus[number * self.shards : (number + 1) * self.shards]
        # A pod is looped by itself; any smaller part of one is a ladder.
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
        """Return the cycles in which bytes pass at a rate.

        Args:
            byte_count: how many.
            bytes_per_s: the rate.

        Returns:
            Cycles of the tile clock, rounded up; 0 on the free system.
        """
        cycles = transfer_cycles(byte_count, bytes_per_s, self.clock_hz)
        return 0 if self.free else cycles

    def _duration(self, nanoseconds: Fraction) -> int:
        return 0 if self.free else duration_cycles(nanoseconds, self.clock_hz)

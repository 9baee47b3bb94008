"""Build a System from a machine's name and a device mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ipusim.base.errors import DeviceError, QuantityError
from ipusim.base.units import format_numbers
from ipusim.hardware.devices import Device, first_device, select_device
from ipusim.hardware.machines import MACHINES, Machine, find_machine
from ipusim.hardware.orders import physical_ipus, resolve_order
from ipusim.hardware.pods import POD_IPUS, PodRing
from ipusim.hardware.rates import DEFAULT_RATES, Rates
from ipusim.hardware.streaming import StreamingMemory
from ipusim.hardware.system import System
from ipusim.hardware.topology import Topology


def build_system(
    name: str,
    *,
    mapping: Sequence[int],
    ipus: int | None = None,
    select: int | None = None,
    selection_order: str = "AUTO",
    devices: Sequence[int] | None = None,
    pipelined: bool = True,
    clock_hz: int | None = None,
    overhead_ns: Fraction | None = None,
    rates: Rates = DEFAULT_RATES,
    host_rates: Mapping[str, Fraction] | None = None,
    remote_buffers: bool = False,
    streaming: Mapping[str, Any] | None = None,
    io_tiles: int = 0,
) -> System:
    """Return the device that runs a program on the machine called ``name``.

    Args:
        name: a name of :data:`ipusim.hardware.machines.MACHINES`.
        mapping: logical IPUs of the computational stages, within a replica.
        devices: IPU of each stage, with -1 for concurrent stages, from which AUTO chooses; default: ``mapping``.
        ipus: size of the device; default: the smallest power of two that holds the mapping. A larger device holds
            several replicas.
        select: device id in the machine's listing; default: the first device of this size.
        selection_order: AUTO, ZIGZAG, SNAKE or HOOF.
        pipelined: whether the program is pipelined (False for sharded execution); used by AUTO.
        clock_hz: tile clock; default: the clock of the IPU generation.
        overhead_ns: time of an exchange's fixed parts without sync and hops, in place of the parts from ``rates``.
        rates: rates that price passes and communication between IPUs.
        host_rates: bytes per second by attribute name of HostSpec, in place of the machine's rates.
        remote_buffers: whether the program may use Streaming Memory (IPUConfig's enable_remote_buffers).
        streaming: figures by attribute name of StreamingMemory, in place of the machine's figures.
        io_tiles: tiles per IPU reserved for host copies.

    Raises DeviceError if the machine, device, order or a rate is unknown, a stage lies outside the device, or no device
    has so many IPUs. Raises QuantityError if a clock or rate is not above 0, or if the overhead is negative.
    """
    machine = find_machine(name)
    _check_costs(machine, overhead_ns, host_rates)
    _check_stages_are_placed(mapping)
    device = _find_device(machine, mapping, ipus, select)
    _check_ipus_are_there(name, mapping, device.count)
    order, reason = resolve_order(selection_order, mapping if devices is None else devices, pipelined)
    replicas = replication_factor(device.count, shards_of(mapping))
    return System(
        name=name,
        ipu=(machine.ipu if clock_hz is None else machine.ipu.at_clock(clock_hz)).without_tiles(io_tiles),
        ipus=physical_ipus(device.positions, order, device.count // replicas),
        selection_order=order,
        order_reason=reason,
        topology=_links(machine, device),
        host=machine.host.with_rates(host_rates) if host_rates else machine.host,
        rates=rates if overhead_ns is None else _with_overhead(name, rates, overhead_ns),
        free=machine.free,
        replicas=replicas,
        streaming=_streaming(machine, streaming or {}) if remote_buffers else None,
        io_tiles=io_tiles,
    )


def join_hosts(system: System, name: str, hosts: int, mapping: Sequence[int]) -> System:
    """Return a single device that joins the devices of ``hosts`` hosts, host by host.

    Every host has a device like ``system`` of machine ``name``. The result is the smallest large enough machine with
    the same IPUs. Raises DeviceError if no machine is large enough.
    """
    machine, ipus = find_machine(name), 1 << (hosts * system.count - 1).bit_length()
    same_kind = [
        candidate
        for candidate in MACHINES.values()
        if candidate.ipu == machine.ipu and candidate.connection == machine.connection
    ]
    large_enough = [candidate for candidate in same_kind if candidate.count >= ipus]
    if not large_enough:
        most = max(same_kind, key=lambda candidate: candidate.count)
        raise DeviceError(
            f"expected at most {most.count // system.count} hosts of {system.count} IPUs for sums over links, because "
            f"{most.name} has {most.count} IPUs, got {hosts}"
        )
    return build_system(
        large_enough[0].name,
        mapping=mapping,
        ipus=ipus,
        selection_order=system.selection_order,
        clock_hz=system.clock_hz,
        rates=system.rates,
    )


def _check_costs(machine: Machine, overhead_ns: Fraction | None, host_rates: Mapping[str, Fraction] | None) -> None:
    """Refuse stated costs on a machine with free copies and host; raises DeviceError."""
    if machine.free and (overhead_ns is not None or host_rates):
        raise DeviceError(
            f"copies and the host cost nothing on {machine.name}: expected no overhead_ns and no host_rates"
        )


def _check_ipus_are_there(name: str, mapping: Sequence[int], count: int) -> None:
    """Refuse a stage outside the device's ``count`` IPUs, or beyond the IPU-Links of a pod."""
    for stage, ipu in enumerate(mapping):
        if ipu >= count:
            raise DeviceError(
                f"stage {stage} is mapped to IPU {ipu}, but the device of {name} has {count} IPUs: "
                f"expected an IPU {format_numbers(count)}, or a larger device"
            )
        if ipu >= POD_IPUS:
            raise DeviceError(
                f"stage {stage} is mapped to IPU {ipu}, but IPU-Links join {POD_IPUS} IPUs at most: "
                f"expected an IPU from 0 to {POD_IPUS - 1}; only replicas can be in different pods"
            )


def _with_overhead(name: str, rates: Rates, overhead_ns: Fraction) -> Rates:
    if overhead_ns < 0:
        raise QuantityError(f"{name}: expected a copy overhead from 0 ns up, got {overhead_ns} ns")
    zero = Fraction(0)
    return rates.with_values(
        pre_copy_cycles=zero,
        pair_exchange_ns=overhead_ns,
        beyond_pair_exchange_ns=overhead_ns,
        post_copy_cycles=zero,
    )


def _streaming(machine: Machine, figures: Mapping[str, Any]) -> StreamingMemory:
    if machine.streaming is None:
        names = ", ".join(candidate.name for candidate in MACHINES.values() if candidate.streaming)
        raise DeviceError(f"{machine.name} has no Streaming Memory for remote buffers: expected one of {names}")
    sources = {**machine.streaming.sources, **dict.fromkeys(figures, "chosen by the user")}
    streaming = replace(machine.streaming, **figures, sources=sources)
    return replace(streaming, capacity_bytes=int(streaming.capacity_bytes))


def shards_of(mapping: Sequence[int]) -> int:
    """Return the IPUs per replica: the smallest power of two above the highest IPU number in ``mapping``."""
    return 1 << max(mapping).bit_length()


def replication_factor(ipus: int, shards: int) -> int:
    """Return the number of replicas of ``shards`` IPUs that fill a device of ``ipus`` IPUs.

    Raises DeviceError, in Graphcore's words, if shards do not divide the IPUs.
    """
    if ipus % shards:
        raise DeviceError(
            f"Trying to compile a graph for an IPU device with {ipus} IPUs and {shards} shards. "
            "The number of shards needs to divide the number of IPUs."
        )
    return ipus // shards


def _links(machine: Machine, device: Device) -> Topology | PodRing:
    # A partial ring has open ends. A whole pod is a torus even among several pods.
    is_whole_machine = device.count == machine.count
    if device.count > POD_IPUS:
        return PodRing(device.positions[0], device.count // POD_IPUS, looped=is_whole_machine)
    looped = machine.looped and (is_whole_machine or device.count == POD_IPUS)
    return Topology(device.positions[0], device.count, looped, machine.rung)


def _check_stages_are_placed(mapping: Sequence[int]) -> None:
    if not mapping:
        raise DeviceError("the device mapping is empty: expected the IPU of at least one stage")
    for stage, ipu in enumerate(mapping):
        if ipu < 0:
            raise DeviceError(f"stage {stage} is mapped to IPU {ipu}: expected an IPU from 0 up")


def _find_device(machine: Machine, mapping: Sequence[int], ipus: int | None, select: int | None) -> Device:
    if select is None:
        return first_device(machine, shards_of(mapping) if ipus is None else ipus)
    device = select_device(machine, select)
    if ipus is not None and ipus != device.count:
        raise DeviceError(f"device {select} of {machine.name} has {device.count} IPUs, but {ipus} were requested")
    return device

"""Compute lower bounds on the common work of a weight update: gradient sums, gathers and host updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import add

import numpy as np

from ipusim.api import System, models, pricing
from ipusim.app.suggest.layout import Layout
from ipusim.app.suggest.tables import Numbers
from ipusim.app.suggest.units import Units

#: Bytes of gradient accumulators, of tensors gathered by replicas for a weight update, and of weights.
_Bytes = tuple[int, ...]
#: Pairs of an IPU and its bytes.
_Buffers = tuple[tuple[int, int], ...]


def least_together(layout: Layout, units: Units) -> int:
    """Return the least cycles of gradient sums, gathers and host updates.

    Some IPU holds at least its share of all bytes; the bound counts only that IPU, at the best position. Separate
    collectives of variables add up, each on its best IPU.
    """
    ipus, profiles = layout.plan.ipus, units.profiles
    share = tuple(-(-size // len(ipus)) for size in _bytes_of(layout, profiles))
    variable_cycles = _variable_cycles(layout, units)
    separate_cycles = (
        None if variable_cycles is None else sum(int(part.min(axis=1).sum(axis=1).min()) for part in variable_cycles)
    )
    return min(_common_cycles(layout, {ipu: share}, profiles, separate_cycles) for ipu in ipus)


def together_under(layout: Layout, units: Units, cuts: Sequence[int]) -> int:
    """Return the cycles of :func:`least_together` for one cut.

    ``cuts`` holds the first units, and the number of units.
    """
    ipus, profiles = layout.plan.ipus, units.profiles
    bytes_of = {ipu: _bytes_of(layout, ()) for ipu in ipus}
    for ipu, start, end in zip(layout.plan.shape.mapping, cuts, cuts[1:], strict=False):
        bytes_of[ipu] = tuple(map(add, bytes_of[ipu], _bytes_of(layout, profiles[start:end])))
    if (variable_cycles := _variable_cycles(layout, units)) is None:
        return _common_cycles(layout, bytes_of, profiles)
    positions = np.repeat([ipus.index(ipu) for ipu in layout.plan.shape.mapping], np.diff(cuts))
    separate_cycles = sum(
        int(part[:, positions, np.arange(len(positions))].sum(axis=1).min()) for part in variable_cycles
    )
    return _common_cycles(layout, bytes_of, profiles, separate_cycles)


@lru_cache(maxsize=64)
def _variable_cycles(layout: Layout, units: Units) -> tuple[Numbers, ...] | None:
    """Return the cycles of separate collectives for each variable; None if variables share collectives."""
    system, offload = layout.system, layout.offload
    if units.sum_buffer_bytes != 0 or system.replicas == 1 or system.hosts > 1 or not layout.plan.shape.training:
        return None
    sums, gathers = pricing.cycles_in_turn(units.profiles, offload, system, layout.plan.ipus)
    return (sums, gathers) if offload.sharded_update and offload.replicas > 1 else (sums,)


def _bytes_of(layout: Layout, profiles: Sequence[models.StageProfile]) -> _Bytes:
    return (
        sum(profile.accumulator_bytes for profile in profiles),
        sum(layout.offload.gathered_bytes(profile) for profile in profiles),
        sum(profile.parameter_bytes for profile in profiles),
    )


def _common_cycles(
    layout: Layout,
    bytes_of: Mapping[int, _Bytes],
    profiles: Sequence[models.StageProfile],
    separate_cycles: int | None = None,
) -> int:
    """Return the cycles of gradient sums, gathers and host updates from every IPU's bytes.

    ``separate_cycles`` are the cycles of separate collectives.
    """
    system, offload, cycles = layout.system, layout.offload, 0
    accumulators, gathered, weights = zip(*bytes_of.values(), strict=True)
    if offload.variables_on_host:
        cycles += sum(pricing.host_update_cycles(system, max(accumulators), max(weights)))
    if system.replicas > 1 and layout.plan.shape.training:
        itemsize = min((profile.accumulator_itemsize for profile in profiles if profile.accumulator_bytes), default=1)
        buffers = _buffers(bytes_of, accumulators)
        if separate_cycles is not None:
            cycles += separate_cycles
        elif offload.sharded_update:  # a reduce-scatter takes as long as an all-gather of as many bytes
            cycles += _gather_cycles(system, buffers)
        else:
            cycles += _sum_cycles(system, buffers, itemsize)
        gathers_in_turn = separate_cycles is not None and offload.sharded_update
        if offload.replicas > 1 and not gathers_in_turn:
            cycles += _gather_cycles(system, _buffers(bytes_of, gathered))
    return cycles


def _buffers(ipus: Iterable[int], sizes: Iterable[int]) -> _Buffers:
    return tuple((ipu, size) for ipu, size in zip(ipus, sizes, strict=True) if size)


@lru_cache(maxsize=1024)  # cuts that differ in few stages often have equal bytes
def _sum_cycles(system: System, buffers: _Buffers, itemsize: int) -> int:
    return pricing.all_reduce_cycles(system, dict(buffers), itemsize).cost.total_cycles if buffers else 0


@lru_cache(maxsize=1024)
def _gather_cycles(system: System, buffers: _Buffers) -> int:
    gathers = pricing.all_gathers(system, dict(buffers)) if buffers else {}
    return max((gather.cost.total_cycles for gather in gathers.values()), default=0)

"""Propose changes that may speed up a run: count, schedule, recomputation, split, stages, and hardware.

The count is the number of micro-batches per weight update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from ipusim.api import Costs, Job, Sync, System, analysis, hardware, runs, schedules, timelines
from ipusim.app.explain.splits import better_splits
from ipusim.app.explain.trial import Change
from ipusim.base.units import enumerated_rows

#: Factors for the count.
_FACTORS: Final = (2, 4, 8)
#: Factor for link speeds, host speed and number of IPUs.
_DOUBLE: Final = 2
#: Saved fraction of cycles in faster stages.
_SAVED_FRACTION: Final = Fraction(1, 10)
#: Kind of a change to another schedule.
ANOTHER_SCHEDULE: Final = "another schedule"
#: Names of link rates.
LINKS: Final = ("link", "machine_rung", "gateway_link")


def changes(job: Job, syncs: Sequence[Sync] = ()) -> Iterator[Change]:
    """Yield the changes to try for a Job; schedules run in the sync modes ``syncs``, by default in the run's mode."""
    yield from _counts(job)
    yield from _schedules(job, syncs)
    if job.plan.shape.recompute or job.plan.shape.recompute_inline:
        yield Change("no recomputation", "pipeline.allow_recompute=false", {"pipeline.allow_recompute": False})
    for splits in better_splits(job):
        yield Change("another split", f"pipeline.splits=[{', '.join(splits)}]", {"pipeline.splits": list(splits)})
    yield from _stages(job)
    yield from _hardware(job)


def _counts(job: Job) -> Iterator[Change]:
    """Yield larger accumulation counts: multiples of the present count, which the schedule accepts as well."""
    name, count = "pipeline.gradient_accumulation_count", job.request.options.pipeline.gradient_accumulation_count
    for times in _FACTORS:
        yield Change("a larger count", f"{name}={count * times}", {name: count * times})


def _schedules(job: Job, syncs: Sequence[Sync]) -> Iterator[Change]:
    """Yield other schedules and sync modes, on the present number of IPUs."""
    system = job.request.options.system
    leaves_ipus_open = system.auto_select_ipus is None and system.select_ipus is None
    device = {"system.auto_select_ipus": len(job.system.ipus)} if leaves_ipus_open else {}
    for name in schedules.names():
        schedule = schedules.find(name)
        for sync in syncs or (job.plan.sync,):
            is_present = (name, sync) == (job.plan.schedule, job.plan.sync)
            if is_present or sync not in schedule.syncs or (name == job.plan.schedule and not syncs):
                continue
            kind = "another sync mode" if name == job.plan.schedule else ANOTHER_SCHEDULE
            words = f"{name} in {sync.words}"
            values = {"pipeline.schedule": name, "pipeline.sync": sync.value, **device}
            yield Change(kind, words, values)


def _stages(job: Job) -> Iterator[Change]:
    """Yield balanced stages, and faster stages of the busiest IPUs; nothing for equal stages."""
    names, shape = [profile.name for profile in job.program.stages], job.plan.shape
    busiest = analysis.busiest_stages(job.costs, shape)
    if len(analysis.slowest_stages(job.costs, shape)) == len(names):
        return

    def with_faster_stages(job: Job) -> tuple[Costs, System]:
        passes = {
            (kind, stage): -int(-(cycles * (1 - _SAVED_FRACTION)) // 1) if stage in busiest else cycles
            for (kind, stage), cycles in job.costs.passes.items()
        }
        return replace(job.costs, passes=passes), job.system

    yield Change(
        "balanced stages",
        "the same work divided equally among the stages",
        price=lambda job: (replace(job.costs, passes=runs.balanced(job, job.costs.passes)), job.system),
        shortened_part=timelines.TimePart.IMBALANCE,
    )
    if len(busiest) < len(names):
        words = f"{enumerated_rows(busiest, names.__getitem__)} {float(_SAVED_FRACTION):.0%} faster"
        yield Change("faster stages", words, price=with_faster_stages)


def _hardware(job: Job) -> Iterator[Change]:
    """Yield faster links and host, machines of other generations, and more IPUs."""
    system, options = job.system, job.request.options
    if not system.free and not isinstance(options.rates, str):  # links of a free system take no time already
        rates = {rate.name: rate for rate in hardware.RATES}
        link_rates: dict[str, Any] = {}
        for name in LINKS:
            value = _DOUBLE * Fraction(getattr(system.rates, rates[name].attribute))
            link_rates[f"rates.{name}"] = f"{float(value):.17g} B/s"
        yield Change("faster links", "all links twice as fast", link_rates, is_hardware=True)

    def with_faster_host(job: Job) -> tuple[Costs, System]:
        return runs.with_host(job.costs, lambda cycles: -(-cycles // _DOUBLE)), job.system

    if with_faster_host(job)[0] != job.costs:
        yield Change("faster host", "the host twice as fast", price=with_faster_host, is_hardware=True)
    names: set[str] = {system.ipu.name}
    is_measured = all(isinstance(profile.forward, int) for profile in job.program.stages)  # valid on one machine only
    for machine in () if is_measured else hardware.MACHINES.values():
        if machine.free or machine.ipu.name in names or machine.count < len(system.ipus):
            continue
        names.add(machine.ipu.name)
        words = f"system.name={machine.name}"
        yield Change("another machine", words, {"system.name": machine.name}, is_hardware=True)
    more = _DOUBLE * len(system.ipus)
    if more <= hardware.find_machine(options.system.name).count:
        words = f"system.auto_select_ipus={more}"
        yield Change("more IPUs", words, {"system.auto_select_ipus": more}, is_hardware=True)

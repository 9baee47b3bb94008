"""Choices of a search: the possible layouts of a model.

A choice leaves the cuts open, which divide the model into stages. The given plan is the plan of the scenario.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from ipusim.api import Schedule, hardware, runs
from ipusim.api import schedules as core_schedules
from ipusim.app.compare.compare import GRAPHCORE_SCHEDULES
from ipusim.app.compare.compared_names import schedule_of_option
from ipusim.app.suggest.baseline import STAY, Baseline
from ipusim.app.suggest.limits import PLACEMENTS, Limits, truths_of
from ipusim.app.suggest.units import Units
from ipusim.base.errors import OptionError

#: Default number of stages per IPU under placement ``around``.
_AROUND: Final = 2


@dataclass(frozen=True)
class Choice:
    """Layout of the model without its cuts.

    Attributes:
        ipus: device size in IPUs.
        mapping: IPU of each stage.
        placement: name of the placement behind the mapping.
        replicas: replicas per device.
        schedule, sync: names of schedule and sync mode; an empty sync is the schedule's default.
        micro_batch_size, count: size and number of micro-batches of each replica.
        recompute: recomputation mode; empty for stashed activations.
        offload: whether the optimizer's state is in Streaming Memory.
        sharding: whether replicas shard that state.
        activations: under batch serialization, whether Streaming Memory holds activations; None without it.
        destination: without batch serialization, destination of moved activations, or ``stay``.
        order: selection order of the device's IPUs; the best order depends on the cuts.
    """

    ipus: int
    mapping: tuple[int, ...]
    placement: str
    replicas: int
    schedule: str
    sync: str
    micro_batch_size: int
    count: int
    recompute: str
    offload: bool
    sharding: bool
    activations: bool | None
    destination: str = STAY
    order: str = "AUTO"

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.mapping)

    @property
    def ipus_of_stages(self) -> int:
        """Number of a replica's IPUs that hold a stage."""
        return len(set(self.mapping))

    @property
    def passes(self) -> int:
        """Number of passes in an execution, without recomputation."""
        return 2 * self.stages * self.count

    @property
    def kind(self) -> tuple[object, ...]:
        """Key of a kind of plans, which differ only in cuts or offloading; users see the best plan of a kind."""
        return self.mapping, self.replicas, self.schedule, self.sync, self.micro_batch_size, self.recompute

    @property
    def family(self) -> tuple[object, ...]:
        """Key of a family of choices, which differ in stages, recomputation and use of memory."""
        return self.schedule, self.sync, self.replicas, self.micro_batch_size

    @property
    def plainness(self) -> tuple[int, ...]:
        """Rank among equally fast plans: fewer stages, the schedule ``single`` and fewer options are preferred."""
        options = (
            self.schedule != "single",
            self.recompute,
            self.offload,
            self.sharding,
            self.activations,
            self.destination != STAY,
            self.order != "AUTO",
        )
        return self.stages, *(int(bool(option)) for option in options)

    def _mode_to_state(self, baseline: Baseline) -> str | None:
        """Return the recomputation mode that a scenario of the plan states; None if the default mode is right."""
        if not self.recompute or self.schedule not in core_schedules.names():  # a file's schedule would be read again
            return self.recompute or None
        return runs.mode_to_state(baseline.request.options, core_schedules.find(self.schedule), self.recompute)

    def changes(self, baseline: Baseline, units: Units, cuts: Sequence[int]) -> dict[str, Any]:
        """Return the choice as options by dotted name; ``cuts`` are the first units of stages, beginning with 0."""
        serialized = baseline.serialization > 1
        changes: dict[str, Any] = {
            "system.auto_select_ipus": None if baseline.has_selection else self.ipus,
            "system.selection_order": None if self.order == "AUTO" else self.order,
            "pipeline.schedule": self.schedule,
            "pipeline.sync": self.sync or None,
            "pipeline.device_mapping": list(self.mapping),
            "pipeline.virtual_stages": None,
            "pipeline.micro_batch_size": self.micro_batch_size,
            "pipeline.gradient_accumulation_count": self.count,
            "pipeline.allow_recompute": bool(self.recompute) or None,
            "pipeline.recomputation_mode": self._mode_to_state(baseline),
            "pipeline.offload_activations": self.activations if serialized else self._moves(baseline, units),
            "pipeline.replicated_optimizer_state_sharding": self.sharding or None,
        }
        if self.destination == "streaming_memory" and not baseline.machine.free:
            changes["system.enable_remote_buffers"] = True
        if baseline.training:
            has_memory = baseline.request.options.system.enable_remote_buffers or self.offload
            changes["pipeline.offload_weight_update_variables"] = self.offload if has_memory else None
            if self.offload:
                changes |= {"system.enable_remote_buffers": True, "pipeline.variables_on_host": None}
        if units.movable:
            changes |= {"pipeline.stages": None, "pipeline.splits": [units.names[unit] for unit in cuts[1:]] or None}
        return changes

    def _moves(self, baseline: Baseline, units: Units) -> dict[str, Any] | None:
        """Return the option for moved activations, with the given settings for the given destination."""
        spec = baseline.request.options.pipeline.offload_activations
        if self.destination == STAY:
            return None
        if self.destination != baseline.activations or not isinstance(spec, runs.MovedActivationsSpec):
            return {"to": self.destination}
        stage_names = () if units.movable else ("stages",)  # new cuts change the names of stages
        settings = {name: getattr(spec, name) for name in ("to", *stage_names, "keep", "buffers")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items() if value}


def mapping_of(placement: str, ipus: int, stages: int | None = None) -> tuple[int, ...]:
    """Return the IPU of each stage for a placement on ``ipus`` IPUs.

    Args:
        placement: ``straight``: a stage on each IPU, or several in a row. ``returning``: an additional last stage on
            the first IPU. ``around``: IPUs in turn, twice, as in 0, 1, 0, 1, or as often as the stages allow.
            ``there_and_back``: 0, 1, 1, 0.
        ipus: number of IPUs.
        stages: number of unchangeable stages; None for movable cuts.
    """
    ipus_in_order = tuple(range(ipus))
    match placement:
        case "returning":
            return (*ipus_in_order, 0)
        case "around":
            per_ipu = _AROUND if stages is None else max(stages // ipus, _AROUND)
            return core_schedules.around(per_ipu * ipus, per_ipu)
        case "straight" if stages is not None:
            return tuple(stage * ipus // stages for stage in range(stages)) if ipus <= stages else ipus_in_order
        case "there_and_back":
            return core_schedules.zigzag(2 * ipus, 2)
    return ipus_in_order


def placement_name(mapping: tuple[int, ...]) -> str:
    """Return the name of the placement behind a mapping; ``given`` for a mapping of the user's own."""
    ipus, stages = len(set(mapping)), len(mapping)
    return next(
        (name for name in PLACEMENTS if mapping in (mapping_of(name, ipus), mapping_of(name, ipus, stages))), "given"
    )


def choices(baseline: Baseline, limits: Limits, units: Units, *, whatever: bool = False) -> Iterator[Choice]:
    """Yield choices within ``limits`` whose micro-batches make up the global batch; rules may refuse some.

    With ``whatever``, the global batch is ignored and choices have one micro-batch.
    """
    schedules = _schedules(baseline, limits)
    batch = limits.global_batch or baseline.global_batch
    states = _states(baseline, limits)
    for (ipus, placement, mapping), size in product(_placements(baseline, limits, units), limits.sizes_of(baseline)):
        replicas = ipus // hardware.shards_of(mapping)
        count, remainder = divmod(batch, size * replicas * baseline.hosts * baseline.serialization)
        if whatever:
            count, remainder = 1, 0
        if remainder or not count or (limits.replicas and replicas not in limits.replicas):
            continue
        for (name, schedule), (offload, sharding, activations) in product(schedules, states):
            if sharding and replicas == 1:
                continue
            syncs = _syncs(baseline, limits, schedule)
            recomputations, moves = _recomputations(baseline, limits, schedule), _destinations(baseline, limits)
            for sync, recompute, destination in product(syncs, recomputations, moves):
                yield Choice(
                    ipus, mapping, placement, replicas, name, sync, size, count, recompute, offload, sharding,
                    activations, destination,
                )  # fmt: skip


def _syncs(baseline: Baseline, limits: Limits, schedule: Schedule) -> Sequence[str]:
    """Return the sync modes to search for a schedule; an empty text stands for its default mode."""
    mode = baseline.request.options.pipeline.sync
    if limits.sync is not None:
        return sorted(limits.sync, key=lambda sync: sync != mode)
    if mode is not None or baseline.job is None or baseline.job.plan.sync is schedule.syncs[0]:
        return (mode or "",)
    return (baseline.job.plan.sync.value,)


def _placements(baseline: Baseline, limits: Limits, units: Units) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Yield device size, placement and mapping for all placements of a replica's stages."""
    for ipus in sizes_of(baseline, limits):
        mappings: set[tuple[int, ...]] = set()
        for count, placement in product(range(1, ipus + 1), limits.placements or ("given", *PLACEMENTS)):
            mapping = mapping_of(placement, count, None if units.movable else len(units))
            if placement == "given":
                mapping = baseline.mapping if len(set(baseline.mapping)) == count else ()
            stages = len(mapping)
            fits = stages <= len(units) if units.movable else stages == len(units)
            if (
                not mapping
                or mapping in mappings
                or not fits
                or ipus % hardware.shards_of(mapping)
                or hardware.shards_of(mapping) > ipus
            ):
                continue
            if limits.stages and stages not in limits.stages:
                continue
            mappings.add(mapping)
            yield ipus, placement, mapping


def sizes_of(baseline: Baseline, limits: Limits) -> tuple[int, ...]:
    """Return the device sizes to search.

    Raises OptionError for a size that the machine does not offer.
    """
    if baseline.has_selection:
        return (baseline.ipus,)
    machine = hardware.find_machine(baseline.request.options.system.name)
    if limits.ipus is None:
        return tuple(size for size in machine.sizes if size <= baseline.ipus)
    for size in limits.ipus:
        if size not in machine.sizes:
            sizes = runs.one_of([str(size) for size in machine.sizes])
            raise OptionError("ipus", f"expected {sizes}, sizes of a device of {machine.name}, got {size}")
    return limits.ipus


def orders_of(baseline: Baseline, limits: Limits, choice: Choice) -> tuple[str, ...]:
    """Return the selection orders to try for a choice."""
    return limits.orders or (("AUTO",) if baseline.machine.free or choice.ipus == 1 else ("AUTO", *hardware.ORDERS))


def possible(choice: Choice, units: Units) -> bool:
    """Return whether some cut places units that share weights on one IPU.

    The check needs no layout.
    """
    stages, size, mapping = choice.stages, len(units), choice.mapping
    return all(
        any(
            mapping[lower] == mapping[upper] and lower <= first and stages - 1 - upper <= size - 1 - second
            for lower in range(stages)
            for upper in range(lower, min(stages, lower + second - first + 1))
        )
        for first, second in units.shared_pairs
    )


def _schedules(baseline: Baseline, limits: Limits) -> list[tuple[str, Schedule]]:
    """Return schedules with their names; the given schedule comes first and wins ties."""
    plan_name = baseline.request.options.pipeline.schedule
    candidates = (
        (plan_name, *GRAPHCORE_SCHEDULES, "single")
        if limits.schedules is None
        else core_schedules.expand_names(limits.schedules)
    )
    result: dict[str, Schedule] = {}
    for name in candidates:
        schedule = schedule_of_option(name, baseline.request.folder)
        result[schedule.name if schedule.name in core_schedules.names() else name] = schedule
    return sorted(result.items(), key=lambda item: item[0] != plan_name)


def _recomputations(baseline: Baseline, limits: Limits, schedule: Schedule) -> tuple[str, ...]:
    recompute = truths_of(limits.recompute)
    modes = schedule.recomputation_modes if baseline.training else ()
    return (*(("",) if False in recompute else ()), *(modes if True in recompute else ()))


def _states(baseline: Baseline, limits: Limits) -> list[tuple[bool, bool, bool | None]]:
    """Return choices of three booleans: offloaded optimizer state, sharded optimizer state, offloaded activations."""
    offloads = truths_of(limits.offload) if baseline.machine.streaming is not None and baseline.training else (False,)
    can_store_activations = baseline.serialization > 1 and baseline.request.options.system.enable_remote_buffers
    states = product(offloads, truths_of(limits.sharding), offloads if can_store_activations else (None,))
    options = baseline.request.options
    on_popart = options.system.host.framework in hardware.ON_POPART
    keeps_state_on_ipus = on_popart and baseline.training and not options.pipeline.variables_on_host
    return [state for state in states if state[0] or keeps_state_on_ipus or not state[1]]


def _destinations(baseline: Baseline, limits: Limits) -> tuple[str, ...]:
    """Return the destinations of moved activations to search."""
    if not baseline.training or baseline.serialization > 1:
        return (STAY,)
    has_memory = baseline.machine.streaming is not None or baseline.machine.free
    destinations = limits.activations or (baseline.activations,)
    return tuple(name for name in destinations if name != "streaming_memory" or has_memory)

"""A choice laid out, before the model is cut: its device, its Plan, and what that says about any cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ipusim.errors import IpusimError
from ipusim.hardware.system import System
from ipusim.model.profile import StageProfile
from ipusim.pipeline.offload import Offload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE
from ipusim.pricing.collectives import all_gathers, all_reduce, host_update_cycles
from ipusim.reuse import Reuse
from ipusim.runs.assemble.lay_out import lay_out
from ipusim.runs.assemble.rates import resolve_rates
from ipusim.runs.assemble.stages import requested_stages
from ipusim.runs.assemble.system import resolve_offloads
from ipusim.runs.assemble.unvaried import unvaried
from ipusim.runs.findings import Findings
from ipusim.runs.problems import Problem, RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules.named import schedule_of
from ipusim.schedules.registry import Schedule
from ipusim.study.suggest.alive import Moments, moments_of
from ipusim.study.suggest.choices import Choice
from ipusim.study.suggest.given import TIME_ALONE, Given, changed
from ipusim.study.suggest.terms import PlanTerms, Terms
from ipusim.study.suggest.units import Units


@dataclass(frozen=True, eq=False)
class Layout:
    """Where and in which order a choice runs.

    Attributes:
        system: the device.
        plan: the order of the passes.
        offload: what lies in Streaming Memory.
        terms: what any cut takes at least.
        moments: what is alive at once on each IPU.
    """

    system: System
    plan: Plan
    offload: Offload
    terms: Terms
    moments: Moments


@dataclass(frozen=True)
class _Drawn:
    """Plans and devices that several choices have in common."""

    system: System
    plan: Plan
    terms: PlanTerms
    moments: Moments


class Layouts:
    """Lays choices out, each thing that several have in common once."""

    def __init__(self, given: Given, again: Reuse) -> None:
        """Lay out variants of ``given``, each thing that is asked for ``again`` once."""
        self._again = again
        self._given = given
        self._drawn: dict[tuple[object, ...], _Drawn | str] = {}
        self._one_by_one: dict[tuple[object, ...], bool] = {}
        self._terms: dict[tuple[object, ...], Terms] = {}

    def of(self, choice: Choice, units: Units) -> Layout | str:
        """Return the choice laid out; or why it is refused, in the words of the rule."""
        where = choice.ipus, choice.mapping, choice.offload  # with remote buffers a device is another one
        key = (*where, choice.schedule, choice.sync, choice.micro_batch_size, choice.recompute)
        if isinstance(drawn := self._drawn.get(key), str):
            return drawn
        changes = replace(choice, order="AUTO").changes(self._given, units, range(choice.stages))
        auto = changed(self._given.request, {**changes, **TIME_ALONE})
        if drawn is None:
            drawn = self._drawn[key] = self._draw(choice, auto)
        if isinstance(drawn, str):
            return drawn
        system = drawn.system if choice.order == "AUTO" else drawn.system.reordered(choice.order)
        findings = Findings(auto.is_set)
        training = drawn.plan.shape.training
        offload = resolve_offloads(auto.options, system, training, units.names[0], findings)
        if offload is None:
            return str(RequestError([*_problems(findings)]))
        if (terms := self._terms.get((*key, choice.order))) is None:
            alone = system.replicas > 1 and auto.options.system.sync_replicas_independently
            terms = self._terms[*key, choice.order] = drawn.terms.on(system, independent=alone)
        return Layout(system, drawn.plan, offload, terms, drawn.moments)

    def one_by_one(self, choice: Choice) -> bool:
        """Whether micro-batches go through one after the other, which a schedule's offsets say for any count."""
        key = (choice.schedule, choice.mapping, choice.recompute)
        if key not in self._one_by_one:
            schedule, shape = self._shape(choice)
            self._one_by_one[key] = False
            with suppress(IpusimError):
                self._one_by_one[key] = schedule.multiple(shape) == 1 and schedule.order(shape).offsets == (0,)
        return self._one_by_one[key]

    def multiple(self, choice: Choice) -> int | None:
        """Return of what a count is a multiple under the choice's schedule; None where it refuses the mapping."""
        schedule, shape = self._shape(choice)
        with suppress(IpusimError):
            return schedule.multiple(shape)
        return None

    def _shape(self, choice: Choice) -> tuple[Schedule, PlanShape]:
        """Return the schedule, and the least shape that a choice could have."""
        return schedule_of(choice.schedule, self._given.request.folder), PlanShape(
            mapping=choice.mapping,
            micro_batches=self._given.serialization,
            training=self._given.training,
            recompute=choice.recompute == THEN_BACKPROPAGATE,
            recompute_inline=choice.recompute == INTERLEAVED,
            serialization=self._given.serialization,
        )

    def _draw(self, choice: Choice, request: Request) -> _Drawn | str:
        findings, options = Findings(request.is_set), request.options
        fixed = unvaried(options, self._again)
        requested = findings.kept(self._again, requested_stages, fixed)
        rates = findings.kept(self._again, resolve_rates, fixed, request.folder)
        schedule = schedule_of(choice.schedule, request.folder)
        overlapped = options.system.io_tiles.place_ops_on_io_tiles
        system, scheduled = lay_out(
            options, fixed, schedule, requested, self._given.training, overlapped, rates, findings, self._again
        )
        if system is None or scheduled is None or len(findings):
            return str(RequestError([*_problems(findings)]))
        _, plan = scheduled
        return _Drawn(system, plan, PlanTerms(plan, system, choice.recompute == INTERLEAVED), moments_of(plan))


def _problems(findings: Findings) -> Iterator[Problem]:
    try:
        findings.raise_if_any()
    except RequestError as error:
        yield from error.problems


def collective_cycles(layout: Layout, profiles: tuple[StageProfile, ...]) -> int:
    """Return the least cycles in which replicas sum up gradients, put parts together, and the host updates weights.

    Some IPU holds at least its share of all bytes; that IPU alone is priced, wherever it is best.
    """
    plan, offload = layout.plan, layout.offload
    accumulators = -(-sum(each.accumulator_bytes for each in profiles) // len(plan.ipus))
    gathered = -(-sum(offload.gathered_bytes(each) for each in profiles) // len(plan.ipus))
    itemsize = min((each.accumulator_itemsize for each in profiles if each.accumulator_bytes), default=1)
    weights = -(-sum(each.parameter_bytes for each in profiles) // len(plan.ipus))
    least = min(_collectives(layout, {ipu: accumulators}, {ipu: gathered}, itemsize) for ipu in plan.ipus)
    return least + _updated_by_host(layout, accumulators, weights)


def collectives_of(layout: Layout, profiles: tuple[StageProfile, ...], cuts: Sequence[int]) -> int:
    """Return the same of one cut, whose IPUs all take part: its first units, and the number of units."""
    plan, offload = layout.plan, layout.offload
    accumulators, gathered, weights = (dict.fromkeys(plan.ipus, 0) for _ in range(3))
    for ipu, start, end in zip(plan.shape.mapping, cuts, cuts[1:], strict=False):
        accumulators[ipu] += sum(each.accumulator_bytes for each in profiles[start:end])
        gathered[ipu] += sum(offload.gathered_bytes(each) for each in profiles[start:end])
        weights[ipu] += sum(each.parameter_bytes for each in profiles[start:end])
    itemsize = min((each.accumulator_itemsize for each in profiles if each.accumulator_bytes), default=1)
    updated = _updated_by_host(layout, max(accumulators.values()), max(weights.values()))
    return _collectives(layout, accumulators, gathered, itemsize) + updated


def _updated_by_host(layout: Layout, gradients: int, weights: int) -> int:
    """Return the cycles of the weight update on the host, where an IPU has at most so many bytes; 0 on IPUs."""
    return sum(host_update_cycles(layout.system, gradients, weights)) if layout.offload.variables_on_host else 0


def _collectives(layout: Layout, accumulators: dict[int, int], gathered: dict[int, int], itemsize: int) -> int:
    system, cycles = layout.system, 0
    if system.replicas == 1 or not layout.plan.shape.training:
        return 0
    if summed := {ipu: size for ipu, size in accumulators.items() if size}:
        cycles += all_reduce(system, summed, itemsize).cost.total_cycles
    parts = {ipu: size for ipu, size in gathered.items() if size and layout.offload.replicas > 1}
    together = all_gathers(system, parts) if parts else {}
    return cycles + max((gather.cost.total_cycles for gather in together.values()), default=0)

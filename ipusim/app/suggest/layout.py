"""Layout of a choice before the model is cut into stages: device, Plan, and bounds for any cut."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from ipusim.api import Plan, Request, RequestError, Schedule, System, pipelines, rules, runs, schedules
from ipusim.app.study.trial import time_alone
from ipusim.app.suggest.baseline import Baseline
from ipusim.app.suggest.choices import Choice
from ipusim.app.suggest.live_tensors import LiveTensors, live_tensors
from ipusim.app.suggest.terms import Terms, pass_terms, terms_on
from ipusim.app.suggest.units import Units
from ipusim.base.cache import shared
from ipusim.base.errors import IpusimError


@dataclass(frozen=True, eq=False)
class Layout:
    """Device and order of a choice.

    Attributes:
        system: device.
        plan: order of the passes.
        offload: tensors in Streaming Memory.
        terms: lower bounds on the time of any cut.
        live: simultaneously live tensors on each IPU.
    """

    system: System
    plan: Plan
    offload: pipelines.Offload
    terms: Terms
    live: LiveTensors


class Layouts:
    """Cache of layouts, with parts shared between choices."""

    def __init__(self, baseline: Baseline) -> None:
        """Prepare layouts for variants of ``baseline``."""
        self._baseline = baseline
        #: Layout, or message of a refusal, by the options of a choice that decide the Plan.
        self._layouts: dict[tuple[object, ...], Layout | str] = {}
        self._terms: dict[tuple[object, ...], Terms] = {}
        #: Last choice and its request.
        self._last_request: tuple[tuple[Choice, Units] | None, Request] = None, baseline.request

    def layout(self, choice: Choice, units: Units) -> Layout | str:
        """Return the layout of a choice, or the refusing rule's message."""
        # The destination belongs to the key of the device, since remote buffers change the device.
        device_key = choice.ipus, choice.mapping, choice.offload, choice.destination
        key = (*device_key, choice.schedule, choice.sync, choice.micro_batch_size, choice.recompute)
        if isinstance(layout := self._layouts.get(key), str):
            return layout
        request_key = replace(choice, order="AUTO"), units
        if request_key != self._last_request[0]:  # the search asks for a choice's orders one after the other
            changes = request_key[0].changes(self._baseline, units, range(choice.stages))
            self._last_request = request_key, time_alone(self._baseline.request, changes)
        auto_request = self._last_request[1]
        if layout is None:
            layout = self._layouts[key] = self._compute(choice, auto_request)
        if isinstance(layout, str):
            return layout
        system = layout.system if choice.order == "AUTO" else layout.system.reordered(choice.order)
        findings = runs.Findings(auto_request.is_set)
        training = layout.plan.shape.training
        offload = runs.resolve_offloads(auto_request.options, system, training, units.names, findings)
        try:
            offload = findings.settle(offload)
        except RequestError as error:
            return str(error)
        if (terms := self._terms.get((*key, choice.order))) is None:
            independent = auto_request.options.system.sync_replicas_independently
            device = system.replica(0) if independent and layout.plan.sync.has_time_steps else system
            terms = self._terms[*key, choice.order] = terms_on(device, layout.plan, layout.terms.passes)
        return replace(layout, system=system, offload=offload, terms=terms)

    def one_by_one(self, choice: Choice) -> bool:
        """Return whether micro-batches run strictly one after the other under any count."""
        return shared()(_one_by_one, *self._shape(choice))

    def multiple(self, choice: Choice) -> int | None:
        """Return the divisor that the choice's schedule asks of counts; None if the schedule refuses the mapping."""
        schedule, shape = self._shape(choice)
        with suppress(IpusimError):
            return schedule.multiple(shape)
        return None

    def _shape(self, choice: Choice) -> tuple[Schedule, pipelines.PlanShape]:
        """Return the schedule, and the smallest possible shape of a choice."""
        schedule = schedules.schedule_of(choice.schedule, self._baseline.request.folder)
        return schedule, pipelines.PlanShape(
            mapping=choice.mapping,
            micro_batches=self._baseline.serialization,
            training=self._baseline.training,
            recompute=choice.recompute == rules.THEN_BACKPROPAGATE,
            recompute_inline=choice.recompute == rules.INTERLEAVED,
            serialization=self._baseline.serialization,
            **runs.order_options(self._baseline.request.options.pipeline, schedule),
        )

    def _compute(self, choice: Choice, request: Request) -> Layout | str:
        """Return the layout shared by choices that differ only in selection order and offloading."""
        schedule = schedules.schedule_of(choice.schedule, request.folder)
        if schedule.mirrored:
            return f"The schedule '{schedule.name}' has two copies of each stage, which suggest cannot search."
        if schedule.segments > 1:
            return f"The schedule '{schedule.name}' runs segments of a micro-batch, which suggest cannot search."
        try:
            system, plan = runs.device_and_plan(request, schedule, self._baseline.training)
        except RequestError as error:
            return str(error)
        if plan.order.joined.any() and request.options.pipeline.overlapped != "sum":
            return (
                f"The schedule '{schedule.name}' has composite passes, which suggest prices only as the sum of "
                "both passes."
            )
        terms = Terms(pass_terms(plan, inline=choice.recompute == rules.INTERLEAVED))
        return Layout(system, plan, pipelines.Offload(), terms, live_tensors(plan))


def _one_by_one(schedule: Schedule, shape: pipelines.PlanShape) -> bool:
    with suppress(IpusimError):
        return schedule.multiple(shape) == 1 and schedule.order(shape).offsets == (0,)
    return False

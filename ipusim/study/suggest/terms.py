"""What any cut of a model takes at least under a Plan, as sums of maxima of what its stages take.

In lock-step a time-step lasts as long as its busiest IPU, and then comes its copy: a term for each kind of time-step,
with a row for each IPU. In point-to-point an IPU begins when the first micro-batch has come to it, runs its passes,
and the last gradient has yet to go back: one term, whose rows are these ways through the pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.hardware.copies import NOTHING_FIXED, bytes_by_direction
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.system import System
from ipusim.model.profile import StageProfile
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Edge
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.copies import copy_costs, send_costs, traffic
from ipusim.study.suggest.units import KINDS

Numbers = npt.NDArray[np.float64]
#: Kinds and stages of some passes.
Passes = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
#: In which of KINDS each pass is counted.
_KIND_OF: Final = {kind: KINDS.index(kind) for kind in KINDS} | {Pass.RECOMPUTE: KINDS.index(Pass.FORWARD)}
#: Bytes of a tensor by which the rate of its way is told.
_LARGE: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class Columns:
    """What a stage is described by, in a row of numbers: its passes of each kind, what it sends, and its update.

    Attributes:
        stages: how many there are.
    """

    stages: int

    @property
    def count(self) -> int:
        """The numbers in a row; the last two are an element of the infeed and one of the outfeed."""
        return (len(KINDS) + 3) * self.stages + 2

    def at(self, kind: int, stage: int) -> int:
        """Return the column of a pass of KINDS; or of what it sends forward (4), back (5), or its update (6)."""
        return kind * self.stages + stage


FORWARD_SEND, BACKWARD_SEND, UPDATE = len(KINDS), len(KINDS) + 1, len(KINDS) + 2


@dataclass(frozen=True, eq=False)
class Term:
    """The largest of some sums, so many times.

    Attributes:
        times: how often.
        rows: a sum each, by columns.
        loads: rows in each of which a stage's passes stand once at most.
    """

    times: int
    rows: Numbers
    loads: Numbers


@dataclass(frozen=True, eq=False)
class Copies:
    """A merged copy, so many times.

    Attributes:
        times: how often.
        fixed: cycles whatever it carries.
        links: cycles a byte of each link direction, for each cut forward and then backward.
    """

    times: int
    fixed: int
    links: Numbers


@dataclass(frozen=True, eq=False)
class Sends:
    """A tensor on its way in point-to-point: by its stage and direction, cycles at once and for each byte."""

    column: int
    cut: int
    back: bool
    fixed: int
    per_byte: float


@dataclass(frozen=True, eq=False)
class Terms:
    """The least time of any cut under one Plan on one of several devices, which differ in their selection order.

    Attributes:
        columns: what a stage is described by.
        terms: times of passes and weight updates.
        copies: the merged copies on each device.
        sends: what is sent in point-to-point, as fast as on the fastest of them.
        rests: dynamic programmes that were solved already; see PlanTerms.
    """

    columns: Columns
    terms: tuple[Term, ...]
    copies: tuple[tuple[Copies, ...], ...]
    sends: tuple[Sends, ...]
    rests: dict[bytes, tuple[Numbers, Numbers]]


def on_any(devices: Sequence[Terms]) -> Terms:
    """Return the terms of whichever of ``devices`` is fastest; all are of one Plan."""
    first = devices[0]
    sends = tuple(
        replace(each[0], fixed=min(one.fixed for one in each), per_byte=min(one.per_byte for one in each))
        for each in zip(*(device.sends for device in devices), strict=True)
    )
    return replace(first, copies=tuple(copies for device in devices for copies in device.copies), sends=sends)


class PlanTerms:
    """The terms of a Plan, on any device: what several devices have in common is found once.

    Attributes:
        rests: dynamic programmes over units, by what they sum up, that were solved already.
    """

    def __init__(self, plan: Plan, system: System, inline: bool) -> None:
        """Take a Plan, and a device that it was laid out on; ``inline``: backward passes run forward passes again."""
        self._plan = plan
        self.columns = Columns(plan.shape.stages)
        self.rests: dict[bytes, tuple[Numbers, Numbers]] = {}
        if plan.sync.meets:
            self._terms: tuple[Term, ...] = tuple(_time_steps(plan, self.columns, inline))
            costs = copy_costs(plan, _one_byte(plan), system)
            times = Counter(costs.copy_of)
            self._copies = [
                (times[number], copy.edges, copy.fixed != NOTHING_FIXED)
                for number, copy in enumerate(costs.meetings[0])
            ]
        else:
            self._terms, self._copies = (_ways(plan, self.columns, inline),), []

    def on(self, system: System, *, independent: bool) -> Terms:
        """Return the terms on a device whose replicas wait for each other after time-steps, or are ``independent``."""
        plan = self._plan
        if plan.sync.meets:
            device = system.replica(0) if independent else system
            copies = tuple(_copies(plan, device, *each) for each in self._copies)
            return Terms(self.columns, self._terms, (copies,), (), self.rests)
        return Terms(self.columns, self._terms, ((),), tuple(_sends(plan, system, self.columns)), self.rests)


def _work(passes: Passes, columns: Columns, inline: bool, groups: npt.NDArray[np.int64], count: int) -> Numbers:
    """Return how often each column stands in each of ``count`` groups of passes; ``groups`` are theirs."""
    kind, stage = passes
    kinds = np.array([_KIND_OF[each] for each in Pass])[kind]
    places = groups * columns.count + kinds * columns.stages + stage
    if inline:
        again = np.isin(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT)) & (stage < columns.stages - 1)
        places = np.concatenate([places, groups[again] * columns.count + stage[again]])
    found = np.bincount(places, minlength=count * columns.count).reshape(count, columns.count)
    return found.astype(np.float64)


def _time_steps(plan: Plan, columns: Columns, inline: bool) -> Iterator[Term]:
    """Yield a term for each kind of time-step, then that of the weight updates."""
    shape = plan.shape
    counts = _work((plan.kind, plan.stage), columns, inline, plan.time_step, plan.emitted + 1)
    if not shape.overlapped_io:
        fed = (plan.kind == Pass.FORWARD) & (plan.stage == 0)
        np.add.at(counts, (plan.time_step[fed], columns.count - 2), 1)
        given = (plan.kind == Pass.FORWARD) & (plan.stage == shape.stages - 1)
        np.add.at(counts, (plan.time_step[given] + 1, columns.count - 1), 1)
    kinds, times = _distinct(counts)
    owner = np.full(columns.count, -1)
    for kind in range(len(KINDS)):
        owner[kind * shape.stages : (kind + 1) * shape.stages] = shape.mapping
    owner[-2:] = shape.mapping[0], shape.mapping[-1]
    masks = np.array([owner == ipu for ipu in plan.ipus])
    for kind, often in zip(kinds, times.tolist(), strict=True):
        if kind.any():
            rows = kind * masks
            yield Term(often, rows, rows)
    if shape.training:
        yield _updates(plan, columns)


def _distinct(counts: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Return the distinct rows of small whole numbers, and how often each comes; sorted bytes are the fastest way."""
    rows = np.ascontiguousarray(counts.astype(np.uint8))
    packed = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, times = np.unique(packed, return_index=True, return_counts=True)
    return counts[first], times


def _updates(plan: Plan, columns: Columns) -> Term:
    rows = np.zeros((len(plan.ipus), columns.count))
    for stage, ipu in enumerate(plan.shape.mapping):
        rows[plan.ipus.index(ipu), columns.at(UPDATE, stage)] = 1
    return Term(1, rows, rows)


def _ways(plan: Plan, columns: Columns, inline: bool) -> Term:
    """Return the ways through a pipeline in point-to-point."""
    shape, ipus = plan.shape, plan.ipus
    place = np.searchsorted(ipus, plan.ipu)
    loads = _work((plan.kind, plan.stage), columns, inline, place, len(ipus))
    update = _updates(plan, columns).rows if shape.training else np.zeros_like(loads)
    rows = []
    back = KINDS.index(Pass.INPUT_GRADIENT if Pass.INPUT_GRADIENT in plan.kind else Pass.BACKWARD)
    for number, ipu in enumerate(ipus):
        own = [stage for stage, each in enumerate(shape.mapping) if each == ipu]
        head = np.zeros(columns.count)
        for stage in range(min(own)):
            head[columns.at(0, stage)] += 1
            head[columns.at(FORWARD_SEND, stage)] += 1
        if own[0] == 0:
            head[-2] += 1
        rows.append(head + loads[number] + update[number])
        if shape.training:
            last = (plan.ipu == ipu) & (plan.stage == min(own)) & (plan.kind == KINDS[back])
            until = np.flatnonzero(last)[-1]
            done = np.flatnonzero((plan.ipu == ipu) & (np.arange(len(plan.ipu)) <= until))
            passes = plan.kind[done], plan.stage[done]
            part = _work(passes, columns, inline, np.zeros(len(done), dtype=np.int64), 1)[0]
            tail = np.zeros(columns.count)
            for stage in range(min(own)):
                tail[columns.at(back, stage)] += 1
                tail[columns.at(BACKWARD_SEND, stage + 1)] += 1
            rows.append(head + part + tail + update[ipus.index(shape.mapping[0])])
    return Term(1, np.array(rows), loads)


def _one_byte(plan: Plan, size: int = 1) -> PipelineProgram:
    """Return a program whose every tensor is a byte, or ``size``."""
    profile = StageProfile("one", 1, output_bytes=size, gradient_bytes=size if plan.shape.training else 0)
    return PipelineProgram((profile,) * plan.shape.stages, plan.shape)


def _copies(plan: Plan, system: System, times: int, edges: tuple[Edge, ...], meets: bool) -> Copies:
    """Return the merged copy of ``edges``, of all replicas together; one that does not meet costs nothing."""
    stages, program = plan.shape.stages, _one_byte(plan)
    links: dict[LinkDirection, Numbers] = {}
    rates: dict[LinkDirection, float] = {}
    for edge in edges:
        crossing = traffic(program, (edge,), system)
        forward = edge.source_step < plan.shape.positions
        cut = edge.source_step if forward else 2 * plan.shape.positions - 2 - edge.source_step
        routed = [(system.route(*ends), size) for ends, size in crossing.items() if size]
        for direction, size in bytes_by_direction(routed):
            each = links.setdefault(direction, np.zeros(2 * (stages - 1)))
            if direction not in rates:
                rates[direction] = 0.0 if system.free else float(system.clock_hz / direction.bytes_per_s(system.rates))
            each[cut if forward else stages - 1 + cut] += size * rates[direction]
    fixed = system.merged_copy(traffic(program, edges, system)).fixed.total_cycles if meets else 0
    rows = np.array(list(links.values())) if links else np.zeros((1, 2 * (stages - 1)))
    return Copies(times, fixed, rows)


def _sends(plan: Plan, system: System, columns: Columns) -> Iterator[Sends]:
    for (replica, source, target), send in send_costs(plan, _one_byte(plan, _LARGE), system, {}).items():
        if replica == 0:
            back = target < source
            column = columns.at(BACKWARD_SEND if back else FORWARD_SEND, source)
            yield Sends(column, min(source, target), back, send.lead_cycles, max(send.cycles - 1, 0) / _LARGE)

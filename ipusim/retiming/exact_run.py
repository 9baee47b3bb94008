"""Hold a run whose times follow exactly from Plan and Costs, without simulating events; refuse other runs.

The modules of this room compute such a run for K sets of durations at once; K is the last axis of every array. A shard
is an IPU's number within its replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil
from typing import Final, NamedTuple

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.disturbances import Dead, Delayed, Disturbance, Jitter, Lost, Slower, Stall
from ipusim.hardware.jitter import Draws
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import PASSES, Code, any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs, Send, StepCopy
from ipusim.pricing.exchanges import HostExchange
from ipusim.retiming.scaled_cycles import Cycles, scaled_cycles

#: Instructions whose times depend on the order of requests from several IPUs, with the reason for a message.
_CONTENDED_INSTRUCTIONS: Final = {
    Code.OUTSIDE: "host calls, served by the host in order of arrival",
    Code.LOOK_UP: "tables on the host, whose look-ups are served in order of arrival",
    Code.UPDATE_ROWS: "tables on the host, whose updates are served in order of arrival",
}


class PassCycles(NamedTuple):
    """Cycles of the passes of an execution.

    Attributes:
        table: cycles, shape (rows, replicas or 1, K); row 0 is zero.
        rows: table row of every instruction, shape (instructions + 1,); 0 for instructions other than passes.
    """

    table: Cycles
    rows: Cycles


@dataclass(frozen=True)
class ExactRun:
    """A run with exact times, and the durations of its parts.

    Attributes:
        plan: instructions per IPU.
        program: stages and feeds.
        system: the device.
        costs: costs of the plan on the device.
        executions: executions of the pipeline.
        between: host exchanges before an execution, by execution number.
        slower: slowing factor per slow logical IPU.
        slow_links: slowing factor per slow link direction, by its number.
        jitters: random draws of pass durations, each with the affected IPU; None for every IPU.
    """

    plan: Plan
    program: PipelineProgram
    system: System
    costs: Costs
    executions: int
    between: Mapping[int, Sequence[HostExchange]] = field(default_factory=dict)
    slower: Mapping[int, Fraction] = field(default_factory=dict)
    slow_links: Mapping[int, Fraction] = field(default_factory=dict)
    jitters: tuple[tuple[Draws, int | None], ...] = ()

    @classmethod
    def create(
        cls,
        plan: Plan,
        program: PipelineProgram,
        system: System,
        costs: Costs,
        executions: int,
        between: Mapping[int, Sequence[HostExchange]],
    ) -> ExactRun:
        """Return the run; raises NotExactError with the reason for a run without exact times."""
        slower: dict[int, Fraction] = {}
        slow_links: dict[int, Fraction] = {}
        jitters = []
        for disturbance in system.disturbances:
            match disturbance:
                case Slower(slower=factor, ipu=int(ipu), from_=0, until=None):
                    slower[ipu] = slower.get(ipu, Fraction(1)) * factor
                case Slower(slower=factor, link=(first, second), delay=0, from_=0, until=None) if factor != 1:
                    for number in _directions(costs, {system.ipus[first], system.ipus[second]}):
                        slow_links[number] = slow_links.get(number, Fraction(1)) * factor
                case Jitter(jitter=deviation, ipu=only_ipu, seed=seed):
                    jitters += [(Draws(seed, deviation), only_ipu)] if deviation else []
                case _ if reason := _inexactness(disturbance):
                    raise NotExactError(reason)
        if slow_links and _collectives_over_links(costs):
            raise NotExactError("collectives beside a slower cable")
        codes = set(plan.instructions[:, 1].tolist())
        for code, reason in _CONTENDED_INSTRUCTIONS.items():
            if code in codes:
                raise NotExactError(reason)
        infeeds = system.replicas * len(plan.shape.copies)
        if costs.host.data and infeeds > 1:
            raise NotExactError("infeeds that share the host's data rate")
        if Code.MOVE in codes and (
            not plan.sync.has_time_steps or (plan.shape.overlapped_io and _moves_take_time(costs))
        ):
            raise NotExactError("activations that move during passes")
        is_stream = any_of(plan.instructions[:, 1], (Code.LOAD, Code.STORE)) & (plan.instructions[:, 2] >= 0)
        if (is_stream.any() or _moves_take_time(costs)) and not (
            plan.sync.has_time_steps and len(costs.copies.by_group) == 1
        ):
            raise NotExactError("transfers from and to Streaming Memory between which IPUs do not meet")
        return cls(plan, program, system, costs, executions, between, slower, slow_links, tuple(jitters))

    @cached_property
    def codes(self) -> list[int]:
        """Instruction codes as Python integers; NumPy compares integers with enumerations slowly."""
        codes: list[int] = self.plan.instructions[:, 1].tolist()
        return codes

    @cached_property
    def replicas(self) -> int:
        """Length of the axis of replicas: 1 if replicas take equally long."""
        costs = self.costs
        differ = self.slower or self.slow_links or self.jitters or self.has_streams
        sends = (
            (send.lead_cycles, send.cycles) == (first.lead_cycles, first.cycles)
            for (_, pipeline_copy, source, target), send in costs.sends.items()
            for first in [costs.sends.get((0, pipeline_copy, source, target), Send())]
        )
        has_equal_replicas = not differ and all(sends) and (self.replicas_meet or not self.plan.sync.has_time_steps)
        return 1 if has_equal_replicas else self.system.replicas

    @property
    def has_streams(self) -> bool:
        """Whether any bytes are loaded from or stored in Streaming Memory."""
        costs = self.costs
        return bool(costs.pass_streams or costs.update_streams) or _moves_take_time(costs)

    @property
    def replicas_meet(self) -> bool:
        """Whether replicas meet after time-steps and executions."""
        return len(self.costs.copies.by_group) == 1

    def ipus(self, shard: int) -> list[int]:
        """Return the logical IPUs of a shard, one per replica."""
        return [replica * self.system.shards + shard for replica in range(self.system.replicas)]

    @cached_property
    def all_ipus(self) -> tuple[int, ...]:
        """Logical IPUs that hold a stage, across replicas."""
        return tuple(ipu for shard in self.plan.ipus for ipu in self.ipus(shard))

    def slowed_cycles(self, cycles: int, ipus: Iterable[int]) -> int:
        """Return the cycles of work shared by IPUs, which ends with the slowest IPU."""
        factors = [self.slower.get(ipu, Fraction(1)) for ipu in ipus] if self.slower else []
        return max([ceil(int(cycles) * factor) for factor in factors] or [int(cycles)])

    def send_cycles(self, replica: int, pipeline_copy: int, source: int, target: int) -> tuple[int, int]:
        """Return the cycles until a tensor's first byte leaves, and its last arrives."""
        send = self.costs.sends.get((replica, pipeline_copy, source, target), Send())
        mapping = self.plan.shape.copies[pipeline_copy]
        ends = (self.ipus(mapping[stage])[replica] for stage in (source, target))
        lead = self.slowed_cycles(send.lead_cycles, ends)
        return lead, lead + self.link_cycles(send)

    def link_cycles(self, send: Send) -> int:
        """Return the cycles from a tensor's first byte to its last, alone on its links."""
        if not (send.links and send.cycles):
            return 0
        if self.slow_links.keys().isdisjoint(send.links):
            return int(send.cycles)
        return ceil(send.bytes / self._link_rate(send))

    def joint_link_cycles(self, sends: Sequence[Send]) -> list[int]:
        """Return the cycles from first to last byte of every tensor, for simultaneous tensors with a common route.

        Tensors have equal shares of the links' rate. Ends are whole cycles.
        """
        served, cycles, ends = Fraction(0), 0, [0] * len(sends)
        by_size = sorted(range(len(sends)), key=lambda number: sends[number].bytes)
        for sharers, number in zip(range(len(sends), 0, -1), by_size, strict=True):
            rate = self._link_rate(sends[number]) / sharers
            further_cycles = max(0, ceil((sends[number].bytes - served) / rate))
            cycles, served = cycles + further_cycles, served + further_cycles * rate
            ends[number] = cycles
        return ends

    def _link_rate(self, send: Send) -> Fraction:
        """Return the bytes per cycle of the slowest link of a tensor's route."""
        rates = self.system.rates
        return (
            min(self.costs.links[link].bytes_per_s(rates) / self.slow_links.get(link, 1) for link in send.links)
            / self.system.clock_hz
        )

    def copy_cycles(self, copy: StepCopy, ipus: Sequence[int]) -> int:
        """Return the cycles of a merged copy between IPUs."""
        fixed_costs = copy.fixed
        lead = (
            fixed_costs.sync_cycles,
            fixed_costs.pre_copy_cycles,
            fixed_costs.exchange_cycles + fixed_costs.latency_cycles,
        )
        carrying_cycles = max(
            (ceil(int(share.cycles) * self.slow_links.get(share.link, 1)) for share in copy.links), default=0
        )
        post_copy_cycles = self.slowed_cycles(fixed_costs.post_copy_cycles, ipus) if copy.links else 0
        return sum(self.slowed_cycles(part, ipus) for part in lead) + carrying_cycles + post_copy_cycles

    def collective_cycles(self, cost: CollectiveCost, ipus: Sequence[int]) -> int:
        """Return the cycles of a collective; each round begins with a synchronisation."""
        lead = self.slowed_cycles(cost.lead_cycles, ipus)
        cycles_of: dict[int, int] = {}
        for round_cost in cost.rounds:
            if id(round_cost) not in cycles_of:
                busiest = int(round_cost.latency_cycles) + int(round_cost.transfer_cycles)
                cycles_of[id(round_cost)] = (
                    busiest if round_cost.links else self.slowed_cycles(round_cost.latency_cycles, ipus)
                )
        return len(cost.rounds) * lead + sum(cycles_of[id(round_cost)] for round_cost in cost.rounds)

    def cycles_before(self, execution: int) -> int:
        """Return the cycles of host work before execution number ``execution``."""
        repeat_count = self.program.repeat_count
        host_cycles = int(self.costs.host.cycles_after(execution, repeat_count)) if execution else 0
        exchanges = () if execution % repeat_count else self.between.get(execution, ())
        return host_cycles + sum(int(exchange.cycles(self.system)) for exchange in exchanges)

    @cached_property
    def durations(self) -> Cycles:
        """Priced cycles of every pass, shape (1, kinds, stages)."""
        stages = range(self.plan.shape.stages)
        return np.array([[[self.costs.passes.get((kind, stage), 0) for stage in stages] for kind in Pass]], np.int64)

    @cached_property
    def _composites(self) -> tuple[list[tuple[tuple[int, int], ...]], Cycles]:
        """Distinct composite passes, and the table row of every instruction's cycles.

        Rows beyond plain passes are the parts of composite passes.
        """
        _, code, stage, micro_batch, _ = self.plan.instructions.T
        passes = np.flatnonzero(code < PASSES)
        index = np.zeros(len(code) + 1, np.int64)
        index[passes] = 1 + code[passes] * self.plan.shape.stages + stage[passes]
        first, kinds = 1 + PASSES * self.plan.shape.stages, dict[tuple[tuple[int, int], ...], int]()
        slots = list(self.costs.composites(self.plan))
        if slots:
            ops = np.column_stack([code, stage, micro_batch])[passes].tolist()
            row_of = dict(zip(map(tuple, ops), passes.tolist(), strict=True))
        for slot in slots:
            kind = tuple(op[:2] for op in slot)
            if kind not in kinds:
                kinds[kind], first = first, first + len(kind)
            index[[row_of[op] for op in slot]] = range(kinds[kind], kinds[kind] + len(kind))
        return list(kinds), index

    def cycles(self, durations: Cycles, execution: int, seeds: Cycles | None = None) -> PassCycles:
        """Return the cycles of the passes of an execution.

        Args:
            durations: priced cycles, shape (K, kinds, stages).
            execution: number of the execution.
            seeds: seeds of the jitters, shape (K, jitters); by default the jitters' seeds.
        """
        composites, index = self._composites
        parts = [np.zeros((1, len(durations)), np.int64), durations.reshape(len(durations), -1).T]
        parts += [self._parts(durations, slot) for slot in composites]
        table = np.concatenate(parts)[:, np.newaxis]
        if not (self.slower or self.jitters):
            return PassCycles(table, index)
        rows = np.flatnonzero(index)
        cycles, instructions = table[index[rows]], self.plan.instructions[rows]
        pass_cycles = scaled_cycles(
            cycles, instructions, self.system, execution, slower=self.slower, jitters=self.jitters, seeds=seeds
        )
        row_of = np.zeros(len(index), np.int64)
        row_of[rows] = range(1, len(rows) + 1)
        return PassCycles(np.concatenate([np.zeros_like(pass_cycles[:1]), pass_cycles]), row_of)

    def _parts(self, durations: Cycles, slot: Sequence[tuple[int, int]]) -> Cycles:
        """Return the cycles of the passes within a composite pass, shape (passes, K)."""
        pass_cycles = [durations[:, kind, stage] for kind, stage in slot]
        ends = [np.zeros(len(durations), np.int64), *accumulate(pass_cycles)]
        if isinstance(self.costs.overlapped, int):
            composite_cycles = np.full(len(durations), int(self.costs.overlapped))
        else:
            forward = sum(part for part, (kind, _) in zip(pass_cycles, slot, strict=True) if kind == Pass.FORWARD)
            composite_cycles = np.maximum(forward, ends[-1] - forward)
        sum_of_parts = np.maximum(ends[-1], 1)
        shares = [
            composite_cycles * end // sum_of_parts - composite_cycles * begin // sum_of_parts
            for begin, end in pairwise(ends)
        ]
        shares[-1] = np.where(ends[-1] == 0, composite_cycles, shares[-1])
        return np.stack(shares)


def _directions(costs: Costs, cable: set[int]) -> list[int]:
    """Return the numbers of the link directions of a cable between two physical IPUs."""
    links = enumerate(costs.links)
    return [number for number, link in links if {link.source, link.target} == cable and not link.is_limit]


def _collectives_over_links(costs: Costs) -> bool:
    """Return whether IPUs have joint work over links."""
    sums = costs.copy_sum, costs.gradient_sum, costs.host_sum and costs.host_sum.over_links
    return any((*sums, costs.weight_gathers, costs.update_gathers, costs.collectives))


def _moves_take_time(costs: Costs) -> bool:
    """Return whether moves of activations take time."""
    return any(send.bytes for send in costs.moves.values())


def _inexactness(disturbance: Disturbance) -> str:
    """Return the reason why a disturbance makes times inexact, or an empty text."""
    match disturbance:
        case Slower(slower=slower, delay=delay, from_=first, until=until):
            slow_part = "cable, or a slower host or memory" if disturbance.ipu is None else "IPU"
            reason = f"a temporarily slower {slow_part}"
            return "" if first == until or (slower == 1 and not delay) else reason
        case Delayed(delay=delay, from_=first, until=until):
            return "a cable with a delay" if delay and first != until else ""
        case Stall(stall=stall):
            return "a temporarily stopped host" if stall else ""
        case Dead():
            return "a cable that dies in the middle of the run" if disturbance.later else ""
    return "an IPU that is lost" if isinstance(disturbance, Lost) else f"a disturbance of the kind {disturbance.kind!r}"


def body_and_ending(plan: Plan) -> tuple[Cycles, Cycles]:
    """Return the numbers of the pipeline's instructions, and of the instructions after the pipeline."""
    _, code, stage, _, _ = plan.instructions.T
    joint = (Code.SUM_COPIES, Code.ALL_REDUCE, Code.HOST_SUM, Code.HOST_UPDATE)
    ending = any_of(code, (*joint, Code.UPDATE, Code.OUTFEED_TOTAL, Code.END))
    ending |= any_of(code, (Code.LOAD, Code.STORE, Code.GATHER, Code.RELEASE)) & (stage < 0)
    return np.flatnonzero(~ending), np.flatnonzero(ending)

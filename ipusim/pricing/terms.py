"""List the costs of a Plan's parts, such as passes, with the laws (formulas) and numbers behind each cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.formulas import FormulaText, Sum, addends, formula_text
from ipusim.hardware.system import System
from ipusim.lowering.streams import Stream
from ipusim.pipeline.instructions import NONE, Code
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.costs import Costs
from ipusim.pricing.laws import Law, Term

_Call = TypeVar("_Call")


@dataclass(frozen=True)
class PricedPart:
    """A part of a Plan, with costs: a pass, a copy, an update.

    Attributes:
        label: label of the part.
        cycles: terms and sums of terms.
        times: occurrences in a pipeline execution, summed over replicas.
        spans: Timeline spans of one occurrence; 0 for parts of a weight update, which are counted elsewhere.
    """

    label: str
    cycles: Sequence[int]
    times: int = 1
    spans: int = 0


@dataclass(frozen=True)
class TermRow:
    """Cost of a Plan's part by a single law.

    Attributes:
        label: label of the part, for example ``forward of stage 0``.
        law: law of the cost.
        cycles: total cycles.
        addends: formulas that sum to the cycles, with numbers of occurrences.
    """

    label: str
    law: Law
    cycles: int
    addends: tuple[tuple[FormulaText, int], ...]

    def formula(self, most: int | None = None) -> str:
        """Return the formula with its numbers, limited to the first ``most`` addends."""
        addends = self.addends[:most]
        text = " + ".join(formula.addend(times) for formula, times in addends)
        more_count = len(self.addends) - len(addends)
        return f"{text} + {more_count} more" if more_count else text


def terms_of(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> tuple[TermRow, ...]:
    """Return a row for each law in the cost of each part of ``plan``."""
    names = [profile.name for profile in program.stages]
    return tuple(row for priced_part in priced_parts(costs, plan, names, system) for row in _rows(priced_part))


def _rows(priced_part: PricedPart) -> Iterator[TermRow]:
    """Yield a row for each law in the cost of a part."""
    by_law: dict[Law, tuple[list[int], Counter[FormulaText]]] = {}
    for part in priced_part.cycles:
        for term, times in addends(part):
            if isinstance(term, Term) and term:
                values, formulas = by_law.setdefault(term.law, ([], Counter()))
                values.append(times * term)
                for addend, often in addends(term.cycles):
                    formulas[formula_text(addend)] += times * often
    for law in sorted(by_law, key=laws.LAWS.index):
        values, formulas = by_law[law]
        yield TermRow(priced_part.label, law, sum(values), tuple(formulas.items()))


def priced_parts(costs: Costs, plan: Plan, names: Sequence[str], system: System) -> Iterator[PricedPart]:
    """Yield the parts of a run with a cost; ``names`` are the names of the stages."""
    stages = plan.shape.stages
    often = enumerate(np.bincount(plan.kind * stages + plan.stage).tolist())
    passes = _Passes(plan, names, Counter({divmod(key, stages): system.replicas * runs for key, runs in often if runs}))
    yield from _passes(costs, passes, system)
    yield from _copies(costs, passes, system)
    yield from _host(costs, passes, system)
    yield from _outside(costs, passes)
    yield from _updates(costs, system)
    yield from _streams(costs, passes, system)
    yield from _moves(costs, passes, system)
    yield from _collectives(costs, passes, system)
    for (code, stage), cycles in costs.instructions.items():
        name = Code(code).word if stage == NONE else f"{Code(code).word} of {names[stage]}"
        runs = system.replicas * plan.instructions_of(code)[stage]
        yield PricedPart(name, (cycles,), runs, laws.INSTRUCTION_LAWS[Code(code)].spans)


@dataclass(frozen=True)
class _Passes:
    """Passes of a Plan: stage names, and run counts by (pass, stage) over the replicas."""

    plan: Plan
    names: Sequence[str]
    runs: Counter[tuple[int, int]]

    def has(self, kind: int) -> bool:
        return any(kind == pass_kind for pass_kind, _ in self.runs)

    def name(self, kind: int, stage: int) -> str:
        return f"{Pass(kind).name.lower().replace('_', ' ')} of {self.names[stage]}"

    def calls_in(self, kind: int, stage: int, calls: Sequence[_Call]) -> Iterator[tuple[_Call, str, str]]:
        """Yield every call inside a pass, with text for its number (empty for a single call) and for the pass."""
        for number, call in enumerate(calls if self.has(kind) else (), 1):
            yield call, f" {number}" if len(calls) > 1 else "", f"in {self.name(kind, stage)}"


def _passes(costs: Costs, passes: _Passes, system: System) -> Iterator[PricedPart]:
    shape = passes.plan.shape
    kinds = [Pass.FORWARD, *([Pass.RECOMPUTE] if shape.recompute else [])]
    kinds[1:1] = [kind for kind in (Pass.BACKWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if passes.has(kind)]
    slots = Counter(tuple((kind, stage) for kind, stage, _ in slot) for slot in costs.composites(passes.plan))
    slot_runs: Counter[tuple[int, int]] = Counter()
    for slot, times in slots.items():
        slot_runs.update(dict.fromkeys(slot, times * system.replicas))
    for stage in range(shape.stages):
        for kind in kinds:
            times = passes.runs[kind, stage] - slot_runs[kind, stage]
            yield PricedPart(passes.name(kind, stage), (costs.passes[kind, stage],), times, 1)
    for slot, times in slots.items():
        name = " and ".join(passes.name(*key) for key in slot)
        yield PricedPart(f"{name} in one slot", (costs.slot_cycles(slot),), times * system.replicas, len(slot))
    for ipu in passes.plan.ipus if shape.training else ():
        yield PricedPart(f"update on IPU {ipu}", (costs.updates[ipu],))


def _copies(costs: Costs, passes: _Passes, system: System) -> Iterator[PricedPart]:
    """Yield distinct copies between IPUs per group of meeting replicas, and single sends."""
    plan, copies_by_group, names = passes.plan, costs.copies.by_group, passes.names
    counts = Counter(costs.copies.copy_of)
    for replica, copies in enumerate(copies_by_group):
        waits = system.replicas * len(plan.ipus) // len(copies_by_group)
        for number, step_copy in enumerate(copies):
            name = f"copy {number}" if len(copies) > 1 else "merged copy"
            link = (laws.COPY_LINK(max(share.cycles for share in step_copy.links)),) if step_copy.links else ()
            parts = (*laws.fixed_terms(step_copy.fixed), *link)
            spans = waits + len(step_copy.links) + _spans(parts) if parts or system.free else 0
            yield PricedPart(
                f"{name} of replica {replica}" if len(copies_by_group) > 1 else name, parts, counts[number], spans
            )
    for (replica, copy, source, target), send in costs.sends.items():
        name = f"send {names[source]}→{names[target]}{f' of replica {replica}' if system.replicas > 1 else ''}"
        name += f" in copy {copy}" if plan.shape.mirrored else ""
        times = len(range(copy, plan.shape.micro_batches, len(plan.shape.copies)))
        yield PricedPart(name, (send.lead_cycles, send.cycles), times, 1 + len(send.links))


def _spans(cycles: Sequence[int]) -> int:
    """Count the spans outside passes."""
    return sum(part.law.spans for part in cycles if isinstance(part, Term))


def _host(costs: Costs, passes: _Passes, system: System) -> Iterator[PricedPart]:
    """Yield the copies between the host and the IPUs for each micro-batch."""
    micro_batches = system.replicas * passes.plan.shape.micro_batches
    data = (costs.host.data,) if costs.host.data else ()
    for name, parts in (
        ("infeed element", (costs.host.infeed, costs.host.fill, *data)),
        ("outfeed element", (costs.host.outfeed, costs.host.drain)),
    ):
        yield PricedPart(name, parts, micro_batches * bool(parts[0]), _spans(parts))
    for stage, tables in costs.tables.items():
        looked_up, row_update = (tables.ids, tables.gather, tables.rows), (tables.gradients, tables.apply)
        backward = passes.runs[Pass.BACKWARD, stage] + passes.runs[Pass.INPUT_GRADIENT, stage]
        forward = passes.runs[Pass.FORWARD, stage]
        yield PricedPart(f"look-up of {passes.names[stage]}", looked_up, forward, _spans(looked_up))
        yield PricedPart(f"row update of {passes.names[stage]}", row_update, backward, _spans(row_update))


def _outside(costs: Costs, passes: _Passes) -> Iterator[PricedPart]:
    """Yield the host calls of passes."""
    for (kind, stage), calls in costs.host_calls.items():
        for call, number, place in passes.calls_in(kind, stage, calls):
            parts = (call.send, call.host, call.read)
            yield PricedPart(f"{call.call.name}{number} {place}", parts, passes.runs[kind, stage], _spans(parts))


def _updates(costs: Costs, system: System) -> Iterator[PricedPart]:
    """Yield the work of hosts for a weight update, and between session runs."""
    if (host_sum := costs.host_sum) is not None:
        yield PricedPart(f"sum over {system.hosts} hosts", (host_sum.write, host_sum.network, host_sum.read))
    if (update := costs.host_update) is not None:
        yield PricedPart("update on the host", (update.write, update.apply, update.read))
    yield PricedPart("weight update with its state off chip", (costs.host.state,))
    yield PricedPart("session run", (costs.host.call,))


def _streams(costs: Costs, passes: _Passes, system: System) -> Iterator[PricedPart]:
    """Yield loads and stores of IPUs, each priced as the only transfer of its Streaming Memory."""
    for (kind, stage), stream in costs.pass_streams.items():
        parts = _streamed(stream, system)
        yield PricedPart(passes.name(kind, stage), parts, passes.runs[kind, stage], len(parts))
    for ipu, stream in costs.update_streams.items():
        yield PricedPart(f"update on IPU {ipu}", _streamed(stream, system), system.replicas)


def _moves(costs: Costs, passes: _Passes, system: System) -> Iterator[PricedPart]:
    """Yield single moves of activations, each priced as the only transfer of its Streaming Memory or links."""
    if not costs.moves:
        return
    table = passes.plan.instructions
    ipu, _, stage, _, way = table[table[:, 1] == Code.MOVE].T
    often = Counter(zip(ipu.tolist(), stage.tolist(), way.tolist(), strict=True))
    for (replica, *key), send in costs.moves.items():
        shard, move_stage, is_back = key
        parts: Sequence[int] = (send.lead_cycles, send.cycles)
        if send.bytes and not any(parts) and not system.free:
            parts = _streamed(Stream(send.bytes) if is_back else Stream(0, send.bytes), system)
        suffix = f" of replica {replica}" if system.replicas > 1 else ""
        name = f"activations of {passes.names[move_stage]} {'back to' if is_back else 'out of'} IPU {shard}{suffix}"
        yield PricedPart(name, parts, often[shard, move_stage, is_back], 1 + len(send.links))


def _streamed(stream: Stream, system: System) -> Sequence[int]:
    assert system.streaming is not None
    rate, directions = system.streaming.share(1), zip((laws.LOAD, laws.STORE), stream, strict=True)
    return [law(system.transfer_cycles(size, rate)) for law, size in directions if size]


def _collectives(costs: Costs, passes: _Passes, system: System) -> Iterator[PricedPart]:
    if costs.copy_sum is not None:
        yield _collective(f"all-reduce of copies ({costs.copy_sum.algorithm})", costs.copy_sum.cost)
    if costs.gradient_sum is not None:
        yield _collective(f"all-reduce ({costs.gradient_sum.algorithm})", costs.gradient_sum.cost)
    if costs.host_sum is not None and (links_sum := costs.host_sum.over_links) is not None:
        yield _collective(f"all-reduce of {system.hosts} hosts ({links_sum.algorithm})", links_sum.cost)
    for stage, gather in costs.weight_gathers.items():
        runs = sum(times for (_, pass_stage), times in passes.runs.items() if pass_stage == stage)
        yield _collective(f"all-gather of stage {stage} ({gather.algorithm})", gather.cost, runs)
    for ipu, gather in costs.update_gathers.items():
        yield _collective(f"all-gather for update on IPU {ipu} ({gather.algorithm})", gather.cost)
    for (kind, stage), calls in costs.collectives.items():
        for call, number, place in passes.calls_in(kind, stage, calls):
            name = f"{call.call.operation.replace('_', '-')} ({call.algorithm}){number} {place}"
            yield _collective(name, call.cost, passes.runs[kind, stage])


def _collective(name: str, cost: CollectiveCost, runs: int | None = None) -> PricedPart:
    """Return a collective of a pass that runs ``runs`` times; None for a collective of the weight update."""
    fixed_parts = Sum(tuple((term, len(cost.rounds)) for term in laws.fixed_terms(cost.fixed)))
    parts = (fixed_parts, laws.ROUNDS(cost.rounds_cycles))
    return PricedPart(name, parts) if runs is None else PricedPart(name, parts, runs, laws.ROUNDS.spans)

"""The terms of Costs, listed: what each thing of a Plan costs by which law, with the formula and its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.formulas import Written, addends, written
from ipusim.hardware.system import System
from ipusim.lowering.streams import Stream
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.costs import Costs, StepCopy
from ipusim.pricing.laws import Law, Term

#: What something of a Plan is called, and the cycles that it is made of.
Priced = tuple[str, Sequence[int]]


@dataclass(frozen=True)
class Row:
    """What something costs by one law.

    Attributes:
        of: what costs it, such as ``forward of stage 0``.
        law: its kind.
        cycles: what it comes to.
        addends: formulas whose sum that is, and how often each is added.
    """

    of: str
    law: Law
    cycles: int
    addends: tuple[tuple[Written, int], ...]

    def formula(self, most: int | None = None) -> str:
        """Return the formula with its numbers; of more than ``most`` addends the first ones alone."""
        shown = self.addends[:most]
        text = " + ".join(formula.addend(times) for formula, times in shown)
        left = len(self.addends) - len(shown)
        return f"{text} + {left} more" if left else text


def terms(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> tuple[Row, ...]:
    """Return the terms of ``costs``, which are those of the other three; what costs nothing has none."""
    return tuple(row for of, cycles in _priced(costs, plan, program, system) for row in _rows(of, cycles))


def _rows(of: str, cycles: Sequence[int]) -> Iterator[Row]:
    """Yield a row for each law that something costs anything by."""
    by_law: dict[Law, tuple[list[int], Counter[Written]]] = {}
    for part in cycles:
        for term, times in addends(part):
            if isinstance(term, Term) and term:
                values, formulas = by_law.setdefault(term.law, ([], Counter()))
                values.append(times * term)
                for addend, often in addends(term.cycles):
                    formulas[written(addend)] += times * often
    for law in sorted(by_law, key=laws.LAWS.index):
        values, formulas = by_law[law]
        yield Row(of, law, sum(values), tuple(formulas.items()))


def _priced(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> Iterator[Priced]:
    """Yield everything that costs anything, by name, with its cycles."""
    yield from _passes(costs, plan, program)
    yield from _copies(costs, program, system)
    yield from _host(costs, program)
    yield from _outside(costs, plan, program)
    yield from _updates(costs, system)
    yield from _streams(costs, program, system)
    yield from _collectives(costs, plan, program, system)


def _passes(costs: Costs, plan: Plan, program: PipelineProgram) -> Iterator[Priced]:
    shape = program.shape
    kinds = [Pass.FORWARD, *([Pass.RECOMPUTE] if shape.recompute else [])]
    kinds[1:1] = [kind for kind in (Pass.BACKWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if kind in plan.kind]
    for stage in range(shape.stages):
        yield from ((_pass(kind, stage, program), (costs.passes[kind, stage],)) for kind in kinds)
    for ipu in plan.ipus if shape.training else ():
        yield f"update on IPU {ipu}", (costs.updates[ipu],)


def _pass(kind: int, stage: int, program: PipelineProgram) -> str:
    return f"{Pass(kind).name.lower().replace('_', ' ')} of {program.stages[stage].name}"


def _copies(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Priced]:
    """Yield each distinct copy between IPUs, of the replicas that meet for it, and each tensor sent by itself."""
    meetings, names = costs.copies.meetings, [profile.name for profile in program.stages]
    for replica, steps in enumerate(meetings):
        for which, step in enumerate(steps):
            of = f"copy {which}" if len(steps) > 1 else "merged copy"
            yield f"{of} of replica {replica}" if len(meetings) > 1 else of, _copy(step)
    for (replica, source, target), send in costs.sends.items():
        of = f"send {names[source]}→{names[target]}{f' of replica {replica}' if system.replicas > 1 else ''}"
        yield of, (send.lead_cycles, send.cycles)


def _copy(step: StepCopy) -> Sequence[int]:
    return (*laws.fixed_terms(step.fixed), laws.COPY_LINK(max((share.cycles for share in step.links), default=0)))


def _host(costs: Costs, program: PipelineProgram) -> Iterator[Priced]:
    """Yield what moves between the host and the IPUs for each micro-batch."""
    yield "infeed element", (costs.host.infeed, costs.host.fill)
    yield "outfeed element", (costs.host.outfeed, costs.host.drain)
    for stage, tables in costs.tables.items():
        name = program.stages[stage].name
        yield f"look-up of {name}", (tables.ids, tables.gather, tables.rows)
        yield f"row update of {name}", (tables.gradients, tables.apply)


def _outside(costs: Costs, plan: Plan, program: PipelineProgram) -> Iterator[Priced]:
    """Yield what passes have the host do."""
    for (kind, stage), calls in costs.outside.items():
        for number, outside in enumerate(calls if kind in plan.kind else (), 1):
            which = f" {number}" if len(calls) > 1 else ""
            of = f"{outside.call.name}{which} in {_pass(kind, stage, program)}"
            yield of, (outside.send, outside.host, outside.read)


def _updates(costs: Costs, system: System) -> Iterator[Priced]:
    """Yield what hosts do for a weight update, and between session runs."""
    if (summed := costs.host_sum) is not None:
        yield f"sum over {system.hosts} hosts", (summed.write, summed.network, summed.read)
    if (update := costs.host_update) is not None:
        yield "update on the host", (update.write, update.apply, update.read)
    yield "session run", (costs.host.call,)


def _streams(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Priced]:
    for (kind, stage), stream in costs.pass_streams.items():
        yield _pass(kind, stage, program), streamed(stream, system)
    for ipu, stream in costs.update_streams.items():
        yield f"update on IPU {ipu}", streamed(stream, system)


def streamed(stream: Stream, system: System) -> Sequence[int]:
    """Return what an IPU takes to load and to store, alone at its Streaming Memory."""
    if system.streaming is None:
        return ()
    load, store = (system.transfer_cycles(size, system.streaming.share(1)) for size in stream)
    return laws.LOAD(load), laws.STORE(store)


def _collectives(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> Iterator[Priced]:
    if costs.gradient_sum is not None:
        yield f"all-reduce ({costs.gradient_sum.algorithm})", _collective(costs.gradient_sum.cost)
    if costs.host_sum is not None and (over := costs.host_sum.over_links) is not None:
        yield f"all-reduce of {system.hosts} hosts ({over.algorithm})", _collective(over.cost)
    for stage, gather in costs.weight_gathers.items():
        yield f"all-gather of stage {stage} ({gather.algorithm})", _collective(gather.cost)
    for ipu, gather in costs.update_gathers.items():
        yield f"all-gather for update on IPU {ipu} ({gather.algorithm})", _collective(gather.cost)
    for (kind, stage), calls in costs.collectives.items():
        for number, called in enumerate(calls if kind in plan.kind else (), 1):
            which = f" {number}" if len(calls) > 1 else ""
            what = f"{called.call.operation.replace('_', '-')} ({called.algorithm}){which}"
            yield f"{what} in {_pass(kind, stage, program)}", _collective(called.cost)


def _collective(cost: CollectiveCost) -> Sequence[int]:
    return *laws.fixed_terms(cost.fixed), laws.ROUNDS(cost.rounds_cycles)

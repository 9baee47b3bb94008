"""The terms of Costs: every cycle of them again, with the formula and the numbers that it came from.

A formula is arithmetic that gives the cycles of its term exactly, in numbers, ``*``, ``/``,
``+``, ``-``, ``ceil`` and ``max``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.copies import FixedParts, nominal_sync_ns
from ipusim.hardware.links import LinkDirection
from ipusim.hardware.rates import Rates
from ipusim.hardware.system import System
from ipusim.model.outside_call import OutsideCall
from ipusim.model.profile import PassCost
from ipusim.model.work import MeasuredWork, VectorWork, Work
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing import laws
from ipusim.pricing.collectives import accumulators_by_ipu, weights_by_ipu
from ipusim.pricing.copies import traffic
from ipusim.pricing.costs import Costs, StepCopy
from ipusim.pricing.laws import Law
from ipusim.pricing.outside import given_cycles, host_calls, host_operations
from ipusim.pricing.passes import WorkCycles, leaf_cycles, leaves, pass_costs, vector_exchange, vector_launches
from ipusim.pricing.planner.rates import PlannerRates
from ipusim.pricing.planner.work import PATH_BYTES
from ipusim.pricing.price import counts_update
from ipusim.pricing.products import plans

#: The law of each part of a product's plan.
_OF_PRODUCTS: Final = {
    "launches": laws.LAUNCHES,
    "exchange": laws.EXCHANGE,
    "loading": laws.LOADING,
    "matrix": laws.MATRIX,
    "reduction": laws.REDUCTION,
    "adding": laws.ADDING,
}
#: The laws of passes, in the order of their terms.
_LAWS: Final = (*_OF_PRODUCTS.values(), laws.VECTOR, laws.MEMORY, laws.MEASURED)


@dataclass(frozen=True)
class Term:
    """A part of what something costs.

    Attributes:
        of: what costs it, such as ``forward of stage 0``.
        law: its kind.
        cycles: what it comes to.
        addends: formulas whose sum that is, and how often each is added.
    """

    of: str
    law: Law
    cycles: int
    addends: tuple[tuple[str, int], ...]

    def formula(self, most: int | None = None) -> str:
        """Return the formula with its numbers; of more than ``most`` addends the first ones alone."""
        shown = self.addends[:most]
        text = " + ".join(each if times == 1 else f"{times} * {each}" for each, times in shown)
        left = len(self.addends) - len(shown)
        return f"{text} + {left} more" if left else text


def terms(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> tuple[Term, ...]:
    """Return every term of ``costs``, which are those of the other three; what costs nothing has none."""
    return (
        *_passes(plan, program, system),
        *_copies(costs, program, system),
        *_sends(costs, program, system),
        *_host(costs, program, system),
        *_tables(costs, program, system),
        *_outside(costs, plan, program, system),
        *_host_sum(costs, program, system),
        *_host_update(costs, program, system),
        *_call(costs, system),
        *_streams(costs, program, system),
        *_collectives(costs, plan, program, system),
    )


def number(value: Fraction | int) -> str:
    """Return a number as formulas have it: exact, a decimal where it is one of few digits."""
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    text = f"{float(exact):.12g}"
    return text if Fraction(text) == exact else f"({exact.numerator} / {exact.denominator})"


def _passes(plan: Plan, program: PipelineProgram, system: System) -> Iterator[Term]:
    shape = program.shape
    kinds = [Pass.FORWARD, *([Pass.RECOMPUTE] if shape.recompute else [])]
    kinds[1:1] = [kind for kind in (Pass.BACKWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT) if kind in plan.kind]
    for stage, profile in enumerate(program.stages):
        for kind in kinds:
            yield from _work(f"{_name(kind)} of {profile.name}", pass_costs(program, kind, stage), system)
    for ipu in plan.ipus if shape.training else ():
        own = [program.stages[stage] for stage, place in enumerate(shape.mapping) if place == ipu]
        updates = tuple(profile.update for profile in own if counts_update(profile, program, system))
        yield from _work(f"update on IPU {ipu}", updates, system)


def _name(kind: Pass) -> str:
    return kind.name.lower().replace("_", " ")


def _work(of: str, costs: tuple[PassCost, ...], system: System) -> Iterator[Term]:
    """Yield the terms of a pass, each of which sums up those of its compute sets."""
    cycles: Counter[Law] = Counter()
    addends: dict[Law, Counter[str]] = {}
    for work in (leaf for cost in costs for leaf in leaves(cost)):
        for law, part, text, often in _leaf(work, leaf_cycles(work, system.ipu, system.rates), system):
            cycles[law] += often * part
            addends.setdefault(law, Counter())[text] += often
    for law in _LAWS:
        if cycles[law]:
            yield Term(of, law, cycles[law], tuple(addends[law].items()))


def _leaf(work: Work, found: WorkCycles, system: System) -> Iterator[tuple[Law, int, str, int]]:
    """Yield kind, cycles, formula and number of each term of a layer's pass that costs anything."""
    ipu, rates = system.ipu, system.rates
    if isinstance(work, MeasuredWork):
        if work.cycles:
            yield laws.MEASURED, work.cycles, str(work.cycles), 1
        return
    if work.is_nothing:
        return
    planning = PlannerRates.of(rates)
    for planned in plans(work, ipu, planning):
        for term in planned.plan.terms:
            if term.cycles:
                yield _OF_PRODUCTS[term.name], term.cycles, term.formula, planned.times
    if launches := vector_launches(work, rates):
        yield laws.LAUNCHES, launches, f"ceil({work.compute_sets} * {number(rates.compute_set_cycles)})", 1
    if work.exchange_bytes:
        nominal = f"{ipu.tiles} * {ipu.exchange_bytes_per_cycle_per_tile} * {number(rates.exchange_efficiency)}"
        yield laws.EXCHANGE, vector_exchange(work, ipu, rates), f"ceil({work.exchange_bytes} / ({nominal}))", 1
    if found.vector:
        size, path = min(work.itemsize, 4), f"{ipu.tiles} * {PATH_BYTES}"
        amount = f"{_operations(work.vector, rates)} * {size} * {number(rates.vector_slowdown)}"
        yield laws.VECTOR, found.vector, f"ceil({amount} / ({path}))", 1
    if found.memory_beyond:
        memory = f"ceil({work.sram_bytes} / ({ipu.tiles} * {ipu.sram_bytes_per_cycle_per_tile}))"
        yield laws.MEMORY, found.memory_beyond, f"{memory} - {found.loading + found.matrix + found.vector}", 1


def _operations(vector: VectorWork, rates: Rates) -> str:
    """Return the kinds of vector work in the order of their law, up to the last of which there is any."""
    kinds = [str(each) for each in (vector.elementwise, vector.reductions, vector.quotients)]
    if vector.transcendentals:
        kinds.append(f"{number(rates.transcendental_operations)} * {vector.transcendentals}")
    while len(kinds) > 1 and kinds[-1] == "0":
        kinds.pop()
    return f"({' + '.join(kinds)})" if len(kinds) > 1 else kinds[0]


def _copies(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield the terms of each distinct copy between IPUs, of the replicas that meet for it."""
    copies = costs.copies
    several = len(copies.meetings) > 1
    for replica, steps in enumerate(copies.meetings):
        device = system.replica(replica) if several else system
        for which, step in enumerate(steps):
            of = f"copy {which}" if len(steps) > 1 else "merged copy"
            yield from _copy(f"{of} of replica {replica}" if several else of, step, costs, program, device)


def _copy(of: str, step: StepCopy, costs: Costs, program: PipelineProgram, device: System) -> Iterator[Term]:
    fixed = step.fixed
    yield from _meeting(of, fixed, device)
    if fixed.latency_cycles:
        crossing = [pair for pair, size in traffic(program, step.edges, device).items() if size]
        routes = [device.route(*pair) for pair in crossing]
        longest = max(sum((way.latency_ns(device.rates) for way in route), Fraction(0)) for route in routes)
        yield _once(of, laws.COPY_LATENCY, fixed.latency_cycles, _time(longest, device))
    if step.links:
        busiest = max(step.links, key=lambda share: share.cycles)
        yield _once(of, laws.COPY_LINK, busiest.cycles, _link(costs.links[busiest.link], busiest.bytes, device))
    yield from _post_copy(of, fixed, device)


def _sends(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield the terms of each tensor that is sent by itself, with its links to itself."""
    names = [profile.name for profile in program.stages]
    for (replica, source, target), send in costs.sends.items():
        of = f"send {names[source]}→{names[target]}{f' of replica {replica}' if system.replicas > 1 else ''}"
        here, there = (replica * system.shards + program.shape.mapping[stage] for stage in (source, target))
        cost = system.merged_copy({(here, there): send.bytes})
        fixed = cost.fixed._replace(sync_cycles=0)
        yield from _meeting(of, fixed, system)
        if fixed.latency_cycles:
            latency = sum((way.latency_ns(system.rates) for way in system.route(here, there)), Fraction(0))
            yield _once(of, laws.COPY_LATENCY, fixed.latency_cycles, _time(latency, system))
        if send.cycles:
            busiest = max(cost.links, key=lambda load: load.cycles)
            yield _once(of, laws.COPY_LINK, send.cycles, _link(busiest.direction, send.bytes, system))
        yield from _post_copy(of, fixed, system)


def _meeting(of: str, fixed: FixedParts, device: System) -> Iterator[Term]:
    """Yield what it takes until the IPUs of a device have met and the bytes of their exchange are on their way."""
    rates = device.rates
    if fixed.sync_cycles:
        signal = _time(nominal_sync_ns(rates, device.count, device.pods), device)
        text = f"{signal} + {device.ipu.internal_sync_cycles} + {_whole(rates.sync_skew_cycles)}"
        yield _once(of, laws.COPY_SYNC, fixed.sync_cycles, text)
    if fixed.pre_copy_cycles:
        yield _once(of, laws.PRE_COPY, fixed.pre_copy_cycles, _whole(rates.pre_copy_cycles))
    if fixed.exchange_cycles:
        text = _time(rates.exchange_ns(device.count), device)
        yield _once(of, laws.GLOBAL_EXCHANGE, fixed.exchange_cycles, text)


def _post_copy(of: str, fixed: FixedParts, device: System) -> Iterator[Term]:
    if fixed.post_copy_cycles:
        yield _once(of, laws.POST_COPY, fixed.post_copy_cycles, _whole(device.rates.post_copy_cycles))


def _host(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    host, rates = costs.host, system.host
    infeed, outfeed = program.infeed.element_bytes, program.outfeed.element_bytes
    for of, law, cycles, size, rate in (
        ("infeed element", laws.INFEED, host.infeed, infeed, rates.infeed_bytes_per_s),
        ("infeed element", laws.FILL, host.fill, infeed, rates.host_fill_bytes_per_s),
        ("outfeed element", laws.OUTFEED, host.outfeed, outfeed, rates.outfeed_bytes_per_s),
        ("outfeed element", laws.DRAIN, host.drain, outfeed, rates.host_drain_bytes_per_s),
    ):
        if cycles:
            yield _once(of, law, cycles, _transfer(size, rate, system))


def _tables(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield what stages move between their IPUs and tables on the host."""
    rates = system.host
    for stage, cost in costs.tables.items():
        moved, of = cost.bytes, program.stages[stage].name
        write, read = rates.outfeed_bytes_per_s, rates.infeed_bytes_per_s
        drain = _transfer(moved.ids, rates.host_drain_bytes_per_s, system)
        fill = _transfer(moved.rows, rates.host_fill_bytes_per_s, system)
        for what, law, cycles, text in (
            ("look-up", laws.ROWS_OUT, cost.ids, _transfer(moved.ids, write, system)),
            ("look-up", laws.GATHER_ROWS, cost.gather, f"{drain} + {fill}"),
            ("look-up", laws.ROWS_IN, cost.rows, _transfer(moved.rows, read, system)),
            ("row update", laws.ROWS_OUT, cost.gradients, _transfer(moved.back, write, system)),
            ("row update", laws.APPLY_ROWS, cost.apply, _transfer(moved.back, rates.host_drain_bytes_per_s, system)),
        ):
            if cycles:
                yield _once(f"{what} of {of}", law, cycles, text)


def _outside(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield what passes have the host do."""
    host = system.host
    for (kind, stage), calls in costs.outside.items():
        for place, found in enumerate(calls if kind in plan.kind else (), 1):
            call, which = found.call, f" {place}" if len(calls) > 1 else ""
            of = f"{call.name}{which} in {_name(Pass(kind))} of {program.stages[stage].name}"
            parts = [
                *([_transfer(call.sent_bytes, host.host_drain_bytes_per_s, system)] if found.drain else []),
                *(_host_operations(call, system) if found.compute else []),
                *([_transfer(call.returned_bytes, host.host_fill_bytes_per_s, system)] if found.fill else []),
            ]
            for law, cycles, text in (
                (laws.OUTSIDE_OUT, found.send, _transfer(call.sent_bytes, host.outfeed_bytes_per_s, system)),
                (laws.OUTSIDE, found.host, " + ".join(parts)),
                (laws.OUTSIDE_IN, found.read, _transfer(call.returned_bytes, host.infeed_bytes_per_s, system)),
            ):
                if cycles:
                    yield _once(of, law, cycles, text)


def _host_operations(call: OutsideCall, system: System) -> Iterator[str]:
    """Yield the parts of what the host's operations take."""
    if not system.free and (calls := host_calls(call)):
        yield _time(calls * system.host.operation_ns, system)
    if not system.free and (operations := host_operations(call, system.rates)):
        yield f"ceil({number(operations)} * {system.clock_hz} / {number(system.host.operations_per_s)})"
    if given := given_cycles(call):
        yield str(given)


def _host_sum(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield what hosts sum up."""
    if (found := costs.host_sum) is None or found.over_links is not None:
        return
    most = max(accumulators_by_ipu(program).values())
    host, of = system.host, f"sum over {system.hosts} hosts"
    part = _transfer(-(-found.bytes // system.hosts), host.network_bytes_per_s, system)
    rounds = f"{2 * (system.hosts - 1)} * ({_time(host.network_ns, system)} + {part})"
    for law, cycles, text in (
        (laws.SUM_OUT, found.write, _transfer(most, host.outfeed_bytes_per_s, system)),
        (laws.NETWORK_SUM, found.network, rounds),
        (laws.SUM_IN, found.read, _transfer(most, host.infeed_bytes_per_s, system)),
    ):
        if cycles:
            yield _once(of, law, cycles, text)


def _host_update(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield what the host updates."""
    if (found := costs.host_update) is None:
        return
    gradients, weights = max(accumulators_by_ipu(program).values()), max(weights_by_ipu(program).values())
    host = system.host
    drain = _transfer(gradients, host.host_drain_bytes_per_s, system)
    fill = _transfer(weights, host.host_fill_bytes_per_s, system)
    for law, cycles, text in (
        (laws.SUM_OUT, found.write, _transfer(gradients, host.outfeed_bytes_per_s, system)),
        (laws.UPDATE_ON_HOST, found.apply, f"{drain} + {fill}"),
        (laws.WEIGHTS_IN, found.read, _transfer(weights, host.infeed_bytes_per_s, system)),
    ):
        if cycles:
            yield _once("update on the host", law, cycles, text)


def _call(costs: Costs, system: System) -> Iterator[Term]:
    if costs.host.call:
        nanoseconds = getattr(system.rates, f"{system.framework}_host_ns")
        yield _once("session run", laws.HOST_CALL, costs.host.call, _time(nanoseconds, system))


def _streams(costs: Costs, program: PipelineProgram, system: System) -> Iterator[Term]:
    """Yield what passes and updates take to stream, each alone at its memory."""
    if system.streaming is None:
        return
    streamed = [
        *(
            (f"{_name(Pass(kind))} of {program.stages[stage].name}", stream)
            for (kind, stage), stream in costs.pass_streams.items()
        ),
        *((f"update on IPU {ipu}", stream) for ipu, stream in costs.update_streams.items()),
    ]
    rate = system.streaming.share(1)
    for of, stream in streamed:
        for law, size in ((laws.LOAD, stream.load), (laws.STORE, stream.store)):
            if size:
                yield _once(of, law, system.transfer_cycles(size, rate), _transfer(size, rate, system))


def _collectives(costs: Costs, plan: Plan, program: PipelineProgram, system: System) -> Iterator[Term]:
    found: dict[str, CollectiveCost] = {}
    if costs.gradient_sum is not None:
        yield from _rounds(f"all-reduce ({costs.gradient_sum.algorithm})", costs.gradient_sum.cost, system)
    if costs.host_sum is not None and (over := costs.host_sum.over_links) is not None and system.joined is not None:
        yield from _rounds(f"all-reduce of {system.hosts} hosts ({over.algorithm})", over.cost, system.joined)
    for stage, gather in costs.weight_gathers.items():
        found[f"all-gather of stage {stage} ({gather.algorithm})"] = gather.cost
    for ipu, gather in costs.update_gathers.items():
        found[f"all-gather for update on IPU {ipu} ({gather.algorithm})"] = gather.cost
    for (kind, stage), calls in costs.collectives.items():
        for place, called in enumerate(calls if kind in plan.kind else (), 1):
            which = f" {place}" if len(calls) > 1 else ""
            what = f"{called.call.operation.replace('_', '-')} ({called.algorithm})"
            found[f"{what}{which} in {_name(Pass(kind))} of {program.stages[stage].name}"] = called.cost
    for of, cost in found.items():
        yield from _rounds(of, cost, system)


def _rounds(of: str, cost: CollectiveCost, system: System) -> Iterator[Term]:
    """Yield what a collective takes."""
    yield from _meeting(of, cost.fixed, system)
    rounds: Counter[str] = Counter()
    for each in cost.rounds:
        busiest = max(each.links, key=lambda load: load.cycles)
        rounds[f"({each.latency_cycles} + {_link(busiest.direction, busiest.bytes, system)})"] += 1
    if cost.rounds_cycles:
        yield Term(of, laws.ROUNDS, cost.rounds_cycles, tuple(rounds.items()))
    yield from _post_copy(of, cost.fixed, system)


def _once(of: str, law: Law, cycles: int, text: str) -> Term:
    return Term(of, law, cycles, ((text, 1),))


def _whole(cycles: Fraction) -> str:
    return number(cycles) if cycles.denominator == 1 else f"ceil({number(cycles)})"


def _time(nanoseconds: Fraction, system: System) -> str:
    return f"ceil({number(nanoseconds)} * {number(Fraction(system.clock_hz, 10**9))})"


def _link(direction: LinkDirection, size: int, system: System) -> str:
    return _transfer(size, direction.bytes_per_s(system.rates), system)


def _transfer(size: int, bytes_per_s: Fraction, system: System) -> str:
    return f"ceil({size} * {system.clock_hz} / {number(bytes_per_s)})"

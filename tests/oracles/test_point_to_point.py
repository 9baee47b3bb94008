"""Time in point-to-point against what the literature prints, a longest path, and a fluid computation of its own.

The longest path and the fluid computation take the Order, the durations of passes, and the routes and rates of the
System; they share no line with the lowerings, the prices or the machine.
"""

import math
import random
from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

import networkx as nx
import numpy as np

from ipusim.hardware.build import build_system
from ipusim.lowering.lower import lower
from ipusim.model.profile import StageProfile
from ipusim.pipeline.check import check_plan
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import PASSES, SpanKind
from tests.effort import runs_slowest, seeds, share, slowest
from tests.machine_costs import fixed_cycles
from tests.orders import home_of, needs_of, passes_of, random_order, read
from tests.plans import price_and_run
from tests.schedules import (
    FREE,
    MEETING,
    goes_around,
    is_a_v,
    multiple_of,
    options_of,
    ragged,
    shape_of,
    takes_even_ipus,
    trains_only,
)

LETTERS = {
    SpanKind.FORWARD: "F",
    SpanKind.BACKWARD: "B",
    SpanKind.RECOMPUTE: "R",
    SpanKind.INPUT_GRADIENT: "I",
    SpanKind.WEIGHT_GRADIENT: "W",
}


def free(schedule, mapping, count, cycles, training=True, **options):
    """The makespan on the free system; ``cycles`` are those of a stage's passes."""
    shape = shape_of(schedule, mapping, count, training=training, **options)
    program = PipelineProgram(tuple(profile(index, *cycles) for index in range(shape.stages)), shape, schedule)
    plan = plan_of(find(schedule), shape, Sync.POINT_TO_POINT)
    check_plan(plan)
    return price_and_run(plan, program, build_system("free", mapping=mapping)).makespan_cycles


def profile(index, forward, backward, first=None, second=None, output=0, gradient=0):
    halves = {} if first is None else {"backward_input": first, "backward_weights": second}
    return StageProfile(f"s{index}", forward, backward, 0, output_bytes=output, gradient_bytes=gradient, **halves)


def most_kept(schedule, mapping, count, until, **options):
    """The most micro-batches of all its stages that each IPU has run forward, and not through a pass of ``until``."""
    found = []
    for words in passes_of(find(schedule).order(shape_of(schedule, mapping, count, **options))).values():
        kept = np.cumsum([(word[0] == "F") - (word[0] in until) for word in words])
        assert kept[-1] == 0
        found.append(int(kept.max()))
    return found


@dataclass(frozen=True)
class Case:
    """A program on a System: the Order, cycles by (letter, stage), bytes by (stage, stage)."""

    order: Order
    program: PipelineProgram
    system: object

    @property
    def shape(self):
        return self.program.shape

    @cached_property
    def in_slots(self):
        """Cycles of passes in slots with another that they do not answer, where that is not as long as both are."""
        found = {}
        if self.program.overlapped == "sum":
            return found
        for first, second in pairs(self.order).items():
            if first[1:] == second[1:]:
                continue
            one, other = self.alone(*first[:2]), self.alone(*second[:2])
            whole = max(one, other) if self.program.overlapped == "max" else self.program.overlapped
            found[first] = whole * one // (one + other)
            found[second] = whole - found[first]
        return found

    def cycles(self, letter, stage, micro):
        return self.in_slots.get((letter, stage, micro), self.alone(letter, stage))

    def alone(self, letter, stage):
        each = self.program.stages[stage]
        return {
            "F": each.forward,
            "R": each.forward,
            "B": each.backward,
            "I": each.backward_input,
            "W": each.backward_weights,
        }[letter]

    def way(self, source, target, micro):
        """Lead cycles, bytes, and the exact bytes per cycle of each link from one stage to the next; None within."""
        here, there = (home_of(self.shape, stage, micro) for stage in (source, target))
        size = (
            self.program.stages[source].output_bytes
            if target > source
            else (self.program.stages[source].gradient_bytes)
        )
        if here == there or not size:
            return None
        system = self.system
        if system.free:
            return 0, 0, {}
        route, clock = system.route(here, there), system.clock_hz
        hops = len(route) * system.rates.hop_latency_ns
        lead = fixed_cycles(system.count, clock) + math.ceil(hops * clock / 10**9)
        links = {(each.source, each.target, each.channel): each.bytes_per_s(system.rates) / clock for each in route}
        return lead, size, links


def tensor_of(shape, letter, stage):
    """The stage that wants what a pass makes; None where none does."""
    if letter == "F":
        return stage + 1 if stage + 1 < shape.stages else None
    return stage - 1 if letter in "BI" and stage else None


def longest_path(case):
    """The start of each pass where no link is shared, and the time of each tensor on its links.

    Nodes are the beginnings of passes; edges are as long as what must pass between two of them.
    """
    graph, ways, sent = graph_of(case)
    start = {}
    for node in nx.topological_sort(graph):
        start[node] = max(
            (start[before] + edge["cycles"] for before, _, edge in graph.in_edges(node, data=True)), default=0
        )
    del start["begin"]
    busy = defaultdict(list)
    for one, way in ways.items():
        if way is not None:
            lead, _, links = way
            left = start[one] + sent[one]
            for link in links:
                busy[link].append((left + lead, left + carrying(way)))
    return start, busy


def graph_of(case):
    """The graph, the way of what each pass makes, and the cycles from its beginning until that leaves."""
    graph = nx.DiGraph()
    passes = passes_of(case.order)
    words = [word for own in passes.values() for word in own]
    blocking = not case.program.overlap_copies
    ways, pair = {}, pairs(case.order)
    for word in words:
        letter, stage, micro = read(word)
        graph.add_edge("begin", read(word), cycles=0)
        target = tensor_of(case.shape, letter, stage)
        ways[read(word)] = None if target is None else case.way(stage, target, micro)
    # Of two passes in one slot, the first one's tensors leave behind the second, and the second waits for nothing.
    sent = {one: case.cycles(*one) for one in ways}
    for first, second in pair.items():
        sent[first] += case.cycles(*second)
        sent[second] += carrying(ways[first]) if blocking else 0
    of_slot = {second: first for first, second in pair.items()}
    for one, before in needs_of(case.shape, words).items():
        for other in before:
            if home_of(case.shape, *other[1:]) == home_of(case.shape, *one[1:]):
                graph.add_edge(other, one, cycles=case.cycles(*other))
            else:
                graph.add_edge(other, of_slot.get(one, one), cycles=sent[other] + carrying(ways[other]))
    for own in passes.values():
        for first, second in pairwise(map(read, own)):
            if pair.get(first) == second:
                cycles = case.cycles(*first)
            else:
                cycles = sent[first] + (carrying(ways[first]) if blocking else 0)
            if graph.has_edge(first, second):
                cycles = max(cycles, graph.edges[first, second]["cycles"])
            graph.add_edge(first, second, cycles=cycles)
    return graph, ways, sent


def pairs(order):
    """The pass that runs in one slot behind another, by that one."""
    names = [("FBRIW"[kind], stage, micro) for _, kind, stage, micro in order.passes.tolist()]
    return {names[row]: names[row + 1] for row in np.flatnonzero(order.joined).tolist()}


def carrying(way):
    if way is None:
        return 0
    lead, size, links = way
    return lead + (math.ceil(size / min(links.values())) if links else 0)


def contended(busy):
    """Whether any link has two tensors at once."""
    return any(late < end for spans in busy.values() for (_, end), (late, _) in pairwise(sorted(spans)))


def fluid(case):
    """The start of each pass, links shared max-min fair: event by event, all rates anew at every event."""
    passes = {ipu: [read(word) for word in own] for ipu, own in passes_of(case.order).items()}
    needs = needs_of(case.shape, (word for own in passes_of(case.order).values() for word in own))
    start, ready = {}, defaultdict(dict)  # of each pass what has come: from which pass, when
    at, free_at = dict.fromkeys(passes, 0), dict.fromkeys(passes, 0)
    running, leading, flows = [], [], []
    rates_of_links = {}
    now = 0
    while True:
        settle(case, now, running, leading, flows, ready, free_at, rates_of_links)
        moved = True
        while moved:
            moved = False
            for ipu, own in passes.items():
                if at[ipu] == len(own) or free_at[ipu] is None or free_at[ipu] > now:
                    continue
                one = own[at[ipu]]
                if all(other in ready[one] for other in needs[one]):
                    start[one] = now
                    at[ipu] += 1
                    free_at[ipu] = None
                    running.append((now + case.cycles(*one), ipu, one, needs))
                    moved = True
            if moved:
                settle(case, now, running, leading, flows, ready, free_at, rates_of_links)
        rates = shared(flows, rates_of_links)
        times = [end for end, *_ in running] + [begin for begin, *_ in leading]
        times += [now + math.ceil(flow[0] / rate) for flow, rate in zip(flows, rates, strict=True)]
        if not times:
            assert all(at[ipu] == len(own) for ipu, own in passes.items())
            return start
        later = min(times)
        for flow, rate in zip(flows, rates, strict=True):
            flow[0] -= rate * (later - now)
        now = later


def settle(case, now, running, leading, flows, ready, free_at, rates_of_links):
    """End what ends now and begin what begins now, until nothing more does."""
    blocking = not case.program.overlap_copies
    moved = True
    while moved:
        moved = False
        for each in [each for each in running if each[0] == now]:
            running.remove(each)
            moved = True
            _, ipu, one, needs = each
            target = tensor_of(case.shape, *one[:2])
            way = None if target is None else case.way(one[1], target, one[2])
            for other, before in needs.items():
                if one in before and (other[1] == one[1] or way is None):
                    ready[other][one] = now
            if way is None:
                free_at[ipu] = now
                continue
            leading.append((now + way[0], ipu, one, needs, way))
            if not blocking:
                free_at[ipu] = now
        for each in [each for each in leading if each[0] == now]:
            leading.remove(each)
            moved = True
            _, ipu, one, needs, way = each
            rates_of_links.update(way[2])
            flows.append([Fraction(way[1]), tuple(way[2]), ipu, one, needs])
        for flow in [flow for flow in flows if flow[0] <= 0]:
            flows.remove(flow)
            moved = True
            _, _, ipu, one, needs = flow
            for other, before in needs.items():
                if one in before and other[1] != one[1]:
                    ready[other][one] = now
            if blocking:
                free_at[ipu] = now


def shared(flows, rates_of_links):
    """Raise all rates together until a link is full; what crosses it stays, the others go on rising."""
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        room = {}
        for link in {link for flow in flows for link in flow[1]}:
            used = sum((rates[place] for place, flow in enumerate(flows) if link in flow[1]), Fraction(0))
            users = sum(link in flows[place][1] for place in rising)
            if users:
                room[link] = (rates_of_links[link] - used) / users
        if not room:  # nothing but tensors that cross no link
            return [Fraction(10**30) if place in rising else rate for place, rate in enumerate(rates)]
        step = min(room.values())
        full = {link for link, more in room.items() if more == step}
        for place in rising:
            rates[place] += step
        rising -= {place for place in rising if full & set(flows[place][1])}
    return rates


SYSTEMS = (("m2000", 4, "ZIGZAG"), ("m2000", 4, "HOOF"), ("bow_pod16", 8, "HOOF"), ("c2_server", 8, "SNAKE"))
NAMED = (*FREE, *(name for name in MEETING if name != "single"))


def drawn_case(seed):
    """A program of unequal stages, and tensors of very different sizes, under any schedule or a random Order."""
    rng = random.Random(seed)
    schedule = rng.choice((*NAMED, "drawn", "drawn", "drawn"))
    machine, most, order = rng.choice(SYSTEMS)
    ipus = rng.randint(2, min(most, 5))
    ipus -= ipus % 2 if takes_even_ipus(schedule) else 0
    chunks = rng.choice((1, 2)) if schedule in ("gpipe", "grouped", "drawn") or goes_around(schedule) else 1
    mapping = tuple(rng.sample(range(most), ipus)) * chunks
    mapping += mapping[::-1] if is_a_v(schedule) else ()
    stages = len(mapping)
    training = trains_only(schedule) or rng.random() < 0.8
    multiple = multiple_of(schedule, stages, ipus, training)
    count = ragged(rng, schedule, multiple * rng.choice((1, 2, 3, 5) if multiple == 1 else (1, 2)), ipus)
    scale = rng.choice((2_000, 60_000))
    sizes = rng.choice(((0, 4_000), (1_000, 300_000), (200_000, 200_000)))
    profiles = []
    for index in range(stages):
        forward, first, second = (rng.randint(1, scale) for _ in range(3))
        bytes_of = (rng.randint(*sizes) for _ in range(2))
        profiles.append(profile(index, forward, first + second, first, second, *bytes_of))
    cut = {"segments": rng.choice((1, 2, 3))} if schedule in ("drawn", "seq_1f1b") else {}
    cut |= options_of(rng, schedule, count, ipus)
    shape = shape_of(schedule, mapping, count, training=training, **cut)
    overlapped = rng.choice(("sum", "max", rng.randint(0, scale)))
    more = {"overlap_copies": rng.random() < 0.7, "overlapped": overlapped}
    program = PipelineProgram(tuple(profiles), shape, schedule, **more)
    made = random_order(rng, shape) if schedule == "drawn" else find(schedule).order(shape)
    return Case(made, program, build_system(machine, mapping=mapping, ipus=most, selection_order=order))


@lru_cache(maxsize=1)
def cases(most=60):
    """The first cases without contention, with every schedule among them; and the first ones with it."""
    alone, together, seed = [], [], 0
    missing, least = {*NAMED, "drawn"}, max(100 if runs_slowest() else 40, share(300))
    most = most if runs_slowest() else 0
    while len(alone) < least or len(together) < most or missing:
        case = drawn_case(seed)
        seed += 1
        found, busy = longest_path(case)
        if not contended(busy):
            if len(alone) < least or case.program.schedule in missing:
                alone.append((case, found))
            missing.discard(case.program.schedule)
        elif len(together) < most and not case.order.joined.any():  # the fluid computation has a pass in each slot
            together.append(case)
    return alone, together


def ran(case):
    plan = lower(case.order, Sync.POINT_TO_POINT)
    check_plan(plan)
    return price_and_run(plan, case.program, case.system)


def starts(timeline, replica=0):
    """Of each pass of a replica when it began."""
    rows = timeline.rows(*PASSES)
    rows = rows[timeline.replica[rows] == replica]
    columns = (timeline.kind, timeline.stage, timeline.micro_batch, timeline.start)
    return {
        (LETTERS[kind], stage, micro): start
        for kind, stage, micro, start in zip(*(column[rows].tolist() for column in columns), strict=True)
    }


def test_cases_without_contention_are_longest_paths():
    alone, _ = cases()
    seen = set()
    for case, right in alone:
        assert starts(ran(case)) == right
        seen.add((case.program.schedule, case.program.overlap_copies))
    assert {name for name, _ in seen} == {*NAMED, "drawn"}
    assert {blocking for _, blocking in seen} == {True, False}


@slowest
def test_links_that_are_shared_are_so_as_a_second_computation_says():
    _, together = cases()
    differs = 0
    for case in together:
        right = fluid(case)
        assert starts(ran(case)) == right
        differs += right != longest_path(case)[0]
    assert differs > 35, "sharing changed next to nothing: the cases show nothing"
    assert {case.program.overlap_copies for case in together} == {True, False}


def test_replicas_run_beside_each_other_as_each_does_by_itself():
    """No link carries tensors of two replicas, so that each runs as on the part of the device that it has."""
    waiting = 0
    for seed in seeds(12):
        rng = random.Random(seed)
        mapping = tuple(rng.sample(range(4), 4))
        shape = PlanShape(mapping=mapping, micro_batches=rng.choice((2, 4)))
        profiles = tuple(
            profile(index, rng.randint(1, 9000), 9000, 5000, 4000, size, size)
            for index, size in enumerate(rng.choices((10, 400_000), k=4))
        )
        program = PipelineProgram(profiles, shape, "drawn")
        order = rng.choice(("ZIGZAG", "HOOF", "SNAKE"))
        system = build_system("bow_pod16", mapping=mapping, ipus=rng.choice((8, 16)), selection_order=order)
        case = Case(random_order(rng, shape), program, system)
        timeline = ran(case)
        for replica in range(system.replicas):
            part = replace(case, system=system.replica(replica))
            right = fluid(part)
            waiting += right != longest_path(part)[0]
            assert starts(timeline, replica) == right
    assert waiting, "no replica shares a link with itself: the cases show nothing"


def test_on_the_free_system_what_shares_a_link_costs_nothing_either():
    """Tensors that begin at once on one rail, from IPUs 0 and 3 to IPU 2 in hoof order."""
    shape = PlanShape(mapping=(0, 2, 3, 2, 1), micro_batches=6)
    profiles = tuple(profile(index, 1, 2, 1, 1, 10**9, 10**9) for index in range(shape.stages))
    program = PipelineProgram(profiles, shape, "drawn")
    system = build_system("free", mapping=shape.mapping, ipus=4, selection_order="HOOF")
    for seed in seeds(10):
        case = Case(random_order(random.Random(seed), shape), program, system)
        assert starts(ran(case)) == longest_path(case)[0]

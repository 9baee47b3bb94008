"""Random legal Orders in both sync modes: what their Plans hold, that these are read back, and what the check says.

Two passes of an Order swapped are an Order that an independent walk goes through or stands still in: the check of
its Plan says the same, in both modes. And of Plans of which a few numbers are changed it finds what plain loops find.
"""

import random
from collections import Counter, defaultdict

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.errors import MissingTensorError, PlanError
from ipusim.lowering.lower import lower
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.lowering.streams import Stream
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.check import check_plan, violations
from ipusim.pipeline.feeds import OutfeedElements
from ipusim.pipeline.instructions import PASSES, Code, text_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.effort import share
from tests.orders import needs_of, random_mapping, random_order, random_passes, read, walk
from tests.orders import text as text_of_pass
from tests.plans import parse_listing, price_and_run, with_table
from tests.properties.test_disturbed_runs import LEARNING
from tests.scenarios import job_from

CASES = share(40)
STUCK = {"dependency", "deadlock", "sending"}


def drawn(seed, **fixed):
    """A shape, and the passes of a legal Order of it."""
    rng = random.Random(seed)
    training = rng.random() < 0.85
    shape = PlanShape(
        mapping=random_mapping(rng, rng.randint(2, 6), rng.randint(1, 4)),
        micro_batches=rng.randint(1, 5),
        training=training,
        recompute=training and rng.random() < 0.3,
    )
    return rng, shape, random_passes(rng, shape)


NOTHING = SideInstructions()


def both(order, side=NOTHING):
    return [lower(order, sync, side) for sync in Sync]


@pytest.mark.parametrize("seed", range(0, CASES, 2))
def test_time_steps_are_as_early_as_a_longest_path_allows(seed):
    """Later than a pass's needs and the last pass of its stage's program, no earlier than what its IPU ran before."""
    _, shape, passes = drawn(seed)
    needs = needs_of(shape, (word for words in passes.values() for word in words))
    graph = nx.DiGraph()
    for words in passes.values():
        programs = {}
        for before, word in zip([None, *words], words, strict=False):
            one = read(word)
            graph.add_node(one)
            behind = [(other, 1) for other in [*needs[one], programs.get(one[:2])] if other is not None]
            for other, steps in [*([(read(before), 0)] if before else []), *behind]:
                graph.add_edge(other, one, steps=max(steps, graph.get_edge_data(other, one, {"steps": 0})["steps"]))
            programs[one[:2]] = one
    right = {}
    for node in nx.topological_sort(graph):
        right[node] = max(
            (right[other] + each["steps"] for other, _, each in graph.in_edges(node, data=True)), default=0
        )
    plan = lower(Order.from_passes("drawn", shape, passes), Sync.LOCK_STEP)
    assert {read(str(op)): time_step for time_step, _, op in plan.ops()} == right
    assert plan.emitted == max(right.values()) + 1


def asked_of(rng, shape):
    """Anything that a program may ask of its IPUs beside their passes."""
    stages = range(shape.stages)
    streams = {
        (kind, stage): Stream(rng.choice((0, 8)), rng.choice((0, 8)))
        for kind in range(5)
        for stage in stages
        if rng.random() < 0.2
    }
    count = shape.micro_batches
    every, last = range(count), range(count - 1, count)
    outfeed = rng.choice((OutfeedElements(every, 1), OutfeedElements(every, 1, True), OutfeedElements(last, 3)))
    ipus = sorted(set(shape.mapping))
    return SideInstructions(
        outfeed=rng.choice((None, outfeed)),
        streams=streams,
        updates={ipu: Stream(rng.choice((0, 8)), rng.choice((0, 8))) for ipu in ipus},
        gathering_stages=frozenset(stage for stage in stages if rng.random() < 0.3),
        gathering_ipus=frozenset(ipus) if rng.random() < 0.5 else frozenset(),
        collective_passes=frozenset((kind, stage) for kind in range(5) for stage in stages if rng.random() < 0.2),
        host_calls=frozenset((kind, stage) for kind in range(5) for stage in stages if rng.random() < 0.2),
        has_replica_sum=rng.random() < 0.5,
        overlap_copies=rng.random() < 0.7,
    )


@pytest.mark.parametrize("seed", range(CASES))
def test_a_plan_holds_each_pass_once_and_what_belongs_to_it(seed):
    rng, shape, passes = drawn(seed)
    side = asked_of(rng, shape)
    order = Order.from_passes("drawn", shape, passes)
    for plan in both(order, side):
        rows = plan.instructions.tolist()
        assert np.array_equal(parse_listing(plan.listing()), plan.instructions)
        ran = defaultdict(list)
        for ipu, code, *rest in rows:
            if code < PASSES:
                ran[ipu].append(text_of(code, *rest))
        assert ran == {ipu: list(words) for ipu, words in passes.items() if words}
        codes = Counter(code for _, code, *_ in rows)
        firsts = sum(word.startswith("F0.") for words in passes.values() for word in words)
        assert codes[Code.INFEED] == firsts == shape.micro_batches
        sent = len(range(shape.micro_batches)) if side.outfeed is None else len(side.outfeed.micro_batches)
        assert codes[Code.OUTFEED] + codes[Code.ADD_RESULTS] == sent
        ipus = len(set(shape.mapping))
        assert codes[Code.END] == ipus
        assert codes[Code.UPDATE] == (ipus if shape.training else 0)
        assert codes[Code.ALL_REDUCE] == (ipus if shape.training and side.has_replica_sum else 0)
        assert codes[Code.GATHER] == codes[Code.RELEASE]
        around_passes(plan, side, rows)
        if plan.sync is Sync.LOCK_STEP:
            for ipu in set(shape.mapping):
                met = sum(number for one, code, _, _, number in rows if (one, code) == (ipu, Code.MEET))
                assert met == plan.emitted
            assert not {Code.SEND, Code.BLOCKING_SEND, Code.RECEIVE} & set(codes)
        else:
            assert codes[Code.MEET] == 0
            sends_and_receives(shape, side, rows)


def around_passes(plan, side, rows):
    """Before each pass what is loaded and gathered for it, what the host does and where replicas meet, and behind it

    what is stored.
    """
    for at, (_, code, stage, micro_batch, _) in enumerate(rows):
        if code >= PASSES:
            continue
        before = {text_of(*row[1:]) for row in rows[max(at - 5, 0) : at]}
        behind = {text_of(*row[1:]) for row in rows[at + 1 : at + 5]}
        load, store = side.streams.get((code, stage), (0, 0))
        letter = "FBRIW"[code]
        assert not load or f"load {letter}{stage}" in before
        assert not store or f"store {letter}{stage}" in behind
        meets = rows[at - 1][1:] == [Code.COLLECTIVE, stage, micro_batch, code]
        assert meets == ((code, stage) in side.collective_passes)
        asks = rows[at - 1 - meets][1:] == [Code.OUTSIDE, stage, micro_batch, code]
        assert asks == ((code, stage) in side.host_calls)
        assert stage not in side.gathering_stages or (f"gather {stage}" in before and f"release {stage}" in behind)


def sends_and_receives(shape, side, rows):
    """Each tensor that crosses is sent once and received once, by the IPUs of the stages that it joins."""
    sending = Code.SEND if side.overlap_copies else Code.BLOCKING_SEND
    sent = {(stage, number, micro): ipu for ipu, code, stage, micro, number in rows if code == sending}
    received = {(number, stage, micro): ipu for ipu, code, stage, micro, number in rows if code == Code.RECEIVE}
    crossing = {key for key in sent if shape.mapping[key[0]] != shape.mapping[key[1]]}
    assert crossing == set(received)
    assert sum(code in (Code.SEND, Code.BLOCKING_SEND) for _, code, *_ in rows) == len(sent)
    assert sum(code == Code.RECEIVE for _, code, *_ in rows) == len(received)
    assert all(ipu == shape.mapping[key[0]] for key, ipu in sent.items())
    assert all(ipu == shape.mapping[key[1]] for key, ipu in received.items())
    last, every = shape.stages - 1, range(shape.micro_batches)
    right = {(stage, stage + 1, micro) for stage in range(last) for micro in every}
    if shape.training:
        right |= {(last, last, micro) for micro in every}
        right |= {(stage + 1, stage, micro) for stage in range(last) for micro in every}
    assert set(sent) == right


def over(shape, passes, depths):
    """Whether a stage keeps more micro-batches than its FIFO and its own buffer hold."""
    for words in passes.values():
        kept = Counter()
        for word in words:
            stage = int(word[1:].split(".")[0])
            release = "R" if shape.recompute and stage < shape.stages - 1 else "BI"
            kept[stage] += (word[0] == "F") - (word[0] in release)
            if shape.training and kept[stage] > depths[stage] + 1:
                return True
    return False


def swapped(rng, passes):
    """The passes with two of an IPU in each other's places."""
    found = {ipu: list(words) for ipu, words in passes.items()}
    own = found[rng.choice([ipu for ipu, words in found.items() if len(words) > 1])]
    first, second = rng.sample(range(len(own)), 2)
    own[first], own[second] = own[second], own[first]
    return found


def damaged(rng, shape, passes):
    """The passes with up to two of them left out, there twice, another one, or on another IPU."""
    found = {ipu: list(words) for ipu, words in passes.items()}
    for _ in range(rng.randint(0, 2)):
        ipu = rng.choice([ipu for ipu, words in found.items() if words])
        at = rng.randrange(len(found[ipu]))
        match rng.choice(("without", "twice", "other", "elsewhere", "early")):
            case "without":
                del found[ipu][at]
            case "twice":
                found[ipu].insert(rng.randrange(len(found[ipu])), found[ipu][at])
            case "other":
                other = rng.choice("FBRIW"), rng.randrange(shape.stages), rng.randint(0, shape.micro_batches)
                found[ipu][at] = text_of_pass(other)
            case "elsewhere":
                found.setdefault(rng.choice((0, 1, 9)), []).append(found[ipu].pop(at))
            case "early":
                found[ipu].insert(0, found[ipu].pop(at))
    return found


@pytest.mark.parametrize("seed", range(CASES))
def test_whatever_is_wrong_with_an_order_is_told_in_both_modes(seed):
    """A check of FIFOs of the depths that the order had before."""
    rng, shape, passes = drawn(2000 + seed)
    depths = Order.from_passes("drawn", shape, passes).fifo_depths
    for wrong in (passes, *(swapped(rng, passes) for _ in range(8)), *(damaged(rng, shape, passes) for _ in range(6))):
        words = [word for own in wrong.values() for word in own]
        whole = sorted(map(read, words)) == sorted(needs_of(shape, words))
        placed = all(shape.mapping[read(word)[1]] == ipu for ipu, own in wrong.items() for word in own)
        order = Order.from_passes("drawn", shape, wrong)
        order.fifo_depths = depths
        stuck = whole and placed and bool(walk(shape, wrong))
        kept_too_long = whole and placed and over(shape, wrong, depths)
        right = whole and placed and not stuck and not kept_too_long
        for plan in both(order):
            found = violations(plan)
            assert bool(found) != right, (plan.sync, wrong, [str(each) for each in found])
            rules = {each.rule for each in found}
            assert ("placement" in rules) == (not placed)
            assert ("once" in rules) == (not whole), (plan.sync, wrong, [str(each) for each in found])
            if whole and placed:
                assert bool(rules & STUCK) == stuck, (plan.sync, wrong)
                assert rules <= STUCK | {"memory"}
                assert stuck or ("memory" in rules) == kept_too_long
            if found:
                with pytest.raises(PlanError, match=r"^the plan breaks"):
                    check_plan(plan)
            else:
                check_plan(plan)


F, B, R, G, W = Pass.FORWARD, Pass.BACKWARD, Pass.RECOMPUTE, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT


@st.composite
def plans(draw):
    """Return a Plan with up to four numbers of its table changed, each to one that a Plan may have."""
    name = draw(st.sampled_from(["grouped", "interleaved", "sequential", "zero_bubble_h1", "drawn"]))
    stages, training = draw(st.integers(2, 4)), name == "zero_bubble_h1" or draw(st.booleans())
    recompute = training and name in ("grouped", "interleaved", "drawn") and draw(st.booleans())
    count = 2 * stages * draw(st.integers(1, 2))
    shape = PlanShape(mapping=tuple(range(stages)), micro_batches=count, training=training, recompute=recompute)
    if name == "drawn":
        plan = lower(random_order(random.Random(draw(st.integers(0, 999))), shape), Sync.LOCK_STEP)
    else:
        plan = plan_of(find(name), shape, Sync.LOCK_STEP)
    table = plan.table.copy()
    highest = {0: plan.emitted + 1, 1: stages - 1, 2: 4, 3: stages - 1, 4: count - 1}
    for _ in range(draw(st.integers(0, 4))):
        column = draw(st.integers(0, 4))
        table[draw(st.integers(0, len(table) - 1)), column] = draw(st.integers(0, highest[column]))
    return with_table(plan, table)


def needs(shape, op, halves):
    """What must have run before an operation; ``halves`` are the places where a backward pass is not whole."""
    kind, stage, batch = op
    if kind == F:
        return [Op(F, stage - 1, batch)] if stage else []
    if kind == W:
        return [Op(G, stage, batch)]
    found = [Op(F, stage, batch)]
    if kind in (B, G) and stage < shape.stages - 1:
        found.append(Op(G if (stage + 1, batch) in halves else B, stage + 1, batch))
        if shape.recompute:
            found.append(Op(R, stage, batch))
    return found


def by_loops(plan):
    """Return each broken rule with its place and the operation's name, rule by rule, in the order of the Plan."""
    shape, placed = plan.shape, list(plan.ops())
    halves = {(op.stage, op.micro_batch) for *_, op in placed if op.kind in (G, W)}
    wanted = set()
    for batch in range(shape.micro_batches):
        for stage in range(shape.stages):
            kinds = [F, *((G, W) if (stage, batch) in halves else (B,))] if shape.training else [F]
            kinds += [R] if shape.recompute and stage < shape.stages - 1 else []
            wanted |= {Op(kind, stage, batch) for kind in kinds}
    when = {op: at for at, _, op in placed}
    row = {op: number for number, (*_, op) in enumerate(placed)}
    found, seen, programs, held = (
        {rule: [] for rule in ("once", "place", "need", "repeat", "memory")},
        Counter(),
        {},
        {},
    )
    for number, (at, ipu, op) in enumerate(placed):
        seen[op] += 1
        if op not in wanted or seen[op] == 2:
            found["once"].append(("once", at, ipu, str(op)))
        if at >= plan.emitted:
            found["once"].append(("range", at, ipu, str(op)))
        if shape.mapping[op.stage] != ipu:
            found["place"].append(("placement", at, ipu, str(op)))
        for need in needs(shape, op, halves):
            # The last stage needs nothing of another IPU, and may turn round in one time-step.
            turns = need == Op(F, shape.stages - 1, op.micro_batch) and op.kind in (B, G) and not shape.sizes
            if when.get(need, -1) >= at and not (turns and when[need] == at and row[need] < number):
                found["need"].append(("dependency", at, ipu, str(op)))
        if programs.setdefault((at, op.kind, op.stage), op) is not op:
            found["repeat"].append(("repeat", at, ipu, str(op)))
        release = (R,) if shape.recompute and op.stage < shape.stages - 1 else (B, G)
        held[op.stage] = held.get(op.stage, 0) + (op.kind == F) - (op.kind in release)
        if shape.training and op.kind == F and held[op.stage] > plan.fifo_depths[op.stage] + 1:
            found["memory"].append(("memory", at, ipu, str(op)))
    found["once"] += [("once", None, None, str(op)) for op in sorted(wanted - seen.keys())]
    return [each for rule in found.values() for each in rule]


@settings(max_examples=share(400))
@given(plan=plans())
def test_the_check_finds_what_plain_loops_find(plan):
    found = violations(plan)
    expected = by_loops(plan)
    assert [(each.rule, each.time_step, each.ipu) for each in found] == [each[:3] for each in expected]
    for each, (*_, op) in zip(found, expected, strict=True):
        assert op in each.text


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ([0, 1, 0, 0, 0], "IPU 1 cannot run F0.0: the IPU does not hold the parameters of stage 0, which are on IPU 0"),
        ([0, 1, 0, 1, 0], "IPU 1 cannot run F1.0 in execution 0: its input is missing"),
    ],
)
def test_a_plan_that_breaks_a_rule_and_is_not_checked_stops_at_a_missing_tensor(first, text):
    job = job_from(LEARNING | {"system": {"name": "m2000", "auto_select_ipus": 2}})
    table = job.plan.table.copy()
    table[0] = first
    plan = with_table(job.plan, table)
    with pytest.raises(MissingTensorError, match=text):
        price_and_run(plan, job.program, job.system, executor=NumpyExecutor(plan.shape, job.workload(0)))

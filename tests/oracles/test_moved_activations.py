"""Activations that are moved out and back, against rules written down a second time.

Times in point-to-point are longest paths: each pass begins when the pass before it on its IPU has ended, its inputs
have come, and there is room for what it keeps, or what it uses is back.
"""

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ipusim.analysis.memory import memory_curves
from ipusim.app.scenario.problems import ScenarioError
from ipusim.base.errors import MissingTensorError, NotExactError
from ipusim.hardware.build import build_system
from ipusim.lowering.lower import complete
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.profile import StageProfile
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.liveness import peaks
from ipusim.pipeline.moves import Way
from ipusim.pipeline.offload import MovedActivations, Offload
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.price import price_plan
from ipusim.retiming.retiming import Retiming
from ipusim.runs.assemble.plans import plan_of
from ipusim.runs.execute import execute
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import BACK_KINDS, KIND_OF_PASS, OUT_KINDS, PASSES, SpanKind, of_kinds
from tests.effort import draws_everything
from tests.oracles.test_offload import LAYERS
from tests.orders import home_of, passes_of, read
from tests.plans import price_and_run
from tests.schedules import FREE, is_a_v, mapping_of, multiple_of, shape_of, takes_even_ipus

CASES = range(60 if draws_everything() else 20)
#: Of these passes of several stages run in one slot, which the rules below leave out.
JOINED = ("dualpipe", "dualpipe_v")
SCHEDULES = [name for name in FREE if find(name).segments == 1 and name not in JOINED]


def drawn(rng, to, *, stash=(1, 400_000)):
    """A program under a schedule of the GPU world that moves activations, and its Plan in point-to-point."""
    name = rng.choice(SCHEDULES)
    stages = rng.randrange(3, 7)
    stages += stages % 2 if is_a_v(name) or takes_even_ipus(name) else 0
    mapping = mapping_of(name, stages) if is_a_v(name) else tuple(range(stages))
    count = multiple_of(name, stages, len(set(mapping))) * rng.randrange(1, 3)
    while count < 4:
        count += multiple_of(name, stages, len(set(mapping)))
    shape = shape_of(name, mapping, count)
    profiles = tuple(
        StageProfile(
            f"s{index}",
            rng.randrange(500, 90_000),
            rng.randrange(500, 90_000),
            0,
            stash_bytes=rng.randrange(*stash),
            input_bytes=100,
            output_bytes=rng.randrange(1, 20_000),
            gradient_bytes=rng.randrange(1, 20_000),
        )
        for index in range(stages)
    )
    moved = MovedActivations(to, None, rng.choice([None, 0, 1, 2]), rng.randrange(1, 4))
    program = PipelineProgram(profiles, shape, name, offload=Offload(moved=moved))
    return program, plan_of(find(name), shape, Sync.POINT_TO_POINT)


def turns_of(words, stage, keep, buffers):
    """The passes of one stage on one IPU over a micro-batch that is moved, each with the one whose buffer it takes."""
    own = [word for word in words if read(word)[1] == stage and word[0] in "FBI"]
    held = most = 0
    for word in own:
        held += 1 if word[0] == "F" else -1
        most = max(most, held)
    if most <= keep + buffers:
        return {}
    stay, rank, turns = set(), 0, []
    for word in own:
        letter, _, micro = read(word)
        if letter == "F":
            if (rank * keep) % most < keep and len(stay) < keep:
                stay.add(micro)
            rank += 1
        if micro not in stay:
            turns.append(word)
        elif letter != "F":
            stay.remove(micro)
    return dict(zip(turns, [None] * buffers + turns, strict=False))


def keep_of(program, moved):
    ipus = len(set(program.shape.mapping))
    if moved.keep is not None:
        return moved.keep
    return 1 if moved.to == "streaming_memory" else max(0, math.ceil((ipus + 2) / 2) - moved.buffers)


def partner_of(shape, ipu):
    ipus = sorted(set(shape.mapping))
    return ipus[-1 - ipus.index(ipu)]


class Machine:
    """What tensors take by themselves, and on which links they are."""

    def __init__(self, program, system):
        self.program, self.system = program, system
        self.moved = program.offload.moved

    def travel(self, source, target, size):
        """Cycles until the first byte is on its links, until the last has come, and the links."""
        if source == target or not size:
            return 0, 0, ()
        cost = self.system.merged_copy({(source, target): size})
        lead = cost.fixed._replace(sync_cycles=0).total_cycles
        return lead, lead + cost.transfer_cycles, tuple(load.direction for load in cost.links)

    def move(self, ipu, stage, back):
        size = self.program.stages[stage].stash_bytes
        if self.moved.to == "partner":
            ends = ipu, partner_of(self.program.shape, ipu)
            return self.travel(*(ends[::-1] if back else ends), size)
        if self.system.free:
            return 0, 0, ()
        rate = self.system.streaming.ipu_bytes_per_s / self.system.clock_hz
        return 0, math.ceil(size / rate), (f"memory {ipu // 4}",)


def longest_path(program, plan, system, cycles):
    """The end of each pass, of ``cycles`` by pass, and what is on its way when: (link, begin, end).

    All rules are applied until nothing changes.
    """
    shape, moved, machine = program.shape, program.offload.moved, Machine(program, system)
    words, turns = passes_of(plan.order), {}
    for ipu, own in words.items():
        if moved.to == "partner" and partner_of(shape, ipu) == ipu:
            continue
        for stage in range(shape.stages):
            turns |= turns_of(own, stage, keep_of(program, moved), moved.buffers)
    end, carried = {}, {}

    def come(key, since, way):
        lead, until, links = way
        carried[key] = since + lead, since + until, links
        return since + until

    def gone(ipu, word):
        _, stage, _ = read(word)
        return come((ipu, word, "out"), end.get(word, 0), machine.move(ipu, stage, False))

    changed = True
    while changed:
        changed = False
        for ipu, own in words.items():
            now = 0
            for word in own:
                letter, stage, micro = read(word)
                is_moved, before, profiles = word in turns, turns.get(word), program.stages
                if letter == "F" and stage:
                    source = home_of(shape, stage - 1, micro)
                    way = machine.travel(source, ipu, profiles[stage - 1].output_bytes)
                    now = max(now, come((word, "in"), end.get(f"F{stage - 1}.{micro}", 0), way))
                if letter in "BI" and stage < shape.stages - 1:
                    source = home_of(shape, stage + 1, micro)
                    made = max(end.get(f"{kind}{stage + 1}.{micro}", 0) for kind in "BI")
                    way = machine.travel(source, ipu, profiles[stage + 1].gradient_bytes)
                    now = max(now, come((word, "in"), made, way))
                if letter == "F" and before is not None and before[0] == "F":
                    now = max(now, gone(ipu, before))
                if is_moved and letter != "F":
                    kept = f"F{stage}.{micro}"
                    free = gone(ipu, kept)
                    if before is not None and own.index(before) > own.index(kept):
                        free = max(free, end.get(before, 0))
                        free = max(free, gone(ipu, before)) if before[0] == "F" else free
                    now = max(now, come((ipu, word, "back"), free, machine.move(ipu, stage, True)))
                now += cycles[word]
                changed |= end.get(word) != now
                end[word] = now
    return end, [(link, begin, until) for begin, until, links in carried.values() for link in links]


def share_anything(ways):
    by_link = {}
    for link, begin, end in ways:
        by_link.setdefault(link, []).append((begin, end))
    return any(later < end for of in by_link.values() for (_, end), (later, _) in pairwise(sorted(of)))


def cycles_of(timeline):
    letters = {kind: "FBRIW"[number] for number, kind in enumerate(KIND_OF_PASS.tolist())}
    spans = [span for span in timeline if span.kind in PASSES]
    return {f"{letters[span.kind]}{span.stage}.{span.micro_batch}": span.end - span.start for span in spans}


@pytest.mark.parametrize("to", ["streaming_memory", "partner"])
def test_runs_are_as_long_as_the_longest_path_where_nothing_on_its_way_meets(to):
    seeds, alone, waited = iter(range(10_000)), 0, 0
    while alone < (10 if draws_everything() else 7):
        program, plan = drawn(random.Random(f"{to} {next(seeds)}"), to)
        system = build_system("pod16", mapping=program.shape.mapping, remote_buffers=True)
        timeline = price_and_run(plan, program, system)
        end, ways = longest_path(program, plan, system, cycles_of(timeline))
        moves = int(of_kinds(timeline.kind, OUT_KINDS).sum())
        if share_anything(ways) or not moves:
            continue
        alone += 1
        waited += int((timeline.kind == SpanKind.MOVE_WAIT).any())
        assert timeline.makespan_cycles == max(end.values())
        back = [span for span in timeline if span.kind in BACK_KINDS]
        assert len(back) == moves
    assert waited > 1, "moves that nobody waits for show little"


@pytest.mark.parametrize("sync", Sync)
@pytest.mark.parametrize("to", ["streaming_memory", "partner"])
def test_moves_that_take_no_time_leave_the_makespan_as_it_is(to, sync):
    moved = 0
    for seed in CASES:
        program, plan = drawn(random.Random(f"free {to} {seed}"), to)
        plan = plan_of(find(program.schedule), program.shape, sync)
        system = build_system("free", mapping=program.shape.mapping)
        timeline = price_and_run(plan, program, system)
        moved += int(of_kinds(timeline.kind, OUT_KINDS).any())
        assert (
            timeline.makespan_cycles == price_and_run(plan, replace(program, offload=Offload()), system).makespan_cycles
        )
    assert moved > len(CASES) / 6


@pytest.mark.parametrize("ipus", range(2, 17))
def test_bpipe_leaves_no_ipu_with_more_than_half_of_all_and_one(ipus):
    shape = PlanShape(mapping=tuple(range(ipus)), micro_batches=3 * ipus)
    profiles = tuple(StageProfile(f"s{index}", 100, 200, 0, stash_bytes=1000) for index in range(ipus))
    program = PipelineProgram(profiles, shape, "1f1b", offload=Offload(moved=MovedActivations("partner")))
    plan = plan_of(find("1f1b"), shape, Sync.POINT_TO_POINT)
    held = footprint(plan, program)
    most = [peak.bytes / 1000 for peak in peaks(plan, held)]
    assert max(most) == math.ceil((ipus + 2) / 2)
    timeline = price_and_run(plan, program, build_system("free", mapping=shape.mapping))
    curves = memory_curves(timeline, held)
    assert max(curve.allocated_bytes.max() for curve in curves) / 1000 == math.ceil((ipus + 2) / 2)
    without = replace(program, offload=Offload())
    assert max(peak.bytes for peak in peaks(plan, footprint(plan, without))) / 1000 == ipus


def test_times_beside_passes_are_refused_with_the_reason():
    program, plan = drawn(random.Random("partner 1"), "partner", stash=(1000, 2000))
    program = replace(program, offload=Offload(moved=MovedActivations("partner", None, 0)))
    plan = complete(plan, program, 1)
    system = build_system("pod16", mapping=program.shape.mapping)
    with pytest.raises(NotExactError, match="activations that move during passes"):
        Retiming.from_plan(plan, program, system, costs=price_plan(plan, program, system))


#: Four stages, the first of which moves activations.
TRAINED = "pipeline.schedule=1f1b", "pipeline.splits=[b, c, cel]", "pipeline.gradient_accumulation_count=16"


def test_merged_copies_carry_what_moves_to_a_partner(load):
    """In lock-step, over one cable each: of each time-step, the bytes on links but for those of moves stay the same."""
    others = []
    for more in ((), ("pipeline.offload_activations={to: partner, keep: 0}",)):
        timeline = execute(load(LAYERS, *TRAINED, "pipeline.sync=lock_step", *more)).timeline.expanded()
        carried = np.zeros(timeline.time_step.max() + 1, int)
        for sign, *kinds in ((1, SpanKind.LINK), (-1, SpanKind.MOVE_OUT, SpanKind.MOVE_BACK)):
            rows = timeline.rows(*kinds)
            np.add.at(carried, timeline.time_step[rows], sign * timeline.bytes[rows])
        others.append(carried.tolist())
    assert others[0] == others[1]


@pytest.mark.parametrize(
    ("changes", "where", "text"),
    [
        (("offload_activations={to: streaming_memory}",), "", "does not support remote memory"),
        (("offload_activations={to: partner, stages: [secnd]}",), ".stages.0", "no stage is called 'secnd'"),
        (
            ("offload_activations={to: partner}", "batch_serialization_iterations=2", "schedule=sequential"),
            "",
            "Single activations are moved only with batch_serialization_iterations 1",
        ),
    ],
)
def test_moves_that_are_refused_are_refused_at_their_key(load, changes, where, text):
    chosen = [f"pipeline.{change}" for change in changes]
    with pytest.raises(ScenarioError) as caught:
        load(LAYERS, *TRAINED, "system.enable_remote_buffers=false", *chosen)
    assert f"pipeline.offload_activations{where}" in str(caught.value)
    assert text in str(caught.value)


@pytest.fixture
def executor(load):
    job = load(LAYERS, *TRAINED)
    executor = NumpyExecutor(job.program.shape, job.workload(0))
    executor.begin(0)
    return executor


def test_a_half_of_a_backward_pass_misses_what_came_before(executor):
    with pytest.raises(MissingTensorError, match=r"cannot run I0\.0 in execution 0: the stash of its forward pass"):
        executor.run(0, Pass.INPUT_GRADIENT, 0, 0)
    with pytest.raises(MissingTensorError, match=r"cannot run W0\.0 .*: the result of the other half of its backward"):
        executor.run(0, Pass.WEIGHT_GRADIENT, 0, 0)
    executor.infeed(0, 0)
    executor.run(0, Pass.FORWARD, 0, 0)
    with pytest.raises(MissingTensorError, match=r"cannot run I0\.0 .*: the gradient of its output is missing"):
        executor.run(0, Pass.INPUT_GRADIENT, 0, 0)


def test_a_pass_misses_activations_that_are_away_and_a_move_those_that_are_back(executor):
    executor.infeed(0, 0)
    executor.run(0, Pass.FORWARD, 0, 0)
    executor.move(0, 3, 0, 0, Way.OUT)
    with pytest.raises(MissingTensorError, match="the stash of its forward pass is missing"):
        executor.run(0, Pass.BACKWARD, 0, 0)
    executor.move(0, 3, 0, 0, Way.BACK)
    with pytest.raises(MissingTensorError, match="the moved stash of its forward pass is missing"):
        executor.move(0, 3, 0, 0, Way.BACK)

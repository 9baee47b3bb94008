"""Memory at every moment of a run, against a sum in plain loops over the Plan's and Timeline's numbers."""

import math
import random
from fractions import Fraction
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.analysis.memory import memory_curves
from ipusim.hardware.build import build_system
from ipusim.lowering.lower import lower
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.liveness import peaks
from ipusim.pipeline.offload import Destination, MovedActivations, Offload
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import PASSES, SpanKind
from tests.effort import share
from tests.orders import home_of, passes_of, random_order, read
from tests.plans import price_and_run
from tests.schedules import (
    FREE,
    MEETING,
    goes_around,
    is_a_v,
    is_halved,
    is_mirrored,
    mapping_of,
    multiple_of,
    options_of,
    ragged,
    takes_even_ipus,
    takes_one_stage,
    trains_only,
)

#: Random legal Orders, some of whose backward passes run in halves.
DRAWN = "drawn"
SIZES = (
    "output_bytes",
    "gradient_bytes",
    "parameter_bytes",
    "state_bytes",
    "accumulator_bytes",
    "input_bytes",
    "stash_bytes",
    "working_bytes",
    "weight_gradient_bytes",
    "code_bytes",
    "temporary_bytes",
    "rest_bytes",
)


@st.composite
def programs(draw):
    stages = draw(st.integers(2, 4))
    schedule = draw(st.sampled_from([*MEETING, *FREE, DRAWN, DRAWN]))
    stages -= stages % 2 if is_a_v(schedule) or takes_even_ipus(schedule) else 0
    training = trains_only(schedule) or draw(st.booleans())
    mapping = tuple(draw(st.permutations(range(stages))))
    serialization = draw(st.integers(2, 3)) if schedule == "sequential" and draw(st.booleans()) else 1
    if schedule == "single" or serialization > 1:
        mapping = (0,) * stages
    elif is_a_v(schedule):
        mapping = mapping_of(schedule, stages)
    elif goes_around(schedule) and stages == 4:
        mapping = (1, 0) * 2
    elif schedule in ("grouped", "sequential", "gpipe", DRAWN) and draw(st.booleans()):
        mapping = tuple(draw(st.lists(st.integers(0, 2), min_size=stages, max_size=stages)))
    # The stages between the ends run at the same time, where they are on an IPU each.
    inner = mapping[1:-1]
    together = len(inner) > 1 and len(set(inner)) == len(inner)
    together = together and not takes_one_stage(schedule) and schedule not in FREE and draw(st.booleans())
    sizes = (1, len(inner), 1) if together else ()
    places = len(sizes) or stages
    overlap = 2 if schedule == DRAWN else multiple_of(schedule, places, len(set(mapping)), training)
    again = draw(st.sampled_from(["not", "before", "inside"])) if training else "not"
    if again == "before" and schedule not in ("grouped", "interleaved", DRAWN):
        again = "inside"
    if again == "inside" and (schedule == "interleaved" or is_halved(schedule)):
        again = "not"
    segments = draw(st.integers(1, 3)) if schedule in ("seq_1f1b", DRAWN) else 1
    rng, ipus = draw(st.randoms(use_true_random=False)), len(set(mapping))
    count = ragged(rng, schedule, overlap * draw(st.integers(1, 2)) * serialization * segments, ipus)
    shape = PlanShape(
        mapping=mapping,
        micro_batches=count,
        training=training,
        recompute=again == "before",
        recompute_inline=again == "inside",
        sizes=sizes,
        serialization=serialization,
        segments=segments,
        **options_of(rng, schedule, count, ipus),
        mirrored=is_mirrored(schedule) or (schedule == DRAWN and mapping == (0, 1, 2, 3) and again != "before"),
    )
    profiles = tuple(draw(profile(index, again == "inside")) for index in range(stages))
    moved = None
    if serialization == 1 and training and draw(st.booleans()):
        which = draw(st.none() | st.lists(st.integers(0, stages - 1), min_size=1, unique=True).map(tuple))
        to, keep = draw(st.sampled_from(get_args(Destination))), draw(st.none() | st.integers(0, 3))
        moved = MovedActivations(to, which, keep, draw(st.integers(1, 3)))
    offload = Offload(
        training and draw(st.booleans()),
        training and draw(st.booleans()),
        1,
        serialization > 1 and draw(st.booleans()),
        moved=moved,
    )
    return PipelineProgram(
        profiles,
        shape,
        schedule,
        repeat_count=draw(st.integers(1, 2)),
        infeed=Infeed(draw(st.integers(0, 99))),
        outfeed=Outfeed(draw(st.integers(0, 99))),
        offload=offload,
        overlap_copies=draw(st.booleans()),
        overlapped=draw(st.sampled_from(["sum", "max", 70])),
    )


@st.composite
def plans(draw):
    """A program and its Plan, in either sync mode."""
    program = draw(programs())
    sync = Sync.LOCK_STEP if program.shape.sizes else draw(st.sampled_from(Sync))
    if program.schedule == DRAWN:
        return program, lower(random_order(random.Random(draw(st.integers(0, 9999))), program.shape), sync)
    return program, plan_of(find(program.schedule), program.shape, sync)


@st.composite
def profile(draw, index, inside):
    sizes = {size: draw(st.integers(0, 999)) for size in SIZES}
    sizes["label_bytes"] = draw(st.integers(0, sizes["output_bytes"]))
    if inside and draw(st.booleans()):  # with checkpoints
        sizes |= {"recompute": draw(st.integers(0, 9))}
        sizes |= {name: draw(st.integers(0, 999)) for name in ("checkpoint_bytes", "cluster_bytes")}
    return StageProfile(
        f"s{index}", draw(st.integers(0, 40)), draw(st.integers(0, 40)), draw(st.integers(0, 9)), **sizes
    )


def inside(program, index):
    """Whether the backward pass of a stage computes activations again."""
    last = index == program.shape.stages - 1
    return program.shape.recompute_inline and (not last or program.stages[index].recompute is not None)


def kept_bytes(program, index):
    """Bytes that a forward pass keeps."""
    profile, last = program.stages[index], index == program.shape.stages - 1
    if inside(program, index):
        return profile.input_bytes if profile.checkpoint_bytes is None else profile.checkpoint_bytes
    return profile.input_bytes if program.shape.recompute and not last else profile.stash_bytes


def travels(program, source, target):
    """Bytes from a stage to its neighbour: an output, or what belongs to the target of a gradient."""
    if source < target:
        return program.stages[source].output_bytes
    parts = program.shape.parts[program.shape.position_of[target]]
    if len(parts) == 1:
        return program.stages[source].gradient_bytes
    widths = [program.stages[part].output_bytes - program.stages[part].label_bytes for part in parts]
    own = widths[parts.index(target)]
    return math.ceil(Fraction(program.stages[source].gradient_bytes * own, max(sum(widths), 1)))


def homes(shape, stage):
    """The IPUs of a stage: of both of its copies, where there are two."""
    return {home_of(shape, stage, micro) for micro in (0, 1)}


def depth_of(program, plan, index, moves):
    """Micro-batches in a stage's FIFO: of a stage that moves any, those that stay."""
    depth, moved = plan.fifo_depths[index], program.offload.moved
    if not any(stage == index for stage, *_ in moves):
        return depth
    ipus = len(set(program.shape.mapping))
    most = math.ceil((ipus + 2) / 2) - moved.buffers if moved.to == "partner" else 1
    return min(depth, max(most, 0) if moved.keep is None else moved.keep)


def moved_away(timeline):
    """From when to when each micro-batch is away that is moved, by stage, execution and micro-batch."""
    found = {}
    for span in timeline:
        key = span.stage, span.execution, span.micro_batch
        if span.kind in (SpanKind.MOVE_OUT, SpanKind.ACTIVATION_STORE):
            found[key] = [span.end, None]
        elif span.kind in (SpanKind.MOVE_BACK, SpanKind.ACTIVATION_LOAD):
            back = found.setdefault(key, [None, None])
            back[1] = span.start
    return found


def room(program, plan, ipu, moves):
    """Bytes that an IPU has for the activations of its partner: for as many as are away at once in any order."""
    shape, moved = program.shape, program.offload.moved
    if moved is None or moved.to != "partner":
        return 0
    ipus = sorted(set(shape.mapping))
    partner, total = ipus[-1 - ipus.index(ipu)], 0
    for index in range(shape.stages):
        away, most = set(), 0
        for letter, stage, micro in map(read, passes_of(plan.order)[partner]):
            if stage == index and (stage, 0, micro) in moves:
                if letter == "F":
                    away.add(micro)
                elif letter == ("R" if shape.recompute and index < shape.stages - 1 else letter) and letter in "RBI":
                    away.discard(micro)
                most = max(most, len(away))
        total += most * kept_bytes(program, index)
    return total


def resident(program, plan, ipu, moves):
    """Bytes that an IPU holds all the time."""
    shape = program.shape
    mine = [stage.temporary_bytes for index, stage in enumerate(program.stages) if ipu in homes(shape, index)]
    total = max(mine) + room(program, plan, ipu, moves)
    merged = program.schedule in ("grouped", "interleaved", "popart", *FREE, DRAWN) or plan.sync is Sync.POINT_TO_POINT
    waits = waiting(plan) if plan.sync is Sync.POINT_TO_POINT else {}
    turns = 1 if program.offload.activations else shape.serialization
    for index, profile in enumerate(program.stages):
        if ipu not in homes(shape, index):
            continue
        first, last = index == 0, index == shape.stages - 1
        total += profile.parameter_bytes + profile.code_bytes
        if shape.training:
            total += 0 if program.offload.weight_update_variables else profile.state_bytes
            total += 0 if program.offload.gradient_accumulation_buffers else profile.accumulator_bytes
            if not (program.offload.activations and not last):
                total += depth_of(program, plan, index, moves) * kept_bytes(program, index)
        total += program.infeed.element_bytes if first else 0
        total += program.outfeed.element_bytes if last else 0
        total += turns * ((0 if first else profile.gradient_bytes) + (0 if last else profile.output_bytes))
        for other in range(shape.stages):
            beside = abs(shape.position_of[other] - shape.position_of[index]) == 1
            if beside and (merged or ipu not in homes(shape, other)):
                total += waits.get((other, index), 1) * travels(program, other, index)
    return total


def waiting(plan):
    """By loops: the most tensors from one stage to the next that may lie there, whatever the times.

    When a pass takes one, the sender has got no further than to the first of its passes that takes what the receiver
    makes by this pass or later.
    """
    places = {word: (ipu, at) for ipu, words in passes_of(plan.order).items() for at, word in enumerate(words)}
    shape, found = plan.shape, {}
    makers = {}
    for word in places:
        letter, stage, micro = read(word)
        if letter in "FBI":
            target = stage + 1 if letter == "F" else stage - 1
            takers = [f"{kind}{target}.{micro}" for kind in ("F" if letter == "F" else "BI")]
            makers.update((word, taker) for taker in takers if taker in places)
    for maker in makers:
        (_, source, micro), target = read(maker), read(makers[maker])[1]
        sender = home_of(shape, source, micro)
        own = [
            (places[one], places[taker])
            for one, taker in makers.items()
            if read(one)[1] == source and read(taker)[1] == target and home_of(shape, source, read(one)[2]) == sender
        ]
        most = 1
        for _, (receiver, at) in own:
            until = math.inf
            if sender == receiver:
                until = at
            else:
                for one, taker in makers.items():
                    if places[one][0] == receiver and places[taker][0] == sender and places[one][1] >= at:
                        until = min(until, places[taker][1])
            made = sum(place < until for (_, place), _ in own)
            most = max(most, made - sum(place < at for _, (_, place) in own))
        found[source, target] = max(most, found.get((source, target), 1))
    return found


def lives(timeline):
    """The passes of each (stage, execution, micro-batch): start and end by kind."""
    found = {}
    for span in timeline:
        if span.kind in PASSES:
            life = found.setdefault((span.stage, span.execution, span.micro_batch), {})
            life[SpanKind(span.kind)] = span.start, span.end
    return found


def updates(timeline, ipu):
    """From the first byte that each weight update of an IPU loads to the last that it stores."""
    found = {}
    for span in timeline:
        moves = span.kind in (SpanKind.REMOTE_LOAD, SpanKind.WEIGHT_UPDATE, SpanKind.REMOTE_STORE)
        if moves and span.ipu == ipu and span.time_step == timeline.info.time_steps:
            start, end = found.get(span.execution, (span.start, span.end))
            found[span.execution] = min(start, span.start), max(end, span.end)
    return list(found.values())


def while_running(program, index, running, sums, away):
    """Bytes alive in the passes of one stage over one micro-batch that run at a moment."""
    profile, live = program.stages[index], 0
    again = inside(program, index)
    keeps_nothing = (
        again or not program.shape.training or (program.shape.recompute and index < program.shape.stages - 1)
    )
    if SpanKind.FORWARD in running:
        live += profile.output_bytes + away
        live += max(profile.working_bytes - profile.output_bytes, 0) if keeps_nothing else 0
    if SpanKind.BACKWARD in running:
        live += max(profile.working_bytes, profile.gradient_bytes) + profile.weight_gradient_bytes + sums + away
        if again:
            live += profile.stash_bytes if profile.cluster_bytes is None else profile.cluster_bytes
    if SpanKind.INPUT_GRADIENT in running:
        live += max(profile.working_bytes, profile.gradient_bytes) + away
        if again:
            computed = profile.stash_bytes if profile.cluster_bytes is None else profile.cluster_bytes
            live += max(computed, profile.rest_bytes)
        else:
            live += max(profile.rest_bytes - profile.stash_bytes, 0)
    if SpanKind.WEIGHT_GRADIENT in running:
        live += profile.weight_gradient_bytes + sums
    return live


def at(program, plan, passes, changes, ipu, now, moves):
    """Bytes alive, and bytes in FIFOs, of one IPU at one moment."""
    live = in_fifos = loaded = room = 0
    shape, offload = program.shape, program.offload
    changing = any(start <= now < end for start, end in changes)
    for index, profile in enumerate(program.stages):
        if ipu not in homes(shape, index):
            continue
        last = index == shape.stages - 1
        recomputes = shape.recompute and not last
        sums = profile.accumulator_bytes if offload.gradient_accumulation_buffers else 0
        size = kept_bytes(program, index)
        away = size if offload.activations and not last and shape.training else 0
        room = max(room, profile.temporary_bytes)
        if changing:
            loaded += (profile.state_bytes if offload.weight_update_variables else 0) + sums
        kept = working = 0
        for (stage, execution, micro), life in passes.items():
            if stage != index or home_of(shape, stage, micro) != ipu:
                continue
            running = [kind for kind, (start, end) in life.items() if start <= now < end]
            halved = SpanKind.INPUT_GRADIENT in life
            back = SpanKind.INPUT_GRADIENT if halved else SpanKind.BACKWARD
            release = SpanKind.RECOMPUTE if recomputes else back
            if halved and life[SpanKind.INPUT_GRADIENT][1] <= now < life[SpanKind.WEIGHT_GRADIENT][1]:
                live += profile.rest_bytes
            live += while_running(program, index, running, sums, away)
            if shape.training:
                working += SpanKind.FORWARD in running or release in running
                gone, there = moves.get((stage, execution, micro), (0, 0))
                elsewhere = gone <= now < there
                kept += life[SpanKind.FORWARD][0] <= now < life[release][1] and not elsewhere
            if recomputes and life[SpanKind.RECOMPUTE][0] <= now < life[back][1]:
                live += profile.stash_bytes
        if shape.training:
            outside = max(working, kept - depth_of(program, plan, index, moves))
            live += (size - away) * outside
            in_fifos += (size - away) * (kept - outside)
    return live + max(loaded - room, 0), in_fifos


@settings(max_examples=share(150), deadline=None)
@given(plans())
def test_memory_is_the_sum_of_what_is_alive_at_every_moment(drawn):
    program, plan = drawn
    timeline = price_and_run(plan, program, build_system("m2000", mapping=program.shape.mapping, remote_buffers=True))
    code = {ipu: 1000 + ipu for ipu in plan.ipus[1:]}
    held = footprint(plan, program, estimated_code=code)
    moves = moved_away(timeline)
    passes, changes = lives(timeline), {ipu: updates(timeline, ipu) for ipu in plan.ipus}
    for peak, curve in zip(peaks(plan, held), memory_curves(timeline, held), strict=True):
        assert curve.resident_bytes == resident(program, plan, curve.ipu, moves) + code.get(curve.ipu, 0)
        assert (np.diff(curve.time) >= 0).all()
        assert curve.live_bytes.min() >= 0
        assert curve.fifo_bytes.min() >= 0
        assert (curve.fifo_bytes <= curve.resident_bytes).all()
        assert curve.live_bytes[0] == curve.live_bytes[-1] == 0, "back at what is resident"
        assert curve.fifo_bytes[0] == curve.fifo_bytes[-1] == 0
        most = int(curve.allocated_bytes.max())
        assert most <= peak.bytes if moves else most == peak.bytes, "from the order alone as from the run"
        moments = np.unique(curve.time)
        for now in {*moments.tolist(), *(moments[:-1] + np.diff(moments) // 2).tolist(), timeline.makespan_cycles}:
            entry = int(np.searchsorted(curve.time, now, side="right")) - 1
            found = int(curve.live_bytes[entry]), int(curve.fifo_bytes[entry])
            assert found == at(program, plan, passes, changes[curve.ipu], curve.ipu, now, moves)

"""Runs of random legal Orders in both sync modes: what every Timeline keeps, and what its IPUs ever hold for others."""

import random
from collections import defaultdict

import numpy as np
import pytest

from ipusim.analysis.critical_path import WAITS
from ipusim.hardware.build import build_system
from ipusim.lowering.lower import lower
from ipusim.model.profile import StageProfile
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.offload import MovedActivations, Offload
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.timeline.kinds import IPU_KINDS, PASSES, SpanKind
from ipusim.timeline.timeline import NONE
from tests.effort import seeds
from tests.orders import random_mapping, random_order
from tests.plans import price_and_run
from tests.run_checks import check_explained
from tests.scenarios import run as run_free
from tests.schedules import FREE, mapping_of, multiple_of
from tests.timelines import check_tiling


def drawn(seed):
    """A program with anything that takes time, its Order, and a System with one or two replicas."""
    rng = random.Random(seed)
    training = rng.random() < 0.85
    stages = rng.randint(2, 6)
    shape = PlanShape(
        mapping=random_mapping(rng, stages, 4),
        micro_batches=rng.randint(1, 5),
        training=training,
        recompute=training and rng.random() < 0.3,
    )
    sizes = (0, 200, 90_000)
    profiles = tuple(
        StageProfile(
            f"s{index}",
            rng.randint(1, 20_000),
            rng.randint(2, 20_000),
            rng.randint(0, 9_000),
            output_bytes=rng.choice(sizes),
            gradient_bytes=rng.choice(sizes),
            accumulator_bytes=rng.choice((0, 4_000)),
            state_bytes=4_000,
            stash_bytes=3_000 * index,
        )
        for index in range(stages)
    )
    moves, moved = random.Random(f"moves {seed}"), None
    if training and moves.random() < 0.5:
        to, keep = moves.choice(("streaming_memory", "partner")), moves.choice((None, 0, 1))
        moved = MovedActivations(to, None, keep, moves.randint(1, 2))
    program = PipelineProgram(
        profiles,
        shape,
        "drawn",
        repeat_count=rng.randint(1, 3),
        infeed=Infeed(rng.choice(sizes), rng.choice((1, 3))),
        outfeed=Outfeed(rng.choice(sizes), rng.choice(("ALL", "LAST")), accumulate=False),
        overlap_copies=rng.random() < 0.6,
        sync_replicas_independently=rng.random() < 0.5,
        offload=Offload(training and rng.random() < 0.4, training and rng.random() < 0.4, 1, moved=moved),
    )
    system = build_system(
        "bow_pod16",
        mapping=shape.mapping,
        ipus=rng.choice((4, 8)),
        selection_order=rng.choice(("ZIGZAG", "HOOF")),
        remote_buffers=True,
    )
    return program, random_order(rng, shape), system


@pytest.mark.parametrize("sync", list(Sync))
@pytest.mark.parametrize("seed", seeds(15))
def test_every_moment_of_an_ipu_has_one_span_and_every_span_its_cause(seed, sync):
    """And the critical path and the causes of idle time add up to the run."""
    program, order, system = drawn(seed)
    timeline = price_and_run(lower(order, sync), program, system)
    rows = list(timeline)
    for span in rows:
        if span.cause == NONE:
            assert span.start == 0 or span.kind == SpanKind.HOST
            continue
        cause = rows[span.cause]
        assert cause.end <= span.start
        assert cause.end == span.start or span.kind in (SpanKind.HOST, SpanKind.LINK), (span, cause)
    check_tiling(timeline)
    check_explained(timeline)


def tied_passes(timeline):
    """The rows of passes that begin when a span of their IPU ends, each with the row of that, where it is no wait."""
    before, ties = {}, []
    rows = timeline.rows(*IPU_KINDS)
    rows = rows[np.lexsort((rows, timeline.end[rows], timeline.start[rows]))]
    for row in rows.tolist():
        last = before.get(ipu := int(timeline.ipu[row]))
        if last is not None and timeline.kind[last] not in WAITS and timeline.kind[row] in PASSES:
            assert timeline.end[last] == timeline.start[row]
            ties.append((row, last))
        before[ipu] = row
    return ties


@pytest.mark.parametrize("seed", seeds(15))
def test_a_pass_begins_because_of_its_own_ipu_where_a_tensor_comes_in_the_same_cycle(seed):
    """Also where its event came later: only an IPU that has waited for a tensor has that as its cause."""
    rng = random.Random(seed)
    name = rng.choice([*FREE])
    mapping = mapping_of(name, 4)
    count = multiple_of(name, len(mapping), 4) * rng.choice((1, 2))
    system, moved = rng.choice((("free", 0), ("bow_pod16", 200), ("bow_pod16", 90_000)))
    timeline = run_free(name, mapping=mapping, count=max(count, 8), system=system, moved=moved, backward=100).timeline
    timeline = timeline.expanded()
    ties = tied_passes(timeline)
    assert ties
    assert [int(timeline.cause[row]) for row, _ in ties] == [last for _, last in ties]


@pytest.mark.parametrize("seed", seeds(15))
def test_no_more_tensors_wait_than_the_buffers_hold(seed):
    program, order, system = drawn(100 + seed)
    plan = lower(order, Sync.POINT_TO_POINT)
    timeline = price_and_run(plan, program, system)
    shape = order.shape
    made, taken = defaultdict(list), defaultdict(list)
    kinds = {SpanKind.FORWARD: 1, SpanKind.BACKWARD: -1, SpanKind.INPUT_GRADIENT: -1}
    for row in timeline.rows(*PASSES):
        if timeline.replica[row] or timeline.execution[row] or timeline.kind[row] not in kinds:
            continue
        stage, step = int(timeline.stage[row]), kinds[timeline.kind[row]]
        if 0 <= stage + step < shape.stages:
            made[stage, stage + step].append(int(timeline.end[row]))
        if 0 <= stage - step < shape.stages:
            taken[stage - step, stage].append(int(timeline.start[row]))
    assert made.keys() == taken.keys() == plan.waiting.keys()
    for pair, ends in made.items():
        starts = np.sort(taken[pair])
        # When one is taken, those that have been made by then and not taken before it may all be there.
        waiting = np.searchsorted(np.sort(ends), starts, side="right") - np.arange(len(starts))
        assert waiting.max() <= plan.waiting[pair]

"""Waits in the ramps and waits in the main phase, against brackets and idle time found from spans one by one."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from ipusim.pipeline.plan import Sync
from ipusim.runs.execute import execute
from ipusim.runs.request.figure_names import figure_of
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.waterfall import price_without, waterfall_of
from ipusim.schedules.registry import find, names
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import TimePart
from tests.effort import sampled
from tests.oracles.test_waterfall import BACKWARD, FORWARD, job_of
from tests.properties.test_waterfall import odd_job
from tests.scenarios import run

PASSES = SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT, SpanKind.WEIGHT_GRADIENT


def brackets(spans, overlap):
    """Return begin and end of the main phase of one execution's passes; None where it has none.

    In lock-step from the first time-step with all of its ``overlap`` slots filled to the last, else (``overlap`` is 0)
    from the last IPU's first pass to the first IPU's last.
    """
    if overlap:
        filled = defaultdict(int)
        for span in spans:
            filled[span.time_step] += 1
        full = [step for step, slots in filled.items() if slots == overlap]
        if not full:
            return None
        begin = max((span.end for span in spans if span.time_step < min(full)), default=min(s.start for s in spans))
        return begin, max(span.end for span in spans if span.time_step <= max(full))
    of_ipu = defaultdict(list)
    for span in spans:
        of_ipu[span.ipu].append(span)
    begin = max(min(span.start for span in own) for own in of_ipu.values())
    end = min(max(span.end for span in own) for own in of_ipu.values())
    return (begin, end) if begin < end else None


def idle_within(timeline):
    """Return idle cycles of each IPU within main phases, and in all, cycle by cycle; of a run without blocks."""
    spans = [span for span in timeline if span.kind in PASSES]
    ipus = sorted({span.ipu for span in spans})
    busy = {ipu: np.zeros(timeline.makespan_cycles, dtype=bool) for ipu in ipus}
    for span in spans:
        busy[span.ipu][span.start : span.end] = True
    main = np.zeros(timeline.makespan_cycles, dtype=bool)
    overlap = timeline.info.overlap if timeline.info.has_time_steps else 0
    for execution in range(timeline.info.executions):
        found = brackets([span for span in spans if span.execution == execution], overlap)
        if found:
            main[slice(*found)] = True
    return [int((main & ~busy[ipu]).sum()) for ipu in ipus], [int((~busy[ipu]).sum()) for ipu in ipus]


DRAWS = [(name, sync) for name in names() if name != "single" for sync in find(name).syncs]


@sampled(3)
@pytest.mark.parametrize(("name", "sync"), DRAWS)
def test_the_ipu_that_waits_least_in_main_says_the_gaps(name, sync):
    """Of one execution or several, of a run that is simulated in part, and of one that is laid out whole."""
    job = odd_job(name, "gaps", sync)
    laid_out = replace(job.whole, with_counts=None)
    balanced = timeline_of(laid_out, job.executions, jump=False, price=lambda of: price_without(of, 7))
    in_main, in_all = idle_within(balanced)
    found = waterfall_of(job, timeline_of(job, job.executions)).cycles
    assert found[TimePart.GAPS_IN_MAIN] == min(in_main)
    assert found[TimePart.FILL_AND_DRAIN] + found[TimePart.GAPS_IN_MAIN] == min(in_all)
    assert found[TimePart.FILL_AND_DRAIN] >= 0


@pytest.mark.parametrize("count", [16, 4096])
@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize(
    ("schedule", "sync"),
    [
        ("grouped", Sync.LOCK_STEP),
        ("grouped", Sync.POINT_TO_POINT),
        ("gpipe", Sync.LOCK_STEP),
        ("gpipe", Sync.POINT_TO_POINT),
        ("1f1b", Sync.POINT_TO_POINT),
        ("eager_1f1b", Sync.LOCK_STEP),
        ("popart", Sync.LOCK_STEP),
    ],
)
def test_a_ramp_of_a_pass_each_way_is_all_that_these_wait_by_hand(schedule, sync, ipus, count):
    """The last IPU begins p - 1 forward passes late, and what it ends with is p - 1 backward passes from the end."""
    count -= count % (2 * ipus - 1) if schedule == "popart" else 0
    found = execute(job_of(schedule, [(FORWARD, BACKWARD)] * ipus, sync, count=count)).summary.waterfall.cycles
    assert found[TimePart.FILL_AND_DRAIN] == (ipus - 1) * (FORWARD + BACKWARD)
    assert found[TimePart.GAPS_IN_MAIN] == 0


@pytest.mark.parametrize(
    ("schedule", "options", "ramps", "gaps"),
    [
        # The ramps have 4 time-steps of forward passes, 2 of both, and 6 of backward passes; 6 are passes of the first.
        ("interleaved", {"count": 16, "executions": 40}, 40 * (FORWARD + 5 * BACKWARD), 40 * 13 * (BACKWARD - FORWARD)),
        # Of one micro-batch each IPU has ended when the next begins, so that there is no main phase.
        ("gpipe", {"count": 1, "inference": True, "sync": "point_to_point"}, 3 * FORWARD, 0),
    ],
)
def test_gaps_of_40_executions_and_of_none_with_a_main_phase_by_hand(schedule, options, ramps, gaps):
    found = run(schedule, forward=FORWARD, backward=BACKWARD, update=0, **options).summary.waterfall.cycles
    assert (found[TimePart.FILL_AND_DRAIN], found[TimePart.GAPS_IN_MAIN]) == (ramps, gaps)


def test_each_part_has_a_key_of_its_own_that_scenarios_expect():
    job = job_of("interleaved", [(FORWARD, BACKWARD)] * 4, count=4096)
    said = execute(job).summary.to_dict()["waterfall"]
    assert said["cycles"]["gaps_in_main"] == 4093 * (BACKWARD - FORWARD)
    assert said["shares"]["gaps_in_main"] == pytest.approx(0.2497, abs=1e-4)
    assert said["shares"]["fill_and_drain"] == pytest.approx(3 / 4099, rel=0.1)
    for part in ("gaps_in_main", "fill_and_drain"):
        assert figure_of(f"waterfall.shares.{part}")[0].value_in({"waterfall": said}) == said["shares"][part]

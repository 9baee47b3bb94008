"""The parts of a run's time, waits in its ramps and in main, and stragglers: closed forms, and spans one by one."""

import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipusim.app.explain.stragglers import stragglers
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.figure_names import figure_of
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.runs.waterfall import balanced, price_without, waterfall_of
from ipusim.schedules import registry
from ipusim.schedules.registry import find, names
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import TimePart
from reports.bubbles_page import FORMS, Case, per_micro_batch, request_of, simulate, with_copies
from tests.effort import draws_everything, runs_slowest, sampled, slowest
from tests.properties.test_waterfall import odd_job
from tests.scenarios import job_from, run
from tests.schedules import FREE, goes_around, is_a_v, mapping_of, multiple_of

FORWARD, BACKWARD, COUNT = 100, 200, 16
#: Cycles of fill and drain with gaps in main, of p equal stages, each on an IPU, under the schedules whose closed form
#: does not depend on how IPUs wait for each other, by p; those of others are ``FORMS``.
WAITS = {
    "grouped": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "popart": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "gpipe": lambda p: (p - 1) * (FORWARD + BACKWARD),
    "sequential": lambda p: COUNT * (p - 1) * (FORWARD + BACKWARD),
    "sharded": lambda p: COUNT * (p - 1) * (FORWARD + BACKWARD),
}


def job_of(schedule, lengths, sync=None, mapping=None, count=COUNT, **more):
    """Return the Job of stages of such lengths, (forward, backward) each, on the free system."""
    stages = [
        {"name": f"s{number}", "forward": forward, "backward": backward}
        for number, (forward, backward) in enumerate(lengths)
    ]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": count, "stages": stages}
    pipeline |= {"sync": sync.value} if sync else {}
    pipeline |= {"device_mapping": mapping} if mapping else {}
    return job_from({"system": {"name": "free"}, "pipeline": pipeline | more})


def parts_of(job):
    """Return the parts of the run's time that take any."""
    return {part: cycles for part, cycles in execute(job).summary.waterfall.cycles.items() if cycles}


HOUSE = sorted(registry.HOUSE - {"single"})


@sampled(3)
@pytest.mark.parametrize("ipus", [2, 4, 8])
@pytest.mark.parametrize("name", HOUSE)
def test_equal_stages_have_no_imbalance_and_what_ipus_wait_is_the_closed_form(name, ipus):
    """However IPUs wait for each other: by default in one way of theirs, from number to number another one."""
    schedule = registry.find(name)
    turn = (HOUSE.index(name) + ipus.bit_length()) % len(schedule.syncs)
    twice = goes_around(name) or is_a_v(name)
    mapping = [*mapping_of(name, 2 * ipus)] if twice else [*range(ipus)]
    for sync in schedule.syncs if draws_everything() else schedule.syncs[turn : turn + 1]:
        parts = parts_of(job_of(name, [(FORWARD, BACKWARD)] * len(mapping), sync, mapping))
        waits = parts.pop(TimePart.FILL_AND_DRAIN, 0) + parts.pop(TimePart.GAPS_IN_MAIN, 0)
        assert parts == {TimePart.USEFUL: len(mapping) // ipus * COUNT * (FORWARD + BACKWARD)}
        if name in WAITS:
            assert waits == WAITS[name](ipus)


@pytest.mark.parametrize(
    ("forward", "backward", "mapping", "expected"),
    [
        ([10, 10, 10, 14], [20] * 4, [0, 1, 2, 3], [11, 11, 11, 11, 20, 20, 20, 20]),
        ([10, 10, 10, 13], [20] * 4, [0, 1, 2, 3], [11, 11, 11, 10, 20, 20, 20, 20]),
        ([5, 20, 30, 8], [21] * 4, [0, 1, 2, 0], [11, 21, 21, 10, 14, 28, 28, 14]),
        ([6, 6], [20] * 2, [0, 1], [6, 6, 20, 20]),
        ([10, 11, 10, 11], [20, 21, 20, 20], [0, 1, 2, 3], [11, 11, 10, 10, 20, 20, 21, 20]),
    ],
)
def test_balance_gives_every_ipu_an_equal_part_in_whole_cycles(forward, backward, mapping, expected):
    """What is left over of a kind goes on where that of the kind before ended."""
    job = job_of("grouped", [*zip(forward, backward, strict=True)], mapping=mapping, count=COUNT)
    found = balanced(job, {key: cycles for key, cycles in job.costs.passes.items() if key[0] < 2})
    assert [found[kind, stage] for kind in range(2) for stage in range(len(forward))] == expected


def test_what_costs_nothing_takes_no_time():
    stage = {"forward": 100, "backward": 200, "update": 50, "output_bytes": 64}
    stages = [{"name": f"s{number}", **stage} for number in range(4)]
    job = job_from({"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 8, "stages": stages}})
    assert parts_of(job) == {TimePart.USEFUL: 2_400, TimePart.FILL_AND_DRAIN: 900, TimePart.UPDATE: 50}


@pytest.mark.parametrize("count", [8, 24, 240, 100_000])
@pytest.mark.parametrize("sync", [Sync.LOCK_STEP, Sync.POINT_TO_POINT])
def test_halves_that_round_apart_are_counted_where_they_stand_of_any_count(sync, count):
    """DualPipe waits (N - 2) F, on two IPUs nothing, and its ramps alone have backward passes in halves."""
    cycles = execute(job_of("dualpipe", [(123, 246), (1000, 1000)], sync, count=count)).summary.waterfall.cycles
    # Either IPU runs both stages for half of the micro-batches. A backward pass of 623 cycles is 312 + 312 in halves
    # of the first stage, 311 + 311 of the second; an IPU has one more of the first ones.
    assert cycles[TimePart.USEFUL] == count // 2 * (1123 + 1246) + 1
    assert (cycles[TimePart.FILL_AND_DRAIN], cycles[TimePart.GAPS_IN_MAIN]) == (0, 0)


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


def of(job):
    return stragglers(job, execute(job).timeline)


def test_equal_stages_do_not_straggle():
    found = of(job_of("grouped", [(100, 200)] * 4))
    assert (found.slowdown, found.by_type, found.share_of_slowest, found.share_of_last) == (
        1.0,
        {"forward": 1.0, "backward": 1.0},
        None,
        None,
    )
    assert found.by_ipu == dict.fromkeys(range(4), 1.0)
    assert "S is 1.000" in next(found.words())


def test_the_last_stage_slower_in_lock_step():
    # The mean of 100, 100, 100 and 140 is 110, that of 200 and once 280 is 220: the ideal takes (m + p - 1) times both.
    found = of(job_of("grouped", [(100, 200)] * 3 + [(140, 280)]))
    ideal, whole = (COUNT + 3) * (110 + 220), COUNT * (140 + 280) + 3 * (100 + 200)
    assert found.ideal_cycles == ideal
    assert found.slowdown == whole / ideal
    # Forward passes as they are, and backward ones ideal: its time-steps take 140 + 220, the other six 100 and 220.
    assert found.by_type["forward"] == (COUNT * (140 + 220) + 3 * (100 + 220)) / ideal
    assert max(found.by_ipu, key=found.by_ipu.get) == 3
    # Made ideal it takes 110 and 220 beside 100 and 200.
    fixed = COUNT * (110 + 220) + 3 * (100 + 200)
    assert found.slowest == (3,)
    assert found.share_of_slowest == found.share_of_last == (whole - fixed) / (whole - ideal)


@pytest.mark.parametrize("slower", range(4))
def test_one_slower_stage_under_1f1b_point_to_point(slower):
    def takes(forward, backward):
        more = forward + backward - 300
        return COUNT * (forward + backward) + 3 * 300 - (3 - slower) * more

    lengths = [(140, 280) if stage == slower else (100, 200) for stage in range(4)]
    found = of(job_of("1f1b", lengths, Sync.POINT_TO_POINT))
    ideal, whole = (COUNT + 3) * 330, takes(140, 280)
    assert (found.cycles, found.ideal_cycles) == (whole, ideal)
    assert found.slowest == (slower,)
    assert found.share_of_slowest == (whole - takes(110, 220)) / (whole - ideal)
    assert (found.share_of_last == found.share_of_slowest) == (slower == 3)


def disturbed(*disturbances, stages=4, system=None):
    """Return the words of equal stages, one on each IPU, with disturbances."""
    named = [{"name": f"s{number}", "forward": 100, "backward": 200} for number in range(stages)]
    data = {"system": system or {"name": "free"}, "disturbances": list(disturbances), "memory": "off"}
    return of(assemble(Request.from_dict(data | {"pipeline": {"gradient_accumulation_count": 24, "stages": named}})))


@pytest.mark.parametrize("ipu", [1, 3])
def test_a_disturbed_ipu_is_the_slowest_and_the_last_stage_is_where_it_is_on_that(ipu):
    found = disturbed({"ipu": ipu, "slower": 2})
    assert found.slowest == (ipu,)
    assert found.by_ipu[ipu] == found.by_type["disturbances"] == found.slowdown > 1.1
    assert [found.by_ipu[other] for other in range(4) if other != ipu] == [1.0] * 3
    assert (found.share_of_slowest, found.share_of_last) == (1.0, float(ipu == 3))
    assert "the run straggles" in next(found.words())


def test_jitter_of_all_ipus_is_that_of_each():
    every, each = disturbed({"jitter": "30 %"}), disturbed(*({"jitter": "30 %", "ipu": ipu} for ipu in range(4)))
    assert every == each
    assert len({*each.by_ipu.values()}) == 4


def test_a_worker_is_an_ipu_of_each_replica():
    found = disturbed({"ipu": 3, "slower": 2}, system={"name": "m2000", "auto_select_ipus": 4}, stages=2)
    assert "if the slowest IPUs (IPU 1 of each replica) were not slow (M_W)" in [*found.words()][1]


TIMES = st.integers(1, 9).map(lambda cycles: 100 * cycles)


@sampled(2)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.schedule)
@settings(max_examples=30 if draws_everything() else 3, deadline=None)
@given(data=st.data())
def test_what_an_ipu_waits_and_keeps_is_what_its_form_says(form, data):
    sizes = st.integers(2, 9) | st.sampled_from([12, 16])
    ipus = data.draw(sizes.map(lambda ipus: ipus - ipus % 2 if form.only_even else ipus))
    multiple = math.lcm(ipus, multiple_of(form.schedule, ipus * form.per_ipu, ipus))
    count = multiple * data.draw(st.integers(2 * ipus // multiple, 4 * ipus // multiple))
    if form.schedule == "interleaved_1f1b":  # as many groups, which may be larger
        groups = count // ipus
        count += groups * data.draw(st.integers(0, (ipus - 1) // groups))
    forward = data.draw(TIMES)
    equal = form.only_equal or data.draw(st.booleans())
    first, second = (forward, forward) if equal else (data.draw(TIMES), data.draw(TIMES))
    case = Case(ipus, count, forward, first, second)
    assume(form.holds(case))
    wait, kept = simulate(case, form.schedule, form.per_ipu)
    assert wait == form.wait(case)
    parts = execute(assemble(request_of(case, form.schedule, form.per_ipu))).summary.waterfall.cycles
    assert parts[TimePart.FILL_AND_DRAIN] + parts[TimePart.GAPS_IN_MAIN] == wait
    if case.equal:
        assert kept == form.kept(case)


def test_every_schedule_of_the_gpu_world_and_grouped_have_their_forms():
    assert {form.schedule for form in FORMS} == {"grouped", *(name for name in names() if name in FREE)}


@sampled(2)
@pytest.mark.parametrize(
    ("schedule", "slack", "copies"),
    [  # with slack the slowest loop is another one from 150 cycles on
        pytest.param(*schedule, copies, marks=() if copies in default else slowest)
        for *schedule, default in (("1f1b", 1, (0, 151, 400)), ("eager_1f1b", 2, (0, 149, 151, 400)))
        for copies in (0, 1, 60, 149, 151, 400)
    ],
)
def test_a_micro_batch_takes_what_the_slowest_loop_of_neighbours_does(schedule, slack, copies):
    for ipus in (2, 3, 5) if runs_slowest() else (2, 5):
        rounds = math.lcm(*(further * slack + 1 for further in range(ipus)))  # whole rounds of any of the loops
        case = Case(ipus, 10, 100, 100, 100)
        longer = case._replace(count=case.count + rounds)
        more = with_copies(longer, schedule, copies) - with_copies(case, schedule, copies)
        assert Fraction(more, rounds) == per_micro_batch(case, copies, slack)

"""What disturbances cost, to the cycle: closed forms, and runs that are as long without them."""

from functools import cache
from itertools import pairwise, product

import pytest

from ipusim.analysis.executions import find_execution
from ipusim.analysis.recovery import redone_work
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.effort import draws_everything, sampled, slowest
from tests.scenarios import job_from
from tests.schedules import mapping_of
from tests.timelines import check_tiling

FORWARD, BACKWARD, TRANSFER = 100, 200, 60
#: Times of passes beside which tensors of so many bytes take some.
LONG, LARGE = (1000, 2000), 100_000


def job_of(
    schedule, ipus, count, disturbances, sync=None, *, times=(FORWARD, BACKWARD), moved=1000, system="free", **pipeline
):
    """Return the Job of equal stages, a stage an IPU, each of which sends its neighbours so many bytes."""
    mapping = pipeline.pop("device_mapping", mapping_of(schedule, ipus))
    stages = [{"name": f"s{number}", "forward": times[0], "backward": times[1]} for number in range(len(mapping))]
    for one, other in pairwise(stages):
        one["output_bytes"] = other["gradient_bytes"] = moved
    pipeline |= {"schedule": schedule, "gradient_accumulation_count": count, "stages": stages}
    pipeline |= {"device_mapping": list(mapping)} | ({"sync": sync.value} if sync else {})
    system = {"name": system} if isinstance(system, str) else system
    return job_from({"system": system, "pipeline": pipeline, "disturbances": disturbances, "memory": "report"})


def cycles_of(*of, **options):
    return execute(job_of(*of, **options)).timeline.makespan_cycles


@pytest.mark.parametrize(
    ("factor", "slow"),
    [
        pytest.param(factor, slow, marks=() if (place + slow) % 2 == 0 else slowest)
        for (place, factor), slow in product(enumerate((1.1, 1.25, 1.5, 2, 3.5, 10)), range(5))
    ],
)
def test_a_slow_ipu_under_1f1b_is_a_stage_of_longer_passes(slow, factor):
    """m (f' + b') + (p - 1) (f + b) - (p - 1 - s) ((f' + b') - (f + b)) as long as neither f' nor b' is above f + b.

    What stages of unequal lengths take is in test_point_to_point.
    """
    both = FORWARD + BACKWARD
    more = round(both * factor) - both
    for count in (3, 8, 32):
        of_stage = f"pipeline.stages.s{slow}"
        longer = {f"{of_stage}.forward": round(FORWARD * factor), f"{of_stage}.backward": round(BACKWARD * factor)}
        right = execute(assemble(job_of("1f1b", 5, count, []).request.replace(longer))).timeline.makespan_cycles
        assert cycles_of("1f1b", 5, count, [{"ipu": slow, "slower": factor}]) == right
        if BACKWARD * factor <= both and count == 32:
            assert right == count * (both + more) + 4 * both - (4 - slow) * more


@pytest.mark.parametrize("ipus", [3, 4, 8])
def test_a_late_cable_costs_1f1b_a_delay_a_micro_batch_and_eager_1f1b_two_in_all(ipus):
    """With slack 1 c (m - 2 floor((p - 2 - l) / 2)), at m >= 2 p; with slack 2 2 c, as long as c <= (f + b) / 2."""
    count = 4 * ipus
    plain = (count + ipus - 1) * (FORWARD + BACKWARD)
    for link in range(0, ipus - 1, 3 if ipus > 4 and not draws_everything() else 1):
        late = [{"link": [link, link + 1], "delay": TRANSFER}]
        one = TRANSFER * (count - 2 * ((ipus - 2 - link) // 2))
        assert cycles_of("1f1b", ipus, count, late) == plain + one
        assert cycles_of("eager_1f1b", ipus, count, late) == plain + 2 * TRANSFER


#: What a loss takes: detection, restart, and what writing a checkpoint takes.
LOSS = {"detect": 700, "restart": 300, "checkpoint": 50, "checkpoint_every": 3}
ONE = (8 + 3) * (FORWARD + BACKWARD)


#: When an IPU is lost, and how many executions a checkpoint then has.
LOST = [
    (100, 0),
    (2 * ONE, 0),
    (3 * ONE + 49, 0),
    (3 * ONE + 50, 3),
    (5 * ONE + 1234, 3),
    (6 * ONE + 100, 6),
    (8 * ONE, 6),
    (100 * ONE, None),
]


@sampled(2)
@pytest.mark.parametrize(
    ("lost", "kept", "sync"),
    [
        pytest.param(*lost, sync, marks=() if place % 2 == turn else slowest)
        for (place, lost), (turn, sync) in product(enumerate(LOST), enumerate(Sync))
    ],
)
def test_a_loss_costs_what_was_done_since_the_last_checkpoint_and_detection_and_restart(sync, lost, kept):
    """Of eight executions, with checkpoints behind three and six: one that is being written is none yet."""
    job = job_of("grouped", 4, 8, [{"ipu": 1, "lost": lost, **LOSS}], sync, repeat_count=8)
    run = execute(job)
    timeline, written = run.timeline, 8 * ONE + 2 * 50
    again = 0 if kept is None else lost - kept * ONE - kept // 3 * 50
    right = written if kept is None else written + again + 1000
    assert timeline.makespan_cycles == check_tiling(timeline.expanded()) == right
    for kind, cycles in ((SpanKind.LOST_WORK, again), (SpanKind.DETECTION, 700), (SpanKind.RESTART, 300)):
        rows = timeline.rows(kind)
        found = {(int(timeline.start[row]), int(timeline.end[row])) for row in rows.tolist()}
        assert len(rows) == (4 if kept is not None and cycles else 0)
        assert {end - start for start, end in found} <= {cycles}
        if kind is SpanKind.DETECTION and kept is not None:
            assert found == {(lost, lost + 700)}
    expected = ()
    if kept is not None:
        assert find_execution(timeline, kept).start == lost + 1000
        writing = 49 if lost == 3 * ONE + 49 else 0  # of a checkpoint, which is no work
        expected = ((lost + 1000, lost + 1000 + again - writing),)
    assert redone_work(timeline) == (expected if again else ())
    assert run.summary.disturbances.plain_cycles == 8 * ONE
    assert execute(job, jump=False).timeline == timeline.expanded()


def on_eight(mapping, disturbances, sync):
    """Return the run of five stages whose tensors take time, on eight IPUs in one order whatever the mapping."""
    system = {"name": "pod16", "auto_select_ipus": 8, "selection_order": "SNAKE"}
    schedule = "1f1b" if sync is Sync.POINT_TO_POINT else "grouped"
    options = {"times": LONG, "moved": LARGE, "system": system, "repeat_count": 4, "device_mapping": mapping}
    return execute(job_of(schedule, 5, 10, disturbances, sync, **options))


@cache
def undisturbed(sync):
    return on_eight([0, 1, 2, 3, 4], [], sync)


@pytest.mark.parametrize(
    ("ipu", "sync"),
    [
        pytest.param(ipu, sync, marks=slowest if (ipu // 2 + turn) % 2 else ())
        for ipu, (turn, sync) in product((0, 2, 4), enumerate(Sync))
    ],
)
def test_behind_a_loss_a_run_takes_the_routes_of_the_spare_ipu(sync, ipu):
    """Executions done again, and all that follow, are those of a pipeline whose stage is on the spare one."""
    after = [number if number != ipu else 5 for number in range(5)]
    plain, other = undisturbed(sync), on_eight(after, [], sync)
    once, spare = (find_execution(run.timeline, 1).start for run in (plain, other))
    assert once != spare
    lost = {"ipu": ipu, "lost": 2 * once + 500, **LOSS, "checkpoint_every": 2, "spare": True}
    run = on_eight([0, 1, 2, 3, 4], [lost], sync)
    timeline = run.timeline.expanded()
    assert timeline.makespan_cycles == check_tiling(timeline) == lost["lost"] + 1000 + 2 * spare
    assert [find_execution(timeline, number).execution_cycles for number in range(4)] == [once, once, spare, spare]
    restarted = timeline.rows(SpanKind.SPARE)
    assert timeline.ipu[restarted].tolist() == [ipu]
    assert (timeline.end[restarted] == lost["lost"] + 1000).all()
    assert len(timeline.rows(SpanKind.RESTART)) == 4
    carried = timeline.rows(SpanKind.LINK)
    behind = timeline.start[carried] > lost["lost"]
    links = {timeline.info.links[link] for link in timeline.link[carried[behind]].tolist()}
    routes = other.timeline
    assert links == {routes.info.links[link] for link in routes.link[routes.rows(SpanKind.LINK)].tolist()}
    begin, end = run.job.system.ipus, timeline.info.ipus_at_end
    assert [number for number in range(8) if begin[number] != end[number]] == sorted([ipu, 5])
    assert end[ipu] == begin[5]
    assert execute(run.job, jump=False).timeline == timeline


#: Bytes of the optimizer state of five stages, the most on the IPU that is lost.
STATE = 1 << 20, 8 << 20, 1 << 20, 1 << 20, 1 << 20


@pytest.mark.parametrize("slower", [1, 10])
def test_a_spare_ipu_uses_the_streaming_memory_beside_it(slower):
    """That of the second machine, which may be slow: executions are those of a pipeline whose stage is there."""
    system = {"name": "bow_pod16", "auto_select_ipus": 8, "enable_remote_buffers": True, "selection_order": "SNAKE"}
    stage = {"forward": 1000, "backward": 2000, "update": 500, "parameter_bytes": "1 MiB"}
    pipeline = {"gradient_accumulation_count": 10, "repeat_count": 4, "offload_weight_update_variables": True}
    pipeline["stages"] = [{"name": f"s{number}", "state_bytes": size, **stage} for number, size in enumerate(STATE)]

    def run(mapping, *lost):
        asked = {"system": system, "pipeline": {**pipeline, "device_mapping": mapping}}
        return execute(job_from(asked | {"disturbances": [{"streaming_memory": 1, "slower": slower}, *lost]}))

    plain, there = run([0, 1, 2, 3, 4]), run([0, 5, 2, 3, 4])
    lost = {"ipu": 1, "lost": plain.timeline.makespan_cycles // 2, "checkpoint_every": 2, "spare": True}
    lengths = [find_execution(of.timeline, 3).execution_cycles for of in (plain, there, run([0, 1, 2, 3, 4], lost))]
    assert lengths[0] != lengths[1] == lengths[2]


@pytest.mark.parametrize(("slow", "behind"), [({"ipu": 1, "slower": 2}, 1), ({"ipu": 3, "slower": 3}, 3)])
def test_what_slows_an_ipu_stays_behind_where_it_is_replaced(slow, behind):
    """A slow IPU no longer counts where a spare one takes its place, and a slow spare one counts from then on."""
    lost = {"ipu": 1, "lost": 2000, "restart": 300, "checkpoint_every": 3, "spare": True}
    options = {"system": {"name": "free", "auto_select_ipus": 4}, "repeat_count": 3}
    run, steady = (cycles_of("grouped", 3, 12, of, **options) for of in ([slow, lost], [{"ipu": 1, "slower": behind}]))
    assert run == 2300 + steady


def test_losses_come_one_after_the_other_and_while_another_is_being_mended():
    again = [{"ipu": 1, "lost": lost, **LOSS} for lost in (5 * ONE, 5 * ONE + 200, 9 * ONE)]
    timeline = execute(job_of("grouped", 4, 8, again, repeat_count=8)).timeline
    first = 5 * ONE - 3 * ONE - 50
    begins = 5 * ONE + 200 + 1000
    second = begins + 3 * ONE + 50
    lost = 9 * ONE - (begins if second > 9 * ONE else second)
    assert timeline.makespan_cycles == 8 * ONE + 100 + first + 200 + 1000 + lost + 1000
    assert redone_work(timeline) == ((begins, begins + first), (9 * ONE + 1000, 9 * ONE + 1000 + lost))


def on_m2000(count, disturbances, schedule="grouped", machine="m2000", ipus=4):
    """Return the Timeline of stages whose tensors take time on the links of a machine, four on those of an m2000."""
    job = job_of(schedule, ipus, count, disturbances, times=LONG, moved=LARGE, system=machine)
    timeline = execute(job, jump=False).timeline
    assert check_tiling(timeline) == timeline.makespan_cycles
    return timeline


DEAD = {"link": [1, 2], "dead": True}


@pytest.mark.parametrize("schedule", ["grouped", "1f1b"])
def test_a_dead_cable_cannot_be_slower(schedule):
    """Its detour goes over other cables."""
    for dead in (DEAD, {"link": [0, 1], "dead": True}):
        slower = {"link": dead["link"], "slower": 9}
        assert on_m2000(8, [dead], schedule) == on_m2000(8, [dead, slower], schedule)


@cache
def alive_and_dead():
    """Return the Timelines of a run of merged copies, and of it without a cable."""
    return tuple(on_m2000(16, of) for of in ([], [DEAD]))


@pytest.mark.parametrize("step", [9, 10, 15])
@pytest.mark.parametrize("part", [0, 0.3, 0.99, 1.05])
def test_a_merged_copy_is_sent_again_where_a_cable_of_it_dies_under_way(step, part):
    """What follows takes what it takes with a dead cable: from the death on, or from the next copy."""
    plain, dead = alive_and_dead()
    begins = [run.start[run.rows(SpanKind.SYNC)] for run in (plain, dead)]
    ends = plain.end[plain.rows(SpanKind.LINK)]
    first = int(begins[0][step])
    last = int(ends[(ends > first) & (ends < begins[0][step + 1])].max())
    dies = first + int(part * (last - first))
    begin, copy = (dies, step) if dies < last else (int(begins[0][step + 1]), step + 1)
    run = on_m2000(16, [DEAD | {"from": dies}])
    assert run.makespan_cycles == begin + dead.makespan_cycles - int(begins[1][copy])


@pytest.mark.parametrize("later", [0, 1])
def test_a_merged_copy_is_sent_again_whatever_cables_die_before_that_it_does_not_take(later):
    """Of eight IPUs in SNAKE order none sends from 4 to 7."""
    machine = {"machine": "pod16", "ipus": 8}
    plain = on_m2000(16, [], **machine)
    begin = int(plain.start[plain.rows(SpanKind.SYNC)][12])
    links = plain.rows(SpanKind.LINK)
    dies = begin + (int(plain.end[links][plain.start[links] > begin].min()) - begin) // 2
    idle = {"link": [4, 7], "dead": True, "from": dies}
    used = {"link": [0, 1], "dead": True, "from": dies + later}
    ends = [on_m2000(16, of, **machine).makespan_cycles for of in ([used], [idle, used], [used, idle])]
    assert ends[0] > plain.makespan_cycles
    assert ends == [ends[0]] * 3


@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
def test_a_tensor_is_sent_again_where_a_cable_of_its_way_dies(part):
    """Of one micro-batch, whose tensors are alone: from the death on it takes its way with a dead cable."""
    plain, dead = (on_m2000(1, of, "1f1b") for of in ([], [DEAD]))
    sends = [run.rows(SpanKind.SEND) for run in (plain, dead)]
    begin, end = int(plain.start[sends[0][1]]), int(plain.end[sends[0][1]])
    dies = begin + int(part * (end - begin))
    run = on_m2000(1, [DEAD | {"from": dies}], "1f1b")
    assert run.makespan_cycles == dies + dead.makespan_cycles - int(dead.start[sends[1][1]])
    assert on_m2000(1, [DEAD | {"from": plain.makespan_cycles}], "1f1b").makespan_cycles == plain.makespan_cycles

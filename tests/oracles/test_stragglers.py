"""The field's words for stragglers, where they can be told by hand."""

import pytest

from ipusim.app.explain.stragglers import stragglers
from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request
from tests.oracles.test_waterfall import COUNT, job_of


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


def test_a_disturbed_ipu_is_the_slowest():
    found = disturbed({"ipu": 1, "slower": 2})
    assert found.slowest == (1,)
    assert found.by_ipu[1] == found.by_type["disturbances"] == found.slowdown > 1.1
    assert [found.by_ipu[ipu] for ipu in (0, 2, 3)] == [1.0] * 3
    assert (found.share_of_slowest, found.share_of_last) == (1.0, 0.0)
    assert "the run straggles" in next(found.words())


def test_an_ipu_of_the_last_stage_alone_is_the_last_stage():
    found = disturbed({"ipu": 3, "slower": 2})
    assert (found.slowest, found.share_of_slowest, found.share_of_last) == ((3,), 1.0, 1.0)


def test_jitter_of_all_ipus_is_that_of_each():
    every, each = disturbed({"jitter": "30 %"}), disturbed(*({"jitter": "30 %", "ipu": ipu} for ipu in range(4)))
    assert every == each
    assert len({*each.by_ipu.values()}) == 4


def test_a_worker_is_an_ipu_of_each_replica():
    found = disturbed({"ipu": 3, "slower": 2}, system={"name": "m2000", "auto_select_ipus": 4}, stages=2)
    assert "if the slowest IPUs (IPU 1 of each replica) were not slow (M_W)" in [*found.words()][1]

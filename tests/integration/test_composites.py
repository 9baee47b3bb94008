"""Composite passes: what a forward and a backward pass in one slot take, under schedules and Orders that have them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ipusim.pipeline.composites import composites
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled

FORWARD, BACKWARD = 300, 500
CSV = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n,1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,1B2\n"


def run_of(schedule: str, overlapped: object, stages: int = 8, folder: Path = Path(), **options: Any) -> Run:
    """Run stages that are known by their cost, with what composite passes take."""
    listed = [{"name": f"s{number}", "forward": FORWARD, "backward": BACKWARD} for number in range(stages)]
    pipeline = {"schedule": schedule, "gradient_accumulation_count": 16, "stages": listed, **options}
    data = {"system": {"name": "free"}, "pipeline": {**pipeline, "overlapped": overlapped}}
    return execute(assemble(Request.from_dict(data, name="slots", folder=folder)))


def busy(run: Run) -> int:
    """The cycles of all passes of all IPUs."""
    timeline = run.timeline.expanded()
    rows = timeline.rows(SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT, SpanKind.WEIGHT_GRADIENT)
    return int((timeline.end - timeline.start)[rows].sum())


@sampled(2)
@pytest.mark.parametrize("sync", ["point_to_point", "lock_step"])
@pytest.mark.parametrize(("overlapped", "takes"), [("max", BACKWARD), (700, 700), ("0.5 us", 665), (0, 0)])
@pytest.mark.parametrize("schedule", ["dualpipe_v", "dualpipe"])
def test_a_slot_takes_what_is_said(schedule: str, overlapped: object, takes: int, sync: str) -> None:
    together, apart = (run_of(schedule, each, sync=sync) for each in (overlapped, "sum"))
    slots = list(composites(apart.job.plan))
    assert len(slots) == sum(apart.job.plan.order.joined) > 10
    assert busy(apart) - busy(together) == len(slots) * (FORWARD + BACKWARD - takes)
    waterfall = together.summary.waterfall
    assert waterfall.run_cycles == together.summary.throughput.run_cycles
    assert min(waterfall.cycles.values()) >= 0


def test_its_passes_share_the_slot_by_what_they_take_alone() -> None:
    timeline = run_of("dualpipe_v", "max").timeline.expanded()
    of = [timeline.rows(kind) for kind in (SpanKind.FORWARD, SpanKind.BACKWARD)]
    forward, backward = (Counter((timeline.end - timeline.start)[rows].tolist()) for rows in of)
    assert set(forward) == {FORWARD, FORWARD * BACKWARD // (FORWARD + BACKWARD)}
    assert set(backward) == {BACKWARD, BACKWARD - FORWARD * BACKWARD // (FORWARD + BACKWARD)}


def test_torchs_overlapped_cells_take_it_too_but_not_of_one_micro_batch(tmp_path: Path) -> None:
    """The second slot of rank 1 goes back over micro-batch 1, of which the first has run forward: that is no answer."""
    (tmp_path / "slots.csv").write_text(CSV)
    options = {"stages": 2, "folder": tmp_path, "gradient_accumulation_count": 3}
    apart, together = (run_of("slots.csv", each, **options) for each in ("sum", "max"))
    assert len(list(composites(apart.job.plan))) == 3
    assert busy(apart) - busy(together) == 3 * FORWARD
    (tmp_path / "slots.csv").write_text(CSV.replace("(1F2;1B1)", "(1F2;1B2)").replace(",1B2\n", ",1B1\n"))
    assert len(list(composites(run_of("slots.csv", "sum", **options).job.plan))) == 2


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(RequestError, match="overlapped: expected sum, max, cycles from 0 to 100000000000, or a time"):
        run_of("dualpipe", "most")

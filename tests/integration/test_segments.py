"""Micro-batches in segments along their sequence: what a scenario with them takes, sends and says."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ipusim.app.regression.pin import pin_of
from ipusim.app.render.titles import default_title
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.timeline.kinds import SpanKind

STAGE = {"forward": 1001, "backward": 2000, "update": 70, "parameter_bytes": 4000, "stash_bytes": 30_000}
SENT = {"output_bytes": 4096, "gradient_bytes": 2050}
SCENARIO: dict[str, Any] = {
    "system": {"name": "m2000"},
    "pipeline": {
        "schedule": "seq_1f1b",
        "segments": 4,
        "gradient_accumulation_count": 6,
        "micro_batch_size": 3,
        "stages": [dict(STAGE, name=f"s{number}", **SENT) for number in range(4)],
    },
    "infeed": {"element_bytes": 1000},
}


def run_of(**options: Any) -> Run:
    """Run the scenario with other options of its pipeline, on a system of its own where one is given."""
    data = deepcopy(SCENARIO)
    data["system"] = {"name": options.pop("system", "m2000")}
    data["pipeline"] |= options
    return execute(assemble(Request.from_dict(data, name="segments", folder=Path())))


def test_a_segment_takes_and_sends_its_part_of_a_micro_batch_rounded_up() -> None:
    timeline = run_of().timeline
    for kind, cycles in ((SpanKind.FORWARD, 251), (SpanKind.BACKWARD, 500)):
        rows = timeline.rows(kind)
        assert len(rows) == 4 * 6 * 4
        assert set((timeline.end - timeline.start)[rows].tolist()) == {cycles}
    sends = timeline.rows(SpanKind.SEND)
    assert sorted(set(timeline.bytes[sends].tolist())) == [513, 1024]
    assert set((timeline.bytes[timeline.rows(SpanKind.INFEED)]).tolist()) == {250}


def test_the_sum_of_an_outfeed_is_of_whole_micro_batches() -> None:
    request = Request.from_dict(deepcopy(SCENARIO) | {"outfeed": {"element_bytes": 400}}, folder=Path())
    for changes, sent in (({}, [100] * 24), ({"pipeline.accumulate_outfeed": True}, [400])):
        timeline = execute(assemble(request.replace(changes))).timeline
        assert timeline.bytes[timeline.rows(SpanKind.OUTFEED)].tolist() == sent


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_the_same_samples_are_behind_a_weight_update(segments: int) -> None:
    whole, cut = run_of(schedule="1f1b").summary, run_of(segments=segments).summary
    for each in (whole, cut):
        assert (each.count, each.throughput.effective_batch_size, each.hosts) == (6, 18, 1)
    if segments == 1:
        assert cut.makespan_cycles == whole.makespan_cycles
    rate = cut.throughput.samples_per_s * cut.throughput.weight_update_period_s
    assert rate == pytest.approx(18)


def test_a_schedule_of_whole_micro_batches_has_them_whole_whatever_is_said_of_segments() -> None:
    assert run_of(schedule="1f1b").timeline == run_of(schedule="1f1b", segments=None).timeline
    assert run_of(segments=None).timeline == run_of(segments=2).timeline


def test_passes_are_named_by_their_segment() -> None:
    run = run_of()
    assert "6 micro-batches in 4 segments each" in default_title(run.timeline)
    assert pin_of(run)["shape"]["gradient_accumulation_count"] == 6
    assert run.summary.memory.ipus[3].peak_pass == "F3.0-3"


def test_stages_that_compute_are_refused() -> None:
    layers = [{"name": "hidden", "type": "dense", "units": 4}, {"name": "loss", "type": "softmax_cross_entropy"}]
    data = {
        "system": {"name": "m2000", "auto_select_ipus": 2},
        "data": {"type": "synthetic", "shape": [5], "classes": 4, "samples": 24},
        "model": {"layers": layers},
        "pipeline": {"schedule": "seq_1f1b", "splits": ["loss"], "gradient_accumulation_count": 4},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
    }
    with pytest.raises(RequestError, match="'seq_1f1b' runs segments of a micro-batch, which only stages with costs"):
        assemble(Request.from_dict(data, name="learning"))
    data["pipeline"]["segments"] = 1
    assert execute(assemble(Request.from_dict(data, name="learning"))).summary.learning is not None

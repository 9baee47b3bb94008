"""An execution as a page plays it, of drawn runs: its figures are those of the summary, its stashes those of memory."""

from itertools import accumulate

import numpy as np
import pytest

from ipusim.analysis.bubble import bubble_of
from ipusim.analysis.executions import find_execution
from ipusim.analysis.memory import stashed_micro_batches
from ipusim.app.render.page import played
from tests.effort import sampled
from tests.pages import computed, data_of, rows, waiting
from tests.properties.test_jump import SORTS, drawn_runs


@sampled(2)
@pytest.mark.parametrize("sort", SORTS)
def test_what_is_played_sums_up_to_the_summary_and_waits_as_memory_says(sort, monkeypatch):
    """What is left out of a run is as if it were drawn, at every step."""
    seen = left_out = 0
    for name, run in drawn_runs(sort):
        timeline = run.timeline
        if not find_execution(timeline, 0).execution_cycles:
            continue
        monkeypatch.setattr(played, "_MOST_SPANS", 400)
        data, columns = data_of(timeline)
        monkeypatch.undo()
        check_bubble(timeline, data, columns, name)
        whole = data_of(timeline.expanded())
        assert whole[0]["gaps"] == [], name
        begins = {gap["start"] for gap in data["gaps"]}  # where what takes no time belongs to what is left out
        for step in data["steps"]:
            assert step in begins or waiting(data, columns, step) == waiting(*whole, step), (name, step)
            assert computed(data, columns, step) == computed(*whole, step), (name, step)
        if timeline.info.training:
            check_stashes(run, whole[1], name)
        seen += 1
        left_out += bool(data["gaps"])
    assert seen
    assert left_out or sort == "orders"


def check_bubble(timeline, data, columns, name):
    """Check that arithmetic and idle time of all replicas are those of the summary."""
    lanes = len(data["lanes"])
    replicas = len(timeline.info.stages_of_ipu) // lanes
    idle = lanes * data["pipeline_end"] - computed(data, columns, data["end"])
    assert idle * replicas == bubble_of(timeline, find_execution(timeline, 0)).idle_cycles, name
    assert (columns["move.leaves"] <= columns["move.arrives"]).all(), name
    for rising in ("start", "move.leaves"):  # which the scripts search in
        assert (np.diff(columns[rising]) >= 0).all(), (name, rising)


def check_stashes(run, columns, name):
    """Check that the most that a stage keeps at once is what the report on memory says."""
    footprint = run.job.memory.footprint
    slots = rows(columns, "slot.stage", "slot.lane", "slot.start", "slot.end")
    for stage in range(len(run.timeline.info.stages)):
        first = min(lane for of, lane, *_ in slots if of == stage)  # of its first replica
        own = [(start, end) for of, lane, start, end in slots if (of, lane) == (stage, first)]
        # What ends when another begins has made room for it.
        changes = sorted([(start, 1) for start, _ in own] + [(end, -1) for _, end in own])
        most = max(accumulate(change for _, change in changes))
        assert most == stashed_micro_batches(run.timeline, footprint, stage), (name, stage)

"""An execution as a page plays it, of drawn runs: its figures are those of the summary, its stashes those of memory."""

from __future__ import annotations

from itertools import accumulate

import pytest

from ipusim.analysis.bubble import bubble
from ipusim.analysis.executions import find_execution
from ipusim.analysis.memory import kept_micro_batches
from ipusim.app.render.page import played
from ipusim.app.render.page.played import PlayedRun, played_data
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import PASSES
from tests.effort import share
from tests.page_columns import unpacked
from tests.properties.test_jump import SORTS, jobs


@pytest.mark.parametrize("sort", SORTS)
def test_what_is_played_sums_up_to_the_summary_and_waits_as_memory_says(sort, tmp_path, monkeypatch):
    monkeypatch.setattr(played, "_MOST_SPANS", 400)
    seen = left_out = 0
    for name, job in jobs({sort: share(SORTS[sort])}, tmp_path):
        run = execute(job)
        timeline, info = run.timeline, run.timeline.info
        if not find_execution(timeline, 0).execution_cycles:
            continue
        data, content = played_data(PlayedRun(name, timeline))
        columns = unpacked(data["columns"], content)
        lanes = len(data["lanes"])
        busy = sum(gap["busy"] for gap in data["gaps"]) + sum(
            end - start
            for start, end, kind in zip(columns["start"], columns["end"], columns["kind"], strict=True)
            if kind in PASSES
        )
        found = bubble(timeline, find_execution(timeline, 0))
        replicas = len(info.stages_of_ipu) // lanes
        assert lanes * data["pipeline_end"] * replicas - busy * replicas == found.idle_cycles, name
        assert all(0 <= step <= data["end"] for step in data["steps"]), name
        for leaves, arrives in zip(columns["move.leaves"], columns["move.arrives"], strict=True):
            assert leaves <= arrives, name
        if not data["gaps"] and info.training:
            check_stashes(run, columns, name)
        seen += 1
        left_out += bool(data["gaps"])
    assert seen
    assert left_out or sort == "orders"


def check_stashes(run, columns, name):
    """Check that the most that a stage keeps at once is what the report on memory says."""
    footprint = run.job.memory.footprint
    slots = list(zip(*(columns[f"slot.{each}"] for each in ("stage", "lane", "start", "end")), strict=True))
    for stage in range(len(run.timeline.info.stages)):
        first = min(lane for of, lane, *_ in slots if of == stage)  # of its first replica
        own = [(start, end) for of, lane, start, end in slots if (of, lane) == (stage, first)]
        # What ends when another begins has made room for it.
        changes = sorted([(start, 1) for start, _ in own] + [(end, -1) for _, end in own])
        most = max(accumulate(change for _, change in changes))
        assert most == kept_micro_batches(run.timeline, footprint, stage), (name, stage)

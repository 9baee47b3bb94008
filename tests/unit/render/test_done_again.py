"""Work that is done again behind the loss of an IPU, in pictures and trace files."""

import gzip
from itertools import pairwise

import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from ipusim.analysis.recovery import redone_work
from ipusim.app.render.content import content
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.legend import Sign, legend_entries
from ipusim.app.render.style import REDONE
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.render.window import ShownPart, part_window, window
from ipusim.app.run_folder.report import trace_file
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request

LOST = {"ipu": 1, "lost": 40_000, "detect": 700, "restart": 300, "checkpoint_every": 3}


def run_of(disturbances, count=4):
    stages = [{"name": f"s{number}", "forward": 1000, "backward": 2000} for number in range(2)]
    pipeline = {"gradient_accumulation_count": count, "repeat_count": 6, "stages": stages}
    data = {"system": {"name": "free", "clock": "1 GHz"}, "pipeline": pipeline, "disturbances": disturbances}
    return execute(assemble(Request.from_dict(data)))


def test_pictures_have_a_line_over_rows_and_trace_files_a_slice_where_work_is_done_again(read_perfetto):
    run = run_of([LOST])
    ((begin, end),) = redone_work(run.timeline)
    assert (begin, end) == (41_000, 81_000)
    shown = content(run.timeline, window(run.timeline, 50_000, 60_000), 9.0)
    assert shown.redone == ((50_000, 60_000),)
    assert Sign.REDONE in {entry.sample for entry in legend_entries([shown])}
    (axes,) = [axes for axes in execution_trace(run.timeline, title="").axes if axes.get_ylim() == (2, 0)]
    lines = [each for each in axes.get_children() if isinstance(each, Rectangle) and each.get_fc() == to_rgba(REDONE)]
    assert [(each.get_x(), each.get_x() + each.get_width()) for each in lines] == [(begin, end)] * 2
    slices = [each for each in read_perfetto(gzip.decompress(trace_file(run))).slices if each.category == "fault"]
    # At 1 GHz a nanosecond is a cycle.
    assert [(each.start_ns, each.end_ns) for each in slices if each.name == "work done again"] == [(begin, end)]
    assert {"lost work", "detection", "restart"} < {each.name for each in slices}


def test_the_picture_of_a_run_shows_its_loss_by_default_and_an_execution_where_one_is_named():
    run = run_of([LOST | {"lost": 50_000}])
    shown = part_window(run.timeline)
    assert (shown.start, shown.end, shown.name) == (30_000, 66_000, "the loss of an IPU")
    assert part_window(run.timeline, ShownPart(execution=0)).name == "execution 0 of 6"
    assert part_window(run_of([]).timeline).name == "execution 0 of 6"


@pytest.mark.parametrize("restart", [0, 10**6, 10**9, 10**12])
def test_however_long_a_restart_is_rows_of_the_picture_have_no_gap(restart):
    """What is far too narrow to be seen beside it is stacked, up to where the restart ends."""
    timeline = run_of([LOST | {"lost": 90_000, "restart": restart}], count=16).timeline
    shown = part_window(timeline)
    boxes = content(timeline, shown, 9.0).boxes
    for ipu in range(2):
        bounds = sorted(
            {(start, end) for start, end, of in zip(boxes.start, boxes.end, boxes.ipu, strict=True) if of == ipu}
        )
        far = shown.cycles / 1000  # less than a pixel
        assert bounds[0][0] - shown.start <= far
        assert max(end for _, end in bounds) >= shown.end
        assert all(start - end <= far for (_, end), (start, _) in pairwise(bounds))


def test_without_a_loss_nothing_is_done_again():
    run = run_of([])
    tracks = TraceContent(run.timeline).tracks
    assert tracks.redone == -1
    assert redone_work(run.timeline) == ()
    assert content(run.timeline, window(run.timeline), 9.0).redone == ()

"""Pictures of reports with marks that their pages speak of: shades of stages, a cable, IPUs that work."""

import numpy as np

from ipusim.timeline.kinds import PASSES, SpanKind
from reports import bubbles_page, stragglers_page
from reports.gallery import GALLERY
from tests.drawn_pictures import panels


def test_passes_of_the_second_stage_of_an_ipu_have_another_shade_and_all_passes_a_number():
    runs = bubbles_page.runs_of(bubbles_page.Case(4, 8, 20_000, 20_000, 20_000), 2, "two stages")[:2]
    chart = bubbles_page.in_two_shades(runs, "two stages")
    for axes, run in zip(panels(chart), runs, strict=True):
        timeline = run.timeline
        passes = timeline.rows(*PASSES)
        shaded = [patch for patch in axes.artists + axes.patches if patch.get_alpha() is not None]
        starts = np.concatenate([patch.get_path().vertices[::5] for patch in shaded])
        second = passes[timeline.stage[passes] >= 4]
        expected = sorted(zip(timeline.start[second], timeline.ipu[second], strict=True))
        assert sorted((x, int(y)) for x, y in starts) == expected
        assert len([text for text in axes.texts if "." in text.get_text()]) == len(passes)


def test_each_tensor_on_the_cable_is_a_line_as_long_as_the_delay():
    runs, ipus = stragglers_page.delayed()
    chart = stragglers_page.with_cable(runs, ipus)
    for axes, run in zip(panels(chart), runs, strict=True):
        lines = [line for line in axes.lines if line.get_zorder() == 5]
        assert len(lines) == 2 * run.timeline.info.count == 32  # to IPU 2 and back, each micro-batch once
        assert {float(np.ptp(line.get_xdata())) for line in lines} == {60_000.0}
        assert {round(float(np.mean(line.get_ydata())), 9) for line in lines} == {2.0}


def test_every_ipu_works_in_the_picture_of_inference():
    picture = next(each for each in GALLERY if each.scenario == "inference")
    timeline = picture.run().timeline
    assert not timeline.rows(*(kind for kind in SpanKind if kind.row.category == "host")).size
    forward = timeline.rows(SpanKind.FORWARD)
    work = np.bincount(timeline.ipu[forward], timeline.end[forward] - timeline.start[forward])
    assert (work / timeline.makespan_cycles > 0.1).all()

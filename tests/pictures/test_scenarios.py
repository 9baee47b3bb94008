"""The pictures that a run of each scenario draws, looked at as their reader would: names, legends, notation, titles."""

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ipusim.analysis.utilisation import cycles_by_kind
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.legend import legend_lines
from ipusim.app.render.lettering import wrap
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.style import LOOK_OF_KIND
from ipusim.app.render.titles import default_title
from ipusim.app.render.window import ShownPart, execution_window, phase_window, window
from ipusim.app.run_folder.pictures import picture
from ipusim.app.run_folder.report import picture_window
from ipusim.app.scenario import load_job
from ipusim.pipeline.holders import LAYERS
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import LOOKS, SpanKind
from reports.gallery import TUTORIAL
from tests import drawn_pictures
from tests.drawn_pictures import PICTURES, words
from tests.effort import sampled
from tests.scenarios import SCENARIOS

NAMES = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


ONE_STEP = ("steps=1", "numerics=off")
#: Scenarios whose picture in the gallery is a trace, which is drawn once for all tests of pictures.
TRACES = {name for name, picture in PICTURES.items() if picture.file == "trace.png"}


@cache
def run(name, changes):
    return execute(load_job(SCENARIOS / f"{name}.yaml", changes))


def result(name):
    """The run of the trace."""
    return run(name, PICTURES[name].changes if name in TRACES else ONE_STEP)


@cache
def trace(name):
    if name in TRACES:
        return drawn_pictures.figure(name)
    timeline = result(name).timeline
    shown = execution_window(timeline)
    return execution_trace(timeline, shown.start, shown.end)


def memory(name):
    found = result(name)
    return memory_chart(found.timeline, found.memory, execution_window(found.timeline))


def colours(figure, pixels):
    """All colours of more than a few pixels of what the figure's axes show, its legend left out."""
    shown = pixels[: round(len(pixels) - min(axes.get_window_extent().y0 for axes in figure.axes))]
    found, count = np.unique(shown.astype(np.int64) @ [65536, 256, 1], return_counts=True)
    return {f"#{colour:06x}" for colour in found[count >= 8].tolist()}


def lines_of_legend(figure):
    """The words under the lowest axes, line by line."""
    foot = min(axes.get_position().y0 for axes in figure.axes)
    height = figure.get_size_inches()[1]
    below = [text for text in figure.texts if text.get_position()[1] < foot - 0.4 / height]
    lines = itertools.groupby(
        sorted(below, key=lambda text: text.get_position()[1]), lambda text: text.get_position()[1]
    )
    return [[text.get_text() for text in line] for _, line in lines]


@sampled(2)
@pytest.mark.parametrize("name", drawn_pictures.drawn_of(NAMES))
def test_the_legend_of_a_trace_lists_what_can_be_seen_and_no_word_stands_alone(name):
    figure = trace(name)
    lines = lines_of_legend(figure)
    listed = {entry for line in lines for entry in line}
    looks = [look for look in LOOKS if look.name in listed]
    assert len(looks) >= 3
    seen = colours(figure, drawn_pictures.figure_pixels(name) if name in TRACES else drawn_pictures.pixels(figure))
    assert [look.name for look in looks if look.face not in seen] == []
    assert all(len(line) > 1 for line in lines)


@sampled(2)
@pytest.mark.parametrize("name", drawn_pictures.drawn_of(NAMES))
def test_the_legend_of_a_memory_chart_does_too(name):
    if not result(name).describes_memory:
        pytest.skip("the memory of its stages is not known")
    figure = memory(name)
    lines = lines_of_legend(figure)
    listed = {entry for line in lines for entry in line}
    layers = [layer for layer in LAYERS if layer.name in listed]
    seen = colours(figure, drawn_pictures.pixels(figure))
    assert [layer.name for layer in layers if layer.face not in seen] == []
    assert all(len(line) > 1 for line in lines)
    # What else is listed has a sample that is drawn: the peak's marker, and the line at the limit.
    assert listed - {layer.name for layer in layers} <= {"peak", f"an IPU's memory, {_limit(name)}"}
    # Rows share the scale that their limit is on, or the headline says that they do not.
    own_scales = "Each row over time has a separate scale." in " ".join(words(figure))
    assert own_scales == (len(result(name).memory.peaks) > 1 and f"an IPU's memory, {_limit(name)}" not in listed)


def _limit(name):
    return re.search(r"(?:of|than the) ([\d.]+ \wiB)", result(name).memory.verdict())[1]


def test_no_number_parts_from_its_unit_and_no_word_is_left_over():
    headline = result("memory_by_schedule").memory.verdict()
    assert headline.endswith("live tensors 100 MiB.")
    for width in range(90, 1500, 7):
        lines = wrap(headline, 8.0, width, bold=True)
        assert " ".join(lines) == headline
        assert not [line for line in lines if re.match(r"[KMG]iB", line)]
        if len(lines) == 2:
            assert len(lines[1]) > 0.6 * len(lines[0])


def test_lines_of_a_legend_are_few_and_even():
    figure = trace("recomputation")
    names = [entry for line in lines_of_legend(figure) for entry in line]

    class Entry:
        width_in = 1.0

    assert [len(line) for line in legend_lines([Entry()] * 9, 9.5)] == [5, 4]
    assert [len(line) for line in legend_lines([Entry()] * 8, 9.5)] == [8]
    assert "recomputation" in names


@sampled(2)
@pytest.mark.parametrize("name", drawn_pictures.drawn_of(NAMES))
def test_every_row_of_a_trace_names_its_stages(name):
    info = result(name).timeline.info
    found = " ".join(words(trace(name)))
    for stages in info.stages_of_ipu.values():
        for stage in stages:
            # A name that is too long is cut, but it is there.
            assert info.stages[stage][:5] in found


def test_one_picture_has_one_notation():
    numbers = [word for word in trace("concurrent_stages").axes[-1].texts if re.fullmatch(r"[\d.]+", word.get_text())]
    assert len(numbers) > 100
    assert all(re.fullmatch(r"\d+\.\d+", number.get_text()) for number in numbers)
    rows = {int(number.get_position()[1]) for number in numbers}
    assert rows == {0, 1, 2, 3}


def test_loads_and_stores_are_told_apart():
    load, store = (LOOKS[LOOK_OF_KIND[kind]] for kind in (SpanKind.REMOTE_LOAD, SpanKind.REMOTE_STORE))
    assert load.face != store.face
    assert load.hatch != store.hatch
    assert "|" not in load.hatch + store.hatch, "upright lines look like many boxes"
    found = words(trace("optimizer_state_offload"))
    assert found.count("load") == found.count("store") == 4
    assert {"load from Streaming Memory", "store to Streaming Memory"} <= set(found)


@pytest.mark.parametrize("phase", ["ramp-up", "main", "ramp-down", "weight-update"])
def test_a_zoom_names_its_phase_and_execution(phase):
    timeline = run("tutorial_step3_pipelining", ONE_STEP).timeline
    title = default_title(timeline, phase_window(timeline, phase, execution=3))
    assert title.endswith(f"16 micro-batches, {phase.replace('t-u', 't u')} of execution 3")
    svg = picture(timeline, picture_window(timeline, ShownPart(phase=phase, execution=3)), ".svg")
    texts = {"".join(text.itertext()) for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
    assert set(title.split("\n")) <= texts


def test_a_title_says_which_execution_or_cycles_are_shown():
    timeline = run("tutorial_step3_pipelining", ONE_STEP).timeline
    assert default_title(timeline, execution_window(timeline, 2)).endswith(", execution 2 of 10")
    assert default_title(timeline, window(timeline, 1000, 20_000)).endswith(", cycles 1,000 to 20,000")
    assert default_title(timeline, window(timeline)).endswith("16 micro-batches")
    hosts = timeline.with_info(replace(timeline.info, hosts=4, count=1_000_000))
    assert default_title(hosts).endswith("4 equal hosts, 2 IPUs, 2 stages, 1,000,000 micro-batches")


def test_the_picture_that_teaches_reading_shows_all_that_the_text_explains():
    timeline = run("tutorial_step3_pipelining", TUTORIAL).timeline
    shown = execution_window(timeline)
    figure = execution_trace(timeline, shown.start, shown.end)
    legend = {entry for line in lines_of_legend(figure) for entry in line}
    explained = {"forward", "backward", "weight update", "exchange", "pre- and post-copy", "sync wait"}
    assert legend == explained | {"end of a phase", "sync point"}
    assert not len(timeline.rows(SpanKind.INFEED, SpanKind.OUTFEED)), "profiled without them, as the text says"
    numbers = [text for text in figure.axes[-1].texts if text.get_text().isdigit()]
    for ipu in (0, 1):
        drawn = sorted(int(text.get_text()) for text in numbers if int(text.get_position()[1]) == ipu)
        assert drawn == sorted([*range(8), *range(8)]), "each micro-batch forward and backward"
    cycles = cycles_by_kind(timeline)
    assert cycles[:, SpanKind.SYNC].sum() < 0.1 * cycles.sum()
    passes = cycles[:, [SpanKind.FORWARD, SpanKind.BACKWARD]].sum()
    assert passes > 0.45 * cycles.sum()


def test_a_zoom_shows_the_parts_of_a_copy():
    timeline = run("tutorial_step3_pipelining", TUTORIAL).timeline
    sync = timeline.rows(SpanKind.SYNC)[3]
    end = int(timeline.end[timeline.rows(SpanKind.POST_COPY)[3]])
    figure = execution_trace(timeline, int(timeline.start[sync]), end)
    legend = {entry for line in lines_of_legend(figure) for entry in line}
    assert legend == {"sync", "pre- and post-copy", "exchange"}

"""What trace files and pictures leave out of a run that repeats itself, and how they say so."""

from dataclasses import replace

import pytest

from ipusim.api import timelines
from ipusim.app.render import shortened
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import Chart, to_png, to_svg
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.picture import Picture
from ipusim.app.render.shortened import in_periods
from ipusim.app.render.window import Window, execution_window, phase_window
from ipusim.app.run_folder import pictures, report
from ipusim.base.errors import OptionError
from tests.drawn_pictures import assert_legible, drawn_texts, words
from tests.effort import slowest
from tests.scenarios import run
from tests.timelines import folded, lay_out_timeline
from tests.trace_files import perfetto_file as trace


@pytest.fixture(scope="module")
def whole():
    return lay_out_timeline(count=32, infeed=15, host_wait=5, outfeed=7, executions=7)


@pytest.fixture(scope="module")
def short(whole):
    found = folded(whole)
    assert any(block.executions for block in found.repeats)
    assert any(block.micro_batches for block in found.repeats)
    return found


def test_a_trace_of_few_spans_has_all(whole, short):
    assert trace(in_periods(short)) == trace(whole)


def spans_of(read):
    return {
        (each.track, each.name, each.category, each.start_ns, each.end_ns, tuple(each.args.items()))
        for each in read.slices
    }


def test_a_trace_of_many_spans_has_ramps_and_periods_and_says_what_it_leaves_out(
    whole, short, read_perfetto, monkeypatch
):
    monkeypatch.setattr(shortened, "_MOST_SPANS", 700)
    some, every = (spans_of(read_perfetto(trace(each))) for each in (in_periods(short), whole))
    gaps = {each for each in some if "not drawn" in each[1]}
    assert some - gaps < every
    texts = sorted({name for _, name, *_ in gaps})
    assert texts == [
        "10 more periods of 1 micro-batch, not drawn: --full-trace",
        "3 more periods of 1 execution, not drawn: --full-trace",
    ]
    clock = whole.info.clock_hz
    for span in every - some:
        if span[2] not in ("execution", "phase"):
            assert any(gap[3] <= span[4] and span[3] <= gap[4] for gap in gaps), span
    assert max(gap[4] for gap in gaps) < whole.makespan_cycles * 10**9 // clock
    assert spans_of(read_perfetto(trace(in_periods(short, full=True)))) == every


def test_numbers_over_time_are_those_of_the_whole_run_where_anything_is_drawn(whole, short, read_perfetto, monkeypatch):
    monkeypatch.setattr(shortened, "_MOST_SPANS", 700)
    some, every = (read_perfetto(trace(each)) for each in (in_periods(short), whole))
    gaps = [(each.start_ns, each.end_ns) for each in some.slices if "not drawn" in each.name]
    assert some.counters.keys() == every.counters.keys()
    for name, values in some.counters.items():
        known = dict(every.counters[name])
        drawn = [at for at in known if not any(start < at < end for start, end in gaps)]
        level = dict(values)
        assert all(known.get(at, level[at]) == level[at] for at in level)
        outside = [at for at in drawn if not any(start <= at <= end for start, end in gaps)]
        assert {at: known[at] for at in outside} == {at: level.get(at) for at in outside}


def test_a_whole_trace_of_too_many_spans_is_refused(short, monkeypatch):
    monkeypatch.setattr(timelines, "MOST_SPANS", 1000)
    with pytest.raises(OptionError, match=r"^full_trace: expected a run of at most 1,000 spans, got a run of 3,\d+: "):
        in_periods(short, full=True)


def test_pictures_of_no_more_spans_than_a_run_may_record_are_the_same(whole, short):
    for window in (
        execution_window(whole, 0),
        execution_window(whole, 4),
        phase_window(whole, "ramp-up", 3),
        Window(0, whole.makespan_cycles),
        Window(whole.makespan_cycles // 3, whole.makespan_cycles // 2),
    ):
        one, other = (to_svg(execution_trace(each, window.start, window.end)) for each in (whole, short))
        assert one == other


@pytest.mark.parametrize(("execution", "size"), [(0, ""), (4, ""), (0, "6x4in")])
def test_a_picture_of_more_has_a_break_with_true_times_on_both_sides(whole, short, monkeypatch, execution, size):
    monkeypatch.setattr(timelines, "MOST_SPANS", 200)
    window = execution_window(whole, execution)
    figure = execution_trace(short, window.start, window.end, picture=Picture(size=size))
    texts = words(figure)
    signs = [text for text in texts if text.startswith("× ")]
    assert len(signs) == 1
    copies = int(signs[0].removeprefix("× "))
    assert f"{signs[0]} stands for {copies} more periods of 1 micro-batch" in " ".join(texts)
    assert_legible(figure, drawn_texts(figure))
    rows = figure.axes[-1]
    ticks = dict(zip(rows.get_xticks().tolist(), (text.get_text() for text in rows.get_xticklabels()), strict=True))
    unit = next(cycles for cycles, name in ((10**3, "thousand"), (1, "")) if name in rows.get_xlabel())
    drawn, shown = shortened.shortened(short, window)
    (gap,) = shown.breaks
    assert (copies, gap.cycles) == (gap.copies, copies * 350)
    for at, text in ticks.items():
        assert float(text.replace(",", "")) * unit == pytest.approx(
            at + (gap.cycles - gap.room if at > gap.start else 0)
        )
    # What is drawn is of the run: every box begins where a span of it does.
    starts = set(whole.start.tolist())
    for start in drawn.start[(drawn.start >= shown.start) & (drawn.start < shown.end)].tolist():
        assert start + (gap.cycles - gap.room if start >= gap.start else 0) in starts
    assert {shown.shows(window.start), shown.shows(window.end - 1)} == {shown.start, shown.end - 1}


@slowest
def test_in_a_comparison_a_run_with_a_break_has_an_axis_of_its_own(monkeypatch):
    runs = [lay_out_timeline(schedule, count=96, mapping=(0, 1, 2, 3)) for schedule in ("grouped", "interleaved")]
    shown = [TracedRun(folded(each)) for each in runs]
    assert to_png(comparison(shown)) == to_png(comparison([TracedRun(each) for each in runs]))
    monkeypatch.setattr(timelines, "MOST_SPANS", 500)
    figure = comparison(shown)
    texts = " ".join(words(figure))
    assert texts.count("on a separate axis, where × ") == 2
    assert_legible(figure, drawn_texts(figure))
    ends = [axes.get_xlim()[1] for axes in figure.axes if "thousand cycles" in axes.get_xlabel()]
    windows = [shortened.shortened(each.timeline, Window(0, each.timeline.makespan_cycles))[1] for each in shown]
    assert ends == [window.end for window in windows]


@pytest.fixture(scope="module")
def holding():
    """A run whose stages hold something, whole, and the same as a Timeline with blocks."""
    whole = run("grouped", mapping=(0, 1), count=40, held=90_000, system="m2000")
    return whole, folded(whole.timeline)


def test_memory_is_drawn_with_the_same_break_and_its_peak_where_it_is(holding, monkeypatch):
    whole, short = holding
    window = execution_window(whole.timeline)
    assert to_svg(memory_chart(short, whole.memory, window)) == to_svg(
        memory_chart(whole.timeline, whole.memory, window)
    )
    monkeypatch.setattr(timelines, "MOST_SPANS", 100)
    figure = memory_chart(short, whole.memory, window)
    texts = words(figure)
    (sign,) = (text for text in texts if text.startswith("× "))
    assert any(f"{sign} stands for" in text for text in texts)
    assert_legible(figure, drawn_texts(figure))


def test_the_files_of_a_run_have_a_full_trace_where_that_is_asked_for(holding, monkeypatch, tmp_path):
    whole, repeating = holding
    short = replace(whole, timeline=repeating)
    assert repeating.repeats
    monkeypatch.setattr(pictures, "execution_trace", lambda *_, **__: Chart())
    monkeypatch.setattr(pictures, "memory_chart", lambda *_, **__: Chart())
    window = execution_window(whole.timeline)
    every = report.run_files(whole, window, tmp_path)
    name = "trace.pftrace.gz"
    assert report.run_files(short, window, tmp_path)[name] == every[name]
    monkeypatch.setattr(shortened, "_MOST_SPANS", 100)
    some = report.run_files(short, window, tmp_path)
    assert len(some[name]) < len(every[name])
    assert report.run_files(short, window, tmp_path, full_trace=True)[name] == every[name]
    assert some["summary.json"] == every["summary.json"]

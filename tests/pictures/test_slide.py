"""The picture of a comparison: a bar of the parts of its time for each run above traces, no higher than a slide."""

from dataclasses import replace

import pytest

from ipusim.app.compare.compare import compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import ComparisonResult, comparison_chart, shown_rows
from ipusim.app.compare.comparison_words import comparison_table, row_words
from ipusim.app.render.picture import Picture
from ipusim.app.render.style import DPI
from ipusim.app.render.time_bars import TimeBar
from ipusim.app.scenario.load import load_request
from ipusim.base.errors import OptionError, OutputError
from ipusim.runs.request.request import Request
from ipusim.timeline.time_parts import TimePart
from tests.drawn_pictures import words
from tests.effort import sampled
from tests.scenarios import SCENARIOS


def request_of(ipus, **more):
    stages = [
        {"name": f"s{number}", "forward": 1000 + number, "backward": 2000, "output_bytes": 4096}
        for number in range(ipus)
    ]
    pipeline = {"gradient_accumulation_count": 2 * ipus, "stages": stages} | more
    return Request.from_dict({"name": "some", "system": {"name": "free"}, "pipeline": pipeline})


@pytest.fixture(scope="module")
def four():
    return Comparison(compare(request_of(4), ["grouped", "interleaved", "sequential"]))


@pytest.fixture(scope="module")
def holding():
    return Comparison(compare(load_request(SCENARIOS / "memory_by_schedule.yaml"), ["grouped", "interleaved"]))


def bar_words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def traces(figure):
    return [word.partition(":")[0] for word in words(figure) if "cycles, " in word]


def many(found, number):
    rows = [replace(found.rows[each % len(found.rows)], source=f"run {each}") for each in range(number)]
    return Comparison(tuple(rows))


@sampled(2)
@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("number", [2, 7, 12, 30, 90])
def test_it_is_as_high_as_a_slide_at_most_however_many_runs_there_are(four, holding, number, memory):
    found = many(holding if memory else four, number)
    figure = comparison_chart(found, title="A title of one's own " * 20 + "\nand more of it " * 20)
    width, height = figure.get_size_inches() * DPI
    assert width == 1800
    assert height <= 1080
    named = [word for word in bar_words(figure) if word.startswith("run ")]
    assert named == [found.label(row) for row in shown_rows(found)]
    assert (len(named) == number) == (number <= 30)
    assert len(traces(figure)) >= (2 if number <= 7 else 1 if number <= 12 else 0)


@pytest.mark.parametrize("ipus", [16, 64])
def test_traces_of_many_ipus_are_bounded_too(ipus):
    found = Comparison(compare(request_of(ipus), ["grouped", "interleaved"]))
    figure = comparison_chart(found)
    assert figure.get_size_inches()[1] * DPI <= 1080
    assert len(traces(figure)) == 2


def test_the_first_and_the_best_stay_where_there_are_too_many(four):
    found = many(four, 90)
    shown = shown_rows(found)
    assert found.first_completed in shown
    assert found.best in shown
    slowest = max(found.cost(row) for row in shown if row is not found.first_completed)
    assert all(found.cost(row) >= slowest for row in found.rows if row not in shown)
    assert any(
        f"(the first and the {len(shown) - 1} best others of 90)" in word for word in words(comparison_chart(found))
    )


def test_the_best_and_the_first_have_traces_before_others():
    found = Comparison(compare(request_of(4), ["sequential", "sharded", "interleaved", "grouped"]))
    assert traces(comparison_chart(found))[:1] == ["sequential in lock-step"]
    assert "grouped in lock-step" in traces(comparison_chart(found))


def test_traces_can_be_chosen_by_any_name_of_a_run(four):
    assert traces(comparison_chart(four, traces=["sequential"])) == ["sequential in lock-step"]
    both = comparison_chart(four, traces=["interleaved in lock-step", "grouped", "grouped"])
    assert traces(both) == ["grouped in lock-step", "interleaved in lock-step"]
    with pytest.raises(OptionError, match=r"trace: expected a trace of .* or 'sequential', got 'groupt'"):
        comparison_chart(four, traces=["groupt"])
    every = many(four, 20)
    with pytest.raises(OutputError, match="expected traces that fit below the bars, got 20: choose fewer"):
        comparison_chart(every, traces=every.labels)


def test_a_title_of_ones_own_stands_above(four):
    assert comparison_chart(four, title="Mine").texts[0].get_text() == "Mine"
    assert comparison_chart(four).texts[0].get_text() == "some"
    with pytest.raises(OptionError, match="title: expected letters and signs, got"):
        comparison_chart(four, title="a\0")


def test_bars_that_stand_above_traces_are_said_to_have_another_time_scale(four):
    heading = "Parts of the time per weight update, in lock-step"
    assert f"{heading}; not on the time scale of the traces" in words(comparison_chart(four))
    narrow = words(comparison_chart(four, picture=Picture(size="4.5x7in")))
    assert [word for word in narrow if word in f"{heading}; not on the time scale of the traces"] == [
        "Parts of the time per weight update, in",
        "lock-step; not on the time scale of the traces",
    ]
    assert heading in words(comparison_chart(many(four, 30)))


def test_the_bars_say_what_the_table_says(four):
    said = bar_words(comparison_chart(four))
    for row, cells in zip(four.rows, comparison_table(four).rows, strict=True):
        time, over, mark = cells[1].replace("us", "µs"), cells[3], cells[-1]
        time_words = ", ".join(filter(None, [time, "reference" if row is four.first_completed else over, mark]))
        assert row_words(four, row) == time_words
        assert any(word.startswith(time_words) for word in said)
    parts = four.rows[0].waterfall
    assert f"{parts.share(TimePart.USEFUL):.0%}" in said
    assert ComparisonResult(four).data()[0]["waterfall"] == parts.to_dict()


def test_a_refused_run_has_a_row_without_a_bar():
    found = Comparison(compare(request_of(4, gradient_accumulation_count=9), ["grouped", "sharded"]))
    said = bar_words(comparison_chart(found))
    assert said[1:3] == ["grouped", "refused"]
    assert traces(comparison_chart(found)) == ["sharded in lock-step"]


def test_a_bar_far_longer_than_most_is_cut_and_says_so():
    """Sixteen stages one at a time take 16 x 3,000 cycles a micro-batch, Grouped 3,000 and the ramps."""
    found = Comparison(
        compare(request_of(16, gradient_accumulation_count=320), ["grouped", "interleaved", "sequential"])
    )
    slowest = max(found.cost(row) for row in found.rows)
    assert slowest > 6 * sorted(found.cost(row) for row in found.rows)[1]
    cut = [word for word in bar_words(comparison_chart(found)) if word.endswith(", cut")]
    assert cut == [f"{row_words(found, found.rows[2])}, cut"]


def test_the_lengths_of_a_bar_add_up_to_its_time_whatever_is_negative():
    parts = dict.fromkeys(TimePart, 0) | {TimePart.USEFUL: 60, TimePart.COPIES: 60, TimePart.IMBALANCE: -20}
    bar = TimeBar("one", "", 2.0, parts)
    assert [(look.name, share) for look, share, _ in bar.lengths_s] == [
        ("useful compute", 0.6),
        ("copies and sync", 0.6),
    ]
    assert [seconds for *_, seconds in bar.lengths_s] == [1.0, 1.0]
    (look, _, seconds), *rest = TimeBar("one", "", 2.0).lengths_s
    assert (look.name, seconds, rest) == ("parts not known", 2.0, [])
    assert TimeBar("refused", "refused", None).lengths_s == []

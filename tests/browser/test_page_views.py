"""What the page of runs makes easy to see: rows in order, scales of time, the critical path, fills of both schemes."""

from itertools import pairwise

import numpy as np
import pytest

from ipusim.analysis.critical_path import critical_path_of
from ipusim.app.page.page import report_page
from ipusim.app.render import shortened
from ipusim.app.render.page.fills import LANES, page_looks
from ipusim.timeline.kinds import SpanKind
from tests.browser.folders import FOUR, STAGES, run_into
from tests.browser.shown import colour, fields, hover, rgb, shows
from tests.effort import rarest, sampled

LONG = [{**stage, "forward": 900_000, "backward": 1_800_000} for stage in STAGES]
#: What is run, by name; "short" is 100 times as fast as "long", and no faster than "alike".
RUNS = {
    "short": FOUR,
    "alike": {**FOUR, "pipeline": {**FOUR["pipeline"], "schedule": "interleaved"}},
    "long": {**FOUR, "pipeline": {**FOUR["pipeline"], "stages": LONG}},
    "free": {**FOUR, "system": {"name": "free", "auto_select_ipus": 4}},
    "replicas": {**FOUR, "system": {"name": "pod16", "auto_select_ipus": 8}},
}


def length_s(timeline):
    return timeline.makespan_cycles / timeline.info.clock_hz


@pytest.mark.parametrize("name", ["short", "replicas", "free"])
def test_trace_memory_and_idle_time_have_rows_in_the_order_of_logical_ipus(show, timelines, name):
    page, info = show(name), timelines[1][name].info
    assert info.ipus != tuple(range(len(info.ipus)))
    ipus = [f"IPU {ipu}" for ipu in range(len(info.ipus))]
    trace, memory = (page.locator(".plot").nth(n).locator(".label span").all_inner_texts() for n in (0, 1))
    assert trace == ipus
    assert memory == ipus
    assert page.locator(".bars .label").all_inner_texts() == ["time of the run", *ipus]
    assert page.get_by_text("(on ").count() == 0


def test_links_come_with_a_word_on_the_physical_ipus_that_name_them(show):
    page = show("short")
    words = page.get_by_text("Links are named by physical IPUs: IPUs 0 to 3 are on 0 1 3 2.")
    assert not words.is_visible()
    assert hover(page, "IPU 2", shows(page)[1] / 2)["IPU"] in ("2, on physical IPU 3", "all")
    page.click("[data-do=beside]")
    shows(page)
    assert words.is_visible()
    assert page.locator(".labels .label", has_text="rung").count() > 0
    page.click("[data-do=beside]")
    assert not words.is_visible()
    free = show("free")
    assert free.locator("[data-do=beside]").count() == 0
    assert free.locator("p", has_text="physical").count() == 0


def test_unlike_runs_have_a_scale_of_time_each_until_one_is_asked_for(show, timelines):
    page, long_s = show("short", "long"), length_s(timelines[1]["long"])
    button = page.locator("[data-do=share]")
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator("#scale").inner_text() == "Each run has a time scale of its own."
    short, long = shows(page, 0), shows(page, 1)
    assert short == pytest.approx((0, length_s(timelines[1]["short"])))
    assert long == pytest.approx((0, long_s))
    page.locator("canvas.trace").nth(1).focus()
    page.keyboard.press("+")
    assert shows(page, 0) == short
    nearer = shows(page, 1)
    assert nearer[1] - nearer[0] == pytest.approx(long_s / 1.5)
    page.click("[data-do=in]")  # of all runs, whatever axes they are on
    assert shows(page, 0)[1] - shows(page, 0)[0] == pytest.approx(short[1] / 1.5)
    assert shows(page, 1)[1] - shows(page, 1)[0] == pytest.approx(long_s / 1.5**2)
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator("#scale").inner_text() == "All runs have the same time scale."
    assert shows(page, 0) == shows(page, 1) == pytest.approx((0, long_s))
    page.keyboard.press("Enter")
    assert (shows(page, 0), shows(page, 1)) == (short, long)


def test_alike_runs_begin_on_one_scale_and_one_run_has_no_choice(show):
    page = show("short", "alike")
    assert page.locator("[data-do=share]").get_attribute("aria-pressed") == "true"
    assert shows(page, 0) == shows(page, 1)
    page.click("[data-do=share]")
    assert shows(page, 0) != shows(page, 1)
    assert show("short").locator("[data-do=share]").count() == 0


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("short", "light"),
        ("alike", "light"),
        ("replicas", "dark"),
        *(pytest.param(*case, marks=rarest) for case in (("short", "dark"), ("alike", "dark"), ("replicas", "light"))),
    ],
)
def test_the_critical_path_goes_from_row_to_row_only_where_another_ipu_goes_on(show, timelines, name, scheme):
    timeline = timelines[1][name]
    page = show(name, color_scheme=scheme)
    page.click("[data-do=path]")
    shows(page)
    # As in the picture: what all IPUs do together is in the row of the span before it. Spans without time in the last
    # cycle lie behind the right edge.
    path = critical_path_of(timeline).rows
    path = path[timeline.start[path] < timeline.makespan_cycles]
    rows = [int(ipu) for ipu in timeline.ipu[path] if ipu >= 0]
    steps = [(one, other) for one, other in pairwise(rows) if one != other]
    expected = [sum(min(step) <= gap < max(step) for step in steps) for gap in range(len(timeline.info.ipus) - 1)]
    assert sum(expected) < len(np.unique(timeline.time_step[path])) * 2
    crossed = page.locator("canvas.trace").evaluate(
        """(canvas, accent) => {
          const labels = [...document.querySelector(".labels").children];
          const rows = labels.map((label) => [label.offsetTop, label.offsetHeight]);
          const pen = canvas.getContext("2d"), wide = canvas.width;
          return rows.slice(1).map(([top], n) => {
            const gap = Math.floor((rows[n][0] + rows[n][1] + top) / 2), row = pen.getImageData(0, gap, wide, 1).data;
            const is = (x) => accent.every((part, at) => Math.abs(row[4 * x + at] - part) < 60);
            let lines = 0;
            for (let x = 0; x < wide; x++) if (is(x) && (x === 0 || !is(x - 1))) lines++;
            return lines;
          });
        }""",
        {"light": [176, 0, 88], "dark": [255, 209, 102]}[scheme],
    )
    assert crossed == expected


def test_the_tip_goes_when_keys_are_used_or_the_page_scrolls(show):
    page = show("short")
    for key in ("ArrowRight", "n", "Escape", "Tab", "PageDown"):
        page.locator("canvas.trace").focus()
        page.keyboard.press("0")  # all of it again, whatever the key before has shown
        assert hover(page, "IPU 1", sum(shows(page)) / 2), key
        page.keyboard.press(key)
        assert fields(page, "#tip") == {}, key
    assert hover(page, "IPU 1", sum(shows(page)) / 2)
    page.evaluate("window.scrollBy(0, 400)")
    page.locator("#tip").wait_for(state="hidden")  # the page allows no polling function


@sampled(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_drawn_has_the_fills_of_the_scheme(show, timelines, scheme):
    timeline = timelines[1]["short"]
    page = show("short", color_scheme=scheme)
    seen = {}
    for kind in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.EXCHANGE, SpanKind.SYNC, SpanKind.SYNC_WAIT):
        row = max(timeline.rows(kind), key=lambda row: timeline.end[row] - timeline.start[row])
        start, end = (int(column[row]) / timeline.info.clock_hz for column in (timeline.start, timeline.end))
        page.evaluate("() => document.querySelector('canvas.trace').focus()")
        page.keyboard.press("0")
        while (end - start) / (shows(page)[1] - shows(page)[0]) < 0.05:
            hover(page, "IPU 0", (start + end) / 2)
            page.mouse.wheel(0, -400)
        ipu = max(int(timeline.ipu[row]), 0)
        seen[kind] = colour(page, f"IPU {ipu}", (start + end) / 2, below=-14)
        assert seen[kind] == rgb(page_looks([kind.row.look])[0][scheme]["fill"])
    assert len({*seen.values(), rgb(getattr(LANES, scheme))}) == len(seen) + 1


def test_a_run_that_is_drawn_at_its_ends_alone_shows_its_first_end_at_first(open_page, tmp_path, monkeypatch):
    monkeypatch.setattr(shortened, "_MOST_SPANS", 1000)
    long = {**FOUR, "name": "many", "pipeline": {**FOUR["pipeline"], "gradient_accumulation_count": 512}}
    timeline = run_into(tmp_path / "many", long)
    drawn = shortened.in_periods(timeline)
    (gap,) = shortened.left_out(drawn)
    (tmp_path / "page.html").write_bytes(report_page([tmp_path / "many"]))
    page = open_page(tmp_path / "page.html")
    assert shows(page) == pytest.approx((0, 1.12 * gap.start / timeline.info.clock_hz))
    assert page.get_by_text(f"are not drawn: {gap.words}").is_visible()
    edge, beyond = (np.array(colour(page, "IPU 1", gap.start / timeline.info.clock_hz * by)) for by in (0.98, 1.02))
    assert (edge != beyond).any()  # a pass, and where nothing is drawn
    page.click("[data-do=fit]")
    assert shows(page)[1] == pytest.approx(timeline.makespan_cycles / timeline.info.clock_hz)


@rarest
def test_a_hundred_thousand_spans_are_there_at_once_and_answer_at_once(open_page, tmp_path):
    """Before three seconds are over, and a picture in a quarter of one from then on."""
    stages = [{"name": f"s{n}", "forward": 4000 + 500 * n, "backward": 8000, "output_bytes": 4096} for n in range(8)]
    pipeline = {"stages": stages, "gradient_accumulation_count": 768, "repeat_count": 4}
    timeline = run_into(tmp_path / "run", {"name": "large", "system": {"name": "pod16"}, "pipeline": pipeline})
    assert timeline.spans_in_all >= 100_000
    (tmp_path / "page.html").write_bytes(report_page([tmp_path / "run"]))
    page = open_page(tmp_path / "page.html")
    opened_s = page.evaluate("Number(document.documentElement.dataset.ready)") / 1000
    page.click("[data-do=fit]")
    start, end = shows(page)
    pictures_s = page.evaluate(
        """async () => {
          const began = performance.now(), canvas = document.querySelector("canvas.trace");
          for (let n = 0; n < 10; n++) {
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: n < 5 ? -60 : 60, clientX: 700, cancelable: true }));
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
          }
          return (performance.now() - began) / 10000;
        }"""
    )
    print(f"{opened_s:.2f} s to open, {pictures_s * 1000:.0f} ms a picture of all spans")
    assert opened_s < 3
    assert pictures_s < 0.25
    assert shows(page) == pytest.approx((start, end), rel=1e-6)
    assert hover(page, "IPU 3", (start + end) / 2)["IPU"] in ("3", "all")

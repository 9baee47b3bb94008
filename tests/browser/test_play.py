"""The page that plays an execution in a real browser: by keyboard and by mouse, in light and dark, wide and narrow."""

import numpy as np
import pytest

from ipusim.analysis.bubble import bubble_of
from ipusim.analysis.executions import find_execution
from ipusim.analysis.phases import time_steps
from ipusim.app.page.page import report_page
from ipusim.app.render.page.fills import page_looks
from ipusim.timeline.kinds import PASSES, SpanKind
from tests.browser import folders
from tests.browser.shown import rgb, span_of
from tests.effort import rarest

PLAYED = True
STAGES = [{**stage, "forward": 100_000, "backward": 200_000, "update": 50_000} for stage in folders.STAGES]
FOUR = {**folders.FOUR, "name": "four"}


def asked(**pipeline):
    return FOUR | {"pipeline": {"stages": STAGES, "gradient_accumulation_count": 8, **pipeline}}


#: What is run, by name.
RUNS = {
    "grouped": asked(),
    "1f1b": asked(schedule="1f1b", sync="point_to_point"),
    "long": asked(gradient_accumulation_count=1024),
    "slow update": asked(stages=[{**stage, "update": 100_000_000} for stage in STAGES]),
    "inference": {**asked(stages=[{"name": f"s{n}", "forward": 100_000} for n in range(4)]), "training": False},
}
FORWARD = {
    scheme: rgb(look["fill"])
    for scheme, look in page_looks([SpanKind.FORWARD.row.look])[0].items()
    if scheme in ("light", "dark")
}


def now(page, section=0):
    """Return the second that the clock shows."""
    return float(page.locator("canvas.lanes").nth(section).get_attribute("data-clock"))


def counts(page, section=0):
    """Return how many wait on each lane."""
    found = page.locator("section").nth(section).locator(".stash")
    return [int(each.get_attribute("data-count")) for each in found.all()]


def figure(page, name, section=0):
    return page.locator("section").nth(section).locator(f"[data-figure={name}]").inner_text()


def colour(page, lane, second, section=0):
    """Return red, green and blue near the upper edge of a lane at a time."""
    return tuple(
        page.locator("canvas.lanes")
        .nth(section)
        .evaluate(
            """(canvas, [lane, second]) => {
              const { from, to, tops } = canvas.dataset, scale = devicePixelRatio;
              const x = (second - from) / (to - from) * canvas.width, y = (Number(tops.split(" ")[lane]) + 4) * scale;
              return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data.slice(0, 3)];
            }""",
            [lane, second],
        )
    )


def kept(timeline, lane, second):
    """Return how many micro-batches an IPU keeps in the middle of nothing: forward passes begun, backward not ended."""
    hz, rows = timeline.info.clock_hz, np.flatnonzero(timeline.ipu == lane)
    begun = (timeline.kind[rows] == SpanKind.FORWARD) & (timeline.start[rows] / hz < second)
    ended = (timeline.kind[rows] == SpanKind.BACKWARD) & (timeline.end[rows] / hz <= second)
    return int(begun.sum() - ended.sum())


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        (1280, "dark"),
        pytest.param(390, "dark", marks=rarest),
        pytest.param(1280, "light", marks=rarest),
    ],
)
def test_it_opens_in_both_schemes_wide_and_narrow_and_nothing_is_cut_off(show, timelines, scheme, width):
    page = show("grouped", "1f1b", width=width, height=800, color_scheme=scheme)
    titles = ["four: grouped in lock-step on m2000", "four: 1f1b in point-to-point on m2000"]
    assert page.title() == "2 runs: four"
    assert page.locator("h2").all_inner_texts() == titles
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(24, 27, 33)"}
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper[scheme]
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    for box in [each.bounding_box() for each in page.locator("#tools button, #tools select, .waiting, .slot").all()]:
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    _, second = span_of(timelines[1]["1f1b"], SpanKind.FORWARD, 1, 2)
    assert second < now(page)
    assert colour(page, 1, second, section=1) == FORWARD[scheme]
    page.click("#theme")
    assert page.locator("#theme").get_attribute("aria-pressed") == str(scheme == "light").lower()
    other = {"light": "dark", "dark": "light"}[scheme]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper[other]
    assert colour(page, 1, second, section=1) == FORWARD[other]


def test_steps_go_from_time_step_to_time_step_and_back_with_figures_and_stashes(show, timelines):
    page, timeline = show("grouped"), timelines[1]["grouped"]
    hz, steps = timeline.info.clock_hz, time_steps(timeline).start.tolist()
    assert (now(page), counts(page)) == (0, [0, 0, 0, 0])
    passes = np.isin(timeline.kind, PASSES)
    for number, end in enumerate(steps[1:]):
        page.keyboard.press("ArrowRight")
        assert now(page) == end / hz
        assert figure(page, "step") == str(number)
        assert counts(page) == [kept(timeline, lane, end / hz) for lane in range(4)]
        busy = (np.minimum(timeline.end[passes], end) - np.minimum(timeline.start[passes], end)).sum()
        assert figure(page, "bubble") == f"{100 - 100 * busy / (4 * end):.1f} %"
        assert figure(page, "compute") == f"{100 * busy / (4 * end):.1f} %"
    slots = page.locator(".stash").first.locator(".slot:not(.empty)").all_inner_texts()
    assert slots == [str(n) for n in range(8 - len(slots), 8)]
    page.keyboard.press("ArrowLeft")
    assert now(page) == steps[-2] / hz
    page.keyboard.press("End")
    assert now(page) == timeline.makespan_cycles / hz
    assert counts(page) == [0, 0, 0, 0]
    assert figure(page, "phase") == "done"
    page.keyboard.press("Home")
    assert now(page) == 0


def test_at_the_end_the_bubble_is_that_of_the_summary_and_in_inference_there_are_no_stashes(show, timelines):
    page = show(*RUNS)
    page.keyboard.press("End")
    for section, name in enumerate(RUNS):
        timeline = timelines[1][name]
        idle = bubble_of(timeline, find_execution(timeline, 0)).idle_fraction
        assert figure(page, "bubble", section) == f"{100 * idle:.1f} %", name
        assert len(counts(page, section)) == (0 if name == "inference" else 4)


def test_a_stash_says_which_micro_batches_wait_in_what_state_and_how_many_bytes(show, timelines):
    page, timeline = show("1f1b"), timelines[1]["1f1b"]
    _, second = span_of(timeline, SpanKind.BACKWARD, 2, 1)
    scrub(page, second)
    stash = page.locator(".stash").nth(2)
    count = kept(timeline, 2, second)
    assert count > 1
    assert stash.get_attribute("aria-label").startswith(f"IPU 2: {count} waiting: 1, ")
    assert int(stash.get_attribute("data-bytes")) == count * STAGES[2]["stash_bytes"]
    assert stash.locator(".slot.used").all_inner_texts() == ["1"]
    _, second = span_of(timeline, SpanKind.FORWARD, 2, 1)
    scrub(page, second)
    assert stash.locator(".slot.fills").all_inner_texts() == ["1"]
    assert stash.locator(".slot.waits").all_inner_texts() == ["0"]


def scrub(page, second):
    """Put the slider at a second of a run that leaves nothing out."""
    page.locator("[data-do=scrub]").evaluate(
        "(slider, second) => { slider.value = second; slider.dispatchEvent(new Event('input')); }", second
    )
    assert now(page) == pytest.approx(second, rel=1e-6)


def test_space_plays_and_pauses_at_a_speed_that_keys_change(show):
    page = show("grouped", "1f1b")
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert page.locator("[data-do=speed]").input_value() == "8"
    page.keyboard.press("-")
    assert page.locator("[data-do=speed]").input_value() == "4"
    page.keyboard.press("Space")
    page.wait_for_selector("html[data-playing=true]")
    assert page.locator("[data-do=play]").get_attribute("aria-label") == "pause (space)"
    page.wait_for_timeout(300)
    page.keyboard.press("Space")
    page.wait_for_selector("html[data-playing=false]")
    stopped = now(page)
    assert stopped > 0
    assert now(page, 1) == stopped  # one clock
    page.wait_for_timeout(100)
    assert now(page) == stopped
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.locator("[data-do=play]").focus()
    page.keyboard.press("Space")  # on the button itself: once
    assert page.locator("html").get_attribute("data-playing") == "true"
    page.wait_for_selector("html[data-playing=false]")  # it stops at the end
    assert figure(page, "phase") == figure(page, "phase", 1) == "done"


def test_with_reduced_motion_it_plays_from_step_to_step(show, timelines):
    timeline = timelines[1]["grouped"]
    page = show("grouped", reduced_motion="reduce")
    steps = {0, *(time_steps(timeline).start / timeline.info.clock_hz).tolist()}
    page.locator("[data-do=speed]").select_option("8")
    page.locator("h1").click()
    page.keyboard.press("Space")
    seen = set()
    for _ in range(12):
        seen.add(now(page))
        page.wait_for_timeout(40)
    page.keyboard.press("Space")
    assert len(seen) > 2
    assert seen <= steps


def test_phases_are_gone_through_and_named(show):
    page = show("grouped")
    seen = []
    for _ in range(4):
        before = now(page)
        page.keyboard.press("PageDown")
        status = page.locator("[role=status]").inner_text()
        seen.append(figure(page, "phase"))  # which has just ended
        assert before < now(page)
        assert "IPU 0" in status
    assert seen == ["ramp-up", "main", "ramp-down", "done"]
    page.keyboard.press("PageUp")
    assert figure(page, "phase") == "ramp-down"


def test_every_control_goes_by_keyboard_and_its_focus_is_seen(show):
    page = show("grouped")
    seen = []
    for _ in range(11):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.dataset.do || document.activeElement.id"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", seen[-1]
    assert seen == ["mode", "theme", "home", "back", "play", "step", "end", "speed", "scrub", "ghosts", "whole"]
    page.focus("[data-do=scrub]")
    page.keyboard.press("ArrowRight")  # on the slider too, a step
    assert figure(page, "step") == "0"
    page.focus("[data-do=step]")
    page.keyboard.press("Enter")
    assert figure(page, "step") == "1"
    page.focus("[data-do=whole]")
    page.keyboard.press("Space")
    assert page.locator("[data-do=whole]").get_attribute("aria-pressed") == "true"
    canvas = page.locator("canvas.lanes")
    assert float(canvas.get_attribute("data-from")) == 0
    assert page.locator("html").get_attribute("data-playing") == "false"


def test_a_button_goes_from_the_traces_to_the_play_and_back(open_page, timelines):
    home, runs = timelines
    path = home / "traces.html"
    path.write_bytes(report_page([home / "grouped"]))
    page = open_page(path)
    assert (page.locator("canvas.trace").count(), page.locator("canvas.lanes").count()) == (1, 0)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("canvas.lanes")
    assert page.locator("canvas.trace").count() == 0
    page.keyboard.press("Space")  # the clock's button has the focus
    page.wait_for_selector("html[data-playing=true]")
    page.click("[data-do=mode]")
    assert page.locator("html").get_attribute("data-playing") == "false"
    assert (page.locator("canvas.trace").count(), page.locator("canvas.lanes").count()) == (1, 0)
    page.keyboard.press("End")  # no key of the play
    page.click("[data-do=mode]")
    assert 0 < now(page) < find_execution(runs["grouped"], 0).end / runs["grouped"].info.clock_hz
    path.write_bytes(report_page([home / name for name in ("grouped", "1f1b", "inference")]))
    page = open_page(path)
    assert page.locator("[data-do=mode]").is_disabled()
    assert page.locator("[data-do=mode]").get_attribute("title") == "expected one or two runs to play, got 3"


def test_the_clock_goes_where_the_lanes_are_pressed(show, timelines):
    page = show("grouped")
    canvas = page.locator("canvas.lanes")
    box = canvas.bounding_box()
    start, end = (float(canvas.get_attribute(f"data-{name}")) for name in ("from", "to"))
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    assert now(page) == pytest.approx(start + (end - start) / 4, rel=0.01)
    assert float(canvas.get_attribute("data-from")) == start


def test_what_comes_is_hidden_where_that_is_asked_for(show, timelines):
    page = show("grouped")
    _, second = span_of(timelines[1]["grouped"], SpanKind.FORWARD, 0, 3)
    ground = (247, 248, 250)
    edge = page.locator("canvas.lanes").evaluate("(canvas) => canvas.toDataURL().length")
    page.click("[data-do=ghosts]")
    assert page.locator("canvas.lanes").evaluate("(canvas) => canvas.toDataURL().length") < edge
    assert colour(page, 0, second) == ground


def test_a_long_execution_plays_its_ends_with_a_marked_break_in_bounded_time(show, timelines):
    page, timeline = show("long"), timelines[1]["long"]
    note = page.locator("section .note").inner_text()
    assert note.startswith("Left out: ")
    steps = 0
    for _ in range(200):
        page.keyboard.press("ArrowRight")
        steps += 1
        if figure(page, "phase") == "done":
            break
    assert 20 < steps < 100 < timeline.info.time_steps
    length = float(page.locator("[data-do=scrub]").get_attribute("max"))
    assert length < 0.1 * timeline.makespan_cycles / timeline.info.clock_hz
    page.locator("[data-do=scrub]").evaluate("(it) => { it.value = it.max / 2; it.dispatchEvent(new Event('input')); }")
    assert figure(page, "step") == "…"


def test_an_update_that_takes_as_long_as_a_thousand_passes_is_played_in_a_few_passes_time(show):
    page = show("slow update")
    page.locator("[data-do=speed]").select_option("8")
    page.locator("h1").click()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    page.wait_for_selector("html[data-playing=false]")
    assert figure(page, "phase") == "done"

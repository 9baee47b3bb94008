"""The page of runs in a real browser: what people do with it, by mouse and by keyboard, in light and dark."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from ipusim.analysis.critical_path import critical_path_of
from ipusim.app.page.page import report_page
from ipusim.app.render.page.fills import page_looks
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.time_parts import TimePart
from ipusim.timeline.timeline import Span, Timeline
from tests.browser.folders import FOUR, run_into
from tests.browser.shown import colour, fields, hover, rgb, shows, span_of, unfold
from tests.effort import rarest

FORWARD, BACKWARD = (
    rgb(page_looks([kind.row.look])[0]["light"]["fill"]) for kind in (SpanKind.FORWARD, SpanKind.BACKWARD)
)
HOSTILE = '<script>window.hacked = 1; alert(1)</script><img src=x onerror="window.hacked = 2">\u2028</script>'
#: The second is of two replicas with I/O tiles, in three executions.
IO_TILES = {"num_io_tiles": 64, "place_ops_on_io_tiles": True}
RUNS = {
    "four": FOUR,
    "again": {
        "system": {"name": "pod16", "auto_select_ipus": 8, "io_tiles": IO_TILES},
        "infeed": {"element_bytes": 65536},
        "pipeline": {**FOUR["pipeline"], "repeat_count": 3, "gradient_accumulation_count": 16},
    },
}


@pytest.fixture
def timeline(timelines):
    return timelines[1]["four"]


@pytest.fixture
def folders(timelines):
    return timelines[0]


def test_hovering_shows_all_fields_of_a_span(show, timeline):
    page = show("four")
    row, second = span_of(timeline, SpanKind.FORWARD, 1, 2)
    shown = hover(page, "IPU 1", second)
    clock_hz = timeline.info.clock_hz
    at = [f"cycle {cycle:,}" for cycle in (timeline.start[row], timeline.end[row])]
    assert shown.pop("released by")
    assert shown.pop("what") == SpanKind.FORWARD.row.doc
    assert [shown.pop(name).partition(", ")[0] for name in ("start", "end")] == at
    assert shown == {
        "span": "F1.2→",
        "kind": "forward",
        "track": "IPU 1, stage 1 s1",
        "length": f"4,500 cycles, {4500 / clock_hz * 1e6:.4g} µs",
        "IPU": "1, on physical IPU 1",
        "stage": "1: s1",
        "micro-batch": "2",
        "time-step": str(timeline.time_step[row]),
        "execution": "0",
        "replica": "0",
        "bytes": "0",
    }
    page.mouse.move(5, 5)
    assert fields(page, "#tip") == {}


def test_the_wheel_zooms_around_the_pointer_a_drag_pans_and_buttons_do_both(show, timeline):
    page = show("four")
    start, end = shows(page)
    second = start + (end - start) * 0.3
    hover(page, "IPU 2", second)
    page.mouse.wheel(0, -400)
    nearer = shows(page)
    assert nearer[1] - nearer[0] == pytest.approx((end - start) / 1.0018**400, rel=1e-6)
    assert (second - nearer[0]) / (nearer[1] - nearer[0]) == pytest.approx(0.3, abs=0.002)
    canvas = page.locator("canvas.trace").bounding_box()
    page.mouse.down()
    page.mouse.move(canvas["x"] + canvas["width"] * 0.3 + 100, canvas["y"] + 60)
    page.mouse.up()
    dragged = shows(page)
    moved = 100 / canvas["width"] * (nearer[1] - nearer[0])
    assert dragged[0] == pytest.approx(nearer[0] - moved, abs=(nearer[1] - nearer[0]) * 0.002)
    page.click("[data-do=in]")
    inner = shows(page)
    assert inner[1] - inner[0] == pytest.approx((dragged[1] - dragged[0]) / 1.5)
    page.click("[data-do=right]")
    assert shows(page)[0] > inner[0]
    page.click("[data-do=left]")
    page.click("[data-do=out]")
    assert shows(page) == pytest.approx(dragged)
    page.click("[data-do=fit]")
    assert shows(page) == pytest.approx((0, timeline.makespan_cycles / timeline.info.clock_hz))


def test_it_jumps_to_phases_executions_and_micro_batches(show, timelines):
    page, timeline = show("four", "again"), timelines[1]["again"]
    section, hz = page.locator("section").nth(1), timeline.info.clock_hz
    section.locator("[data-do=execution]").select_option("2")
    start, end = shows(page, 1)
    rows = np.flatnonzero(timeline.execution == 2)
    first, last = timeline.start[rows].min() / hz, timeline.makespan_cycles / hz
    assert (start, end) == pytest.approx((first, last), rel=0.05)
    assert shows(page, 0) == (start, end)  # one axis, as the runs are alike
    section.locator("[data-do=phase]").select_option("weight update")
    assert section.locator("[data-do=phase] option").all_inner_texts()[0] == "the whole of it"
    assert shows(page, 1)[0] > start
    section.locator("[data-do=execution]").select_option("0")
    section.locator("[data-do=batch]").fill("3")
    section.locator("[data-do=jump]").click()
    passes = timeline.rows(SpanKind.FORWARD, SpanKind.BACKWARD)
    passes = passes[(timeline.micro_batch[passes] == 3) & (timeline.execution[passes] == 0)]
    begin, finish = timeline.start[passes].min() / hz, timeline.end[passes].max() / hz
    room = 0.05 * (finish - begin)
    assert shows(page, 1) == pytest.approx((begin - room, finish + room))
    section.locator("[data-do=fit-run]").click()
    assert shows(page, 1) == pytest.approx((0, last))


def test_a_micro_batch_is_followed_and_all_else_is_dim(show, timeline):
    page = show("four")
    (_, followed), (_, other) = (span_of(timeline, SpanKind.BACKWARD, 3, batch) for batch in (3, 4))
    assert colour(page, "IPU 3", followed, below=-14) == colour(page, "IPU 3", other, below=-14) == BACKWARD
    page.fill("[data-do=batch]", "3")
    page.click("[data-do=follow]")
    assert page.locator("[data-do=follow]").inner_text() == "Following 3"
    shows(page)
    assert colour(page, "IPU 3", followed, below=-14) == BACKWARD
    assert min(colour(page, "IPU 3", other, below=-14)) > max(100, BACKWARD[2])
    page.click("[data-do=follow]")
    shows(page)
    assert colour(page, "IPU 3", other, below=-14) == BACKWARD


def test_the_critical_path_is_shown_on_the_trace_and_as_a_table(show, timeline):
    page = show("four")
    path = critical_path_of(timeline).rows
    on, off = (
        next(
            (each, (timeline.start[each] + timeline.end[each]) / 2 / timeline.info.clock_hz)
            for each in timeline.rows(SpanKind.FORWARD)
            if (each in path) is wanted
        )
        for wanted in (True, False)
    )
    unfold(page)
    page.click("[data-do=path]")
    assert page.locator("[data-do=path]").get_attribute("aria-pressed") == "true"
    shows(page)
    for (row, second), plain in ((on, True), (off, False)):
        assert (colour(page, f"IPU {timeline.ipu[row]}", second, below=-14) == FORWARD) is plain
    table = page.locator(".table", has=page.locator(f"caption:has-text('Critical path, {timeline.makespan_cycles:,}')"))
    cycles = table.locator("tbody tr td:nth-child(4)").all_inner_texts()
    assert sum(int(each.replace(",", "")) for each in cycles) == timeline.makespan_cycles


def test_kinds_are_hidden_through_the_legend_and_links_are_shown_by_a_button(show, timeline):
    page = show("four")
    _, second = span_of(timeline, SpanKind.BACKWARD, 0, 3)
    key = page.locator("[data-look=backward]")
    assert colour(page, "IPU 0", second, below=14) == BACKWARD
    key.click()
    shows(page)
    assert key.get_attribute("aria-pressed") == "false"
    assert colour(page, "IPU 0", second, below=14) == (247, 248, 250)
    assert hover(page, "IPU 0", second).get("kind") != "backward"
    key.press("Enter")
    shows(page)
    assert colour(page, "IPU 0", second, below=14) == BACKWARD
    before = page.locator(".labels .label").count()
    page.click("[data-do=beside]")
    shows(page)
    assert page.locator(".labels .label").count() == before + len(timeline.info.links)


def test_tables_sort_by_click_and_by_keyboard(show):
    page = show("four")
    unfold(page)
    table = page.locator(".table", has=page.locator("caption:has-text('Critical path')"))
    column = table.locator("tbody tr td:nth-child(4)")
    was = column.all_inner_texts()
    head = table.locator("thead th").nth(3)
    numbers = sorted((int(each.replace(",", "")) for each in was), reverse=True)
    for order, key in (("descending", None), ("ascending", "Enter"), ("none", "Space")):
        if key is None:
            head.locator("button").click()
        else:
            head.locator("button").press(key)
        assert head.get_attribute("aria-sort") == order
        found = [int(each.replace(",", "")) for each in column.all_inner_texts()]
        assert found == {"descending": numbers, "ascending": numbers[::-1], "none": found}[order]
    assert column.all_inner_texts() == was
    memory = page.locator(".table", has=page.locator("caption:has-text('Memory at')"))
    memory.locator("thead th button").nth(1).click()
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20}
    peaks = [text.split() for text in memory.locator("tbody tr td:nth-child(2)").all_inner_texts()]
    sizes = [float(number) * units[unit] for number, unit in peaks]
    assert sizes == sorted(sizes, reverse=True)


def test_all_of_it_goes_by_keyboard_and_the_focus_is_seen(show, timeline):
    page = show("four")
    canvas = page.locator("canvas.trace")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "trace":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    start, end = shows(page)
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    nearer = shows(page)
    assert nearer[1] - nearer[0] == pytest.approx((end - start) / 1.5)
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert shows(page)[0] == 0
    page.keyboard.press("n")
    first = fields(page, ".fields")
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert fields(page, ".fields")["start"] != first["start"]
    page.keyboard.press("p")
    page.keyboard.press("ArrowDown")
    assert fields(page, ".fields")["track"].startswith("IPU 1")
    page.keyboard.press("ArrowUp")
    while fields(page, ".fields")["kind"] != "forward":
        page.keyboard.press("n")
    chosen = fields(page, ".fields")
    page.keyboard.press("f")
    assert page.locator("[data-do=follow]").inner_text() == f"Following {chosen['micro-batch']}"
    page.keyboard.press("c")
    assert page.locator("[data-do=path]").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-do=follow]").inner_text() == "Follow it"
    page.keyboard.press("Enter")
    length = int(re.match(r"[\d,]+", chosen["length"])[0].replace(",", "")) / timeline.info.clock_hz
    shown = shows(page)
    assert shown[1] - shown[0] == pytest.approx(3 * length)
    page.keyboard.press("Escape")
    assert fields(page, ".fields") == {}
    assert page.locator("[data-do=path]").get_attribute("aria-pressed") == "false"
    names = page.locator("button, select, input, canvas, [role=region]").evaluate_all(
        "(all) => all.filter((each) => !(each.getAttribute('aria-label') || each.textContent || each.labels?.length))"
        ".length"
    )
    assert names == 0
    assert canvas.get_attribute("aria-label").startswith("trace of four: grouped in lock-step on m2000")


def test_memory_stands_on_the_same_axis_and_tells_what_it_is(show, timeline):
    page = show("four")
    trace, memory = (page.locator(f"canvas.{name}").bounding_box() for name in ("trace", "memory"))
    assert (trace["x"], trace["width"]) == (memory["x"], memory["width"])
    page.locator("canvas.memory").scroll_into_view_if_needed()
    shows(page)
    memory = page.locator("canvas.memory").bounding_box()
    page.mouse.move(memory["x"] + memory["width"] / 2, memory["y"] + 40)
    shown = fields(page, "#tip")
    assert shown["memory"] == "IPU 0"
    assert shown["parameters"] == "1 MiB"
    assert "of 897 MiB" in shown["in all"]


def test_names_are_inert_whatever_they_hold(open_page, folders, tmp_path):
    shutil.copytree(folders / "four", tmp_path / "run")
    path = tmp_path / "run" / "timeline.npz"
    timeline = Timeline.load(path)
    shown = HOSTILE.replace("\u2028", "")  # a name is printable; what a file of text holds need not be
    table = np.stack([getattr(timeline, name) for name in Span._fields], axis=1)
    stages = (shown, *timeline.info.stages[1:])
    Timeline(replace(timeline.info, name=shown, stages=stages, links=(shown,) * len(timeline.info.links)), table).save(
        path
    )
    said = json.loads((tmp_path / "run" / "summary.json").read_text())
    said |= {"description": HOSTILE, "notes": [HOSTILE], "options": {HOSTILE: HOSTILE}}
    said["memory"]["verdict"] = HOSTILE
    (tmp_path / "run" / "summary.json").write_text(json.dumps(said))
    (tmp_path / "run" / "scenario.yaml").write_text(f"# {HOSTILE} {{{{script}}}}\n", "utf-8")
    page_file = tmp_path / "page.html"
    page_file.write_bytes(report_page([tmp_path / "run", folders / "again"]))
    assert HOSTILE.encode() not in page_file.read_bytes()
    page = open_page(page_file)
    page.click("[data-do=beside]")
    second = span_of(timeline, SpanKind.FORWARD, 0, 1)[1]
    assert hover(page, "IPU 0", second)["stage"] == f"0: {shown}"
    assert page.locator("h2").first.inner_text().startswith(shown)
    assert page.locator("p.description").first.text_content() == HOSTILE
    assert HOSTILE in page.locator("pre").first.text_content()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


#: Texts that lie over each other, and texts that are cut, as far as anyone can see them.
OVERLAPPING = """() => {
  const found = [], boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    const elsewhere = parent.closest("script, pre, select, .unseen, #tools");
    if (!node.textContent.trim() || elsewhere || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) if (box.width) boxes.push([box, node.textContent]);
    const cut = parent.scrollWidth > parent.clientWidth + 1 && getComputedStyle(parent).overflowX !== "visible";
    if (cut && getComputedStyle(parent).display !== "inline") found.push(`cut: ${node.textContent}`);
  }
  boxes.forEach(([one, words], n) => boxes.slice(n + 1).forEach(([other, others]) => {
    const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    if (wide > 1 && high > 3) found.push(`${words} | ${others}`);
  }));
  if (document.scrollingElement.scrollWidth > innerWidth) found.push("wider than the window");
  for (const region of document.querySelectorAll(".table")) {
    if (region.scrollWidth > region.clientWidth + 1) found.push(`scrolls: ${region.ariaLabel}`);
  }
  return found;
}"""


@pytest.mark.parametrize("width", [900, pytest.param(1280, marks=rarest)])
def test_no_text_is_cut_or_lies_over_another(show, width):
    page = show("four", "again", width=width)
    assert page.evaluate(OVERLAPPING) == []
    page.click("[data-do=beside]")
    page.locator(".keys summary").click()
    unfold(page)
    assert page.evaluate(OVERLAPPING) == []
    tools = page.locator("#tools button, #tools summary").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect().toJSON())"
    )
    for n, one in enumerate(tools):
        for other in tools[n + 1 :]:
            assert (
                min(one["right"], other["right"]) <= max(one["left"], other["left"]) + 1
                or min(one["bottom"], other["bottom"]) <= max(one["top"], other["top"]) + 1
            )


def test_the_first_screen_has_the_verdict_the_parts_of_the_time_what_would_help_and_the_trace(show):
    page = show("four")
    shown = [".figures", ".bars", ".verdict", "canvas.trace"]
    boxes = [page.locator(each).first.bounding_box() for each in shown]
    assert boxes == sorted(boxes, key=lambda box: box["y"])
    assert boxes[-1]["y"] + boxes[-1]["height"] <= 900
    assert page.locator("table:visible").count() == 0
    height = show("four", "again").evaluate("document.documentElement.scrollHeight")
    assert height < 4000


def test_the_parts_of_the_time_are_one_bar_that_says_each(show, folders):
    page = show("four")
    said = json.loads((folders / "four" / "summary.json").read_text())["waterfall"]
    shares = {part.words: said["shares"][part.key] for part in TimePart if said["cycles"][part.key]}
    bar = page.locator(".bars").first
    assert bar.locator("li").all_inner_texts() == [
        f"{words} {share:.1%}".replace("%", " %") for words, share in shares.items()
    ]
    widths = bar.locator(".part").evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().width)")
    assert [width / sum(widths) for width in widths] == pytest.approx([*shares.values()], abs=0.002)


def test_what_would_help_is_there_once_explain_has_written_it_of_this_run(open_page, folders, tmp_path):
    def said(**explained):
        (tmp_path / "run" / "explanation.json").write_text(json.dumps(explained))
        (tmp_path / "page.html").write_bytes(report_page([tmp_path / "run"]))
        return open_page(tmp_path / "page.html").locator(".verdict").inner_text()

    shutil.copytree(folders / "four", tmp_path / "run")
    waterfall = json.loads((folders / "four" / "summary.json").read_text())["waterfall"]
    error = "Error of the throughput: not known: no training of a model of this kind is published.\n"
    assert said(help=["Of this run."], waterfall=waterfall) == f"{error}Of this run."
    other = f"{error}This folder has no explanation: ipusim explain tries changes and writes the best here."
    assert said(help=["Of another."], waterfall=waterfall | {"executions": 9}) == other
    assert said(help=[1], waterfall=waterfall) == other


def test_it_prints_light_without_its_tools_on_pages_of_paper(show):
    page = show("four", "again", color_scheme="dark")
    wide = page.locator("canvas.trace").first.bounding_box()["width"]
    page.evaluate(
        "window.printed = []; addEventListener('beforeprint', () => window.printed.push("
        "[document.documentElement.dataset.theme, document.querySelector('canvas').clientWidth, "
        "document.querySelectorAll('details.fold:not([open])').length]))"
    )
    folded = page.locator("details.fold:not([open])").count()
    assert folded == 4
    content = page.pdf(format="A4")
    assert content.startswith(b"%PDF")
    assert page.evaluate("window.printed") == [["light", 510, 0]]
    assert page.locator("details.fold:not([open])").count() == folded
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    assert [page.locator(each).first.is_visible() for each in ("#theme", ".controls", ".buttons", "canvas")] == [
        False,
        False,
        False,
        True,
    ]
    page.emulate_media(media="screen")
    shows(page)
    assert page.locator("canvas.trace").first.bounding_box()["width"] == wide


def test_a_run_without_memory_and_without_a_scenario_says_so(open_page, folders, tmp_path):
    shutil.copytree(folders / "four", tmp_path / "run")
    for name in ("memory.npz", "memory.png", "scenario.yaml"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "page.html").write_bytes(report_page([tmp_path / "run"]))
    page = open_page(tmp_path / "page.html")
    assert page.locator("canvas.memory").count() == 0
    assert page.get_by_text("Not known: the memory of the stages is not known").count() == 1
    unfold(page)
    assert page.locator("pre").inner_text().startswith("The folder holds no scenario")


def test_replicas_and_io_tiles_have_rows_of_their_own(show):
    plot = show("four", "again").locator("section").nth(1).locator(".plot").first
    assert plot.locator(".label span").all_inner_texts()[:4] == ["IPU 0", "I/O tiles", "IPU 1", "IPU 2"]
    titles = [each.get_attribute("title") for each in plot.locator(".label").all()]
    assert titles[:2] == ["replica 0, IPU 0, stage 0 s0", "replica 0, IPU 0, stage 0 s0: I/O tiles"]
    assert len(set(titles)) == len(titles) == 10


def test_two_runs_of_one_name_are_told_apart_by_their_folders(open_page, folders):
    path = folders / "twice.html"
    (folders / "before").mkdir(exist_ok=True)
    run_into(folders / "before" / "four", {"name": "four", **FOUR})
    path.write_bytes(report_page([folders / "four", folders / "before" / "four"]))
    titles = open_page(path).locator("section > h2").all_text_contents()
    assert [title.rpartition(", ")[2] for title in titles] == [
        str(folders / "four"),
        str(folders / "before" / "four"),
    ]


def test_on_a_narrow_screen_every_figure_of_the_overview_is_in_sight_and_no_label_of_a_row_is_cut(show):
    page = show("four", "again", width=390)
    region = page.locator(".table.wide").first
    assert region.evaluate("(region) => region.scrollWidth <= region.clientWidth")
    cells = region.locator("td").evaluate_all(
        "(all) => all.map((each) => [each.dataset.head, each.textContent, each.getBoundingClientRect().right])"
    )
    heads = region.locator("thead th").evaluate_all("(all) => all.map((each) => each.textContent)")
    assert [head for head, _, _ in cells] == heads[1:] * (len(cells) // (len(heads) - 1))
    assert all(text and right <= 390 for _, text, right in cells)
    labels = page.locator(".labels .label :is(span, small)")
    sizes = labels.evaluate_all("(all) => all.map((each) => [each.textContent, each.scrollWidth - each.clientWidth])")
    assert len(sizes) > 8
    assert [text for text, over in sizes if over > 0] == []
    ends = page.locator(".legend > *").evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().right)")
    assert len(ends) > 8
    assert max(ends) <= 390

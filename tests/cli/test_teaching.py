"""The page for lectures: simulated numbers, answers, and commands that draw the figures."""

import re
import shlex
from itertools import pairwise

import pytest

import ipusim as package
from reports.outputs import command_lines
from reports.teaching_page import BACKWARD, FIGURES, FORWARD, IPUS, THEMES, makespan, simulated
from tests.cli.commands import answer
from tests.cli.pages import PAGES, ROOT, blocks
from tests.effort import rarest, sampled

PAGE = PAGES["reports/teaching.md"]
#: Largest figure in bytes, for slides and pages that load at once.
LARGEST = 150_000


def texts(svg):
    """Return all texts of a picture."""
    return re.findall(r">([^<>]+)</text>", svg)


def run(schedule, stages, count, mapping=None, **pipeline):
    """Return the makespan of stages on the machine with free copies."""
    extra = {"device_mapping": mapping} if mapping else {}
    options = {"schedule": schedule, "stages": stages, "gradient_accumulation_count": count, **extra, **pipeline}
    found = package.run({"system": {"name": "free"}, "pipeline": options})
    return found.summary.to_dict()["makespan_cycles"]


def equal(number, forward, backward, **more):
    return [{"name": f"s{place}", "forward": forward, "backward": backward, **more} for place in range(number)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda each: each.name)
def test_closed_forms_give_what_is_simulated(figure):
    for row in figure.rows():
        assert row.simulated == pytest.approx(row.value, rel=1e-12), row.quantity


def test_answers_are_right():
    for told in (
        "57, because 3 / (57 + 3) is 5 %",
        "both forms give 2 (m + N - 1) F",
        "GPipe keeps 64, 1F1B still keeps 4",
        "1,425,000 cycles",
        "an activation crosses 15 boundaries between IPUs instead of 3",
        "Nothing: an IPU waits (N - 1)(F + I) under H1 and under 1F1B",
        "a makespan of 4,050,000 cycles; most as IPU 3, with 4,500,000",
        "Under GPipe every position takes 4,500,000",
    ):
        assert told in PAGE
    assert simulated("1f1b", 57).summary.to_dict()["bubble"]["idle_fraction"] == pytest.approx(0.05)
    assert run("interleaved", equal(IPUS, 1000, 1000), 8) == run("grouped", equal(IPUS, 1000, 1000), 8) == 22_000
    kept = [
        max(stage["most_micro_batches_kept"] for stage in simulated(name, 64).summary.to_dict()["memory"]["stages"])
        for name in ("gpipe", "1f1b")
    ]
    assert kept == [64, 4]
    four = [*range(IPUS)] * 4
    assert run("interleaved_1f1b", equal(16, FORWARD // 4, BACKWARD // 4), 4, four) == 1_425_000
    assert sum(ipu != after for ipu, after in pairwise(four)) == 15
    halves = equal(IPUS, 1000, 1000, backward_input=1000, backward_weights=0)
    assert run("zero_bubble_h1", halves, 8) == run("1f1b", equal(IPUS, 1000, 1000), 8)
    assert [makespan("1f1b", 8, slow=ipu) for ipu in (0, 3)] == [4_050_000, 4_500_000]
    assert {makespan("gpipe", 8, slow=ipu) for ipu in range(IPUS)} == {4_500_000}


def test_what_the_class_is_told_is_so():
    words = " ".join(PAGE.split())
    for told in (
        "Every IPU computes for 2,400,000 of the 3,300,000 cycles; the other 900,000 are [fill and drain]",
        "IPU 0 waits for 700,000 of the 900,000 cycles in main",
        "Grouped has m - 2 N + 1 such time-steps, nine in the figure.",
        "without the weight update at its end, which takes 60,000 cycles",
        "With m = 8 one slow IPU costs 900,000 cycles, and four slow IPUs would cost 1,650,000.",
    ):
        assert told in words
    even = simulated("1f1b", 8)
    summary, spans = even.summary.to_dict(), even.spans()
    assert summary["waterfall"]["cycles"]["fill_and_drain"] == 900_000
    assert (summary["throughput"]["run_cycles"], summary["makespan_cycles"]) == (3_360_000, 3_300_000)
    begin, end = next((each["start"], each["end"]) for each in summary["phases"] if each["name"] == "main")
    passes = spans[spans["kind"].isin(["forward", "backward"])]
    inside = (passes["end_cycle"].clip(upper=end) - passes["start_cycle"].clip(lower=begin)).clip(lower=0)
    assert (end - begin - inside.groupby(passes["ipu"]).sum()).tolist()[:: IPUS - 1] == [700_000, 0]
    for count, full in ((8, 1), (16, 9)):
        phases = simulated("grouped", count, "lock_step").summary.to_dict()["phases"]
        assert next(each["cycles"] for each in phases if each["name"] == "main") == full * (FORWARD + BACKWARD)
    for count, share in ((8, 0.55), (32, 0.86)):
        slow, all_equal = makespan("1f1b", count, slow=1), makespan("1f1b", count)
        all_slow = run("1f1b", equal(IPUS, FORWARD * 3 // 2, BACKWARD * 3 // 2), count)
        assert (slow - all_equal) / (all_slow - all_equal) == pytest.approx(share, abs=0.005)


#: Each figure in one theme, in turn; in the other with ``--every``.
DRAWN = [
    pytest.param(figure, theme, id=f"{figure.name}-{theme}", marks=rarest if (place + turn) % 2 else ())
    for place, figure in enumerate(FIGURES)
    for turn, theme in enumerate(THEMES)
]


@sampled(2)
@pytest.mark.parametrize(("figure", "theme"), DRAWN)
def test_commands_draw_the_figures(figure, theme, workspace, monkeypatch):
    """Bytes are equal on one version of matplotlib; what is drawn by another has the same texts."""
    monkeypatch.setattr("ipusim.app.run_folder.pictures.to_png", lambda _: b"")
    commands = command_lines(blocks(PAGE, "console")[FIGURES.index(figure)])
    assert commands == [*figure.commands]
    for command in commands:
        answer(*shlex.split(command.replace("--theme light", f"--theme {theme}"))[1:], cwd=workspace)
    made = (workspace / "reports" / "teaching" / f"{figure.name}.svg").read_bytes()
    assert made == figure.picture(theme)
    assert len(made) < LARGEST, "draw fewer micro-batches"
    kept = (ROOT / "reports" / f"teaching-{figure.name}{THEMES[theme]}.svg").read_text()
    assert texts(made.decode()) == texts(kept), "run python -m reports"

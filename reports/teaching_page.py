"""Page for lectures: six figures of pipelines, each with its command, closed form, simulated number and question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import ipusim
from ipusim.app.render.figures import to_svg
from ipusim.app.render.picture import Picture
from ipusim.app.render.tables import Table
from ipusim.app.study.result import table_markdown

_SCENARIOS: Final = Path(__file__).parent.parent / "scenarios"
#: Folder that the commands of the page write into.
_OUT: Final = "reports/teaching"
#: Themes of each figure, with the ending of the figure's name.
THEMES: Final = {"light": "", "print": "-print"}
#: Scenario with a stage on each IPU, and the same work with two stages on each.
ONE, TWO = "gpu_schedules", "interleaved_1f1b"
#: Machine on which copies take no time.
_FREE: Final = {"system.name": "free"}
_COUNT: Final = "pipeline.gradient_accumulation_count"
#: Number of IPUs.
IPUS: Final = 4
#: Cycles of a forward pass.
FORWARD: Final = 100_000
#: Cycles of a backward pass.
BACKWARD: Final = 200_000
#: Cycles of each half of a backward pass.
FIRST = SECOND = BACKWARD // 2
#: Slow IPU of the last figure.
SLOW: Final = 1
#: Factor on the slow IPU's time.
FACTOR: Final = 1.5
#: Folder of the run with the slow IPU.
_SLOW_RUN: Final = f"ipu-{SLOW}-slow"


class Row(NamedTuple):
    """Quantity of a figure: closed form in words, its value, and the simulated value; both in cycles or a share."""

    quantity: str
    form: str
    value: float
    simulated: float


@dataclass(frozen=True)
class Figure:
    """Figure of the page.

    Attributes:
        name: name of its files.
        title: headline of the section and the picture.
        plan: schedules and number of micro-batches.
        commands: drawing commands, in the theme ``light``.
        source: origin of the closed forms.
        say: sentences for the class.
        question, answer: question for the class with its answer.
    """

    name: str
    title: str
    plan: str
    commands: tuple[str, ...]
    source: str
    say: str
    question: str
    answer: str

    def picture(self, theme: str) -> bytes:
        """Return the figure as SVG."""
        options = Picture(title=self.title, theme=theme)
        return to_svg(_DRAWN[self.name](options))

    def rows(self) -> list[Row]:
        """Return the quantities of the figure."""
        return _ROWS[self.name]()


@cache
def simulated(schedule: str, count: int, sync: str = "", scenario: str = ONE, slow: int | None = None) -> Any:
    """Run a scenario on free copies, and return the run."""
    changes: dict[str, Any] = {**_FREE, "pipeline.schedule": schedule, _COUNT: count}
    if sync:
        changes["pipeline.sync"] = sync
    if slow is not None:
        changes["disturbances"] = [{"ipu": slow, "slower": FACTOR}]
    return ipusim.run(_SCENARIOS / f"{scenario}.yaml", changes=changes)


def _summary(*run: Any, **options: Any) -> Any:
    return simulated(*run, **options).summary.to_dict()


def makespan(*run: Any, **options: Any) -> int:
    """Return the simulated cycles of an execution without its weight update."""
    return int(_summary(*run, **options)["makespan_cycles"])


def _bubble(*run: Any) -> float:
    return float(_summary(*run)["bubble"]["idle_fraction"])


def _kept(*run: Any) -> int:
    return max(int(stage["most_micro_batches_kept"]) for stage in _summary(*run)["memory"]["stages"])


def whole_ramps(count: int, ipus: int = IPUS, forward: int = FORWARD, backward: int = BACKWARD) -> int:
    """Return the makespan of GPipe, 1F1B and Grouped."""
    return (count + ipus - 1) * (forward + backward)


def interleaved(count: int, ipus: int = IPUS, forward: int = FORWARD, backward: int = BACKWARD) -> int:
    """Return the makespan of Interleaved in lock-step, for backward passes no shorter than forward passes."""
    return ipus * forward + (2 * count + ipus - 2) * backward


def several_stages(count: int, per_ipu: int) -> int:
    """Return the makespan of interleaved 1F1B."""
    return count * (FORWARD + BACKWARD) + (IPUS - 1) * (FORWARD + BACKWARD) // per_ipu


def halves(count: int, weights: int = SECOND) -> int:
    """Return the makespan of zero bubble H1."""
    return count * (FORWARD + FIRST + weights) + (IPUS - 1) * max(FORWARD, FIRST, FORWARD + FIRST - weights)


def slow_ipu(count: int, stage: int) -> int:
    """Return the makespan of 1F1B with one slow stage, for slow passes no longer than F + B."""
    even_cycles = FORWARD + BACKWARD
    slow_cycles = round(even_cycles * FACTOR)
    return count * slow_cycles + (IPUS - 1) * even_cycles - (IPUS - 1 - stage) * (slow_cycles - even_cycles)


def _cost_of_all_slow(count: int) -> int:
    return round(whole_ramps(count) * (FACTOR - 1))


_WHOLE: Final = "(m + N - 1)(F + B)"
_STASH: Final = "most micro-batches kept on an IPU"


def _ramps_rows() -> list[Row]:
    count = 8
    phases = {entry["name"]: entry["cycles"] for entry in _summary("1f1b", count)["phases"]}
    return [
        Row("ramp-up", "(N - 1) F", (IPUS - 1) * FORWARD, phases["ramp-up"]),
        Row("main", "m (F + B)", count * (FORWARD + BACKWARD), phases["main"]),
        Row("ramp-down", "(N - 1) B", (IPUS - 1) * BACKWARD, phases["ramp-down"]),
        Row("makespan", _WHOLE, whole_ramps(count), makespan("1f1b", count)),
        Row("bubble", "(N - 1) / (m + N - 1)", (IPUS - 1) / (count + IPUS - 1), _bubble("1f1b", count)),
    ]


def _lock_step_rows() -> list[Row]:
    count = 16
    run, other = ("grouped", count, "lock_step"), ("interleaved", count, "lock_step")
    return [
        Row("makespan, Grouped", _WHOLE, whole_ramps(count), makespan(*run)),
        Row("makespan, Interleaved", "N F + (2 m + N - 2) B", interleaved(count), makespan(*other)),
        Row(f"{_STASH}, Grouped", "2 N - 1", 2 * IPUS - 1, _kept(*run)),
        Row(f"{_STASH}, Interleaved", "N", IPUS, _kept(*other)),
    ]


def _memory_rows() -> list[Row]:
    return [
        Row("makespan, GPipe", _WHOLE, whole_ramps(8), makespan("gpipe", 8)),
        Row("makespan, 1F1B", _WHOLE, whole_ramps(8), makespan("1f1b", 8)),
        Row(f"{_STASH}, GPipe", "m", 8, _kept("gpipe", 8)),
        Row(f"{_STASH}, 1F1B", "N", IPUS, _kept("1f1b", 8)),
    ]


def _stages_rows() -> list[Row]:
    run, other = ("1f1b", 4), ("interleaved_1f1b", 4, "", TWO)
    hops = IPUS - 1
    return [
        Row("makespan, one stage on each", _WHOLE, whole_ramps(4), makespan(*run)),
        Row("makespan, two", "m (F + B) + (N - 1)(F + B) / v", several_stages(4, 2), makespan(*other)),
        Row("bubble, one stage on each", "(N - 1) / (m + N - 1)", hops / (4 + hops), _bubble(*run)),
        Row("bubble, two", "(N - 1) / (v m + N - 1)", hops / (2 * 4 + hops), _bubble(*other)),
    ]


def _halves_rows() -> list[Row]:
    return [
        Row("makespan, 1F1B", _WHOLE, whole_ramps(6), makespan("1f1b", 6)),
        Row("makespan, H1", "m (F + I + W) + (N - 1) max(F, I, F + I - W)", halves(6), makespan("zero_bubble_h1", 6)),
        Row(f"{_STASH}, 1F1B", "N", IPUS, _kept("1f1b", 6)),
        Row(f"{_STASH}, H1", "N", IPUS, _kept("zero_bubble_h1", 6)),
    ]


def _slow_rows() -> list[Row]:
    form = "m (F' + B') + (N - 1)(F + B) - (N - 1 - s)(F' + B' - F - B)"
    return [
        Row("makespan, all equal", _WHOLE, whole_ramps(8), makespan("1f1b", 8)),
        Row("makespan, IPU 1 slow", form, slow_ipu(8, SLOW), makespan("1f1b", 8, slow=SLOW)),
    ]


def _draw_ramps(options: Picture) -> Any:
    return simulated("1f1b", 8).figure(picture=options)


def _compared(options: Picture, schedules: Sequence[str] | None, sync: str = "", count: int = 8) -> Any:
    """Draw the schedules of the scenario with one stage on each IPU; without schedules, both scenarios."""
    sources = [_SCENARIOS / f"{entry}.yaml" for entry in ((ONE,) if schedules else (ONE, TWO))]
    changes = {**_FREE, _COUNT: count}
    return ipusim.compare(sources, schedules, sync or (), changes=changes).figure(picture=options)


def _draw_slow(options: Picture) -> Any:
    with TemporaryDirectory() as name:
        folders = [Path(name) / "even", Path(name) / _SLOW_RUN]
        simulated("1f1b", 8).save(folders[0])
        simulated("1f1b", 8, slow=SLOW).save(folders[1])
        return ipusim.compare(folders).figure(picture=options)


_ROWS: Final = {
    "ramps": _ramps_rows,
    "lock-step": _lock_step_rows,
    "memory": _memory_rows,
    "stages": _stages_rows,
    "halves": _halves_rows,
    "slow": _slow_rows,
}
_DRAWN: Final = {
    "ramps": _draw_ramps,
    "lock-step": lambda options: _compared(options, ["grouped", "interleaved"], sync="lock_step", count=16),
    "memory": lambda options: _compared(options, ["gpipe", "1f1b"]),
    "stages": lambda options: _compared(options, None, count=4),
    "halves": lambda options: _compared(options, ["1f1b", "zero_bubble_h1"], count=6),
    "slow": _draw_slow,
}


def _command(verb: str, *words: str) -> str:
    return " ".join(["ipusim", verb, *words])


def _drawing(verb: str, title: str, name: str, *words: str) -> str:
    return _command(verb, *words, f'--title "{title}"', "--theme light", f"--out {_OUT}/{name}.svg")


_ONE_YAML, _TWO_YAML = (f"scenarios/{name}.yaml" for name in (ONE, TWO))
_SET: Final = "--set system.name=free"
_SLOW_SET: Final = f'--set "disturbances=[{{ipu: {SLOW}, slower: {FACTOR}}}]"'
_RAMPS, _LOCK_STEP, _MEMORY, _STAGES, _HALVES, _SLOW_ONE = (
    "Ramp-up, main and ramp-down",
    "Grouped and Interleaved in lock-step",
    "GPipe and 1F1B",
    "One or two stages on each IPU",
    "1F1B and zero bubble",
    "One slow IPU",
)
FIGURES: Final = (
    Figure(
        "ramps",
        _RAMPS,
        "1F1B in point-to-point, m = 8.",
        (
            _command("run", _ONE_YAML, _SET, f"--out {_OUT}/even"),
            _drawing("show", _RAMPS, "ramps", f"{_OUT}/even"),
        ),
        "Huang et al., *GPipe*, 2019, for the bubble; the phases are counted from the figure.",
        "The last IPU waits until the first micro-batch has passed through the other stages. At the end the last "
        "gradient travels from the last IPU back to the first, and an IPU is finished once the gradient has left. "
        "Neither ramp grows with the number of micro-batches, so the bubble shrinks.\n\n"
        "Every IPU computes for 2,400,000 of the 3,300,000 cycles; the other 900,000 are "
        "[fill and drain](../scenarios/glossary.md#fill-and-drain), however many micro-batches there are. "
        "IPU 3 waits for these cycles in the two ramps alone. IPU 0 waits for 700,000 of the 900,000 cycles in "
        "main, because its gradients must first pass through the other stages.",
        "How many micro-batches bring the bubble of four IPUs down to 5 %?",
        "57, because 3 / (57 + 3) is 5 %.",
    ),
    Figure(
        "lock-step",
        _LOCK_STEP,
        "Grouped and Graphcore's Interleaved in lock-step, m = 16. This Interleaved has one stage on each IPU; the "
        "interleaved 1F1B of figure 4 is a different schedule.",
        (
            _drawing(
                *("compare", _LOCK_STEP, "lock-step", _ONE_YAML, _SET, f"--set {_COUNT}=16"),
                *("--schedules grouped,interleaved", "--sync lock_step"),
            ),
        ),
        "counted from the time-steps of Graphcore's two schedules. In Interleaved the first N time-steps have forward "
        "passes only and take F each. Then come 2 m + N - 2 time-steps with at least one backward pass, which take B "
        "each. The form needs B >= F.",
        "In lock-step all IPUs meet after each time-step, so the longest pass sets the pace. Interleaved mixes forward "
        "and backward passes in a time-step, and IPUs with a forward pass wait. In the main phase of Grouped every IPU "
        "has one forward and one backward pass in a time-step, and memory is the price: until the gradient of a "
        "micro-batch comes back to IPU 0, 2 (N - 1) time-steps pass. Grouped begins a further micro-batch in each of "
        "them, Interleaved in every second one. Together with the first micro-batch, IPU 0 keeps 2 N - 1 micro-batches "
        "under Grouped, and N under Interleaved.\n\n"
        "The phases differ from figure 1, because lock-step counts time-steps. A time-step belongs to main if every "
        "IPU runs two passes in it under Grouped, or one pass under Interleaved. Grouped has m - 2 N + 1 such "
        "time-steps, nine in the figure.",
        "Suppose that B = F. Which schedule is faster?",
        "Neither: both forms give 2 (m + N - 1) F. Interleaved is the better choice, because Interleaved keeps fewer "
        "micro-batches.",
    ),
    Figure(
        "memory",
        _MEMORY,
        "GPipe and 1F1B in point-to-point, m = 8.",
        (_drawing("compare", _MEMORY, "memory", _ONE_YAML, _SET, "--schedules gpipe,1f1b"),),
        "Huang et al., *GPipe*, 2019; Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters "
        "Using Megatron-LM*, 2021.",
        "Both schedules take the same time. GPipe runs all forward passes first, so an IPU keeps the activations of "
        "every micro-batch. 1F1B starts a backward pass as soon as a gradient arrives, and frees memory early.\n\n"
        "To show this in motion, run both schedules (`ipusim run` with `--set pipeline.schedule=gpipe`, then `1f1b`), "
        "and play the two folders with `ipusim report --play`: boxes beside every IPU fill with the micro-batches that "
        "wait for a backward pass.",
        "A weight update has 64 micro-batches. How many does an IPU keep at most?",
        "GPipe keeps 64, 1F1B still keeps 4.",
    ),
    Figure(
        "stages",
        _STAGES,
        "1F1B and interleaved 1F1B in point-to-point, m = 4. Each IPU has v = 1 or v = 2 stages; F and B are the "
        "passes of all its stages together.",
        (_drawing("compare", _STAGES, "stages", _ONE_YAML, _TWO_YAML, _SET, f"--set {_COUNT}=4"),),
        "Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, 2021.",
        "The model is cut into eight stages instead of four, and each IPU runs two distant stages. A micro-batch "
        "travels round the IPUs twice. Stages are half as long, so each ramp takes half the time.",
        "Each IPU gets four stages. How long is the makespan, and what grows?",
        f"m (F + B) + (N - 1)(F + B) / 4 is {several_stages(4, 4):,} cycles. Copies grow: an activation crosses "
        f"{4 * IPUS - 1} boundaries between IPUs instead of {IPUS - 1}.",
    ),
    Figure(
        "halves",
        _HALVES,
        "1F1B and zero bubble H1 in point-to-point, m = 6.",
        (
            _drawing(
                "compare", _HALVES, "halves", _ONE_YAML, _SET, f"--set {_COUNT}=6", "--schedules 1f1b,zero_bubble_h1"
            ),
        ),
        "Qi et al., *Zero Bubble Pipeline Parallelism*, 2024, for schedule H1; [Bubbles, derived](bubbles.md) for the "
        "maximum.",
        "A backward pass has two halves. The previous stage waits for the gradient of the input; only the update "
        "waits for the gradients of the weights. H1 computes the input's gradient first and fills waits with the "
        "weights' gradients. H1 has no ramp-down: all IPUs end at the same moment.",
        "Suppose that W = 0. What does H1 gain?",
        "Nothing: an IPU waits (N - 1)(F + I) under H1 and under 1F1B. No work is left to fill the waits.",
    ),
    Figure(
        "slow",
        _SLOW_ONE,
        f"1F1B in point-to-point, m = 8: all IPUs equal, then IPU {SLOW} slow. The slow IPU has stage s, and its "
        "passes take F' and B' cycles.",
        (
            _command("run", _ONE_YAML, _SET, f"--out {_OUT}/even"),
            _command(
                "run",
                _ONE_YAML,
                _SET,
                f'--set "disturbances=[{{ipu: {SLOW}, slower: {FACTOR}}}]"',
                f"--out {_OUT}/{_SLOW_RUN}",
            ),
            _drawing("compare", _SLOW_ONE, "slow", f"{_OUT}/even", f"{_OUT}/{_SLOW_RUN}"),
        ),
        "[stragglers](stragglers.md). The form needs F' <= F + B and B' <= F + B.",
        f"IPU {SLOW} takes {FACTOR} times as long for everything. The other three wait in every micro-batch. With "
        f"m = 8 one slow IPU costs {slow_ipu(8, SLOW) - whole_ramps(8):,} cycles, and four slow IPUs would cost "
        f"{_cost_of_all_slow(8):,}. With m = 32 it is {slow_ipu(32, SLOW) - whole_ramps(32):,} and "
        f"{_cost_of_all_slow(32):,}. No schedule hides the slow IPU; a smaller stage does.\n\n"
        f"The makespan grows by {slow_ipu(8, SLOW) / whole_ramps(8) - 1:.1%}. `ipusim compare` prints a slightly "
        "smaller growth, because it includes the weight update.",
        "At which position does a slow IPU cost least under 1F1B in point-to-point, and at which most? And under "
        "GPipe?",
        f"Least as IPU 0, with a makespan of {slow_ipu(8, 0):,} cycles; most as IPU 3, with {slow_ipu(8, 3):,}. Under "
        f"GPipe every position takes {slow_ipu(8, 3):,}.",
    ),
)

_HEAD: Final = f"""\
# A lecture on pipelines in six figures

Take the figures, formulas and questions as they are. Each figure is an SVG in color for the screen and in greys for
paper. The command below a figure draws it; `--theme print` draws the greys, and a name that ends in `.pdf` gives a PDF.

A pipeline has N = {IPUS} IPUs and m micro-batches. A forward pass takes F = {FORWARD:,} cycles, and a backward
pass takes B = {BACKWARD:,}, in two halves of {FIRST:,}: I for the gradient of the input, W for the gradients of
the weights. Copies take no time on the machine `free`. The makespan is the time of an execution without the weight
update at its end, which takes 60,000 cycles. The bubble is the share of the makespan in which IPUs wait.
[Bubbles, derived](bubbles.md) has the closed forms of further schedules.

In the tables, *value* is the closed form with these numbers, and *simulated* is the result of a run. `ipusim run
--verbose` prints phases, makespan and bubble. `ipusim compare` of schedules prints the most micro-batches that a stage
keeps. For bytes, a scenario must state them, as `like.yaml` does in [the comparison of GPipe and
1F1B](../scenarios/how_to.md#compare-1f1b-interleaved-1f1b-and-gpipe-like-with-like).

`ipusim report --play` with the folders of one run or two makes an animation for the browser. `python -m reports` makes
this page and the figures.
"""


def teaching_page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(map(_section, enumerate(FIGURES, 1)))


def _section(numbered: tuple[int, Figure]) -> str:
    number, figure = numbered
    rows = [(row.quantity, row.form, _number(row.value), _number(row.simulated)) for row in figure.rows()]
    table = table_markdown(Table("", ("quantity", "closed form", "value", "simulated"), tuple(rows)))
    commands = "".join(f"$ {_broken(command)}\n" for command in figure.commands)
    greys = f"teaching-{figure.name}{THEMES['print']}.svg"
    return (
        f"\n## {number}. {figure.title}\n\n![{figure.title}](teaching-{figure.name}.svg)\n\n"
        f"Here: {figure.plan} Print version: [{greys}]({greys}).\n\n```console\n{commands}```\n\n{table}\n"
        f"Source: {figure.source}\n\n**In class.** {figure.say}\n\n"
        f"**Question.** {figure.question}\n\n**Answer.** {figure.answer}\n"
    )


def _broken(command: str) -> str:
    """Return a command over several lines if it is long."""
    return command if len(command) <= 100 else command.replace(" --", " \\\n    --")


def _number(value: float) -> str:
    return f"{value:.1%}" if 0 < value < 1 else f"{value:,.0f}"


def teaching_pictures() -> dict[str, bytes]:
    """Return all figures as SVG in every theme, by file name."""
    return {
        f"teaching-{figure.name}{ending}.svg": figure.picture(theme)
        for figure in FIGURES
        for theme, ending in THEMES.items()
    }

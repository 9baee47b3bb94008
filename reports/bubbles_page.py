"""Page on pipeline bubbles: closed forms of idle time and stashes for all schedules, compared with simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.patches import PathPatch

from ipusim.app.compare.compare import compare
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.figures import Chart, to_png
from ipusim.app.render.panel import BOX_HEIGHT, rectangles
from ipusim.app.render.tables import Table
from ipusim.app.study.result import table_markdown
from ipusim.pipeline.plan import Sync
from ipusim.pricing.costs import Costs, Send
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request
from ipusim.runs.time_alone import timeline_of
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import PASSES, SpanKind, of_kinds
from ipusim.timeline.timeline import Timeline


class Case(NamedTuple):
    """Pipeline of equal IPUs: IPUs, micro-batches, and cycles of each pass.

    Passes are forward, input gradient and weight gradient.
    """

    ipus: int
    count: int
    forward: int
    first: int
    second: int

    @property
    def busy(self) -> int:
        """Working cycles of an IPU per micro-batch."""
        return self.forward + self.first + self.second

    @property
    def equal(self) -> bool:
        """Whether all three passes have equal length."""
        return self.forward == self.first == self.second


@dataclass(frozen=True)
class Form:
    """Closed forms of a schedule.

    Attributes:
        schedule: name of the schedule.
        per_ipu: number of stages per IPU.
        wait_text, wait: idle cycles of an IPU in an execution.
        kept_text, kept: maximum number of micro-batches stashed on an IPU, as shares of all its stages.
        only_equal: whether ``wait`` requires three passes of equal length.
        only_even: whether ``wait``, or the schedule itself, requires an even number of IPUs.
        short_weights: whether ``wait`` requires a W no longer than F and I, with F and I at most W apart.
        said: publication and intended use.
    """

    schedule: str
    per_ipu: int
    wait_text: str
    wait: Callable[[Case], Fraction | int]
    kept_text: str
    kept: Callable[[Case], Fraction | int]
    said: str
    only_equal: bool = False
    only_even: bool = False
    short_weights: bool = False

    def holds(self, case: Case) -> bool:
        """Return whether ``wait`` holds for the pass lengths of a case."""
        weights = abs(case.forward - case.first) <= case.second <= min(case.forward, case.first)
        return (case.equal or not self.only_equal) and (weights or not self.short_weights)


def _hops(case: Case) -> int:
    """Return the number of copies from the first to the last IPU."""
    return case.ipus - 1


def _split_delay(case: Case) -> int:
    """Return the delay from IPU to IPU if weight gradients fill waits."""
    return case.forward + case.first - case.second


def _v_half_passes(case: Case) -> int:
    """Return the idle time of V-Half, in forward passes of a stage."""
    return 1 if case.ipus == 2 else 3 * case.ipus - (4 if case.ipus % 2 else 7)


def _v_min_passes(case: Case) -> int:
    """Return the idle time of V-Min, in forward passes of a stage."""
    return 4 * case.ipus - (5 if case.ipus % 3 else 7)


def _v_1f1b_passes(case: Case) -> int:
    """Return the idle time of 1F1B-V, in forward passes of a stage; 2, 3 and 9 IPUs deviate from the closed form."""
    return {2: 4, 3: 8, 9: 36}.get(case.ipus, 5 * case.ipus - (8, 5, 7)[case.ipus % 3])


def _hanayo_wait(case: Case) -> Fraction:
    """Return the idle cycles of Hanayo."""
    backward, units = case.first + case.second, Fraction(case.count, case.ipus)
    return Fraction(_hops(case), 2) * (case.busy + (2 * units - 1) * abs(case.forward - backward))


#: Idle time of ramps with whole backward passes, as text.
_WHOLE: Final = "(N - 1)(F + I + W)"
#: Text and function of this idle time.
_RAMPS: Final = (_WHOLE, lambda case: _hops(case) * case.busy)
#: Text and function of half this idle time.
_HALF_RAMPS: Final = (f"{_WHOLE} / 2", lambda case: Fraction(_hops(case) * case.busy, 2))

#: Closed forms in table order.
FORMS: Final[tuple[Form, ...]] = (
    Form(
        "grouped",
        1,
        *_RAMPS,
        "2 N - 1",
        lambda case: 2 * case.ipus - 1,
        "Graphcore: as fast in lock-step as point-to-point, with 2 N - 1 kept instead of m; m a multiple of 2 N",
    ),
    Form(
        "gpipe", 1, *_RAMPS, "m", lambda case: case.count, "Huang et al. 2019: the simplest, where memory is no matter"
    ),
    Form(
        "1f1b",
        1,
        *_RAMPS,
        "N",
        lambda case: min(case.ipus, case.count),
        "Narayanan et al. 2021: as fast, with N kept instead of m; waits for copies",
    ),
    Form(
        "eager_1f1b",
        1,
        *_RAMPS,
        "2 N - 1",
        lambda case: min(2 * case.ipus - 1, case.count),
        "the slack of Adaptra: where copies or a link take long",
    ),
    Form(
        "seq_1f1b",
        1,
        *_HALF_RAMPS,
        "(N + 1) / 2",
        lambda case: min(Fraction(case.ipus + 1, 2), Fraction(case.count)),
        "Sun et al. 2024: ramps and memory of segments of a sequence, here of two; where they take equally long",
    ),
    Form(
        "interleaved_1f1b",
        2,
        *_HALF_RAMPS,
        "(2 N + g - 1) / 2, groups of g = m / floor(m / N)",
        lambda case: Fraction(2 * case.ipus + case.count // (case.count // case.ipus) - 1, 2),
        "Narayanan et al. 2021, Megatron-LM: ramps of one stage of several; m a multiple of floor(m / N)",
    ),
    Form(
        "gis",
        2,
        "(N - 1)(F + I) / 2",
        lambda case: Fraction(_hops(case) * (case.forward + case.first), 2),
        "N",
        lambda case: case.ipus,
        "Wan et al. 2025, PipeOffload: two thirds of interleaved_1f1b's memory and wait; m a multiple of N",
    ),
    Form(
        "gis_h",
        2,
        "((N - 1)(F + I) + N (F + I - W) / 2) / 2, where abs(F - I) <= W <= F and I, N even",
        lambda case: Fraction(_hops(case) * (case.forward + case.first) * 2 + case.ipus * _split_delay(case), 4),
        "3 N / 4",
        lambda case: Fraction(3 * case.ipus, 4),
        "Wan et al. 2025: half of interleaved_1f1b's memory; m a multiple of N / 2",
        only_even=True,
        short_weights=True,
    ),
    Form(
        "1f1b_v",
        2,
        "(5 N - c) F / 2; c = 8, 5, 7 for N = 3 k, 3 k + 1, 3 k + 2; 4, 8, 36 F / 2 for N = 2, 3, 9",
        lambda case: Fraction(_v_1f1b_passes(case) * case.forward, 2),
        "floor(2 N / 3) + 1",
        lambda case: 2 * case.ipus // 3 + 1,
        "Qi et al. 2024: two thirds of 1F1B's memory with whole backward passes",
        only_equal=True,
    ),
    Form(
        "hanayo",
        2,
        "(N - 1)(F + I + W + (2 m / N - 1) abs(I + W - F)) / 2",
        _hanayo_wait,
        "N",
        lambda case: case.ipus,
        "after Liu et al. 2023: ramps of one stage of several without a way round; where forward is as long as "
        "backward, or m is N",
    ),
    Form(
        "breadth_first",
        2,
        *_HALF_RAMPS,
        "m",
        lambda case: case.count,
        "Lamy-Poirier 2023: the same ramps, gradients of a stage complete early; keeps everything",
    ),
    Form(
        "zero_bubble_h1",
        1,
        "(N - 1) max(F, I, F + I - W)",
        lambda case: _hops(case) * max(case.forward, case.first, case.forward + case.first - case.second),
        "N",
        lambda case: case.ipus,
        "Qi et al. 2024: a third of 1F1B's wait in its memory",
    ),
    Form(
        "zero_bubble_h2",
        1,
        "(N - 1) max(F, I - F, F + I - 2 W)",
        lambda case: (
            _hops(case) * max(case.forward, case.first - case.forward, case.forward + case.first - 2 * case.second)
        ),
        "2 N - 1",
        lambda case: 2 * case.ipus - 1,
        "Qi et al. 2024: no wait but for the way to an IPU's first pass, with memory for it",
    ),
    Form(
        "zbv",
        2,
        "(N - 1) F / 2",
        lambda case: Fraction(_hops(case) * case.forward, 2),
        "N",
        lambda case: case.ipus,
        "Qi et al. 2024: hardly a wait in 1F1B's memory, where all passes take about as long",
        only_equal=True,
    ),
    Form(
        "dualpipe_v",
        2,
        "(N - 1) F",
        lambda case: _hops(case) * case.forward,
        "N + 1 / 2",
        lambda case: case.ipus + Fraction(1, 2),
        "DeepSeek 2025: twice zbv's wait, forward and backward in one slot, where copies would be waited for",
        only_equal=True,
    ),
    Form(
        "dualpipe",
        1,
        "(N - 2) F",
        lambda case: (case.ipus - 2) * case.forward,
        "N + 1",
        lambda case: case.ipus + 1,
        "DeepSeek 2024: dualpipe_v with stages twice as long, each on two IPUs: weights twice; N even",
        only_equal=True,
        only_even=True,
    ),
    Form(
        "chimera",
        1,
        "(N - 2)(m / N + 1) F",
        lambda case: (case.ipus - 2) * (Fraction(case.count, case.ipus) + 1) * case.forward,
        "N",
        lambda case: case.ipus,
        "Li and Hoefler 2021: half of 1F1B's wait where m is N, more with each N further ones; weights twice; N even",
        only_equal=True,
        only_even=True,
    ),
    Form(
        "v_half",
        2,
        "(3 N - 7) F / 2 for even N, (3 N - 4) F / 2 for odd N, F / 2 for N = 2",
        lambda case: Fraction(_v_half_passes(case) * case.forward, 2),
        "floor((N + 2) / 2)",
        lambda case: (case.ipus + 2) // 2,
        "Qi et al. 2024: half of 1F1B's memory, about half of its wait",
        only_equal=True,
    ),
    Form(
        "v_min",
        2,
        "(4 N - 5) F / 2, and (4 N - 7) F / 2 for N a multiple of 3",
        lambda case: Fraction(_v_min_passes(case) * case.forward, 2),
        "floor((N + 4) / 3)",
        lambda case: (case.ipus + 4) // 3,
        "Qi et al. 2024: a third of 1F1B's memory; waits more with every micro-batch where passes differ",
        only_equal=True,
    ),
)
#: Simulated pipelines of the tables.
CASES: Final = (Case(4, 8, 200, 200, 200), Case(8, 32, 200, 200, 200), Case(8, 32, 200, 300, 100))
#: Cycles of a copy in the table on copies.
_COPY: Final = 7
#: Cycles of a forward pass in this table.
_FORWARD: Final = 100
#: Cycles of a backward pass in this table.
_BACKWARD: Final = 200
#: Opacity of the shade over an IPU's second-stage passes.
_SHADE: Final = 0.3


_ASSUMED: Final = """\
Look up here how long an IPU waits under each schedule, and how many micro-batches it keeps: in closed form, and as
simulated. `python -m reports` computes the forms from their sources, and simulates the cases in the column titles.

N is the number of IPUs, m the number of micro-batches. For each micro-batch an IPU computes F cycles forward, I cycles
for the input gradient and W cycles for the weight gradients. Schedules with two stages per IPU, or two segments per
micro-batch, divide this work into halves. Schedules with two copies of each stage send half of the micro-batches
through each copy. Copies of tensors take no time. The wait is the length of an execution minus m (F + I + W), the work
of an IPU. `ipusim run` prints the bubble, wait / (wait + m (F + I + W)). Among the parts of the time, the wait is the
sum of fill and drain and gaps in main. All forms hold for m of at least 2 N; the wait under GPipe and 1F1B has its
form for any m.
"""
_IN_WORDS: Final = """\
In words: the ramps are N - 1 delays of one IPU after the other. With whole backward passes a delay is F + I + W. Split
backward passes send the gradient on after I, and weight gradients fill waits: then a delay is F + I - W, or F + I - 2 W
with enough micro-batches in flight. Stages of half the length delay half as long. Under ZB-V the first IPU has the last
stage too, so gradients start on the IPU where activations start; only the way to an IPU's first pass remains.
"""
_BOUND: Final = """\
The published forms of zero bubble, (N - 1)(F + I - W) and (N - 1)(F + I - 2 W), count from the first pass of an IPU to
its last pass, and need a short W. For a longer W the way to the first pass remains, or the way of the gradient back:
"""
_GROWS: Final = """\
V-Half and V-Min repeat a bubble in every micro-batch if passes have unequal lengths. With F, I and W of half an IPU's
work, this bubble is max(0, 2 I - W - 2 F, 2 F - W - 2 I) under V-Half, and max(0, 6 max(F, I) - 2 (F + I + W)) under
V-Min.
"""
_OF_COPIES: Final = """\
Let c be the cycles of a copy. Under 1F1B an activation travels to the neighbour and its gradient returns, while the IPU
works on one other micro-batch. So each micro-batch waits 2 c (N - 1) / N cycles. With one more micro-batch in flight
(`eager_1f1b`) no IPU waits if c is at most half of F + I + W.
"""
_IN_LOCK_STEP: Final = """\
All IPUs meet after each time-step, so a time-step lasts as long as its busiest IPU works. If some IPUs run a forward
pass and others a backward pass, the former wait for the latter, at every count. Under Grouped and eager 1F1B each IPU
runs one forward and one backward pass per time-step of the main phase, and the run takes as long as GPipe. In the table
interleaved 1F1B waits least on eight IPUs, and DualPipe on four.
"""


def request_of(case: Case, schedule: str, per_ipu: int, copies: int = 0) -> Request:
    """Return a request with ``per_ipu`` equal stages on each IPU.

    The stages of an IPU split its passes equally.

    Copies carry ``copies`` bytes and take no time, as the machine is free.
    """
    parts = [cycles // per_ipu for cycles in (case.forward, case.first, case.second)]
    stages: list[dict[str, Any]] = [
        {
            "name": f"s{number}",
            "forward": parts[0],
            "backward": parts[1] + parts[2],
            "backward_input": parts[1],
            "backward_weights": parts[2],
            **({"gradient_bytes": copies} if number else {}),
            **({"output_bytes": copies} if number < case.ipus * per_ipu - 1 else {}),
        }
        for number in range(case.ipus * per_ipu)
    ]
    pipeline: dict[str, Any] = {
        "schedule": schedule,
        "gradient_accumulation_count": case.count,
        "stages": stages,
        "device_mapping": list(find(schedule).mapping(len(stages), per_ipu)),
    }
    system = {"name": "bow_pod64", "auto_select_ipus": 64} if copies else {"name": "free"}
    return Request.from_dict({"training": True, "system": system, "pipeline": pipeline}, name=schedule)


@cache
def simulate(case: Case, schedule: str, per_ipu: int, sync: str = "point_to_point") -> tuple[Fraction, Fraction]:
    """Return an IPU's idle cycles, and the maximum stash as shares of stages."""
    request = request_of(case, schedule, per_ipu).replace({"pipeline.sync": sync})
    timeline = execute(assemble(request)).timeline.expanded()
    kept = max(_most_kept(timeline, ipu) for ipu in range(case.ipus))
    parts = per_ipu * find(schedule).segments
    return Fraction(timeline.makespan_cycles - case.count * case.busy), Fraction(kept, parts)


def _most_kept(timeline: Timeline, ipu: int) -> int:
    """Return the maximum number of an IPU's stashed micro-batches.

    A forward pass begins a stash, and the end of a backward pass ends a stash.
    """
    rows = np.flatnonzero(timeline.ipu == ipu)
    rows = rows[np.argsort(timeline.start[rows], kind="stable")]
    ends = of_kinds(timeline.kind[rows], (SpanKind.BACKWARD, SpanKind.WEIGHT_GRADIENT))
    change = (timeline.kind[rows] == SpanKind.FORWARD).astype(np.int64)
    change[1:] -= ends[:-1]  # a micro-batch stays stashed until its last pass ends
    return int(change.cumsum().max(initial=0))


def with_copies(case: Case, schedule: str, cycles: int) -> int:
    """Return the cycles of an execution with copies that occupy no IPU.

    Each copy takes ``cycles`` cycles.
    """

    def priced(job: Job) -> tuple[Costs, Any]:
        sends = {key: Send(send.bytes, lead_cycles=cycles) for key, send in job.costs.sends.items()}
        return replace(job.costs, sends=sends), job.system

    return timeline_of(assemble(request_of(case, schedule, 1, copies=8)), price=priced).makespan_cycles


def per_micro_batch(case: Case, cycles: int, slack: int) -> Fraction:
    """Return the cycles of each further micro-batch, for copies of ``cycles`` cycles.

    The result is the maximum cycle mean of the timed event graph (Baccelli et al., Synchronization and Linearity,
    1992): the largest mean over loops of k + 1 neighbours, with k x ``slack`` + 1 micro-batches in a loop at a time.
    """
    return max(
        Fraction((further + 1) * case.busy + 2 * further * cycles, further * slack + 1) for further in range(case.ipus)
    )


def bubbles_page() -> str:
    """Return the page as Markdown."""
    copies = f"Forward passes take {_FORWARD} cycles, backward passes {_BACKWARD}, copies {_COPY}; copies occupy no IPU"
    return "\n".join(
        [
            "# Bubbles, derived\n",
            _ASSUMED,
            "![Traces of schedules with one stage per IPU](bubbles-one.png)\n",
            "![Traces of schedules with two stages per IPU](bubbles-two.png)\n",
            "![Traces of schedules with two stages per IPU and split backward passes](bubbles-two-halves.png)\n",
            "## Wait and memory of an IPU\n",
            "A cell shows the cycles of the closed form and, if different, the simulated cycles.\n",
            table_markdown(_waits()),
            _IN_WORDS,
            table_markdown(_kept_table()),
            "## Where a published form is only a bound\n",
            _BOUND,
            table_markdown(_bounds()),
            _GROWS,
            table_markdown(_growth()),
            "## Where copies take time\n",
            f"{copies}.\nThe table shows the cycles of each further micro-batch.\n\n{_OF_COPIES}",
            table_markdown(_copies()),
            "## In lock-step\n",
            _IN_LOCK_STEP,
            table_markdown(_lock_step()),
        ]
    )


def _both(form_value: Fraction | int, result: Fraction) -> str:
    return f"{float(result):,g}" if form_value == result else f"{float(form_value):,g}, simulated {float(result):,g}"


def _case_name(case: Case) -> str:
    return f"N {case.ipus}, m {case.count}, {case.forward} {case.first} {case.second}"


def _waits() -> Table:
    rows = []
    for form in FORMS:
        cells = []
        for case in CASES:
            result = simulate(case, form.schedule, form.per_ipu)[0]
            has_form = form.holds(case)
            cells.append(_both(form.wait(case), result) if has_form else f"no form, simulated {float(result):,g}")
        where = ", where F = I = W" if form.only_equal else ""
        rows.append((form.schedule, f"{form.wait_text}{where}", *cells))
    return Table("", ("schedule", "wait", *map(_case_name, CASES)), tuple(rows))


def _kept_table() -> Table:
    rows = tuple(
        (
            form.schedule,
            form.kept_text,
            *(_both(form.kept(case), simulate(case, form.schedule, form.per_ipu)[1]) for case in CASES[:2]),
            form.said,
        )
        for form in FORMS
    )
    return Table("", ("schedule", "most kept on an IPU", *map(_case_name, CASES[:2]), "published, and when"), rows)


def _bounds() -> Table:
    rows = []
    for times in ((200, 300, 100), (400, 300, 500), (100, 200, 400), (200, 500, 900)):
        case = Case(8, 32, *times)
        for schedule, halves in (("zero_bubble_h1", 1), ("zero_bubble_h2", 2)):
            form = next(form for form in FORMS if form.schedule == schedule)
            published = _hops(case) * (case.forward + case.first - halves * case.second)
            rows.append(
                (
                    form.schedule,
                    " ".join(map(str, times)),
                    f"{published:,}",
                    _both(form.wait(case), simulate(case, form.schedule, 1)[0]),
                )
            )
    return Table("", ("schedule", "F I W", "published", "wait of the makespan"), tuple(rows))


def _growth() -> Table:
    counts, rows = (8, 16, 32), []
    for times in ((6, 8, 4), (6, 10, 4), (10, 6, 4)):
        for schedule in ("zbv", "v_half", "v_min"):
            waits = (simulate(Case(4, count, *times), schedule, 2)[0] for count in counts)
            rows.append((schedule, " ".join(map(str, times)), *(f"{int(wait):,}" for wait in waits)))
    return Table("", ("schedule, N 4", "F I W", *(f"wait at m {count}" for count in counts)), tuple(rows))


def _copies() -> Table:
    rows = []
    for ipus in (2, 4, 8, 16):
        cells = []
        for schedule, slack in (("1f1b", 1), ("eager_1f1b", 2)):
            case = Case(ipus, 32 * ipus, _FORWARD, _BACKWARD // 2, _BACKWARD // 2)
            doubled = case._replace(count=2 * case.count)
            times = [with_copies(of, schedule, _COPY) for of in (case, doubled)]
            result = Fraction(times[1] - times[0], case.count)
            cells.append(_both(per_micro_batch(case, _COPY, slack), result))
        rows.append((str(ipus), *cells))
    return Table("", ("N", "1f1b", "eager_1f1b"), tuple(rows))


def _lock_step() -> Table:
    rows = []
    grouped, *others = ((form.schedule, form.per_ipu) for form in FORMS)
    for schedule, per_ipu in (grouped, ("interleaved", 1), ("popart", 1), *others):
        cells = []
        for case in CASES[:2]:
            for sync in ("lock_step", "point_to_point"):
                wait = simulate(case, schedule, per_ipu, sync)[0]
                cells.append(f"{float(wait / (wait + case.count * case.busy)):.1%}")
        rows.append((schedule, *cells))
    header = (f"{_case_name(case)}: {mode}" for case in CASES[:2] for mode in ("lock-step", "point-to-point"))
    return Table("", ("bubble", *header), tuple(rows))


def bubbles_pictures() -> dict[str, bytes]:
    """Draw the traces of schedules with one stage per IPU, and with two."""
    case = Case(4, 8, 20_000, 20_000, 20_000)
    one = "Four IPUs with a stage each, eight micro-batches, copies that take no time"
    two = "The same work in two stages on each IPU"
    single, double = (runs_of(case, per_ipu, title) for per_ipu, title in ((1, one), (2, two)))
    has_halves = [(timeline.kind == SpanKind.INPUT_GRADIENT).any() for timeline in (run.timeline for run in double)]
    whole_runs = [run for run, in_halves in zip(double, has_halves, strict=True) if not in_halves]
    split_runs = [run for run, in_halves in zip(double, has_halves, strict=True) if in_halves]
    return {
        "bubbles-one.png": to_png(comparison(single, title=one)),
        "bubbles-two.png": to_png(in_two_shades(whole_runs, two)),
        "bubbles-two-halves.png": to_png(in_two_shades(split_runs, f"{two}, backward passes in two halves")),
    }


def runs_of(case: Case, per_ipu: int, title: str) -> list[TracedRun]:
    """Return the runs of all schedules with ``per_ipu`` stages per IPU, named ``title``."""
    forms = [form for form in FORMS if form.per_ipu == per_ipu and find(form.schedule).syncs[0] is Sync.POINT_TO_POINT]
    request = request_of(case, forms[0].schedule, per_ipu).replace(
        {"pipeline.device_mapping": None, "pipeline.virtual_stages": per_ipu}
    )
    request = Request.from_dict(request.to_dict(), name=title)
    rows = compare(request, [form.schedule for form in forms])
    return [TracedRun(row.timeline, row.name) for row in rows if row.timeline is not None]


def in_two_shades(runs: Sequence[TracedRun], title: str) -> Chart:
    """Draw the traces of runs, with an IPU's second-stage passes in a different shade.

    Colours with black numbers become lighter, colours with white numbers darker.
    """
    chart = comparison(runs, title=f"{title}\nin another shade: passes of the second stage of an IPU")
    panels = [axes for axes in chart.axes if axes.get_ylim()[1] == 0]
    for axes, run in zip(panels, runs, strict=True):
        timeline = run.timeline
        second = [stages[1] for stages in timeline.info.stages_of_ipu.values()]
        passes = timeline.rows(*PASSES)
        passes = passes[np.isin(timeline.stage[passes], second)]
        for kind in np.unique(timeline.kind[passes]).tolist():
            rows = passes[timeline.kind[passes] == kind]
            middle = timeline.ipu[rows] + 0.5
            boxes = rectangles(
                timeline.start[rows], timeline.end[rows], middle + BOX_HEIGHT / 2, middle - BOX_HEIGHT / 2
            )
            look = SpanKind(kind).row.look
            shade = "black" if look is not None and look.number == "#ffffff" else "white"
            axes.add_artist(PathPatch(boxes, facecolor=shade, alpha=_SHADE, linewidth=0, zorder=2.15))
    return chart

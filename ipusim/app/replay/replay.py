"""Compare a measured step with its simulation, by parts of the difference."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ipusim.api import Job, Request, Run, SpanKind, analysis, assemble, execute, hardware, runs
from ipusim.app.explain.explanation import Explanation, explain
from ipusim.app.profiles.stages import Stages
from ipusim.app.profiles.written import figures_table, measured_data
from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.figures import Chart
from ipusim.app.render.tables import Table
from ipusim.app.replay.measured_step import KINDS, Key, Step, steps_of, timeline_of
from ipusim.app.run_folder.report import RESULT_FILES, picture_window, run_files
from ipusim.app.scenario.write import SCENARIO_FILE
from ipusim.app.study.result import Result
from ipusim.base.errors import FileError, printable
from ipusim.base.units import enumerated, format_seconds

#: File of the measured Order, in torch's format.
ORDER: Final = "order.csv"
#: Files of the folders of both runs.
RUN_FILES: Final = (*RESULT_FILES, ORDER)
#: Keys of a scenario's stages by kind of pass.
_STAGE_KEYS: Final = {kind: word for word, kind in KINDS.items()}
#: Valid name of a scenario's stage.
_STAGE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: Letter of each kind of pass in torch's format.
_LETTERS: Final = dict(zip(KINDS.values(), "FBIW", strict=True))
#: Parts of the difference in order, with their meanings.
PARTS: Final = {
    "copies": "transfers between ranks, with the median time of their route",
    "waits": "delay of a pass after its inputs have arrived",
    "jitter": "passes longer or shorter than the median of their stage in this step",
    "stragglers": "medians of a stage in this step above or below its medians in all steps",
    "not explained": "the measured step less the simulation with all parts above",
}
BUBBLE: Final = (
    "Bubble: time without passes, as a share of the ranks' time from the first pass of the step to the "
    "last; without weight updates."
)


@dataclass(frozen=True, eq=False)
class Replay(Result):
    """Measured step with its simulation.

    Attributes:
        stages: the measurements.
        measured_run: the step as measured.
        simulated_run: simulation of the same Order with medians over the steps and copies without time.
        parts: cycles of each part of the difference between the two.
        step, steps: number of the step, and number of complete measured steps.
        order: passes of each rank in order, in torch's format.
        shifts: cycles added to each rank's clock, to make tensors appear before their use.
    """

    stages: Stages
    measured_run: Run
    simulated_run: Run
    parts: Mapping[str, int]
    step: int
    steps: int
    order: str
    shifts: Mapping[int, int]

    names = ("replay.json", "replay.png", "idle_causes.png", "critical_path.png")

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict and the tables."""
        yield from self.words()
        yield from self.tables()

    def rows(self) -> list[dict[str, Any]]:
        """Return the cycles of every part of the difference."""
        return [{"part": part, "cycles": self.parts[part], "meaning": PARTS[part]} for part in PARTS]

    @cached_property
    def explanation(self) -> Explanation:
        """Idle time by cause and critical path of the measured step."""
        reason = "a measured step is no simulation: explain the simulation of its plan"
        return explain(self.measured_run.timeline, reason, waterfall=self.measured_run.summary.waterfall)

    def _of_both_runs(self, figure: Callable[[Run], float]) -> tuple[float, float]:
        """Return a figure of the measured run, and of the simulated run."""
        return figure(self.measured_run), figure(self.simulated_run)

    @property
    def _seconds(self) -> tuple[float, float]:
        return self._of_both_runs(lambda run: run.timeline.makespan_cycles / run.timeline.info.clock_hz)

    def words(self) -> Iterator[str]:
        """Yield the two times, the largest part of the difference, and the bubble's definition."""
        measured_s, simulated_s = self._seconds
        largest = max(PARTS, key=lambda part: abs(self.parts[part]))
        yield (
            f"Step {self.step + 1} of {self.steps} measured, the step with the median time, took "
            f"{format_seconds(measured_s)}; the simulation of its plan with the medians of all steps takes "
            f"{format_seconds(simulated_s)}, {(simulated_s - measured_s) / measured_s if measured_s else 0:+.1%}."
        )
        if any(self.parts.values()):
            yield f"Most of the difference is {largest}: {PARTS[largest]}."
        if self.steps == 1:
            yield "With one step no straggler is known: the stages have the medians of all steps."
        hz = self.measured_run.timeline.info.clock_hz
        for ipu, cycles in self.shifts.items():
            if cycles:
                yield (
                    f"Tensors of IPU {ipu} usually arrive before the end of their pass: the IPU's clock is shifted by "
                    f"{_signed_text(cycles / hz)}. Sends inside spans of passes would be another reason."
                )
        yield BUBBLE

    def tables(self) -> Iterator[Table]:
        """Yield tables of the runs, difference, variation by stage, idle causes and critical path."""
        times, bubbles = self._seconds, self._of_both_runs(lambda run: run.summary.bubble.idle_fraction)
        hz, step_cycles = self.measured_run.timeline.info.clock_hz, self.measured_run.timeline.makespan_cycles
        rows = (
            ("time of the step", *map(format_seconds, times), _signed_text(times[0] - times[1])),
            ("bubble", *(f"{bubble:.1%}" for bubble in bubbles), f"{bubbles[0] - bubbles[1]:+.1%}"),
        )
        yield Table("The step", ("what", "measured", "simulated", "difference"), rows)
        parts = tuple(
            (
                part,
                _signed_text(self.parts[part] / hz),
                f"{analysis.ratio(self.parts[part], step_cycles):+.2%}",
                meaning,
            )
            for part, meaning in PARTS.items()
        )
        yield Table("The difference by part", ("part", "time", "of the step", "meaning"), parts)
        yield figures_table(self.stages)
        yield from self.explanation.tables()

    def data(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "step": self.step,
            "steps": self.steps,
            "clock_hz": self.measured_run.timeline.info.clock_hz,
            **{
                name: {"cycles": run.timeline.makespan_cycles, "bubble": run.summary.bubble.idle_fraction}
                for name, run in (("measured", self.measured_run), ("simulated", self.simulated_run))
            },
            "difference_cycles": {part.replace(" ", "_"): cycles for part, cycles in self.parts.items()},
            "stages": measured_data(self.stages),
            "explanation": self.explanation.data(),
        }

    def run_files(self, name: str, folder: Path) -> dict[str, bytes]:
        """Return the files of the run ``name``, ``measured`` or ``simulated``, in a folder.

        A measured run has no scenario, since no simulation reproduces it.
        """
        run = self.measured_run if name == "measured" else self.simulated_run
        request = replace(run.job.request, folder=folder)
        files = run_files(replace(run, job=replace(run.job, request=request)), picture_window(run.timeline), folder)
        if run is self.measured_run:
            return {name: content for name, content in files.items() if name != SCENARIO_FILE}
        return files | {ORDER: self.order.encode()}

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the steps below each other, and the measured step's explanation charts."""
        return {"replay": self._draw, **self.explanation.charts()}

    def _draw(self) -> Chart:
        first = self.measured_run.timeline.info.title
        title = f"{first}\nbelow, the simulation of its plan with the medians of all steps"
        return comparison(
            [TracedRun(self.measured_run.timeline, "measured"), TracedRun(self.simulated_run.timeline, "simulated")],
            title=title,
        )


def order_text(step: Step) -> str:
    """Return the passes of every rank in order, in torch's format."""
    rows = (
        ",".join(f"{key.stage}{_LETTERS[key.kind]}{key.micro_batch}" for key in keys) for keys in step.passes.values()
    )
    return "".join(f"{row}\n" for row in rows)


def replay(stages: Stages, folder: Path, files: Sequence[Path]) -> Replay:
    """Return the median measured step with its simulation and the parts of the difference.

    Parts accumulate: each is the time added to the simulation by one more effect.

    Args:
        stages: measurements with begins.
        folder: folder of the file with the measured Order, written here.
        files: the measured files.

    Raises FileError for measurements that are no steps of one pipeline, and RequestError or PlanError for an invalid
    Order.
    """
    try:
        steps, shifts = steps_of(stages, int(hardware.GC200.clock_hz))
    except FileError as error:
        raise FileError(f"{enumerated(files, 1)}: {error}") from None
    number = sorted(range(len(steps)), key=lambda number: (steps[number].cycles, number))[(len(steps) - 1) // 2]
    step, order, copies = steps[number], order_text(steps[number]), _copies(steps)
    (folder / ORDER).write_text(order)
    several = f" and {len(files) - 1} more" if len(files) > 1 else ""
    description = f"A step as {stages.tool} measured it in {printable(files[0].name)}{several}"
    options = _options(stages, steps)
    request = Request.from_dict(
        options, name="simulated", description=f"{description}, simulated with medians.", folder=folder
    )
    run = execute(assemble(request).whole)
    jobs = _jobs(run.job, steps, step, copies)
    times = [run.timeline.makespan_cycles, *(runs.timeline_of(job).makespan_cycles for job in jobs), step.cycles]
    parts = {part: later - earlier for part, (earlier, later) in zip(PARTS, pairwise(times), strict=True)}
    info = replace(run.timeline.info, name="measured", title=description)
    job = replace(jobs[-1], request=replace(request, name="measured", description=f"{description}."))
    measured_run = runs.sum_up(job, timeline_of(step, copies, info), None)
    return Replay(stages, measured_run, run, parts, number, len(steps), order, shifts)


def _options(stages: Stages, steps: Sequence[Step]) -> dict[str, Any]:
    """Return options of a scenario that runs the measured Order with median times, and copies without time."""
    passes, updates = _medians(steps)
    stages_data: list[dict[str, Any]] = [
        {"name": name if _STAGE_NAME.fullmatch(name) else f"stage{place}"} for place, name in enumerate(stages.stages)
    ]
    for (kind, stage), cycles in passes.items():
        stages_data[stage][_STAGE_KEYS[kind]] = cycles
    for ipu, cycles in updates.items():
        stages_data[stages.mapping.index(ipu)]["update"] = cycles  # update of every stage of the IPU
    micro_batches = 1 + max(item.key.micro_batch for item in steps[0].pass_runs())
    pipeline = {"schedule": ORDER, "gradient_accumulation_count": micro_batches, "stages": stages_data}
    training = any(kind != SpanKind.FORWARD for kind, _ in passes)
    return {"system": {"name": "free"}, "training": training, "pipeline": pipeline}


def _jobs(job: Job, steps: Sequence[Step], step: Step, copies: Mapping[tuple[int, int], int]) -> list[Job]:
    """Return a Job with copies, and Jobs that add waits, jitter and stragglers one after another."""
    waits, update_delays = _waits(step, copies)
    (usual, updates), (passes_here, updates_here) = _medians(steps), _medians([step])
    lengths = {item.key: item.end - item.begin for item in step.pass_runs()}
    jittered_cycles = {key: cycles - passes_here[key[:2]] + usual[key[:2]] for key, cycles in lengths.items()}

    def job_with(passes: Mapping[Key, int], updates: Mapping[int, int]) -> Job:
        pass_cycles = {key: max(cycles + waits[key], 0) for key, cycles in passes.items()}
        update_cycles = {ipu: updates.get(ipu, 0) + update_delays.get(ipu, 0) for ipu in job.costs.updates}
        return runs.with_stated_times(job, copies, pass_cycles, update_cycles)

    return [
        runs.with_stated_times(job, copies),
        job_with({key: usual[key[:2]] for key in lengths}, updates),
        job_with(jittered_cycles, updates_here),
        job_with(lengths, updates_here),
    ]


def _medians(steps: Sequence[Step]) -> tuple[dict[tuple[SpanKind, int], int], dict[int, int]]:
    """Return median cycles of passes by kind and stage, and of updates."""
    passes, updates = defaultdict[tuple[SpanKind, int], list[int]](list), defaultdict[int, list[int]](list)
    for step in steps:
        for item in step.pass_runs():
            passes[item.key[:2]].append(item.end - item.begin)
        for ipu, (begin, end) in step.updates.items():
            updates[ipu].append(end - begin)
    return (
        {key: round(statistics.median(cycles)) for key, cycles in sorted(passes.items())},
        {ipu: round(statistics.median(cycles)) for ipu, cycles in updates.items()},
    )


def _copies(steps: Sequence[Step]) -> dict[tuple[int, int], int]:
    """Return the median transfer cycles of a tensor, by producing and consuming stage.

    Only awaited tensors count; other tensors arrive before their passes can begin.
    """
    waits: dict[tuple[int, int], list[int]] = defaultdict(list)
    for item in (item for step in steps for item in step.pass_runs()):
        if item.source is not None:
            waits_of_route = waits[item.source.stage, item.key.stage]
            waits_of_route += [item.begin - item.made_at] if item.made_at >= item.idle_from else []
    return {route: statistics.median_low(cycles) if cycles else 0 for route, cycles in waits.items()}


def _waits(step: Step, copies: Mapping[tuple[int, int], int]) -> tuple[dict[Key, int], dict[int, int]]:
    """Return the cycles by which each pass, and each weight update, begins after IPU and inputs are ready."""
    waits, last = dict[Key, int](), dict[int, int]()
    for item in step.pass_runs():
        arrival = item.made_at + copies[item.source.stage, item.key.stage] if item.source else 0
        waits[item.key], last[item.ipu] = max(item.begin - max(item.idle_from, arrival), 0), item.end
    return waits, {ipu: begin - last[ipu] for ipu, (begin, _) in step.updates.items()}


def _signed_text(seconds: float) -> str:
    return f"{'+' if seconds > 0 else ''}{format_seconds(seconds)}"

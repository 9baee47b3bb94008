"""Make the files of a run folder from a run's results."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ipusim.api import Job, Run, Timeline, analysis, execute
from ipusim.app.render.shortened import in_periods
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.render.window import USUAL_PART, ShownPart, Window, part_window
from ipusim.app.run_folder.export import TABLE_FILES
from ipusim.app.run_folder.memory_file import MEMORY_FILE, memory_file
from ipusim.app.run_folder.report_options import check_picture, phase_word
from ipusim.app.run_folder.side_by_side import Ahead, Maker, give_back_memory, side_by_side
from ipusim.app.run_folder.stored import EXPLANATION, TRACE_FILE
from ipusim.app.run_folder.versions import versions
from ipusim.app.scenario.write import SCENARIO_FILE, scenario_text
from ipusim.app.study.result import json_bytes
from ipusim.base.compression import Gzip
from ipusim.base.csv_table import csv_bytes
from ipusim.base.files import archive_of

#: Files of an explanation.
EXPLANATION_FILES: Final = (EXPLANATION, "idle_causes.png", "critical_path.png")
#: Files that a run may write.
RESULT_FILES: Final = (
    SCENARIO_FILE,
    "summary.json",
    "losses.csv",
    "outputs.npz",
    "weights.npz",
    "timeline.npz",
    MEMORY_FILE,
    TRACE_FILE,
    "trace.png",
    "trace.svg",
    "memory.png",
)
#: Files of other commands, outdated by a new run.
OUTDATED_FILES: Final = ("report.html", "play.html", *EXPLANATION_FILES, *TABLE_FILES)
#: Files of runs with arithmetic only.
_LEARNING_FILES: Final = ("losses.csv", "outputs.npz", "weights.npz")
#: Maximum number of Timeline rows sent to another process, 50 MB; for more, a fork of this process draws.
_MOST_SENT_ROWS: Final = 500_000
#: Maximum number of passes of a training simulated twice for its time files; a pass makes a few rows.
_MOST_PASSES: Final = 100_000
#: Inputs of a run's files that do not depend on arithmetic.
_RunData = tuple[Timeline, Window, analysis.Waterfall | None]
#: Background process that makes these files.
Drawing = Ahead[_RunData]


def names_of(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names of the files of ``job``, and of the files it makes outdated."""
    if job.workload is not None:
        return RESULT_FILES, OUTDATED_FILES
    return tuple(name for name in RESULT_FILES if name not in _LEARNING_FILES), (*OUTDATED_FILES, *_LEARNING_FILES)


def losses_csv(learning: analysis.Learning) -> bytes:
    """Return the losses as CSV: step, execution, micro_batch, replica if several, loss.

    With an accumulated outfeed, columns are the number of summed micro-batches and their loss sum.
    """
    has_replicas = any(entry.replica for entry in learning.losses)
    replica = ("replica",) if has_replicas else ()
    is_sum = any(entry.micro_batches > 1 for entry in learning.losses)
    last_columns = ("micro_batches", *replica, "loss_sum") if is_sum else ("micro_batch", *replica, "loss")
    rows: list[tuple[object, ...]] = [("step", "execution", *last_columns)]
    for entry in learning.losses:
        replica_cells = (entry.replica,) if has_replicas else ()
        number = entry.micro_batches if is_sum else entry.micro_batch
        rows.append((entry.step, entry.execution, number, *replica_cells, repr(entry.loss)))
    return csv_bytes(rows)


def picture_window(timeline: Timeline, part: ShownPart = USUAL_PART) -> Window:
    """Return the window of a run's picture, as :func:`~ipusim.app.render.window.part_window` does.

    Raises OutputError for a window outside the run and a phase that the execution lacks, and OptionError for an unknown
    execution and for both cycles and a phase.
    """
    check_picture(timeline.info.executions, part)
    return part_window(timeline, part)


def trace_file(result: Run, *, full: bool = False) -> bytes:
    """Return the trace file of a run.

    Very long runs leave out repeats except the first and last periods, unless ``full``. Raises OptionError if a full
    trace exceeds the largest file.
    """
    # Traces are usually written in another process; importing the protocol takes longer than writing.
    from ipusim.app.render.perfetto_trace import write_perfetto_trace  # noqa: PLC0415

    timeline, system = in_periods(result.timeline, full=full), result.job.system
    content = TraceContent(
        timeline,
        run_curves(result, timeline),
        lambda source, target: [link.label for link in system.route(source, target)],
        result.summary.waterfall,
    )
    with Gzip() as file:
        write_perfetto_trace(content, file.write)
        return file.close()


def run_curves(result: Run, timeline: Timeline | None = None) -> list[analysis.MemoryCurve]:
    """Return the memory curve of every IPU of every replica; empty if memory is unknown.

    The default ``timeline`` is the whole run; a file's Timeline limits the curves to its rows.
    """
    timeline = result.timeline if timeline is None else timeline.without_copies()
    return [
        curve
        for replica in range(result.timeline.info.replicas if result.describes_memory else 0)
        for curve in analysis.memory_curves(timeline, result.memory.footprint, replica)
    ]


def run_files(
    result: Run,
    view: Window,
    folder: Path,
    comments: Sequence[str] = (),
    *,
    full_trace: bool = False,
    drawing: Drawing | None = None,
) -> dict[str, bytes]:
    """Return the content of every file of ``folder`` by name.

    ``losses.csv`` and ``weights.npz`` exist only with arithmetic, ``outputs.npz`` if the outfeed carries other values
    than losses, ``memory.npz`` and ``memory.png`` if memory is known.

    Args:
        result: the run.
        view: window of the pictures.
        folder: the run folder.
        comments: lines at the head of ``scenario.yaml``, which reproduces the run. This file is missing for programs of
            Python functions, which no scenario can express.
        full_trace: whether the trace keeps every span of a run that repeats.
        drawing: process begun before the run; its files are not made again.
    """

    make_results = partial(_files_of_results, result, folder, comments)
    make_time_files = partial(_files_of_time, result, full_trace=full_trace)
    files = _make_files(result, view, drawing, make_results, make_time_files)
    return {name: files[name] for name in sorted(files, key=RESULT_FILES.index)}


def _files_of_results(result: Run, folder: Path, comments: Sequence[str]) -> dict[str, bytes]:
    """Return the files of :func:`run_files` with the request and its results."""
    learning, files = result.learning, {}
    scenario = scenario_text(result.job.request, folder, (*versions(), *comments))
    if scenario is not None:
        files[SCENARIO_FILE] = scenario.encode()
    files["summary.json"] = json_bytes(result.summary.to_dict())
    if learning is not None:
        if learning.losses:
            files["losses.csv"] = losses_csv(learning)
        if learning.outputs:
            files["outputs.npz"] = archive_of(learning.outputs)
        files["weights.npz"] = archive_of(learning.weights)
    return files


def _files_of_time(result: Run, *, full_trace: bool) -> dict[str, bytes]:
    """Return the files of :func:`run_files` that do not depend on arithmetic, except pictures."""
    file = io.BytesIO()
    result.timeline.save(file)
    files = {"timeline.npz": file.getvalue()}
    if result.describes_memory:
        files[MEMORY_FILE] = memory_file(run_curves(result))
    return files | {TRACE_FILE: trace_file(result, full=full_trace)}


def drawing_ahead(job: Job, window: Callable[[Timeline], Window], *, full_trace: bool = False) -> Drawing:
    """Return a process that makes the files of a run in parallel with the arithmetic of its Job.

    The process imports matplotlib and makes a timing-only run of the Job. If the received run is the same, it returns
    the finished files. Otherwise it draws only the pictures of the received run. Timing-only Jobs and very long runs
    are not simulated twice; their pictures are drawn from the received run too.

    Args:
        job: Job of the run.
        window: function from a Timeline to the window of its pictures.
        full_trace: whether the trace keeps every span of a run that repeats.
    """

    def prepare() -> Callable[[_RunData], dict[str, bytes]]:
        from ipusim.app.run_folder.pictures import pictures_of  # noqa: PLC0415

        draw = partial(pictures_of, fit=job.memory if job.describes_memory else None)
        if not _is_made_ahead(job):
            return lambda run_data: draw(run_data[:2])
        run = execute(replace(job, workload=None, held_out=None), jump=False)
        forecast = _run_data(run, window(run.timeline))
        files = draw(forecast[:2], busy=1) | _files_of_time(run, full_trace=full_trace)
        title = run.timeline.info.title

        def files_of(run_data: _RunData) -> dict[str, bytes]:
            return files if run_data == forecast and run_data[0].info.title == title else draw(run_data[:2])

        return files_of

    return Ahead(prepare)


def _run_data(result: Run, view: Window) -> _RunData:
    return result.timeline, view, result.summary.waterfall


def _is_made_ahead(job: Job) -> bool:
    """Return whether a timing-only run of a Job is made in parallel with its arithmetic."""
    return job.workload is not None and len(job.plan.kind) * job.executions <= _MOST_PASSES


def _make_files(
    result: Run, view: Window, drawing: Drawing | None, make_results: Maker, make_time_files: Maker
) -> dict[str, bytes]:
    """Return the files of a run, made by ``drawing``, forked processes and this process."""
    timeline, files = result.timeline, {}
    remaining_makers = [make_results, make_time_files]
    if drawing is not None and len(timeline) <= _MOST_SENT_ROWS and drawing.send(_run_data(result, view)):
        give_back_memory()
        count = 1 if _is_made_ahead(result.job) else 2  # a process ahead also makes the files of time
        files = {name: content for make in remaining_makers[:count] for name, content in make().items()}
        drawn_files = drawing.results()
        remaining_makers = remaining_makers[count:] if drawn_files is None or "timeline.npz" not in drawn_files else []
        if drawn_files is not None:
            return (
                files | drawn_files | {name: content for make in remaining_makers for name, content in make().items()}
            )
    from ipusim.app.run_folder.pictures import picture_makers  # noqa: PLC0415 - imports matplotlib

    makers = picture_makers(timeline, view, result.memory if result.describes_memory else None)
    return files | side_by_side([*makers, *remaining_makers])


def picture_name(shown: ShownPart) -> str:
    """Return a picture's name by its window, such as ``trace-ramp-up.png``; distinct from a run's files."""
    start, end, phase, execution = shown
    if start is not None or end is not None:
        part = f"cycles-{start or 0}-{'end' if end is None else end}"
    elif phase is not None:
        suffix = f"-execution-{execution}" if execution else ""
        part = f"{phase_word(phase)}{suffix}"
    else:
        part = f"execution-{execution or 0}"
    return f"trace-{part}.png"

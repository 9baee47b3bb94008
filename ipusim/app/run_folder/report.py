"""A result as the files of a run folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ipusim.api import Job, Run, Session, Timeline, analysis
from ipusim.app.render.chrome_trace import write_chrome_trace
from ipusim.app.render.left_out import in_periods
from ipusim.app.render.perfetto_trace import write_perfetto_trace
from ipusim.app.render.trace_content import TraceContent
from ipusim.app.render.window import Window, part_window
from ipusim.app.run_folder.export import EXPORT_FILES
from ipusim.app.run_folder.memory_file import MEMORY_FILE, memory_file
from ipusim.app.run_folder.report_options import TRACE_FILES, check_picture, check_trace_format, phase_word
from ipusim.app.run_folder.side_by_side import Ahead, Maker, give_back_memory, side_by_side
from ipusim.app.run_folder.stored import EXPLANATION
from ipusim.app.run_folder.versions import versions
from ipusim.app.scenario.write import SCENARIO_FILE, scenario_text
from ipusim.base.compression import Gzip
from ipusim.base.files import archive_of

#: Every file of an explanation of a run.
EXPLANATION_FILES: Final = (EXPLANATION, "idle_causes.png", "critical_path.png")
#: Every file that a run may write.
RESULT_FILES: Final = (
    SCENARIO_FILE,
    "summary.json",
    "losses.csv",
    "outputs.npz",
    "weights.npz",
    "timeline.npz",
    MEMORY_FILE,
    *TRACE_FILES.values(),
    "trace.png",
    "trace.svg",
    "memory.png",
)
#: What other commands make of a run, and a new run makes out of date.
OUTDATED_FILES: Final = ("report.html", "play.html", *EXPLANATION_FILES, *EXPORT_FILES)
#: What a run writes only where its job does arithmetic.
_LEARNT: Final = ("losses.csv", "outputs.npz", "weights.npz")
#: Rows of a Timeline that are sent to another process at most, 50 MB; of more, a fork of this one draws its own.
_MOST_SENT: Final = 500_000
#: Passes of a training that is simulated a second time at most, for its pictures: of each come a few rows.
_MOST_PASSES: Final = 100_000
#: What writes each format of a trace file.
_TRACES: Final[dict[str, Callable[[TraceContent, Callable[[bytes], object]], None]]] = {
    "perfetto": write_perfetto_trace,
    "chrome": write_chrome_trace,
}

#: Draws the pictures of a run in a window.
Drawing = Ahead[tuple[Timeline, Window]]


def names_of(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the files that a run of ``job`` may write, and of others that it makes out of date."""
    if job.workload is not None:
        return RESULT_FILES, OUTDATED_FILES
    return tuple(name for name in RESULT_FILES if name not in _LEARNT), (*OUTDATED_FILES, *_LEARNT)


def losses_csv(learning: analysis.Learning) -> bytes:
    """Return the losses as CSV: step, execution, micro_batch, replica where there are several, loss.

    Of an accumulated outfeed: how many micro-batches are summed up, and the sum of their losses.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = any(loss.replica for loss in learning.losses)
    replica = ("replica",) if several else ()
    summed = any(loss.micro_batches > 1 for loss in learning.losses)
    last = ("micro_batches", *replica, "loss_sum") if summed else ("micro_batch", *replica, "loss")
    writer.writerow(("step", "execution", *last))
    for loss in learning.losses:
        of = (loss.replica,) if several else ()
        which = loss.micro_batches if summed else loss.micro_batch
        writer.writerow((loss.step, loss.execution, which, *of, repr(loss.loss)))
    return text.getvalue().encode()


def json_bytes(data: object) -> bytes:
    """Return data as JSON that people can read and tools can compare."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def picture_window(
    timeline: Timeline,
    start: int | None = None,
    end: int | None = None,
    phase: str | None = None,
    execution: int | None = None,
) -> Window:
    """Return what the picture of a run shows, as :func:`~ipusim.app.render.window.part_window` does.

    Raises OutputError for a window outside the run and a phase that the execution has not, and
    OptionError for an execution that the run has not, and for both cycles and a phase.
    """
    check_picture(timeline.info.executions, start, end, phase, execution)
    return part_window(timeline, start, end, phase, execution)


def trace_file(result: Run, trace_format: str = "perfetto", *, full: bool = False) -> tuple[str, bytes]:
    """Return name and content of the trace file of a run.

    Of very many spans it leaves out what repeats itself, but for the first and the last periods, unless it is to be
    ``full``. Raises OptionError for a format that there is not, and for a full one of more spans than a file may have.
    """
    check_trace_format(trace_format)
    timeline, system = in_periods(result.timeline, full=full), result.job.system
    content = TraceContent(
        timeline,
        run_curves(result, timeline),
        lambda source, target: [link.label for link in system.route(source, target)],
        result.summary.waterfall,
    )
    file = Gzip()
    _TRACES[trace_format](content, file.write)
    return TRACE_FILES[trace_format], file.close()


def run_curves(result: Run, timeline: Timeline | None = None) -> list[analysis.MemoryCurve]:
    """Return what each IPU of all replicas holds over time; nothing where the stages do not say it.

    It is of the whole run, or of the rows of a ``timeline`` that has as much of it as a file.
    """
    timeline = result.timeline if timeline is None else timeline.rows_alone()
    return [
        curve
        for replica in range(result.timeline.info.replicas if result.describes_memory else 0)
        for curve in analysis.memory_curves(timeline, result.memory.footprint, replica)
    ]


def run_files(
    result: Run,
    shown: Window,
    folder: Path,
    trace_format: str = "perfetto",
    comments: Sequence[str] = (),
    *,
    full_trace: bool = False,
    drawing: Drawing | None = None,
) -> dict[str, bytes]:
    """Return the content of every file of ``folder``, by name; the picture shows the cycles of ``shown``.

    ``trace_format`` is ``perfetto`` or ``chrome``. ``scenario.yaml`` asks for the run again; it exists only where a
    scenario can, which a program of Python functions is not. ``comments`` are lines at its head. A ``full_trace`` has
    every span of a run that repeats itself, however many there are. The pictures come from a process that was begun for
    them, ``drawing``, where there is one.

    ``losses.csv`` and ``weights.npz`` exist only for a run with arithmetic;
    ``outputs.npz`` where the outfeed carries more than losses, or no losses. ``memory.npz`` and
    ``memory.png`` exist where the stages say what they hold.
    """

    def others() -> dict[str, bytes]:
        return dict(_files_beside_pictures(result, folder, trace_format, comments, full_trace=full_trace))

    files = _with_pictures(result, shown, drawing, others)
    return {name: files[name] for name in sorted(files, key=RESULT_FILES.index)}


def _files_beside_pictures(
    result: Run, folder: Path, trace_format: str, comments: Sequence[str], *, full_trace: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every file of :func:`run_files` but the pictures."""
    learning = result.learning
    scenario = scenario_text(result.job.request, folder, (*versions(), *comments))
    if scenario is not None:
        yield SCENARIO_FILE, scenario.encode()
    yield "summary.json", json_bytes(result.summary.to_dict())
    if learning is not None:
        if learning.losses:
            yield "losses.csv", losses_csv(learning)
        if learning.outputs:
            yield "outputs.npz", archive_of(learning.outputs)
        yield "weights.npz", archive_of(learning.weights)
    saved = io.BytesIO()
    result.timeline.save(saved)
    yield "timeline.npz", saved.getvalue()
    if result.describes_memory:
        yield MEMORY_FILE, memory_file(run_curves(result))
    yield trace_file(result, trace_format, full=full_trace)


def drawing_ahead(job: Job, window: Callable[[Timeline], Window]) -> Drawing:
    """Return a process that draws the pictures of a Job while its arithmetic is done.

    It imports matplotlib and, as arithmetic takes no time of the machine, simulates the Job without it and draws what
    comes of that. It returns these pictures where the run that it is sent is the same, and else draws that one. A Job
    without arithmetic is not simulated twice, nor is one of very many spans.

    Args:
        job: what is run.
        window: returns what pictures of a Timeline show.
    """

    def prepare() -> Callable[[tuple[Timeline, Window]], dict[str, bytes]]:
        from ipusim.app.run_folder.pictures import pictures_of  # noqa: PLC0415

        draw = partial(pictures_of, fit=job.memory if job.describes_memory else None)
        if job.workload is None or len(job.plan.kind) * job.executions > _MOST_PASSES:
            return draw
        timeline = Session(replace(job, workload=None)).run(job.executions, jump=False)
        expected = timeline, window(timeline)
        drawn = draw(expected, busy=1)  # with the arithmetic
        return lambda run: drawn if run == expected and run[0].info.title == timeline.info.title else draw(run)

    return Ahead(prepare)


def _with_pictures(result: Run, shown: Window, drawing: Drawing | None, make: Maker) -> dict[str, bytes]:
    """Return what ``make`` makes, and the pictures of a run, which are made beside it where there are cores."""
    timeline, made = result.timeline, {}
    if drawing is not None and len(timeline) <= _MOST_SENT and drawing.send((timeline, shown)):
        give_back_memory()
        made = make()
        drawn = drawing.brought()
        if drawn is not None:
            return made | drawn
    from ipusim.app.run_folder.pictures import picture_makers  # noqa: PLC0415 - and matplotlib, where it draws here

    makers = picture_makers(timeline, shown, result.memory if result.describes_memory else None)
    return made | side_by_side([*makers, *(() if made else (make,))])


def picture_name(
    start: int | None = None,
    end: int | None = None,
    phase: str | None = None,
    execution: int | None = None,
    suffix: str = ".png",
) -> str:
    """Return the name of a picture by what it shows, such as ``trace-ramp-up.png``; no run writes one of that name."""
    if start is not None or end is not None:
        shown = f"cycles-{start or 0}-{'end' if end is None else end}"
    elif phase is not None:
        of = f"-execution-{execution}" if execution else ""
        shown = f"{phase_word(phase)}{of}"
    else:
        shown = f"execution-{execution or 0}"
    return f"trace-{shown}{suffix}"

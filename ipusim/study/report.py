"""A result as the files of a run folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.learning import Learning
from ipusim.analysis.memory import memory_curves
from ipusim.analysis.phases import PHASES
from ipusim.compression import Gzip
from ipusim.errors import OptionError
from ipusim.render.chrome_trace import write_chrome_trace
from ipusim.render.execution_trace import default_title, execution_trace
from ipusim.render.figures import to_png, to_svg
from ipusim.render.memory import memory_chart
from ipusim.render.perfetto_trace import write_perfetto_trace
from ipusim.render.trace_content import TraceContent
from ipusim.render.window import Window, part_window
from ipusim.runs.assemble.limits import MAX_CYCLES
from ipusim.runs.problems import show
from ipusim.runs.run import Run
from ipusim.timeline.timeline import Timeline
from ipusim.units import format_numbers

#: Every file that a run may write.
RESULT_FILES: Final = (
    "summary.json",
    "losses.csv",
    "outputs.npz",
    "weights.npz",
    "timeline.npz",
    "trace.pftrace.gz",
    "trace.json.gz",
    "trace.png",
    "trace.svg",
    "memory.png",
)
#: The formats of a trace file: its name, and what writes it. Both viewers read it compressed.
_TRACES: Final[dict[str, tuple[str, Callable[[TraceContent, Callable[[bytes], object]], None]]]] = {
    "perfetto": ("trace.pftrace.gz", write_perfetto_trace),
    "chrome": ("trace.json.gz", write_chrome_trace),
}
_PICTURES: Final[dict[str, Callable[..., bytes]]] = {".png": to_png, ".svg": to_svg}


def losses_csv(learning: Learning) -> bytes:
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


def npz(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """Return arrays as an npz archive; names may hold slashes, as ``dense256/W`` does."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # NumPy types its keyword arguments as the flag's too
    return buffer.getvalue()


def json_bytes(data: object) -> bytes:
    """Return data as JSON that people can read and tools can compare."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def check_picture(
    executions: int, start: int | None = None, end: int | None = None, phase: str | None = None, execution: int = 0
) -> None:
    """Refuse what no run of ``executions`` executions can show, before it is run; raises OptionError."""
    for option, cycle in (("start", start), ("end", end)):
        if cycle is not None and not 0 <= cycle <= MAX_CYCLES:
            raise OptionError(
                option, f"expected a cycle from 0 to {MAX_CYCLES}, the most that a run lasts, got {show(cycle)}"
            )
    if not 0 <= execution < executions:
        raise OptionError("execution", f"expected an execution {format_numbers(executions)}, got {show(execution)}")
    if phase is not None and (start is not None or end is not None):
        raise OptionError("phase", "expected either a phase or cycles {} and {}, got both", "start", "end")
    words = [name.replace(" ", "-") for name in PHASES]
    if phase is not None and phase.lower().replace(" ", "-") not in words:
        raise OptionError("phase", f"expected {', '.join(words[:-1])} or {words[-1]}, got {phase!r}")
    if start is not None and end is not None and start >= end:
        raise OptionError("start", f"expected a cycle before {{}} {end}, got {start}", "end")


def picture_window(
    timeline: Timeline, start: int | None = None, end: int | None = None, phase: str | None = None, execution: int = 0
) -> Window:
    """Return what the picture of a run shows: a phase, the given cycles, or one execution with its weight update.

    Raises OutputError for a window outside the run and a phase that the execution has not, and
    OptionError for an execution that the run has not, and for both cycles and a phase.
    """
    check_picture(timeline.info.executions, start, end, phase, execution)
    return part_window(timeline, start, end, phase, execution)


def check_trace_format(name: str) -> None:
    """Refuse a format of trace files that there is not; raises OptionError."""
    if name not in _TRACES:
        raise OptionError("trace_format", f"expected {' or '.join(_TRACES)}, got {name!r}")


def trace_file(result: Run, trace_format: str = "perfetto") -> tuple[str, bytes]:
    """Return name and content of the trace file of a run; raises OptionError for a format that there is not."""
    check_trace_format(trace_format)
    timeline, system = result.timeline, result.job.system
    memory = [
        curve
        for replica in range(timeline.info.replicas if result.describes_memory else 0)
        for curve in memory_curves(timeline, result.memory.footprint, replica)
    ]
    content = TraceContent(
        timeline, memory, lambda source, target: [link.label for link in system.route(source, target)]
    )
    name, write = _TRACES[trace_format]
    file = Gzip()
    write(content, file.write)
    return name, file.close()


def run_files(result: Run, shown: Window, trace_format: str = "perfetto") -> dict[str, bytes]:
    """Return the content of every file of a run folder, by name; the picture shows the cycles of ``shown``.

    ``trace_format`` is ``perfetto`` or ``chrome``.

    ``losses.csv`` and ``weights.npz`` exist only for a run with arithmetic;
    ``outputs.npz`` where the outfeed carries more than losses, or no losses. ``memory.png``
    exists where the stages say what they hold.
    """
    timeline, learning = result.timeline, result.learning
    files = {"summary.json": json_bytes(result.summary.to_dict())}
    if learning is not None:
        if learning.losses:
            files["losses.csv"] = losses_csv(learning)
        if learning.outputs:
            files["outputs.npz"] = npz(learning.outputs)
        files["weights.npz"] = npz(learning.weights)
    saved = io.BytesIO()
    timeline.save(saved)
    files["timeline.npz"] = saved.getvalue()
    trace_name, files[trace_name] = trace_file(result, trace_format)
    figure = execution_trace(timeline, shown.start, shown.end, title=default_title(timeline, shown))
    files["trace.png"] = to_png(figure)
    files["trace.svg"] = to_svg(figure)
    if result.describes_memory:
        files["memory.png"] = to_png(memory_chart(timeline, result.memory, shown))
    return files


def picture(timeline: Timeline, shown: Window, suffix: str) -> bytes:
    """Return the execution trace of those cycles as ``.png`` or ``.svg``; raises OptionError for another suffix."""
    if suffix.lower() not in _PICTURES:
        raise OptionError("out", f"expected a picture named .png or .svg, got {suffix or 'no suffix'!r}")
    title = default_title(timeline, shown)
    return _PICTURES[suffix.lower()](execution_trace(timeline, shown.start, shown.end, title=title))

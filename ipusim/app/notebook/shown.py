"""Show a run in a notebook, either just ended or stored in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from ipusim.api import Timeline, analysis
from ipusim.app.notebook import html
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.frames import frame, losses_frame, memory_frame
from ipusim.app.notebook.result import ResultView
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.tables import Table, summary_table
from ipusim.app.render.window import ShownPart, part_window
from ipusim.app.run_folder.columns import ipu_columns, memory_columns, span_columns
from ipusim.app.run_folder.pictures import trace_chart
from ipusim.app.study.figures import figure_rows
from ipusim.app.study.result import Result

if TYPE_CHECKING:
    import pandas as pd

#: Losses of a run without any, as CSV.
_NO_LOSSES: Final = b"step,execution,micro_batch,loss\n"


@dataclass(frozen=True, eq=False)
class RunOutput(Result):
    """Run for a notebook.

    Attributes:
        timeline: Timeline of the run.
        times: figures derived from the Timeline.
        summary_data: data of ``summary.json``.
    """

    timeline: Timeline
    times: analysis.RunTimes
    summary_data: dict[str, Any]

    names = ("summary.json", "trace.png")

    def printout(self) -> Iterator[str | Table]:
        """Yield description, verdict, main figures, a line on memory unless the program fits, and notes."""
        memory = self.summary_data["memory"]
        yield self.summary_data["description"]
        yield f"{html.verdict(self.times)}."
        yield f"Error of the throughput: {error}." if (error := self.summary_data.get("throughput_error")) else ""
        yield summary_table(self.times)
        yield "" if memory["fits"] == analysis.Fits.YES else memory["verdict"]
        yield from self.summary_data["notes"]

    def data(self) -> dict[str, Any]:
        """Return the data of ``summary.json``."""
        return self.summary_data

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every figure."""
        return figure_rows(self.summary_data)

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the trace of an execution."""
        return {"trace": lambda: trace_chart(self.timeline, part_window(self.timeline))}


class RunView(ResultView):
    """Run with trace, tables and figures; a notebook shows a summary above the trace.

    Attributes:
        timeline: Timeline of the run, as integer columns.
        times: figures derived from the Timeline.
        weights: final parameters by name, such as ``dense/W``; empty for a timing-only run.
        outputs: host outputs other than losses, by name.
    """

    def __init__(
        self, timeline: Timeline, times: analysis.RunTimes, summary: dict[str, Any], losses: bytes | None
    ) -> None:
        """Show a Timeline with its times, ``summary.json`` data, and losses as CSV, if any."""
        self.timeline = timeline
        self.times = times
        self.weights: dict[str, npt.NDArray[Any]] = {}
        self.outputs: dict[str, npt.NDArray[Any]] = {}
        self._summary = summary
        super().__init__(RunOutput(timeline, times, summary))
        self._losses = _NO_LOSSES if losses is None else losses

    @check_types
    def figure(
        self,
        phase: str | None = None,
        execution: int | None = None,
        start: int | None = None,
        end: int | None = None,
        picture: Picture = DEFAULT,
    ) -> Chart:
        """Return the trace of an execution, a phase, or an interval, as a matplotlib Figure.

        Args:
            phase: ramp-up, main, ramp-down or weight-update; by default the whole execution.
            execution: number of the execution, from 0. The default is 0, or if the run loses an IPU the executions
                around that failure.
            start, end: cycles of the tile clock from the beginning of the run, in place of a phase.
            picture: title and size, such as ``ipusim.Picture(title="Ramps", size="6x3in")``.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for an unreadably small size.
            OutputError: for a phase that the execution lacks, for cycles outside the run, and for both.
            TimelineError: for an unknown execution.
        """
        return trace_chart(self.timeline, part_window(self.timeline, ShownPart(start, end, phase, execution)), picture)

    def frame(self) -> pd.DataFrame:
        """Return a row for every figure of the run; needs pandas.

        Returns:
            A DataFrame:

            - figure: name, as in ``expect`` of a scenario;
            - value: number or text;
            - unit: unit of the value, empty without a unit.
        """
        return super().frame()

    @check_types
    def spans(self, start: int | None = None, end: int | None = None) -> pd.DataFrame:
        """Return a row for every span, with names of kinds, tracks, stages and links; needs pandas.

        Args:
            start, end: cycles of the tile clock that enclose the returned spans; by default every span.

        Returns:
            A DataFrame, in which a value that a kind of span lacks is missing:

            - kind: such as ``forward``, ``exchange`` or ``weight update``;
            - track: row of the trace, such as ``IPU 0``, ``all IPUs`` or ``link 0→1 rung``;
            - ipu: logical IPU, missing for spans of several IPUs or of none;
            - replica, stage, micro_batch, time_step, execution: number of each, but the name of the stage;
            - start_cycle, end_cycle, cycles: first cycle, end, and duration in cycles of the tile clock;
            - start_s, end_s: start and end in seconds;
            - link: direction of an IPU-Link;
            - bytes: bytes that the span copies;
            - cause: row of the releasing span.

        Raises:
            OutputError: for more spans than a table may have rows; ``start`` and ``end`` reduce their number.
            MissingPackageError: without pandas.
        """
        return frame(span_columns(self.timeline, start, end))

    def ipus(self) -> pd.DataFrame:
        """Return a row for every IPU: cycles by activity in an execution's pipeline; needs pandas.

        Returns:
            A DataFrame:

            - ipu, physical_ipu: number of the logical IPU, and of the device's IPU;
            - stages: names of its stages;
            - USE_cycles: cycles of each use, such as forward_cycles and sync_wait_cycles;
            - compute_cycles: cycles of passes;
            - utilisation: compute_cycles / makespan.
        """
        return frame(ipu_columns(self.times))

    def memory(self) -> pd.DataFrame:
        """Return a row for every IPU with a stage: memory peak by holder; needs pandas.

        Stages known only by their cycles hold 0 bytes.

        Returns:
            A DataFrame:

            - ipu: number of the logical IPU;
            - peak_bytes, peak_cycle, peak_pass: greatest memory of the IPU, its first cycle, and the pass running in
              it;
            - excess_bytes: bytes above the IPU's memory;
            - resident_bytes: bytes held over the whole run;
            - remote_bytes: bytes in Streaming Memory;
            - fifo_held_bytes: bytes of FIFOs in use at the peak;
            - sram_bytes: memory of an IPU, missing on a machine without a limit;
            - HOLDER_bytes: bytes of each holder at the peak, such as parameters_bytes and live_tensors_bytes.
        """
        return memory_frame(self._summary["memory"])

    def memory_over_time(self) -> pd.DataFrame:
        """Return the memory of IPUs over the run, a row for every change; needs pandas.

        Returns:
            A DataFrame, without rows for stages known only by their cycles; a row holds until the next row of its IPU:

            - ipu: number of the logical IPU;
            - cycle, s: time of the change, in cycles of the tile clock and in seconds;
            - allocated_bytes: resident_bytes + live_bytes;
            - resident_bytes: bytes held over the whole run, buffers of FIFOs included;
            - live_bytes: bytes of the running pass;
            - fifo_bytes: bytes in use in the buffers of FIFOs.
        """
        return frame(memory_columns(self._curves(), self.timeline.info.clock_hz))

    def losses(self) -> pd.DataFrame:
        """Return the losses that reached the host, as in ``losses.csv``; needs pandas.

        Returns:
            A DataFrame, without rows for a timing-only run:

            - step, execution: number of the step, and of the execution in it;
            - micro_batch and loss; with an accumulating outfeed, micro_batches and loss_sum: a number of micro-batches
              and the sum of their losses;
            - replica: number of the replica, if several.
        """
        return losses_frame(self._losses)

    def _curves(self) -> Sequence[analysis.MemoryCurve]:
        """Return the memory curve of every IPU; empty if memory is unknown."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the run's name and main figures."""
        return f"<{type(self).__name__} of {self.times.name}, {self.times.order_and_sync}: {html.verdict(self.times)}>"

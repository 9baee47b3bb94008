"""What a run shows of itself in a notebook, whether it has just run or lies in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from ipusim.api import Timeline, analysis
from ipusim.app.notebook import html
from ipusim.app.notebook.checked import checked
from ipusim.app.notebook.frames import frame, losses_frame, memory_frame
from ipusim.app.notebook.result import Found
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.tables import Table, summary_table
from ipusim.app.render.window import part_window
from ipusim.app.run_folder.columns import ipu_columns, memory_columns, span_columns
from ipusim.app.run_folder.pictures import trace_chart
from ipusim.app.study.figures import figure_rows
from ipusim.app.study.result import Result

if TYPE_CHECKING:
    import pandas as pd

#: The losses of a run that has none, as CSV.
_NO_LOSSES: Final = b"step,execution,micro_batch,loss\n"


@dataclass(frozen=True, eq=False)
class RunShown(Result):
    """A run for a notebook.

    Attributes:
        timeline: what happened.
        times: every number that the Timeline tells.
        said: the data of ``summary.json``.
    """

    timeline: Timeline
    times: analysis.RunTimes
    said: dict[str, Any]

    names = ("summary.json", "trace.png")

    def shown(self) -> Iterator[str | Table]:
        """Yield the verdict, the main numbers, and what does not fit or is not known."""
        memory = self.said["memory"]
        yield self.said["description"]
        yield f"{html.verdict(self.times)}."
        yield f"Error of the throughput: {error}." if (error := self.said.get("throughput_error")) else ""
        yield summary_table(self.times)
        yield "" if memory["fits"] == analysis.Fits.YES else memory["verdict"]
        yield from self.said["notes"]

    def data(self) -> dict[str, Any]:
        """Return the data of ``summary.json``."""
        return self.said

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each figure."""
        return figure_rows(self.said)

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return the trace of an execution."""
        return {"trace": lambda: trace_chart(self.timeline, part_window(self.timeline))}


class Shown(Found):
    """A run with its trace, tables and figures; a notebook shows it as a summary above the trace of an execution.

    Attributes:
        timeline: what happened, as integer columns.
        times: every number that the Timeline tells.
        weights: final parameters by name, such as ``dense/W``; none where only time is simulated.
        outputs: what else than losses reached the host, by name.
    """

    def __init__(
        self, timeline: Timeline, times: analysis.RunTimes, said: dict[str, Any], losses: bytes | None
    ) -> None:
        """Take a Timeline, its times, what ``summary.json`` says, and the losses as CSV, if there are any."""
        self.timeline = timeline
        self.times = times
        self.weights: dict[str, npt.NDArray[Any]] = {}
        self.outputs: dict[str, npt.NDArray[Any]] = {}
        self._said = said
        super().__init__(RunShown(timeline, times, said))
        self._losses = _NO_LOSSES if losses is None else losses

    @checked
    def figure(
        self,
        phase: str | None = None,
        execution: int | None = None,
        start: int | None = None,
        end: int | None = None,
        picture: Picture = DEFAULT,
    ) -> Chart:
        """Return the execution trace as a matplotlib Figure: of an execution, of a phase of it, or between two cycles.

        Args:
            phase: ramp-up, main, ramp-down or weight-update; by default the whole execution.
            execution: its number, from 0; by default that, and of a run that loses an IPU what is around the loss.
            start, end: cycles of the tile clock from the beginning of the run, in place of a phase.
            picture: title and size, such as ``ipusim.Picture(title="Ramps", size="6x3in")``.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for a size in which the picture cannot be read.
            OutputError: for a phase that the execution has not, for cycles outside the run, and for both.
            TimelineError: for an execution that the run has not.
        """
        return trace_chart(self.timeline, part_window(self.timeline, start, end, phase, execution), picture)

    def frame(self) -> pd.DataFrame:
        """Return a row for each figure of the run; needs pandas.

        Returns:
            A DataFrame:

            - figure: name, as in ``expect`` of a scenario;
            - value: number or text;
            - unit: unit of the value, empty where it has none.
        """
        return super().frame()

    @checked
    def spans(self, start: int | None = None, end: int | None = None) -> pd.DataFrame:
        """Return a row for each span, with names of kinds, tracks, stages and links; needs pandas.

        Args:
            start, end: cycles of the tile clock, of the spans between which alone rows are; by default of all.

        Returns:
            A DataFrame, in which a value that a kind of span lacks is missing:

            - kind: such as ``forward``, ``exchange`` or ``weight update``;
            - track: row of the trace, such as ``IPU 0``, ``all IPUs`` or ``link 0→1 rung``;
            - ipu: logical IPU, missing for spans of several IPUs or of none;
            - replica, stage, micro_batch, time_step, execution: number of each, of the stage its name;
            - start_cycle, end_cycle, cycles: first cycle, end, and duration in cycles of the tile clock;
            - start_s, end_s: start and end in seconds;
            - link: direction of an IPU-Link;
            - bytes: bytes that the span copies;
            - cause: row of the span that released this one.

        Raises:
            OutputError: for more spans than a table may have rows; ``start`` and ``end`` make them fewer.
            MissingPackageError: without pandas.
        """
        return frame(span_columns(self.timeline, start, end))

    def ipus(self) -> pd.DataFrame:
        """Return a row for each IPU, with its cycles in the pipeline of an execution by activity; needs pandas.

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
        """Return a row for each IPU that holds a stage, with its peak and the holders of the peak; needs pandas.

        Stages known by their cycles alone hold 0 bytes.

        Returns:
            A DataFrame:

            - ipu: number of the logical IPU;
            - peak_bytes, peak_cycle, peak_pass: most bytes that the IPU holds, first cycle of that peak, and the pass
              that then runs;
            - excess_bytes: bytes above its memory;
            - resident_bytes: bytes held over the whole run;
            - remote_bytes: bytes in Streaming Memory;
            - fifo_held_bytes: bytes of FIFOs that are in use at the peak;
            - sram_bytes: memory of an IPU, missing on a machine without a limit;
            - HOLDER_bytes: bytes of each holder at the peak, such as parameters_bytes and live_tensors_bytes.
        """
        return memory_frame(self._said["memory"])

    def memory_over_time(self) -> pd.DataFrame:
        """Return the memory of IPUs over the whole run, a row for each change of an IPU; needs pandas.

        Returns:
            A DataFrame, without rows for stages known by their cycles alone; a row holds until the next of its IPU:

            - ipu: number of the logical IPU;
            - cycle, s: time of the change, in cycles of the tile clock and in seconds;
            - allocated_bytes: resident_bytes + live_bytes;
            - resident_bytes: bytes held over the whole run, buffers of FIFOs included;
            - live_bytes: bytes of the pass that runs;
            - fifo_bytes: bytes in use in the buffers of FIFOs.
        """
        return frame(memory_columns(self._curves(), self.timeline.info.clock_hz))

    def losses(self) -> pd.DataFrame:
        """Return the losses that reached the host, as in ``losses.csv``; needs pandas.

        Returns:
            A DataFrame, without rows for a run of time alone:

            - step, execution: number of the step, and of the execution in it;
            - micro_batch and loss; of an outfeed that accumulates, micro_batches and loss_sum: a number of
              micro-batches and the sum of their losses;
            - replica: number of the replica, where there are several.
        """
        return losses_frame(self._losses)

    def _curves(self) -> Sequence[analysis.MemoryCurve]:
        """Return the memory curve of each IPU; none where the stages do not say what they hold."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Name the run and its main numbers."""
        return f"<{type(self).__name__} of {self.times.name}: {html.verdict(self.times)}>"

"""Show the explanation of a run's time in a notebook."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ipusim.api import analysis
from ipusim.app.explain import explanation as study
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.frames import rows_frame
from ipusim.app.notebook.result import ResultView
from ipusim.app.render.execution_trace import trace_with_path
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.window import execution_window
from ipusim.app.run_folder.columns import in_rows

if TYPE_CHECKING:
    import pandas as pd


class Explanation(ResultView):
    """Explanation of a run's time; a notebook shows the verdict, bars of idle time, and tables.

    Attributes:
        result: idle intervals with their causes, the critical path, and the gain of changes.
        words: sentences of the verdict.
    """

    def __init__(self, explanation: study.Explanation) -> None:
        """Show ``explanation``."""
        super().__init__(explanation)
        self.result = explanation
        self.words = tuple(explanation.words())

    def frame(self) -> pd.DataFrame:
        """Return a row for every IPU: cycles by activity and by cause of waiting; needs pandas.

        Returns:
            A DataFrame, in which the columns of cycles add up to the window of the explanation:

            - ipu: number of the logical IPU;
            - computes: cycles of arithmetic;
            - recomputation: cycles of the IPU's own second forward passes;
            - waits_for_recomputation: waits for second forward passes of other IPUs;
            - fill_and_drain, gaps_in_main, imbalance_of_stages: waits for passes of other IPUs, by reason;
            - passes_of_other_ipus: further waits for passes of other IPUs;
            - copies_and_sync, host, streaming_memory, collectives_and_weight_update, disturbances: cycles of each
              activity, and waits for it;
            - no_stage: cycles of an IPU without a stage.
        """
        return super().frame()

    @check_types
    def idle(self) -> pd.DataFrame:
        """Return a row for every idle interval: ipu, start_cycle, end_cycle, cause and stage; needs pandas.

        ``stage`` is the awaited stage on another IPU, None if the IPU waits for no stage. Raises OutputError
        for a run of more spans than a table may have rows.
        """
        stages, idle = self.result.timeline.info.stages, self.result.idle
        if self.result.timeline.repeats:
            idle = analysis.idle_causes(in_rows(self.result.timeline), self.result.execution)
        columns = (idle.ipu, idle.start, idle.end, idle.cause, idle.stage)
        return rows_frame(
            [
                {
                    "ipu": ipu,
                    "start_cycle": start,
                    "end_cycle": end,
                    "cause": analysis.CAUSES[cause].words,
                    "stage": None if stage < 0 else stages[stage],
                }
                for ipu, start, end, cause, stage in zip(*(column.tolist() for column in columns), strict=True)
            ]
        )

    @check_types
    def figure(self, picture: Picture = DEFAULT) -> Chart:
        """Return bars of arithmetic and idle causes by IPU, as a matplotlib Figure.

        Args:
            picture: title and size.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for an unreadably small size.
        """
        return replace(self.result, picture=picture).charts()["idle_causes"]()

    @check_types
    def path_figure(self, execution: int = 0, picture: Picture = DEFAULT) -> Chart:
        """Return the trace of an execution with the critical path on it.

        Args:
            execution: number of the execution, from 0.
            picture: title and size.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for an unreadably small size.
            TimelineError: for an unknown execution.
        """
        window = execution_window(self.result.timeline, execution)
        return trace_with_path(self.result.timeline, self.result.path.rows, window, picture)

    def __repr__(self) -> str:
        """Return the verdict."""
        return f"<{type(self).__name__}: {' '.join(self.words)}>"

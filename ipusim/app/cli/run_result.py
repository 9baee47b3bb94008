"""Define the result of the command ``run``, for the terminal and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipusim.api import analysis
from ipusim.app.cli import tables
from ipusim.app.render.tables import Table, ipu_table, summary_table
from ipusim.app.render.verdict import verdict_table
from ipusim.app.study.figures import figure_rows
from ipusim.app.study.result import Result

if TYPE_CHECKING:
    from ipusim.api import Run, runs
    from ipusim.app.regression.expectations import Judgement


@dataclass(frozen=True, eq=False)
class RunResult(Result):
    """Result of a run.

    Attributes:
        run: Job with its Timeline and summary.
        verbose: whether to print all tables behind the verdict.
        judgements: expectations of the scenario with the run's figures.
        times_check: comparison of the simulated times with times computed without event simulation; None unless
            requested.
    """

    run: Run
    verbose: bool = False
    judgements: Sequence[Judgement] = ()
    times_check: runs.TimesCheck | None = None

    def printout(self) -> Iterator[str | Table]:
        """Yield the scenario's description, verdict, tables, notes and expectations."""
        summary = self.run.summary
        yield from filter(None, [self.run.job.request.description])
        yield verdict_table(summary)
        if self.verbose:
            yield from self._tables()
        yield from (*summary.notes, *self.run.remarks, *tables.expectation_lines(self.judgements))
        if self.times_check is not None:
            yield str(self.times_check)

    def _tables(self) -> Iterator[str | Table]:
        run = self.run
        yield summary_table(run.summary)
        if options := tuple(analysis.effects_of(run.job.program, run.job.system).items()):
            yield Table("Options", ("", ""), options)
        yield ipu_table(run.summary)
        if run.describes_memory:
            yield tables.memory_table(run.memory, run.timeline)
            yield tables.holder_table(run.memory)
        if run.learning is not None and (learned := tables.learning_table(run.learning)).rows:
            yield learned
        orders = run.summary.selection_orders
        if orders[0].routes:
            yield tables.order_table(orders)
            yield tables.route_table(orders)
        yield f"Selection order {run.job.system.selection_order}: {run.job.system.order_reason}"

    def data(self) -> dict[str, Any]:
        """Return the contents of ``summary.json``."""
        return self.run.summary.to_dict()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each figure."""
        return figure_rows(self.data())

"""Make the files of a synthesis: the Order as words and as torch's CSV, a scenario, and a picture."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ipusim.api import Request, schedules
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import ComparisonResult
from ipusim.app.render.tables import Table
from ipusim.app.run_folder.output_file import mark_of
from ipusim.app.scenario.write import SCENARIO_FILE, scenario_text
from ipusim.app.study.result import Result, Rows
from ipusim.app.synthesize.starts import NAME
from ipusim.app.synthesize.synthesis import Synthesis
from ipusim.app.synthesize.verdict import verdict
from ipusim.base.errors import OutputError
from ipusim.base.units import format_seconds

#: File of the Order as words, in Python.
WORDS_FILE: Final = f"{NAME}.py"
#: File of the Order in torch's CSV format.
TORCH_FILE: Final = f"{NAME}.csv"
#: Maximum number of characters in a line of the words' file.
_LINE_WIDTH: Final = 116


@dataclass(frozen=True, eq=False)
class SynthesisResult(Result):
    """A synthesis for terminal, notebook and files.

    Attributes:
        synthesis: best Order, or best named schedule.
        request: original request.
        folder: destination of files.
    """

    synthesis: Synthesis
    request: Request
    folder: Path

    names = (WORDS_FILE, TORCH_FILE, SCENARIO_FILE, *ComparisonResult.names)

    @property
    def comparison_result(self) -> ComparisonResult:
        """Comparison of the Order with the best named schedule; only the named schedule if no Order is faster."""
        order = self.synthesis.new_order
        return ComparisonResult(Comparison((self.synthesis.best_named, *([] if order is None else [order]))))

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict."""
        yield from verdict(self.synthesis)

    def rows(self) -> Rows:
        """Return the rows of the comparison with the best named schedule."""
        return self.comparison_result.rows()

    def data(self) -> dict[str, Any]:
        """Return the Order as letters, its distance from the bound, and the comparison."""
        times = self.synthesis.best.times
        assert times is not None, "the best row has a result"
        return {
            "name": self.request.name,
            "best": self.synthesis.best.schedule,
            "is_optimal": self.synthesis.is_optimal,
            "makespan_cycles": times.makespan_cycles,
            "bound_cycles": self.synthesis.bound.cycles if self.synthesis.has_bound else None,
            "letters": {str(ipu): list(parts) for ipu, parts in self.synthesis.words.items()},
            "least_count": self.synthesis.least_count,
            "every_count": self.synthesis.is_periodic,
            "comparison": self.comparison_result.data(),
        }

    def folder_files(self) -> dict[str, bytes]:
        """Return the files of a synthesis by name; raises OutputError if no scenario can describe the request.

        If no Order is better, the scenario runs the best named schedule.
        """
        synthesis = self.synthesis
        run = synthesis.best.result
        assert run is not None, "the best row has a result"
        words = Path(os.path.relpath(self.folder, self.request.folder)) / WORDS_FILE
        schedule = f"{words}:{NAME}" if synthesis.new_order else synthesis.best.schedule
        changes = {"pipeline.schedule": schedule, "pipeline.sync": synthesis.best.sync.value}
        text = scenario_text(self.request.replace(changes), self.folder.absolute(), [mark_of("suggest --order")])
        if text is None:
            hint = "expected stages that a scenario can describe, got Python functions of a program"
            raise OutputError(f"{self.folder}: {hint}")
        files = {SCENARIO_FILE: text.encode()}
        if synthesis.new_order:
            files[WORDS_FILE] = words_file(synthesis).encode()
            order = schedules.in_words(NAME, synthesis.words)
            shape = replace(run.job.program.shape, micro_batches=synthesis.torch_count)
            files[TORCH_FILE] = schedules.write_torch_csv(order.lay_out(shape)).encode()
            files |= self.comparison_result.files()
        return files


def words_file(synthesis: Synthesis) -> str:
    """Return a Python file with a schedule of the best words."""
    counts = f"{synthesis.least_count} micro-batches" + (" or more" if synthesis.is_periodic else "")
    assert synthesis.new_order is not None, "words were found"
    assert synthesis.new_order.times is not None, "a new Order has a result"
    period = format_seconds(synthesis.new_order.times.throughput.weight_update_period_s)
    lines = [
        f'"""The Order that `ipusim suggest --order` found for {synthesis.new_order.source}: {period} per '
        "weight update.",
        "",
        f"It serves {counts}. WORDS has three texts for each IPU: the passes before its period, in the period,",
        "and after the period. F0 is a forward pass of stage 0 on its next micro-batch; B stands for backward, I and",
        "W for its halves. Each repetition of the period runs one micro-batch more.",
        *(["A bar ends a time-step."] if synthesis.contains("|") else []),
        '"""',
        "",
        "from ipusim.api import schedules",
        "",
        "WORDS = {",
    ]
    for ipu, parts in synthesis.words.items():
        lines += [f"    {ipu}: (", *(line for part in parts for line in _split_lines(part)), "    ),"]
    lines += ["}", f'{NAME} = schedules.in_words("{NAME}", WORDS)', ""]
    return "\n".join(lines)


def _split_lines(letters: str) -> Iterator[str]:
    """Yield text lines for an element of a tuple of letters."""
    *lines, last = textwrap.wrap(letters, _LINE_WIDTH - 12) or [""]
    yield from (f'        "{line} "' for line in lines)
    yield f'        "{last}",'

"""Compare measured cycles of stages with simulated cycles, pass by pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.api import Job, Rates, Request, assemble, models, pricing, runs
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.tables import Table
from ipusim.base.errors import FileError, OptionError

#: Names of passes in tables, by the key of their cycles in a profile.
_PASSES: Final = {
    "forward": "forward",
    "backward": "backward",
    "backward_input": "backward, input",
    "backward_weights": "backward, weights",
    "update": "weight update",
}


@dataclass(frozen=True)
class MeasuredPass:
    """Measured and simulated cycles of a stage's pass or weight update.

    Attributes:
        stage: the stage's name, followed by the name in the file in brackets if both names differ.
        name: name of the pass.
        measured, simulated: cycles per micro-batch, or per weight update.
        source: author of the measurement; empty if unstated.
    """

    stage: str
    name: str
    measured: int
    simulated: int
    source: str = ""

    @property
    def difference(self) -> float | None:
        """(simulated - measured) / measured; None for 0 measured cycles."""
        return self.simulated / self.measured - 1 if self.measured else None


def compare_profile(request: Request, path: Path) -> tuple[MeasuredPass, ...]:
    """Return measured and simulated cycles of the passes measured in a CSV file.

    Cycles in the request's options are ignored. For inference only forward passes are compared.

    Raises FileError with the mistakes of the file, OptionError for a request without layers to price, and the errors of
    :func:`assemble`.
    """
    job = priced_job(request, "profile")
    return passes_of(job, runs.read_profile(path, job.system.ipu.clock_hz), str(path))


def priced_job(request: Request, option: str) -> Job:
    """Return the Job of ``request`` with priced pass cycles, regardless of ``pipeline.cycles``.

    Raises OptionError, naming ``option``, for a request without layers to price, and the errors of :func:`assemble`.
    """
    job = assemble(request.replace({"pipeline.cycles": None}))
    if all(isinstance(stage.forward, int) for stage in job.program.stages):
        text = "expected a scenario with a model, for simulated times of passes, got stages with only costs"
        raise OptionError(option, text)
    return job


def passes_of(
    job: Job, rows: Sequence[runs.MeasuredStage], file_name: str, rates: Rates | None = None
) -> tuple[MeasuredPass, ...]:
    """Return measured and simulated cycles of the passes of ``job`` that are measured in ``rows``.

    ``rates`` are by default the job's; ``file_name`` is the name of the rows' file in messages. Raises FileError for
    rows of other stages than the job's.
    """
    names = [stage.name for stage in job.program.stages]
    if problems := [*runs.wrong_number(rows, dict.fromkeys(names, ()), file_name), *runs.misplaced(rows, names)]:
        raise FileError("\n".join(problems))
    return tuple(
        stage_pass
        for stage, row in zip(job.program.stages, rows, strict=True)
        for stage_pass in _passes(job, stage, row, rates or job.system.rates)
    )


def _passes(job: Job, stage: models.StageProfile, row: runs.MeasuredStage, rates: Rates) -> Iterator[MeasuredPass]:
    """Yield the measured passes of a stage that run in the job, in pass order."""
    input_part, weight_part = stage.halves
    costs = {
        "forward": stage.forward,
        "backward": stage.backward,
        "backward_input": input_part,
        "backward_weights": weight_part,
        "update": stage.update if pricing.counts_update(stage, job.program, job.system) else 0,
    }
    name = f"{stage.name} ({row.name})" if row.name not in ("", stage.name) else stage.name
    for key, pass_name in _PASSES.items():
        if key in row.cycles.model_fields_set and (key == "forward" or job.program.shape.training):
            cycles = pricing.pass_cycles(costs[key], job.system.ipu, rates)
            yield MeasuredPass(name, pass_name, getattr(row.cycles, key), cycles, row.source)


def words(passes: Sequence[MeasuredPass]) -> str:
    """Return a sentence with mean error, worst error and sources."""
    sources = dict.fromkeys(stage_pass.source for stage_pass in passes if stage_pass.source)
    source = f" Source: {'; '.join(sources)}." if sources else ""
    differences = [(stage_pass.difference, stage_pass) for stage_pass in passes if stage_pass.difference is not None]
    if not differences:
        return f"No measured pass takes any time.{source}"
    _, worst_pass = max(differences, key=lambda pair: abs(pair[0]))
    _, mean, worst = spread(difference for difference, _ in differences)
    return (
        f"Simulated passes are {mean} off the measured ones on average, and {worst} at worst: {worst_pass.name} of "
        f"{worst_pass.stage}.{source}"
    )


def profile_table(passes: Sequence[MeasuredPass]) -> Table:
    """Return measured and simulated cycles of the passes, and the differences."""
    stages = ("", *(stage_pass.stage for stage_pass in passes))
    rows = (
        {
            "stage": stage_pass.stage if stage_pass.stage != last else "",
            "pass": stage_pass.name,
            "measured": f"{stage_pass.measured:,}",
            "simulated": f"{stage_pass.simulated:,}",
            "difference": "-" if stage_pass.difference is None else f"{stage_pass.difference:+.1%}",
        }
        for stage_pass, last in zip(passes, stages, strict=False)
    )
    return Table.of("Stages, measured and simulated", rows)

"""Measured stages held against what the simulator prices them at, by stage and pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.api import Job, Rates, Request, assemble, models, pricing, runs
from ipusim.app.fidelity.spread import spread
from ipusim.app.render.tables import Table
from ipusim.base.errors import FileError, OptionError

#: What a pass is called, by its key. The names of a profile are those of a stage's own cost.
_PASSES: Final = {
    "forward": "forward",
    "backward": "backward",
    "backward_input": "backward, input",
    "backward_weights": "backward, weights",
    "update": "weight update",
}


@dataclass(frozen=True)
class MeasuredPass:
    """A pass, or the weight update, of one stage.

    Attributes:
        stage: the stage's name, and what the file calls it.
        what: which pass.
        measured, simulated: cycles of one micro-batch, or of one weight update.
        source: who measured it; empty where the file does not say.
    """

    stage: str
    what: str
    measured: int
    simulated: int
    source: str = ""

    @property
    def difference(self) -> float | None:
        """How much longer it takes simulated, as a share of what was measured; None of nothing measured."""
        return self.simulated / self.measured - 1 if self.measured else None


def hold_against(request: Request, path: Path) -> tuple[MeasuredPass, ...]:
    """Return each pass that a CSV file has measured cycles of, beside what the request's model is priced at.

    Cycles that the request itself gives are left out. Of an inference, forward passes alone are compared.

    Raises FileError with all that is wrong with the file, OptionError for a request without layers to price, and what
    :func:`assemble` raises.
    """
    job = priced(request, "profile")
    return passes_of(job, runs.read_profile(path, job.system.ipu.clock_hz), str(path))


def priced(request: Request, option: str) -> Job:
    """Return what ``request`` asks for, without cycles that it gives itself.

    Raises OptionError, of the option that asks for the cycles of its passes, where there are no layers to price, and
    what :func:`assemble` raises.
    """
    job = assemble(request.replace({"pipeline.cycles": None}))
    if all(isinstance(stage.forward, int) for stage in job.program.stages):
        text = "expected a scenario with a model, whose passes are priced, got stages known by their cost alone"
        raise OptionError(option, text)
    return job


def passes_of(
    job: Job, rows: Sequence[runs.MeasuredStage], called: str, rates: Rates | None = None
) -> tuple[MeasuredPass, ...]:
    """Return each pass of a job that rows of the file ``called`` so have measured, simulated by its rates or others.

    Raises FileError for rows of other stages than the job's.
    """
    names = [stage.name for stage in job.program.stages]
    if wrong := [*runs.wrong_number(rows, dict.fromkeys(names, ()), called), *runs.misplaced(rows, names)]:
        raise FileError("\n".join(wrong))
    return tuple(
        found
        for stage, row in zip(job.program.stages, rows, strict=True)
        for found in _passes(job, stage, row, rates or job.system.rates)
    )


def _passes(job: Job, stage: models.StageProfile, row: runs.MeasuredStage, rates: Rates) -> Iterator[MeasuredPass]:
    """Yield what was measured of a stage and runs in the job, in the order of the passes."""
    first, second = stage.halves
    costs = {
        "forward": stage.forward,
        "backward": stage.backward,
        "backward_input": first,
        "backward_weights": second,
        "update": stage.update if pricing.counts_update(stage, job.program, job.system) else 0,
    }
    name = f"{stage.name} ({row.name})" if row.name not in ("", stage.name) else stage.name
    for key, what in _PASSES.items():
        if key in row.cycles.model_fields_set and (key == "forward" or job.program.shape.training):
            simulated = pricing.pass_cycles(costs[key], job.system.ipu, rates)
            yield MeasuredPass(name, what, getattr(row.cycles, key), simulated, row.source)


def words(passes: Sequence[MeasuredPass]) -> str:
    """Return how far off the simulated passes are, whatever the sign: on average, and at worst; and who measured."""
    sources = dict.fromkeys(each.source for each in passes if each.source)
    source = f" Source: {'; '.join(sources)}." if sources else ""
    known = [(each.difference, each) for each in passes if each.difference is not None]
    if not known:
        return f"Nothing was measured that takes any time.{source}"
    _, at = max(known, key=lambda found: abs(found[0]))
    _, mean, worst = spread(off for off, _ in known)
    return (
        f"Simulated passes are {mean} off the measured ones on average, and {worst} at worst: {at.what} of "
        f"{at.stage}.{source}"
    )


def profile_table(passes: Sequence[MeasuredPass]) -> Table:
    """Return measured and simulated cycles of every pass, and the difference."""
    before = ("", *(each.stage for each in passes))
    rows = tuple(
        (
            each.stage if each.stage != last else "",
            each.what,
            f"{each.measured:,}",
            f"{each.simulated:,}",
            "-" if each.difference is None else f"{each.difference:+.1%}",
        )
        for each, last in zip(passes, before, strict=False)
    )
    return Table("Stages, measured and simulated", ("stage", "pass", "measured", "simulated", "difference"), rows)

"""Page on gradient accumulation counts: the tutorial's lesson, on its model and on four even stages."""

from __future__ import annotations

from functools import cache
from typing import Final

from ipusim.app.render.figures import to_png
from ipusim.app.render.tables import text_of
from ipusim.app.scenario import load_request
from ipusim.app.study.full_pipeline import COUNT
from ipusim.app.study.result import table_markdown
from ipusim.app.sweep.ceiling import SweepCeiling, ceilings
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.measures import THROUGHPUT
from ipusim.app.sweep.report import ceiling_table, chart_of, sweep_table
from ipusim.app.sweep.sweep import Sweep, sweep
from ipusim.app.sweep.vary import axes_of
from reports.gallery import SCENARIOS

#: Scenario, changes and varied options of each picture.
SWEEPS: Final = {
    "accumulation_sweep.png": ("tutorial_step4_configurable_stages", ("steps=1",), {COUNT: "8..1024x2"}),
    "accumulation_sweep_schedules.png": (
        "schedules_four_ipus",
        (),
        {COUNT: "8..1024x2", "pipeline.schedule": "grouped,interleaved,1f1b"},
    ),
}


@cache
def _swept(picture: str) -> tuple[Sweep, tuple[SweepCeiling, ...]]:
    name, changes, varied = SWEEPS[picture]
    result = sweep(load_request(SCENARIOS / f"{name}.yaml", changes), axes_of(varied), crew=Crew(workers=1))
    return result, ceilings(result)


def sweep_pictures() -> dict[str, bytes]:
    """Draw throughput and bubble against accumulation counts."""
    return {picture: to_png(chart_of(*_swept(picture), THROUGHPUT)) for picture in SWEEPS}


def sweep_page() -> str:
    """Describe gain and limit of more micro-batches."""
    one, several = SWEEPS
    result, limits = _swept(one)
    text = (
        "# How many micro-batches\n\n"
        "See here how throughput grows with the gradient accumulation count, and read off a sufficient count for two "
        "models. `python -m reports` makes the page, with the sweeps of both commands below.\n\n"
        "With more micro-batches per weight update, ramp-up and ramp-down take a smaller share of the time, and "
        "throughput grows towards a ceiling. The ceiling is the rate of a full pipeline, limited by the slowest IPU, "
        "copies and syncs.\n\n"
        "## The tutorial's model on four IPUs\n\n"
        f"{_shown(one)}\n{limits[0].words()}\n\n{table_markdown(sweep_table(result, THROUGHPUT))}\n"
    )
    result, limits = _swept(several)
    return text + (
        "## Four even stages under three schedules\n\n"
        f"{_shown(several)}\n{table_markdown(ceiling_table(limits, result))}\n"
        "Backward takes twice as long as forward here. A time-step of Interleaved lasts as long as its longest pass, "
        "so IPUs with a forward pass wait for IPUs with a backward pass. This lowers the ceiling at every count.\n"
    )


def _shown(picture: str) -> str:
    name, changes, varied = SWEEPS[picture]
    words = " ".join(
        [
            *(f"--set {change}" for change in changes),
            *(f"--vary {path}={text_of(values)}" for path, values in varied.items()),
        ]
    )
    return (
        f"```console\n$ ipusim sweep scenarios/{name}.yaml {words}\n```\n\n"
        f"![Throughput and bubble against the accumulation count]({picture})\n"
    )

"""Makes the figures and tables that the README shows: ``python -m reports`` from the top of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from ipusim.render.figures import to_png
from ipusim.render.memory import memory_chart
from ipusim.render.tables import Table, comparison_table
from ipusim.runs.execute import execute
from ipusim.scenario import load_job
from ipusim.scenario.options import ARGUMENTS, FIELDS
from ipusim.study.compare import compare
from ipusim.study.folder import write_folder
from ipusim.study.report import comparison_files, picture, picture_window
from ipusim.study.tables import order_table

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios"


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.header, tuple("---" for _ in table.header), *table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


#: The tutorial's pipeline as the README teaches reading with it: its layers are wide enough that the passes take longer
#: than the syncs, its data comes from the host, and eight micro-batches leave room for their numbers.
TUTORIAL = (
    "steps=1",
    "numerics=off",
    "use_synthetic_data=false",
    "pipeline.gradient_accumulation_count=8",
    "model.layers.dense256.units=2048",
    "model.layers.dense128.units=2048",
    "model.layers.dense64.units=2048",
    "model.layers.dense32.units=3072",
)


def tutorial() -> dict[str, bytes]:
    """Draw the tutorial's pipeline: one execution, and its ramp-up, main phase and ramp-down."""
    experiment = load_job(SCENARIOS / "tutorial_step3_pipelining.yaml", TUTORIAL)
    timeline = execute(experiment).timeline
    files = {"tutorial.png": picture(timeline, picture_window(timeline), ".png")}
    for phase in ("ramp-up", "main", "ramp-down"):
        files[f"tutorial-{phase}.png"] = picture(timeline, picture_window(timeline, phase=phase), ".png")
    return files


def schedules() -> dict[str, bytes]:
    """Compare the schedules of the tutorial's figures, drawn and as a table."""
    names = ["grouped", "interleaved", "sequential"]
    rows = compare(SCENARIOS / "schedules_four_ipus.yaml", names)
    table = comparison_table([row.result.summary for row in rows if row.result])
    return {"schedules.png": comparison_files(rows)["comparison.png"], "schedules.md": markdown(table).encode()}


def orders() -> dict[str, bytes]:
    """Compare the selection orders of a 16-IPU pipeline."""
    result = execute(load_job(SCENARIOS / "selection_orders.yaml"))
    return {"selection_orders.md": markdown(order_table(result.orders)).encode()}


#: Pictures of the README's gallery: a scenario, what it is changed to, and the phase shown (none: all).
GALLERY: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "recomputation.png": ("recomputation", (), None),
    "data_parallel.png": ("data_parallel_4x4", ("steps=1", "numerics=off"), None),
    "offload.png": ("optimizer_state_offload", (), None),
    "concurrent_stages.png": ("concurrent_stages", (), None),
    "overlapped_io.png": ("overlapped_io", (), None),
    "transformer.png": ("transformer_eight_ipus", ("steps=1", "numerics=off"), None),
}


def _code(text: str) -> str:
    return f"`{text}`" if text else "-"


def options() -> dict[str, bytes]:
    """List Graphcore's options of a pipeline, and what each does here."""
    parts = []
    for title, found in (("Arguments of pipelining_ops.pipeline", ARGUMENTS), ("Fields of IPUConfig", FIELDS)):
        rows = tuple(
            (
                f"`{each.name}`",
                f"`{each.key}`" if each.key else "-",
                each.effect,
                f"`{each.test}`" if each.test else "-",
            )
            for each in found
        )
        table = Table(title, ("Graphcore's name", "in a scenario", "what it does here", "held by"), rows)
        parts.append(f"## {title}\n\n{markdown(table)}")
    return {"options.md": "\n".join(parts).encode()}


def gallery() -> dict[str, bytes]:
    """Draw a trace of each scenario of the gallery, and the memory of one."""
    files = {}
    for name, (scenario, changes, phase) in GALLERY.items():
        timeline = execute(load_job(SCENARIOS / f"{scenario}.yaml", changes)).timeline
        files[name] = picture(timeline, picture_window(timeline, phase=phase), ".png")
    result = execute(load_job(SCENARIOS / "memory_by_schedule.yaml"))
    files["memory.png"] = to_png(memory_chart(result.timeline, result.memory, picture_window(result.timeline)))
    return files


def main(folder: Path) -> None:
    """Write every file into ``folder``."""
    write_folder(folder, {**tutorial(), **schedules(), **orders(), **options(), **gallery()})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "reports")

"""Write all pages and pictures: ``python -m reports [FOLDER]`` from the top of the repository.

Without a folder, it also writes the outputs that hand-written pages show.
"""

from __future__ import annotations

import sys
from inspect import signature
from pathlib import Path

from ipusim.app.fidelity.validation import validation_of
from ipusim.app.published.validation import validated_schedules
from ipusim.app.render.tables import Table
from ipusim.app.render.window import ShownPart
from ipusim.app.run_folder.pictures import picture
from ipusim.app.run_folder.report import picture_window
from ipusim.app.scenario import load_job
from ipusim.app.study.result import table_markdown
from ipusim.base.files import write_file
from ipusim.ipu.pipelining_ops import pipeline
from ipusim.runs.execute import execute
from ipusim.runs.request.graphcore_options import (
    OTHER_ARGUMENTS,
    OTHER_ATTRIBUTES,
    OTHER_OPTIMIZERS,
    arguments,
    attributes,
    optimizers,
)
from reports.bubbles_page import bubbles_page, bubbles_pictures
from reports.commands_page import commands_page
from reports.comparisons import memory, memory_picture, orders, schedules
from reports.explanation_page import explanation_files
from reports.fidelity_pages import fidelity_page, micro_benchmarks_page, products_page
from reports.figures_page import figures_page
from reports.gallery import GALLERY, SCENARIOS, TUTORIAL, gallery_page
from reports.graphcore_page import graphcore_page
from reports.measured_page import measured_files
from reports.outputs import write_outputs
from reports.programs_page import programs_page
from reports.published_schedules_page import published_schedules_page
from reports.scenario_page import scenario_page
from reports.stragglers_page import stragglers_page, stragglers_pictures
from reports.suggested_page import PICTURE, suggested_page, suggested_picture
from reports.sweep_page import sweep_page, sweep_pictures
from reports.teaching_page import teaching_page, teaching_pictures

ROOT = Path(__file__).parent.parent


def zooms() -> dict[str, bytes]:
    """Draw ramp-up, main phase and ramp-down of the tutorial's pipeline, which teach how to read the chart."""
    timeline = execute(load_job(SCENARIOS / "tutorial_step3_pipelining.yaml", TUTORIAL)).timeline
    return {
        f"tutorial-{phase}.png": picture(timeline, picture_window(timeline, ShownPart(phase=phase)), ".png")
        for phase in ("ramp-up", "main", "ramp-down")
    }


def options() -> str:
    """List Graphcore's pipeline options with their scenario keys and effects."""
    parts = [
        "# Graphcore's options of a pipeline\n\n"
        "Find here the scenario key for each option of Graphcore's API, and the effect of the option in ipusim. "
        "`python -m reports` makes the page from the table of options. An option without a key is refused, never "
        "silently ignored.\n"
    ]
    order = [*signature(pipeline).parameters]
    our_arguments = sorted(arguments(), key=lambda row: order.index(row.name))
    for title, result in (
        ("Arguments of pipelining_ops.pipeline", (*our_arguments, *OTHER_ARGUMENTS)),
        ("Attributes of IPUConfig", (*attributes(), *OTHER_ATTRIBUTES)),
        ("Optimizers", (*optimizers(), *OTHER_OPTIMIZERS)),
    ):
        rows = tuple(
            (f"`{entry.name}`", f"`{entry.scenario_key}`" if entry.scenario_key else "-", entry.effect)
            for entry in result
        )
        table = Table(title, ("Graphcore's name", "in a scenario", "what it does here"), rows)
        parts.append(f"## {title}\n\n{table_markdown(table)}")
    return "\n".join(parts)


def main(folder: Path) -> None:
    """Write all pages and pictures into ``folder``."""
    validation = validation_of()
    pages = {
        "gallery.md": gallery_page(),
        "commands.md": commands_page(),
        "scenario.md": scenario_page(),
        "teaching.md": teaching_page(),
        "options.md": options(),
        "figures.md": figures_page(),
        "graphcore_api.md": graphcore_page(),
        "programs.md": programs_page(),
        "schedules.md": schedules(),
        "bubbles.md": bubbles_page(),
        "stragglers.md": stragglers_page(),
        "selection_orders.md": orders(),
        "memory_by_schedule.md": memory(),
        "accumulation_sweep.md": sweep_page(),
        "suggested_plan.md": suggested_page(),
        "fidelity.md": fidelity_page(validation),
        "products.md": products_page(validation),
        "micro_benchmarks.md": micro_benchmarks_page(validation),
        "published_schedules.md": published_schedules_page(validated_schedules()),
    }
    pictures = {f"{entry.scenario}.png": entry.draw() for entry in GALLERY}
    pictures |= {name: content for name, content in validation.files().items() if name.endswith(".png")}
    pictures |= {"memory_by_schedule-compared.png": memory_picture(), **sweep_pictures(), **bubbles_pictures()}
    pictures |= {**stragglers_pictures(), **teaching_pictures()}
    pictures[PICTURE] = suggested_picture()
    files = {
        **pictures,
        **zooms(),
        **explanation_files(),
        **measured_files(),
        **{name: text.encode() for name, text in pages.items()},
    }
    for name, content in files.items():
        write_file(folder / name, content)


if __name__ == "__main__":
    if len(sys.argv) > 2 or (sys.argv[1:2] and sys.argv[1].startswith("-")):
        sys.exit("python -m reports [FOLDER]: writes every page and picture into FOLDER, by default reports")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "reports")
    if len(sys.argv) == 1:
        write_outputs()

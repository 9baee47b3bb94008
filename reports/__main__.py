"""Makes everything in this folder: ``python -m reports`` from the top of the repository, or into another folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

from ipusim.ipu.pipelining_ops import pipeline
from ipusim.render.tables import Table, comparison_table
from ipusim.runs.execute import execute
from ipusim.runs.request.graphcore_options import (
    OTHER_ARGUMENTS,
    OTHER_ATTRIBUTES,
    OTHER_OPTIMIZERS,
    arguments,
    attributes,
    optimizers,
)
from ipusim.scenario import load_job, load_request
from ipusim.study.compare import compare
from ipusim.study.folder import write_folder
from ipusim.study.micro_benchmarks import benchmark_table, benchmark_words, read_benchmarks
from ipusim.study.product_rows import MEASURED, read_rows
from ipusim.study.products import (
    MEASURED_ON,
    ValidatedRow,
    error_table,
    planner_rate_table,
    product_table,
    products_png,
    validate_products,
    words,
)
from ipusim.study.report import picture, picture_window
from ipusim.study.tables import order_table
from reports.gallery import GALLERY, SCENARIOS, SCHEDULES, TUTORIAL, gallery_page
from reports.scenario_page import scenario_page

ROOT = Path(__file__).parent.parent

#: Why single products are off, and what would tell.
RESIDUALS = """\
## Where it is off

- *n* = 64 on 1024 x 1024, 5 to 6 % too fast in both types: about 20 tiles sum up each output there. PopLibs chooses
  a split by its own estimate, which knows no cost of launches, so it may run another than the fastest one.
- *n* of 8192 and more on 1024 x 1024, 4 to 6 % too slow: with a higher `amp_ceiling` these were met, and smaller
  products too fast. PopLibs may lay out large batches so that less of the start of a pass is left.
- *n* from 1024 to 4096 on 4096 x 4096, 5 to 8 % too slow: the product runs in steps, as memory binds, and each step
  receives its rows anew. If rows stay in place between steps, that is less.
- Neighbours differ by sign (fp32, 1024 x 1024 at *n* of 512 and 128): values come off a picture, 2 to 3 % each.

The plan that PopLibs logs for one of these products, or a profile with its compute sets and exchanges, would settle
the first two.

What the unseen sizes test is the rates, not the form of the model: that was chosen with all rows in sight. So were
the chip (on a GC200 no rates within their ranges explain the rows), the type of partial sums, which operand the
matrix unit holds, that no row hides in the start of a pass, and how much a rate's own range weighs. With half that
weight `amp_ceiling` runs to 0.95, the edge of its range, as large products would have it: that rate is held, not found.

"""


#: Why micro-benchmarks are off, and what they say.
LINKS = """\
## What they say

- A superstep that exchanges a halo takes 3.7 to 5.2 us, of which its bytes are 0.3 to 0.5. The parts were profiled on
  16 IPUs; the fixed exchange is what is left of the rows in single precision. In half precision half the bytes came
  within 60 ns of the same time: the model, which gives the bytes their time on the links, is up to 5 % too fast there.
- Neighbours in an M2000 move 26.5 GB/s each way in Graphcore's own test, as many as 2 links at 83 % of 16 GB/s. Its
  4,096,000 kB are 1000 times 64 kB from each of 32 tiles of either IPU; whether more tiles would have used more links
  (there are 6 within a pair) nobody has published. What was measured is taken.
- A larger pod sums up gradients faster because its ends are joined. An all-reduce in a ring sends 2 (R - 1) / R of the
  buffer over each of its hops, R replicas. On the open rails of a POD16 a ring has to come back by the same links, so
  that it fills both directions of them; on the torus of a POD64 two rings go round in opposite directions, with half of
  the buffer each. That is (15 / 16) / (2 x 3 / 4) = 0.625 of the time. 16 IPUs of a POD64, or a POD64 that were open,
  take as long as a POD16 or longer.
- Small blocks and both sides at work make the host's figures a floor; Graphcore's rule of thumb for one of them is 46 %
  more.
"""


def markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [table.header, tuple("---" for _ in table.header), *table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def zooms() -> dict[str, bytes]:
    """Draw ramp-up, main phase and ramp-down of the picture that teaches reading the chart."""
    timeline = execute(load_job(SCENARIOS / "tutorial_step3_pipelining.yaml", TUTORIAL)).timeline
    return {
        f"tutorial-{phase}.png": picture(timeline, picture_window(timeline, phase=phase), ".png")
        for phase in ("ramp-up", "main", "ramp-down")
    }


def schedules() -> str:
    """Compare the schedules of the tutorial's figures."""
    rows = compare(load_request(SCENARIOS / "schedules_four_ipus.yaml"), SCHEDULES)
    table = markdown(comparison_table([row.result.summary for row in rows if row.result]))
    return f"# The schedules of the tutorial's figures\n\nFour stages, eight micro-batches, the free system.\n\n{table}"


def orders() -> str:
    """Compare the selection orders of a 16-IPU pipeline."""
    result = execute(load_job(SCENARIOS / "selection_orders.yaml"))
    text = "# Selection orders\n\nWhat the merged copies of a 16-stage pipeline on a C2 server take under each order.\n"
    return f"{text}\n{markdown(order_table(result.summary.selection_orders))}"


def options() -> str:
    """List Graphcore's options of a pipeline, and what each does here."""
    parts = [
        "# Graphcore's options of a pipeline\n\n"
        "Where a scenario says each, and what it does here. One without a key is refused: none is silently ignored.\n"
    ]
    order = [*signature(pipeline).parameters]
    ours = sorted(arguments(), key=lambda row: order.index(row.name))
    for title, found in (
        ("Arguments of pipelining_ops.pipeline", (*ours, *OTHER_ARGUMENTS)),
        ("Attributes of IPUConfig", (*attributes(), *OTHER_ATTRIBUTES)),
        ("Optimizers", (*optimizers(), *OTHER_OPTIMIZERS)),
    ):
        rows = tuple((f"`{each.name}`", f"`{each.said}`" if each.said else "-", each.effect) for each in found)
        table = Table(title, ("Graphcore's name", "in a scenario", "what it does here"), rows)
        parts.append(f"## {title}\n\n{markdown(table)}")
    return "\n".join(parts)


def products(validated: Sequence[ValidatedRow]) -> str:
    """Hold the cost of dense products against those measured on hardware."""
    rows = [each.row for each in validated]
    text = (
        "# Dense products, measured and modelled\n\n"
        "What `ipusim validate` prints: a search over the splits of a product over tiles, four rates, and products "
        "measured on hardware. Every pass of a scenario is priced by it.\n\n"
        "![TFLOP/s by shape, measured and modelled](products.png)\n\n"
    )
    text += f"{' '.join(words(rows, MEASURED_ON, fitted=True))}\n\n"
    tables = (error_table(validated), planner_rate_table(rows), product_table(validated))
    text += RESIDUALS
    return text + "\n".join(f"## {table.title}\n\n{markdown(table)}" for table in tables)


def micro_benchmarks() -> str:
    """Hold what IPUs and hosts do together against published figures."""
    rows = read_benchmarks()
    text = (
        "# Micro-benchmarks, published and simulated\n\n"
        "What `ipusim validate` prints: single supersteps, transfers, collectives and host copies, each priced as in a "
        "run.\n\n"
    )
    text += f"{markdown(benchmark_table(rows))}\n{LINKS}\n"
    return text + "".join(f"- {line}\n" for line in benchmark_words(rows))


def main(folder: Path) -> None:
    """Write every file into ``folder``."""
    validated = validate_products(read_rows(MEASURED), fitted=True)
    pages = {
        "gallery.md": gallery_page(),
        "scenario.md": scenario_page(),
        "options.md": options(),
        "schedules.md": schedules(),
        "selection_orders.md": orders(),
        "products.md": products(validated),
        "micro_benchmarks.md": micro_benchmarks(),
    }
    pictures = {f"{each.scenario}.png": each.draw() for each in GALLERY}
    pictures["products.png"] = products_png(validated)
    write_folder(folder, {**pictures, **zooms(), **{name: text.encode() for name, text in pages.items()}})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "reports")

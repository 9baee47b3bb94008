"""Page that compares a real run with its simulation: traces of torch's pipelines on this computer's cores."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of
from ipusim.app.render.tables import Table
from ipusim.app.replay.replay import PARTS, Replay, replay
from ipusim.app.study.result import table_markdown
from ipusim.base.units import format_seconds

#: Folder of recorded traces.
FOLDER: Final = Path(__file__).parent.parent / "tests" / "golden" / "torch_traces"
#: Run shown in full.
SHOWN: Final = "1F1B_2"


@cache
def _replayed(name: str) -> Replay:
    files = sorted(FOLDER.glob(f"{name}_rank*.json.gz"))
    with tempfile.TemporaryDirectory() as folder:
        return replay(stages_of(read_measured(files)), Path(folder), files)


def measured_files() -> dict[str, bytes]:
    """Return the page and its picture by name."""
    return {"measured.md": "\n".join(_page()).encode(), "measured.png": _replayed(SHOWN).files()["replay.png"]}


def _page() -> Iterator[str]:
    result = _replayed(SHOWN)
    step, parts, stages, *_, idle, path = (f"## {table.title}\n\n{table_markdown(table)}" for table in result.tables())
    yield "# A measured run, simulated\n"
    yield _HEAD
    yield f"`ipusim import tests/golden/torch_traces/{SHOWN}_rank*.json.gz --replay` prints the following.\n"
    yield from (f"{line}\n" for line in result.words())
    yield "![The measured step above the simulation of its plan](measured.png)\n"
    yield step
    yield _OF_PARTS
    yield parts
    yield stages
    yield _OF_IDLE
    yield idle
    yield path
    yield "## All schedules of torch\n"
    yield _OF_ALL
    yield table_markdown(_all())


def _all() -> Table:
    programs = json.loads((FOLDER / "programs.json").read_text())
    rows = []
    for name in sorted(programs, key=lambda name: name.rpartition("_")[::-1]):
        result = _replayed(name)
        cycles, hz = result.measured_run.timeline.makespan_cycles, result.measured_run.timeline.info.clock_hz
        shares = (f"{result.parts[part] / cycles:+.1%}" for part in PARTS)
        schedule, _, ranks = name.partition("_")
        times = (
            format_seconds(run.timeline.makespan_cycles / hz) for run in (result.measured_run, result.simulated_run)
        )
        rows.append((schedule, ranks, *times, *shares))
    return Table("", ("schedule", "ranks", "measured", "simulated", *PARTS), tuple(rows))


_HEAD: Final = """\
Judge here how well a simulation reproduces a real run: pipelines of torch 2.13, trained on the two cores of a shared
computer, with one thread per rank and gloo between ranks. `python -m reports` makes the page from traces in the
repository, recorded by hand with this [script](../tests/golden/write_torch_traces.py). Tests compare stages, orders and
counts of each trace with the recorded program.
"""
_OF_PARTS: Final = """\
The simulation uses the median times of all steps and free copies. The parts are added in the order of the table, with
a simulation after each addition. Each part is the additional time, and all parts sum to the difference. After the
last addition each pass has the measured length and delay, and each copy the median time of the route. The unexplained
rest comes from tensors that arrived earlier than the median.
"""
_OF_IDLE: Final = """\
The measured step is analysed like a simulated run. A rank waits for passes of another rank or for a tensor in transit;
if the rank could run the next pass and does not, it waits for the host.
"""
_OF_ALL: Final = """\
Shares refer to the measured step. Two ranks had both cores, with priority over other programs. Four ranks on two cores
wait for cores, visible as waits and jitter. Waits include Python's time between passes. The times say nothing about the
speed of torch.
"""

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
    found = _replayed(SHOWN)
    step, parts, stages, *_, idle, path = (f"## {table.title}\n\n{table_markdown(table)}" for table in found.tables())
    yield "# A measured run beside its simulation\n"
    yield _HEAD
    yield f"`ipusim import tests/golden/torch_traces/{SHOWN}_rank*.json.gz --replay` prints this.\n"
    yield from (f"{line}\n" for line in found.words())
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
        found = _replayed(name)
        cycles, hz = found.measured_run.timeline.makespan_cycles, found.measured_run.timeline.info.clock_hz
        shares = (f"{found.parts[part] / cycles:+.1%}" for part in PARTS)
        schedule, _, ranks = name.partition("_")
        times = (format_seconds(run.timeline.makespan_cycles / hz) for run in (found.measured_run, found.simulated_run))
        rows.append((schedule, ranks, *times, *shares))
    return Table("", ("schedule", "ranks", "measured", "simulated", *PARTS), tuple(rows))


_HEAD: Final = """\
Traces of torch 2.13, whose pipelines trained on the two cores of a shared computer, gloo between ranks of one thread
each. The [script](../tests/golden/write_torch_traces.py) ran by hand; stages, orders and counts of each trace are held
against the program that ran.
"""
_OF_PARTS: Final = """\
The simulation has the medians of all steps, and copies that take no time. The parts come in one upon the other, in
the order below, each simulated: what the run then takes more is the part's. So they add up to the difference. With all
of them every pass is as long and begins as late as it did, and a copy takes the median of its way: what is not
explained is of tensors that came sooner.
"""
_OF_IDLE: Final = """\
The step is a Timeline, as a simulated one: a rank waits for the passes of another one, for a tensor on its way, or for
its host, if it could run its next pass and does not.
"""
_OF_ALL: Final = """\
Shares are of the measured step. Two ranks had the two cores before any other program; four ranks on two cores always
wait for cores, which are waits and jitter. Waits also have Python's time between passes. These times say nothing of
torch.
"""

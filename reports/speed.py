"""Measure speed relative to bare SimPy: ``python -m reports.speed CHANGE [CHECKOUT]``, from the top of a checkout.

The command measures CHECKOUT, by default this checkout, adds a row with its commit and CHANGE to ``speed.csv``, and
writes ``speed.md``. Times are processor times of a command and its children, as other load disturbs processor time less
than elapsed time; one measure takes elapsed time. Quick commands run several times, alternating with the bare loop, and
the minimum counts.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ipusim.app.render.tables import Table
from ipusim.app.study.result import table_markdown
from ipusim.base.files import write_file
from tests.bench.scenarios import timed_stages

#: Folder of ``speed.csv`` and ``speed.md``.
FOLDER: Final = Path(__file__).parent
#: Time limit of a command, in seconds; slower commands have no number.
_LIMIT: Final = 300
#: Table entry of a failed measurement.
_NONE: Final = "-"

#: Bare loop: SimPy timeouts, as many as the passes and copies of 64 IPUs.
_BARE: Final = """
import simpy
env = simpy.Environment()
def process(times, cycles):
    for _ in range(times):
        yield env.timeout(cycles)
for _ in range(64):
    env.process(process(2 * 1024, 10))
for _ in range(2 * 63):
    env.process(process(2174, 7))
env.run()
"""
#: Program that lays out, prices and simulates 64 stages x 1024 micro-batches with all events.
_ENGINE: Final = """
from ipusim.hardware.build import build_system
from ipusim.model.profile import StageProfile
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.plans import price_and_run
shape = PlanShape(mapping=tuple(range(64)), micro_batches=1024)
profiles = tuple(StageProfile(f"s{i}", 1000 + i % 7, 2000, 100, 4096, 4096) for i in range(64))
system = build_system("pod64", mapping=shape.mapping)
price_and_run(plan_of(find("SCHEDULE"), shape), PipelineProgram(profiles, shape), system)
"""


@dataclass(frozen=True)
class Measure:
    """Measured command.

    Attributes:
        name: column header.
        about: description of the command.
        words: arguments of ``python``; ``{folder}`` stands for the results folder.
        rounds: number of runs.
        waited: whether to measure elapsed time, for commands that use several cores.
    """

    name: str
    about: str
    words: tuple[str, ...]
    rounds: int = 3
    waited: bool = False


def _command(*words: str) -> tuple[str, ...]:
    return ("-m", "ipusim", *words)


MEASURES: Final = (
    Measure(
        "lock-step",
        "64 stages x 1024 micro-batches, Grouped in lock-step: layout, prices and simulation of every event",
        ("-c", _ENGINE.replace("SCHEDULE", "grouped")),
    ),
    Measure(
        "point-to-point",
        "the same under 1F1B, point-to-point",
        ("-c", _ENGINE.replace("SCHEDULE", "1f1b")),
    ),
    Measure(
        "whole run",
        "`ipusim run` of 64 stages x 1024 micro-batches with stated memory, with all files",
        _command("run", "{folder}/long.yaml", "--out", "{folder}/long"),
    ),
    Measure(
        "waited",
        "elapsed time of the whole run, sensitive to other load on the machine",
        _command("run", "{folder}/long.yaml", "--out", "{folder}/long"),
        rounds=5,
        waited=True,
    ),
    Measure(
        "2^20",
        "`ipusim run` of 4 stages x 1,048,576 micro-batches, with all files",
        _command("run", "{folder}/longest.yaml", "--out", "{folder}/longest"),
    ),
    Measure(
        "sweep",
        "`ipusim sweep` of `schedules_four_ipus.yaml` over 200 counts, 40 to 8000, by one worker",
        _command(
            *("sweep", "scenarios/schedules_four_ipus.yaml", "--workers", "1", "--out", "{folder}/sweep"),
            *("--vary", "pipeline.gradient_accumulation_count=40..8000+40"),
        ),
        rounds=1,
    ),
    Measure(
        "suggest",
        "`ipusim suggest` of `bert_large.yaml`, ended after a minute at the latest, with or without a proof",
        _command("suggest", "scenarios/bert_large.yaml"),
        rounds=1,
    ),
    Measure(
        "training",
        "`ipusim run` of the tutorial's pipelining step, 20 steps with arithmetic",
        _command("run", "scenarios/tutorial_step3_pipelining.yaml", "--set", "steps=20", "--out", "{folder}/tutorial"),
    ),
    Measure("--help", "`ipusim --help`", _command("--help"), rounds=5),
)
#: Tried changes with too little effect for their added code.
TRIED: Final = (
    (
        "routes by scipy's csgraph",
        "0.23 s of imports without a loaded BLAS, against 0.15 s for networkx and none for the present search",
    ),
)


def _seconds(
    words: Iterable[str], checkout: Path, environment: Mapping[str, str], waited: bool = False
) -> float | None:
    """Return the processor time of Python with ``words`` and its children, or the elapsed time if ``waited``.

    None after a failure or timeout.
    """
    before, start = os.times(), time.perf_counter()
    try:
        command = [sys.executable, *words]
        subprocess.run(command, cwd=checkout, env=environment, capture_output=True, timeout=_LIMIT, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    if waited:
        return time.perf_counter() - start
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def measured(checkout: Path, measures: Iterable[Measure] = MEASURES) -> dict[str, float | None]:
    """Return the times of measures in a checkout, and of the bare loop.

    Keys are the names of the measures, and ``bare``.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "long.yaml").write_text(timed_stages("pod64", 64, 1024))
        (folder / "longest.yaml").write_text(timed_stages("m2000", 4, 1 << 20, memory=False))
        # Compiled modules are cached, as in an installation, and separately for each checkout.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPATH": str(checkout), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        seconds: dict[str, float | None] = {"bare": None}

        def keep_fastest(name: str, words: Iterable[str], waited: bool = False) -> None:
            measured_seconds = _seconds(words, checkout, environment, waited)
            seconds[name] = min(
                (entry for entry in (seconds.get(name), measured_seconds) if entry is not None), default=None
            )

        for measure in measures:
            words = [word.replace("{folder}", str(folder)) for word in measure.words]
            if measure.rounds > 1:
                _seconds(words, checkout, environment)  # compile the modules
            for _ in range(measure.rounds):
                keep_fastest("bare", ("-c", _BARE))
                keep_fastest("import simpy", ("-c", "import simpy"))
                keep_fastest(measure.name, words, measure.waited)
        imports = seconds.pop("import simpy")
        if seconds["bare"] is not None and imports is not None:
            seconds["bare"] -= imports
        return seconds


def row(change: str, commit: str, seconds: Mapping[str, float | None]) -> dict[str, str]:
    """Return a commit's row of ``speed.csv``: bare seconds, and ratios to them."""
    bare = seconds["bare"]
    if not bare:
        raise ValueError("expected the bare loop to take time, got none")
    ratios = {
        name: _NONE if measured_seconds is None else f"{measured_seconds / bare:.3g}"
        for name, measured_seconds in seconds.items()
        if name != "bare"
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "commit": commit, "change": change, "machine": machine, "bare": f"{bare:.3f} s"} | ratios


def speed_page(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the table of speeds as Markdown."""
    names = ("date", "commit", "bare", *(measure.name for measure in MEASURES), "change")
    cells = tuple(tuple(row.get(name) or _NONE for name in names) for row in rows)
    machines = ", then ".join(dict.fromkeys(row["machine"] for row in rows))
    parts = (
        "# How fast it is\n\n"
        "Compare here the speed of ipusim between commits. `python -m reports.speed CHANGE [CHECKOUT]` measures a "
        "checkout and adds a row; `python -m reports` leaves the page alone.\n\n"
        "`bare` is the processor time of a SimPy loop with as many timeouts as 64 stages x 1024 micro-batches have "
        "passes and copies. Other columns are processor times in multiples of `bare`, with Python's start and imports, "
        "summed over cores. Other load on the machine changed times by up to a quarter, as rows without a change of "
        "the engine show. A `-` means a refusal, or more than five minutes. "
        f"Measured on {machines}.\n",
        table_markdown(Table("", names, cells)),
        "".join(f"- **{measure.name}**: {measure.about}.\n" for measure in MEASURES),
        "## Tried without success\n\n" + "".join(f"- {tried_change}: {effect}.\n" for tried_change, effect in TRIED),
    )
    return "\n".join(parts)


def read_rows(text: str) -> list[dict[str, str]]:
    """Parse the rows of ``speed.csv``."""
    return list(csv.DictReader(io.StringIO(text)))


def rows_csv(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the text of ``speed.csv``."""
    text = io.StringIO()
    names = ("date", "commit", "change", "machine", "bare", *(measure.name for measure in MEASURES))
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore", restval=_NONE)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main(change: str, checkout: Path) -> None:
    """Measure a checkout, and write the row and the page."""
    command = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    added = row(change, commit, measured(checkout))
    table = FOLDER / "speed.csv"
    rows = [*(read_rows(table.read_text()) if table.exists() else ()), added]
    write_file(table, rows_csv(rows).encode())
    write_file(FOLDER / "speed.md", speed_page(rows).encode())


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__.partition("\n")[0] if __doc__ else None)
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".").resolve())

"""Read published throughputs from CSV: the package's rows, and user rows with the same columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ipusim.api import hardware
from ipusim.base.csv_table import Columns, CsvRow, checked_rows, wrong_positive, wrong_whole
from ipusim.base.near_names import did_you_mean

_FOLDER: Final = Path(__file__).parent / "measured"
#: CSV file of the package's rows.
PUBLISHED: Final = _FOLDER / "throughputs.csv"
#: Folder of the package's models.
MODELS: Final = _FOLDER / "models"
#: Columns of whole numbers.
_WHOLE_COLUMNS: Final = ("ipus", "micro_batch", "count")
#: Columns without which a file is refused.
_REQUIRED_COLUMNS: Final = ("model", "machine", *_WHOLE_COLUMNS, "items_per_s")
#: All columns.
COLUMNS: Final = (*_REQUIRED_COLUMNS, "framework", "items", "use", "settings", "source")
#: Values of the column ``use``; :class:`ThroughputRow` explains them.
_USES: Final = ("held", "fitted", "incomplete", "small", "input", "pods")
#: Keys that settings of a row cannot change, with the column or simulation that sets each key.
_COLUMN_KEYS: Final = {
    "system.name": "column machine",
    "system.auto_select_ipus": "column ipus",
    "system.host.framework": "column framework",
    "pipeline.micro_batch_size": "column micro_batch",
    "pipeline.gradient_accumulation_count": "column count",
    "steps": "the simulation, which is of one weight update",
    "numerics": "the simulation, which is of time only",
}
#: Maximum number of rows of a file.
_MOST_ROWS: Final = 10_000
#: Maximum number of bytes of a file.
_MOST_BYTES: Final = 2**20
#: Largest whole number in a file.
_LARGEST_NUMBER: Final = 10**7


@dataclass(frozen=True)
class ThroughputRow:
    """Published throughput of a training.

    Attributes:
        model: a name of the package's models, or the path of a scenario.
        scenario: the model's scenario file.
        framework: framework with host time between session runs; empty for none.
        machine: system, a value of ``system.name``.
        ipus: size of the device; IPUs beyond the model's stages form replicas.
        micro_batch: samples per micro-batch.
        count: micro-batches per replica and weight update (gradient accumulation), also a number that the schedule
            would refuse, because time is linear in it.
        items: published items per sample, such as sequences in a pack.
        items_per_s: published throughput; for a range the geometric mean of the ends.
        band: both ends of a published range, from differing editions of a program; None for a single figure.
        use: ``fitted`` if rates are fitted to the row; ``incomplete`` if the scenario lacks a part of the published
            program, which the scenario's comments name; ``small`` for networks so small that the time between layers
            counts as much as the layers; ``input`` if other work of the host, such as input or checkpoints, may be the
            bottleneck; ``pods`` for trainings on several pods whose scenario lacks an exchange between pods; else
            ``held``, held out of the fit.
        settings: further values of keys of the scenario, as ``--set`` takes them.
        source: publisher of the throughput.
        position: line of the row, as ``file:line``; empty for a row that is not from a file.
    """

    model: str
    scenario: Path
    framework: str
    machine: str
    ipus: int
    micro_batch: int
    count: int
    items: float
    items_per_s: float
    band: tuple[float, float] | None = None
    use: str = "held"
    settings: tuple[str, ...] = ()
    source: str = ""
    position: str = field(default="", compare=False)

    def ratio(self, items_per_s: float) -> float:
        """Return a simulated throughput over the published throughput; 1 within a published range."""
        low, high = self.band or (self.items_per_s, self.items_per_s)
        return items_per_s / min(max(items_per_s, low), high)

    def relative_error(self, items_per_s: float) -> float:
        """Return (simulated - published) / published of a simulated throughput; 0 within a published range."""
        return self.ratio(items_per_s) - 1

    @property
    def simulation_key(self) -> tuple[Path, tuple[str, ...]]:
        """Key shared by rows with equal simulation: scenario and overrides."""
        return self.scenario, self.overrides

    @property
    def overrides(self) -> tuple[str, ...]:
        """Overrides of the scenario's options for this row, without the count."""
        return (
            f"system.name={self.machine}",
            f"system.host.framework={self.framework or 'null'}",
            f"system.auto_select_ipus={self.ipus}",
            f"pipeline.micro_batch_size={self.micro_batch}",
            *self.settings,
        )


def read_throughputs(path: Path) -> tuple[ThroughputRow, ...]:
    """Return the rows of a CSV file with the columns of :data:`COLUMNS` in any order; other columns are ignored.

    ``model`` is a name of the package's models (a file of :data:`MODELS`), or a scenario path relative to the file's
    folder. ``settings`` are values such as ``pipeline.schedule=gpipe``, separated by semicolons. Without ``framework``
    no host time counts; without ``items`` a sample is a single item. Raises FileError with every wrong line and column,
    and for a file without rows; OSError for an unreadable file.
    """
    columns, folder = Columns(COLUMNS, _REQUIRED_COLUMNS, allows_others=True), path.parent
    rows = checked_rows(path, columns, _MOST_BYTES, _MOST_ROWS, lambda row: _problems(row, folder))
    return tuple(_row(row, folder) for row in rows)


def model_names() -> list[str]:
    """Return the names of the package's models."""
    return sorted(file.stem for file in MODELS.glob("*.yaml"))


def _scenario(model: str, folder: Path) -> Path:
    return MODELS / f"{model}.yaml" if model in model_names() else folder / model


def _row(row: CsvRow, folder: Path) -> ThroughputRow:
    cells = row.cells
    low, high = _band(cells["items_per_s"])
    return ThroughputRow(
        model=cells["model"],
        scenario=_scenario(cells["model"], folder),
        framework=cells.get("framework", ""),
        machine=cells["machine"],
        ipus=int(cells["ipus"]),
        micro_batch=int(cells["micro_batch"]),
        count=int(cells["count"]),
        items=float(cells.get("items") or 1),
        items_per_s=math.sqrt(low * high),
        band=(low, high) if low < high else None,
        use=cells.get("use", "") or "held",
        settings=_settings(cells),
        source=cells.get("source", ""),
        position=row.position,
    )


def _wrong_band(text: str) -> Iterator[str]:
    """Yield the errors of a throughput: a number, or a range such as ``100-120``."""
    ends = _ends(text)
    if len(ends) == 2 and all(ends):
        problems = [problem for end in ends for problem in wrong_positive("items_per_s", end)]
        if problems or float(ends[0]) > float(ends[1]):
            yield from problems or [
                f"column items_per_s: expected a range such as 100-120, the smaller value first, got {text!r}"
            ]
    else:
        yield from wrong_positive("items_per_s", text)


def _band(text: str) -> tuple[float, float]:
    """Return both ends of a range, equal for a single number."""
    ends = [float(end) for end in _ends(text)]
    return ends[0], ends[-1]


def _ends(text: str) -> list[str]:
    """Return the ends of a range, or a single number as one end; a dash after ``e`` belongs to an exponent."""
    return [end.strip() for end in re.split("(?<![eE])-", text)]


def _settings(cells: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(setting.strip() for setting in cells.get("settings", "").split(";") if setting.strip())


def _problems(row: CsvRow, folder: Path) -> Iterator[str]:
    """Yield the errors of a row's cells."""
    cells = row.cells
    if not _scenario(cells["model"], folder).is_file():
        names = model_names()
        hint = did_you_mean(cells["model"], names)
        yield f"column model: expected {', '.join(names)} or the path of a scenario, got {cells['model']!r}{hint}"
    if cells["machine"] not in hardware.MACHINES:
        hint = did_you_mean(cells["machine"], list(hardware.MACHINES))
        yield f"column machine: expected a system such as m2000 or bow_pod16, got {cells['machine']!r}{hint}"
    framework = cells.get("framework", "")
    if framework and framework not in hardware.FRAMEWORKS:
        yield f"column framework: expected {', '.join(hardware.FRAMEWORKS)} or nothing, got {framework!r}"
    for setting in _settings(cells):
        key = setting.partition("=")[0].strip()
        if key in _COLUMN_KEYS:
            yield f"column settings: expected keys not given by {_COLUMN_KEYS[key]}, got {setting!r}"
    use = cells.get("use", "")
    if use and use not in _USES:
        yield f"column use: expected {', '.join(_USES)} or nothing, got {use!r}"
    for name in _WHOLE_COLUMNS:
        yield from wrong_whole(name, cells[name], _LARGEST_NUMBER)
    yield from _wrong_band(cells["items_per_s"])
    if text := cells.get("items", ""):
        yield from wrong_positive("items", text)

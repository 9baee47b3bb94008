"""Show a run folder in a notebook."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from ipusim.api import analysis
from ipusim.app.explain.explanation import explain
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.explanation import Explanation
from ipusim.app.notebook.shown import RunView
from ipusim.app.run_folder.opened import job_behind
from ipusim.app.run_folder.stored import read_run
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file, open_run_file, read_arrays, read_run_file

if TYPE_CHECKING:
    import pandas as pd

#: Maximum size in bytes of losses.
_MOST_LOSSES_BYTES: Final = 1 << 28
#: Maximum size in bytes of a line of losses.
_LONGEST_LINE: Final = 1 << 8
#: Maximum size in bytes of unpacked weights or outputs.
_MOST_ARRAY_BYTES: Final = 1 << 30


class RunFolder(RunView):
    """Files of a run.

    Attributes:
        stored: the stored run.
        folder: path of the folder.
        summary: content of ``summary.json``.

    Raises:
        FileError: for a folder without a run, and for malformed files.

    Example:
        >>> import ipusim, tempfile
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     loaded = ipusim.load(ipusim.run(options).save(folder))
        >>> loaded.summary["makespan_cycles"]
        15000
    """

    def __init__(self, folder: Path) -> None:
        """Read ``folder``.

        Raises:
            FileError: for a folder without a run, and for malformed files.
            TimelineError: for a damaged Timeline.
            OSError: for unreadable files.
        """
        stored_run = read_run(folder)
        losses = folder / "losses.csv"
        losses_text = read_run_file(losses, _MOST_LOSSES_BYTES) if has_run_file(losses) else None
        self.stored = stored_run
        self.folder = stored_run.folder
        self.summary = stored_run.summary
        super().__init__(stored_run.timeline, stored_run.times, stored_run.summary, losses_text)
        self.weights, self.outputs = (_arrays(folder / name) for name in ("weights.npz", "outputs.npz"))

    @check_types
    def explain(self, execution: int | None = None, *, trust: bool = False) -> Explanation:
        """Explain the run's time like :meth:`ipusim.Run.explain`.

        Gains of changes are known if the folder holds the run's scenario.

        Args:
            execution: number of the execution, from 0; by default the whole run.
            trust: whether to run Python named in the scenario, and read files outside the folder.

        Returns:
            The explanation, which a notebook shows.

        Raises:
            OptionError: for an unknown execution.
        """
        return Explanation(explain(self.timeline, job_behind(self.folder, trust=trust), execution))

    def losses(self) -> pd.DataFrame:
        """Return the losses like :meth:`ipusim.Run.losses`; raises FileError for a malformed file."""
        try:
            if max(map(len, self._losses.splitlines()), default=0) > _LONGEST_LINE:
                raise FileError(f"a line of more than {_LONGEST_LINE} bytes")
            return super().losses()
        except (ValueError, OverflowError, csv.Error) as error:
            path = self.folder / "losses.csv"
            raise FileError(f"{path}: expected the losses of a run, got another format: {error}") from None

    def _curves(self) -> Sequence[analysis.MemoryCurve]:
        return self.stored.curves


@check_types
def load(folder: Path | str) -> RunFolder:
    """Return the run in ``folder``, written by ``ipusim run`` or :meth:`ipusim.Run.save`.

    Args:
        folder: folder with the files of the run.

    Returns:
        The run, with its Timeline, numbers, losses, weights and outputs.

    Raises:
        FileError: for a folder without a run, and for malformed files.
        TimelineError: for a damaged Timeline.
        OSError: for unreadable files.

    Example:
        >>> import ipusim, tempfile
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +NORMALIZE_WHITESPACE
        ...     ipusim.load(ipusim.run(options).save(folder))
        <RunFolder of pipeline, grouped in lock-step: 11.28 us per weight update, 354,667 samples/s,
        bubble 20.0% (idle / (IPUs x makespan))>
    """
    return RunFolder(Path(folder))


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not has_run_file(path):
        return {}
    try:
        with open_run_file(path) as file:
            return read_arrays(file, most_bytes=_MOST_ARRAY_BYTES)
    except FileError as error:
        raise FileError(f"{path}: expected the arrays of a run, got another format: {error}") from error

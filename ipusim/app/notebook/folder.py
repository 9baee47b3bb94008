"""A run folder that shows itself in a notebook."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from ipusim.api import analysis
from ipusim.app.explain.explanation import explain
from ipusim.app.notebook.checked import checked
from ipusim.app.notebook.explanation import Explanation
from ipusim.app.notebook.shown import Shown
from ipusim.app.run_folder.opened import job_behind
from ipusim.app.run_folder.stored import read_run
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file, open_run_file, read_arrays, read_run_file

if TYPE_CHECKING:
    import pandas as pd

#: Most bytes of the losses of a run, and of a line of them; and of its weights or outputs, unpacked.
_MOST_LOSSES_BYTES: Final = 1 << 28
_LONGEST_LINE: Final = 1 << 8
_MOST_ARRAY_BYTES: Final = 1 << 30


class RunFolder(Shown):
    """The files of a run.

    Attributes:
        stored: the run, as it was read.
        folder: where it lies.
        summary: what ``summary.json`` says.

    Raises:
        FileError: for what is no run folder, and for a file in it that is not what it should be.

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
        """Read ``folder``; raises as :func:`load` does."""
        stored = read_run(folder)
        losses = folder / "losses.csv"
        losses_text = read_run_file(losses, _MOST_LOSSES_BYTES) if has_run_file(losses) else None
        self.stored = stored
        self.folder = stored.folder
        self.summary = stored.summary
        super().__init__(stored.timeline, stored.times, stored.summary, losses_text)
        self.weights, self.outputs = (_arrays(folder / name) for name in ("weights.npz", "outputs.npz"))

    @checked
    def explain(self, execution: int | None = None, *, trust: bool = False) -> Explanation:
        """Say why the run takes as long as it does, as :meth:`ipusim.Run.explain` does.

        What changes would give is known where the folder holds the run's scenario.

        Args:
            execution: its number, from 0; by default the whole run.
            trust: whether Python that the scenario names runs, and files are read that lie outside of the folder.

        Returns:
            The explanation, which a notebook shows.

        Raises:
            TimelineError: for an execution that the run has not.
        """
        return Explanation(explain(self.timeline, job_behind(self.folder, trust=trust), execution))

    def losses(self) -> pd.DataFrame:
        """Return the losses as :meth:`ipusim.Run.losses` does; raises FileError for a file that does not hold them."""
        try:
            if max(map(len, self._losses.splitlines()), default=0) > _LONGEST_LINE:
                raise FileError(f"a line of more than {_LONGEST_LINE} bytes")
            return super().losses()
        except (ValueError, OverflowError, csv.Error) as error:
            path = self.folder / "losses.csv"
            raise FileError(f"{path}: expected the losses of a run, found something else: {error}") from None

    def _curves(self) -> Sequence[analysis.MemoryCurve]:
        return self.stored.curves


@checked
def load(folder: Path | str) -> RunFolder:
    """Return the run that ``ipusim run`` or :meth:`ipusim.Run.save` has written into ``folder``.

    Args:
        folder: where the files of the run lie.

    Returns:
        The run, with its Timeline, numbers, losses, weights and outputs.

    Raises:
        FileError: for what is no run folder, and for a file that is not what it should be.
        TimelineError: for a damaged Timeline.
        OSError: for what cannot be read.

    Example:
        >>> import ipusim, tempfile
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ipusim.load(ipusim.run(options).save(folder))
        <RunFolder of pipeline: 11.28 us per weight update, 354,667 samples/s, bubble 20.0% (idle / (IPUs x makespan))>
    """
    return RunFolder(Path(folder))


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not has_run_file(path):
        return {}
    try:
        with open_run_file(path) as file:
            return read_arrays(file, most_bytes=_MOST_ARRAY_BYTES)
    except FileError as error:
        raise FileError(f"{path}: expected the arrays of a run, found something else: {error}") from error

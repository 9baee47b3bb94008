"""A run folder, read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from ipusim.analysis.memory import MemoryCurve
from ipusim.analysis.run_times import run_times
from ipusim.errors import FileError
from ipusim.files import open_file, read_arrays
from ipusim.notebook.explanation import Explanation
from ipusim.notebook.shown import Shown
from ipusim.study.explanation import explain
from ipusim.study.opened import job_behind
from ipusim.study.memory_file import read_memory
from ipusim.timeline.timeline import Timeline

#: What every run folder holds.
_ALWAYS: Final = ("summary.json", "timeline.npz")
#: What ``summary.json`` says that is shown: of each key the type, and of a mapping those of its keys.
_SAID: Final = {"description": str, "notes": list, "memory": dict}
_SAID_OF_MEMORY: Final = {"fits": bool, "verdict": str, "ipus": list}


class RunFolder(Shown):
    """What a run has written.

    Attributes:
        folder: where it lies.
        summary: what ``summary.json`` says.
    """

    def __init__(self, folder: Path) -> None:
        """Read ``folder``; raises as :func:`load` does."""
        if not folder.is_dir():
            raise FileError(f"{folder}: expected a run folder, got {'a file' if folder.exists() else 'no such folder'}")
        if missing := [name for name in _ALWAYS if not (folder / name).exists()]:
            raise FileError(
                f"{folder}: expected a run folder, with {' and '.join(_ALWAYS)}, got none with {' or '.join(missing)}"
            )
        timeline = Timeline.load(folder / "timeline.npz")
        losses = folder / "losses.csv"
        self.folder = folder
        self.summary = _summary(folder / "summary.json")
        super().__init__(timeline, run_times(timeline), self.summary, losses.read_bytes() if losses.exists() else None)
        self.weights, self.outputs = (_arrays(folder / name) for name in ("weights.npz", "outputs.npz"))

    def explain(self, execution: int | None = None) -> Explanation:
        """Say why the run takes as long as it does, as :meth:`ipusim.Run.explain` does.

        What changes would give is known where the folder holds the run's scenario.
        """
        return Explanation(explain(self.timeline, job_behind(self.folder), execution))

    def _curves(self) -> Sequence[MemoryCurve]:
        path = self.folder / "memory.npz"
        return read_memory(path, len(self.timeline.info.ipus)) if path.exists() else ()


def load(folder: Path | str) -> RunFolder:
    """Return the run that ``ipusim run`` or :meth:`ipusim.Run.save` has written into ``folder``.

    Raises FileError for what is no run folder and for a file that is not what it should be, TimelineError for a
    damaged Timeline, and OSError for what cannot be read.
    """
    return RunFolder(Path(folder))


def _summary(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        content = file.read()
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: expected the summary of a run, got what is no JSON: {error}") from None
    for keys, found in ((_SAID, said), (_SAID_OF_MEMORY, said.get("memory") if isinstance(said, dict) else None)):
        if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in keys.items()):
            raise FileError(f"{path}: expected the summary of a run, got JSON without {', '.join(keys)} as it has them")
    return dict(said)


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not path.exists():
        return {}
    try:
        with open_file(path) as file:
            return read_arrays(file)
    except FileError as error:
        raise FileError(f"{path}: expected the arrays of a run, found something else: {error}") from error

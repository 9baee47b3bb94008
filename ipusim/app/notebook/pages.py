"""Run folders as one HTML page, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim.app.notebook.checked import checked
from ipusim.app.page.page import write_page


@checked
def report(folders: Path | str | Sequence[Path | str], out: Path | str | None = None, *, play: bool = False) -> Path:
    """Write one page of the runs in these folders, by default into the first; return where it lies.

    With ``play`` it plays the first execution of one run, or of two on one clock.

    Raises FileError for what is no run folder, TimelineError for a damaged Timeline, OptionError for more than two runs
    to play, and OutputError for a page that cannot be written and for an execution that cannot be played.
    """
    paths = [Path(folders)] if isinstance(folders, Path | str) else list(map(Path, folders))
    return write_page(paths, None if out is None else Path(out), play=play)

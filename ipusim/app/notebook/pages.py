"""Run folders as one HTML page, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim.app.notebook.checked import checked
from ipusim.app.page.page import write_page


@checked
def report(folders: Path | str | Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write one page of the runs in these folders, by default into the first; return where it lies.

    Raises FileError for what is no run folder, TimelineError for a damaged Timeline, and OutputError for a page that
    cannot be written.
    """
    paths = [Path(folders)] if isinstance(folders, Path | str) else list(map(Path, folders))
    return write_page(paths, None if out is None else Path(out))

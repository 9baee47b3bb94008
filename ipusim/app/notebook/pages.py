"""Write run folders as a single HTML page, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim.app.notebook.checked import check_types
from ipusim.app.page.page import write_page


@check_types
def report(
    folders: Path | str | Sequence[Path | str], out: Path | str | None = None, *, play: bool = False, title: str = ""
) -> Path:
    """Write a page of runs, by default into their first folder.

    Args:
        folders: run folders, as written by ``ipusim run`` and :meth:`ipusim.Run.save`; one, or a list.
        out: file of the page; by default ``report.html`` in the first folder.
        play: whether the page plays the first execution of one run, or those of two runs at the same time.
        title: headline of the page; empty for the runs' names, schedules and systems.

    Returns:
        The file of the page.

    Raises:
        FileError: for a folder without a run.
        TimelineError: for a damaged Timeline.
        OptionError: for more than two runs to play.
        OutputError: for an unwritable page, and for an execution that cannot be played.

    Example:
        >>> import ipusim, tempfile
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ipusim.report(ipusim.run(options).save(folder)).name
        'report.html'
    """
    paths = [Path(folders)] if isinstance(folders, Path | str) else list(map(Path, folders))
    return write_page(paths, None if out is None else Path(out), play=play, title=title)

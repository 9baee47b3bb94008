"""The page that plays an execution of each of one or two run folders, with their titles and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ipusim.app.render.page.page import PLAY, html_page
from ipusim.app.render.page.played import played_data
from ipusim.app.render.page.run import tables_of_looks
from ipusim.app.run_folder.stored import StoredRun, read_run
from ipusim.app.run_folder.versions import versions
from ipusim.base.errors import FileError

#: Runs that one page plays: more would be too small to read.
MOST_PLAYED: Final = 2


def play_page(folders: Sequence[Path]) -> bytes:
    """Return the page that plays the first execution of the runs in ``folders``; the same runs give the same bytes.

    Raises FileError for what is no run folder and for a file that is not what it should be, TimelineError for a
    damaged Timeline, OutputError for an execution that cannot be played, and OSError for what cannot be read.
    """
    return played([read_run(folder) for folder in folders])


def played(stored: Sequence[StoredRun]) -> bytes:
    """Return the page that plays the first execution of each run, one above the other on one clock.

    Raises as :func:`play_page` does.
    """
    runs = (played_data(title_of(run, stored), run.timeline, _stash_bytes(run)) for run in stored)
    data, contents = zip(*runs, strict=True)
    title = ", ".join(dict.fromkeys(f"{run.timeline.info.name} on {run.timeline.info.system}" for run in stored))
    page = {"title": title, "made": " ".join(versions()), **tables_of_looks(), "runs": data}
    return html_page(title, page, contents, PLAY)


def title_of(run: StoredRun, runs: Sequence[StoredRun]) -> str:
    """Return the schedule of a run with its sync mode, and what else runs differ in."""
    info, infos = run.timeline.info, [other.timeline.info for other in runs]
    title = info.order_and_sync
    if len({other.name for other in infos}) > 1:
        title = f"{info.name}: {title}"
    if len({other.system for other in infos}) > 1:
        title = f"{title} on {info.system}"
    if len({other.count for other in infos}) > 1:
        title = f"{title}, {info.count:,} micro-batches"
    return title


def _stash_bytes(run: StoredRun) -> tuple[int, ...] | None:
    """Return the bytes that each stage saves of a micro-batch; None where the stages do not say it."""
    if not run.describes_memory:
        return None
    with run.as_written():
        sizes = tuple(int(stage["kept_bytes"]) for stage in run.summary["memory"]["stages"])
    if len(sizes) != len(run.timeline.info.stages):
        raise FileError(
            f"{run.folder / 'summary.json'}: expected what each stage keeps, got that of {len(sizes)} stages"
        )
    return sizes

"""Player page: an execution of one run folder, or of two."""

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

#: Most runs on a page: more would be illegibly small.
MOST_PLAYED: Final = 2


def play_page(folders: Sequence[Path]) -> bytes:
    """Return the player page of first executions, for the runs in ``folders``.

    Equal runs give equal bytes. Raises FileError for a path without a run and for malformed files, TimelineError for a
    damaged Timeline, OutputError for an execution that cannot be played, and OSError for unreadable files.
    """
    return player_page([read_run(folder) for folder in folders])


def player_page(folders: Sequence[StoredRun]) -> bytes:
    """Return the player page: first executions of runs on a common clock, one below the other.

    Raises as :func:`play_page` does.
    """
    runs = (played_data(title_of(run, folders), run.timeline, _stash_bytes(run)) for run in folders)
    data, contents = zip(*runs, strict=True)
    title = ", ".join(dict.fromkeys(f"{run.timeline.info.name} on {run.timeline.info.system}" for run in folders))
    page = {"title": title, "made": " ".join(versions()), **tables_of_looks(), "runs": data}
    return html_page(title, page, contents, PLAY)


def title_of(run: StoredRun, runs: Sequence[StoredRun]) -> str:
    """Return a run's schedule and sync mode, with further differences between runs."""
    info, infos = run.timeline.info, [item.timeline.info for item in runs]
    title = info.order_and_sync
    if len({info.name for info in infos}) > 1:
        title = f"{info.name}: {title}"
    if len({info.system for info in infos}) > 1:
        title = f"{title} on {info.system}"
    if len({info.count for info in infos}) > 1:
        title = f"{title}, {info.count:,} micro-batches"
    return title


def _stash_bytes(run: StoredRun) -> tuple[int, ...] | None:
    """Return the bytes that stages keep for a micro-batch; None if unknown."""
    if not run.describes_memory:
        return None
    with run.as_written():
        sizes = tuple(int(stage["kept_bytes"]) for stage in run.summary["memory"]["stages"])
    if len(sizes) != len(run.timeline.info.stages):
        raise FileError(
            f"{run.folder / 'summary.json'}: expected the memory of every stage, got the memory of {len(sizes)} stages"
        )
    return sizes

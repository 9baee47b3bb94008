"""A folder of results, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from ipusim.errors import OutputError


def check_folder(folder: Path) -> None:
    """Refuse a folder that results cannot go to, before they are computed; raises OutputError."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: expected a folder for the results, got a file; name another")
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"{folder}: cannot be written, as {above} takes no files; name another place")


def write_folder(folder: Path, files: Mapping[str, bytes], stale: Collection[str] = ()) -> None:
    """Write ``files`` (name to content) into ``folder``, replacing files of the same names and no others.

    Files named in ``stale`` that are not written now are removed: they are another run's.

    Everything is written beside the folder first and moved into place, one file
    after the other, when all of it lies on disk, so that a full disk leaves the
    folder as it was and no file is ever half there. Raises OutputError naming the path that cannot be written.
    """
    check_folder(folder)
    in_the_way = next((folder / name for name in files if (folder / name).is_dir()), None)
    if in_the_way is not None:
        raise OutputError(
            f"{in_the_way}: expected a place for a file, got a folder; name another folder for the results"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as waiting:
            for name, content in files.items():
                (Path(waiting) / name).write_bytes(content)
            folder.mkdir(exist_ok=True)
            for name in set(stale) - files.keys():
                (folder / name).unlink(missing_ok=True)
            for name in files:
                os.replace(Path(waiting) / name, folder / name)  # noqa: PTH105 - atomic on one file system
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror or error}; name another place") from error


def write_file(path: Path, content: bytes) -> None:
    """Write one file whole or not at all; raises OutputError naming the path that cannot be written."""
    write_folder(path.parent, {path.name: content})

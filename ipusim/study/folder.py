"""A folder of results, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ipusim.errors import OutputError


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write ``files`` (name to content) into ``folder``, replacing files of the same names and no others.

    Everything is written beside the folder first and moved into place when all
    of it lies on disk, so that a full disk or an interruption leaves the folder
    as it was. Raises OutputError naming the path that cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as waiting:
            for name, content in files.items():
                (Path(waiting) / name).write_bytes(content)
            folder.mkdir(exist_ok=True)
            for name in files:
                os.replace(Path(waiting) / name, folder / name)  # noqa: PTH105 - atomic on one file system
    except OSError as error:
        where = error.filename2 or error.filename or folder
        raise OutputError(f"cannot write {where}: {error.strerror}") from error


def write_file(path: Path, content: bytes) -> None:
    """Write one file whole or not at all; raises OutputError naming the path that cannot be written."""
    write_folder(path.parent, {path.name: content})

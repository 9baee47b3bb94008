"""Checkpoints on disk: an archive of arrays for each, and the list of checkpoints, the latest first.

The list is a text as TensorFlow writes it, in a file called ``checkpoint``. A checkpoint is known by its prefix: its
path without the ending.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from ipusim.api import Array
from ipusim.base.errors import FileError, ProgramError
from ipusim.base.files import archive_of, array_names, open_file, read_arrays, read_up_to, resolve, write_file

#: Ending of an archive's name.
_ENDING: Final = ".npz"
#: The list, unless another name is given.
LIST: Final = "checkpoint"
#: Most bytes that are read of a list.
_LIST_BYTES: Final = 1 << 20
_LINE: Final = re.compile(r'(all_)?model_checkpoint_paths?: "([^"\n]+)"')


class Listed(NamedTuple):
    """The checkpoints that a list names.

    Attributes:
        latest: prefix of the one that was written last.
        all: prefixes of all, the latest last.
    """

    latest: str
    all: tuple[str, ...]


def write_checkpoint(prefix: str, arrays: Mapping[str, Array]) -> None:
    """Write a checkpoint, whole or not at all; raises OutputError naming what cannot be written."""
    write_file(_archive(prefix), archive_of(dict(arrays)))


def read_checkpoint(prefix: str, names: Sequence[str] | None = None) -> dict[str, Array]:
    """Return a checkpoint's arrays of those names, or all; raises ProgramError for none, or one that is damaged."""
    with _opened(prefix) as file:
        return read_arrays(file, names)


def names_in_checkpoint(prefix: str) -> list[str]:
    """Return the names of a checkpoint's arrays; raises as :func:`read_checkpoint` does."""
    with _opened(prefix) as file:
        return array_names(file)


@contextmanager
def _opened(prefix: str) -> Iterator[BinaryIO]:
    path = _archive(prefix)
    if not path.exists():
        raise ProgramError(f"The passed save_path is not a valid checkpoint: {prefix}")
    with of_checkpoint(prefix), open_file(path) as file:
        yield file


@contextmanager
def of_checkpoint(prefix: str) -> Iterator[None]:
    """Name the checkpoint in what is wrong with it; raises ProgramError."""
    try:
        yield
    except (FileError, OSError) as error:
        raise ProgramError(f"checkpoint {prefix}: {error}") from error


def there(prefix: str) -> bool:
    """Tell whether there is a checkpoint."""
    return _archive(prefix).is_file()


def delete_checkpoint(prefix: str) -> None:
    """Delete a checkpoint, if it is there."""
    _archive(prefix).unlink(missing_ok=True)


def lies_below(folder: Path, prefix: str) -> bool:
    """Tell whether a checkpoint lies in a folder or below it, wherever ``..`` and symbolic links on the way lead."""
    try:
        return resolve(_archive(prefix).parent).is_relative_to(resolve(folder))
    except (OSError, ValueError):  # links in a circle, a name that no file can have
        return False


def write_list(folder: Path, prefixes: Sequence[str], name: str = LIST) -> None:
    """List checkpoints, the latest last, by their paths from the folder on; raises OutputError."""
    texts = [_from(folder, prefix) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{texts[-1]}"', *(f'all_model_checkpoint_paths: "{text}"' for text in texts)]
    write_file(folder / name, "".join(f"{line}\n" for line in lines).encode())


def read_list(folder: Path, name: str = LIST) -> Listed | None:
    """Return the checkpoints of a folder; None where there is no list. Raises ProgramError for one that is damaged."""
    path = folder / name
    if not path.exists():
        return None
    try:
        with open_file(path) as file:
            lines = read_up_to(file, _LIST_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"{path}: expected a list of checkpoints, got {error}") from error
    result = [_LINE.fullmatch(line.strip()) for line in lines]
    latest = [str(folder / item[2]) for item in result if item and not item[1]]
    if len(latest) != 1 or not all(result):
        raise ProgramError(f'{path}: expected a list of checkpoints, with a line `model_checkpoint_path: "..."`')
    return Listed(latest[0], tuple(str(folder / item[2]) for item in result if item and item[1]))


def _archive(prefix: str) -> Path:
    return Path(f"{prefix}{_ENDING}")


def _from(folder: Path, prefix: str) -> str:
    path = Path(prefix)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path.absolute())

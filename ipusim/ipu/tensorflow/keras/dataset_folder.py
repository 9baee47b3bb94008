"""The folder where Keras has its datasets, and what is said where a dataset is not in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from ipusim.errors import FileError
from ipusim.files import open_file, read_arrays, read_up_to
from ipusim.ipu import checks
from ipusim.model.data.plain_pickles import unpickled
from ipusim.model.layers.layer import Array

T = TypeVar("T")

#: Bytes of a pickled or JSON file that are read at most: several times as many as the largest of these datasets has.
_MOST_BYTES: Final = 1 << 29
#: Datasets of which this process has said that they are drawn.
_SAID: Final[set[str]] = set()


def place_of(file: str) -> Path:
    """Return where Keras keeps a file of a dataset; a file with a folder of its own is there."""
    return Path.home() / ".keras" / "datasets" / checks.path("path", file)


def from_file_or_drawn(dataset: str, file: str, read: Callable[[Path], T], draw: Callable[[], T]) -> T:
    """Return what ``read`` finds in a file of the person's, or what ``draw`` gives where there is none.

    That it is drawn is said once on standard error. Raises FileError, with the file's name, for one that cannot be
    read or does not hold the dataset.
    """
    place = place_of(file)
    if not place.exists():
        if dataset not in _SAID:
            _SAID.add(dataset)
            print(f"tf.keras.datasets.{dataset} is drawn, in the dataset's form: there is no {place}", file=sys.stderr)
        return draw()
    try:
        return read(place)
    except (OSError, FileError, ValueError, TypeError, LookupError) as error:
        raise FileError(f"{place}: expected {dataset} as Keras keeps it, got a file that is not: {error}") from error


def arrays_of(path: Path, *names: str) -> list[Array]:
    """Return arrays of a NumPy archive, also of lists of numbers; raises OSError and FileError."""
    with open_file(path) as file:
        arrays = read_arrays(file, names, unpickle=unpickled)
    return [arrays[name] for name in names]


def pickle_of(path: Path) -> Any:
    """Return what a pickle of plain containers and arrays holds; raises OSError and FileError."""
    return unpickled(_content(path))


def words_of(path: Path) -> dict[str, int]:
    """Return the numbers of words from a JSON file; raises OSError, FileError and ValueError."""
    found = json.loads(_content(path))
    if not isinstance(found, dict) or not all(isinstance(number, int) for number in found.values()):
        raise FileError("expected a number for each word")
    return found


def _content(path: Path) -> bytes:
    with open_file(path) as file:
        content = read_up_to(file, _MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise FileError(f"expected at most {_MOST_BYTES >> 20} MiB")
    return bytes(content)

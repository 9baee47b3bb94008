"""A Keras model's weights in a file: NumPy's archive of arrays by the names that they have in the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipusim.errors import ProgramError
from ipusim.files import archive_of, check_target, open_file, read_arrays, write_file
from ipusim.ipu.tensorflow.keras.weight import Weight


def names_of(weights: Sequence[Weight], prefix: str) -> list[str]:
    """Return the names of weights in their model."""
    return [each.name.removeprefix(prefix) for each in weights]


def save(path: Path, weights: Sequence[Weight], prefix: str, *, overwrite: bool) -> None:
    """Write a file of all weights, whole or not at all.

    Raises ProgramError for a file that is there and not to be overwritten, OutputError for one that cannot be written.
    """
    if not overwrite and path.exists():
        raise ProgramError(f"{path}: expected no file, as overwrite is False, got one")
    check_target(path)
    write_file(path, archive_of(dict(zip(names_of(weights, prefix), (each.numpy() for each in weights), strict=True))))


def load(path: Path, weights: Sequence[Weight], prefix: str, *, by_name: bool) -> None:
    """Set all weights to those of a file, in their order or by their names; all or none.

    Raises ProgramError for a file that cannot be read, or of other weights.
    """
    try:
        with open_file(path) as file:
            held = read_arrays(file)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ProgramError(f"{path}: expected a file of weights that can be read: {why}") from error
    found: list[tuple[Weight, Any]] = []
    if by_name:
        pairs = [
            (each, held[name]) for each, name in zip(weights, names_of(weights, prefix), strict=True) if name in held
        ]
    elif len(held) != len(weights):
        raise ProgramError(f"{path}: expected the {len(weights)} weights of the model, got {len(held)}")
    else:
        pairs = list(zip(weights, held.values(), strict=True))
    for each, value in pairs:
        if value.shape != each.shape:
            raise ProgramError(f"{path}: expected shape {each.shape} for weight {each.name!r}, got {value.shape}")
        found.append((each, each.check(value)))
    for each, value in found:
        each.set(value)

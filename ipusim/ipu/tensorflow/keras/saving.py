"""A Keras model's weights in a file: NumPy's archive of arrays by the names that they have in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ipusim.errors import FileError, ProgramError
from ipusim.files import archive_of, check_target, open_file, read_arrays, write_file
from ipusim.ipu import checks
from ipusim.ipu.variable import NamedVariable
from ipusim.model.layers.layer import Array

#: The array of a whole model's file that describes it.
MODEL: Final = "model"
#: What the names of weights begin with in the file of a whole model.
WEIGHTS: Final = "weights/"
_HDF5: Final = b"\x89HDF"
_HDF5_ENDINGS: Final = (".h5", ".hdf5")


def check_format(filepath: Any, save_format: Any) -> Path:
    """Return the path to save to; raises ProgramError for HDF5 and TensorFlow's SavedModel, by format or ending."""
    path = Path(checks.path("filepath", filepath))
    if save_format not in (None, "keras") or path.suffix in _HDF5_ENDINGS:
        asked = f"save_format {save_format!r}" if save_format not in (None, "keras") else f"the ending {path.suffix!r}"
        raise ProgramError(
            f"{path}: expected save_format None or 'keras', and another ending than .h5, got {asked}: models are saved "
            "in one file of NumPy's arrays, and neither in HDF5 nor as TensorFlow's SavedModel"
        )
    return path


def names_of(weights: Sequence[NamedVariable], prefix: str) -> list[str]:
    """Return the names of weights in their model."""
    return [each.name.removeprefix(prefix) for each in weights]


def save(path: Path, weights: Sequence[NamedVariable], prefix: str, *, overwrite: bool) -> None:
    """Write a file of all weights, whole or not at all.

    Raises ProgramError for a file that is there and not to be overwritten, OutputError for one that cannot be written.
    """
    if not overwrite and path.exists():
        raise ProgramError(f"{path}: expected no file, as overwrite is False, got one")
    check_target(path)
    write_file(path, archive_of(dict(zip(names_of(weights, prefix), (each.numpy() for each in weights), strict=True))))


def arrays_in(path: Path, what: str) -> dict[str, Array]:
    """Return all arrays of a file of ``what``; raises ProgramError for one that cannot be read."""
    try:
        with open_file(path) as file:
            if file.read(len(_HDF5)) == _HDF5:
                raise FileError("it is HDF5, which is not read here")
            file.seek(0)
            return read_arrays(file)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ProgramError(f"{path}: expected a file of {what} that can be read: {why}") from error


def load(path: Path, weights: Sequence[NamedVariable], prefix: str, *, by_name: bool) -> None:
    """Set all weights to those of a file, of weights or a whole model, in their order or by their names; all or none.

    Raises ProgramError for a file that cannot be read, or of other weights.
    """
    held = arrays_in(path, "weights")
    try:
        set_weights(weights, held, prefix, by_name=by_name)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error


def set_weights(
    weights: Sequence[NamedVariable], arrays: Mapping[str, Array], prefix: str, *, by_name: bool = False
) -> None:
    """Set weights to arrays, in their order or by their names; all or none. Raises ProgramError for other weights."""
    held = dict(arrays)
    if MODEL in arrays:
        held = {name.removeprefix(WEIGHTS): each for name, each in arrays.items() if name.startswith(WEIGHTS)}
    found: list[tuple[NamedVariable, Any]] = []
    if by_name:
        pairs = [
            (each, held[name]) for each, name in zip(weights, names_of(weights, prefix), strict=True) if name in held
        ]
    elif len(held) != len(weights):
        raise ProgramError(f"expected the {len(weights)} weights of the model, got {len(held)}")
    else:
        pairs = list(zip(weights, held.values(), strict=True))
    for each, value in pairs:
        if value.shape != each.shape:
            raise ProgramError(f"expected shape {each.shape} for weight {each.name!r}, got {value.shape}")
        found.append((each, each.check(value)))
    for each, value in found:
        each.set(value)

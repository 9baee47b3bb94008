"""A Keras model's weights in a file: NumPy's archive of arrays by the names that they have in the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.api import Array, checkpoint
from ipusim.base.errors import FileError, IpusimError, ProgramError
from ipusim.base.files import archive_of, check_target, open_file, read_arrays, write_file
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.variable import NamedVariable
from ipusim.ipu.tensorflow.keras.callback import Callback, Logs
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.keras.program import TrainingState
from ipusim.ipu.tensorflow.session import get_logger

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
        got = f"save_format {save_format!r}" if save_format not in (None, "keras") else f"the ending {path.suffix!r}"
        raise ProgramError(
            f"{path}: expected save_format None or 'keras', and another ending than .h5, got {got}: models are saved "
            "in one file of NumPy's arrays, and neither in HDF5 nor as TensorFlow's SavedModel"
        )
    return path


def by_own_names(weights: Sequence[NamedVariable], prefix: str) -> list[tuple[str, NamedVariable]]:
    """Return weights, each behind its name in the model, whose own names begin with ``prefix``."""
    return [(weight.name.removeprefix(prefix), weight) for weight in weights]


def save(path: Path, weights: Sequence[NamedVariable], prefix: str, *, overwrite: bool) -> None:
    """Write a file of all weights, whole or not at all.

    Raises ProgramError for a file that is there and not to be overwritten, OutputError for one that cannot be written.
    """
    if not overwrite and path.exists():
        raise ProgramError(f"{path}: expected no file, as overwrite is False, got one")
    check_target(path)
    write_file(path, archive_of({name: weight.numpy() for name, weight in by_own_names(weights, prefix)}))


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
    stored = arrays_in(path, "weights")
    try:
        set_weights(weights, stored, prefix, by_name=by_name)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error


def set_weights(
    weights: Sequence[NamedVariable], arrays: Mapping[str, Array], prefix: str, *, by_name: bool = False
) -> None:
    """Set weights to arrays, in their order or by their names; all or none. Raises ProgramError for other weights."""
    stored = dict(arrays)
    if MODEL in arrays:
        stored = {name.removeprefix(WEIGHTS): array for name, array in arrays.items() if name.startswith(WEIGHTS)}
    result: list[tuple[NamedVariable, Any]] = []
    if by_name:
        pairs = [(weight, stored[name]) for name, weight in by_own_names(weights, prefix) if name in stored]
    elif len(stored) != len(weights):
        raise ProgramError(f"expected the {len(weights)} weights of the model, got {len(stored)}")
    else:
        pairs = list(zip(weights, stored.values(), strict=True))
    for item, value in pairs:
        if value.shape != item.shape:
            raise ProgramError(f"expected shape {item.shape} for weight {item.name!r}, got {value.shape}")
        result.append((item, item.check(value)))
    for item, value in result:
        item.set(value)


def weight_arrays(model: Any) -> dict[str, Array]:
    """Return a model's weights."""
    named = by_own_names(model.weights, f"{model.path}/")
    return {f"{WEIGHTS}{name}": weight.numpy() for name, weight in named}


def state_of(model: Any) -> tuple[dict[str, Any] | None, Mapping[str, Array]]:
    """Return how far a training is with the names of the optimizer's arrays, None before the first, and these."""
    state = model.training_state
    if state is None:
        return None, {}
    iterations = int(model.optimizer.iterations) if isinstance(model.optimizer, Optimizer) else 0
    names = {weight.name: name for name, weight in by_own_names(model.weights, f"{model.path}/")}
    arrays = _renamed(state.arrays, names)
    return {"iterations": iterations, "batches": state.batches, "arrays": list(arrays)}, arrays


def resume(model: Any, state: Mapping[str, Any] | None, arrays: Mapping[str, Array]) -> None:
    """Let a compiled model's training go on from there; raises ProgramError for numbers that are none.

    Without all of the optimizer's arrays it begins anew, as in Keras, and a log says so.
    """
    if state is None:
        return
    if missing := [name for name in state["arrays"] if name not in arrays]:
        get_logger().warning(
            "Error in loading the saved optimizer state. As a result, your model is starting with a freshly "
            f"initialized optimizer: expected {len(state['arrays'])} arrays of it, of which {len(missing)} are not "
            f"there, such as {missing[0]!r}."
        )
        return
    stored = [name.removeprefix(WEIGHTS) for name in arrays if name.startswith(WEIGHTS)]
    names = dict(zip(stored, (weight.name for weight in model.weights), strict=True))
    outcome = TrainingState(_renamed(arrays, names), checks.whole("batches", state["batches"]))
    iterations = checks.whole("iterations", state["iterations"])
    model.resume(outcome)
    if isinstance(model.optimizer, Optimizer):
        model.optimizer.iterations = iterations


def positions_of(model: Any) -> list[int]:
    """Return the position of each layer, on which its random draws depend."""
    return [layer._position for layer in _all_layers(model)]


def take_positions(model: Any, places: Any) -> None:
    """Set the position of each layer; raises ProgramError for another number of them."""
    layers = list(_all_layers(model))
    if not isinstance(places, list) or len(places) != len(layers):
        checks.wrong_value("places", f"the places of {len(layers)} layers", places)
    for layer, position in zip(layers, [checks.whole("places", position) for position in places], strict=True):
        layer._position = position


def _all_layers(model: Any) -> Iterator[Any]:
    for sublayer in model.sublayers():
        yield sublayer
        yield from _all_layers(sublayer)


def _renamed(arrays: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    """Return an optimizer's arrays, each with another name of its weight."""
    result: dict[str, Array] = {}
    for name, array in arrays.items():
        parts = name.removeprefix(checkpoint.OPTIMIZER).split("/") if name.startswith(checkpoint.OPTIMIZER) else []
        for count in range(len(parts), 0, -1):
            weight = "/".join(parts[:count])
            if weight in names:
                result[f"{checkpoint.OPTIMIZER}{'/'.join([names[weight], *parts[count:]])}"] = array
                break
    return result


_FILE: Final = "backup.npz"


class BackupAndRestore(Callback):
    """Writes weights, the optimizer's arrays and the epoch to a file after each epoch, until the training has ended.

    A training that was interrupted goes on behind the last epoch that had ended, to the same bits.
    """

    def __init__(self, backup_dir: str | Path) -> None:
        """Take the folder; raises ProgramTypeError for what is no path."""
        self._path = Path(checks.path("backup_dir", backup_dir)) / _FILE

    def restored(self, model: Any, initial_epoch: int) -> int:
        """Set a model to what the file has, and return the epoch to go on with; ``initial_epoch`` without a file.

        Raises ProgramError for a file that is damaged, or of another model.
        """
        if not self._path.exists():
            return initial_epoch
        arrays = arrays_in(self._path, "a backup of a training")
        try:
            result = json.loads(arrays[MODEL].tobytes())
            epoch = checks.whole("epoch", result["epoch"])
            set_weights(model.weights, arrays, f"{model.path}/")
            resume(model, result["training_state"], arrays)
        except (IpusimError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise ProgramError(f"{self._path}: expected a backup of this model's training: {error}") from error
        return epoch + 1

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Write the file, whole or not at all; raises OutputError where it cannot be written."""
        state, arrays = state_of(self.model)
        text = json.dumps({"epoch": epoch, "training_state": state})
        content = {MODEL: np.frombuffer(text.encode(), np.uint8), **weight_arrays(self.model), **arrays}
        write_file(self._path, archive_of(content))

    def on_train_end(self, logs: Logs = None) -> None:
        """Delete the file: the training has ended."""
        self._path.unlink(missing_ok=True)


def restored_epoch(callbacks: Any, model: Any, initial_epoch: int) -> int:
    """Return the epoch that a training begins with: that behind a backup, if a callback has one."""
    listed = getattr(callbacks, "callbacks", callbacks)
    for item in listed if isinstance(listed, list | tuple) else [listed]:
        if isinstance(item, BackupAndRestore):
            initial_epoch = item.restored(model, initial_epoch)
    return initial_epoch

"""Keras' callback that backs a training up after each epoch, from where fit goes on when it is called again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.errors import IpusimError, ProgramError
from ipusim.files import archive_of, write_file
from ipusim.ipu import checks
from ipusim.ipu.tensorflow.keras.callback import Callback, Logs
from ipusim.ipu.tensorflow.keras.saving import MODEL, arrays_in, set_weights
from ipusim.ipu.tensorflow.keras.training_arrays import resume, state_of, weight_arrays

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
            found = json.loads(arrays[MODEL].tobytes())
            epoch = checks.whole("epoch", found["epoch"])
            set_weights(model.weights, arrays, f"{model.path}/")
            resume(model, found["training_state"], arrays)
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
    for each in listed if isinstance(listed, list | tuple) else [listed]:
        if isinstance(each, BackupAndRestore):
            initial_epoch = each.restored(model, initial_epoch)
    return initial_epoch

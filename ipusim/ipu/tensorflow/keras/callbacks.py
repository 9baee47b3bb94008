"""Keras' callbacks that are written already: they watch, save, end a training, and set its step size."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, TextIO

import numpy as np

from ipusim.api import runs
from ipusim.base.errors import FileError, ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow.keras.callback import Callback, Logs
from ipusim.ipu.tensorflow.keras.saving import check_format
from ipusim.ipu.tensorflow.keras.schedules import LearningRateSchedule
from ipusim.ipu.tensorflow.session import get_logger


class LambdaCallback(Callback):
    """Functions as hooks, each by the name of its hook."""

    def __init__(self, **hooks: Callable[..., Any] | None) -> None:
        """Take the hooks; raises ProgramTypeError for an unknown name, or a value that is no function."""
        for name, function in hooks.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                checks.wrong_type("LambdaCallback", "names of hooks such as on_epoch_end", name)
            if function is not None:
                checks.function(name, function)
                setattr(self, name, function)


class LearningRateScheduler(Callback):
    """Sets the optimizer's step size at the beginning of each epoch."""

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        """Take a function of the epoch, or of the epoch and the step size now, and whether to print it."""
        checks.function("schedule", schedule, "a function of the epoch and the learning rate")
        self._schedule, self._verbose = schedule, verbose

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Set it; raises ProgramError for an optimizer without one, or what is no number."""
        optimizer, before = self.model.optimizer, _rate_of(self)
        try:
            rate = self._schedule(epoch, before)
        except TypeError:
            rate = self._schedule(epoch)
        if isinstance(rate, bool) or not isinstance(rate, int | float | np.floating | np.ndarray):
            raise ProgramError(
                f'The output of the "schedule" function should be float. Got: {rate!r} of {type(rate).__name__}'
            )
        optimizer.learning_rate = rate
        if self._verbose > 0:
            print(f"\nEpoch {epoch + 1}: LearningRateScheduler setting learning rate to {float(rate)}.")

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Note it among the values of the epoch."""
        if isinstance(logs, dict):
            logs["lr"] = float(self.model.optimizer.learning_rate)


def _rate_of(callback: Callback) -> float:
    """Return the step size that a callback may set; raises ProgramError where there is none, or a schedule sets it."""
    optimizer = callback.model.optimizer
    if not hasattr(optimizer, "learning_rate"):
        raise ProgramError('Optimizer must have a "lr" attribute.')
    rate = optimizer.learning_rate
    if isinstance(rate, LearningRateSchedule):
        raise ProgramError(
            f"{type(callback).__name__}: expected an optimizer whose learning_rate is a number, which a callback can "
            f"set, got the schedule {type(rate).__name__}"
        )
    return float(rate)


class _Watching(Callback):
    """Watches a value of each epoch, of which the smaller is better, or the larger.

    Attributes:
        monitor: the value's name.
    """

    def __init__(self, monitor: str, mode: str) -> None:
        """Take the name, and which is better, by default as the name says; raises ProgramError for an unknown mode."""
        if mode not in ("auto", "min", "max"):
            checks.wrong_value("mode", "'auto', 'min' or 'max'", mode)
        self.monitor = monitor
        self._rises = mode == "max" or (mode == "auto" and "acc" in monitor)
        self._worst = -np.inf if self._rises else np.inf

    def _better(self, new: float, old: float, by: float = 0.0) -> bool:
        """Tell whether a value is better than another, by more than ``by``."""
        return new - by > old if self._rises else new + by < old

    #: What is logged of an epoch without the value that is watched, in Keras' words.
    _missing: ClassVar[str]

    def _monitored(self, logs: Logs) -> float | None:
        """Return the value that is watched; None in an epoch without it, which a warning says."""
        if logs is not None and self.monitor in logs:
            return float(logs[self.monitor])
        get_logger().warning(self._missing.format(self.monitor, ",".join(logs or {})))
        return None


class EarlyStopping(_Watching):
    """Ends a training when what it watches has not become better for some epochs."""

    _missing = "Early stopping conditioned on metric `{}` which is not available. Available metrics are: {}"

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
    ) -> None:
        """Take what to watch, by how much it must become better, and for how many epochs it need not.

        Raises ProgramError for an unknown mode.
        """
        self.patience, self._verbose = checks.whole("patience", patience), verbose
        super().__init__(monitor, mode)
        self._delta, self._baseline = abs(float(min_delta)), baseline
        self._restores = restore_best_weights
        self._begin()

    def _begin(self) -> None:
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best = self._worst
        self.best_weights: list[Any] | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Begin to watch."""
        self._begin()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """End the training where the patience is over."""
        current = self._monitored(logs)
        if current is None:
            return
        if self._restores and self.best_weights is None:
            self.best_weights, self.best_epoch = self.model.get_weights(), epoch
        self.wait += 1
        if self._better(current, self.best, self._delta):
            self.best, self.best_epoch = current, epoch
            if self._restores:
                self.best_weights = self.model.get_weights()
            if self._baseline is None or self._better(current, self._baseline, self._delta):
                self.wait = 0
        if self.wait >= self.patience:
            self.stopped_epoch = epoch
            self.model.stop_training = True
            if self._restores and self.best_weights is not None:
                if self._verbose > 0:
                    print(f"Restoring model weights from the end of the best epoch: {self.best_epoch + 1}.")
                self.model.set_weights(self.best_weights)

    def on_train_end(self, logs: Logs = None) -> None:
        """Say that it ended early."""
        if self.stopped_epoch > 0 and self._verbose > 0:
            print(f"Epoch {self.stopped_epoch + 1}: early stopping")


class ReduceLROnPlateau(_Watching):
    """Makes the step size smaller when what it watches has not become better for some epochs."""

    _missing = "Learning rate reduction is conditioned on metric `{}` which is not available. Available metrics are: {}"

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0,
    ) -> None:
        """Take what to watch, what to multiply with, and how long to wait; raises ProgramError for a factor >= 1."""
        if factor >= 1.0:
            raise ProgramError(f"ReduceLROnPlateau does not support a factor >= 1.0. Got {factor}")
        self._factor, self._verbose = factor, verbose
        self._patience, self._cooldown = checks.whole("patience", patience), checks.whole("cooldown", cooldown)
        super().__init__(monitor, mode)
        self._delta, self._least = min_delta, min_lr
        self.on_train_begin()

    def on_train_begin(self, logs: Logs = None) -> None:
        """Begin to watch."""
        self._wait = self._cooling = 0
        self._best = self._worst

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Make it smaller where the patience is over; raises ProgramError for an optimizer without a step size."""
        rate = _rate_of(self)
        if isinstance(logs, dict):
            logs["lr"] = rate
        current = self._monitored(logs)
        if current is None:
            return
        if self._cooling > 0:
            self._cooling, self._wait = self._cooling - 1, 0
        if self._better(current, self._best, self._delta):
            self._best, self._wait = current, 0
        elif self._cooling <= 0:
            self._wait += 1
            if self._wait >= self._patience and rate > self._least:
                self.model.optimizer.learning_rate = max(rate * self._factor, self._least)
                self._cooling, self._wait = self._cooldown, 0
                if self._verbose > 0:
                    now = float(self.model.optimizer.learning_rate)
                    print(f"\nEpoch {epoch + 1}: ReduceLROnPlateau reducing learning rate to {now}.")


class ModelCheckpoint(_Watching):
    """Saves the model or its weights at the end of every epoch, or of those that improve on the best."""

    _missing = "Can save best model only with {} available, skipping."

    def __init__(
        self,
        filepath: str | Path,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str = "epoch",
    ) -> None:
        """Take the file's name, in which {epoch} and names of values stand for these; and what to watch.

        Raises ProgramTypeError for what is no path, ProgramError for an unknown mode, for another frequency
        than "epoch", and for whole models in HDF5.
        """
        self._weights_only = checks.truth("save_weights_only", save_weights_only)
        if not self._weights_only:
            check_format(filepath, None)
        if save_freq != "epoch":
            checks.wrong_value("save_freq", "'epoch', as weights come to the host after executions", save_freq)
        self._file, self._verbose, self._best_only = checks.path("filepath", filepath), verbose, save_best_only
        super().__init__(monitor, mode)
        self.best = self._worst

    def on_train_begin(self, logs: Logs = None) -> None:
        """Refuse a model that cannot be saved whole before it is trained; raises as ``get_config`` does."""
        if not self._weights_only:
            self.model.to_json()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Save; raises ProgramError for a name with an unknown value, or in a form that it has not."""
        values = {"epoch": epoch + 1, **(logs or {})}
        try:
            path = self._file.format(**values)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise ProgramError(
                f'Failed to format this callback filepath: "{self._file}". Reason: {error}; what stands in braces '
                f"may be {runs.one_of(f'{{{name}}}' for name in values)}"
            ) from error
        if self._best_only:
            current = self._monitored(logs)
            if current is None:
                return
            if not self._better(current, self.best):
                if self._verbose > 0:
                    print(f"\nEpoch {epoch + 1}: {self.monitor} did not improve from {self.best:.5f}")
                return
            self.best = current
        if self._verbose > 0:
            print(f"\nEpoch {epoch + 1}: saving model to {path}")
        (self.model.save_weights if self._weights_only else self.model.save)(path)


class CSVLogger(Callback):
    """Writes a row with the values of each epoch to a CSV file."""

    def __init__(self, filename: str | Path, separator: str = ",", append: bool = False) -> None:
        """Set the file's name, the separator, and whether to append to the file.

        Raises ProgramTypeError for what is no path.
        """
        self._path, self._separator, self._append = Path(checks.path("filename", filename)), separator, append
        self._stream: TextIO | None = None
        self._writer: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Open the file; raises FileError where it cannot be written."""
        self._has_header = self._append and self._path.exists() and self._path.stat().st_size > 0
        try:
            self._stream = self._path.open("a" if self._append else "w", newline="")
        except OSError as error:
            raise FileError(f"CSVLogger: cannot write {self._path}: {error.strerror}") from None
        self._writer = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Write a row, of what the first epoch had, and of what is validated later."""
        assert self._stream is not None
        values: dict[str, Any] = dict(logs or {})
        if self._writer is None:
            own = [f"val_{name}" for name in self.model.metrics_names if self.model.validates_seldom]
            names = list(dict.fromkeys(["epoch", *values, *own]))
            self._writer = csv.DictWriter(
                self._stream, names, extrasaction="ignore", delimiter=self._separator, lineterminator="\n"
            )
            if not self._has_header:
                self._writer.writeheader()
        self._writer.writerow({"epoch": epoch} | values)
        self._stream.flush()

    def on_train_end(self, logs: Logs = None) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class TerminateOnNaN(Callback):
    """Ends a training when a loss is no number."""

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Look at the loss."""
        loss = (logs or {}).get("loss")
        if loss is not None and not np.isfinite(loss):
            print(f"Batch {batch}: Invalid loss, terminating training")
            self.model.stop_training = True


_OFFERED: Final = (
    "CSVLogger EarlyStopping LambdaCallback LearningRateScheduler ModelCheckpoint ReduceLROnPlateau TerminateOnNaN"
)
_BACKUP: Final = "ipusim.ipu.tensorflow.keras.saving"
__getattr__, __dir__ = offering(
    "tf.keras.callbacks",
    in_module(__name__, _OFFERED)
    | in_module("ipusim.ipu.tensorflow.keras.callback", "Callback CallbackList History")
    | {"BackupAndRestore": f"{_BACKUP}:BackupAndRestore", "experimental": _BACKUP},
)

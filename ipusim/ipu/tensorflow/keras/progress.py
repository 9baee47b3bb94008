"""The progress bar of Keras' fit and evaluate: drawn on a terminal, and a line for each epoch elsewhere.

The time that it says is the simulated one: that of the executions so far.
"""

from __future__ import annotations

import sys
from typing import Any

from ipusim.ipu.tensorflow.keras.callback import Callback, Logs
from ipusim.units import format_seconds

#: Characters of the bar.
_WIDTH = 30


class ProgbarLogger(Callback):
    """Says how far it is, and the values so far."""

    def __init__(self, verbose: int, *, training: bool) -> None:
        """Take 1 for a bar and 2 for a line an epoch, and whether it is of a training."""
        self._verbose, self._training = verbose, training
        self._epochs, self._steps, self._target = 1, 0, 0
        self._bar: Any = None
        self._task: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Note how many epochs there are."""
        self._epochs = (self.params or {}).get("epochs", 1)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Say which epoch it is."""
        if self._training:
            if self._epochs > 1:
                print(f"Epoch {epoch + 1}/{self._epochs}")
            self._begin()

    def on_test_begin(self, logs: Logs = None) -> None:
        """Begin an evaluation's bar."""
        if not self._training:
            self._begin()

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Begin a prediction's bar."""
        self._begin()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Go on."""
        self._show(batch + 1, logs)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Go on."""
        if not self._training:
            self._show(batch + 1, logs)

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Go on."""
        self._show(batch + 1, None)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Say how the epoch was."""
        if self._training:
            self._end(logs)

    def on_test_end(self, logs: Logs = None) -> None:
        """Say how the evaluation was."""
        if not self._training:
            self._end(logs)

    def on_predict_end(self, logs: Logs = None) -> None:
        """Say how long the prediction took."""
        self._end(None)

    def _begin(self) -> None:
        self._target, self._steps = (self.params or {}).get("steps") or 0, 0
        if self._verbose == 1 and sys.stdout.isatty():
            from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - for a terminal alone

            columns = (TextColumn("{task.completed:.0f}/{task.total:.0f}"), BarColumn(_WIDTH))
            self._bar = Progress(*columns, TextColumn("{task.fields[told]}", markup=False), transient=True)
            self._task = self._bar.add_task("", total=self._target, told="")
            self._bar.start()

    def _show(self, steps: int, logs: Logs) -> None:
        self._steps = steps
        if self._bar is not None:
            self._bar.update(self._task, completed=steps, told=_told(self.model.simulated_seconds, logs))

    def _end(self, logs: Logs) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        bar = f" [{'=' * _WIDTH}]" if self._verbose == 1 else ""
        print(f"{self._steps}/{self._target or self._steps}{bar} - {_told(self.model.simulated_seconds, logs)}")


def _told(seconds: float, logs: Logs) -> str:
    values = [f"{name}: {_number(value)}" for name, value in (logs or {}).items()]
    return " - ".join([format_seconds(seconds), *values])


def _number(value: Any) -> str:
    found = float(value)
    return f"{found:.4f}" if abs(found) > 1e-3 or found == 0 else f"{found:.4e}"

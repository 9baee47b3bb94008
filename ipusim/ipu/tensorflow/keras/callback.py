"""The hooks of Keras' callbacks, several callbacks as one, and the values that a training leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipusim.base.units import format_seconds
from ipusim.ipu.runtime import checks

#: What a hook is told: values by their names.
Logs = Mapping[str, Any] | None


class Callback:
    """Base of all callbacks, whose hooks do nothing.

    Attributes:
        model, params: set before the first hook is called: the model, and verbose, epochs and steps.
    """

    model: Any = None
    params: Mapping[str, Any] | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Take verbose, epochs and steps."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Take the model."""
        self.model = model

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Look on at the beginning of an epoch of a training."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Look on at its end, when it has been validated."""

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Look on, by the older name of on_train_batch_begin."""

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Look on, by the older name of on_train_batch_end."""

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Look on before the steps of an execution of a training, by the number of the first."""
        self.on_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Look on after them, by the number of the last."""
        self.on_batch_end(batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Look on before the steps of an execution of an evaluation."""

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Look on after them."""

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Look on before the steps of an execution of a prediction."""

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Look on after them, with what was predicted as ``outputs``."""

    def on_train_begin(self, logs: Logs = None) -> None:
        """Look on at the beginning of a training."""

    def on_train_end(self, logs: Logs = None) -> None:
        """Look on at its end."""

    def on_test_begin(self, logs: Logs = None) -> None:
        """Look on at the beginning of an evaluation."""

    def on_test_end(self, logs: Logs = None) -> None:
        """Look on at its end."""

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Look on at the beginning of a prediction."""

    def on_predict_end(self, logs: Logs = None) -> None:
        """Look on at its end."""


class CallbackList(Callback):
    """Several callbacks as one, which are called in their order."""

    def __init__(self, callbacks: Any, model: Any, *, own: Sequence[Callback] = (), **params: Any) -> None:
        """Collect one callback or a list, followed by ``own``; raises ProgramTypeError for another value."""
        value = callbacks if isinstance(callbacks, list | tuple) else [] if callbacks is None else [callbacks]
        for item in value:
            checks.instance("callbacks", item, Callback, "callbacks such as keras.callbacks.EarlyStopping()")
        self.callbacks: list[Callback] = [*value, *own]
        self.set_model(model)
        self.set_params(params)

    def set_model(self, model: Any) -> None:
        """Hand the model on."""
        self.model = model
        for callback in self.callbacks:
            callback.set_model(model)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Hand the parameters on."""
        self.params = params
        for callback in self.callbacks:
            callback.set_params(params)


def _all(hook: str) -> Callable[..., None]:
    numbers = 1 if "epoch" in hook or "batch" in hook else 0

    def call(self: CallbackList, *values: Any, logs: Logs = None) -> None:
        arguments = values if len(values) > numbers else (*values, {} if logs is None else logs)
        for callback in self.callbacks:
            getattr(callback, hook)(*arguments)

    call.__doc__ = getattr(Callback, hook).__doc__
    return call


for _hook in [name for name in vars(Callback) if name.startswith("on_")]:
    setattr(CallbackList, _hook, _all(_hook))


class History(Callback):
    """The logs of a training, which fit returns.

    Attributes:
        epoch: the number of each epoch.
        history: the values of each epoch, by their names.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.epoch: list[int] = []
        self.history: dict[str, list[Any]] = {}

    def on_train_begin(self, logs: Logs = None) -> None:
        """Count the epochs of this training."""
        self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Note the values."""
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
        self.model.history = self


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
            self._bar = Progress(*columns, TextColumn("{task.fields[line]}", markup=False), transient=True)
            self._task = self._bar.add_task("", total=self._target, line="")
            self._bar.start()

    def _show(self, steps: int, logs: Logs) -> None:
        self._steps = steps
        if self._bar is not None:
            self._bar.update(self._task, completed=steps, line=_line(self.model.simulated_seconds, logs))

    def _end(self, logs: Logs) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        bar = f" [{'=' * _WIDTH}]" if self._verbose == 1 else ""
        print(f"{self._steps}/{self._target or self._steps}{bar} - {_line(self.model.simulated_seconds, logs)}")


def _line(seconds: float, logs: Logs) -> str:
    values = [f"{name}: {_number(value)}" for name, value in (logs or {}).items()]
    return " - ".join([format_seconds(seconds), *values])


def _number(value: Any) -> str:
    result = float(value)
    return f"{result:.4f}" if abs(result) > 1e-3 or result == 0 else f"{result:.4e}"

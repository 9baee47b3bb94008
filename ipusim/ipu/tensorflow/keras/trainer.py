"""Keras' compile, fit, evaluate and predict: each runs the one engine's pipelines and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipusim.base.errors import ProgramStateError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.function_body import in_strategy
from ipusim.ipu.tensorflow.keras import optimizers
from ipusim.ipu.tensorflow.keras.callback import CallbackList, History, ProgbarLogger
from ipusim.ipu.tensorflow.keras.data import batches, by_class, samples_of, split_off
from ipusim.ipu.tensorflow.keras.execution import Execution
from ipusim.ipu.tensorflow.keras.objective import Objective
from ipusim.ipu.tensorflow.keras.saving import restored_epoch

if TYPE_CHECKING:
    from ipusim.ipu.keras.options import Options
    from ipusim.ipu.runtime.optimizer import Optimizer
    from ipusim.ipu.runtime.run import Pipeline
    from ipusim.ipu.tensorflow.keras.metrics import Metric
    from ipusim.ipu.tensorflow.keras.program import TrainingState


class Trainer:
    """The trainer of a model, which also evaluates and predicts with it.

    Attributes:
        optimizer: that was given to compile; None before.
        history: of the last training.
        stop_training: set by a callback to end a training.
        validates_seldom: whether the training validates, and may pass over epochs.
        simulated_seconds: of the executions of the epoch, evaluation or prediction that ran last.
    """

    name: str
    options: Options
    optimizer: Optimizer | None = None
    history: History | None = None
    stop_training = False
    validates_seldom = False
    simulated_seconds = 0.0
    _objective: Objective | None = None
    _steps_per_execution = 1

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool | None = None,
        steps_per_execution: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Say what trains the model.

        Args:
            optimizer: of Keras or ``tf.train``, or a name.
            loss: a loss, its name or a function; for several outputs a list or a dictionary of them.
            metrics, weighted_metrics: what is measured beside, without and with sample weights.
            loss_weights: of the losses of several outputs.
            run_eagerly: must not be True.
            steps_per_execution: batches that each replica takes in one execution of the program.

        Raises ProgramError and ProgramTypeError for invalid arguments.
        """
        kwargs.pop("jit_compile", None)  # all programs are compiled
        for argument in kwargs:
            checks.wrong_type("compile", "arguments of Keras' compile", argument)
        if run_eagerly:
            raise ProgramStateError(
                "Keras models cannot run eagerly when using `IPUStrategy`. Set `run_eagerly=False` when calling "
                "`compile`."
            )
        chosen = optimizers.get(optimizer)
        self.__dict__["_resumed"] = self.training_state if chosen is self.optimizer else None
        self.optimizer = chosen
        self._objective = Objective(loss, metrics, weighted_metrics, loss_weights)
        self._steps_per_execution = (
            1 if steps_per_execution is None else checks.whole("steps_per_execution", steps_per_execution, 1)
        )
        self.__dict__ |= {"_programs": {}, "_trained": None}

    @property
    def training_state(self) -> TrainingState | None:
        """The state, beside the weights, from which a training continues; None before the first."""
        last = self.__dict__.get("_trained")
        return self.__dict__.get("_resumed") if last is None else last.state()

    def resume(self, state: TrainingState) -> None:
        """Let the next training go on from ``state``, which :attr:`training_state` was of a model of the same kind."""
        self.__dict__ |= {"_trained": None, "_resumed": state}

    @property
    def pipeline(self) -> Pipeline:
        """The program of the last training, evaluation or prediction, with its Timeline: the simulator's own.

        Raises ProgramStateError before the first.
        """
        program = self.__dict__.get("_program")
        if program is None:
            raise ProgramStateError("the model has not run: expected fit, evaluate or predict before")
        return program.pipeline  # type: ignore[no-any-return]

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, the loss first; those given to compile when there were labels and predictions."""
        return [] if self._objective is None else self._objective.metrics

    @property
    def metrics_names(self) -> list[str]:
        """Their names."""
        return [metric.name for metric in self.metrics]

    def reset_states(self) -> None:
        """Let stateful layers begin with zeros again."""
        for layer in self.layers:  # type: ignore[attr-defined]  # a model's
            if hasattr(layer, "reset_states"):
                layer.reset_states()

    def reset_metrics(self) -> None:
        """Begin to measure anew."""
        for metric in self.metrics:
            metric.reset_state()

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | Sequence[int] = 1,
        **kwargs: Any,
    ) -> History:
        """Train, and return the values of each epoch.

        Arguments are Keras'; what is about queues of Python has no effect. Raises ProgramError, ProgramTypeError and
        ProgramStateError, in Graphcore's words where it has any, and as pipelines and loops do.
        """
        objective = self._compiled()
        _without_effect(kwargs)
        _check_frequency(validation_freq)
        if validation_split:
            (x, y, sample_weight), validation_data = split_off(x, y, sample_weight, validation_split)
        x, y, sample_weight = by_class(x, y, sample_weight, class_weight)
        shuffles, partial = checks.truth("shuffle", shuffle), self._is_of_host
        data = batches(x, y, sample_weight, batch_size, steps_per_epoch, shuffles, partial=partial)
        self._build_for(data.element.unpack(data.example)[0])  # type: ignore[attr-defined]  # a model's
        initial_epoch = restored_epoch(callbacks, self, checks.whole("initial_epoch", initial_epoch))
        runner = Execution(self, data, objective, steps_per_epoch, initial_epoch, training=True)
        hooks = self._callbacks(callbacks, verbose, training=True, epochs=epochs, steps=runner.batches)
        self.stop_training, self.history = False, None
        self.validates_seldom = validation_data is not None and validation_freq != 1
        hooks.on_train_begin()
        logs: dict[str, Any] = {}
        for epoch in range(initial_epoch, checks.whole("epochs", epochs)):
            self.reset_metrics()
            hooks.on_epoch_begin(epoch)
            runner.run(epoch, hooks.on_train_batch_begin, hooks.on_train_batch_end)
            logs = objective.logs()
            if validation_data is not None and _validates(epoch, validation_freq):
                size = validation_batch_size or batch_size
                logs |= self._validated(validation_data, size, validation_steps, hooks)
            hooks.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        hooks.on_train_end(logs)
        history = next((callback for callback in hooks.callbacks if isinstance(callback, History)), None) or History()
        self.history = history
        return history

    def _validated(self, data: Any, batch_size: Any, steps: Any, hooks: CallbackList) -> dict[str, Any]:
        parts = list(data) if isinstance(data, tuple | list) else [data]
        if not 1 <= len(parts) <= 3:
            checks.wrong_value("validation_data", "(x, y), (x, y, sample_weight) or a dataset", data)
        x, y, weights = parts + [None] * (3 - len(parts))
        seconds = self.simulated_seconds
        size = None if y is None else batch_size
        result = self.evaluate(x, y, size, sample_weight=weights, steps=steps, callbacks=hooks, return_dict=True)
        self.simulated_seconds += seconds
        return {f"val_{name}": value for name, value in result.items()}

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = 1,
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the loss and metrics over all batches: one number, a list, or a dictionary where ``return_dict``.

        Raises as :meth:`fit` does.
        """
        objective = self._compiled()
        _without_effect(kwargs)
        data = batches(x, y, sample_weight, batch_size, steps, partial=self._is_of_host)
        runner = Execution(self, data, objective, steps, 0, training=False)
        hooks = self._callbacks(callbacks, verbose, training=False, epochs=1, steps=runner.batches)
        self.reset_metrics()
        hooks.on_test_begin()
        runner.run(0, hooks.on_test_batch_begin, hooks.on_test_batch_end)
        logs = objective.logs()
        hooks.on_test_end(logs)
        return _returned(logs, return_dict)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = 0,
        steps: int | None = None,
        callbacks: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return the model's outputs for all batches, one behind the other; raises as :meth:`fit` does."""
        _without_effect(kwargs)
        data = batches(x, None, None, batch_size, steps, partial=self._is_of_host)
        runner = Execution(self, data, None, steps, 0, training=False)
        hooks = self._callbacks(callbacks, verbose, training=False, epochs=1, steps=runner.batches)
        hooks.on_predict_begin()
        outputs: list[list[Any]] = []

        def end(step: int, logs: Any) -> None:
            outputs.append(logs["outputs"])
            hooks.on_predict_batch_end(step, logs)

        runner.run(0, hooks.on_predict_batch_begin, end)
        hooks.on_predict_end()
        result = [np.concatenate(parts) for parts in zip(*outputs, strict=True)]
        return runner.packed(result)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        reset_metrics: bool = True,
        return_dict: bool = False,
    ) -> Any:
        """Train with one batch, all samples given; return its loss and metrics as :meth:`evaluate` does.

        Where not ``reset_metrics``, they are of all batches since it was last so. Raises as :meth:`fit` does, such as
        in Graphcore's words where gradients of several batches are accumulated.
        """
        return self._on_batch(by_class(x, y, sample_weight, class_weight), reset_metrics, return_dict, training=True)

    def test_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, reset_metrics: bool = True, return_dict: bool = False
    ) -> Any:
        """Return the loss and metrics of one batch; as :meth:`train_on_batch`, which trains with it."""
        return self._on_batch((x, y, sample_weight), reset_metrics, return_dict, training=False)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the model's outputs for one batch; raises as :meth:`predict` does."""
        return self.predict(x, batch_size=samples_of(x))

    def _on_batch(self, value: tuple[Any, Any, Any], anew: bool, return_dict: bool, *, training: bool) -> Any:
        objective = self._compiled()
        x, y, sample_weight = value
        samples = samples_of(x)
        data = batches(x, y, sample_weight, samples)
        runner = Execution(self, data, objective, None, 0, training=training, samples=samples)
        if checks.truth("reset_metrics", anew):
            self.reset_metrics()
        runner.run(0, _ignore, _ignore)
        logs = objective.logs()
        if anew:
            self.reset_metrics()
        return _returned(logs, return_dict)

    @property
    def _is_of_host(self) -> bool:
        """Whether to Keras the model is one of the host: without a strategy around it, and without options for IPUs."""
        return not (self.__dict__.get("_made_in_strategy", True) or in_strategy() or self.options.version)

    def _compiled(self) -> Objective:
        if self._objective is None:
            raise ProgramStateError(
                "You must compile your model before training/testing. Use `model.compile(optimizer, loss)`."
            )
        return self._objective

    def _callbacks(self, callbacks: Any, verbose: Any, *, training: bool, epochs: int, steps: int) -> CallbackList:
        if isinstance(verbose, bool | np.bool_ | str):
            verbose = 1 if verbose == "auto" else int(verbose) if not isinstance(verbose, str) else verbose
        shown = checks.whole("verbose", verbose)
        own = [*([ProgbarLogger(shown, training=training)] if shown else []), History()]
        if isinstance(callbacks, CallbackList):
            return callbacks
        return CallbackList(callbacks, self, own=own, verbose=shown, epochs=epochs, steps=steps)


def _check_frequency(freq: Any) -> None:
    """Refuse what is no number of epochs, or no list of such; raises ProgramError and ProgramTypeError."""
    for item in freq if isinstance(freq, Sequence) and not isinstance(freq, str) else [freq]:
        checks.whole("validation_freq", item, 1)


def _returned(logs: dict[str, Any], return_dict: bool) -> Any:
    """Return values by their names, or in a list, or the only one."""
    values = list(logs.values())
    return logs if return_dict else values[0] if len(values) == 1 else values


def _ignore(*_: object) -> None:
    """Do nothing: no callback looks on."""


def _validates(epoch: int, freq: Any) -> bool:
    return (epoch + 1) in freq if isinstance(freq, Sequence) else (epoch + 1) % freq == 0


def _without_effect(kwargs: Any) -> None:
    for name in kwargs:
        if name not in ("max_queue_size", "workers", "use_multiprocessing"):
            checks.wrong_type("Model", "arguments of Keras' fit, evaluate and predict", name)

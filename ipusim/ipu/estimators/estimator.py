"""Train, evaluate and predict with a model function in TensorFlow's sessions: ``tf.estimator``.

A spec is the result of a model function: predictions, loss, training operation and metrics.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.estimators import calls, training
from ipusim.ipu.estimators.predictions import chosen_of, samples_of
from ipusim.ipu.estimators.run_config import RunConfig
from ipusim.ipu.estimators.spec import EstimatorSpec, ModeKeys
from ipusim.ipu.estimators.workers import Workers
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.savers import refuse_arrays

tf = load()
_V1: Final = tf.compat.v1
_TRAIN: Final = _V1.train
_LOG: Final = _V1.logging
#: Reserved name among parameters.
_INPUT_FN: Final = "input_fn"
#: Parameter in which an estimator passes a batch size.
BATCH_SIZE: Final = "batch_size"


class Estimator:
    """Trains, evaluates and predicts with a model function; every call builds and runs a new graph."""

    #: Mini-batches per session run.
    _steps_per_run = 1

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        """Check the arguments.

        Args:
            model_fn: function returning a spec from features, and optionally from labels, mode, params and config.
            model_dir: checkpoint folder; by default the config's folder, else a temporary folder.
            config: a RunConfig.
            params: dictionary for model and input functions.
            warm_start_from: a checkpoint, a folder of checkpoints, or WarmStartSettings.

        Raises:
            ProgramError: if an argument is not valid (TensorFlow's message).
            ProgramTypeError: if an argument has a wrong type.
        """
        config = RunConfig() if config is None else config
        if params is not None and _INPUT_FN in params:
            raise ProgramError(f"{[_INPUT_FN]} are reserved keys but existed in params {params}.")
        if model_dir is not None and config.model_dir is not None and str(model_dir) != config.model_dir:
            raise ProgramError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
                f"'{model_dir}', in `RunConfig`: '{config.model_dir}' "
            )
        directory = (config if model_dir is None else config.replace(model_dir=model_dir)).model_dir
        if directory is None:
            directory = tempfile.mkdtemp()
            _LOG.warning(f"Using temporary folder as model directory: {directory}")
        self._config, self._model_dir = config.replace(model_dir=directory), directory
        self._model_fn, self._arguments = model_fn, calls.arguments_of(model_fn)
        self._params: dict[str, Any] = deepcopy(params or {})
        self._warm_start = training.settings_of(warm_start_from)
        self._workers = {mode: Workers(strategy, config) for mode, strategy in _strategies(config).items()}
        self._batch_sizes: dict[str, int | None] = {}

    @property
    def config(self) -> Any:
        """Options of the estimator's run."""
        return self._config

    @property
    def model_dir(self) -> str:
        """Folder of the checkpoints."""
        return str(self._model_dir)

    @property
    def params(self) -> dict[str, Any]:
        """Copy of the parameters."""
        return deepcopy(self._params)

    @property
    def model_fn(self) -> Any:
        """Model function, bound to the parameters."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            arguments = {"features": features, "labels": labels, "mode": mode, "config": config, "params": self.params}
            return calls.call_with(self._model_fn, arguments)

        return public_model_fn

    def train(
        self,
        input_fn: Any,
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Estimator:
        """Train from the latest checkpoint of ``model_dir``, or from initial values; return this estimator.

        Args:
            input_fn: function returning a data set, with optional arguments mode, params and config.
            hooks: SessionRunHooks.
            steps: mini-batches per replica to train.
            max_steps: global step at which training ends.
            saving_listeners: CheckpointSaverListeners.

        Raises:
            ProgramError: if an argument is not valid (the message of TensorFlow or Graphcore), or for errors of the
                program.
        """
        self._check_steps(steps, max_steps)
        workers = self._workers[ModeKeys.TRAIN]
        workers.check(self._config.num_worker_replicas)
        start = workers.of_chief("the first checkpoint", self.latest_checkpoint())
        if max_steps is not None and start is not None and self._step_of(start) >= max_steps:
            _LOG.info("Skipping training since max_steps has already saved.")
            return self
        with self._graph(ModeKeys.TRAIN) as workers:
            spec = self._build(ModeKeys.TRAIN, input_fn, workers)
            if start is None and self._warm_start is not None:
                training.warm_start(self._warm_start)
            stop = [] if steps is None and max_steps is None else [training.StopAtStep(steps, max_steps)]
            train_hooks, listeners = [*(hooks or ()), *stop], saving_listeners or ()
            loss = training.train(spec, start, train_hooks, listeners, workers, self._config, self._steps_per_run)
        _LOG.info(f"Loss for final step: {loss}.")
        return self

    def evaluate(
        self,
        input_fn: Any,
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the model function's metrics by name, with ``loss`` and ``global_step``.

        Args:
            input_fn: as in :meth:`train`.
            steps: mini-batches per replica.
            hooks: SessionRunHooks.
            checkpoint_path: checkpoint of the variables, by default the latest; without a checkpoint, initial values.
            name: name of the evaluation, and of its folder of metrics.

        Raises:
            ProgramError: for the reasons given at :meth:`train`.
        """
        self._check_steps(steps, None)
        path = self._checkpoint(checkpoint_path, "evaluate")
        with self._graph(ModeKeys.EVAL) as workers:
            spec = self._build(ModeKeys.EVAL, input_fn, workers)
            metrics = dict(spec.eval_metric_ops or {})
            metrics["loss"] = metrics.get("loss") or _V1.metrics.mean(workers.mean(spec.loss))
            values = {name: value for name, (value, _) in metrics.items()}
            values["global_step"] = _TRAIN.get_global_step()
            final_hook, updates = _TRAIN.FinalOpsHook(values), [update for _, update in metrics.values()]
            stop = [] if steps is None else [training.StopAfterRuns(steps // self._steps_per_run)]
            all_hooks = [*(hooks or ()), *stop, *(spec.evaluation_hooks or ()), final_hook]
            with _TRAIN.MonitoredSession(training.creator_of(spec.scaffold, path, self._config), all_hooks) as session:
                while not session.should_stop():
                    session.run(updates)
            result = dict(sorted(final_hook.final_ops_values.items()))
            result |= {name: workers.mean_metric(value) for name, value in result.items() if name != "global_step"}
            summary = ", ".join(f"{metric} = {value}" for metric, value in result.items())
            _LOG.info(f"Saving dict for global step {result['global_step']}: {summary}")
            self._write_summary(result, self.eval_dir(name))
        return result

    def predict(
        self,
        input_fn: Any,
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Yield the model function's predictions by sample, until the data set ends.

        Args:
            input_fn: as in :meth:`train`; the first item of a tuple holds the features.
            predict_keys: names of predictions to yield, if predictions are a dictionary.
            hooks: SessionRunHooks.
            checkpoint_path: as in :meth:`evaluate`.
            yield_single_examples: False to yield mini-batches as the model function returns them.
            num_predictions: upper limit of yielded items; None for no limit.

        Raises:
            ProgramError: for the reasons given at :meth:`train`.
        """
        path = self._checkpoint(checkpoint_path, "predict")

        def predictions() -> Iterator[Any]:
            with self._graph(ModeKeys.PREDICT) as workers:
                spec = self._build(ModeKeys.PREDICT, input_fn, workers)
                selection = chosen_of(spec.predictions, predict_keys)
                session = _TRAIN.MonitoredSession(
                    training.creator_of(spec.scaffold, path, self._config),
                    [*(hooks or ()), *(spec.prediction_hooks or ())],
                )
            with session:
                while not session.should_stop():
                    for batch in self._batches(session.run(selection)):
                        yield from samples_of(batch) if yield_single_examples else [batch]

        return itertools.islice(predictions(), num_predictions)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder of an evaluation's metrics."""
        return str(Path(self._model_dir) / (f"eval_{name}" if name else "eval"))

    def latest_checkpoint(self) -> str | None:
        """Return the path prefix of the latest checkpoint, or None before the first checkpoint."""
        refuse_arrays(self._model_dir)
        path: str | None = tf.train.latest_checkpoint(self._model_dir)
        return path

    def get_variable_names(self) -> list[str]:
        """Return the variable names of the latest checkpoint; raises ProgramError without a checkpoint."""
        return [name for name, _ in tf.train.list_variables(self._trained_checkpoint())]

    def get_variable_value(self, name: Any) -> Any:
        """Return a variable of the latest checkpoint, or a dictionary of the variables in a list of names.

        Raises:
            ProgramError: if there is no checkpoint.
        """
        prefix = self._trained_checkpoint()
        if isinstance(name, list | tuple):
            return {item: tf.train.load_variable(prefix, item) for item in name}
        return tf.train.load_variable(prefix, name)

    def export_saved_model(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: programs of simulated IPUs cannot be exported. Raises UnsupportedProgramError."""
        raise UnsupportedProgramError("estimators export no models: checkpoints in model_dir hold the variables")

    export_savedmodel = experimental_export_all_saved_models = export_saved_model

    def _check_steps(self, steps: Any, max_steps: Any) -> None:
        """Check that at most one limit is given, and is positive; raises ProgramError with TensorFlow's message."""
        if steps is not None and max_steps is not None:
            raise ProgramError("Can not provide both steps and max_steps.")
        for name, limit in (("steps", steps), ("max_steps", max_steps)):
            if limit is not None:
                if checks.integer(name, limit) <= 0:
                    raise ProgramError(f"Must specify {name} > 0, given: {limit}")
                checks.whole(name, limit)

    def _spec(self, mode: str, dataset: Any) -> Any:
        """Return the model's spec on the host, for the elements of a data set."""
        element = _V1.data.make_initializable_iterator(dataset)
        _V1.add_to_collection(_V1.GraphKeys.TABLE_INITIALIZERS, element.initializer)
        values = element.get_next()
        features, labels = values if isinstance(values, tuple) else (values, None)
        result = self.model_fn(features, None if mode == ModeKeys.PREDICT else labels, mode, self._config)
        if not isinstance(result, EstimatorSpec):
            raise ProgramError("model_fn should return an EstimatorSpec.")
        return result

    def _batches(self, values: Any) -> Iterator[Any]:
        """Yield a session run's predictions, mini-batch by mini-batch."""
        yield values

    @contextmanager
    def _graph(self, mode: str) -> Iterator[Workers]:
        """Build a mode's program in a new graph with a global step; yields the mode's workers."""
        workers = self._workers[mode]
        with tf.Graph().as_default(), workers.scope():
            if self._config.tf_random_seed is not None:
                _V1.set_random_seed(self._config.tf_random_seed)
            _TRAIN.create_global_step()
            yield workers

    def _build(self, mode: str, input_fn: Any, workers: Workers) -> Any:
        """Return the model's spec for an input function's data set."""
        if any(self._batch_sizes.values()):
            self._params.pop(BATCH_SIZE, None)
        if size := self._batch_sizes.get(mode):
            if "params" not in calls.arguments_of(input_fn):
                raise ProgramError(f"input_fn must have params argument to receive params['{BATCH_SIZE}']")
            self._params[BATCH_SIZE] = size
        options = {"mode": mode, "params": self.params, "config": self._config}
        return self._spec(mode, calls.dataset_of(input_fn, options | workers.input_arguments()))

    def _checkpoint(self, value: str | None, verb: str) -> str | None:
        """Return the checkpoint to use; None for initial values."""
        if value is not None:
            refuse_arrays(value)
            if not _TRAIN.checkpoint_exists(value):
                raise ProgramError(f"The passed save_path is not a valid checkpoint: {value}")
            return value
        result = self.latest_checkpoint()
        if result is None:
            _LOG.info(
                f"Could not find trained model in model_dir: {self._model_dir}, running initialization to {verb}."
            )
        return result

    def _trained_checkpoint(self) -> str:
        """Return the latest checkpoint; raises ProgramError without a checkpoint."""
        result = self.latest_checkpoint()
        if result is None:
            raise ProgramError(f"Couldn't find trained model at {self._model_dir}.")
        return result

    @staticmethod
    def _step_of(checkpoint: str) -> int:
        """Return the global step of a checkpoint."""
        return int(tf.train.load_variable(checkpoint, _V1.GraphKeys.GLOBAL_STEP))

    @staticmethod
    def _write_summary(metrics: Mapping[str, Any], folder: str) -> None:
        """Write the numbers of an evaluation as a summary."""
        values = [
            _V1.Summary.Value(tag=name, simple_value=float(value))
            for name, value in metrics.items()
            if name != "global_step" and np.ndim(value) == 0
        ]
        writer = _V1.summary.FileWriterCache.get(folder)
        writer.add_summary(_V1.Summary(value=values), int(metrics["global_step"]))
        writer.flush()


def _strategies(config: Any) -> dict[str, Any]:
    """Return the strategy for several hosts by mode; None for a single host."""
    return {
        ModeKeys.TRAIN: config.train_distribute,
        ModeKeys.EVAL: config.eval_distribute,
        ModeKeys.PREDICT: None,
    }

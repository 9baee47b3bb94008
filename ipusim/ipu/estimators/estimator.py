"""The base of all estimators: training with checkpoints, evaluation and predictions."""

from __future__ import annotations

import itertools
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from copy import deepcopy
from dataclasses import replace
from operator import methodcaller
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.base.files import write_file
from ipusim.ipu.estimators import training
from ipusim.ipu.estimators.program import EstimatorProgram, Streamed, arguments_of, call_with, dataset_of, examples_of
from ipusim.ipu.estimators.workers import Workers
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import all_on_device
from ipusim.ipu.runtime.program_state import configure, set_random_seed
from ipusim.ipu.tensorflow.estimator_spec import ModeKeys
from ipusim.ipu.tensorflow.saver import Saver, latest_checkpoint, list_variables, load_variable
from ipusim.ipu.tensorflow.session import Session, get_logger, reset_default_graph
from ipusim.ipu.tensorflow.session_run_hooks import StopAtStepHook, checked_hooks, checked_listeners
from ipusim.ipu.tensorflow.variables import current_global_step, set_global_step

T = TypeVar("T")

#: Parameters that the estimator itself sets.
_INPUT_FN: Final = "input_fn"
_BATCH_SIZE: Final = "batch_size"
_FILE: Final = "metrics.json"


class Estimator(ABC):
    """Trains, evaluates and predicts with a model function; each call builds a new program and runs it.

    Args:
        model_fn, model_dir, config, params, warm_start_from: as of IPUEstimator.
        batch_sizes: of each mode the argument's name and its value.
    """

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None,
        config: Any,
        params: Any,
        warm_start_from: Any,
        batch_sizes: Mapping[str, tuple[str, int | None]] | None = None,
    ) -> None:
        """Check the arguments."""
        if not isinstance(config, RunConfig):
            raise ProgramError("`config` must be provided with type `ipu_run_config.RunConfig`")
        if config.train_distribute is None and config.num_worker_replicas + config.num_ps_replicas > 1:
            raise UnsupportedProgramError(
                "TF_CONFIG: expected one worker of a RunConfig without train_distribute, which says the strategy of "
                f"several, got {config.cluster_spec}"
            )
        if params is not None and not isinstance(params, dict):
            raise ProgramError("`params` is expected to be of type `dict`")
        if params is not None and _INPUT_FN in params:
            raise ProgramError(f"{[_INPUT_FN]} are reserved keys but existed in params {params}.")
        value = batch_sizes or {}
        if any(size is not None for _, size in value.values()) and _BATCH_SIZE in (params or {}):
            raise ProgramError(f"{_BATCH_SIZE} cannot be passed in params when a batch size argument is passed")
        replicas, self._config = config.ipu_run_config.num_replicas, config
        self._batch_sizes = {
            mode: self._workers(mode).batch(name, size, replicas) for mode, (name, size) in value.items()
        }
        if model_dir is not None and config.model_dir is not None and str(model_dir) != config.model_dir:
            raise ProgramError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor: "
                f"'{model_dir}', in `RunConfig`: '{config.model_dir}' "
            )
        chosen = (config if model_dir is None else config.replace(model_dir=model_dir)).model_dir
        self._temporary = chosen is None
        if chosen is None:
            chosen = tempfile.mkdtemp()
            get_logger().warning(f"Using temporary folder as model directory: {chosen}")
        self._config = config.replace(model_dir=chosen)
        self._model_dir = chosen
        self._model_fn, self._arguments = model_fn, arguments_of(model_fn)
        self._params: dict[str, Any] = deepcopy(params or {})
        self._warm_start = training.settings_of(warm_start_from)

    @abstractmethod
    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorProgram:
        """Return the program of a mode, compiled."""

    @property
    def config(self) -> RunConfig:
        """How it runs."""
        return self._config

    @property
    def model_dir(self) -> str:
        """Folder of the checkpoints."""
        return self._model_dir

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters."""
        return deepcopy(self._params)

    @property
    def model_fn(self) -> Any:
        """The model function, bound to the parameters."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            arguments = {"features": features, "labels": labels, "mode": mode, "config": config, "params": self.params}
            return call_with(self._model_fn, arguments)

        return public_model_fn

    def train(
        self,
        input_fn: Any,
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Estimator:
        """Train on from the latest checkpoint of model_dir, if any; return this estimator.

        The dataset goes on behind the elements that the checkpoint has seen, from its beginning where it ends before:
        training in two calls, or in two processes, gives the bits of training in one.

        Args:
            input_fn: a function of mode, params and config, where it takes them, to a dataset; under a strategy of
                several hosts also of input_context, a tf.distribute.InputContext that says which worker reads.
            hooks: SessionRunHooks.
            steps: mini-batches of each replica to train on, a multiple of iterations_per_loop.
            max_steps: those at which training ends, counted from the first call.
            saving_listeners: CheckpointSaverListeners.

        Raises ProgramError and ProgramTypeError in TensorFlow's and Graphcore's words, and as programs do.
        """
        training.check_steps(steps, max_steps, self._config.ipu_run_config.iterations_per_loop)
        own, listeners = checked_hooks("hooks", hooks), checked_listeners(saving_listeners)
        workers = self._workers(ModeKeys.TRAIN)
        workers.check(self._config.num_worker_replicas)
        start = self._agreed(workers)
        if max_steps is not None and start is not None and int(load_variable(start, "global_step")) >= max_steps:
            get_logger().info("Skipping training since max_steps has already saved.")
            return self
        stop = StopAtStepHook(num_steps=steps, last_step=max_steps)

        def train() -> None:
            program = self._built(ModeKeys.TRAIN, input_fn, workers)
            every = training.training_hooks(self._config, program, [*own, stop], listeners, workers.is_chief)
            restore, count, last = self._restoring(start, warm=True), training.counting(program.iterations), None
            for loss in training.runs(program.loss, every, restore, count, workers.any):
                last = loss
            if workers.is_chief:
                get_logger().info(f"Loss for final step: {last}.")

        _run(train, workers)
        return self

    def evaluate(
        self,
        input_fn: Any,
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the metrics of the model function by name, with loss and global_step.

        Args:
            input_fn: as of :meth:`train`.
            steps: mini-batches of each replica, a multiple of iterations_per_loop.
            hooks: SessionRunHooks.
            checkpoint_path: the checkpoint, by default the latest; without any the variables are initial ones.
            name: of the evaluation, whose metrics are kept in a folder of it.

        Raises as :meth:`train` does.
        """
        iterations = self._config.ipu_run_config.iterations_per_loop
        training.check_steps(steps, None, iterations)
        assert steps is not None
        run_count = steps // iterations
        folder, own = Path(self.eval_dir(name)), checked_hooks("hooks", hooks)
        workers = self._workers(ModeKeys.EVAL)
        start = self._checkpoint(checkpoint_path, "evaluate", workers)

        def evaluate() -> dict[str, Any]:
            program, metrics, losses = self._built(ModeKeys.EVAL, input_fn, workers), Streamed(), []
            every = [*own, training.StopAfterRuns(run_count), *program.hooks]
            fetches = [program.loss, program.values]
            for loss, values in training.runs(fetches, every, self._restoring(start), agreed=workers.any):
                losses.append(np.float32(np.mean(loss)))
                metrics.add(values)
            if workers.count > 1:
                metrics.join(workers.gather)
            mean = np.float32(np.mean(losses))
            return metrics.values() | {"loss": mean, "global_step": np.int64(current_global_step())}

        result: dict[str, Any] = _run(evaluate, workers)
        if workers.is_chief:
            values = ", ".join(f"{name} = {value}" for name, value in sorted(result.items()))
            get_logger().info(f"Saving dict for global step {result['global_step']}: {values}")
            write_file(folder / _FILE, (json.dumps(result, indent=2, default=methodcaller("tolist")) + "\n").encode())
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
        """Yield the predictions of the model function, sample by sample.

        Args:
            input_fn: as of :meth:`train`; of a tuple the first item are the features.
            predict_keys: names of those to yield, of predictions that are a dictionary.
            hooks: SessionRunHooks.
            checkpoint_path: as of :meth:`evaluate`.
            yield_single_examples: False for mini-batches as the model function returns them.
            num_predictions: how many; None for as many as are asked for, until the dataset ends, which raises.

        Raises as :meth:`train` does.
        """
        own, single = checked_hooks("hooks", hooks), checks.truth("yield_single_examples", yield_single_examples)
        if num_predictions is not None:
            checks.whole("num_predictions", num_predictions)
        workers = self._workers(ModeKeys.PREDICT)
        start, context = self._checkpoint(checkpoint_path, "predict", workers), copy_context()

        def predict() -> Iterator[Any]:
            program = self._built(ModeKeys.PREDICT, input_fn, workers)
            for batches in training.runs(program.values, [*own, *program.hooks], self._restoring(start)):
                yield from examples_of(batches, predict_keys, single, self._config.ipu_run_config.num_replicas > 1)

        return itertools.islice(training.inside(context, predict()), num_predictions)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder of an evaluation's metrics."""
        return str(Path(self._model_dir) / (f"eval_{checks.text('name', name)}" if name else "eval"))

    def latest_checkpoint(self) -> str | None:
        """Return the prefix of the latest checkpoint; None where there is none."""
        return latest_checkpoint(self._model_dir)

    def get_variable_names(self) -> list[str]:
        """Return the names of the latest checkpoint's variables; raises ProgramError where there is none."""
        return [name for name, _ in list_variables(self._trained())]

    def get_variable_value(self, name: Any) -> Any:
        """Return a variable of the latest checkpoint, or of a list a dictionary; raises ProgramError for others."""
        prefix = self._trained()
        if isinstance(name, list | tuple):
            return {item: load_variable(prefix, item) for item in name}
        return load_variable(prefix, name)

    def export_saved_model(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Any,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> NoReturn:
        """Refuse: there is no graph to export. Raises UnsupportedProgramError."""
        _refuse_export("export_saved_model")

    def export_savedmodel(
        self,
        export_dir_base: Any,
        serving_input_receiver_fn: Any,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> NoReturn:
        """Refuse: there is no graph to export. Raises UnsupportedProgramError."""
        _refuse_export("export_savedmodel")

    def experimental_export_all_saved_models(
        self,
        export_dir_base: Any,
        input_receiver_fn_map: Any,
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> NoReturn:
        """Refuse: there is no graph to export. Raises UnsupportedProgramError."""
        _refuse_export("experimental_export_all_saved_models")

    def _workers(self, mode: str) -> Workers:
        """Return the workers of a mode; each predicts by itself."""
        config = self._config
        return Workers({ModeKeys.TRAIN: config.train_distribute, ModeKeys.EVAL: config.eval_distribute}.get(mode))

    def _agreed(self, workers: Workers) -> str | None:
        """Return the checkpoint that all workers go on from, the chief's; raises ProgramError for several folders."""
        folder, start = workers.of_chief("the first checkpoint", (self._model_dir, self.latest_checkpoint()))
        if self._temporary:
            self._model_dir, self._config = folder, self._config.replace(model_dir=folder)
        if folder != self._model_dir:
            raise ProgramError(
                f"model_dir: expected the same on all workers, got {folder!r} on the chief, {self._model_dir!r} here"
            )
        return start

    def _built(self, mode: str, input_fn: Any, workers: Workers) -> EstimatorProgram:
        """Return the program of a mode, alone in the context that this runs in."""
        reset_default_graph()
        set_global_step(0)
        if self._config.tf_random_seed is not None:
            set_random_seed(self._config.tf_random_seed)
        run = self._config.ipu_run_config
        if run.ipu_options is not None:
            configure(run.ipu_options)
        if any(self._batch_sizes.values()):
            self._params.pop(_BATCH_SIZE, None)
        if size := self._batch_sizes.get(mode):
            if "params" not in arguments_of(input_fn):
                raise ProgramError(f"input_fn must have params argument to receive params['{_BATCH_SIZE}']")
            self._params[_BATCH_SIZE] = size
        dataset = dataset_of(
            input_fn, {"mode": mode, "params": self.params, "config": self._config} | workers.input_arguments()
        )
        with all_on_device(run.ordinal):
            infeed = IPUInfeedQueue(dataset, prefetch_depth=run.prefetch_depth)
            program = self._program(mode, infeed)
        return replace(program, loss=workers.mean(program.loss), hooks=(training.StartInfeed(infeed), *program.hooks))

    def _restoring(self, start: str | None, warm: bool = False) -> Callable[[Session], None]:
        """Return what gives the variables of a session their values: a checkpoint's, or those of a warm start."""

        def restore(session: Session) -> None:
            if start is not None:
                get_logger().info(f"Restoring parameters from {start}")
                Saver().restore(session, start)
            elif warm and self._warm_start is not None:
                get_logger().info(f"Warm-starting with {self._warm_start}")
                training.warm_start(self._warm_start)

        return restore

    def _checkpoint(self, value: str | None, verb: str, workers: Workers) -> str | None:
        """Return the checkpoint to use, None for initial variables."""
        if value is not None:
            return checks.text("checkpoint_path", value)
        result = self._agreed(workers)
        if result is None:
            get_logger().info(
                f"Could not find trained model in model_dir: {self._model_dir}, running initialization to {verb}."
            )
        return result

    def _trained(self) -> str:
        result = self.latest_checkpoint()
        if result is None:
            raise ProgramError(f"Couldn't find trained model at {self._model_dir}.")
        return result


def _run(function: Callable[[], T], workers: Workers) -> T:
    """Run a function in a context of its own, in which its workers compute together."""

    def run() -> T:
        with workers.scope():
            return function()

    return copy_context().run(run)


def _refuse_export(name: str) -> NoReturn:
    raise UnsupportedProgramError(
        f"{name}: expected no export, as there is no compiled graph: checkpoints in model_dir hold the variables"
    )

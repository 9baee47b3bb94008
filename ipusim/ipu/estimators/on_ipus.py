"""Define the base class of estimators whose model function runs on simulated IPUs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, Final

from ipusim.base.errors import ProgramError
from ipusim.ipu import ipu_compiler
from ipusim.ipu.estimators.estimator import BATCH_SIZE, Estimator
from ipusim.ipu.estimators.spec import EstimatorSpec
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.runtime.devices import all_on_device

tf = load()
_V1: Final = tf.compat.v1


class EstimatorOnIpus(Estimator):
    """Trains, evaluates and predicts on simulated IPUs, one program execution per session run."""

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None,
        config: Any,
        params: Any,
        warm_start_from: Any,
        batch_sizes: Mapping[str, tuple[str, int | None]] | None = None,
    ) -> None:
        """Check the arguments.

        Args:
            model_fn, model_dir, config, params, warm_start_from: see Estimator.
            batch_sizes: argument name and value of the batch size, by mode.

        Raises:
            ProgramError: if an argument is not valid (the message of TensorFlow or Graphcore).
            ProgramTypeError: if an argument has a wrong type.
        """
        if not isinstance(config, RunConfig):
            raise ProgramError("`config` must be provided with type `ipu_run_config.RunConfig`")
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        value = batch_sizes or {}
        if any(size is not None for _, size in value.values()) and BATCH_SIZE in (params or {}):
            raise ProgramError(f"{BATCH_SIZE} cannot be passed in params when a batch size argument is passed")
        replicas = config.ipu_run_config.num_replicas
        self._batch_sizes = {
            mode: self._workers[mode].batch(name, size, replicas) for mode, (name, size) in value.items()
        }

    @abstractmethod
    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorSpec:
        """Return a mode's predictions, loss or training operation, computed by a program that reads ``infeed``."""

    @property
    def _steps_per_run(self) -> int:  # type: ignore[override]
        iterations: int = self._config.ipu_run_config.iterations_per_loop
        return iterations

    def _check_steps(self, steps: Any, max_steps: Any) -> None:
        super()._check_steps(steps, max_steps)
        if steps is None and max_steps is None:
            raise ProgramError("One of `num_steps` or `final_step` must be specified.")
        if steps is not None and steps % self._steps_per_run:
            raise ProgramError(f"steps ({steps}) must be a multiple of iterations_per_loop ({self._steps_per_run})")

    def _spec(self, mode: str, dataset: Any) -> EstimatorSpec:
        run = self._config.ipu_run_config
        with all_on_device(run.ordinal):
            infeed = IPUInfeedQueue(dataset, prefetch_depth=run.prefetch_depth)
            _V1.add_to_collection(_V1.GraphKeys.TABLE_INITIALIZERS, infeed.initializer)
            return self._program(mode, infeed)

    def _batches(self, values: Any) -> Iterator[Any]:
        """Yield the mini-batches of all iterations and all replicas."""
        replicated = self._config.ipu_run_config.num_replicas > 1
        tensors = values if isinstance(values, dict) else {"": values}
        flat = {name: item.reshape(-1, *item.shape[2:]) if replicated else item for name, item in tensors.items()}
        for number in range(min(map(len, flat.values()))):
            batch = {name: item[number] for name, item in flat.items()}
            yield batch if isinstance(values, dict) else batch[""]

    def _count_run(self, dependencies: Any) -> Any:
        """Return an operation that advances the global step by a run, after its dependencies."""
        with tf.control_dependencies(dependencies):
            return _V1.train.get_global_step().assign_add(self._steps_per_run, read_value=False)


def run_and_dequeue(program: Any, queue: IPUOutfeedQueue, replicas: int) -> tuple[Any, Any]:
    """Compile a replicated program; return its operation, and the tensors enqueued by one run."""
    queue.feed.replicas = replicas
    operation = ipu_compiler.compile(program)
    with tf.control_dependencies([operation]):
        return operation, queue.dequeue()


def last_of(values: Any) -> tuple[Any, Any]:
    """Return a metric (value, update) of a run's last iteration, averaged over replicas.

    Args:
        values: tensor of a run's results, with iterations as first axis.
    """
    local = [_V1.GraphKeys.LOCAL_VARIABLES]
    last_value = _V1.Variable(0.0, trainable=False, collections=local, use_resource=True, name="last")
    return last_value.read_value(), last_value.assign(mean_of(values[-1]))


def mean_of(values: Any) -> Any:
    """Return the mean of values over all axes: mini-batches and replicas."""
    return tf.reduce_mean(tf.reshape(tf.cast(values, tf.float32), [-1]))

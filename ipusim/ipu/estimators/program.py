"""The program that an estimator runs, compiled, and the use of its results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import Fetch, Running
from ipusim.ipu.tensorflow.dataset import Dataset
from ipusim.ipu.tensorflow.estimator_spec import checked_metrics
from ipusim.ipu.tensorflow.metrics import Metric
from ipusim.ipu.tensorflow.session_run_hooks import SessionRunHook


class Results(Fetch):
    """The results of one run of a program, taken from its outfeed as soon as it has run."""

    def __init__(self, operation: Fetch, dequeued: Callable[[], Any]) -> None:
        """Take what runs the program, and what dequeues."""
        self._operation, self._dequeued = operation, dequeued

    def evaluate(self, running: Running) -> Any:
        """Run, and dequeue."""
        running.value(self._operation)
        return running.values(self._dequeued())


class Of(Fetch):
    """A function of what a run has sent."""

    def __init__(self, results: Fetch, function: Callable[[Any], Any]) -> None:
        """Take the results, and what is made of them."""
        self._results, self._function = results, function

    def evaluate(self, running: Running) -> Any:
        """Return it."""
        return self._function(running.value(self._results))


@dataclass(frozen=True, eq=False)
class EstimatorProgram:
    """A program of an estimator for one mode.

    Attributes:
        iterations: mini-batches of each replica in a run.
        loss: mean loss of a run; None for predictions.
        values: of an evaluation metrics by name, of predictions those of each mini-batch.
        hooks, chief_hooks: that the model function has named; the latter come before all others.
    """

    iterations: int
    loss: Fetch | None = None
    values: Fetch | None = None
    hooks: Sequence[SessionRunHook] = ()
    chief_hooks: Sequence[SessionRunHook] = ()


def mean_loss(losses: Any) -> np.float32:
    """Return the mean of a run's losses, over mini-batches and replicas."""
    return np.float32(np.mean(np.asarray(losses, np.float32)))


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a function still takes; raises ProgramTypeError for none."""
    checks.function("model_fn", function)
    taken = set(function.keywords) if isinstance(function, partial) else set()
    return [name for name in inspect.signature(function).parameters if name not in taken]


def call_with(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call a function with those of the arguments that it takes, each by its name."""
    known = arguments_of(function)
    return function(**{name: value for name, value in options.items() if name in known})


def dataset_of(input_fn: Any, options: Mapping[str, Any]) -> Dataset:
    """Return the dataset that an input function gives; raises ProgramError for anything else."""
    checks.function("input_fn", input_fn, "a function that returns a dataset")
    result = call_with(input_fn, options)
    if not isinstance(result, Dataset):
        raise ProgramError("input_fn must return Dataset")
    return result


def check_model_fn(model_fn: Any, params: Mapping[str, Any] | None) -> None:
    """Check the arguments that a model function takes, as TensorFlow does; raises ProgramError."""
    names = arguments_of(model_fn)
    if "features" not in names:
        raise ProgramError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ProgramError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    others = [name for name in names if name not in ("features", "labels", "mode", "params", "config", "self")]
    if others:
        raise ProgramError(f"model_fn ({model_fn}) has following not expected args: {others}")


def features_and_labels(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return an element of the dataset as features and labels; raises ProgramError in Graphcore's words."""
    if kwargs:
        return dict(kwargs), None
    if len(args) not in (1, 2):
        raise ProgramError(f"Invalid dataset tuple, expected 1 or 2 elements, got {len(args)}")
    return args if len(args) == 2 else (args[0], None)


def examples_of(batches: Any, keys: Any, single: bool, replicated: bool) -> Iterator[Any]:
    """Yield the predictions of one run, a value or a dictionary of them, sample by sample or batch by batch.

    ``batches`` have an axis of mini-batches, and where they are ``replicated`` one of replicas behind it. Of a
    dictionary the ``keys`` are yielded, by default all. Raises ProgramError in TensorFlow's words for others.
    """
    chosen = _chosen(batches, keys)
    flat = {name: _joined(np.asarray(item), replicated) for name, item in chosen.items()}
    alone = not isinstance(batches, dict)
    for number in range(min(len(item) for item in flat.values())):
        batch = {name: item[number] for name, item in flat.items()}
        if not single:
            yield batch[""] if alone else batch
            continue
        lengths = {np.shape(item)[:1] for item in batch.values()}
        if len(lengths) != 1 or () in lengths:
            raise ProgramError("Batch length of predictions should be same.")
        for sample in range(*lengths.pop()):
            yield batch[""][sample] if alone else {name: item[sample] for name, item in batch.items()}


def _chosen(batches: Any, keys: Any) -> dict[str, Any]:
    if not isinstance(batches, dict):
        if keys is not None:
            raise ProgramError("predict_keys argument is not valid in case of non-dict predictions.")
        return {"": batches}
    if keys is None:
        return batches
    if isinstance(keys, str) or not (isinstance(keys, Collection) and all(isinstance(key, str) for key in keys)):
        checks.wrong_type("predict_keys", "a list of names", keys)
    result = {name: batch for name, batch in batches.items() if name in keys}
    if not result:
        raise ProgramError(f"Expected to run at least one output from {list(batches)}, provided {list(keys)}.")
    return result


def _joined(array: Any, replicated: bool) -> Any:
    """Return an array with the mini-batches of all replicas concatenated."""
    return array.reshape(-1, *array.shape[2:]) if replicated else array


class Streamed:
    """The metrics of an evaluation so far: sums of those of ``tf.metrics``, the last values of others."""

    def __init__(self) -> None:
        """Begin without any."""
        self._metrics: dict[str, Any] = {}

    def add(self, metrics: Mapping[str, object]) -> None:
        """Add the metrics of one session run; raises ProgramTypeError in TensorFlow's words for what is no metric."""
        for name, pair in checked_metrics(metrics).items():
            before = self._metrics.get(name)
            if isinstance(pair, Metric) and isinstance(before, Metric):
                self._metrics[name] = pair.summed([before.total, pair.total], [before.count, pair.count])
            else:
                self._metrics[name] = pair

    def join(self, gather: Callable[[Any], Any]) -> None:
        """Sum the metrics that are sums over all workers and average the others; ``gather`` returns a value of each."""
        for name, pair in sorted(self._metrics.items()):
            if isinstance(pair, Metric):
                self._metrics[name] = pair.summed(gather(pair.total), gather(pair.count))
            else:
                value = np.mean(gather(pair[1]), axis=0)
                self._metrics[name] = value, value

    def values(self) -> dict[str, Any]:
        """Return them by name, each as a number or an array."""
        return {name: np.asarray(pair[1])[()] for name, pair in sorted(self._metrics.items())}


def metrics_to_send(metrics: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return the values that the body of a loop sends of its metrics, by names of their own."""
    result: dict[str, Any] = {}
    for name, pair in metrics.items():
        if isinstance(pair, Metric):
            result |= {f"metric/{name}/total": pair.total, f"metric/{name}/count": pair.count}
        else:
            result[f"metric/{name}"] = pair[1]
    return result


def metrics_received(metrics: Mapping[str, tuple[Any, Any]], results: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the metrics of a run: sums over its mini-batches, or the last values, over replicas their mean."""
    result: dict[str, tuple[Any, Any]] = {}
    for name, pair in metrics.items():
        if isinstance(pair, Metric):
            result[name] = pair.summed(results[f"metric/{name}/total"], results[f"metric/{name}/count"])
        else:
            value = np.mean(results[f"metric/{name}"][-1])
            result[name] = value, value
    return result

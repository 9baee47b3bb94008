"""Run a model function as a loop's body: Graphcore's IPUEstimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from os import PathLike
from typing import Any, Final, NamedTuple

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu import loops
from ipusim.ipu.estimators.calls import check_model_fn, features_and_labels
from ipusim.ipu.estimators.on_ipus import EstimatorOnIpus, last_of, mean_of, run_and_dequeue
from ipusim.ipu.estimators.spec import EstimatorSpec, ModeKeys
from ipusim.ipu.graph.averaging import Averaged
from ipusim.ipu.graph.reading import read_node
from ipusim.ipu.graph.registry import value_of
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig

tf = load()
_NEST: Final = import_module("tensorflow.python.util.nest")
#: Name of the loss among a mini-batch's outputs.
_LOSS: Final = "loss"


class _Fields(NamedTuple):
    """Fields of an IPUEstimatorSpec, which adds checks."""

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, tuple[Any, Any]] | None = None
    eval_metrics: tuple[Any, Any] | None = None
    host_call: tuple[Any, list[Any]] | None = None
    training_hooks: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None


class IPUEstimatorSpec(_Fields):
    """Result of an IPUEstimator's model function.

    Attributes:
        mode: a ModeKeys.
        predictions: a tensor, or a dictionary of tensors; for PREDICT.
        loss: a tensor of one number; for TRAIN and EVAL.
        train_op: training operation; for TRAIN.
        eval_metric_ops: pairs of value and update by name, computed on the IPU; for EVAL. A metric's result is the
            update's value after the last mini-batch, averaged over replicas.
        eval_metrics: a function for the host and its tensors, a list or a dictionary; the function returns pairs like
            eval_metric_ops. The tensors' first axis is the mini-batch in the run. For EVAL, instead of eval_metric_ops.
        host_call: a function for the host and a list of its tensors, if a run has a single mini-batch; the function
            returns an operation, or None.
        training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.

    Raises:
        ProgramError: if an argument is not valid (Graphcore's message).
        ProgramTypeError: if an argument has a wrong type.
    """

    __slots__ = ()
    __signature__ = signature(_Fields)

    def __new__(cls, *args: Any, **kwargs: Any) -> IPUEstimatorSpec:
        """Check the arguments."""
        result = super().__new__(cls, *args, **kwargs)
        _check_call("host_call", result.host_call, (list,))
        _check_call("eval_metrics", result.eval_metrics, (list, dict))
        return result


def _check_call(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    """Check a pair of a function and its tensors, in a list or dictionary; None is allowed."""
    if value is None:
        return
    if not isinstance(value, tuple):
        raise ProgramTypeError(f"`{name}` must be a tuple")
    if len(value) != 2:
        raise ProgramError(f"`{name}` must have two elements")
    if not callable(value[0]):
        raise ProgramTypeError(f"first element in `{name}` must be callable")
    if not isinstance(value[1], kinds):
        raise ProgramTypeError(f"second element in `{name}` must be a {' or '.join(kind.__name__ for kind in kinds)}")


class IPUEstimator(EstimatorOnIpus):
    """Trains, evaluates and predicts with a model function that runs in a loop.

    The loop runs on an IPU, or on several IPUs as shards.
    """

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        """Check the arguments.

        Args:
            model_fn: function returning an IPUEstimatorSpec or EstimatorSpec from features, and optionally from
                labels, mode, params and config.
            model_dir: checkpoint folder; by default the config's folder, else a temporary folder.
            config: a RunConfig of ipu_run_config.
            params: dictionary for model and input functions.
            warm_start_from: a checkpoint, a folder of checkpoints, or WarmStartSettings.
            train_batch_size, eval_batch_size, predict_batch_size: batch size over all replicas of all workers; a
                replica's share is params["batch_size"].

        Raises:
            ProgramError: if an argument is not valid (Graphcore's message).
            ProgramTypeError: if an argument has a wrong type.
        """
        check_model_fn(model_fn, params)
        sizes = {
            ModeKeys.TRAIN: ("train_batch_size", train_batch_size),
            ModeKeys.EVAL: ("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: ("predict_batch_size", predict_batch_size),
        }
        super().__init__(model_fn, model_dir, config, params, warm_start_from, sizes)

    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorSpec:
        run, queue = self._config.ipu_run_config, IPUOutfeedQueue()
        body = _Body(self, mode, queue)
        operation, outputs = run_and_dequeue(
            lambda: loops.repeat(run.iterations_per_loop, body, [], infeed, config=run.ipu_options),
            queue,
            run.num_replicas,
        )
        spec = body.spec
        if mode == ModeKeys.PREDICT:
            predictions = _in_structure("prediction", outputs, spec.predictions)
            return EstimatorSpec(mode, predictions=predictions, prediction_hooks=spec.prediction_hooks)
        loss = mean_of(outputs[_LOSS])
        if mode == ModeKeys.EVAL:
            hooks = spec.evaluation_hooks
            return EstimatorSpec(mode, loss=loss, eval_metric_ops=_metrics(spec, outputs), evaluation_hooks=hooks)
        host_call = getattr(spec, "host_call", None)
        if host_call and run.iterations_per_loop > 1:
            raise ProgramError("host_call is not allowed for iterations_per_loop > 1")
        host_result = host_call and host_call[0](*(value[0] for value in _in_structure("host", outputs, host_call[1])))
        train = self._count_run([operation, loss] + ([] if host_result is None else [host_result]))
        chief = getattr(spec, "training_chief_hooks", ())
        return EstimatorSpec(
            mode, loss=loss, train_op=train, training_hooks=spec.training_hooks, training_chief_hooks=chief
        )

    def _model(self, features: Any, labels: Any, mode: str) -> Any:
        """Call the model function; raises ProgramError with Graphcore's message for labels without an argument."""
        if labels is not None and "labels" not in self._arguments:
            raise ProgramError("model_fn does not take labels, but input_fn returns labels.")
        result = self.model_fn(features, labels, mode, self.config)
        if not isinstance(result, IPUEstimatorSpec | EstimatorSpec):
            raise ProgramError("`model_fn` must return IPUEstimatorSpec or EstimatorSpec")
        return result


@dataclass
class _Body:
    """Model function as a loop's body.

    Attributes:
        spec: last result of the model function.
    """

    estimator: IPUEstimator
    mode: str
    queue: IPUOutfeedQueue
    spec: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Enqueue a mini-batch's outputs for the host; return the operations."""
        features, labels = features_and_labels(args, kwargs)
        graph = tf.compat.v1.get_default_graph()
        start = len(graph.get_operations())
        self.spec = self.estimator._model(features, None if self.mode == ModeKeys.PREDICT else labels, self.mode)
        enqueue = self.queue.enqueue(self._outputs())
        if self.mode != ModeKeys.TRAIN:
            return [enqueue]
        if self.spec.train_op is None:
            raise ProgramError("EstimatorSpec must contain train_op when training")
        operations = graph.get_operations()[start:]
        _check_global_step(operations)
        if self.estimator.config.ipu_run_config.num_replicas > 1:
            _check_replicated(operations)
        train = self.spec.train_op
        return [train if isinstance(train, tf.Operation) else train.op, enqueue]

    def _outputs(self) -> dict[str, Any]:
        """Return the host's tensors by name; raises ProgramError with Graphcore's message for a missing part."""
        spec = self.spec
        if self.mode == ModeKeys.PREDICT:
            if spec.predictions is None:
                raise ProgramError("EstimatorSpec must contain predictions when predicting")
            return _by_name("prediction", spec.predictions)
        if spec.loss is None:
            verb = "training" if self.mode == ModeKeys.TRAIN else "evaluating"
            raise ProgramError(f"EstimatorSpec must contain loss when {verb}")
        result = {_LOSS: tf.cast(spec.loss, tf.float32)}
        if self.mode == ModeKeys.TRAIN:
            return result | _by_name("host", getattr(spec, "host_call", None) and spec.host_call[1])
        eval_metrics = getattr(spec, "eval_metrics", None)
        if not spec.eval_metric_ops and not eval_metrics:
            raise ProgramError("EstimatorSpec must contain either eval_metric_ops or eval_metrics when evaluating")
        if spec.eval_metric_ops and eval_metrics:
            raise ProgramError("EstimatorSpec cannot contain both eval_metric_ops and eval_metrics")
        updates = {name: update for name, (_, update) in (spec.eval_metric_ops or {}).items()}
        return result | _by_name("metric", eval_metrics[1] if eval_metrics else updates)


def _check_global_step(operations: Any) -> None:
    """Refuse a body that changes the global step; raises ProgramError with Graphcore's message."""
    handle = tf.compat.v1.train.get_global_step().handle
    if any(
        handle is tensor
        for operation in operations
        if operation.type.startswith("Assign")
        for tensor in operation.inputs
    ):
        raise ProgramError(
            "Illegal increment of the `global_step` variable in the `model_fn`. This is usually caused by "
            "passing it as an argument to the `Optimizer.minimize()` function. Please remove this argument as the "
            "IPUEstimator itself is responsible for incrementing it."
        )


def _check_replicated(operations: Any) -> None:
    """Refuse replicas that train independently; raises ProgramError with Graphcore's message."""
    if not any(value_of(read_node(item), Averaged) for item in operations if item.type == "PyFunc"):
        raise ProgramError(
            "This is not a valid replicated training graph because no IpuCrossReplicaSum or IpuCrossReplicaMean"
            "operations were found. Did you remember to use the "
            "`tensorflow.python.ipu.optimizers.CrossReplicaOptimizer`?"
        )


def _metrics(spec: Any, outputs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return (value, update) by metric, from a run's outputs."""
    if not getattr(spec, "eval_metrics", None):
        names = dict.fromkeys(spec.eval_metric_ops)
        return {name: last_of(values) for name, values in _in_structure("metric", outputs, names).items()}
    function, tensors = spec.eval_metrics
    value = _in_structure("metric", outputs, tensors)
    return dict(function(**value) if isinstance(value, dict) else function(*value))


def _by_name(kind: str, tensors: Any) -> dict[str, Any]:
    """Return the tensors of a structure by name, ``kind`` with the path; empty for None."""
    paths = [] if tensors is None else _NEST.flatten_with_joined_string_paths(tensors)
    return {f"{kind}/{path}": tensor for path, tensor in paths}


def _in_structure(kind: str, outputs: Mapping[str, Any], like: Any) -> Any:
    """Return the outputs that :func:`_by_name` has named, in the structure of ``like``."""
    return tf.nest.pack_sequence_as(like, [outputs[name] for name in _by_name(kind, like)])

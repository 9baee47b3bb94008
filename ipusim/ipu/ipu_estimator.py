"""An estimator whose model function is the body of a loop, in Graphcore's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu.estimators.estimator import Estimator
from ipusim.ipu.estimators.program import (
    EstimatorProgram,
    Of,
    Results,
    check_model_fn,
    features_and_labels,
    mean_loss,
    metrics_received,
    metrics_to_send,
)
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.ipu_session_run_hooks import Logged, logged
from ipusim.ipu.runtime.loop_body import BodyRecord, body_record, is_operation
from ipusim.ipu.runtime.symbolic_gradients import body_of_host
from ipusim.ipu.tensorflow.array_functions import cast
from ipusim.ipu.tensorflow.estimator_spec import EstimatorSpec, ModeKeys, checked_metrics, checked_results, spec_hooks
from ipusim.ipu.tensorflow.session import control_dependencies
from ipusim.ipu.tensorflow.session_run_hooks import SessionRunHook


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, tuple[Any, Any]]
    eval_metrics: tuple[Any, Any] | None
    host_call: tuple[Any, list[Any]] | None
    training_hooks: tuple[SessionRunHook, ...]
    evaluation_hooks: tuple[SessionRunHook, ...]
    prediction_hooks: tuple[SessionRunHook, ...]


class IPUEstimatorSpec(_Fields):
    """What the model function of an IPUEstimator returns.

    Args:
        mode: a ModeKeys.
        predictions: an array, or a dictionary of arrays; for PREDICT.
        loss: a number; for TRAIN and EVAL.
        train_op: what minimize returns, also in a group; for TRAIN.
        eval_metric_ops: pairs of a value and its update, by name, computed on the IPU; for EVAL.
        eval_metrics: a function and the tensors that it is given on the host, a list or a dictionary; it returns such
            pairs. For EVAL, in the place of eval_metric_ops.
        host_call: a function and a list of tensors that it is given on the host, after each run of one mini-batch.
        training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks.

    Raises ProgramError and ProgramTypeError in Graphcore's words.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: dict[str, tuple[Any, Any]] | None = None,
        eval_metrics: tuple[Any, Any] | None = None,
        host_call: tuple[Any, list[Any]] | None = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> IPUEstimatorSpec:
        """Check the arguments."""
        _check_call("host_call", host_call, (list,))
        _check_call("eval_metrics", eval_metrics, (list, dict))
        return super().__new__(
            cls,
            mode,
            *checked_results(mode, predictions, loss, train_op),
            checked_metrics(eval_metric_ops),
            eval_metrics,
            host_call,
            *map(spec_hooks, (training_hooks, evaluation_hooks, prediction_hooks)),
        )


def _check_call(name: str, value: Any, kinds: tuple[type, ...]) -> None:
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


class IPUEstimator(Estimator):
    """Trains, evaluates and predicts with a model function that runs in a loop on an IPU, or on the shards of it.

    Checkpoints hold its variables; exports of models are refused, as there is no compiled graph.

    Args:
        model_fn: a function of features, and of labels, mode, params and config where it takes them, to an
            IPUEstimatorSpec or EstimatorSpec. It runs for each mini-batch.
        model_dir: folder of the checkpoints; by default that of the config, else a temporary one.
        config: a RunConfig of ipu_run_config.
        params: a dictionary that model and input functions get.
        warm_start_from: a checkpoint, its folder, or WarmStartSettings, whose variables a first training begins with.
        train_batch_size, eval_batch_size, predict_batch_size: over all replicas of all workers; a replica's part is
            params["batch_size"].

    Raises ProgramError and ProgramTypeError in Graphcore's words.
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
        """Check the arguments."""
        check_model_fn(model_fn, params)
        sizes = {
            ModeKeys.TRAIN: ("train_batch_size", train_batch_size),
            ModeKeys.EVAL: ("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: ("predict_batch_size", predict_batch_size),
        }
        super().__init__(model_fn, model_dir, config, params, warm_start_from, sizes)

    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorProgram:
        run = self.config.ipu_run_config
        return loop_program(self._model, mode, infeed, run.iterations_per_loop, run.num_replicas)

    def _model(self, features: Any, labels: Any, mode: str) -> Any:
        """Call the model function; raises ProgramError in Graphcore's words for labels that it does not take."""
        if labels is not None and "labels" not in self._arguments:
            raise ProgramError("model_fn does not take labels, but input_fn returns labels.")
        result = self.model_fn(features, labels, mode, self.config)
        if not isinstance(result, IPUEstimatorSpec | EstimatorSpec):
            raise ProgramError("`model_fn` must return IPUEstimatorSpec or EstimatorSpec")
        return result


#: From features, labels and a mode to the spec of the model.
ModelFunction = Callable[[Any, Any, str], Any]


@dataclass
class _Body:
    """The model function as the body of a loop, which notes the spec of its first call and what that logs."""

    model: ModelFunction
    mode: str
    queue: IPUOutfeedQueue
    replicas: int
    spec: Any = None
    record: BodyRecord | None = None
    logged: Logged = field(default_factory=Logged)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Send what the host is to know of one mini-batch; return what trains."""
        features, labels = features_and_labels(args, kwargs)
        with logged.set_to(Logged()) as values:
            spec = self.model(features, None if self.mode == ModeKeys.PREDICT else labels, self.mode)
            train = self._trained(spec) if self.mode == ModeKeys.TRAIN else None
        if self.spec is None:
            self.spec, self.logged, self.record = spec, values, body_record()
        self.queue.enqueue(self._sent(spec) | values.sent())
        return train

    def _trained(self, spec: Any) -> Any:
        """Return the operation that trains. Raises ProgramError in Graphcore's words for one that should not be."""
        if spec.loss is None:
            raise ProgramError("EstimatorSpec must contain loss when training")
        if spec.train_op is None:
            raise ProgramError("EstimatorSpec must contain train_op when training")
        with control_dependencies([spec.train_op]):
            record = body_record()
        assert record is not None
        if record.train is not None and record.train.global_step is not None:
            raise ProgramError(
                "Illegal increment of the `global_step` variable in the `model_fn`. This is usually caused by passing "
                "it as an argument to the `Optimizer.minimize()` function. Please remove this argument as the "
                "IPUEstimator itself is responsible for incrementing it."
            )
        if record.train is not None and self.replicas > 1 and not record.train.optimizer.cross_replica:
            raise ProgramError(
                "This is not a valid replicated training graph because no IpuCrossReplicaSum or IpuCrossReplicaMean"
                "operations were found. Did you remember to use the "
                "`tensorflow.python.ipu.optimizers.CrossReplicaOptimizer`?"
            )
        return spec.train_op if is_operation(spec.train_op) else None

    def _sent(self, spec: Any) -> dict[str, Any]:
        if self.mode == ModeKeys.PREDICT:
            if spec.predictions is None:
                raise ProgramError("EstimatorSpec must contain predictions when predicting")
            return _named("prediction", spec.predictions)
        result = {"loss": cast(spec.loss, np.float32)}
        if self.mode == ModeKeys.TRAIN:
            return result | _named("host", getattr(spec, "host_call", None) and spec.host_call[1])
        if spec.loss is None:
            raise ProgramError("EstimatorSpec must contain loss when evaluating")
        eval_metrics = getattr(spec, "eval_metrics", None)
        if not spec.eval_metric_ops and not eval_metrics:
            raise ProgramError("EstimatorSpec must contain either eval_metric_ops or eval_metrics when evaluating")
        if spec.eval_metric_ops and eval_metrics:
            raise ProgramError("EstimatorSpec cannot contain both eval_metric_ops and eval_metrics")
        return result | (_named("metric", eval_metrics[1]) if eval_metrics else metrics_to_send(spec.eval_metric_ops))


def loop_program(
    model: ModelFunction, mode: str, infeed: IPUInfeedQueue, iterations: int, replicas: int
) -> EstimatorProgram:
    """Return the program of a mode, compiled, which runs the model function ``iterations`` times.

    Raises ProgramError in Graphcore's words for a spec that is not as the mode needs it, and as ``loops.repeat`` does.
    """
    queue = IPUOutfeedQueue()
    body = _Body(model, mode, queue, replicas)
    operation = ipu_compiler.compile(lambda: loops.repeat(iterations, body, [], infeed))
    results = Of(Results(operation, queue.dequeue), body.logged.hand_out)
    spec = body.spec
    if mode == ModeKeys.PREDICT:
        values = Of(results, lambda sent: _taken("prediction", sent, spec.predictions))
        return EstimatorProgram(iterations, None, values, spec.prediction_hooks)
    if mode == ModeKeys.EVAL:
        values = Of(results, lambda sent: _metrics(spec, sent))
        return EstimatorProgram(iterations, Of(results, _loss), values, spec.evaluation_hooks)
    host = getattr(spec, "host_call", None)
    if host and iterations > 1:
        raise ProgramError("host_call is not allowed for iterations_per_loop > 1")
    trained = Of(results, lambda sent: _called(host, sent, body.record)) if host else results
    chief = spec.training_chief_hooks if isinstance(spec, EstimatorSpec) else ()
    return EstimatorProgram(iterations, Of(trained, _loss), None, spec.training_hooks, chief)


def _loss(sent: Mapping[str, Any]) -> np.float32:
    return mean_loss(sent["loss"])


def _called(
    host: tuple[Callable[..., Any], list[Any]], sent: Mapping[str, Any], record: BodyRecord | None
) -> Mapping[str, Any]:
    """Call a host call's function on the tensors of the one mini-batch of a run; ``record`` is that of its body."""
    function, tensors = host
    with body_of_host.set_to(record):
        function(*(item[0] for item in _taken("host", sent, tensors)))
    return sent


def _metrics(spec: Any, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    if not getattr(spec, "eval_metrics", None):
        return metrics_received(spec.eval_metric_ops, sent)
    function, tensors = spec.eval_metrics
    value = _taken("metric", sent, tensors)
    return dict(function(**value) if isinstance(value, dict) else function(*value))


def _named(kind: str, tensors: Any) -> dict[str, Any]:
    """Return tensors by names of their own: those of a dictionary, of a list, or one."""
    if tensors is None:
        return {}
    if isinstance(tensors, dict):
        return {f"{kind}/{name}": tensor for name, tensor in tensors.items()}
    if isinstance(tensors, list | tuple):
        return {f"{kind} {index}": tensor for index, tensor in enumerate(tensors)}
    return {kind: tensors}


def _taken(kind: str, sent: Mapping[str, Any], like: Any) -> Any:
    """Return what :func:`_named` has named, in the structure that it had."""
    if isinstance(like, dict):
        return {name: sent[f"{kind}/{name}"] for name in like}
    if isinstance(like, list | tuple):
        return [sent[f"{kind} {index}"] for index in range(len(like))]
    return sent[kind]

"""The programs of an IPUEstimator: its model function as the body of a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ipusim.errors import ProgramError
from ipusim.ipu import ipu_compiler, loops
from ipusim.ipu.estimators.calls import features_and_labels
from ipusim.ipu.estimators.logged import Logged, collecting
from ipusim.ipu.estimators.program import EstimatorProgram, Of, Results, mean_loss
from ipusim.ipu.estimators.streamed import metrics_received, metrics_to_send
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.loop_body import Asked, asking, is_operation
from ipusim.ipu.optimizers.on_host import behind
from ipusim.ipu.tensorflow.array_functions import cast
from ipusim.ipu.tensorflow.estimator_spec import EstimatorSpec, ModeKeys
from ipusim.ipu.tensorflow.session import control_dependencies

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
    asked: Asked | None = None
    logged: Logged = field(default_factory=Logged)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Send what the host is to know of one mini-batch; return what trains."""
        features, labels = features_and_labels(args, kwargs)
        with collecting() as logged:
            spec = self.model(features, None if self.mode == ModeKeys.PREDICT else labels, self.mode)
            train = self._trained(spec) if self.mode == ModeKeys.TRAIN else None
        if self.spec is None:
            self.spec, self.logged, self.asked = spec, logged, asking()
        self.queue.enqueue(self._sent(spec) | logged.sent())
        return train

    def _trained(self, spec: Any) -> Any:
        """Return the operation that trains. Raises ProgramError in Graphcore's words for one that should not be."""
        if spec.loss is None:
            raise ProgramError("EstimatorSpec must contain loss when training")
        if spec.train_op is None:
            raise ProgramError("EstimatorSpec must contain train_op when training")
        with control_dependencies([spec.train_op]):
            asked = asking()
        assert asked is not None
        if asked.train is not None and asked.train.global_step is not None:
            raise ProgramError(
                "Illegal increment of the `global_step` variable in the `model_fn`. This is usually caused by passing "
                "it as an argument to the `Optimizer.minimize()` function. Please remove this argument as the "
                "IPUEstimator itself is responsible for incrementing it."
            )
        if asked.train is not None and self.replicas > 1 and not asked.train.optimizer.cross_replica:
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
        found = {"loss": cast(spec.loss, np.float32)}
        if self.mode == ModeKeys.TRAIN:
            return found | _named("host", getattr(spec, "host_call", None) and spec.host_call[1])
        if spec.loss is None:
            raise ProgramError("EstimatorSpec must contain loss when evaluating")
        eval_metrics = getattr(spec, "eval_metrics", None)
        if not spec.eval_metric_ops and not eval_metrics:
            raise ProgramError("EstimatorSpec must contain either eval_metric_ops or eval_metrics when evaluating")
        if spec.eval_metric_ops and eval_metrics:
            raise ProgramError("EstimatorSpec cannot contain both eval_metric_ops and eval_metrics")
        return found | (_named("metric", eval_metrics[1]) if eval_metrics else metrics_to_send(spec.eval_metric_ops))


def loop_program(
    model: ModelFunction, mode: str, infeed: IPUInfeedQueue, iterations: int, replicas: int
) -> EstimatorProgram:
    """Return the program of a mode, compiled, which runs the model function ``iterations`` times.

    Raises ProgramError in Graphcore's words for a spec that is not as the mode needs it, and as ``loops.repeat`` does.
    """
    queue = IPUOutfeedQueue()
    body = _Body(model, mode, queue, replicas)
    operation = ipu_compiler.compile(lambda: loops.repeat(iterations, body, [], infeed))
    results = Of(Results(operation, queue.dequeue), body.logged.given)
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
    trained = Of(results, lambda sent: _called(host, sent, body.asked)) if host else results
    chief = spec.training_chief_hooks if isinstance(spec, EstimatorSpec) else ()
    return EstimatorProgram(iterations, Of(trained, _loss), None, spec.training_hooks, chief)


def _loss(sent: Mapping[str, Any]) -> np.float32:
    return mean_loss(sent["loss"])


def _called(
    host: tuple[Callable[..., Any], list[Any]], sent: Mapping[str, Any], asked: Asked | None
) -> Mapping[str, Any]:
    """Call a host call's function on the tensors of the one mini-batch of a run, of a body that ``asked`` for more."""
    function, tensors = host
    with behind(asked):
        function(*(each[0] for each in _taken("host", sent, tensors)))
    return sent


def _metrics(spec: Any, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    if not getattr(spec, "eval_metrics", None):
        return metrics_received(spec.eval_metric_ops, sent)
    function, tensors = spec.eval_metrics
    given = _taken("metric", sent, tensors)
    return dict(function(**given) if isinstance(given, dict) else function(*given))


def _named(kind: str, tensors: Any) -> dict[str, Any]:
    """Return tensors by names of their own: those of a dictionary, of a list, or one."""
    if tensors is None:
        return {}
    if isinstance(tensors, dict):
        return {f"{kind}/{name}": each for name, each in tensors.items()}
    if isinstance(tensors, list | tuple):
        return {f"{kind} {place}": each for place, each in enumerate(tensors)}
    return {kind: tensors}


def _taken(kind: str, sent: Mapping[str, Any], like: Any) -> Any:
    """Return what :func:`_named` has named, in the structure that it had."""
    if isinstance(like, dict):
        return {name: sent[f"{kind}/{name}"] for name in like}
    if isinstance(like, list | tuple):
        return [sent[f"{kind} {place}"] for place in range(len(like))]
    return sent[kind]

"""Run the stages that a model function returns as a pipeline: Graphcore's IPUPipelineEstimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Final, NamedTuple

from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import pipelining_ops
from ipusim.ipu.estimators.calls import arguments_of, call_with
from ipusim.ipu.estimators.on_ipus import EstimatorOnIpus, mean_of, run_and_dequeue
from ipusim.ipu.estimators.spec import EstimatorSpec, ModeKeys
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import arguments_in

tf = load()
#: End of the pipeline's name, by mode.
_MODE_NAMES: Final = {ModeKeys.TRAIN: "train", ModeKeys.EVAL: "eval", ModeKeys.PREDICT: "predict"}


class _Fields(NamedTuple):
    """Fields of an IPUPipelineEstimatorSpec, which adds checks."""

    mode: str
    computational_stages: Sequence[Any]
    gradient_accumulation_count: int
    eval_metrics_fn: Callable[..., Any] | None
    optimizer_function: Callable[..., Any] | None
    device_mapping: Sequence[Any] | None
    loss_accumulator_dtype: Any
    training_hooks: Any
    evaluation_hooks: Any
    prediction_hooks: Any
    pipeline_op_kwargs: dict[str, Any]


class IPUPipelineEstimatorSpec(_Fields):
    """Result of an IPUPipelineEstimator's model function."""

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        computational_stages: Sequence[Any],
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable[..., Any] | None = None,
        optimizer_function: Callable[..., Any] | None = None,
        device_mapping: Sequence[Any] | None = None,
        loss_accumulator_dtype: Any = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
        **pipeline_op_kwargs: Any,
    ) -> IPUPipelineEstimatorSpec:
        """Check the arguments.

        Args:
            mode: a ModeKeys.
            computational_stages: functions of the stages.
            gradient_accumulation_count: mini-batches per execution of the pipeline.
            eval_metrics_fn: function on the host, from the last stage's results to a dictionary of metrics with "loss";
                for EVAL. The results' first axis is the mini-batch in the run.
            optimizer_function: function from the last stage's results to an OptimizerFunctionOutput; for TRAIN.
            device_mapping: IPU per stage.
            loss_accumulator_dtype: dtype of an execution's summed losses.
            training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks, of releases after 2.1.
            pipeline_op_kwargs: further arguments of ``pipelining_ops.pipeline``.

        Raises:
            ProgramError: if an argument is not valid (Graphcore's message).
            ProgramTypeError: if an argument has a wrong type.
        """
        fields = arguments_in(locals())
        _check_functions(mode, optimizer_function, eval_metrics_fn)
        count = gradient_accumulation_count
        if count is None or (count := checks.whole("gradient_accumulation_count", count)) == 0:
            raise ProgramError("`IPUPipelineEstimatorSpec` must contain `gradient_accumulation_count`")
        if "accumulate_outfeed" in pipeline_op_kwargs:
            raise ProgramError(
                "The `accumulate_outfeed` pipeline keyword argument cannot be passed to the `IPUPipelineEstimatorSpec`."
            )
        for name, value in (("computational_stages", computational_stages), ("device_mapping", device_mapping)):
            if not isinstance(value, list | tuple) and (value is not None or name == "computational_stages"):
                raise ProgramTypeError(f"{name} argument needs to be a list or a tuple.")
        for name, function in (("optimizer_function", optimizer_function), ("eval_metrics_fn", eval_metrics_fn)):
            checks.function(name, function, "a function of the last stage's outputs", optional=True)
        return super().__new__(cls, **fields | {"gradient_accumulation_count": count})


def _check_functions(mode: str, optimizer_function: object, eval_metrics_fn: object) -> None:
    """Raise ProgramError with Graphcore's message if a mode's function is missing."""
    if mode == ModeKeys.TRAIN and optimizer_function is None:
        raise ProgramError("`IPUPipelineEstimatorSpec` must contain `optimizer_function` when training")
    if mode == ModeKeys.EVAL and eval_metrics_fn is None:
        raise ProgramError("`IPUPipelineEstimatorSpec` must contain `eval_metrics_fn` when evaluating")


class IPUPipelineEstimator(EstimatorOnIpus):
    """Trains, evaluates and predicts with a pipeline, whose stages a model function returns."""

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        """Check the arguments.

        Args:
            model_fn: function returning an IPUPipelineEstimatorSpec, with optional mode, params and config.
            model_dir, config, params, warm_start_from: see IPUEstimator.

        Raises:
            ProgramError: if an argument is not valid (Graphcore's message).
            ProgramTypeError: if an argument has a wrong type.
            UnsupportedProgramError: if a strategy keeps variables on the host.
        """
        arguments_of(model_fn)
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        for strategy in (self.config.train_distribute, self.config.eval_distribute):
            if strategy is not None and strategy.variables_on_host:
                raise UnsupportedProgramError(
                    "Placing variables on the host is not currently supported by IPUPipelineEstimator: expected a "
                    f"strategy without variables_on_host, got {type(strategy).__name__}(variables_on_host=True)"
                )

    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorSpec:
        spec, run, queue = self._stages(mode), self._config.ipu_run_config, IPUOutfeedQueue()
        training: dict[str, Any] = {}
        if mode == ModeKeys.TRAIN:
            training = {
                "optimizer_function": spec.optimizer_function,
                "outfeed_loss": True,
                "accumulate_outfeed": True,
                "accumulate_outfeed_dtype": spec.loss_accumulator_dtype,
            }
        repeats = _executions_per_run(run.iterations_per_loop, spec.gradient_accumulation_count)
        operation, outputs = run_and_dequeue(
            lambda: pipelining_ops.pipeline(
                computational_stages=spec.computational_stages,
                gradient_accumulation_count=spec.gradient_accumulation_count,
                repeat_count=repeats,
                infeed_queue=infeed,
                outfeed_queue=queue,
                device_mapping=spec.device_mapping,
                config=run.ipu_options,
                **{"name": f"ipu_pipeline_estimator_{_MODE_NAMES[mode]}"} | training | spec.pipeline_op_kwargs,
            ),
            queue,
            run.num_replicas,
        )
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=_prediction(outputs), prediction_hooks=spec.prediction_hooks)
        if mode == ModeKeys.TRAIN:
            loss = mean_of(outputs) / spec.gradient_accumulation_count
            train = self._count_run([operation, loss])
            return EstimatorSpec(mode, loss=loss, train_op=train, training_hooks=spec.training_hooks)
        metrics = _metrics(spec.eval_metrics_fn, outputs)
        loss = metrics.pop("loss")
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics, evaluation_hooks=spec.evaluation_hooks)

    def _stages(self, mode: str) -> IPUPipelineEstimatorSpec:
        """Call the model function; raises ProgramError and ProgramTypeError with Graphcore's message for its result."""
        if {"features", "labels"} & set(self._arguments):
            raise ProgramError(
                "The `model_fn` used with `IPUPipelineEstimator` must not have `features` or `labels` arguments. They "
                "are instead passed to the first pipeline stage function."
            )
        result = call_with(self._model_fn, {"mode": mode, "params": self.params, "config": self.config})
        if not isinstance(result, IPUPipelineEstimatorSpec):
            raise ProgramTypeError(
                "The `model_fn` used with `IPUPipelineEstimator` must return `IPUPipelineEstimatorSpec`."
            )
        shards = self.config.ipu_run_config.num_shards
        mapping = range(len(result.computational_stages)) if result.device_mapping is None else result.device_mapping
        count = len({ipu for item in mapping for ipu in (item if isinstance(item, list | tuple) else [item])})
        if not shards // 2 < count <= shards:
            raise ProgramError(
                f"This pipeline requires {count} devices, but `IPURunConfig.num_shards` was set to {shards} "
                "(num_shards/2 < pipeline_devices <= num_shards)."
            )
        return result


def _executions_per_run(iterations: int, count: int) -> int:
    """Return the pipeline's executions per run.

    Raises:
        ProgramError: unless the number of executions in a run is whole (Graphcore's message).
    """
    names = f"`IPURunConfig.iterations_per_loop` (got {iterations}) {{}} `gradient_accumulation_count` (got {count})"
    if iterations < count:
        raise ProgramError(names.format("cannot be less than"))
    if iterations % count:
        raise ProgramError(names.format("must be divisible by"))
    return iterations // count


def _metrics(function: Any, outputs: Any) -> dict[str, Any]:
    """Return the metrics of a run, with the loss; raises ProgramTypeError and ProgramError with Graphcore's message."""
    values = outputs if isinstance(outputs, list | tuple) else [outputs]
    result = function(**outputs) if isinstance(outputs, dict) else function(*values)
    if not isinstance(result, dict):
        raise ProgramTypeError(f"The `eval_metrics_fn` must return a dict, but got {type(result)}.")
    if "loss" not in result:
        raise ProgramError("The dict returned from `eval_metrics_fn` must contain 'loss'.")
    return dict(result)


def _prediction(outputs: Any) -> Any:
    """Return a run's predictions; raises ProgramError for several unnamed predictions."""
    if isinstance(outputs, list | tuple):
        if len(outputs) != 1:
            raise ProgramError(
                f"The last computational stage must return exactly one prediction tensor, but got {len(outputs)}"
            )
        return outputs[0]
    return outputs

"""An estimator whose model function gives the stages of a pipeline, in Graphcore's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from ipusim.api import models
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import ipu_compiler, pipelining_ops
from ipusim.ipu.estimators.estimator import Estimator
from ipusim.ipu.estimators.program import EstimatorProgram, Of, Results, arguments_of, call_with, mean_loss
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_run_config import RunConfig
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.estimator_spec import ModeKeys, check_mode, spec_hooks
from ipusim.ipu.tensorflow.session_run_hooks import SessionRunHook


class _Fields(NamedTuple):
    mode: str
    computational_stages: Sequence[Any]
    gradient_accumulation_count: int
    eval_metrics_fn: Callable[..., Any] | None
    optimizer_function: Callable[..., Any] | None
    device_mapping: Sequence[Any] | None
    loss_accumulator_dtype: Any
    training_hooks: tuple[SessionRunHook, ...]
    evaluation_hooks: tuple[SessionRunHook, ...]
    prediction_hooks: tuple[SessionRunHook, ...]
    pipeline_op_kwargs: dict[str, Any]


class IPUPipelineEstimatorSpec(_Fields):
    """What the model function of an IPUPipelineEstimator returns.

    Args:
        mode: a ModeKeys.
        computational_stages: the functions of the stages.
        gradient_accumulation_count: mini-batches of an execution of the pipeline.
        eval_metrics_fn: from the last stage's results to a dictionary of metrics, with "loss"; for EVAL, on the host.
        optimizer_function: from the last stage's results to an OptimizerFunctionOutput; for TRAIN.
        device_mapping: the IPU of each stage.
        loss_accumulator_dtype: in which the losses of an execution are summed up.
        training_hooks, evaluation_hooks, prediction_hooks: SessionRunHooks, of releases after 2.1.
        pipeline_op_kwargs: further arguments of ``pipelining_ops.pipeline``.

    Raises ProgramError and ProgramTypeError in Graphcore's words.
    """

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
        """Check the arguments."""
        check_mode(mode)
        begin = "`IPUPipelineEstimatorSpec` must contain"
        if mode == ModeKeys.TRAIN and optimizer_function is None:
            raise ProgramError(f"{begin} `optimizer_function` when training")
        if mode == ModeKeys.EVAL and eval_metrics_fn is None:
            raise ProgramError(f"{begin} `eval_metrics_fn` when evaluating")
        count = gradient_accumulation_count
        if count is None or (count := checks.whole("gradient_accumulation_count", count)) == 0:
            raise ProgramError(f"{begin} `gradient_accumulation_count`")
        if "accumulate_outfeed" in pipeline_op_kwargs:
            raise ProgramError(
                "The `accumulate_outfeed` pipeline keyword argument cannot be passed to the `IPUPipelineEstimatorSpec`."
            )
        for name, value in (("computational_stages", computational_stages), ("device_mapping", device_mapping)):
            if not isinstance(value, list | tuple) and (value is not None or name == "computational_stages"):
                raise ProgramTypeError(f"{name} argument needs to be a list or a tuple.")
        for name, function in (("optimizer_function", optimizer_function), ("eval_metrics_fn", eval_metrics_fn)):
            checks.function(name, function, "a function of the last stage's outputs", optional=True)
        return super().__new__(
            cls,
            mode,
            computational_stages,
            count,
            eval_metrics_fn,
            optimizer_function,
            device_mapping,
            loss_accumulator_dtype,
            spec_hooks(training_hooks),
            spec_hooks(evaluation_hooks),
            spec_hooks(prediction_hooks),
            pipeline_op_kwargs,
        )


class IPUPipelineEstimator(Estimator):
    """Trains, evaluates and predicts with a model function that gives the stages of a pipeline.

    Checkpoints hold its variables; exports of models are refused, as there is no compiled graph.

    Args:
        model_fn: a function of mode, params and config, where it takes them, to an IPUPipelineEstimatorSpec.
        model_dir, config, params, warm_start_from: as of IPUEstimator.

    Raises ProgramError and ProgramTypeError in Graphcore's words, UnsupportedProgramError for a strategy that has its
    variables on the host.
    """

    def __init__(
        self,
        model_fn: Any,
        model_dir: str | PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        """Check the arguments."""
        arguments_of(model_fn)
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        for strategy in (self.config.train_distribute, self.config.eval_distribute):
            if strategy is not None and strategy.variables_on_host:
                raise UnsupportedProgramError(
                    "Placing variables on the host is not currently supported by IPUPipelineEstimator: expected a "
                    f"strategy without variables_on_host, got {type(strategy).__name__}(variables_on_host=True)"
                )

    def _program(self, mode: str, infeed: IPUInfeedQueue) -> EstimatorProgram:
        spec = self._spec(mode)
        iterations, count = self.config.ipu_run_config.iterations_per_loop, spec.gradient_accumulation_count
        queue = IPUOutfeedQueue()
        training: dict[str, Any] = {}
        if mode == ModeKeys.TRAIN:
            training = {
                "optimizer_function": spec.optimizer_function,
                "outfeed_loss": True,
                "accumulate_outfeed": True,
                "accumulate_outfeed_dtype": spec.loss_accumulator_dtype,
            }
        repeats = _repeats(iterations, count)

        def model() -> Any:
            return pipelining_ops.pipeline(
                computational_stages=spec.computational_stages,
                gradient_accumulation_count=count,
                repeat_count=repeats,
                infeed_queue=infeed,
                outfeed_queue=queue,
                device_mapping=spec.device_mapping,
                **{"name": f"ipu_pipeline_estimator_{_NAMES[mode]}"} | training | spec.pipeline_op_kwargs,
            )

        results = Results(ipu_compiler.compile(model), queue.dequeue)
        if mode == ModeKeys.TRAIN:
            loss = Of(results, lambda sums: np.float32(mean_loss(sums) / count))
            return EstimatorProgram(iterations, loss, None, spec.training_hooks)
        if mode == ModeKeys.PREDICT:
            return EstimatorProgram(iterations, None, Of(results, _predictions), spec.prediction_hooks)
        metrics = Of(results, lambda sent: _metrics(spec.eval_metrics_fn, sent))
        return EstimatorProgram(
            iterations, Of(metrics, lambda result: result["loss"]), Of(metrics, _without_loss), spec.evaluation_hooks
        )

    def _spec(self, mode: str) -> IPUPipelineEstimatorSpec:
        """Call the model function; raises ProgramError and ProgramTypeError in Graphcore's words for what it gives."""
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
        needed = len({ipu for item in mapping for ipu in (item if isinstance(item, list | tuple) else [item])})
        if not shards // 2 < needed <= shards:
            raise ProgramError(
                f"This pipeline requires {needed} devices, but `IPURunConfig.num_shards` was set to {shards} "
                "(num_shards/2 < pipeline_devices <= num_shards)."
            )
        return result


_NAMES = {ModeKeys.TRAIN: "train", ModeKeys.EVAL: "eval", ModeKeys.PREDICT: "predict"}


def _repeats(iterations: int, count: int) -> int:
    """Return the executions of a run; raises ProgramError in Graphcore's words where they are no whole number."""
    names = f"`IPURunConfig.iterations_per_loop` (got {iterations}) {{}} `gradient_accumulation_count` (got {count})"
    if iterations < count:
        raise ProgramError(names.format("cannot be less than"))
    if iterations % count:
        raise ProgramError(names.format("must be divisible by"))
    return iterations // count


def _metrics(function: Any, sent: Any) -> dict[str, Any]:
    """Return the metrics of what a run has sent, with the loss. Raises ProgramTypeError and ProgramError."""
    result = function(**sent) if isinstance(sent, dict) else function(*models.as_results(sent))
    if not isinstance(result, dict):
        raise ProgramTypeError(f"The `eval_metrics_fn` must return a dict, but got {type(result)}.")
    if "loss" not in result:
        raise ProgramError("The dict returned from `eval_metrics_fn` must contain 'loss'.")
    return result


def _without_loss(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: metric for name, metric in metrics.items() if name != "loss"}


def _predictions(sent: Any) -> Any:
    """Return the predictions that a run has sent; raises ProgramError where there are several by no name."""
    if isinstance(sent, list | tuple):
        if len(sent) != 1:
            raise ProgramError(
                f"The last computational stage must return exactly one prediction tensor, but got {len(sent)}"
            )
        return sent[0]
    return sent

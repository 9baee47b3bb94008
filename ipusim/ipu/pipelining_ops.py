"""Pipelines in Graphcore's names: ``pipelining_ops.pipeline`` lays one out, checks it, and runs it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipusim.api import models
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime.arguments import check_arguments, refuse_what_is_not_simulated
from ipusim.ipu.runtime.building import once
from ipusim.ipu.runtime.host import example
from ipusim.ipu.runtime.layouts import Fed
from ipusim.ipu.runtime.pipeline_options import (
    GradientAccumulationReductionMethod,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)
from ipusim.ipu.runtime.releases import in_any_release
from ipusim.ipu.runtime.run import Pipeline, examples, lay_out
from ipusim.ipu.runtime.weight_update import OptimizerFunctionOutput

__all__ = [
    "OptimizerFunctionOutput",
    "Pipeline",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]


@in_any_release
def pipeline(
    computational_stages: Sequence[Callable[..., Any] | Sequence[Callable[..., Any]]],
    gradient_accumulation_count: int | None = None,
    gradient_accumulation_dtype: Any = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
    device_mapping: Sequence[int | Sequence[int]] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool | None = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: Any = None,
    outfeed_mask: Sequence[bool] | None = None,
    reduction_method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM,
    name: str | None = None,
    *,
    config: IPUConfig | None = None,
) -> Pipeline:
    """Run a pipeline of computational stages, each a Python function, and return what happened.

    Stages are computed with NumPy and differentiated by autograd, and their time on the IPUs is simulated; no graph is
    made, and no code for an IPU.

    The results are in ``outfeed_queue``. Inside ``ipu_compiler.compile`` it runs when a session runs it. All
    arguments but ``config`` are Graphcore's, with Graphcore's defaults. By position they may stand in the order of
    SDK 2.1 too, which has no gradient_accumulation_for_captured_grads: ``pipeline(stages, 8, None, 10)`` runs ten
    executions.

    Args:
        computational_stages: functions written with ``autograd.numpy``; each takes the outputs of the one before.
            A list of functions are concurrent stages: all take the same, and the next stage gets the outputs of all.
        gradient_accumulation_count: micro-batches of one execution of the pipeline.
        gradient_accumulation_dtype: of the gradient accumulators, or a function from a variable to it.
        gradient_accumulation_for_captured_grads: without effect, as gradients are not captured here.
        repeat_count: executions of the pipeline, each followed by a weight update.
        batch_serialization_iterations: micro-batches that a stage runs in a row, under Sequential on one IPU;
            an execution then has as many times more micro-batches.
        inputs: arrays that the first stage takes before an element of the infeed.
        infeed_queue: gives the first stage an element for each micro-batch.
        outfeed_queue: takes the last stage's results.
        optimizer_function: from the last stage's outputs to an OptimizerFunctionOutput; none: inference.
        device_mapping: the IPU of each stage; by default one stage on each IPU.
        pipeline_schedule: Grouped by default.
        recomputation_mode: Auto by default; it counts where ``config.allow_recompute`` is set.
        forward_propagation_stages_poplar_options, backward_propagation_stages_poplar_options,
            weight_update_poplar_options: availableMemoryProportion and partialsType of matrix products and
                convolutions.
        offload_weight_update_variables, offload_gradient_accumulation_buffers, offload_activations: whether
            optimizer state, accumulators, and under batch serialization activations lie in Streaming Memory.
        replicated_optimizer_state_sharding, replicated_weight_sharding, offload_weights: whether each
            replica stores a part of the optimizer's state, or of the weights, alone.
        continuous_weight_updates: refused, as by Graphcore.
        outfeed_loss: whether the loss is sent instead of the outputs.
        accumulate_outfeed, accumulate_outfeed_dtype: whether an execution's results are summed up, in which dtype.
        outfeed_mask: true for each output that is not sent.
        reduction_method: how gradients are accumulated.
        name: of the pipeline, in files and charts.
        config: the device; by default the smallest for the mapping.

    Raises ProgramError, ProgramTypeError and UnsupportedProgramError (a ValueError, TypeError and
    NotImplementedError) in Graphcore's words, in Graphcore's order; UnsupportedProgramError naming the argument
    for what is not simulated; ModelError for a stage that fails; DeviceError, RemoteMemoryError and
    OutOfMemoryError for what the device does not have.
    """
    options = dict(locals())
    options["inputs"] = tuple(map(example, models.as_results(inputs)))
    arguments = check_arguments(options)  # also where no session will run it, as Graphcore's do
    symbols, values = examples(inputs)
    arguments = arguments.with_inputs(values)
    refuse_what_is_not_simulated(arguments)

    def make(functions: Sequence[Callable[..., Any]]) -> Pipeline:
        result = arguments.with_functions(functions)
        return lay_out(
            result, config, symbols, fed=Fed(result.inputs, lambda values, _: (result.with_inputs(values), None))
        )

    def run_on(result: Pipeline) -> bool:
        result.run(arguments.inputs or None)
        return True

    queues = arguments.infeed, arguments.outfeed
    return once((*queues, arguments.count, config), arguments.functions, make, run_on)


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Return ``tensors``, one or a structure of them, as they are: a function's stage is recomputed as a whole.

    In Graphcore's a value that is checkpointed is kept under RecomputeAndBackpropagateInterleaved, and has no effect
    in the other mode. A stage that is a function keeps its inputs alone.
    """
    return tensors

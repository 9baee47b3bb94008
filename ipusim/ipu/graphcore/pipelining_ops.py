"""Pipelines in Graphcore's names: ``pipelining_ops.pipeline`` checks its arguments and traces the stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.graphcore.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.graphcore.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime.arguments import check_arguments, refuse_what_is_not_simulated
from ipusim.ipu.runtime.devices import building, check_queue_on_device, device_ordinal
from ipusim.ipu.runtime.pipeline_options import (
    GradientAccumulationReductionMethod,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)
from ipusim.ipu.runtime.program_request import request_options
from ipusim.ipu.runtime.program_state import configured
from ipusim.ipu.runtime.releases import in_any_release
from ipusim.ipu.traced.pipelines import add_pipeline

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]

tf = load()


class OptimizerFunctionOutput(NamedTuple):
    """What an optimizer function returns.

    Attributes:
        opt: the optimizer.
        loss: the loss.
    """

    opt: Any
    loss: Any


@building
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
) -> Any:
    """Trace a pipeline of computational stages, each a Python function of tensors.

    Arguments are those of Graphcore's, with Graphcore's defaults, and have the effects that
    ``ipusim.ipu.pipelining_ops`` describes; ``inputs`` are tensors, and ``config`` is the device.

    Returns:
        The operation that runs it in a compiled computation.

    Raises:
        ProgramError: in Graphcore's words, and ProgramTypeError and UnsupportedProgramError, for what Graphcore
            refuses; UnsupportedProgramError naming the argument for what is not simulated.
    """
    settings = dict(locals())
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [] if inputs is None else [inputs]
    arguments = check_arguments({**settings, "inputs": None})
    refuse_what_is_not_simulated(arguments)
    if any(len(stage) > 1 for stage in arguments.stages):
        raise UnsupportedProgramError("computational_stages: expected one function for each stage")
    for argument in ("gradient_accumulation_dtype", "outfeed_mask", "accumulate_outfeed", "accumulate_outfeed_dtype"):
        if settings[argument]:
            raise UnsupportedProgramError(f"{argument}: expected the default for a program that TensorFlow traces")
    if outfeed_queue is None and optimizer_function is None:
        raise ProgramError("Must specify at least one of outfeed_queue or optimizer_function")
    ordinal = device_ordinal()
    for queue, argument in ((infeed_queue, "infeed_queue"), (outfeed_queue, "outfeed_queue")):
        if queue is not None:
            check_queue_on_device(argument, queue.ordinal)

    def options() -> Mapping[str, Any]:
        chosen = config or configured()
        return request_options(arguments, chosen or IPUConfig(), None, chosen is not None, ordinal)

    return add_pipeline(
        [stage for (stage,) in arguments.stages],
        options,
        name=arguments.name,
        inputs=tensors,
        infeed=None if infeed_queue is None else infeed_queue.feed,
        outfeed=None if outfeed_queue is None else outfeed_queue.connect(),
        optimizer_function=optimizer_function,
        outfeed_loss=arguments.outfeed_loss,
        reduction=arguments.reduction_method.value,
    )


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Return tensors as they are.

    Args:
        tensors: one or a structure of them.
        name: without effect.
    """
    return tensors

"""Check a pipeline's arguments, and trace its stages: Graphcore's ``pipelining_ops``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.graph.checkpoints import CHECKPOINT
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import accumulates, accumulator_dtype
from ipusim.ipu.runtime.arguments import check_arguments, refuse_what_is_not_simulated
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.devices import building_program, check_queue_on_device, device_ordinal
from ipusim.ipu.runtime.host_strategy import variables_on_host
from ipusim.ipu.runtime.pipeline_options import (
    GradientAccumulationReductionMethod,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)
from ipusim.ipu.runtime.program_request import request_options
from ipusim.ipu.runtime.program_state import configured
from ipusim.ipu.runtime.releases import accepts_old_order
from ipusim.ipu.traced.pipelines import Sending, Training, add_pipeline

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]

tf = load()
#: Class name in messages.
_CLASS: Final = "OptimizerFunctionOutput"
#: Keras optimizer classes, current and legacy.
_KERAS: Final = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)


class OptimizerFunctionOutput:
    """Optimizer and loss of a training pipeline."""

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: tuple[Any, ...] | None = None,
        compute_gradients_kwargs: dict[str, Any] | None = None,
        apply_gradients_args: tuple[Any, ...] | None = None,
        apply_gradients_kwargs: dict[str, Any] | None = None,
        variables: tuple[Any, ...] | list[Any] | None = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        """Check the arguments.

        Args:
            opt: an optimizer of TensorFlow 1 or of Keras.
            loss: a tensor; several elements count as their sum.
            compute_gradients_args: positional arguments of ``compute_gradients`` after the loss.
            compute_gradients_kwargs: keyword arguments of ``compute_gradients``.
            apply_gradients_args: positional arguments of ``apply_gradients`` after the gradients.
            apply_gradients_kwargs: keyword arguments of ``apply_gradients``.
            variables: variables trained by a Keras optimizer; by default all trainable variables.
            tape: a ``tf.GradientTape`` with a record of the loss, for a Keras optimizer.
            gradient_capture_context: refused.
            captured_gradient_outfeed: refused.

        Raises:
            ProgramTypeError: if an argument has a wrong type (Graphcore's message).
            ProgramError: if arguments do not go together (Graphcore's message).
        """
        is_keras = isinstance(opt, _KERAS)
        _check_type(
            opt,
            (tf.compat.v1.train.Optimizer, *_KERAS),
            "opt must be a TensorFlow Optimizer or Keras OptimizerV2 object.",
        )
        _check_type(loss, tf.Tensor, "loss must be a TensorFlow Tensor object.")
        for name, value in (("compute", compute_gradients_args), ("apply", apply_gradients_args)):
            _check_type(() if value is None else value, tuple, f"{name}_gradients_args must be a tuple.")
            keywords = compute_gradients_kwargs if name == "compute" else apply_gradients_kwargs
            _check_type({} if keywords is None else keywords, dict, f"{name}_gradients_kwargs must be a dict.")
        for kind, arguments in (("args", compute_gradients_args), ("kwargs", compute_gradients_kwargs)):
            if arguments and is_keras:
                raise ProgramError(f"{_CLASS}.compute_gradients_{kind} may not be used with OptimizerV2 instances.")
        if variables is not None:
            _check_type(variables, (tuple, list), "variables must be a tuple or list.")
            if variables and not is_keras:
                raise ProgramError(f"{_CLASS}.variables may only be used with OptimizerV2.")
        if tape is not None:
            _check_type(tape, tf.GradientTape, "tape must be a GradientTape.")
            if not is_keras:
                raise ProgramError(f"{_CLASS}.tape may only be used with OptimizerV2.")
        _refuse_captured_gradients(gradient_capture_context, captured_gradient_outfeed)
        self.opt, self.loss, self.tape = opt, loss, tape
        self.variables = tuple(variables or ())
        self.compute_gradients_args: tuple[Any, ...] = compute_gradients_args or ()
        self.compute_gradients_kwargs: Mapping[str, Any] = compute_gradients_kwargs or {}
        self.apply_gradients_args: tuple[Any, ...] = apply_gradients_args or ()
        self.apply_gradients_kwargs: Mapping[str, Any] = apply_gradients_kwargs or {}

    def training(self) -> Training:
        """Return the optimizer and its gradients for the stages."""
        return Training(self.opt, self.loss, self._compute(), self.apply_gradients_args, self.apply_gradients_kwargs)

    def _compute(self) -> Callable[[], Any] | None:
        """Return the function that computes pairs (gradient, variable); None selects all variables."""
        args, kwargs = self.compute_gradients_args, dict(self.compute_gradients_kwargs)
        if self.tape is not None:
            variables = self.variables or self.tape.watched_variables()
            return lambda: list(zip(self.tape.gradient(self.loss, list(variables)), variables, strict=True))
        if self.variables:
            return lambda: list(zip(tf.gradients(self.loss, list(self.variables)), self.variables, strict=True))
        if not (args or kwargs):
            return None
        if (dict(zip(("var_list",), args, strict=False)) | kwargs).get("var_list") in ([], ()):
            raise ProgramError("No variables to optimize.")
        return lambda: self.opt.compute_gradients(self.loss, *args, **kwargs)


def _refuse_captured_gradients(context: object, outfeed: object) -> None:
    if context is not None:
        raise ProgramTypeError(
            f"{_CLASS}.gradient_capture_context must be an ipu.eager.backprop.GradientCollectionContext."
        )
    if outfeed is not None:
        _check_type(outfeed, IPUOutfeedQueue, "captured_gradient_outfeed must be an instance of IPUOutfeedQueue.")
        raise ProgramError(
            f"{_CLASS}.captured_gradient_outfeed may not be used when neither an "
            "ipu.eager.backprop.GradientCollectionContext, nor an ipu.eager.backprop.GradientCollectionTape is also "
            "used."
        )


def _check_type(value: object, kind: type | tuple[type, ...], text: str) -> None:
    """Raise ProgramTypeError with Graphcore's message if a value has another type."""
    if not isinstance(value, kind):
        raise ProgramTypeError(f"{_CLASS}.{text}")


@building_program
@accepts_old_order
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

    Arguments and defaults are Graphcore's, except for ``config``. Positional arguments may also follow the order of SDK
    2.1, without gradient_accumulation_for_captured_grads: ``pipeline(stages, 8, None, 10)`` runs ten executions.

    Args:
        computational_stages: functions of tensors; a stage takes the outputs of the stage before. A list of functions
            stands for concurrent stages: all take the same tensors, and the next stage takes all outputs.
        gradient_accumulation_count: micro-batches per execution of the pipeline.
        gradient_accumulation_dtype: dtype of the gradient accumulators, or a function from a variable to a dtype.
        gradient_accumulation_for_captured_grads: without effect: gradients are not captured.
        repeat_count: executions of the pipeline, each followed by a weight update.
        batch_serialization_iterations: micro-batches that a stage runs in a row, under Sequential on one IPU;
            multiplies the micro-batches of an execution.
        inputs: tensors for the first stage, before the tensors of an infeed element.
        infeed_queue: queue with an element per micro-batch for the first stage.
        outfeed_queue: queue for the last stage's results.
        optimizer_function: function from the last stage's outputs to an OptimizerFunctionOutput; None for inference.
        device_mapping: IPU per stage; by default a different IPU for every stage.
        pipeline_schedule: Grouped by default.
        recomputation_mode: Auto by default; takes effect with ``IPUConfig.allow_recompute``.
        forward_propagation_stages_poplar_options, backward_propagation_stages_poplar_options:
            availableMemoryProportion and partialsType of matrix products and convolutions.
        weight_update_poplar_options: without effect: operations of a weight update are elementwise.
        offload_weight_update_variables, offload_gradient_accumulation_buffers, offload_activations: whether Streaming
            Memory holds optimizer state, accumulators, and, under batch serialization, activations.
        replicated_optimizer_state_sharding, replicated_weight_sharding: whether a replica stores only its share of the
            optimizer state, or of the weights.
        offload_weights: whether Streaming Memory holds sharded weights; False is refused with sharded weights.
        continuous_weight_updates: refused, as by Graphcore.
        outfeed_loss: whether to send the loss in place of the outputs.
        accumulate_outfeed, accumulate_outfeed_dtype: whether to sum an execution's results, and dtype of the sum.
        outfeed_mask: True for outputs to leave out of the outfeed.
        reduction_method: sum, mean or running mean of the gradients.
        name: name of the pipeline, in files and charts.
        config: configuration of the device; by default the program's, else the smallest device for the mapping.

    Returns:
        The operation that runs the pipeline in a compiled computation.

    Raises:
        ProgramError: if Graphcore refuses an argument's value (Graphcore's message).
        ProgramTypeError: if an argument has a wrong type (Graphcore's message).
        UnsupportedProgramError: if Graphcore or the simulator does not support a feature; the message names the
            argument.
    """
    settings = dict(locals())
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [] if inputs is None else [inputs]
    arguments = check_arguments(settings)
    refuse_what_is_not_simulated(arguments)
    if outfeed_queue is None and optimizer_function is None:
        raise ProgramError("Must specify at least one of outfeed_queue or optimizer_function")
    if outfeed_queue is None and arguments.outfeed_loss:
        raise ProgramError("An outfeed_queue must be provided when outfeed_loss is True")
    if optimizer_function is not None and variables_on_host():
        raise UnsupportedProgramError(
            "variables_on_host: Placing variables on the host is not currently supported in a pipeline, whose weight "
            "update is on its IPUs: expected a loop whose body enqueues its gradients"
        )
    ordinal = device_ordinal()
    for argument, queue in (("infeed_queue", infeed_queue), ("outfeed_queue", outfeed_queue)):
        if queue is not None:
            check_queue_on_device(argument, queue.ordinal)

    def options() -> Mapping[str, Any]:
        configuration = config or configured()
        (configuration or IPUConfig()).check()
        return request_options(arguments, configuration or IPUConfig(), configuration is not None, ordinal)

    def finish(*outputs: Any) -> Training:
        assert arguments.optimizer_function is not None
        check_takes("optimizer_function", arguments.optimizer_function, outputs, {})
        result = arguments.optimizer_function(*outputs)
        if not isinstance(result, OptimizerFunctionOutput):
            raise ProgramTypeError(f"optimizer_function: expected an OptimizerFunctionOutput from it, got {result!r}")
        if accumulates(result.opt):
            raise ProgramError(
                "optimizer_function: expected no gradient accumulation optimizer in combination with pipelining, "
                "because a pipeline always accumulates gradients: give it gradient_accumulation_count, got "
                f"{result.opt.get_name()}"
            )
        return result.training()

    return add_pipeline(
        arguments.stages,
        options,
        name=arguments.name,
        inputs=tensors,
        infeed=None if infeed_queue is None else infeed_queue.feed,
        outfeed=None if outfeed_queue is None else outfeed_queue.connect(),
        optimizer_function=None if optimizer_function is None else finish,
        sending=Sending(
            arguments.outfeed_loss,
            arguments.outfeed_mask or (),
            arguments.accumulate_outfeed,
            arguments.accumulate_outfeed_dtype if arguments.accumulate_outfeed else None,
        ),
        reduction=arguments.reduction_method.value,
        accumulators=partial(accumulator_dtype, "gradient_accumulation_dtype", arguments.gradient_accumulation_dtype),
        mapping=arguments.mapping,
        config=config,
    )


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Mark tensors as a checkpoint, a starting point of recomputation inside the backward pass.

    Args:
        tensors: a tensor or a structure of tensors.
        name: name of the nodes.

    Returns:
        The tensors after the checkpoint.
    """
    graph = tf.compat.v1.get_default_graph()
    attribute = tf.compat.v1.AttrValue(i=len(graph.get_operations()))
    with graph._attr_scope({CHECKPOINT: attribute}):
        return tf.nest.map_structure(lambda tensor: tf.identity(tensor, name or "recomputation_checkpoint"), tensors)

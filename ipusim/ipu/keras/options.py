"""Hold the options of a Keras model: pipelining, gradient accumulation, queues and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ipusim.api import models
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod
from ipusim.ipu.runtime.queues import BUFFER_DEPTH

#: Names in set_pipelining_options of pipeline arguments, by name.
_ARGUMENT_NAMES: Final = {
    "gradient_accumulation_count": "gradient_accumulation_steps_per_replica",
    "device_mapping": "device_mapping",
    "accumulate_outfeed": "accumulate_outfeed",
    "reduction_method": "gradient_accumulation_reduction_method",
}
#: Names in set_gradient_accumulation_options of the accumulating optimizer's arguments, by name.
_OPTIMIZER_ARGUMENT_NAMES: Final = {
    "num_mini_batches": "gradient_accumulation_steps_per_replica",
    "reduction_method": "gradient_accumulation_reduction_method",
}
#: Reason to refuse an option that Keras sets.
AUTOMATIC: Final = "This argument is automatically set by Keras."
#: Reason to refuse an option that Keras does not have.
INVALID: Final = "This argument is not compatible with Keras."
#: Refused pipeline arguments with the reason.
_REFUSED_ARGUMENTS: Final = dict.fromkeys(
    ("computational_stages", "repeat_count", "inputs", "infeed_queue", "outfeed_queue", "optimizer_function"), AUTOMATIC
) | dict.fromkeys(("outfeed_loss", "outfeed_mask", "batch_serialization_iterations"), INVALID)


@dataclass
class Options:
    """Options of a model.

    Attributes:
        pipelining_steps, accumulation_steps: batches per weight update, with and without a pipeline; None if not set.
        device_mapping: IPU per stage; None for a different IPU per stage.
        accumulate_outfeed: whether a pipeline sums its results; None if not set.
        reduction_method: sum, mean or running mean of the gradients.
        pipelining: other arguments of the pipeline.
        accumulating: other arguments of GradientAccumulationOptimizerV2.
        infeed, outfeed: arguments of the queues.
        asynchronous: whether callbacks are called after every step.
        stage_of: function from the calls of a model's layers to stages, or None for models without stages.
        version: number of changes; a change makes programs outdated.
    """

    pipelining_steps: int | None = None
    accumulation_steps: int | None = None
    device_mapping: list[int] | None = None
    accumulate_outfeed: bool | None = None
    reduction_method: GradientAccumulationReductionMethod = GradientAccumulationReductionMethod.SUM
    pipelining: Mapping[str, Any] = field(default_factory=dict)
    accumulating: Mapping[str, Any] = field(default_factory=dict)
    infeed: Mapping[str, Any] = field(default_factory=dict)
    outfeed: Mapping[str, Any] = field(default_factory=dict)
    asynchronous: bool = False
    stage_of: Callable[[Any], Sequence[int]] | None = None
    version: int = 0

    @property
    def is_pipelined(self) -> bool:
        """Whether calls are assigned to stages."""
        return self.stage_of is not None

    @property
    def accumulation(self) -> int:
        """Number of batches per weight update."""
        return (self.pipelining_steps if self.is_pipelined else self.accumulation_steps) or 1

    @property
    def reduction(self) -> models.Reduction:
        """Name of the reduction method."""
        method: models.Reduction = self.reduction_method.value
        return method

    @property
    def sums_results(self) -> bool:
        """Whether the outfeed sends sums of an execution's results."""
        return self.is_pipelined and bool(self.accumulate_outfeed)

    @property
    def buffer_depth(self) -> int:
        """Capacity of the host's buffer in results."""
        depth: int = self.outfeed.get("buffer_depth", BUFFER_DEPTH)
        return depth

    def change(self, **values: Any) -> None:
        """Set options by name, and count the change, after which programs are rebuilt."""
        for name, value in values.items():
            setattr(self, name, value)
        self.version += 1

    def check_steps(self, steps_per_execution: int) -> None:
        """Refuse training if steps_per_execution is not a multiple of a weight update's batches.

        Raises ProgramError with Graphcore's message.
        """
        if self.is_pipelined and self.pipelining_steps is None:
            raise ProgramError(
                "The model which you are attempting to train is pipelined, however "
                "`gradient_accumulation_steps_per_replica` has not been set through `set_pipelining_options()`. You "
                "need to set this value as pipelined models will perform gradient accumulation when training."
            )
        if steps_per_execution % self.accumulation:
            raise ProgramError(
                f"The {'pipelined ' if self.is_pipelined else ''}model has been configured to use gradient "
                "accumulation for training, however the current `steps_per_execution` value (set to "
                f"{steps_per_execution}) is not divisible by `gradient_accumulation_steps_per_replica` "
                f"({self.accumulation}). You need to adjust either `steps_per_execution` or "
                "`gradient_accumulation_steps_per_replica` to make sure that `steps_per_execution` is divisible by "
                "`gradient_accumulation_steps_per_replica`."
            )


def check_accumulation_steps(steps: Any) -> None:
    """Refuse an invalid number of batches; raises ProgramError with Graphcore's message."""
    if steps is not None and (not isinstance(steps, int) or isinstance(steps, bool) or steps < 1):
        raise ProgramError(
            f"Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got {steps} instead."
        )


def check_device_mapping(mapping: Any) -> None:
    """Refuse mappings except lists of whole numbers; raises ProgramError with Graphcore's message."""
    are_ipus = isinstance(mapping, list) and all(isinstance(item, int) and item >= 0 for item in mapping)
    if mapping is not None and not are_ipus:
        raise ProgramError("Expected `device_mapping` to be a list of integers.")


def check_pipelining(options: Mapping[str, Any]) -> None:
    """Refuse unknown pipeline arguments, and those set by Keras; raises ProgramError or ProgramTypeError."""
    method = "set_pipelining_options"
    reasons = _reasons_to_refuse(method, _ARGUMENT_NAMES) | {
        name: _REFUSED_ARGUMENTS[name] for name in options if name in _REFUSED_ARGUMENTS
    }
    check_options(method, "pipelining_kwargs", options, "ipusim.ipu.pipelining_ops:pipeline", reasons)


def check_accumulating(options: Mapping[str, Any]) -> None:
    """Refuse unknown optimizer arguments, and those set by Keras; raises ProgramError or ProgramTypeError."""
    method = "set_gradient_accumulation_options"
    advice = "This is not supported as the optimizer which the model has been compiled with is automatically wrapped."
    reasons = {"opt": advice} | _reasons_to_refuse(method, _OPTIMIZER_ARGUMENT_NAMES)
    optimizer = "ipusim.ipu.optimizers:GradientAccumulationOptimizerV2"
    check_options(method, "gradient_accumulation_optimizer_kwargs", options, optimizer, reasons)


def _reasons_to_refuse(method: str, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons to refuse arguments that a method takes under a different name."""
    return {
        name: f"Set the `{argument_name}` argument to `{method}` instead." for name, argument_name in arguments.items()
    }


def check_options(
    method: str, argument: str, options: Mapping[str, Any], callable_path: str, reasons: Mapping[str, str]
) -> None:
    """Refuse options that Keras sets, or that the callable at ``callable_path`` does not take.

    Raises ProgramError with the reason in ``reasons``, and ProgramTypeError for an unknown option.
    """
    for name, reason in reasons.items():
        if name in options:
            raise ProgramError(f"Found `{name}` key in `{argument}`. {reason}")
    import inspect  # noqa: PLC0415 - rarely needed
    from importlib import import_module  # noqa: PLC0415 - as above

    module, _, name = callable_path.partition(":")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters
    for item in options:
        if item not in parameters:
            checks.wrong_type(method, f"arguments of {name}", item)

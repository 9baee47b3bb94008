"""Check the arguments of ``pipelining_ops.pipeline`` by Graphcore's rules, in Graphcore's order and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ipusim.api import rules, runs
from ipusim.base.errors import CountError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.pipeline_options import (
    GradientAccumulationReductionMethod,
    LoopSchedule,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    check_stage_options,
    check_update_options,
)
from ipusim.ipu.runtime.queues import InfeedArguments, OutfeedArguments


@dataclass(frozen=True, eq=False)
class Arguments:
    """Checked arguments of a pipeline, with defaults filled in.

    Attributes:
        stages: functions per computational stage: one function, or several for concurrent stages.
        count: gradient accumulation count.
        options: boolean and integer arguments, keyed like a pipeline's options: repeat_count, and flags for
            offloading, sharding, sums and outfeeds.
        gradient_accumulation_dtype: accumulator dtype, or a function from a variable to its dtype; None for the
            variable's dtype.
        infeed: queue of elements.
        optimizer_function: takes the last stage's outputs, returns optimizer and loss; None in inference.
        mapping: IPU per function, in order.
        schedule, recomputation_mode, reduction_method: arguments of the same names.
        forward_options, backward_options: Poplar options per computational stage.
        update_options: Poplar options of the weight update.
        outfeed_mask: flags of the last stage's outputs; the outfeed omits outputs flagged True. None for no mask.
        accumulate_outfeed_dtype: dtype for the sum of an execution's results; None for the results' dtypes.
        name: name of the pipeline.
    """

    stages: tuple[tuple[Callable[..., Any], ...], ...]
    count: int
    options: Mapping[str, Any]
    gradient_accumulation_dtype: Any
    infeed: Any
    optimizer_function: Callable[..., Any] | None
    mapping: tuple[int, ...]
    schedule: PipelineSchedule | LoopSchedule
    reduction_method: GradientAccumulationReductionMethod
    forward_options: tuple[PipelineStageOptions, ...]
    backward_options: tuple[PipelineStageOptions, ...]
    name: str
    recomputation_mode: RecomputationMode = RecomputationMode.Auto
    update_options: PipelineStageOptions = field(default_factory=PipelineStageOptions)
    outfeed_mask: tuple[bool, ...] | None = None
    accumulate_outfeed_dtype: Any = None

    @property
    def training(self) -> bool:
        """Whether the pipeline has an optimizer."""
        return self.optimizer_function is not None

    @property
    def outfeed_loss(self) -> bool:
        """Whether the outfeed takes only the loss."""
        return bool(self.options["outfeed_loss"])

    @property
    def accumulate_outfeed(self) -> bool:
        """Whether an execution's results are summed."""
        return bool(self.options["accumulate_outfeed"])


#: Arguments that a separate function checks.
_OWN_CHECKS: Final = ("gradient_accumulation_count",)
#: Arguments that accept None, with the meaning of False.
_NONE_IS_FALSE: Final = ("replicated_optimizer_state_sharding",)
#: Argument with Poplar options of the stages' forward passes.
FORWARD_OPTIONS: Final = "forward_propagation_stages_poplar_options"
#: Argument with Poplar options of the stages' backward passes.
BACKWARD_OPTIONS: Final = "backward_propagation_stages_poplar_options"
#: Argument with Poplar options of the weight update.
UPDATE_OPTIONS: Final = "weight_update_poplar_options"


def check_arguments(settings: Mapping[str, Any]) -> Arguments:
    """Return the arguments of ``pipeline``, given by name, as Arguments.

    Raises ProgramError, ProgramTypeError and UnsupportedProgramError, subclasses of ValueError, TypeError and
    NotImplementedError; Graphcore's text is used if Graphcore has a text.
    """
    _check_captured_grads(settings["gradient_accumulation_for_captured_grads"])
    count = _checked_count(settings["gradient_accumulation_count"])
    training = settings["optimizer_function"] is not None
    method = settings["reduction_method"]
    if training:
        method = GradientAccumulationReductionMethod.parse(method)
    simple_rows = {row.path[-1]: row for row in runs.arguments() if _is_simple(row)}

    def value(key: str) -> Any:
        return _simple_argument(simple_rows[key], settings)

    batch_iterations = value("batch_serialization_iterations")
    rules.check_serialization(batch_iterations, "SUM" if method is GradientAccumulationReductionMethod.SUM else "other")
    rules.check_weight_updates(value("continuous_weight_updates"))
    schedule, mode = _schedule_and_mode(settings, batch_iterations)
    mapping = _checked_mapping(settings, schedule, batch_iterations)
    stages = settings["computational_stages"]
    forward, backward = (
        check_stage_options(settings[name] if training or name == FORWARD_OPTIONS else None, len(stages), name)
        for name in (FORWARD_OPTIONS, BACKWARD_OPTIONS)
    )
    update = check_update_options(settings[UPDATE_OPTIONS] if training else None)
    mask = _checked_mask(settings["outfeed_mask"])
    rules.check_outfeed(
        training=training,
        mask=bool(mask),
        loss=value("outfeed_loss"),
        accumulate=value("accumulate_outfeed"),
        mode=None if settings["outfeed_queue"] is None else settings["outfeed_queue"].outfeed_mode.value,
    )
    _check_concurrent_stages(stages, mapping)
    options = {key: value(key) for key in simple_rows}
    _check_objects(settings)
    return Arguments(
        stages=tuple(tuple(stage) if isinstance(stage, list | tuple) else (stage,) for stage in stages),
        count=count,
        options=options,
        gradient_accumulation_dtype=_checked_dtype("gradient_accumulation_dtype", settings, "f"),
        infeed=settings["infeed_queue"],
        optimizer_function=settings["optimizer_function"],
        mapping=tuple(_ipus_of_mapping(mapping)),
        schedule=schedule,
        recomputation_mode=mode,
        reduction_method=method if training else GradientAccumulationReductionMethod.SUM,
        forward_options=tuple(forward),
        backward_options=tuple(backward),
        update_options=update,
        outfeed_mask=mask,
        accumulate_outfeed_dtype=_checked_dtype("accumulate_outfeed_dtype", settings, "iuf"),
        name="pipeline" if settings["name"] is None else checks.text("name", settings["name"]) or "pipeline",
    )


def _is_simple(row: runs.GraphcoreOption) -> bool:
    """Tell whether :func:`_simple_argument` can check an argument."""
    return row.kind in (bool, int) and row.name not in _OWN_CHECKS


def _simple_argument(row: runs.GraphcoreOption, options: Mapping[str, Any]) -> bool | int | None:
    """Return the argument described by a row of Graphcore's options: a boolean, an integer, or None if allowed."""
    if row.kind is int:
        return checks.whole(row.name, options[row.name], row.least)
    if row.name in _NONE_IS_FALSE:
        return bool(checks.three_state(row.name, options[row.name]))
    return (checks.three_state if row.optional else checks.truth)(row.name, options[row.name])


def _check_objects(options: Mapping[str, Any]) -> None:
    function = options["optimizer_function"]
    checks.function("optimizer_function", function, "a function of the last stage's outputs", optional=True)
    checks.instance("config", options["config"], IPUConfig | None, "an IPUConfig")


def _check_captured_grads(value: Any) -> None:
    """Raise ProgramTypeError for non-booleans, such as a count at this position in another release."""
    if not isinstance(value, bool):
        raise ProgramTypeError(
            f"gradient_accumulation_for_captured_grads: expected True or False, got {value!r}; the order of pipeline's "
            "arguments differs between Graphcore's releases, so name those after gradient_accumulation_count"
        )


def _checked_count(count: Any) -> int:
    if count is None:
        raise CountError("gradient_accumulation_count must be specified.")
    result = checks.integer("gradient_accumulation_count", count)
    rules.check_count_range(result)
    return result


def _checked_dtype(name: str, options: Mapping[str, Any], kinds: str) -> Any:
    """Return the argument ``name``: a dtype, a function returning a dtype, or None."""
    value = options[name]
    if value is None or (callable(value) and not isinstance(value, type)):
        return value
    return checks.dtype(name, value, kinds)


def _checked_mask(mask: Any) -> tuple[bool, ...] | None:
    checks.instance("outfeed_mask", mask, list | tuple | None, "a list or a tuple of True and False")
    return tuple(checks.truth("outfeed_mask", item) for item in mask) if mask else None


def _schedule_and_mode(options: Mapping[str, Any], batch_iterations: int) -> tuple[PipelineSchedule, RecomputationMode]:
    """Return schedule and recomputation mode, with defaults filled in."""
    schedule, mode = options["pipeline_schedule"], options["recomputation_mode"]
    if schedule is None:
        schedule = PipelineSchedule.Sequential if batch_iterations > 1 else PipelineSchedule.Grouped
    if not isinstance(schedule, PipelineSchedule):
        raise ProgramTypeError("The given pipeline_schedule is not a member of the PipelineSchedule enumeration.")
    if schedule is not PipelineSchedule.Sequential:
        rules.check_not_serialized(batch_iterations)
    mode = RecomputationMode.Auto if mode is None else mode
    if not isinstance(mode, RecomputationMode):
        raise ProgramTypeError("The given recomputation_mode is not a member of the RecomputationMode enumeration.")
    return schedule, mode


def _checked_mapping(options: Mapping[str, Any], schedule: PipelineSchedule, batch_iterations: int) -> Sequence[Any]:
    """Check stages, queues and mapping; return the mapping."""
    stages, mapping = options["computational_stages"], options["device_mapping"]
    if not isinstance(stages, list | tuple):
        raise ProgramTypeError("computational_stages argument needs to be a list or a tuple.")
    if mapping is None:
        mapping = [0] * len(stages) if batch_iterations > 1 else list(range(len(stages)))
    if options["infeed_queue"] is not None and not isinstance(options["infeed_queue"], InfeedArguments):
        raise ProgramTypeError("infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue")
    if options["outfeed_queue"] is not None and not isinstance(options["outfeed_queue"], OutfeedArguments):
        raise ProgramTypeError("outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue")
    rules.check_stages(len(stages))
    if not isinstance(mapping, list | tuple):
        raise ProgramTypeError("device_mapping argument needs to be a list or a tuple.")
    rules.check_mapping(len(mapping), len(stages))
    for stage, device in zip(stages, mapping, strict=True):
        if isinstance(device, list | tuple) and not isinstance(stage, list | tuple):
            checks.wrong_type("device_mapping", "one IPU for a stage that is one function", device)
        for ipu in device if isinstance(device, list | tuple) else [device]:
            checks.whole("device_mapping", ipu)
    if schedule is PipelineSchedule.Interleaved:
        ipus_of_stages = [item if isinstance(item, list | tuple) else [item] for item in mapping]
        rules.check_interleaved(ipus_of_stages, options["optimizer_function"] is not None)
    rules.check_serialized(batch_iterations, _ipus_of_mapping(mapping))
    return mapping


def _ipus_of_mapping(mapping: Sequence[Any]) -> list[int]:
    """Return the IPUs of all functions, listing concurrent stages individually."""
    return [int(ipu) for item in mapping for ipu in (item if isinstance(item, list | tuple) else [item])]


def _check_concurrent_stages(stages: Sequence[Any], mapping: Sequence[Any]) -> None:
    for stage, device in zip(stages, mapping, strict=True):
        if not isinstance(stage, list | tuple):
            continue
        if not stage:
            checks.wrong_value("computational_stages", "a function, or a list of functions", stage)
        rules.check_concurrent(len(stage), len(device) if isinstance(device, list | tuple) else None)
        if any(isinstance(function, list | tuple) for function in stage):
            raise UnsupportedProgramError("Multiple nested levels of pipeline stages is not supported.")
    for stage in stages:
        for function in stage if isinstance(stage, list | tuple) else [stage]:
            checks.function("computational_stages", function, "functions")


def refuse_what_is_not_simulated(arguments: Arguments) -> None:
    """Raise UnsupportedProgramError for arguments that Graphcore supports and ipusim does not."""
    if len(arguments.stages[0]) > 1 or len(arguments.stages[-1]) > 1:
        raise UnsupportedProgramError(
            "computational_stages: expected a single stage at either end of the pipeline, got concurrent stages"
        )
    dtype = arguments.accumulate_outfeed_dtype
    if callable(dtype) and not isinstance(dtype, type):
        raise UnsupportedProgramError("accumulate_outfeed_dtype: expected one dtype for all outputs, got a function")

"""Define Graphcore's enumerations and options for pipelines and stages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ipusim.api import models, rules, runs
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import checks


class PipelineSchedule(Enum):
    """Overlap of stages and micro-batches; values are the names in scenarios."""

    Grouped = "grouped"
    Interleaved = "interleaved"
    Sequential = "sequential"


class LoopSchedule(Enum):
    """A loop's schedule without a pipeline; values are the names in scenarios."""

    Single = "single"
    Sharded = "sharded"


class RecomputationMode(Enum):
    """Time at which a stage recomputes activations; values are the names in scenarios."""

    Auto = "Auto"
    RecomputeThenBackpropagate = rules.THEN_BACKPROPAGATE
    RecomputeAndBackpropagateInterleaved = rules.INTERLEAVED


class GradientAccumulationReductionMethod(Enum):
    """Accumulation rule for the gradients of an execution's micro-batches; values are the names in scenarios.

    SUM adds gradients, MEAN adds gradients divided by the count, RUNNING_MEAN keeps the mean of gradients so far.
    """

    SUM = "SUM"
    MEAN = "MEAN"
    RUNNING_MEAN = "RUNNING_MEAN"

    @classmethod
    def parse(cls, reduction_method: object) -> GradientAccumulationReductionMethod:
        """Return the method for a member or case-insensitive name; raises ProgramError for other values."""
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        raise ProgramError(
            f"Cannot parse {reduction_method} as one of GradientAccumulationReductionMethod. "
            f"Valid values are: {', '.join(cls.__members__)}."
        )


#: Poplar option for the share of a tile's memory that a product may use.
_MEMORY_PROPORTION: Final = "availableMemoryProportion"
#: Poplar option for the type of partial sums.
_PARTIALS_TYPE: Final = "partialsType"
#: A number as text. The length is limited, as 1e999999999 would have a thousand million digits.
_NUMBER: Final = re.compile(r"\s*\+?(\d{1,40}(/\d{1,40})?|(?=\.?\d)\d{0,40}\.?\d{0,40}([eE][+-]?\d{1,3})?)\s*")
#: A denominator of zero.
_ZERO_DENOMINATOR: Final = re.compile(r"/0+\s*$")


class PipelineStageOptions:
    """Poplar options for the operations of one stage, as dictionaries of texts.

    Raises ProgramTypeError for other types.
    """

    def __init__(
        self,
        convolution_options: dict[str, str] | None = None,
        matmul_options: dict[str, str] | None = None,
        slice_options: dict[str, str] | None = None,
    ) -> None:
        """Check the arguments."""
        arguments = {"convolution": convolution_options, "matmul": matmul_options, "slice": slice_options}
        for name, options in arguments.items():
            if options is not None and not isinstance(options, dict):
                raise ProgramTypeError(f"PipelineStageOptions.{name}_options must be dictionary.")
        self.convolution_options = convolution_options or {}
        self.matmul_options = matmul_options or {}
        self.slice_options = slice_options or {}

    def stage_options(self, argument: str) -> models.StageOptions:
        """Return the simulated options.

        Raises UnsupportedProgramError for other options, and ProgramError for wrong values, which name ``argument``.
        """
        if self.slice_options:
            raise UnsupportedProgramError(f"{argument}: options of slices are not simulated, got {self.slice_options}")
        return models.StageOptions(
            plan_options(self.matmul_options, argument),
            plan_options(self.convolution_options, argument),
        )


def plan_options(options: Mapping[str, Any], argument: str) -> models.PlanOptions:
    """Return availableMemoryProportion (number or text) and partialsType from products' ``options``.

    Raises:
        UnsupportedProgramError: for other options.
        ProgramError: for proportions outside 0 to 1, or types except half and float.
    """
    unknown_options = sorted(map(str, options.keys() - {_MEMORY_PROPORTION, _PARTIALS_TYPE}))
    if unknown_options:
        requirement = f"{_MEMORY_PROPORTION} and {_PARTIALS_TYPE}"
        raise UnsupportedProgramError(
            f"{argument}: expected no option but {requirement}, got {', '.join(unknown_options)}"
        )
    partials = None
    if _PARTIALS_TYPE in options:
        partials = (
            models.PARTIALS_BYTES.get(options[_PARTIALS_TYPE]) if isinstance(options[_PARTIALS_TYPE], str) else None
        )
        if partials is None:
            requirement = " or ".join(models.PARTIALS_BYTES)
            raise ProgramError(
                f"{argument}: expected {requirement} as {_PARTIALS_TYPE}, got {runs.show(options[_PARTIALS_TYPE])}"
            )
    return models.PlanOptions(_proportion(options, argument), partials)


def _proportion(options: Mapping[str, Any], argument: str) -> Fraction | None:
    if _MEMORY_PROPORTION not in options:
        return None
    value = options[_MEMORY_PROPORTION]
    spelling = str(value) if isinstance(value, str | float | np.floating | Fraction | Decimal) else runs.show(value)
    result = (
        Fraction(spelling) if _NUMBER.fullmatch(spelling) and not _ZERO_DENOMINATOR.search(spelling) else Fraction(0)
    )
    if not 0 < result <= 1:
        raise ProgramError(
            f"{argument}: expected an {_MEMORY_PROPORTION} above 0 and at most 1, got {runs.show(value)}"
        )
    return result


def poplar_options(options: models.PlanOptions) -> dict[str, Any]:
    """Return the options in a scenario's form."""
    share = options.memory_proportion
    names = {size: name for name, size in models.PARTIALS_BYTES.items()}
    return {
        _MEMORY_PROPORTION: None if share is None else float(share),
        _PARTIALS_TYPE: None if options.partials_itemsize is None else names[options.partials_itemsize],
    }


def check_stage_options(options: Any, stages: int, name: str) -> Sequence[PipelineStageOptions]:
    """Return the options for all stages from argument ``name``.

    Raises ProgramTypeError and ProgramError with Graphcore's message.
    """
    if options is None:
        return [PipelineStageOptions()] * stages
    if not isinstance(options, list | tuple):
        raise ProgramTypeError(f"{name} must be a list or a tuple of PipelineStageOptions objects.")
    rules.check_stage_options(name, len(options), stages)
    for option in options:
        if not isinstance(option, PipelineStageOptions):
            raise ProgramTypeError(
                f"Expected all elements of {name} to be of type PipelineStageOptions, but got {option} instead."
            )
    return options


def check_update_options(options: Any) -> PipelineStageOptions:
    """Return the weight update's options; raises ProgramTypeError for wrong types."""
    if options is None:
        return PipelineStageOptions()
    if not isinstance(options, PipelineStageOptions):
        raise ProgramTypeError(
            f"weight_update_poplar_options to be of type PipelineStageOptions, but got {options} instead."
        )
    return options


def partials_itemsize(partials_dtype: Any) -> int:
    """Return the bytes per partial sum; raises ProgramError for types other than float16 and float32."""
    dtype = checks.dtype("partials_dtype", partials_dtype)
    if dtype.itemsize not in models.PARTIALS_BYTES.values():
        checks.wrong_value("partials_dtype", "float16 or float32", dtype.name)
    return dtype.itemsize

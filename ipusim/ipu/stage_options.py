"""Options of a stage's operations, which Graphcore's libraries plan by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError


class PipelineStageOptions:
    """Poplar options for the operations of one stage; each a dictionary of texts.

    Raises ProgramTypeError for anything else.
    """

    def __init__(
        self,
        convolution_options: dict[str, str] | None = None,
        matmul_options: dict[str, str] | None = None,
        slice_options: dict[str, str] | None = None,
    ) -> None:
        """Check the arguments."""
        given = {"convolution": convolution_options, "matmul": matmul_options, "slice": slice_options}
        for name, options in given.items():
            if options is not None and not isinstance(options, dict):
                raise ProgramTypeError(f"PipelineStageOptions.{name}_options must be dictionary.")
        self.convolution_options = convolution_options or {}
        self.matmul_options = matmul_options or {}
        self.slice_options = slice_options or {}

    def __bool__(self) -> bool:
        """Whether any option is given."""
        return bool(self.convolution_options or self.matmul_options or self.slice_options)


def check_stage_options(options: Any, stages: int, name: str) -> Sequence[PipelineStageOptions]:
    """Return the options of all stages, the argument ``name``.

    Raises ProgramTypeError and ProgramError in Graphcore's words.
    """
    if options is None:
        return ()
    if not isinstance(options, list | tuple):
        raise ProgramTypeError(f"{name} must be a list or a tuple of PipelineStageOptions objects.")
    if len(options) != stages:
        raise ProgramError(
            f"{name} must be a list or a tuple of PipelineStageOptions objects of length {stages} (same number as the "
            f"number of computational stages) but is {len(options)}."
        )
    for each in options:
        if not isinstance(each, PipelineStageOptions):
            raise ProgramTypeError(
                f"Expected all elements of {name} to be of type PipelineStageOptions, but got {each} instead."
            )
    return options


def check_update_options(options: Any) -> None:
    """Refuse options of the weight update that are none; raises ProgramTypeError."""
    if options is not None and not isinstance(options, PipelineStageOptions):
        raise ProgramTypeError(
            f"weight_update_poplar_options to be of type PipelineStageOptions, but got {options} instead."
        )


def refuse_given(options: Sequence[PipelineStageOptions | None], name: str) -> None:
    """Refuse any option at all, as operations are not planned here; raises UnsupportedProgramError."""
    if any(options):
        raise UnsupportedProgramError(f"{name}: options of operations are not simulated, expected empty ones")

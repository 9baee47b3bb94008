"""How gradients are accumulated, by Graphcore's names."""

from __future__ import annotations

from enum import Enum

from ipusim.errors import ProgramError
from ipusim.model.workload import Reduction


class GradientAccumulationReductionMethod(Enum):
    """What becomes of the gradients of an execution's micro-batches; the value is the core's name of it.

    SUM adds them, MEAN adds each divided by the count, RUNNING_MEAN keeps the mean of those so far.
    """

    SUM = "SUM"
    MEAN = "MEAN"
    RUNNING_MEAN = "RUNNING_MEAN"

    @classmethod
    def parse(cls, reduction_method: object) -> GradientAccumulationReductionMethod:
        """Return the method that a member or a name in any case stands for; raises ProgramError for another."""
        if isinstance(reduction_method, cls):
            return reduction_method
        if isinstance(reduction_method, str) and reduction_method.upper() in cls.__members__:
            return cls[reduction_method.upper()]
        raise ProgramError(
            f"Cannot parse {reduction_method} as one of GradientAccumulationReductionMethod. "
            f"Valid values are: {', '.join(cls.__members__)}."
        )

    @property
    def reduction(self) -> Reduction:
        """The core's name."""
        return self.value

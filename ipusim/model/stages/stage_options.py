"""Apply Graphcore's options for planning the products of a stage.

``availableMemoryProportion`` is the share of a tile's memory available to a running product. The planner splits the
product over tiles, and into consecutive parts, until the product fits. ``partialsType`` is the type of partial sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ipusim.model.profile import PassCost, StageProfile
from ipusim.model.work import MeasuredWork, Work, WorkSequence, in_turn

#: Bytes of a partial sum, by Poplar type.
PARTIALS_BYTES: Final = {"half": 2, "float": 4}


@dataclass(frozen=True)
class PlanOptions:
    """Options of a kind of operation; None keeps the planner's default.

    Attributes:
        memory_proportion: availableMemoryProportion.
        partials_itemsize: bytes of a partial sum, 2 or 4.
    """

    memory_proportion: Fraction | None = None
    partials_itemsize: int | None = None

    def fill_up(self, general: PlanOptions) -> PlanOptions:
        """Return these options, filled up with the ``general`` options."""
        return PlanOptions(
            general.memory_proportion if self.memory_proportion is None else self.memory_proportion,
            general.partials_itemsize if self.partials_itemsize is None else self.partials_itemsize,
        )

    def apply_to(self, work: Work) -> Work:
        """Return ``work`` with these options."""
        partials = work.partials_itemsize if self.partials_itemsize is None else self.partials_itemsize
        return replace(work, memory_proportion=self.memory_proportion, partials_itemsize=partials)


@dataclass(frozen=True)
class StageOptions:
    """Graphcore's PipelineStageOptions.

    Attributes:
        matmul: options of matrix products.
        convolution: options of convolutions.
    """

    matmul: PlanOptions = PlanOptions()
    convolution: PlanOptions = PlanOptions()

    def fill_up(self, general: StageOptions) -> StageOptions:
        """Return these options, filled up with the ``general`` options."""
        return StageOptions(self.matmul.fill_up(general.matmul), self.convolution.fill_up(general.convolution))

    def apply_to(self, cost: PassCost) -> PassCost:
        """Return a pass with these options for its products."""
        return cost if isinstance(cost, int) else tuple(self._work(work) for work in cost)

    def _work(self, work: Work) -> Work:
        if isinstance(work, WorkSequence):
            return in_turn(tuple(self._work(part) for part in work.parts), work.itemsize)
        if not work.products or isinstance(work, MeasuredWork):
            return work
        return (self.convolution if work.convolution else self.matmul).apply_to(work)


def with_options(
    profile: StageProfile, forward: StageOptions, backward: StageOptions, update: StageOptions
) -> StageProfile:
    """Return ``profile`` with the given options for the products of the passes."""
    halves = (profile.backward_input, profile.backward_weights)
    input_half, weight_half = (None if cost is None else backward.apply_to(cost) for cost in halves)
    return replace(
        profile,
        forward=forward.apply_to(profile.forward),
        backward=backward.apply_to(profile.backward),
        update=update.apply_to(profile.update),
        backward_input=input_half,
        backward_weights=weight_half,
        recompute=None if profile.recompute is None else forward.apply_to(profile.recompute),
    )

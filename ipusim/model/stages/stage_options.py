"""Graphcore's options of a stage's operations: how much of an IPU's memory an operation may take for a while.

With ``availableMemoryProportion`` p an operation may take p of the memory of the tiles
that compute. What it would take is what its tiles receive over the exchange, the
rearranged operands. Where that is more, the operation is split into as many parts as
make each fit, one after another, each with a superstep of its own:

    parts = ceil(exchange bytes / (p * memory)),   temporary bytes = ceil(exchange bytes / parts)

The direction is Graphcore's ("Less temporary memory will generally result in a
computation that takes more cycles"), the amounts are assumed; without the option nothing
is taken, and no time either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from ipusim.hardware.generations import IpuSpec
from ipusim.model.profile import PassCost, StageProfile
from ipusim.model.work import MeasuredWork, Work, WorkSequence, in_turn


@dataclass(frozen=True)
class StageOptions:
    """Graphcore's PipelineStageOptions; None leaves operations as they are.

    Attributes:
        matmul: proportion for matrix products.
        convolution: proportion for convolutions.
    """

    matmul: Fraction | None = None
    convolution: Fraction | None = None

    def over(self, general: StageOptions) -> StageOptions:
        """Return these options, and the ``general`` ones where these say nothing."""
        return StageOptions(
            general.matmul if self.matmul is None else self.matmul,
            general.convolution if self.convolution is None else self.convolution,
        )

    def proportion(self, work: Work) -> Fraction | None:
        """Return the proportion that holds for ``work``; None for one that no option concerns."""
        if not work.macs or isinstance(work, MeasuredWork):
            return None
        return self.convolution if work.convolution else self.matmul


def limited(work: Work, options: StageOptions, ipu: IpuSpec) -> tuple[Work, int]:
    """Return ``work`` in as many parts as the options ask for, and the temporary bytes of one of them."""
    if isinstance(work, WorkSequence):
        parts = [limited(part, options, ipu) for part in work.parts]
        return in_turn(tuple(part for part, _ in parts), work.itemsize), max((size for _, size in parts), default=0)
    proportion = options.proportion(work)
    if proportion is None or not work.exchange_bytes:
        return work, 0
    parts_needed = math.ceil(work.exchange_bytes / (proportion * ipu.sram_bytes))
    temporary = -(-work.exchange_bytes // parts_needed)
    return replace(work, supersteps=work.supersteps + parts_needed - 1), temporary


def _limited_pass(cost: PassCost, options: StageOptions, ipu: IpuSpec) -> tuple[PassCost, int]:
    if isinstance(cost, int):
        return cost, 0
    parts = [limited(work, options, ipu) for work in cost]
    return tuple(work for work, _ in parts), max((size for _, size in parts), default=0)


def with_options(
    profile: StageProfile, forward: StageOptions, backward: StageOptions, update: StageOptions, ipu: IpuSpec
) -> StageProfile:
    """Return ``profile`` with each pass in the parts that its options ask for, and the memory that these take."""
    forward_cost, forward_bytes = _limited_pass(profile.forward, forward, ipu)
    backward_cost, backward_bytes = _limited_pass(profile.backward, backward, ipu)
    update_cost, update_bytes = _limited_pass(profile.update, update, ipu)
    halves = [
        (cost, 0) if cost is None else _limited_pass(cost, backward, ipu)
        for cost in (profile.backward_input, profile.backward_weights)
    ]
    return replace(
        profile,
        forward=forward_cost,
        backward=backward_cost,
        update=update_cost,
        forward_temporary_bytes=forward_bytes,
        backward_input=halves[0][0],
        backward_weights=halves[1][0],
        backward_temporary_bytes=backward_bytes,
        halves_temporary_bytes=max(size for _, size in halves),
        update_temporary_bytes=update_bytes,
    )

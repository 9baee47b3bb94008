"""Count the work on a stage's variables: gradient maps, accumulation, and the weight update."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import Optimizer, SlottedOptimizer
from ipusim.model.profile import StageProfile
from ipusim.model.work import VectorWork, Work


class VariableSize(NamedTuple):
    """Elements and itemsize of a variable, and itemsize of its gradient accumulator."""

    elements: int
    itemsize: int
    accumulator_itemsize: int


#: How the gradients of an execution's micro-batches are accumulated: SUM adds gradients, MEAN divides each gradient by
#: the number of micro-batches before the sum, RUNNING_MEAN keeps the mean of the gradients so far. Graphcore's names
#: (GradientAccumulationReductionMethod).
Reduction = Literal["SUM", "MEAN", "RUNNING_MEAN"]
#: Operations per element of an accumulated gradient: MEAN scales the gradient, RUNNING_MEAN also the accumulator.
_OPERATIONS: Final = {"SUM": 1, "MEAN": 2, "RUNNING_MEAN": 3}


def accumulation_work(
    variables: Iterable[VariableSize], gradient_map: GradientMap | None, reduction: Reduction = "SUM"
) -> tuple[Work, ...]:
    """Return the work on the variables' gradients of a micro-batch: mapping, then accumulation.

    Every variable takes a separate operation and superstep, as in TensorFlow's graph. Factors of the ``reduction`` are
    part of the operation, as in PopLibs' scaled addition.
    """
    works = []
    for size in variables:
        if gradient_map is not None:
            works.append(gradient_map.work(size.elements, size.itemsize))
        traffic = size.elements * (size.itemsize + 2 * size.accumulator_itemsize)
        wider = max(size.itemsize, size.accumulator_itemsize)
        works.append(
            Work(vector=VectorWork(_OPERATIONS[reduction] * size.elements), sram_bytes=traffic, itemsize=wider)
        )
    return tuple(works)


def update_work(variables: Iterable[VariableSize], optimizer: Optimizer) -> tuple[Work, ...]:
    """Return the work of the variables' updates, which read accumulators instead of gradients."""
    works = []
    for size in variables:
        work = optimizer.work(size.elements, size.itemsize)
        # accumulators may have wider elements than gradients
        further_bytes = size.elements * (size.accumulator_itemsize - size.itemsize)
        works.append(replace(work, sram_bytes=work.sram_bytes + further_bytes, variables=1))
    return tuple(works)


def with_variables(
    profile: StageProfile,
    used_sizes: Iterable[VariableSize],
    owned: Sequence[VariableSize],
    optimizer: Optimizer | None,
    itemsize: int,
) -> StageProfile:
    """Return ``profile`` with accumulators, slots and update of the ``owned`` variables.

    A slot is as large as its variable, unless the optimizer states the bytes. The itemsize of accumulators is the
    smallest in ``used_sizes``; if ``used_sizes`` is empty, it is ``itemsize``.
    """
    slots: list[int] = []
    if isinstance(optimizer, SlottedOptimizer):
        slots = [slot for size in owned for slot in optimizer.slot_bytes(size.elements, size.itemsize)]
    elif optimizer is not None:
        for size in owned:
            byte_count = size.elements * size.itemsize
            slots += [byte_count] * (optimizer.state_bytes(size.elements, size.itemsize) // max(byte_count, 1))
    tensors = tuple((size.elements, size.accumulator_itemsize) for size in owned)
    return replace(
        profile,
        update=update_work(owned, optimizer) if optimizer else (),
        state_bytes=sum(slots),
        state_tensors=tuple(slots),
        accumulator_bytes=sum(map(math.prod, tensors)),
        accumulator_itemsize=min((size.accumulator_itemsize for size in used_sizes), default=itemsize),
        accumulator_tensors=tensors,
    )

"""Work of the variables of a stage: gradients that are mapped and accumulated, and the weight update."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import Optimizer
from ipusim.model.work import VectorWork, Work


class VariableSize(NamedTuple):
    """A variable's elements, the bytes of one, and the bytes of one element of its gradient accumulator."""

    elements: int
    itemsize: int
    accumulator_itemsize: int


#: How the gradients of an execution's micro-batches are accumulated: added; added after division by the count; or
#: kept as the mean of those so far. Graphcore's names (GradientAccumulationReductionMethod).
Reduction = Literal["SUM", "MEAN", "RUNNING_MEAN"]
#: Operations on each element of a gradient that is added to its accumulator: MEAN scales one, RUNNING_MEAN both.
_OPERATIONS: Final = {"SUM": 1, "MEAN": 2, "RUNNING_MEAN": 3}


def accumulation_work(
    variables: Iterable[VariableSize], gradient_map: GradientMap | None, reduction: Reduction = "SUM"
) -> tuple[Work, ...]:
    """Return the work on each variable's gradient of a micro-batch: mapped, then added to its accumulator.

    Every variable is an operation of its own with its own superstep, as each is in TensorFlow's graph; factors of the
    ``reduction`` are part of it, as of PopLibs' scaled addition.
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
    """Return the work of the weight update of each variable, which reads its accumulator in place of a gradient."""
    works = []
    for size in variables:
        rule = optimizer.work(size.elements, size.itemsize)
        more = size.elements * (size.accumulator_itemsize - size.itemsize)
        works.append(replace(rule, sram_bytes=rule.sram_bytes + more, variables=1))
    return tuple(works)

"""The profile of a stage that is a Python function, counted on one of its own micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ipusim.model.collective_call import CollectiveCall
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.layers.layer import Array, Saved
from ipusim.model.layers.saved_arrays import saved_arrays
from ipusim.model.learning.optimizers import Optimizer
from ipusim.model.learning.variable_work import Reduction, VariableSize, accumulation_work, with_variables
from ipusim.model.profile import StageProfile
from ipusim.model.stages.function_stage import Arrays, FunctionStage
from ipusim.model.work import TableBytes, VectorWork, Work

if TYPE_CHECKING:
    from ipusim.model.functions.counting import Counted

#: Bytes of an element where a stage has no floating-point array at all.
_DEFAULT_ITEMSIZE = 4


class Passes(NamedTuple):
    """Counts of a stage's passes.

    Attributes:
        counted: their work.
        saved: what the forward pass keeps in training.
        forward, backward: the collectives of each.
        tables: what moves from tables on the host, and in training back.
    """

    counted: Counted
    saved: Saved
    forward: tuple[CollectiveCall, ...]
    backward: tuple[CollectiveCall, ...]
    tables: TableBytes


class Summed(NamedTuple):
    """What an accumulated outfeed adds up for each micro-batch: elements, and the bytes of one in the sum."""

    elements: int
    itemsize: int


def profile_function(
    stage: FunctionStage,
    inputs: Arrays,
    outputs: Arrays,
    *,
    is_last: bool,
    optimizer: Optimizer | None = None,
    owned: Collection[str] = (),
    taught: Sequence[bool] = (),
    accumulator: Callable[[str, Array], np.dtype[Any]] = lambda _, variable: variable.dtype,
    summed: Summed | None = None,
    reduction: Reduction = "SUM",
) -> StageProfile:
    """Return the profile of a stage, in training where there is an ``optimizer``.

    Args:
        stage, inputs, outputs: what runs, and on what, the loss left out; all later micro-batches have their shapes.
        is_last: whether no stage follows.
        optimizer: the rule of the weight update.
        owned: the variables that are counted here; others are an earlier stage's of the same IPU.
        taught: whether each output depends on a variable; no gradient comes back for the others, such as labels.
        accumulator, reduction: the dtype of a variable's gradient accumulator, and how gradients come to it.
        summed: what the outfeed adds up on the IPU, in the last stage.

    A layer of this package costs what it costs in a list of layers; every other NumPy call its own memory traffic, as
    without fusion. Raises ModelError for a function whose work cannot be counted, or that cannot be differentiated.
    """
    variables = dict(stage.variables)
    own = {name: array for name, array in variables.items() if name in owned}
    itemsize = _itemsize([*variables.values(), *inputs])
    passes = _counted(stage, inputs, outputs, itemsize, optimizer is not None)
    profile = StageProfile(
        name=stage.name,
        forward=(*passes.counted.forward, *summing_work(summed, itemsize)),
        output_bytes=0 if is_last else _bytes(outputs),
        label_bytes=_bytes(y for y, known in zip(outputs, taught, strict=False) if not known or y.dtype.kind != "f"),
        parameter_bytes=_bytes(own.values()),
        input_bytes=_bytes(inputs),
        working_bytes=passes.counted.touched_bytes,
        forward_collectives=passes.forward,
        tables=passes.tables,
        forward_host_calls=passes.counted.forward_host_calls,
    )
    if optimizer is None:
        return profile
    sizes = {name: _size(array, accumulator(name, array)) for name, array in variables.items()}
    adding = accumulation_work(sizes.values(), optimizer.gradient_map, reduction)
    profile = replace(
        profile,
        backward=(*passes.counted.backward, *adding),
        backward_collectives=passes.backward,
        backward_host_calls=passes.counted.backward_host_calls,
        backward_input=passes.counted.backward,
        backward_weights=adding,  # autograd goes back through a function once: this alone is the second half
        rest_bytes=_bytes(variables.values()),
        gradient_bytes=_bytes(x for x, needed in zip(inputs, stage.needed(inputs), strict=True) if needed),
        stash_bytes=sum(array.nbytes for array in saved_arrays(passes.saved, variables)),
        weight_gradient_bytes=max([passes.counted.layer_weight_bytes, *(array.nbytes for array in variables.values())]),
    )
    return with_variables(profile, sizes.values(), [sizes[name] for name in own], optimizer, itemsize)


def _counted(stage: FunctionStage, inputs: Arrays, outputs: Arrays, itemsize: int, training: bool) -> Passes:
    """Return the counts of both passes, and what the forward pass saves in training.

    There is no backward pass where nothing before the stage learns, nor does it. What a scope keeps lies on the host.
    """
    from ipusim.model.functions.counting import count_several  # noqa: PLC0415 - autograd takes a while to import
    from ipusim.model.functions.gradient import pullback_of_several  # noqa: PLC0415 - as above
    from ipusim.model.functions.placement import PlacedNode  # noqa: PLC0415 - as above

    weights = tuple(stage.variables.values())
    pulled = [0] if stage.has_loss else range(len(outputs))
    with stage.tracing():
        argnums = stage.argnums(inputs) if training else []
        every: list[CollectiveCall] = []
        moved: list[TableBytes] = []
        with Surrounded(collectives=every, look_ups=moved):
            counts = count_several(stage.call, [*weights, *inputs], argnums, pulled, weights=weights, itemsize=itemsize)
        tables = sum(moved, TableBytes())
        if not training:
            return Passes(counts.without_backward(), None, tuple(every), (), replace(tables, gradients=0))
        forward: list[CollectiveCall] = []
        with Surrounded(collectives=forward, look_ups=[], key=(0,)):
            saved, _ = pullback_of_several(stage.call, [*weights, *inputs], argnums, PlacedNode)
    backward = tuple(every[len(forward) :]) if argnums else ()
    return Passes(counts if argnums else counts.without_backward(), saved, tuple(forward), backward, tables)


def _itemsize(arrays: Iterable[Array]) -> int:
    return max((array.itemsize for array in arrays if array.dtype.kind == "f"), default=_DEFAULT_ITEMSIZE)


def _size(variable: Array, accumulator: np.dtype[Any]) -> VariableSize:
    return VariableSize(variable.size, variable.itemsize, accumulator.itemsize)


def summing_work(summed: Summed | None, itemsize: int) -> Iterator[Work]:
    """Yield the work of adding a micro-batch's results of so wide elements: read them and the sum, and write that."""
    if summed is None:
        return
    moved = summed.elements * (itemsize + 2 * summed.itemsize)
    yield Work(vector=VectorWork(summed.elements), sram_bytes=moved, itemsize=max(itemsize, summed.itemsize))


def _bytes(arrays: Iterable[Array]) -> int:
    return sum(array.nbytes for array in arrays)

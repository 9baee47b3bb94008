"""What a stage returns as a structure of arrays: which travel, by which names, and which every stage has anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ipusim.errors import ModelError
from ipusim.ipu.host import Operation
from ipusim.ipu.variable import plain
from ipusim.model.layers.layer import Array
from ipusim.model.stages.function_stage import as_results


class Holder(Enum):
    """What holds the values of an element of an outfeed: nothing, where it is one by itself, a list or a tuple."""

    ALONE = 0
    LIST = 1
    TUPLE = 2

    @classmethod
    def of(cls, enqueued: Any) -> Holder:
        """Return what holds the values that the body of a loop enqueues."""
        return cls.TUPLE if isinstance(enqueued, tuple) else cls.LIST if isinstance(enqueued, list) else cls.ALONE


@dataclass(frozen=True)
class Input:
    """A value of the pipeline's own ``inputs``, by its place there: the same in every micro-batch of a run."""

    place: int


@dataclass(frozen=True)
class Form:
    """A structure of values: each an array by its place among those that travel, an Input, or a dictionary of them."""

    slots: tuple[Any, ...] = ()
    arrays: int = 0

    def __add__(self, other: Form) -> Form:
        """Return the values of both, one after the other, as the next stage gets those of concurrent stages."""
        return Form((*self.slots, *(_moved(slot, self.arrays) for slot in other.slots)), self.arrays + other.arrays)

    def without_first(self) -> Form:
        """Return the values but for the first, which is one array."""
        return Form(tuple(_moved(slot, -1) for slot in self.slots[1:]), self.arrays - 1)

    @property
    def named(self) -> bool:
        """Whether there is a dictionary in it."""
        return any(isinstance(slot, Mapping) for slot in self.slots)

    def pack(self, arrays: Sequence[Any], inputs: Sequence[Any] = ()) -> list[Any]:
        """Return the values, of the arrays that travel and those of the pipeline's inputs."""

        def value(slot: Any) -> Any:
            if isinstance(slot, Mapping):
                return {name: value(each) for name, each in slot.items()}
            return inputs[slot.place] if isinstance(slot, Input) else arrays[slot]

        return [value(slot) for slot in self.slots]


def taken_apart(name: str, returned: Any, inputs: Mapping[int, int]) -> tuple[Form, list[Any]]:
    """Return the form of what the stage called ``name`` returned, and the arrays in it that travel.

    ``inputs`` are the places of the pipeline's inputs by the identity of what the stage was given for them: what is
    returned as it came is one of them still. Raises ModelError for names that are neither texts nor numbers.
    """
    from ipusim.ipu.each_loss import concrete  # noqa: PLC0415 - autograd takes a while to import

    arrays: list[Any] = []

    def slot(value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str | int):
                    raise ModelError(f"stage {name!r}: expected texts or numbers as names of its outputs, got {key!r}")
            return {key: leaf(each) for key, each in value.items()}
        return leaf(value)

    def leaf(value: Any) -> Any:
        if id(value) in inputs:
            return Input(inputs[id(value)])
        arrays.append(concrete(plain(value)))
        return len(arrays) - 1

    slots = tuple(slot(value) for value in as_results(returned))
    return Form(slots, len(arrays)), arrays


def without_operations(returned: Any) -> Any:
    """Return what a stage's function returned but for operations of the host, such as those that print."""
    if isinstance(returned, Operation):
        return None
    if isinstance(returned, tuple | list) and any(isinstance(each, Operation) for each in returned):
        return [each for each in returned if not isinstance(each, Operation)]
    return returned


def packing(form: Form, kept: Sequence[int], holder: Holder) -> Callable[[list[Array]], Any]:
    """Return what makes an element of an outfeed of the ``kept`` arrays, in a ``holder``, with names as in ``form``."""
    if holder is Holder.ALONE:
        return lambda arrays: form.pack(arrays)[0] if form.named else arrays[0]
    held = list if holder is Holder.LIST else tuple
    if form.named and len(kept) == form.arrays:
        return lambda arrays: held(form.pack(arrays))
    return held


def _moved(slot: Any, by: int) -> Any:
    if isinstance(slot, Mapping):
        return {name: _moved(each, by) for name, each in slot.items()}
    return slot if isinstance(slot, Input) else slot + by

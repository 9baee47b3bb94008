"""A call of a stage's function, and the form of what it returns: which arrays travel, and which all stages have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np

from ipusim.api import Array, models
from ipusim.base.errors import ModelError, UnsupportedProgramError
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.host import Operation
from ipusim.ipu.runtime.names import ProgramNames
from ipusim.ipu.runtime.small_integers import as_tensorflow_divides
from ipusim.ipu.runtime.stage_outfeeds import StageOutfeeds
from ipusim.ipu.runtime.structures import mapped
from ipusim.ipu.runtime.variable import plain


class Holder(Enum):
    """The container of the values of an outfeed's element: none, where it is one value, a list or a tuple."""

    ALONE = 0
    LIST = 1
    TUPLE = 2

    @classmethod
    def of(cls, enqueued: Any) -> Holder:
        """Return the container of the values that the body of a loop enqueues."""
        return cls.TUPLE if isinstance(enqueued, tuple) else cls.LIST if isinstance(enqueued, list) else cls.ALONE


@dataclass(frozen=True)
class Input:
    """A value of the pipeline's own ``inputs``, by its place there: the same in every micro-batch of a run."""

    index: int


@dataclass(frozen=True)
class Form:
    """The structure of a stage's values: each an array by its position in the transfer, an Input, or a dictionary."""

    slots: tuple[Any, ...] = ()
    arrays: int = 0

    def __add__(self, other: Form) -> Form:
        """Return the values of both, one after the other, as the next stage gets those of concurrent stages."""
        return Form((*self.slots, *_moved(other.slots, self.arrays)), self.arrays + other.arrays)

    def without_first(self) -> Form:
        """Return the values but for the first, which is one array."""
        return Form(_moved(self.slots[1:], -1), self.arrays - 1)

    @property
    def named(self) -> bool:
        """Whether there is a dictionary in it."""
        return any(isinstance(slot, Mapping) for slot in self.slots)

    def pack(self, arrays: Sequence[Any], inputs: Sequence[Any] = ()) -> list[Any]:
        """Return the values, of the arrays that travel and those of the pipeline's inputs."""
        return list(mapped(lambda slot: inputs[slot.index] if isinstance(slot, Input) else arrays[slot], self.slots))


def taken_apart(name: str, returned: Any, inputs: Mapping[int, int]) -> tuple[Form, list[Any]]:
    """Return the form of what the stage called ``name`` returned, and the arrays in it that travel.

    ``inputs`` are the places of the pipeline's inputs by the identity of what the stage was given for them: what is
    returned as it came is one of them still. Raises ModelError for names that are neither texts nor numbers.
    """
    from ipusim.ipu.runtime.per_example_loss import concrete  # noqa: PLC0415 - autograd takes a while to import

    arrays: list[Any] = []

    def slot(value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str | int):
                    raise ModelError(f"stage {name!r}: expected texts or numbers as names of its outputs, got {key!r}")
            return {key: leaf(item) for key, item in value.items()}
        return leaf(value)

    def leaf(value: Any) -> Any:
        if id(value) in inputs:
            return Input(inputs[id(value)])
        arrays.append(concrete(plain(value)))
        return len(arrays) - 1

    slots = tuple(slot(value) for value in models.as_results(returned))
    return Form(slots, len(arrays)), arrays


def without_operations(returned: Any) -> Any:
    """Return a stage function's results without operations of the host, such as those that print."""
    if isinstance(returned, Operation):
        return None
    if isinstance(returned, tuple | list) and any(isinstance(item, Operation) for item in returned):
        return [item for item in returned if not isinstance(item, Operation)]
    return returned


def packing(form: Form, sent: Sequence[int], holder: Holder) -> Callable[[list[Array]], Any]:
    """Return a function from the ``sent`` arrays to an outfeed's element, in a ``holder``, named as in ``form``."""
    if holder is Holder.ALONE:
        return lambda arrays: form.pack(arrays)[0] if form.named else arrays[0]
    stored = list if holder is Holder.LIST else tuple
    if form.named and len(sent) == form.arrays:
        return lambda arrays: stored(form.pack(arrays))
    return stored


def _moved(slots: tuple[Any, ...], by: int) -> Any:
    """Return slots whose arrays are ``by`` places further on in the transfer."""
    return mapped(lambda slot: slot if isinstance(slot, Input) else slot + by, slots)


#: Whether the stage that is called belongs to a program that runs, and is not only tried.
is_running: Final = Scoped("running", False)


@dataclass(eq=False)
class Inputs:
    """The values of a program's ``inputs`` as they are now; a run may begin with others.

    Attributes:
        values: as they are.
        running: whether a program runs, and stages are not only tried.
        replicas: that run with them.
    """

    values: tuple[Array, ...]
    running: bool = False
    replicas: int = 1

    def carry(self, values: tuple[Array, ...]) -> None:
        """Go on with others in the next iteration of a loop; raises UnsupportedProgramError for several replicas."""
        same = all(np.array_equal(new, old) for new, old in zip(values, self.values, strict=True))
        if self.replicas > 1 and not same:
            raise UnsupportedProgramError("body: loop-carried tensors that change are not simulated in replicas")
        self.values = values


@dataclass(eq=False)
class StageCall:
    """One stage's function in a pipeline.

    Attributes:
        name: the stage's.
        function: as it was given.
        number: of the stage, concurrent ones counted each.
        names: of all the program's stages.
        takes: what the function is given, made of the arrays that come in; those of the first stage begin with the
            pipeline's inputs.
        inputs: of the pipeline. A stage that hands one on as it came sends nothing: every IPU has its value for a
            whole run, as it has that of a constant.
        is_last: whether what it returns leaves the pipeline, be it one of the inputs or not.
        gives: what the function returned the first time; None before.
        alone: whether that was one value by itself, and not in a tuple or list.
        outfeeds: the queues that the function sends to by itself.
    """

    name: str
    function: Callable[..., Any]
    number: int
    names: ProgramNames
    takes: Form
    inputs: Inputs
    is_last: bool
    gives: Form | None = None
    alone: bool = False
    outfeeds: StageOutfeeds = field(default_factory=StageOutfeeds)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the arrays that travel on; raises ModelError where they are others than the first time."""
        value = as_tensorflow_divides(self.takes.pack(arrays, self.inputs.values))
        running = self.inputs.running
        with self.names.stage(self.number), is_running.set_to(running), self.outfeeds.calling(running):
            returned = without_operations(self.function(*value))
        form, results = taken_apart(self.name, returned, {} if self.is_last else self._passed(value))
        if self.gives is None:
            self.gives, self.alone = form, returned is not None and not isinstance(returned, tuple | list)
        elif form != self.gives:
            raise ModelError(
                f"stage {self.name!r}: expected outputs of one structure in all micro-batches, got {_text(form)} after "
                f"{_text(self.gives)}"
            )
        return tuple(results)

    def _passed(self, values: Sequence[Any]) -> dict[int, int]:
        """Return the places of the pipeline's inputs by the identity of what the function is given for them."""
        if self.number == 0:
            return {id(value): index for index, value in enumerate(values[: len(self.inputs.values)])}
        slots = zip(values, self.takes.slots, strict=True)
        return {id(value): slot.index for value, slot in slots if isinstance(slot, Input)}


def _text(form: Form) -> str:
    """Return the structure as words."""

    def slot(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(value) + "}"
        return f"inputs[{value.index}]" if isinstance(value, Input) else "an array"

    return f"({', '.join(map(slot, form.slots))})"

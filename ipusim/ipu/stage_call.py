"""A stage's function as the core calls it, with arrays alone, and as the user wrote it, with all that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ipusim.errors import ModelError, UnsupportedProgramError
from ipusim.ipu.form import Form, Input, taken_apart, without_operations
from ipusim.ipu.names import ProgramNames
from ipusim.ipu.stage_outfeeds import StageOutfeeds
from ipusim.model.layers.layer import Array

#: Whether the stage that is called belongs to a program that runs, and is not only tried.
_RUNNING: Final[ContextVar[bool]] = ContextVar("running", default=False)


def is_running() -> bool:
    """Tell whether a stage is called by a program that runs, and not to see what it does."""
    return _RUNNING.get()


@contextmanager
def _said(running: bool) -> Iterator[None]:
    token = _RUNNING.set(running)
    try:
        yield
    finally:
        _RUNNING.reset(token)


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
        given = self.takes.pack(arrays, self.inputs.values)
        with self.names.stage(self.number), _said(self.inputs.running), self.outfeeds.calling(self.inputs.running):
            returned = without_operations(self.function(*given))
        form, results = taken_apart(self.name, returned, {} if self.is_last else self._passed(given))
        if self.gives is None:
            self.gives, self.alone = form, returned is not None and not isinstance(returned, tuple | list)
        elif form != self.gives:
            raise ModelError(
                f"stage {self.name!r}: expected outputs of one structure in all micro-batches, got {_text(form)} after "
                f"{_text(self.gives)}"
            )
        return tuple(results)

    def _passed(self, given: Sequence[Any]) -> dict[int, int]:
        """Return the places of the pipeline's inputs by the identity of what the function is given for them."""
        if self.number == 0:
            return {id(value): place for place, value in enumerate(given[: len(self.inputs.values)])}
        places = zip(given, self.takes.slots, strict=True)
        return {id(value): slot.place for value, slot in places if isinstance(slot, Input)}


def _text(form: Form) -> str:
    """Return the structure as words."""

    def slot(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(value) + "}"
        return f"inputs[{value.place}]" if isinstance(value, Input) else "an array"

    return f"({', '.join(map(slot, form.slots))})"

"""The micro-batches of a pipeline of functions: its inputs, and the elements of its infeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.arguments import Arguments
from ipusim.ipu.stage_call import Inputs
from ipusim.ipu.traced import as_tensor
from ipusim.model.layers.layer import Array


class Feed:
    """Micro-batches of the pipeline's inputs and the infeed's elements, which go on from run to run.

    Attributes:
        start: place in the infeed of element 0; the elements of a session's runs are counted on.
    """

    def __init__(self, arguments: Arguments, inputs: Inputs) -> None:
        """Begin at the infeed's first element, with ``inputs`` as they are."""
        self._inputs = inputs
        self._queue = arguments.infeed
        self.start = 0

    def element(self, index: int) -> tuple[tuple[Array, ...], None]:
        """Return the first stage's inputs of micro-batch ``index`` of all runs."""
        self._inputs.running = True
        if self._queue is None:
            return self._inputs.values, None
        return (*self._inputs.values, *self._queue.take(self.start + index)), None

    def replace_inputs(self, inputs: Sequence[Any]) -> None:
        """Take other values for the inputs.

        Raises ProgramError for another number or shape of them, ProgramTypeError where a value would have to be
        rounded to the input's dtype.
        """
        held = self._inputs.values
        if len(inputs) != len(held):
            raise ProgramError(f"inputs: expected {len(held)} values as in the pipeline's own, got {len(inputs)}")
        found = []
        for position, (value, before) in enumerate(zip(inputs, held, strict=True)):
            checks.numbers(f"inputs[{position}]", value)
            array = as_tensor(value)
            if array.shape != before.shape:
                raise ProgramError(
                    f"inputs[{position}]: expected shape {before.shape} as in the pipeline's own, got {array.shape}"
                )
            if not np.can_cast(array.dtype, before.dtype, "same_kind"):
                checks.wrong_type(f"inputs[{position}]", f"{before.dtype} as in the pipeline's own", value)
            found.append(array.astype(before.dtype))
        self._inputs.values = tuple(found)

    def go_on(self, first: int) -> None:
        """Begin a run where the queue is; its first micro-batch is number ``first`` of all runs."""
        self.start = self.consumed - first

    @property
    def consumed(self) -> int:
        """The elements of the infeed that have been read."""
        return 0 if self._queue is None else self._queue.consumed

    def go_to(self, index: int) -> None:
        """Go on with element ``index`` of the infeed; raises as IPUInfeedQueue.go_to does."""
        if self._queue is not None:
            self._queue.go_to(index)

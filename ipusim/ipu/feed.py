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
        start: elements of the infeed that earlier runs have taken.
    """

    def __init__(self, arguments: Arguments, inputs: Inputs) -> None:
        """Begin at the infeed's first element, with ``inputs`` as they are."""
        self._inputs = inputs
        self._queue = arguments.infeed
        self.start = 0

    def element(self, index: int) -> tuple[tuple[Array, ...], None]:
        """Return the first stage's inputs of micro-batch ``index`` of this run."""
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

    def go_on(self) -> None:
        """Begin a run where the queue is."""
        self.start = 0 if self._queue is None else self._queue.consumed

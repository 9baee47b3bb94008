"""A stage in which several layers use one parameter: of each micro-batch it hands out one gradient, the sum of theirs.

How gradients are accumulated, mapped and averaged is said of a variable's whole gradient of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ipusim.model.layers.layer import Array, Key, Parameters, Rest, Saved
from ipusim.model.stages.bound_stage import Passes, Receiver


class SummedStage:
    """Runs the passes of a stage, and sums up the gradients of what several of its layers use."""

    def __init__(self, passes: Passes, uses: Mapping[str, int]) -> None:
        """Take the stage's passes, and how many layers use each such parameter (``layer/W``)."""
        self._passes = passes
        self._uses = dict(uses)

    def forward(self, x: Any, labels: Array | None, key: Key | None = None) -> tuple[Any, Saved]:
        """Run the stage's forward pass."""
        return self._passes.forward(x, labels, key)

    def backward(
        self,
        saved: Saved,
        grad: Any,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Any:
        """Run the stage's backward pass; layers that add to ``totals`` themselves need no sum beside it."""
        return self._passes.backward(saved, grad, need_input_gradient, self._receiver(receive, totals), totals)

    def backward_input(self, saved: Saved, grad: Any, need_input_gradient: bool) -> tuple[Any, Rest]:
        """Run the first half."""
        return self._passes.backward_input(saved, grad, need_input_gradient)

    def backward_weights(self, rest: Rest, receive: Receiver, totals: Parameters | None = None) -> None:
        """Run the second half."""
        self._passes.backward_weights(rest, self._receiver(receive, totals), totals)

    def _receiver(self, receive: Receiver, totals: Parameters | None) -> Receiver:
        """Return a receiver of one micro-batch's gradients, which hands each on when its last use has come.

        With ``totals`` gradients are added as they are, one by one.
        """
        if totals is not None:
            return receive
        left, sums = dict(self._uses), dict[str, Array]()

        def take(name: str, gradient: Array) -> None:
            if name not in left:
                receive(name, gradient)
                return
            if name in sums:
                np.add(sums[name], gradient, out=sums[name])
            else:
                sums[name] = gradient
            left[name] -= 1
            if not left[name]:
                receive(name, sums.pop(name))

        return take

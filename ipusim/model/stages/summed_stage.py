"""Sum the gradients of parameters that several layers of a stage use.

Accumulation, mapping and averaging apply to a variable's whole gradient of a micro-batch, the sum over its uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ipusim.model.layers.layer import Array, Key, Parameters, Rest, Saved
from ipusim.model.stages.bound_stage import Passes, Receiver


class SummedStage:
    """Runs the passes of a stage, and sums the gradients of parameters used by several layers."""

    def __init__(self, passes: Passes, uses: Mapping[str, int]) -> None:
        """Store the stage's passes, and the numbers of layers using these parameters (``layer/W``)."""
        self._passes = passes
        self._uses = dict(uses)

    def forward(self, x: Any, labels: Array | None, key: Key | None = None) -> tuple[Any, Saved]:
        """Run the stage's forward pass."""
        return self._passes.forward(x, labels, key)

    def backward(
        self,
        saved_values: Saved,
        grad: Any,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Any:
        """Run the stage's backward pass; layers that add to ``totals`` directly need no separate sum."""
        return self._passes.backward(saved_values, grad, need_input_gradient, self._receiver(receive, totals), totals)

    def backward_input(self, saved_values: Saved, grad: Any, need_input_gradient: bool) -> tuple[Any, Rest]:
        """Run the first half."""
        return self._passes.backward_input(saved_values, grad, need_input_gradient)

    def backward_weights(self, rest_values: Rest, receive: Receiver, totals: Parameters | None = None) -> None:
        """Run the second half."""
        self._passes.backward_weights(rest_values, self._receiver(receive, totals), totals)

    def _receiver(self, receive: Receiver, totals: Parameters | None) -> Receiver:
        """Return a receiver of a micro-batch's gradients that passes on a sum after the last use.

        With ``totals``, each gradient is passed on at once, without a sum.
        """
        if totals is not None:
            return receive
        use_counts, sums = dict(self._uses), dict[str, Array]()

        def take(name: str, gradient: Array) -> None:
            if name not in use_counts:
                receive(name, gradient)
                return
            if name in sums:
                np.add(sums[name], gradient, out=sums[name])
            else:
                sums[name] = gradient
            use_counts[name] -= 1
            if not use_counts[name]:
                receive(name, sums.pop(name))

        return take

"""Run the backward passes of stages with checkpoints or skip connections, from the last part to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ipusim.model.layers.layer import Parameters, Rest, Saved
from ipusim.model.stages.bound_stage import BoundStage, Receiver


class InParts:
    """Runs the backward passes of a stage part by part."""

    def __init__(self, parts: Sequence[BoundStage], first_trained_part: int) -> None:
        """Store the parts in order, and the first part that learns."""
        self._parts = tuple(parts)
        self._first_trained_part = first_trained_part

    def _go_back(self, grad: Any, need_input_gradient: bool, run: Callable[[int, Any, bool], Any]) -> Any:
        """Call ``run(number, gradient, need_input_gradient)`` from the last part to the first."""
        lowest = 0 if need_input_gradient else self._first_trained_part
        for number in range(len(self._parts) - 1, lowest - 1, -1):
            grad = run(number, grad, need_input_gradient or number > lowest)
        return grad if need_input_gradient else None

    def _saved_of(self, saved_values: Saved, number: int) -> Saved:
        """Return the saved data for the backward pass of a part."""
        return saved_values[number]

    def backward(
        self,
        saved_values: Saved,
        grad: Any,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Any:
        """Run the parts' backward passes, starting with the last."""

        def run(number: int, grad: Any, needs_gradient: bool) -> Any:
            # No name refers to the activations: a part's are released before the next part's arrive.
            return self._parts[number].backward(
                self._saved_of(saved_values, number), grad, needs_gradient, receive, totals
            )

        return self._go_back(grad, need_input_gradient, run)

    def backward_input(
        self, saved_values: Saved, grad: Any, need_input_gradient: bool
    ) -> tuple[Any, list[tuple[int, Rest]]]:
        """Run the parts' first halves, starting with the last; the rests stay until the second halves."""
        part_rests: list[tuple[int, Rest]] = []

        def run(number: int, grad: Any, needs_gradient: bool) -> Any:
            grad, rest_values = self._parts[number].backward_input(
                self._saved_of(saved_values, number), grad, needs_gradient
            )
            part_rests.append((number, rest_values))
            return grad

        return self._go_back(grad, need_input_gradient, run), part_rests

    def backward_weights(
        self, part_rests: Iterable[tuple[int, Rest]], receive: Receiver, totals: Parameters | None = None
    ) -> None:
        """Run the parts' second halves, starting with the last."""
        for number, part_rest in part_rests:
            self._parts[number].backward_weights(part_rest, receive, totals)

"""A stage that computes its activations again inside its backward pass, from one checkpoint to the next.

The forward pass keeps the stage's input and the value at each checkpoint. The backward
pass goes through the clusters of layers between them from the last to the first, and
computes each again just before its gradients, so that the activations of one cluster
alone are there at a time (Graphcore's RecomputeAndBackpropagateInterleaved with
recomputation_checkpoint). In the pipeline's last stage, whose backward pass follows at
once, what lies behind the last checkpoint is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ipusim.model.layers.layer import Array, Key, Parameters, Rest, Saved
from ipusim.model.stages.bound_stage import BoundStage, Receiver


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """The saved values of a forward pass: the input of each cluster that runs again, labels, key.

    ``tail`` holds the activations of a last cluster that does not, until its backward pass begins.
    """

    inputs: tuple[Array, ...]
    labels: Array | None
    key: Key | None
    tail: list[Saved]


class CheckpointedStage:
    """Runs the passes of a stage cluster by cluster."""

    def __init__(self, clusters: Sequence[BoundStage], *, keeps_tail: bool, first_needed: int) -> None:
        """Take the clusters in order.

        ``keeps_tail`` is whether the last one is never computed again; ``first_needed`` is the first
        one with parameters in it, where the backward pass of a first stage ends.
        """
        self._clusters = tuple(clusters)
        self._keeps_tail = keeps_tail
        self._first_needed = first_needed

    def forward(
        self, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array | tuple[Array, Array], Saved]:
        """Run the clusters in order; keep the input of each."""
        *first, last = self._clusters
        inputs, y = [], x
        for cluster in first:
            inputs.append(y)
            made = cluster.forward(y, labels, key)[0]  # what it keeps is gone before the next one runs
            assert not isinstance(made, tuple)  # only the last cluster may hold a loss
            y = made
        if not self._keeps_tail:
            return last.forward(y, labels, key)[0], Checkpoints((*inputs, y), labels, key, [])
        output, tail = last.forward(y, labels, key)
        return output, Checkpoints(tuple(inputs), None, key, [tail])

    def backward(
        self,
        saved: Saved,
        grad: Array | None,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Array | None:
        """Compute each cluster again and run its backward pass, the last one first."""

        def run(number: int, grad: Array | None, needed: bool) -> Array | None:
            # Handed over without a name, so that one cluster's activations are gone when the next one's come.
            return self._clusters[number].backward(self._activations(saved, number), grad, needed, receive, totals)

        return self._go_back(grad, need_input_gradient, run)

    def backward_input(
        self, saved: Saved, grad: Array | None, need_input_gradient: bool
    ) -> tuple[Array | None, list[tuple[int, Rest]]]:
        """Compute each cluster again and run its first half; what the second halves need of all stays until then."""
        rests: list[tuple[int, Rest]] = []

        def run(number: int, grad: Array | None, needed: bool) -> Array | None:
            grad, rest = self._clusters[number].backward_input(self._activations(saved, number), grad, needed)
            rests.append((number, rest))
            return grad

        return self._go_back(grad, need_input_gradient, run), rests

    def backward_weights(
        self, rest: Iterable[tuple[int, Rest]], receive: Receiver, totals: Parameters | None = None
    ) -> None:
        """Run the clusters' second halves, the last one's first."""
        for number, left in rest:
            self._clusters[number].backward_weights(left, receive, totals)

    def _go_back(
        self, grad: Array | None, need_input_gradient: bool, run: Callable[[int, Array | None, bool], Array | None]
    ) -> Array | None:
        """Call ``run`` for each cluster from the last one: with its number, the gradient, and whether to return one."""
        lowest = 0 if need_input_gradient else self._first_needed
        for number in range(len(self._clusters) - 1, lowest - 1, -1):
            grad = run(number, grad, need_input_gradient or number > lowest)
        return grad

    def _activations(self, checkpoints: Checkpoints, number: int) -> Saved:
        """Return the activations of a cluster: of the tail those kept, of any other computed again."""
        if checkpoints.tail:
            return checkpoints.tail.pop()
        return self._clusters[number].forward(checkpoints.inputs[number], checkpoints.labels, checkpoints.key)[1]

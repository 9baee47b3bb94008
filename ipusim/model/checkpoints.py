"""A stage that computes its activations again inside its backward pass, from one checkpoint to the next.

The forward pass keeps the stage's input and the value at each checkpoint. The backward
pass goes through the clusters of layers between them from the last to the first, and
computes each again just before its gradients, so that the activations of one cluster
alone are there at a time (Graphcore's RecomputeAndBackpropagateInterleaved with
recomputation_checkpoint). In the pipeline's last stage, whose backward pass follows at
once, what lies behind the last checkpoint is kept as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.model.bound_stage import BoundStage, Receiver
from ipusim.model.layer import Array, Key, Parameters, Saved


@dataclass(frozen=True, eq=False)
class Kept:
    """What a forward pass keeps: the input of each cluster, labels, key, and the activations of a last one."""

    inputs: tuple[Array, ...]
    labels: Array | None
    key: Key | None
    tail: Saved


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
        inputs = []
        y: Array | tuple[Array, Array] = x
        saved: Saved = None
        for cluster in self._clusters:
            assert not isinstance(y, tuple)  # only the last cluster may hold a loss
            inputs.append(y)
            y, saved = cluster.forward(y, labels, key)
        return y, Kept(tuple(inputs), labels, key, saved if self._keeps_tail else None)

    def backward(
        self,
        saved: Saved,
        grad: Array | None,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Array | None:
        """Compute each cluster again and run its backward pass, the last one first."""
        lowest = 0 if need_input_gradient else self._first_needed
        last = len(self._clusters) - 1
        for number in range(last, lowest - 1, -1):
            cluster = self._clusters[number]
            if number == last and self._keeps_tail:
                kept = saved.tail
            else:
                _, kept = cluster.forward(saved.inputs[number], saved.labels, saved.key)
            grad = cluster.backward(kept, grad, need_input_gradient or number > lowest, receive, totals)
        return grad

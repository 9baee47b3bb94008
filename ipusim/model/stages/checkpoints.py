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

from ipusim.model.layers.layer import Array, Key, Saved
from ipusim.model.stages.bound_stage import BoundStage
from ipusim.model.stages.in_parts import InParts


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """The saved values of a forward pass: the input of each cluster that runs again, labels, key.

    ``tail`` holds the activations of a last cluster that does not, until its backward pass begins.
    """

    inputs: tuple[Array, ...]
    labels: Array | None
    key: Key | None
    tail: list[Saved]


class CheckpointedStage(InParts):
    """Runs the passes of a stage cluster by cluster, each of which its backward pass computes again."""

    def __init__(self, clusters: Sequence[BoundStage], *, keeps_tail: bool, first_needed: int) -> None:
        """Take the clusters in order.

        ``keeps_tail`` is whether the last one is never computed again; ``first_needed`` is the first
        one with parameters in it, where the backward pass of a first stage ends.
        """
        super().__init__(clusters, first_needed)
        self._keeps_tail = keeps_tail

    def forward(
        self, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array | tuple[Array, Array], Saved]:
        """Run the clusters in order; keep the input of each."""
        *first, last = self._parts
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

    def _saved_of(self, saved: Checkpoints, number: int) -> Saved:
        """Return the activations of a cluster: of the tail those kept, of any other computed again."""
        if saved.tail:
            return saved.tail.pop()
        return self._parts[number].forward(saved.inputs[number], saved.labels, saved.key)[1]

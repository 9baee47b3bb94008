"""Recompute a stage's activations inside the backward pass, from checkpoint to checkpoint.

The forward pass keeps the stage's input and the value at every checkpoint. The layers between two checkpoints are a
cluster. The backward pass visits the clusters from last to first, and recomputes a cluster just before its gradients.
Only the activations of a single cluster are live at a time (Graphcore's RecomputeAndBackpropagateInterleaved with
recomputation_checkpoint). In the pipeline's last stage the backward pass follows immediately, and activations after
the last checkpoint are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.model.layers.layer import Array, Key, Saved
from ipusim.model.stages.bound_stage import BoundStage
from ipusim.model.stages.in_parts import InParts


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Saved values of a forward pass: inputs of recomputed clusters, labels, key.

    ``tail`` contains the activations of a final cluster without recomputation, until its backward pass begins.
    """

    inputs: tuple[Array, ...]
    labels: Array | None
    key: Key | None
    tail: list[Saved]


class CheckpointedStage(InParts):
    """Runs the passes of a stage cluster by cluster, with recomputation in the backward pass."""

    def __init__(self, clusters: Sequence[BoundStage], *, keeps_tail: bool, first_trained_part: int) -> None:
        """Store the clusters in order.

        ``keeps_tail`` tells whether the activations of the last cluster are kept, not recomputed.
        ``first_trained_part`` is the index of the first cluster that learns; the backward pass ends there if no earlier
        stage learns.
        """
        super().__init__(clusters, first_trained_part)
        self._keeps_tail = keeps_tail

    def forward(
        self, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array | tuple[Array, Array], Saved]:
        """Run the clusters in order; keep their inputs."""
        *first, last = self._parts
        inputs, y = [], x
        for cluster in first:
            inputs.append(y)
            result = cluster.forward(y, labels, key)[0]  # saved data is released before the next cluster runs
            assert not isinstance(result, tuple)  # only the last cluster may contain a loss
            y = result
        if not self._keeps_tail:
            return last.forward(y, labels, key)[0], Checkpoints((*inputs, y), labels, key, [])
        output, tail = last.forward(y, labels, key)
        return output, Checkpoints(tuple(inputs), None, key, [tail])

    def _saved_of(self, checkpoints: Checkpoints, number: int) -> Saved:
        """Return a cluster's activations: kept for the last cluster, which is asked first; recomputed for others."""
        if checkpoints.tail:
            return checkpoints.tail.pop()
        return self._parts[number].forward(checkpoints.inputs[number], checkpoints.labels, checkpoints.key)[1]

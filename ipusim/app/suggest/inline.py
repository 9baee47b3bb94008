"""Tables of recomputation inside backward passes: repeated cycles, kept bytes and recomputed bytes of every stage.

With checkpoints a backward pass repeats the layers from checkpoint to checkpoint, the last part first. The pipeline's
last stage repeats only layers before its last checkpoint, and keeps the activations after the checkpoint (see
:mod:`ipusim.model.stages.checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ipusim.api import models
from ipusim.app.suggest.tables import Table, maxima


@dataclass(frozen=True, eq=False)
class Inline:
    """Recomputation inside the backward pass of each stage, by first unit and unit after the last.

    Tables have shape (2, units + 1, units + 1): stages before the last, and the last stage.

    Attributes:
        recomputes: whether a stage recomputes.
        cycles: cycles of repeated forward passes.
        kept_bytes: lower bound on bytes of a micro-batch kept for the backward pass.
        recomputed_bytes: lower bound on bytes of activations that are recomputed together.
    """

    recomputes: npt.NDArray[np.bool_]
    cycles: Table
    kept_bytes: Table
    recomputed_bytes: Table


def inline_of(
    profiles: Sequence[models.StageProfile],
    forward: Table,
    stash: Table,
    first_trained: int,
    checkpoints: Sequence[int],
) -> Inline:
    """Return the tables of recomputation inside backward passes.

    Args:
        profiles: profile of each unit as a separate stage.
        forward: cycles of the forward pass of each stage.
        stash: lower bound on the stash of each stage.
        first_trained: first unit with weights that learn.
        checkpoints: units that begin after a checkpoint.
    """
    size = len(profiles) + 1
    has_backward = maxima([profile.has_backward for profile in profiles]) > 0
    input_bytes = np.array([*(profile.input_bytes for profile in profiles), 0])
    # Without checkpoints a stage keeps its input and repeats its forward pass; the last stage keeps all.
    kept_bytes = np.stack([np.broadcast_to(input_bytes[:, None], stash.shape), stash]) * has_backward
    result = Inline(
        np.stack([has_backward, np.zeros_like(has_backward)]),
        np.stack([forward * has_backward, np.zeros_like(forward)]),
        kept_bytes,
        np.stack([stash * has_backward, np.zeros_like(stash)]),
    )
    values = np.array([0, *(profile.activation_bytes for profile in profiles)])  # bytes of each unit's input
    for start in range(size - 1):
        inner = [unit for unit in checkpoints if unit > start]
        begins = np.array([start, *inner])
        first = int(np.searchsorted(begins, first_trained, side="right")) - 1 if start <= first_trained else 0
        parts = np.array([stash[begin, end] for begin, end in zip(begins[first:], inner[first:], strict=False)])
        largest = np.concatenate([np.zeros(first + 1), np.maximum.accumulate(parts, dtype=np.int64)]).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(values[begins[1:]])])
        ends = np.arange(int(begins[1]) + 1, size) if inner else np.arange(0)
        ends = ends[has_backward[start, ends]]
        last = np.searchsorted(begins, ends, side="left") - 1  # number of the last part
        tail, begin = stash[begins[last], ends], begins[min(first, len(begins) - 1)]
        unlabelled = input_bytes[start] - profiles[0].label_bytes
        result.recomputes[:, start, ends] = True
        result.cycles[:, start, ends] = forward[begin, ends], forward[begin, np.maximum(begins[last], begin)]
        result.kept_bytes[:, start, ends] = (
            input_bytes[start] + sums[last],
            np.maximum(unlabelled, 0) + sums[last - 1] + tail,
        )
        result.recomputed_bytes[:, start, ends] = (
            np.maximum(largest[last], tail),
            np.maximum(largest[last] - tail, 0),
        )
    return result

"""Compute the memory of every IPU under given words (sequences of IPUs' passes).

The bytes equal the bytes of the words' Plan, except for tensors waiting for their receiver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ipusim.api import Job, pipelines
from ipusim.app.synthesize.tasks import BAR, Tasks

#: Change of the half micro-batches held by an IPU, by kind of pass.
_STASH_CHANGES: Final[Mapping[int, int]] = {
    pipelines.Pass.FORWARD: 2,
    pipelines.Pass.BACKWARD: -2,
    pipelines.Pass.INPUT_GRADIENT: -1,
    pipelines.Pass.WEIGHT_GRADIENT: -1,
    pipelines.Pass.RECOMPUTE: 0,
}


@dataclass(frozen=True)
class Limits:
    """Memory limits of a search.

    Attributes:
        sizes: maximum bytes by IPU; empty if only the machine limits memory.
        micro_batches: maximum number of micro-batches held by an IPU, see :func:`held_micro_batches`; None for no
            limit.
    """

    sizes: Mapping[int, int]
    micro_batches: int | None = None


@dataclass(frozen=True, eq=False)
class Memory:
    """Memory of IPUs, as a function of words.

    Attributes:
        tasks: letters of the words.
        stages: bytes of a micro-batch in each stage.
        base: bytes of each word's IPU, independent of the order of passes.
        limits: maximum bytes of each word's IPU; None if unlimited.
        micro_batches: maximum number of micro-batches per IPU; None for no limit.
    """

    tasks: Tasks
    stages: Sequence[pipelines.StageFootprint]
    base: Sequence[int]
    limits: Sequence[int | None]
    micro_batches: int | None = None

    def fits(self, word: int, letters: Sequence[int]) -> bool:
        """Tell whether an IPU has enough memory for its word."""
        limit = self.limits[word]
        if self.micro_batches is not None:
            passes = [self.tasks.passes[letter] for letter in letters if letter != BAR]
            if held_micro_batches(passes) > self.micro_batches:
                return False
        return limit is None or self.peak(word, letters) <= limit

    def peak(self, word: int, letters: Sequence[int]) -> int:
        """Return the peak bytes of an IPU that runs ``letters``."""
        kinds, stages = np.array([self.tasks.passes[letter] for letter in letters if letter != BAR]).T
        live, fifos = np.zeros_like(kinds), 0
        for stage in np.unique(stages).tolist():
            mask = stages == stage
            counts = pipelines.alive(self.stages[stage], kinds[mask]).stash
            # The FIFO holds all stashed micro-batches except the micro-batch in use.
            sizes = replace(self.stages[stage], fifo_depth=max(int(counts.at_end.max()) - 1, 0))
            live += pipelines.spread_levels(pipelines.stage_levels(sizes, kinds[mask]).live, mask).during
            fifos += sizes.fifo_depth * sizes.kept_bytes
        return self.base[word] + fifos + int(live.max())


def memory_of(job: Job, tasks: Tasks, limits: Limits) -> Memory:
    """Return the memory of a Job's IPUs, for words of its passes.

    Args:
        job: Job of a Plan with the same passes, in any order.
        tasks: letters of these passes.
        limits: limits of memory.
    """
    footprint = job.memory.footprint
    base = {
        ipu_footprint.ipu: ipu_footprint.resident_bytes - ipu_footprint.assumed_bytes
        for ipu_footprint in footprint.ipus
    }
    for stage in footprint.stages:
        base[stage.ipus[0]] -= stage.fifo_bytes
    sizes = [limits.sizes.get(ipu) for ipu in tasks.ipus]
    return Memory(tasks, footprint.stages, [base[ipu] for ipu in tasks.ipus], sizes, limits.micro_batches)


def held_micro_batches(passes: Iterable[tuple[int, int]], segments: int = 1) -> float:
    """Return the maximum number of micro-batches that an IPU holds at once.

    A micro-batch counts fully until the end of its backward pass or input-gradient half, and then half until the end of
    its weight-gradient half (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024). On an IPU with several stages,
    each stage counts as a fraction.

    Args:
        passes: kind and stage of every pass of an IPU, in order.
        segments: number of segments per micro-batch.
    """
    halves_held = most_halves = 0
    stages = set()
    for kind, stage in passes:
        stages.add(stage)
        halves_held += _STASH_CHANGES[kind]
        most_halves = max(most_halves, halves_held)
    return most_halves / (2 * max(1, len(stages)) * segments)

"""What words hold of each IPU's memory: to the byte what a Plan of them does, but for tensors that wait to be taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ipusim.api import Job, pipelines
from ipusim.app.synthesize.tasks import BAR, Tasks

#: Halves of a micro-batch that an IPU holds more from a pass on.
_HALVES: Final[Mapping[int, int]] = {
    pipelines.Pass.FORWARD: 2,
    pipelines.Pass.BACKWARD: -2,
    pipelines.Pass.INPUT_GRADIENT: -1,
    pipelines.Pass.WEIGHT_GRADIENT: -1,
    pipelines.Pass.RECOMPUTE: 0,
}


@dataclass(frozen=True)
class Limits:
    """The limits of memory that a search keeps.

    Attributes:
        sizes: the most bytes of IPUs, by their numbers; none where there is no limit but the machine's.
        micro_batches: the most whose activations an IPU holds, by :func:`held_by`; None for no limit.
    """

    sizes: Mapping[int, int]
    micro_batches: int | None = None


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory of the IPUs of some words.

    Attributes:
        tasks: what the words are of.
        stages: what each stage holds of a micro-batch.
        base: bytes of each word's IPU that no order of its passes changes.
        limits: the most bytes of each word's IPU; None where there is no limit.
        micro_batches: the most of each IPU; None for no limit.
    """

    tasks: Tasks
    stages: Sequence[pipelines.StageFootprint]
    base: Sequence[int]
    limits: Sequence[int | None]
    micro_batches: int | None = None

    def fits(self, word: int, letters: Sequence[int]) -> bool:
        """Whether an IPU holds what its word needs."""
        limit = self.limits[word]
        if self.micro_batches is not None:
            passes = [self.tasks.passes[letter] for letter in letters if letter != BAR]
            if held_by(passes) > self.micro_batches:
                return False
        return limit is None or self.peak(word, letters) <= limit

    def peak(self, word: int, letters: Sequence[int]) -> int:
        """Return the most bytes that an IPU holds while it runs ``letters``."""
        kinds = pipelines.Pass
        passes = [self.tasks.passes[letter] for letter in letters if letter != BAR]
        level = dict.fromkeys((stage for _, stage in passes), 0)
        depth = dict(level)
        for kind, stage in passes:
            if kind == kinds.FORWARD:
                level[stage] += 1
                depth[stage] = max(depth[stage], level[stage] - 1)
            elif kind != kinds.WEIGHT_GRADIENT:
                level[stage] -= 1
        fifos = sum(depth[stage] * self.stages[stage].saved for stage in level)
        level = dict.fromkeys(level, 0)
        alive = most = 0  # beside the running pass: outside of FIFOs, and between the halves
        for kind, stage in passes:
            of = self.stages[stage]
            full = level[stage] > depth[stage]
            if kind == kinds.FORWARD:
                level[stage] += 1
                most = max(most, alive + of.saved + of.forward)
                alive += of.saved * (level[stage] > depth[stage])
            elif kind == kinds.WEIGHT_GRADIENT:
                most = max(most, alive + of.weight_half)
                alive -= of.rest
            else:
                halved = kind == kinds.INPUT_GRADIENT
                level[stage] -= 1
                alive -= of.saved * full
                most = max(most, alive + of.saved + (of.input_half if halved else of.backward))
                alive += of.rest * halved
        return self.base[word] + fifos + most


def memory_of(job: Job, tasks: Tasks, limits: Limits) -> Memory:
    """Return the memory of a Job's IPUs, for words of its passes.

    Args:
        job: a Plan of the same passes, in whichever order.
        tasks: these.
        limits: what they may hold.
    """
    footprint = job.memory.footprint
    base = {of_ipu.ipu: of_ipu.resident_bytes - of_ipu.assumed_bytes for of_ipu in footprint.ipus}
    for stage in footprint.stages:
        base[stage.ipus[0]] -= stage.fifo_bytes
    sizes = [limits.sizes.get(ipu) for ipu in tasks.ipus]
    return Memory(tasks, footprint.stages, [base[ipu] for ipu in tasks.ipus], sizes, limits.micro_batches)


def held_by(passes: Iterable[tuple[int, int]], segments: int = 1) -> float:
    """Return the most micro-batches that an IPU holds at once.

    A micro-batch counts as a whole until its backward pass or the half for the input has ended, and as one half from
    there to the end of the half for the weights (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024). Of an IPU
    with several stages each counts in part.

    Args:
        passes: kind and stage of each pass of an IPU, in order.
        segments: into which a micro-batch is split.
    """
    held = most = 0
    stages = set()
    for kind, stage in passes:
        stages.add(stage)
        held += _HALVES[kind]
        most = max(most, held)
    return most / (2 * max(1, len(stages)) * segments)

"""What words hold of each IPU's memory: to the byte what a Plan of them does, but for tensors that wait to be taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ipusim.api import Job, pipelines
from ipusim.app.synthesize.tasks import BAR, Tasks


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory of the IPUs of some words.

    Attributes:
        tasks: what the words are of.
        stages: what each stage holds of a micro-batch.
        base: bytes of each word's IPU that no order of its passes changes.
        limits: the most bytes of each word's IPU; None where there is no limit.
    """

    tasks: Tasks
    stages: Sequence[pipelines.StageFootprint]
    base: Sequence[int]
    limits: Sequence[int | None]

    def fits(self, word: int, letters: Sequence[int]) -> bool:
        """Whether an IPU holds what its word needs."""
        limit = self.limits[word]
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


def memory_of(job: Job, tasks: Tasks, limits: Mapping[int, int]) -> Memory:
    """Return the memory of a Job's IPUs, for words of its passes.

    Args:
        job: a Plan of the same passes, in whichever order.
        tasks: these.
        limits: the most bytes of IPUs, by their numbers; none where there is no limit.
    """
    footprint = job.memory.footprint
    base = {of_ipu.ipu: of_ipu.resident_bytes - of_ipu.assumed_bytes for of_ipu in footprint.ipus}
    for stage in footprint.stages:
        base[stage.ipus[0]] -= stage.fifo_bytes
    return Memory(tasks, footprint.stages, [base[ipu] for ipu in tasks.ipus], [limits.get(ipu) for ipu in tasks.ipus])

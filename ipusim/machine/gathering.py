"""Where replicas put together what each of them stores a part of: all-gathers before passes and weight updates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from ipusim.hardware.collectives.choose import fastest
from ipusim.hardware.collectives.cost import CollectiveCost
from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.recorder import Description, Recorder

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Gather:
    """An all-gather of one IPU of a replica with its likes in the others.

    Attributes:
        algorithm: a name of :data:`ipusim.hardware.collectives.choose.ALGORITHMS`.
        cost: of it and those that run at the same time.
        bytes: what each replica holds behind it.
    """

    algorithm: str
    cost: CollectiveCost
    bytes: int


def weight_gathers(program: PipelineProgram, system: System) -> dict[int, Gather]:
    """Return the all-gather before each pass of each stage whose weights are spread over the replicas.

    Each is priced as if it had the links for itself (assumed).
    """
    if not program.offload.weights:
        return {}
    found = {}
    for stage, profile in enumerate(program.stages):
        if profile.parameter_bytes:
            place = program.shape.mapping[stage]
            group = range(place, system.count, system.shards)
            plans, cost = fastest("all_gather", system, [group], [profile.parameter_bytes], 1)
            found[stage] = Gather(plans[0].algorithm, cost, profile.parameter_bytes)
    return found


def update_gathers(plan: Plan, program: PipelineProgram, system: System) -> dict[int, Gather]:
    """Return the all-gather of each place's weights and optimizer state before a weight update, all at once."""
    offload = program.offload
    if not plan.shape.training or offload.replicas == 1:
        return {}
    held = dict.fromkeys(plan.ipus, 0)
    for place, profile in zip(plan.shape.mapping, program.stages, strict=True):
        held[place] += offload.gathered_bytes(profile)
    held = {place: size for place, size in held.items() if size}
    if not held:
        return {}
    groups = [range(place, system.count, system.shards) for place in held]
    plans, cost = fastest("all_gather", system, groups, list(held.values()), 1)
    return {place: Gather(plans[0].algorithm, cost, size) for place, size in held.items()}


class Gathering:
    """One place of the pipeline in all replicas: where its IPUs meet for an all-gather."""

    def __init__(
        self,
        env: simpy.Environment,
        recorder: Recorder,
        *,
        ipus: Sequence[int],
        passes: dict[int, Gather],
        update: Gather | None,
        gather: Callable[[int | None], object],
    ) -> None:
        """Prepare for ``ipus``, the logical IPUs of the place in the order of the replicas.

        ``passes`` are the all-gathers by stage, ``update`` the one before weight updates; ``gather``
        does the arithmetic, for a stage or (None) for the update.
        """
        self._env = env
        self._record = recorder.record
        self._ipus = tuple(ipus)
        self._passes, self._update = passes, update
        self._gather = gather
        self._arrived: dict[int, int] = {}
        self._done = env.event()
        sizes = {each.bytes for each in passes.values()} | ({update.bytes} if update else set())
        self._what = {
            (ipu, size): recorder.describe(Description(SpanKind.ALL_GATHER, ipu, bytes=size, replica=replica))
            for replica, ipu in enumerate(ipus)
            for size in sorted(sizes)
        }
        self._wait = {
            ipu: recorder.describe(Description(SpanKind.SYNC_WAIT, ipu, replica=replica))
            for replica, ipu in enumerate(ipus)
        }
        self._since: dict[int, int] = {}

    def wanted(self, stage: int | None) -> bool:
        """Whether anything is put together before a pass of ``stage``, or (None) before a weight update."""
        return self._update is not None if stage is None else stage in self._passes

    def arrive(self, ipu: int, stage: int | None, step: int, cause: int) -> simpy.Event:
        """Note that ``ipu`` needs the weights of ``stage``, or (None) those and the state of its weight update.

        Returns the event of their being there; its value is a mapping of each IPU to the span behind it.
        """
        done = self._done
        self._arrived[ipu] = cause
        self._since[ipu] = self._now()
        if len(self._arrived) == len(self._ipus):
            self._env.process(self._put_together(stage, step))
        return done

    def missing(self, ipu: int) -> list[int]:
        """Return the IPUs that ``ipu``, which has arrived, waits for; none where it has not arrived."""
        return [other for other in self._ipus if other not in self._arrived] if ipu in self._arrived else []

    def _now(self) -> int:
        return self._env.now  # type: ignore[return-value]  # every timeout is a whole number of cycles

    def _put_together(self, stage: int | None, step: int) -> Process:
        """Synchronise, carry out every round, and release the IPUs; a SimPy process."""
        found = self._update if stage is None else self._passes[stage]
        assert found is not None
        start, causes = self._now(), dict(self._arrived)
        for ipu, since in self._since.items():
            if since < start:
                causes[ipu] = self._record(self._wait[ipu], step, since, start, causes[ipu])
        self._arrived.clear()
        self._since.clear()
        yield self._env.timeout(found.cost.total_cycles)
        self._gather(stage)
        spans = {
            ipu: self._record(self._what[ipu, found.bytes], step, start, self._now(), causes[ipu]) for ipu in self._ipus
        }
        done, self._done = self._done, self._env.event()
        done.succeed(spans)

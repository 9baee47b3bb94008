"""Variables that each replica stores a part of: put together by an all-gather, and let go of again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.collectives.run import run
from ipusim.hardware.system import System
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.offload import Offload

Array = npt.NDArray[Any]


class Shards:
    """The parts of all replicas' variables.

    Between uses a replica keeps its own part alone: the rest of each array is not a
    number, so that a pass without its all-gather gives no number either.
    """

    def __init__(
        self, executors: Sequence[NumpyExecutor], places: Iterable[int], system: System, offload: Offload
    ) -> None:
        """Let go of all but each replica's own part of what ``offload`` spreads over them."""
        self._executors = tuple(executors)
        self._places = tuple(places)
        self._system = system
        self._offload = offload
        self._plans: dict[tuple[int, int, int, str], Collective] = {}
        self._let_go_of_all()

    def gather(self, place: int, stage: int | None, algorithm: str) -> None:
        """Put together the weights of ``stage`` on ``place``, or (None) all that its weight update needs."""
        held = [self._arrays(executor, place, stage) for executor in self._executors]
        for arrays in zip(*held, strict=True):
            plan = self._plan(place, arrays[0], algorithm)
            parts = [array.flat[plan.chunk_of(rank)] for rank, array in enumerate(arrays)]
            for array, whole in zip(arrays, run(plan, parts), strict=True):
                array[...] = whole.reshape(array.shape)

    def let_go(self, replica: int, place: int, stage: int | None) -> None:
        """Keep the part of one replica alone."""
        for array in self._arrays(self._executors[replica], place, stage):
            own = self._plan(place, array, "ring").chunk_of(replica)
            kept = array.flat[own]  # a copy
            array[...] = np.nan
            array.flat[own] = kept  # whatever the order of the array in memory, where reshape may write into a copy

    @contextmanager
    def all_gathered(self) -> Iterator[None]:
        """Have everything put together inside the block, outside of simulated time."""
        for place in self._places:
            self.gather(place, None, "ring")
        try:
            yield
        finally:
            self._let_go_of_all()

    def _let_go_of_all(self) -> None:
        """Keep each replica's own parts alone."""
        for place in self._places:
            for replica in range(len(self._executors)):
                self.let_go(replica, place, None)

    def _plan(self, place: int, array: Array, algorithm: str) -> Collective:
        key = (place, array.size, array.itemsize, algorithm)
        if key not in self._plans:  # a ring is found by comparing routes, which is longer than what it gathers takes
            group = range(place, self._system.count, self._system.shards)
            self._plans[key] = ALGORITHMS["all_gather"][algorithm](self._system, group, array.size, array.itemsize)
        return self._plans[key]

    def _arrays(self, executor: NumpyExecutor, place: int, stage: int | None) -> list[Array]:
        """Return what is spread over the replicas of a stage's weights, or (None) of a place's weights and state."""
        if stage is not None:
            return list(executor.variables(place, stage).values())
        found = []
        for each in executor.stages_of(place):
            if self._offload.weights:
                found += list(executor.variables(place, each).values())
            if self._offload.sharded_state:
                state = executor.state(place, each).values()
                found += [array for array in state if array.ndim and array.nbytes >= self._offload.least_bytes]
        return found

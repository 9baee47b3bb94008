"""The seam between time and arithmetic: what an IPU process calls when something happens to a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from ipusim.pipeline.order import Edge


class Executor(Protocol):
    """The arithmetic of one replica, called by the machine's processes at the simulated moment of each event.

    ``ipu`` is the logical IPU within the replica, ``stage`` and ``micro_batch`` count from 0 within one execution.
    """

    def begin(self, execution: int) -> None:
        """Begin an execution of the pipeline: accumulators are zero, no tensor is in flight."""

    def infeed(self, ipu: int, micro_batch: int) -> None:
        """Take the next element of the infeed onto ``ipu`` as ``micro_batch``."""

    def run(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run one pass, of a kind of Pass; raises MissingTensorError if ``ipu`` does not hold what it needs.

        A backward pass runs whole, or in its halves: INPUT_GRADIENT makes what goes back to the stage
        before, WEIGHT_GRADIENT adds to the accumulators, at any time later within the execution.
        """

    def copy(self, edges: Sequence[Edge]) -> None:
        """Move every tensor made since the last copy along these edges, within an IPU or across."""

    def deliver(self, ipu: int, step: int, micro_batch: int) -> None:
        """Move what ``ipu`` has made in a step of a micro-batch's life to where the next step runs."""

    def move(self, ipu: int, there: int, stage: int, micro_batch: int, way: int) -> None:
        """Move what a stage on ``ipu`` keeps of a micro-batch out to IPU ``there``, or back, as ``way`` says.

        Streaming Memory beside an IPU counts as ``there``, too.
        """

    def outfeed(self, micro_batch: int) -> None:
        """Hand the results of ``micro_batch`` to the host."""

    def outfeed_total(self) -> None:
        """Hand the sum of an execution's results to the host, where they are accumulated."""

    def update(self, ipu: int) -> None:
        """Apply the accumulated gradients to the weights of the stages on ``ipu``."""


class NullExecutor:
    """Time without arithmetic: every call does nothing."""

    def begin(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    infeed = run = copy = deliver = move = outfeed = outfeed_total = update = begin


@dataclass(frozen=True)
class Replicas:
    """The arithmetic of all replicas.

    Attributes:
        executors: one for each replica, in order.
        begin: called before a run, which may follow one that has failed.
        sum_copies: called when the copies of each stage have summed up their gradients, before replicas do.
        reduce: called when the replicas have summed up their gradients, before each weight update.
        sum_over_hosts: called behind that with the cycle in which this host is ready, where there are several; sums
            up over them and returns the cycle in which the last of them is.
        gather: called with a place of the pipeline, a stage or (before a weight update) None, and the name
            of the algorithm, when the replicas have put together the variables that it needs.
        updates_together: whether ``gather`` carries out the arithmetic of weight updates that replicas share.
        release: called with a replica, a place and a stage or None when it needs them no more.
        all_gathered: returns a block in which all variables are put together, outside of simulated time, for the host.
    """

    executors: tuple[Executor, ...]
    begin: Callable[[], object] = lambda: None
    sum_copies: Callable[[], object] = lambda: None
    reduce: Callable[[], object] = lambda: None
    sum_over_hosts: Callable[[int], int] = lambda ready: ready
    gather: Callable[[int, int | None, str], object] = lambda shard, stage, algorithm: None  # noqa: ARG005
    updates_together: bool = False
    release: Callable[[int, int, int | None], object] = lambda replica, shard, stage: None  # noqa: ARG005
    all_gathered: Callable[[], AbstractContextManager[object]] = nullcontext

    def update(self, ipus: Iterable[int]) -> None:
        """Update the weights of all stages on these IPUs of each replica."""
        for executor in self.executors:
            for ipu in ipus:
                executor.update(ipu)

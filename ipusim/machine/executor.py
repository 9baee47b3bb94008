"""Define the interface to a replica's arithmetic, which IPU processes call at every tensor event.

:class:`~ipusim.machine.numpy_executor.NumpyExecutor` computes with NumPy; :class:`NullExecutor` does nothing, for runs
that only simulate time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from ipusim.pipeline.order import Edge


class Executor(Protocol):
    """The arithmetic of a replica, called at the simulated time of every event.

    ``ipu`` is a logical IPU within the replica; ``stage`` and ``micro_batch`` count from 0 within an execution.
    """

    def begin(self, execution: int) -> None:
        """Begin a pipeline execution: set accumulators to zero, and drop tensors of the last execution."""

    def infeed(self, ipu: int, micro_batch: int) -> None:
        """Copy the next element of the infeed onto ``ipu`` as ``micro_batch``."""

    def run(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run a pass; ``kind`` is a :class:`~ipusim.pipeline.ops.Pass`.

        A backward pass runs whole, or split: INPUT_GRADIENT computes the gradient for the previous stage, and
        WEIGHT_GRADIENT adds to the accumulators, at any later time within the execution.

        Raises MissingTensorError if ``ipu`` lacks an input.
        """

    def copy(self, edges: Sequence[Edge]) -> None:
        """Move every tensor computed since the last copy along ``edges``, to the same IPU or to another IPU."""

    def deliver(self, ipu: int, step: int, micro_batch: int) -> None:
        """Move the output of a micro-batch's pass number ``step`` to the IPU of the micro-batch's next pass."""

    def move(self, ipu: int, target_ipu: int, stage: int, micro_batch: int, way: int) -> None:
        """Move a stage's saved activations from ``ipu`` to ``target_ipu``, or back if ``way`` is ``Way.BACK``.

        Equal IPUs mean a move to Streaming Memory.
        """

    def outfeed(self, micro_batch: int) -> None:
        """Hand the results of ``micro_batch`` to the host."""

    def outfeed_total(self) -> None:
        """Hand an execution's accumulated results to the host."""

    def update(self, ipu: int) -> None:
        """Apply accumulated gradients to the weights of the stages on ``ipu``."""


class NullExecutor:
    """Executor of a timing-only run: every call does nothing."""

    def begin(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    infeed = run = copy = deliver = move = outfeed = outfeed_total = update = begin


@dataclass(frozen=True)
class Replicas:
    """The arithmetic of the replicas.

    Attributes:
        executors: an executor per replica, in order.
        begin: callback before a run, possibly after a failed run.
        sum_copies: callback after copies of a stage have summed their gradients, before the sum over replicas.
        reduce: callback after replicas have summed their gradients, before the weight update.
        sum_over_hosts: callback after ``reduce``, in runs of several hosts. It takes the cycle in which this host
            arrives, sums over hosts, and returns the cycle in which the last host arrives.
        gather: callback after an all-gather of variables, with the shard (IPU within the replica), the stage (None
            before a weight update) and the algorithm's name.
        updates_together: whether ``gather`` carries out the arithmetic of weight updates that replicas share.
        release: callback with replica, shard and stage (or None) after the last use of gathered variables.
        all_gathered: context manager with every variable gathered for the host, outside simulated time.
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
        """Update the weights of every stage on these IPUs, per replica."""
        for executor in self.executors:
            for ipu in ipus:
                executor.update(ipu)

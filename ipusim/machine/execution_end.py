"""The end of an execution of the pipeline, where all IPUs meet: executions never overlap."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.machine.context import Context
from ipusim.machine.meeting import Meeting
from ipusim.pipeline.instructions import Code


class ExecutionEnd(Meeting):
    """Where the IPUs of some replicas meet, before the next execution begins."""

    what = "the end of the execution"

    def __init__(self, context: Context, replicas: Sequence[int]) -> None:
        """Begin the first execution of these replicas."""
        super().__init__(context.clock, context.recorder, context.ipus(replicas))
        self.handlers = {Code.END: self._come}
        self._context, self._replicas = context, replicas
        self._ended = 0
        self._begin()

    def _begin(self) -> None:
        for replica in self._replicas:
            self._context.executor(replica).begin(self._ended)

    def _meet(self, cause: int) -> None:
        self._ended += 1
        self._record_waits(self._ended * self._context.steps - 1)
        if not self._replicas[0]:
            self._context.ended(self._ended)
        if self._ended < self._context.executions:
            self._begin()
        self._release(cause)


def build(context: Context) -> list[ExecutionEnd]:
    """Return where IPUs meet at the end of an execution, in the same groups as after time-steps."""
    return [ExecutionEnd(context, replicas) for replicas in context.groups]

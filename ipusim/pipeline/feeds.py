"""The infeed and the outfeed of a pipeline: how large their elements are, and which results are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OutfeedMode = Literal["ALL", "LAST"]


@dataclass(frozen=True)
class Infeed:
    """The queue that feeds the first stage.

    Attributes:
        element_bytes: bytes of one micro-batch, labels included.
        prefetch_depth: elements that the host keeps ready near the IPU (Graphcore's default is 3).
    """

    element_bytes: int = 0
    prefetch_depth: int = 3


@dataclass(frozen=True)
class Outfeed:
    """The queue that takes the last stage's results to the host.

    Attributes:
        element_bytes: bytes of one micro-batch's results.
        mode: ALL sends every micro-batch's results, LAST only those of the last micro-batch of a step.
        buffer_depth: elements that the host's buffer holds (Graphcore's default is 3).
        accumulate: whether the results of all micro-batches of an execution are summed up on the IPU, and
            the sum is sent with the weight update (Graphcore's accumulate_outfeed).
        names: of what the last stage gives for each micro-batch.
        mask: which of them are not sent (Graphcore's outfeed_mask); empty where all are.
        accumulate_dtype: NumPy name of the type in which they are summed up; empty for their own.
    """

    element_bytes: int = 0
    mode: OutfeedMode = "ALL"
    buffer_depth: int = 3
    accumulate: bool = False
    names: tuple[str, ...] = ("loss",)
    mask: tuple[bool, ...] = ()
    accumulate_dtype: str = ""

    @property
    def sent(self) -> tuple[int, ...]:
        """The indices of the last stage's results that are sent."""
        mask = self.mask or (False,) * len(self.names)
        return tuple(index for index, masked in enumerate(mask) if not masked)

    @property
    def sent_names(self) -> tuple[str, ...]:
        """The names of the results that are sent."""
        return tuple(self.names[index] for index in self.sent)


@dataclass(frozen=True)
class OutfeedElements:
    """Which results the outfeed takes: those of ``micro_batches``, in every ``period``-th execution.

    Where they are ``accumulated`` one element is sent for all of them.
    """

    micro_batches: range
    period: int
    accumulated: bool = False

    def sent(self, executions: int) -> int:
        """Return the elements that reach the host in that many executions."""
        return executions // self.period * (1 if self.accumulated else len(self.micro_batches))

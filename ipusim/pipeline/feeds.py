"""Describe a pipeline's infeed and outfeed: size of elements, and selection of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OutfeedMode = Literal["ALL", "LAST"]


@dataclass(frozen=True)
class Infeed:
    """Host queue that feeds the first stage.

    Attributes:
        element_bytes: bytes of one micro-batch, labels included.
        prefetch_depth: elements that the host keeps ready near the IPU (Graphcore's default is 3).
    """

    element_bytes: int = 0
    prefetch_depth: int = 3


@dataclass(frozen=True)
class Outfeed:
    """Queue from the last stage to the host.

    Attributes:
        element_bytes: result bytes per micro-batch.
        mode: ALL sends every micro-batch's results, LAST only the last micro-batch of a step.
        buffer_depth: capacity of the host's buffer in elements (Graphcore's default is 3).
        accumulate: whether the IPU sums up results over all micro-batches of an execution and sends the sum with the
            weight update (Graphcore's accumulate_outfeed).
        names: names of the last stage's results for each micro-batch.
        mask: True for results that are not sent (Graphcore's outfeed_mask); empty to send all.
        accumulate_dtype: NumPy name of the sum's type; empty for the type of results.
    """

    element_bytes: int = 0
    mode: OutfeedMode = "ALL"
    buffer_depth: int = 3
    accumulate: bool = False
    names: tuple[str, ...] = ("loss",)
    mask: tuple[bool, ...] = ()
    accumulate_dtype: str = ""

    @property
    def sent_indices(self) -> tuple[int, ...]:
        """Indices of sent results."""
        mask = self.mask or (False,) * len(self.names)
        return tuple(index for index, masked in enumerate(mask) if not masked)

    @property
    def sent_names(self) -> tuple[str, ...]:
        """Names of sent results."""
        return tuple(self.names[index] for index in self.sent_indices)


@dataclass(frozen=True)
class OutfeedElements:
    """Elements of the outfeed: results of ``micro_batches``, in every ``period``-th execution.

    ``accumulated`` results form a single element per execution.
    """

    micro_batches: range
    period: int
    accumulated: bool = False

    def count_sent(self, executions: int) -> int:
        """Return the number of elements that reach the host after a number of executions."""
        return executions // self.period * (1 if self.accumulated else len(self.micro_batches))

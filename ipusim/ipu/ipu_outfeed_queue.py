"""Outfeeds in Graphcore's names: results of a program that the host dequeues in a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.queues import BUFFER_DEPTH, IPUOutfeedMode, OutfeedArguments
from ipusim.ipu.runtime.releases import outfeed_in_any_release
from ipusim.ipu.traced.queues import Outfeed

__all__ = ["IPUOutfeedMode", "IPUOutfeedQueue"]

tf = load()


class IPUOutfeedQueue(OutfeedArguments):
    """Takes the results of one program to the host.

    Attributes:
        feed: the queue in the graph.
        enqueued: whether a program sends to it.
    """

    @outfeed_in_any_release
    def __init__(
        self,
        feed_name: str | None = None,
        outfeed_mode: IPUOutfeedMode | None = None,
        device_ordinal: int | None = 0,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
        *,
        buffer_depth: int = BUFFER_DEPTH,
        optimise_latency: bool = False,
    ) -> None:
        """Make the queue in the graph that is being built.

        Args:
            feed_name: without effect.
            outfeed_mode: which elements are kept; ALL by default.
            device_ordinal: number of the device whose programs use it; by default that of the strategy around, else 0.
            replication_factor: without effect.
            io_batch_size: without effect: each element is sent when it is there.
            buffer_depth: elements that the host's buffer holds.
            optimise_latency: without effect.

        Raises:
            ProgramError: in Graphcore's words, for what is out of range.
            ProgramTypeError: for arguments of other types.
        """
        self.check(
            feed_name,
            outfeed_mode,
            device_ordinal,
            replication_factor,
            io_batch_size,
            buffer_depth,
            optimise_latency,
        )
        all_kept = self.outfeed_mode is IPUOutfeedMode.ALL
        self.feed = Outfeed(keeps_all=all_kept, buffer_depth=self.buffer_depth, notes=self.notes)
        self.enqueued = False

    def connect(self) -> Outfeed:
        """Return the queue for the program that sends to it; raises ProgramError for a second program.

        TensorFlow 2 traces a function several times, which is one program all the same.
        """
        if self.enqueued and not tf.compat.v1.get_default_graph().building_function:
            raise ProgramError("An outfeed can only be enqueued once.")
        self.enqueued = True
        return self.feed

    def enqueue(self, tensors: Any) -> Any:
        """Send tensors out of the body of a loop or a stage: one, a tuple or list, or a dictionary of them.

        Returns:
            The operation.

        Raises:
            ProgramError: the second time.
        """
        return self.connect().enqueue(tensors)

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Write the operation that takes what has been sent.

        Args:
            wait_for_completion: whether it waits for the end of a program that runs in another thread.

        Returns:
            Tensors in the structure of an element, with an axis for the elements in front in the mode ALL.

        Raises:
            ProgramError: before a program sends to it.
        """
        completed = checks.truth("wait_for_completion", wait_for_completion)
        if not self.enqueued:
            raise ProgramError("Trying to dequeue an outfeed which has not been enqueued.")
        return self.feed.dequeue(completed=completed)

    def __len__(self) -> int:
        """Return the number of elements that a program of TensorFlow 2 has sent."""
        return len(self.feed)

    def __bool__(self) -> bool:
        """Return True, also for a queue without elements."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Take the elements that a program of TensorFlow 2 has sent, one after another.

        Raises:
            ProgramStateError: in the mode LAST, and in sessions.
        """
        if self.outfeed_mode is not IPUOutfeedMode.ALL:
            raise ProgramStateError(
                "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'."
            )
        if not tf.executing_eagerly():
            raise ProgramStateError("IPUOutfeedQueue can only be iterated over in eager mode.")
        return iter(self.feed)

    @property
    def deleter(self) -> Any:
        """The operation that ends the queue."""
        return self.feed.deleter

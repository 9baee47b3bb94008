"""Carry a program's results to the host, which dequeues them in a session: Graphcore's outfeed queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ipusim.api import rules
from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import check_deprecated, ordinal_of_queue, refuse_in_inner_loop
from ipusim.ipu.runtime.queues import BUFFER_DEPTH, IPUOutfeedMode, OutfeedArguments
from ipusim.ipu.runtime.releases import outfeed_accepts_old_order
from ipusim.ipu.traced.queues import Outfeed

__all__ = ["IPUOutfeedMode", "IPUOutfeedQueue"]

tf = load()
#: Note on batches of elements, an argument of earlier releases.
_NO_BATCHES: Final = "io_batch_size of IPUOutfeedQueue will have no effect: each element is sent when it is there."


class IPUOutfeedQueue(OutfeedArguments):
    """Carries results of one program to the host.

    Attributes:
        feed: buffer and operations of the queue in TensorFlow's graph.
        enqueued: whether a program sends to the queue.
    """

    @outfeed_accepts_old_order
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
        """Add the queue to the current graph.

        Args:
            feed_name: without effect.
            outfeed_mode: whether all elements are kept or only the last; ALL by default.
            device_ordinal: number of the device whose programs write the queue; by default the surrounding strategy's
                device, else 0.
            replication_factor: without effect.
            io_batch_size: without effect: elements are sent as soon as they are ready.
            buffer_depth: capacity of the host's buffer in elements.
            optimise_latency: without effect.

        Raises:
            ProgramError: if a value is out of range (Graphcore's message).
            ProgramTypeError: if an argument has a wrong type.
        """
        mode: object = IPUOutfeedMode.ALL if outfeed_mode is None else outfeed_mode
        if not isinstance(mode, IPUOutfeedMode):
            raise ProgramError(
                "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is "
                f"{type(outfeed_mode)}."
            )
        self.ordinal = ordinal_of_queue(device_ordinal)
        check_deprecated(feed_name, replication_factor)
        notes = [_NO_BATCHES] if checks.whole("io_batch_size", io_batch_size, 1) > 1 else []
        rules.check_buffer_depth(checks.integer("buffer_depth", buffer_depth))
        self.outfeed_mode, self.buffer_depth = mode, buffer_depth
        self.optimise_latency = checks.truth("optimise_latency", optimise_latency)
        self.feed = Outfeed(keeps_all=mode is IPUOutfeedMode.ALL, buffer_depth=buffer_depth, notes=notes)
        self.enqueued = False

    def connect(self) -> Outfeed:
        """Return ``feed`` for the program that sends; raises ProgramError for a second program.

        TensorFlow 2 traces a function several times; repeated traces count as one program.
        """
        if self.enqueued and not tf.compat.v1.get_default_graph().building_function:
            raise ProgramError("An outfeed can only be enqueued once.")
        self.enqueued = True
        return self.feed

    def enqueue(self, tensors: Any) -> Any:
        """Send tensors from the body of a loop or a stage: a tensor, a tuple, a list, or a dictionary.

        Returns:
            The operation.

        Raises:
            ProgramError: if enqueue is called a second time.
        """
        refuse_in_inner_loop("enqueue")
        return self.connect().enqueue(tensors)

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Add the operation that takes all sent elements.

        Args:
            wait_for_completion: whether to wait for the end of a program in another thread.

        Returns:
            Tensors in the structure of an element; in the mode ALL, the first axis counts elements.

        Raises:
            ProgramError: if no program sends to the queue yet.
        """
        completed = checks.truth("wait_for_completion", wait_for_completion)
        if not self.enqueued:
            raise ProgramError("Trying to dequeue an outfeed which has not been enqueued.")
        return self.feed.dequeue(completed=completed)

    def __len__(self) -> int:
        """Return the number of elements sent by a program of TensorFlow 2."""
        return len(self.feed)

    def __bool__(self) -> bool:
        """Return True, even if the queue is empty."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the elements sent by a program of TensorFlow 2.

        Raises:
            ProgramStateError: if the mode is LAST or a session runs the program.
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
        """Operation that ends the queue."""
        return self.feed.deleter

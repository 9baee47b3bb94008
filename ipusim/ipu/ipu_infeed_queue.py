"""Feed IPUs from a TensorFlow data set: Graphcore's infeed queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ipusim.api import rules, runs
from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import check_deprecated, ordinal_of_queue, refuse_in_inner_loop
from ipusim.ipu.runtime.queues import InfeedArguments
from ipusim.ipu.runtime.releases import infeed_accepts_old_order
from ipusim.ipu.traced.queues import Infeed

tf = load()
#: Default number of elements kept ready by the host.
_PREFETCH_DEPTH: Final = runs.InfeedSpec().prefetch_depth


class IPUInfeedQueue(InfeedArguments):
    """Feeds a pipeline or a loop with an element per micro-batch and replica.

    Attributes:
        feed: data set and operations of the queue in TensorFlow's graph.
    """

    @infeed_accepts_old_order
    def __init__(
        self,
        dataset: Any,
        feed_name: str | None = None,
        device_ordinal: int | None = 0,
        replication_factor: int | None = 1,
        data_to_prefetch: int = 1,
        prefetch_depth: int | None = None,
        *,
        optimise_latency: bool = False,
    ) -> None:
        """Add the queue to the current graph.

        Args:
            dataset: a ``tf.data.Dataset`` with fully known shapes. Elements are tensors, tuples of tensors and of
                dictionaries of tensors, or dictionaries of tensors by argument name of the first stage.
            feed_name: the queue's name in messages.
            device_ordinal: number of the device whose programs read the queue; 0 and None stand for the
                surrounding strategy's device, if any.
            replication_factor: without effect.
            data_to_prefetch: name of ``prefetch_depth`` in releases up to 2.1; without effect if 1.
            prefetch_depth: elements that the host keeps ready; 3 by default.
            optimise_latency: without effect.

        Raises:
            ProgramError: if a value is out of range, nested, or of unknown shape (Graphcore's message).
            ProgramTypeError: if an argument has a wrong type.
        """
        self.ordinal = ordinal_of_queue(device_ordinal)
        check_deprecated(feed_name, replication_factor)
        earlier_depth = checks.whole("data_to_prefetch", data_to_prefetch, 1)
        if prefetch_depth is None:
            prefetch_depth = earlier_depth if earlier_depth > 1 else _PREFETCH_DEPTH
        self.prefetch_depth = checks.integer("prefetch_depth", prefetch_depth)
        rules.check_prefetch_depth(self.prefetch_depth)
        self.optimise_latency = checks.truth("optimise_latency", optimise_latency)
        checks.instance("dataset", dataset, tf.data.Dataset | tf.compat.v1.data.Dataset, "a tf.data.Dataset")
        _check_elements(dataset.element_spec)
        self.feed = Infeed(dataset, feed_name or "infeed")
        self._initialized = False

    @property
    def initializer(self) -> Any:
        """Operation that starts the data set; raises ProgramError on second access."""
        if self._initialized:
            raise ProgramError("The IPUInfeedQueue `initializer` function can only be accessed once.")
        self._initialized = True
        return self.feed.initializer

    @property
    def deleter(self) -> Any:
        """Operation that ends the queue."""
        return self.feed.deleter

    @property
    def dequeued(self) -> bool:
        """Whether a pipeline or a loop reads the queue."""
        return self.feed.dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """Number of tensors in an element."""
        return len(tf.nest.flatten(self.feed.structure))

    def _dequeue(self) -> Any:
        """Dequeue an element inside a loop without infeed argument, as Graphcore's programs do."""
        refuse_in_inner_loop("dequeue")
        return self.feed.dequeue()

    def get_next(self) -> None:
        """Refuse, like Graphcore's queue: a pipeline dequeues automatically. Raises ProgramError."""
        raise ProgramError(
            "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop."
        )


def _check_elements(structure: Any) -> None:
    """Refuse nested tuples and unknown shapes in elements; raises ProgramError with Graphcore's message."""
    values = structure.values() if isinstance(structure, Mapping) else structure
    for value in values if isinstance(structure, tuple | list | Mapping) else [structure]:
        if isinstance(value, tuple | list):
            raise ProgramError("Nested list/tuple input shapes are not supported")
    for spec in tf.nest.flatten(structure):
        if not spec.shape.is_fully_defined():
            raise ProgramError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
            )

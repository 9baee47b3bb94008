"""Infeeds in Graphcore's names: a TensorFlow data set whose elements go to the IPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.queues import InfeedArguments
from ipusim.ipu.runtime.releases import infeed_in_any_release
from ipusim.ipu.traced.queues import Infeed

tf = load()


class IPUInfeedQueue(InfeedArguments):
    """Feeds a pipeline or a loop, one element for each micro-batch and replica.

    Attributes:
        feed: the queue in the graph.
    """

    @infeed_in_any_release
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
        """Make the queue in the graph that is being built.

        Args:
            dataset: a ``tf.data.Dataset``; an element is a tensor, a tuple of tensors and of dictionaries of them, or a
                dictionary of tensors by the names of the first stage's arguments, of known shapes.
            feed_name: name of the queue in messages.
            device_ordinal: number of the device whose programs use it; by default that of the strategy around, else 0.
            replication_factor: without effect.
            data_to_prefetch: ``prefetch_depth`` by the name of releases up to 2.1, where it is not 1.
            prefetch_depth: elements that the host keeps ready; 3 by default.
            optimise_latency: without effect.

        Raises:
            ProgramError: in Graphcore's words, for what is out of range, nested, or of an unknown shape.
            ProgramTypeError: for arguments of other types.
        """
        self.check(feed_name, device_ordinal, replication_factor, data_to_prefetch, prefetch_depth, optimise_latency)
        checks.instance("dataset", dataset, tf.data.Dataset | tf.compat.v1.data.Dataset, "a tf.data.Dataset")
        _check_elements(dataset.element_spec)
        self.feed = Infeed(dataset, feed_name or "infeed")
        self._initialized = False

    @property
    def initializer(self) -> Any:
        """The operation that begins the data set; raises ProgramError the second time."""
        if self._initialized:
            raise ProgramError("The IPUInfeedQueue `initializer` function can only be accessed once.")
        self._initialized = True
        return self.feed.initializer

    @property
    def deleter(self) -> Any:
        """The operation that ends the queue."""
        return self.feed.deleter

    @property
    def dequeued(self) -> bool:
        """Whether a pipeline or a loop takes its elements."""
        return self.feed.dequeued

    @property
    def number_of_tuple_elements(self) -> int:
        """Number of tensors of an element."""
        return len(tf.nest.flatten(self.feed.structure))

    def _dequeue(self) -> Any:
        """Take the next element in the body of a loop that has no queue of its own, as programs of Graphcore's do."""
        return self.feed.dequeue()

    def get_next(self) -> None:
        """Refuse, as Graphcore's queue does: a pipeline dequeues by itself. Raises ProgramError."""
        raise ProgramError(
            "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop."
        )


def _check_elements(structure: Any) -> None:
    """Refuse elements with tuples in tuples, or whose shapes are unknown; raises ProgramError in Graphcore's words."""
    values = structure.values() if isinstance(structure, Mapping) else structure
    for value in values if isinstance(structure, tuple | list | Mapping) else [structure]:
        if isinstance(value, tuple | list):
            raise ProgramError("Nested list/tuple input shapes are not supported")
    for spec in tf.nest.flatten(structure):
        if not spec.shape.is_fully_defined():
            raise ProgramError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
            )

"""Queues between the host and a program: infeeds pull from TensorFlow's data sets, outfeeds keep what the IPUs send."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import EndOfDataError, UnsupportedProgramError
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.sessions import EAGER, EagerHost, RunningSession, session_token

tf = load()

#: Names of the nodes of queues in graphs.
DEQUEUE: Final = "infeed_dequeue"


class Infeed:
    """A queue of a data set's elements.

    Attributes:
        structure: element of the data set, with a ``tf.TensorSpec`` for each tensor.
        initializer: operation that begins the data set.
        deleter: operation that ends the queue.
    """

    def __init__(self, dataset: Any) -> None:
        """Make an iterator in the current graph, or a running iterator in TensorFlow 2."""
        self.structure = dataset.element_spec
        self._session: RunningSession | EagerHost | None = None
        if tf.executing_eagerly():
            self._elements, self.initializer, self.deleter = iter(dataset), None, None
            return
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        self._next = tf.nest.flatten(iterator.get_next())
        self.initializer, self.deleter = iterator.initializer, tf.no_op()

    def dequeue(self) -> Any:
        """Write a node that takes the next element, and return its tensors in the structure of the data set."""
        forms = [(spec.dtype, spec.shape) for spec in tf.nest.flatten(self.structure)]
        return tf.nest.pack_sequence_as(
            self.structure, add_node(Entry(self._maker, effect=True, value=self), [], forms, DEQUEUE)
        )

    def connect(self, session: RunningSession | EagerHost) -> None:
        """Pull from the iterators of a session from now on."""
        self._session = session

    def pull(self) -> list[Array]:
        """Return the next element.

        Raises:
            EndOfDataError: at the end of the data set.
        """
        try:
            if isinstance(self._session, RunningSession):
                return [np.asarray(value) for value in self._session.run(self._next)]
            return [value.numpy() for value in tf.nest.flatten(next(self._elements))]
        except (StopIteration, tf.errors.OutOfRangeError):
            raise EndOfDataError("End of sequence") from None

    def zeros(self) -> list[Array]:
        """Return an element of zeros in the static shapes of the data set."""
        return [np.zeros(spec.shape.as_list(), spec.dtype.as_numpy_dtype) for spec in tf.nest.flatten(self.structure)]

    def _maker(self, _: Any) -> Any:
        """Return the kernel of a dequeue outside of pipelines and loops."""

        def take() -> Any:
            values = self.pull()
            return values[0] if len(values) == 1 else tuple(values)

        return take


class Outfeed:
    """A queue of results of a program, separate for each session.

    Attributes:
        keeps_all: whether the queue keeps all elements, or the last element.
        buffer_depth: elements that the host's buffer holds.
        deleter: operation that ends the queue.
    """

    def __init__(self, *, keeps_all: bool = True, buffer_depth: int = 3) -> None:
        """Begin without elements."""
        self.buffer_depth = buffer_depth
        self.keeps_all, self.deleter = keeps_all, None if tf.executing_eagerly() else tf.no_op()
        self._structure: Any = None
        self._elements: WeakKeyDictionary[Any, list[tuple[Array, ...]]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def describe(self, structure: Any, dtype: Any = None) -> None:
        """Take the structure of an element, with a tensor at each place, and the dtype that it is sent in."""
        self._structure = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, dtype or tensor.dtype), structure
        )

    def enqueue(self, structure: Any) -> Any:
        """Write the node that sends an element out of the body of a loop, and return its operation."""
        tensors = tf.nest.map_structure(tf.convert_to_tensor, structure)
        self.describe(tensors)
        entry = Entry(_not_alone, effect=True, value=EnqueueItem(self))
        return add_node(entry, tf.nest.flatten(tensors), [], "outfeed_enqueue")[0]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        specs = tf.nest.flatten(self._structure)
        return sum((spec.shape.num_elements() or 0) * spec.dtype.size for spec in specs)

    def add(self, session: Any, element: Sequence[Array]) -> None:
        """Add an element that has come to the host."""
        with self._lock:
            self._elements.setdefault(session, []).append(tuple(np.asarray(value) for value in element))

    def dequeue(self) -> Any:
        """Write the operation that empties the queue; TensorFlow 2 runs the operation at once.

        Returns:
            Tensors in the structure of an element; with an axis for the elements in front if all are kept.
        """
        specs = tf.nest.flatten(self._structure)
        if tf.executing_eagerly():
            return tf.nest.pack_sequence_as(self._structure, [tf.constant(value) for value in self._taken(EAGER)])
        if not specs:
            return self._structure
        tensors = tf.numpy_function(self._take, [session_token()], [spec.dtype for spec in specs])
        flat = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        for tensor, spec in zip(flat, specs, strict=True):
            tensor.set_shape([None, *spec.shape] if self.keeps_all else spec.shape)
        return tf.nest.pack_sequence_as(self._structure, flat)

    def __len__(self) -> int:
        """Return the number of elements that a program of TensorFlow 2 has sent."""
        return len(self._elements.get(EAGER, ()))

    def __iter__(self) -> Iterator[Any]:
        """Take the elements that a program of TensorFlow 2 has sent, one after another."""
        with self._lock:
            elements = self._elements.pop(EAGER, [])
        for element in elements:
            yield tf.nest.pack_sequence_as(self._structure, [tf.constant(value) for value in element])

    def _take(self, token: Any) -> list[Array]:
        return self._taken(RunningSession(int(token)).session)

    def _taken(self, session: Any) -> list[Array]:
        with self._lock:
            elements = self._elements.pop(session, [])
        if not self.keeps_all:
            return list(elements[-1])
        specs = tf.nest.flatten(self._structure)
        return [
            np.stack([element[place] for element in elements])
            if elements
            else np.zeros((0, *spec.shape), spec.dtype.as_numpy_dtype)
            for place, spec in enumerate(specs)
        ]


class EnqueueItem:
    """The queue behind the node of an enqueue.

    Attributes:
        queue: the outfeed.
    """

    def __init__(self, queue: Outfeed) -> None:
        """Take the queue."""
        self.queue = queue


def _not_alone(_: Any) -> Any:
    """Refuse an enqueue outside of loops and pipelines; raises UnsupportedProgramError."""
    raise UnsupportedProgramError("outfeed: expected an enqueue in the body of a loop or the stage of a pipeline")

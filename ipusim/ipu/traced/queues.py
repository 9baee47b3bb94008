"""Provide host queues: infeeds pull from TensorFlow's data sets, outfeeds keep elements sent by IPUs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import EndOfDataError, ProgramError, ProgramStateError
from ipusim.ipu.graph.enqueued import EnqueueItem
from ipusim.ipu.graph.executable import Invocation
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.sessions import EAGER, LOCK, EagerHost, RunningSession, failing, session_token

tf = load()

#: Name of dequeue nodes in graphs.
DEQUEUE: Final = "infeed_dequeue"


class Infeed:
    """A queue of data set elements.

    Attributes:
        dataset: the data set.
        structure: element structure, with ``tf.TensorSpec`` leaves.
        initializer: operation that starts the data set.
        deleter: operation that ends the queue.
        dequeued: whether programs take elements of the queue.
    """

    def __init__(self, dataset: Any, name: str = "infeed") -> None:
        """Make an iterator in the current graph, or a running iterator under TensorFlow 2."""
        self.dataset, self.structure, self._name = dataset, dataset.element_spec, name
        self._replicas: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._session: RunningSession | EagerHost | None = None
        self.dequeued = False
        if tf.executing_eagerly():
            self._elements, self.initializer, self.deleter = iter(dataset), None, None
            return
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        self._next_tensors = tf.nest.flatten(iterator.get_next())
        self.initializer, self.deleter = iterator.initializer, tf.no_op()

    def dequeue(self) -> Any:
        """Add a node that takes the next element; return tensors in the data set's structure."""
        self.dequeued = True
        forms = [(spec.dtype, spec.shape) for spec in tf.nest.flatten(self.structure)]
        return tf.nest.pack_sequence_as(
            self.structure, add_node(Entry(self._dequeue_kernel, effect=True, value=self), [], forms, DEQUEUE)
        )

    def connect(self, session: RunningSession | EagerHost) -> None:
        """Pull from a session's iterators from now on."""
        self._session = session

    def replicate(self, program: Any, replicas: int) -> None:
        """Feed a program running on a number of replicas.

        Raises:
            ProgramError: if the queue feeds another program with a different number of replicas (Graphcore's
                message).
        """
        for program_fed, earlier_replicas in self._replicas.items():
            if program_fed is not program and earlier_replicas != replicas:
                raise ProgramError(
                    f"Iterator for feed {self._name} has already been setup with a replication factor of "
                    f"{earlier_replicas} when it should have {replicas}.Infeeds can not be shared across graphs with "
                    "different replication factors. Please create a new InfeedQueue."
                )
        self._replicas[program] = replicas

    def pull(self) -> list[Array]:
        """Return the next element.

        Raises:
            EndOfDataError: if the data set has ended.
            ProgramStateError: if the data set has not started (Graphcore's message).
        """
        try:
            if isinstance(self._session, RunningSession):
                return [np.asarray(value) for value in self._session.run(self._next_tensors)]
            return [value.numpy() for value in tf.nest.flatten(next(self._elements))]
        except (StopIteration, tf.errors.OutOfRangeError):
            raise EndOfDataError("End of sequence") from None
        except tf.errors.FailedPreconditionError:
            raise ProgramStateError(
                "Trying to access an infeed dataset iterator which has not been created. Did you initialize the "
                f"infeed_queue '{self._name}' ?"
            ) from None

    def zeros(self) -> list[Array]:
        """Return an element of zeros with the data set's static shapes."""
        return [np.zeros(spec.shape.as_list(), spec.dtype.as_numpy_dtype) for spec in tf.nest.flatten(self.structure)]

    def _dequeue_kernel(self, _: Any) -> Any:
        """Return the kernel for a dequeue outside pipelines and loops."""
        return lambda: tuple(self.pull())


def elements_anew(dataset: Any, function: Callable[[Iterator[Sequence[Array]]], Any]) -> Any:
    """Return a string tensor that a function computes from all elements of a data set.

    Args:
        dataset: the data set.
        function: takes the elements, returns an array of strings.
    """
    if tf.executing_eagerly():
        return tf.constant(function([value.numpy() for value in tf.nest.flatten(element)] for element in dataset))
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    next_tensors = tf.nest.flatten(iterator.get_next())

    def elements(host: RunningSession) -> Iterator[Sequence[Array]]:
        host.run([iterator.initializer])
        while True:
            try:
                yield [np.asarray(value) for value in host.run(next_tensors)]
            except tf.errors.OutOfRangeError:
                return

    def run(token: Any) -> Any:
        host = RunningSession(int(token))
        with failing(host):
            return function(elements(host))

    result = tf.numpy_function(run, [session_token()], tf.string)
    result.set_shape([None])
    return result


class Outfeed:
    """A queue of program results, separate per session.

    Attributes:
        keeps_all: whether the queue keeps all elements, or only the last element.
        buffer_depth: capacity of the host's buffer, in elements.
        notes: sentences about arguments without effect.
        deleter: operation that ends the queue.
        replicas: number of replicas, if known in advance; every replica contributes a part of an element.
    """

    replicas = 1

    def __init__(self, *, keeps_all: bool = True, buffer_depth: int = 3, notes: Sequence[str] = ()) -> None:
        """Begin without elements."""
        self.buffer_depth, self.notes = buffer_depth, tuple(notes)
        self.keeps_all, self.deleter = keeps_all, None if tf.executing_eagerly() else tf.no_op()
        self._structure: Any = None
        self._elements: WeakKeyDictionary[Any, list[tuple[Array, ...]]] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self.receive(None, 1)

    def describe(self, structure: Any, dtype: Any = None) -> None:
        """Set the element structure from tensors, and the dtype of sent elements."""
        self._structure = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, dtype or tensor.dtype), structure
        )

    def enqueue(self, structure: Any) -> Any:
        """Add a node that sends an element out of a loop body; return the operation."""
        tensors = tf.nest.map_structure(tf.convert_to_tensor, structure)
        self.describe(tensors)
        entry = Entry(self._enqueue_kernel, effect=True, invoked=True, value=EnqueueItem(self))
        return add_node(entry, tf.nest.flatten(tensors), [], "outfeed_enqueue")[0]

    def receive(self, session: Any, replicas: int) -> None:
        """Receive enqueues from passes for a session; None ends the reception."""
        self._receiver, self._replicas = session, replicas
        self._received_keys: set[Any] = set()
        self._arrivals: dict[int, deque[tuple[Array, ...]]] = {}

    def _enqueue_kernel(self, _: Any) -> Any:
        """Return the kernel for an enqueue; a recomputed pass does not send again."""

        def send(invocation: Invocation, *values: Any) -> None:
            if self._receiver is None:
                if isinstance(invocation.session, RunningSession | EagerHost):  # outside loops and pipelines
                    self.add(invocation.session.session, values)
                return
            replica = functions.surroundings().replica.index
            key = replica, invocation.key
            if len(invocation.key) > 1 and key in self._received_keys:
                return
            self._received_keys.add(key)
            self._arrivals.setdefault(replica, deque()).append(tuple(np.array(value) for value in values))
            if len(self._arrivals) == self._replicas and all(self._arrivals.values()):
                elements = [self._arrivals[number].popleft() for number in range(self._replicas)]
                result = elements[0] if len(elements) == 1 else tuple(map(np.stack, zip(*elements, strict=True)))
                self.add(self._receiver, result)

        return send

    @property
    def element_bytes(self) -> int:
        """Bytes per element."""
        specs = tf.nest.flatten(self._structure)
        return sum((spec.shape.num_elements() or 0) * spec.dtype.size for spec in specs)

    def add(self, session: Any, element: Sequence[Array]) -> None:
        """Add an element that arrived on the host."""
        with self._lock:
            self._elements.setdefault(session, []).append(tuple(np.asarray(value) for value in element))

    def dequeue(self, *, completed: bool = False) -> Any:
        """Add the operation that empties the queue; TensorFlow 2 runs the operation at once.

        Args:
            completed: whether the operation waits for a running program to end.

        Returns:
            Tensors in the element's structure, stacked along a leading axis if the queue keeps all elements.
        """
        specs = tf.nest.flatten(self._structure)
        if tf.executing_eagerly():
            return tf.nest.pack_sequence_as(self._structure, [*map(tf.constant, self._take_elements(EAGER, completed))])
        if not specs:
            return self._structure
        tensors = tf.numpy_function(partial(self._take, completed), [session_token()], [spec.dtype for spec in specs])
        flat = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        axes = [None] * self.keeps_all + [self.replicas] * (self.replicas > 1)
        for tensor, spec in zip(flat, specs, strict=True):
            tensor.set_shape([*axes, *spec.shape])
        return tf.nest.pack_sequence_as(self._structure, flat)

    def __len__(self) -> int:
        """Return the number of elements sent by a TensorFlow 2 program."""
        return len(self._elements.get(EAGER, ()))

    def __iter__(self) -> Iterator[Any]:
        """Take the elements sent by a TensorFlow 2 program, in order."""
        with self._lock:
            elements = self._elements.pop(EAGER, [])
        for element in elements:
            yield tf.nest.pack_sequence_as(self._structure, [tf.constant(value) for value in element])

    def _take(self, completed: bool, token: Any) -> list[Array]:
        host = RunningSession(int(token))
        with failing(host):
            return self._take_elements(host.session, completed)

    def _take_elements(self, session: Any, completed: bool) -> list[Array]:
        with LOCK if completed else nullcontext(), self._lock:
            elements = self._elements.pop(session, [])
            if not self.keeps_all:  # programs may read the last element repeatedly
                self._elements[session] = elements[-1:]
        if not self.keeps_all and not elements:
            raise ProgramStateError(
                "Trying to get the last value from an outfeed queue before it was executed. Make sure the outfeed "
                "dequeue TensorFlow operation is executed after the enqueue to the outfeed has completed."
            )
        if not self.keeps_all:
            return list(elements[-1])
        specs = tf.nest.flatten(self._structure)
        return [
            np.stack([element[number] for element in elements])
            if elements
            else np.zeros((0, *spec.shape), spec.dtype.as_numpy_dtype)
            for number, spec in enumerate(specs)
        ]

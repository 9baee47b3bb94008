"""The infeed queue: a stream of micro-batches from the host, read once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

import numpy as np

from ipusim.api import Array, datasets
from ipusim.base.errors import ModelError, ProgramError, ProgramStateError, ProgramTypeError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.function_body import calling
from ipusim.ipu.runtime.host import Operation, Running
from ipusim.ipu.runtime.queues import InfeedArguments
from ipusim.ipu.runtime.releases import infeed_in_any_release

#: What an iterator gives after its last element, which may be anything.
_END: Final = object()
#: What messages of the compiler call the queue.
_FEED: Final = "infeed"

Arrays = tuple[Array, ...]


def repeat(dataset: Iterable[Any]) -> Iterator[Any]:
    """Yield the elements of ``dataset`` over and over, as ``tf.data.Dataset.repeat`` does.

    The dataset must allow to be gone through again, as a list does. Raises ModelError for one without elements,
    ProgramTypeError for what has none at all.
    """
    _iterator(dataset)
    return _repeated(dataset)


def _repeated(dataset: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for element in dataset:
            empty = False
            yield element
        if empty:
            raise ModelError(
                "expected a dataset with elements each time that it is gone through, got none: give a list, as an "
                "iterator can be gone through once"
            )


def micro_batches(dataset: datasets.Dataset, batch_size: int, seed: int = 0, shuffle: bool = True) -> Iterator[Arrays]:
    """Yield (inputs, labels) of ``batch_size`` samples of one of ipusim's own datasets, without end.

    Every epoch is in a new order, drawn from ``seed``. Raises ModelError for a batch that is larger than the dataset,
    ProgramTypeError and ProgramError for what is no dataset, size, seed or truth value.
    """
    checks.instance("dataset", dataset, datasets.Dataset, "an ipusim Dataset")
    feed = datasets.Feed(
        dataset, checks.whole("batch_size", batch_size, 1), checks.whole("seed", seed), checks.truth("shuffle", shuffle)
    )
    return (feed.element(index) for index in count())


class IPUInfeedQueue(InfeedArguments):
    """Feeds the first stage of a pipeline, one element for each micro-batch and replica.

    Args:
        dataset: an iterable of elements: an array, a tuple or list of arrays, or a dictionary of arrays by the
            names of the first stage's arguments. All elements have the shapes of the first.
        feed_name, replication_factor: of releases up to 2.1, which call them deprecated: without effect.
        device_ordinal: number of the device whose programs use it; by default that of the strategy around, else 0.
        data_to_prefetch: of those releases too: prefetch_depth by another name, where it is not 1.
        prefetch_depth: elements that the host keeps ready; 3 by default, as in Graphcore's software.
        optimise_latency: accepted, and without effect on what is simulated.

    The arguments are in the order of SDK 2.1; by position they may be in that of later releases too, which is
    device_ordinal, prefetch_depth, optimise_latency.

    Raises ProgramError (a ValueError) in Graphcore's words for what is out of range, and for a
    dataset whose elements are nested. The elements are read when they are needed; the first is
    read at once, for its shapes.
    """

    @infeed_in_any_release
    def __init__(
        self,
        dataset: Iterable[Any],
        feed_name: str | None = None,
        device_ordinal: int | None = 0,
        replication_factor: int | None = 1,
        data_to_prefetch: int = 1,
        prefetch_depth: int | None = None,
        *,
        optimise_latency: bool = False,
    ) -> None:
        """Check the arguments and read the first element."""
        self.check(feed_name, device_ordinal, replication_factor, data_to_prefetch, prefetch_depth, optimise_latency)
        #: What the elements come from.
        self.dataset = dataset
        self._elements = _iterator(dataset)
        self._waiting: dict[int, Arrays] = {}
        #: The elements that have been read, the first one's shapes not counted.
        self.consumed = 0
        self._replicas: int | None = None
        self._initialized = self._started = False
        with calling(device=False):  # the elements are the host's, wherever the queue is made
            first = next(self._elements, _END)
        if first is _END:
            raise ModelError("expected a dataset with elements, got none")
        #: Names of an element's arrays, where it is a dictionary.
        self.keywords: tuple[str, ...] = _names(first) if isinstance(first, Mapping) else ()
        self._first: Arrays | None = self.arrays(first)
        self._forms = [(array.shape, array.dtype) for array in self._first]

    @property
    def initializer(self) -> Operation:
        """The operation that starts the queue, which is ready as it is. Raises ProgramError the second time."""
        if self._initialized:
            raise ProgramError("The IPUInfeedQueue `initializer` function can only be accessed once.")
        self._initialized = True

        def start(_: Running) -> None:
            self._started = True

        return Operation("infeed/initialize", start)

    @property
    def deleter(self) -> Operation:
        """The operation that deletes the queue's resources: it has none that a new queue would miss."""
        return Operation("infeed/delete")

    @property
    def dequeued(self) -> bool:
        """Whether a program reads the queue."""
        return self._replicas is not None

    @property
    def number_of_tuple_elements(self) -> int:
        """The arrays of an element."""
        return len(self._forms)

    def check_started(self) -> None:
        """Refuse to be read in a session that has not run the initializer; raises ProgramStateError."""
        if not self._started:
            raise ProgramStateError(
                "Trying to access an infeed dataset iterator which has not been created. Did you initialize the "
                f"infeed_queue '{_FEED}' ?"
            )

    def get_next(self) -> None:
        """Refuse, as Graphcore's queue does: a pipeline dequeues by itself. Raises ProgramError."""
        raise ProgramError(
            "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop."
        )

    def example(self) -> Arrays:
        """Return arrays of an element's shapes and dtypes: the first element, or zeros when it is used up."""
        if self._first is not None:
            return self._first
        return tuple(np.zeros(shape, dtype) for shape, dtype in self._forms)

    def connect(self, replicas: int, *, instead_of: int | None = None) -> None:
        """Note the replication factor of a program that reads the queue; raises ProgramError for another one.

        A program that is laid out again reads it with ``replicas``, ``instead_of`` those that it had before.
        """
        if self._replicas not in {None, replicas, instead_of}:
            raise ProgramError(
                f"Iterator for feed {_FEED} has already been setup with a replication factor of {self._replicas} when "
                f"it should have {replicas}.Infeeds can not be shared across graphs with different replication "
                "factors. Please create a new InfeedQueue."
            )
        self._replicas = replicas

    def take(self, index: int) -> Arrays:
        """Return element ``index`` of the stream, counted from 0, for good.

        Raises ModelError when the dataset has no more, ProgramError for an element of another shape.
        """
        while self.consumed <= index:
            self._waiting[self.consumed] = self._next()
            self.consumed += 1
        return self._waiting.pop(index)

    def go_to(self, index: int) -> None:
        """Go on with element ``index`` of the stream, counted from 0; a dataset that has ended by then begins anew.

        Raises ProgramError where that lies back, and the dataset can be gone through once.
        """
        if index < self.consumed:
            elements = _iterator(self.dataset)
            if elements is self.dataset:
                checks.wrong_value("dataset", "one that can be gone through again, to go back in it", self.dataset)
            self._elements, self._first, self.consumed = elements, None, 0
        self._waiting.clear()
        while self.consumed < index:
            if self._first is None:
                self._following()
            self._first = None
            self.consumed += 1
        if self._first is None:
            self._first = self._following()

    def anew(self, argument: str) -> Iterable[Any]:
        """Return what the elements come from, to go through it beside the programs, which miss none of them.

        Raises ProgramTypeError, with the name of the ``argument`` that the queue is, where they come once.
        """
        if iter(self.dataset) is self.dataset:
            checks.wrong_type(argument, "a dataset that can be gone through again, such as a Dataset", self.dataset)
        return self.dataset

    def _following(self) -> Arrays | None:
        """Return the next element, from the beginning again where there is none; None where there is none there."""
        element = next(self._elements, _END)
        if element is _END:
            self._elements = _iterator(self.dataset)
            element = next(self._elements, _END)
        return None if element is _END else self._checked(element)

    def _next(self) -> Arrays:
        if self._first is not None:
            result, self._first = self._first, None
            return result
        element = next(self._elements, _END)
        if element is _END:
            raise ModelError(
                f"the infeed's dataset ended after {self.consumed} elements: give more, or wrap it in "
                "ipu_infeed_queue.repeat"
            )
        return self._checked(element)

    def _checked(self, element: Any) -> Arrays:
        """Return the arrays of an element; raises ModelError and ProgramError for another form than the first has."""
        arrays = self.arrays(element)
        if len(arrays) != len(self._forms):
            raise ModelError(f"expected {len(self._forms)} arrays in each element of the infeed, got {len(arrays)}")
        for array, (shape, dtype) in zip(arrays, self._forms, strict=True):
            if array.shape != shape:
                raise ProgramError(
                    f"Output shape {_common(array.shape, shape)} is not fully defined. If using tf.Dataset.batch, set "
                    "`drop_remainder=True`."
                )
            if array.dtype != dtype:
                raise ModelError(f"expected {dtype} in each element of the infeed, got {array.dtype}")
        return arrays

    def arrays(self, element: Any) -> Arrays:
        """Return an element of the dataset as arrays, in the order of the first stage's arguments.

        Raises ProgramError and ProgramTypeError for an element of another structure than the first, or a nested one.
        """
        values = element
        if isinstance(element, Mapping):
            if set(element) != set(self.keywords):
                names = ", ".join(self.keywords)
                checks.wrong_value("dataset", f"arrays by the names {names} in each element", list(element))
            values = tuple(element[name] for name in self.keywords)
        elif self.keywords:
            checks.wrong_type("dataset", "a dictionary in each element, as the first is one", element)
        elif not isinstance(element, tuple | list):
            values = (element,)
        if any(isinstance(value, tuple | list | Mapping) for value in values):
            raise ProgramError("Nested list/tuple input shapes are not supported")
        if not values:
            checks.wrong_value("dataset", "an array or several in each element", element)
        return tuple(checks.numbers("dataset", value) for value in values)


def _iterator(dataset: Any) -> Iterator[Any]:
    """Return the elements of a dataset; raises ProgramTypeError for what has none, or is one text or dictionary."""
    if not isinstance(dataset, str | bytes | Mapping):
        with suppress(TypeError):
            return iter(dataset)
    raise ProgramTypeError(
        f"dataset: expected elements to iterate over, such as a list of arrays, got {type(dataset).__name__}"
    )


def _names(element: Mapping[Any, Any]) -> tuple[str, ...]:
    for name in element:
        checks.instance("dataset", name, str, "names of the first stage's arguments as keys of an element")
    return tuple(element)


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> str:
    """Return the shape that both have as TensorFlow prints it; axes that differ are not known."""
    if len(one) != len(other):
        return "<unknown>"
    axes = [str(a) if a == b else "None" for a, b in zip(one, other, strict=True)]
    return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"

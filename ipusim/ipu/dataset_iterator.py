"""Iterators of datasets, whose elements the host takes, runs of a session, or in a loop the program's infeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from ipusim.errors import EndOfDataError, ModelError, ProgramStateError
from ipusim.ipu.function_body import body_of_function
from ipusim.ipu.host import Examples, Fetch, Running, Tensor, reading
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.structures import leaves
from ipusim.model.layers.layer import Array


class DatasetIterator:
    """The elements of a dataset from the first on, each once, whoever takes it."""

    def __init__(self, elements: Iterator[Any]) -> None:
        """Take them."""
        self._elements = elements
        self._infeed: IPUInfeedQueue | None = None
        self._first: Any = None

    def __iter__(self) -> DatasetIterator:
        """Return itself."""
        return self

    def __next__(self) -> Any:
        """Return the next element; in a loop on the device that of the iteration.

        Raises StopIteration at the end on the host, ModelError on the device.
        """
        body = body_of_function()
        if body is not None:
            return self.packed(body.next_element(self))
        if self._infeed is None:
            return next(self._elements)
        return self.packed(self._infeed.take(self._infeed.consumed))

    get_next = __next__

    @property
    def infeed(self) -> IPUInfeedQueue:
        """The queue that takes the elements to the device from now on; raises as IPUInfeedQueue does."""
        if self._infeed is None:
            self._infeed = IPUInfeedQueue(self._noting_the_first())
        return self._infeed

    def packed(self, arrays: Any) -> Any:
        """Return the arrays of an element in the dataset's structure."""
        if isinstance(self._first, Mapping):
            return dict(zip(self._first, arrays, strict=True))
        return tuple(arrays) if isinstance(self._first, tuple | list) else arrays[0]

    def _noting_the_first(self) -> Iterator[Any]:
        for element in self._elements:
            if self._first is None:
                self._first = element
            yield element


class SessionIterator:
    """The elements of a dataset, which runs of a session take.

    Arguments:
        begin: returns the elements from the first on.
        ready: whether it has begun; else a session runs its ``initializer`` first, each time anew.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], ready: bool = False) -> None:
        """Take what begins."""
        self._begin, self._ready = begin, ready
        self._elements: Iterator[Any] | None = None

    @property
    def initializer(self) -> Fetch:
        """The operation that begins with the first element, from what placeholders are fed in its run."""
        return _Beginning(self)

    def get_next(self, name: str | None = None) -> Any:
        """Return tensors of the host in the structure of an element: those of the next one in each run of a session.

        Raises ModelError for a dataset without elements.
        """
        with reading(Examples()):
            first = next(self._begin(), None)
        if first is None:
            raise ModelError("get_next: expected a dataset with elements, got none")
        element = _NextElement(self)
        if isinstance(first, Mapping):
            return {key: _PartOfElement(element, key, each) for key, each in first.items()}
        if isinstance(first, tuple):
            return tuple(_PartOfElement(element, place, each) for place, each in enumerate(first))
        return _PartOfElement(element, None, first)

    def begin(self, running: Running) -> None:
        """Begin anew, with what is fed in a run; the first element is read at once."""
        with reading(running):
            elements = self._begin()
            self._elements = chain(list(_first(elements)), elements)

    def take(self, running: Running) -> Any:
        """Return the next element; raises EndOfDataError at the end, ProgramStateError before the beginning."""
        if self._elements is None and self._ready:
            self.begin(running)
        if self._elements is None:
            raise ProgramStateError(
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                "initializer operation for this iterator before getting the next element."
            )
        for element in self._elements:
            return element
        raise EndOfDataError("End of sequence")


def _first(elements: Iterator[Any]) -> Iterator[Any]:
    for element in elements:
        yield element
        return


class _Beginning(Fetch):
    """The operation that lets an iterator begin."""

    name = "MakeIterator"

    def __init__(self, iterator: SessionIterator) -> None:
        self._iterator = iterator

    def evaluate(self, running: Running) -> None:
        self._iterator.begin(running)


class _NextElement(Fetch):
    """The next element of an iterator, which is the same wherever it is used in a run."""

    def __init__(self, iterator: SessionIterator) -> None:
        self._iterator = iterator

    def evaluate(self, running: Running) -> Any:
        return self._iterator.take(running)


class _PartOfElement(Tensor):
    """One of the arrays of the next element."""

    def __init__(self, element: _NextElement, key: Any, example: Any) -> None:
        arrays = list(leaves(example))
        if len(arrays) != 1:
            raise ModelError("get_next: expected arrays in each element, or a tuple or dictionary of arrays")
        super().__init__(arrays[0])
        self._element, self._key = element, key

    def evaluate(self, running: Running) -> Array:
        element = running.value(self._element)
        found: Array = element if self._key is None else element[self._key]
        return found

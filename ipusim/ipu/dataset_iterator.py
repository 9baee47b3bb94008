"""An iterator of a dataset, whose elements the host takes, or in a loop on the device the program's infeed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ipusim.ipu.function_body import body_of_function
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue


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

"""Elements of datasets: arrays, tuples of arrays, and dictionaries of arrays, and what methods make of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, Final

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import EndOfDataError, ModelError, ProgramStateError
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.function_body import body_of_function
from ipusim.ipu.runtime.host import Examples, Fetch, Running, Tensor, evaluated, reading
from ipusim.ipu.runtime.narrowing import as_tensor
from ipusim.ipu.runtime.offered import lack
from ipusim.ipu.runtime.program_state import at_once
from ipusim.ipu.runtime.small_integers import as_tensorflow_divides
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.tensor_shape import TensorShape
from ipusim.ipu.tensorflow.array_functions import tensor

Element = Any

#: What is said of a dataset's number of elements where it has no end, or where it is not known.
INFINITE_CARDINALITY: Final = -1
UNKNOWN_CARDINALITY: Final = -2


def element_of(value: Any) -> Element:
    """Return a tuple or dictionary of arrays, or an array; a list is one array, of tensors of the host a tuple.

    Tensors of the host stay, which have a value when the dataset begins.
    """
    if isinstance(value, Mapping):
        return {name: element_of(item) for name, item in value.items()}
    if isinstance(value, tuple) or (isinstance(value, list) and any(isinstance(item, Tensor) for item in value)):
        return tuple(map(element_of, value))
    if isinstance(value, np.generic | Tensor):
        return value
    return as_tensor(tensor(value, "element"))


def result_of(value: Any) -> Element:
    """Return the element that a program's function gives; a list is a tuple, as several results are."""
    return element_of(tuple(value) if isinstance(value, list) else value)


def now(element: Element) -> Element:
    """Return an element with the values that tensors of the host have in the run of a session that goes on."""
    return mapped(evaluated, element) if any(isinstance(leaf, Tensor) for leaf in leaves(element)) else element


def typed(value: Any, types: Any) -> Element:
    """Return a value in dtypes, which are in a structure like its own."""
    if isinstance(types, Mapping):
        return {name: typed(value[name], item) for name, item in types.items()}
    if isinstance(types, tuple | list):
        return tuple(typed(item, kind) for item, kind in zip(value, types, strict=True))
    kind = types if isinstance(types, type) else getattr(types, "dtype", types)  # of a specification
    return np.asarray(value, checks.dtype("output_types", kind, "biuf"))


def together(datasets: Any) -> Iterator[Element]:
    """Yield an element of each dataset of a structure in its place there, until the shortest ends."""
    for elements in zip(*leaves(datasets), strict=False):
        following = iter(elements)
        yield mapped(partial(_following, following), datasets)


def _following(elements: Iterator[Any], _: object) -> Any:
    return next(elements)


def check_shapes(element: Element, shapes: Any) -> None:
    """Refuse an element whose arrays have other shapes than those said, in a structure like its own; None says none.

    Raises ValueError.
    """
    if shapes is None:
        return
    if isinstance(element, Mapping):
        for name, part in element.items():
            check_shapes(part, _of(shapes, name))
    elif isinstance(element, tuple):
        for part, shape in zip(element, shapes, strict=True):
            check_shapes(part, shape)
    else:
        shape = getattr(shapes, "shape", shapes)  # of a specification
        if shape is not None and not TensorShape(shape).takes(np.shape(element)):
            raise ValueError(f"expected an array of shape {tuple(TensorShape(shape))}, got {np.shape(element)}")


def applied(function: Callable[..., Any], *elements: Element) -> Element:
    """Return an element of what ``function`` makes of the arrays in the same place of all elements."""
    first = elements[0]
    if isinstance(first, np.ndarray):  # told first: most are
        return function(*elements)
    if isinstance(first, Mapping):
        return {name: applied(function, *(element[name] for element in elements)) for name in first}
    if isinstance(first, tuple):
        return tuple(applied(function, *parts) for parts in zip(*elements, strict=True))
    return function(*elements)


def rows(element: Element, count: int) -> Iterator[Element]:
    """Return the ``count`` elements along the first axis of all arrays."""
    if isinstance(element, Mapping):
        parts = rows(tuple(element.values()), count)
        return (dict(zip(element, part, strict=True)) for part in parts)
    if isinstance(element, tuple) and element:
        return zip(*(rows(part, count) for part in element), strict=True)
    return repeat((), count) if isinstance(element, tuple) else iter(element)


def stacked(elements: Sequence[Element]) -> Element:
    """Return the arrays of elements on top of each other; raises ModelError for other shapes."""
    with functions.Failing("batch: elements that cannot be stacked"):
        return applied(lambda *arrays: np.stack(arrays), *elements)


def padded(elements: Sequence[Element], shapes: Any, values: Any) -> Element:
    """Return elements stacked, with each array padded at its end to a shape, or to the longest one.

    Raises ModelError for an array that is larger than its shape.
    """
    with functions.Failing("padded_batch: elements that cannot be padded"):
        return _padded(elements, shapes, values)


def _padded(elements: Sequence[Any], shapes: Any, values: Any) -> Any:
    first = elements[0]
    if isinstance(first, Mapping):
        names = {name: (_of(shapes, name), _of(values, name)) for name in first}
        return {name: _padded([element[name] for element in elements], *own) for name, own in names.items()}
    if isinstance(first, tuple):
        own = ((_of(shapes, index), _of(values, index)) for index in range(len(first)))
        return tuple(_padded(parts, *item) for parts, item in zip(zip(*elements, strict=True), own, strict=True))
    arrays = list(map(np.asarray, elements))
    longest = np.max([array.shape for array in arrays], axis=0)
    target = [None] * len(longest) if shapes is None else np.atleast_1d(np.asarray(shapes, object))
    sizes = [int(long if size in (None, -1) else size) for long, size in zip(longest, target, strict=True)]
    result = np.full((len(arrays), *sizes), 0 if values is None else values, arrays[0].dtype)
    for index, array in enumerate(arrays):
        if any(size > most for size, most in zip(array.shape, sizes, strict=True)):
            raise ValueError(f"expected at most shape {tuple(sizes)}, got {array.shape}")
        corner: Any = (index, *(slice(size) for size in array.shape))
        result[corner] = array
    return result


def _of(structure: Any, key: Any) -> Any:
    """Return the part of a structure of shapes or values, where it is one and not the same for all."""
    return structure[key] if isinstance(structure, tuple | Mapping) else structure


def called(name: str, function: Callable[..., Any], element: Element) -> Any:
    """Return what a user's function gives for an element; raises ModelError, with its name, where it fails."""
    with functions.Failing(f"{name} failed"), at_once():
        given = as_tensorflow_divides(element)
        return function(*given) if isinstance(given, tuple) else function(given)


def drawn(waiting: list[Element], rng: np.random.Generator) -> Element:
    """Return one of the elements that wait, which is no longer among them."""
    index = int(rng.integers(len(waiting)))
    waiting[index], waiting[-1] = waiting[-1], waiting[index]
    return waiting.pop()


def taking_turns(sources: Iterator[Iterator[Element]], cycle: int, block: int) -> Iterator[Element]:
    """Yield ``block`` elements of each of ``cycle`` sources in turn; where one ends, the next one takes its place."""
    waiting = deque(islice(sources, cycle))
    while waiting:
        source = waiting.popleft()
        elements = list(islice(source, block))
        yield from elements
        if len(elements) == block:
            waiting.append(source)
        else:
            waiting.extend(islice(sources, 1))


def windows(source: Iterator[Element], size: int, shift: int, stride: int) -> Iterator[list[Element]]:
    """Yield ``size`` elements ``stride`` places apart, each time ``shift`` places further; at the end fewer."""
    waiting: list[Element] = []
    while True:
        waiting += islice(source, max((size - 1) * stride + 1 - len(waiting), 0))
        if not waiting:
            return
        yield waiting[::stride][:size]
        deque(islice(source, max(shift - len(waiting), 0)), maxlen=0)
        waiting = waiting[shift:]


class _Lacking(type):
    """The class of a class that says which of TensorFlow's names are not simulated."""

    def __getattr__(cls, name: str) -> Any:
        """Refuse it; raises MissingNameError."""
        lack("tf.data.Dataset", name, dir(cls))


class Simulated(metaclass=_Lacking):
    """What says which of the names of TensorFlow's datasets are not simulated."""

    def __getattr__(self, name: str) -> Any:
        """Refuse it; raises MissingNameError."""
        lack("tf.data.Dataset", name, dir(self))


class DatasetIterator:
    """An iterator over a dataset from its first element, shared by all its readers."""

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

    Args:
        begin: returns the elements from the first on.
        ready: whether it has begun; else a session runs its ``initializer`` first, each time anew.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], ready: bool = False) -> None:
        """Take what begins."""
        self._begin, self._ready = begin, ready
        self._elements: Iterator[Any] | None = None
        self._kept: list[Element] = []

    @property
    def initializer(self) -> Fetch:
        """The operation that begins with the first element, from what placeholders are fed in its run."""
        return _Step("MakeIterator", self.begin)

    def get_next(self, name: str | None = None) -> Any:
        """Return tensors of the host in the structure of an element: those of the next one in each run of a session.

        Raises ModelError for a dataset without elements.
        """
        first = self._first()
        if first is None:
            raise ModelError("get_next: expected a dataset with elements, got none")
        element = _Step("IteratorGetNext", self.take)
        if isinstance(first, Mapping):
            return {key: _PartOfElement(element, key, item) for key, item in first.items()}
        if isinstance(first, tuple):
            return tuple(_PartOfElement(element, index, item) for index, item in enumerate(first))
        return _PartOfElement(element, None, first)

    def _first(self) -> Element | None:
        """Return the first element, or one of its form; None where there is none.

        One that has begun keeps it for the first run, as what it comes from may not be gone through twice.
        """
        if not self._ready:
            with reading(Examples()):
                return next(self._begin(), None)
        if self._elements is None:
            elements = self._begin()
            self._kept = list(islice(elements, 1))
            self._elements = chain(self._kept, elements)
        return self._kept[0] if self._kept else None

    def begin(self, running: Running) -> None:
        """Begin anew, with what is fed in a run; the first element is read at once."""
        with reading(running):
            elements = self._begin()
            self._elements = chain(list(islice(elements, 1)), elements)

    def take(self, running: Running) -> Any:
        """Return the next element; raises EndOfDataError at the end, ProgramStateError before the beginning."""
        if self._elements is None:
            raise ProgramStateError(
                "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                "initializer operation for this iterator before getting the next element."
            )
        for element in self._elements:
            return element
        raise EndOfDataError("End of sequence")


class _Step(Fetch):
    """A step of an iterator, which is made once in a run, wherever it is used: its beginning, or its next element."""

    def __init__(self, name: str, step: Callable[[Running], Any]) -> None:
        self.name, self._step = name, step

    def evaluate(self, running: Running) -> Any:
        return self._step(running)


class _PartOfElement(Tensor):
    """One of the arrays of the next element."""

    def __init__(self, element: _Step, key: Any, example: Any) -> None:
        arrays = list(leaves(example))
        if len(arrays) != 1:
            raise ModelError("get_next: expected arrays in each element, or a tuple or dictionary of arrays")
        super().__init__(arrays[0])
        self._element, self._key = element, key

    def evaluate(self, running: Running) -> Array:
        element = running.value(self._element)
        result: Array = element if self._key is None else element[self._key]
        return result

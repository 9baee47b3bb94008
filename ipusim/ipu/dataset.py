"""Datasets in TensorFlow's names: where elements come from, and what becomes of them on the way to a queue.

An element is an array, a tuple of arrays, or a dictionary of arrays. Each way through a dataset begins anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ipusim.errors import ModelError
from ipusim.ipu import checks
from ipusim.ipu.dataset_iterator import DatasetIterator
from ipusim.ipu.structures import leaves
from ipusim.ipu.traced import as_tensor
from ipusim.model.functions.users_code import Failing

Element = Any


class Dataset:
    """A stream of elements.

    Arguments:
        begin: returns an iterator from the first element on.
        endless: whether it is known to have no end.
    """

    def __init__(self, begin: Callable[[], Iterator[Element]], endless: bool = False) -> None:
        """Take what begins."""
        self._begin, self.endless = begin, endless

    def __iter__(self) -> DatasetIterator:
        """Go through the elements from the first on, on the host or in a loop on the device."""
        return DatasetIterator(self._begin())

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """Return a dataset of one element."""
        element = _element(tensors)
        return Dataset(lambda: iter([element]))

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """Return a dataset of an element for each place along the first axis, which is as long in all arrays.

        Raises ProgramError for arrays of other lengths, or without an axis.
        """
        element = _element(tensors)
        lengths = {len(array) if array.ndim else -1 for array in leaves(element)}
        if len(lengths) != 1 or -1 in lengths:
            checks.wrong_value("tensors", "arrays that are equally long along their first axis", sorted(lengths))
        return Dataset(lambda: (_at(element, place) for place in range(*lengths)))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = (),
    ) -> Dataset:
        """Return a dataset of what ``generator(*args)`` yields, in the types given; shapes are those that come."""
        if not callable(generator):
            checks.wrong_type("generator", "a function that returns something to iterate over", generator)
        if not isinstance(args, list | tuple):
            checks.wrong_type("args", "a tuple of the generator's arguments", args)

        def begin() -> Iterator[Element]:
            for value in generator(*args):
                with Failing("generator: a value that is not of the output_types"):
                    element = _element(value) if output_types is None else _typed(value, output_types)
                yield element

        return Dataset(begin)

    @staticmethod
    def range(*args: int) -> Dataset:
        """Return a dataset of whole numbers, as Python's range has them."""
        numbers = range(*args)
        return Dataset(lambda: (np.int64(number) for number in numbers))

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Return a dataset of tuples of an element of each, as long as the shortest."""
        if not isinstance(datasets, list | tuple) or not all(isinstance(each, Iterable) for each in datasets):
            checks.wrong_type("datasets", "a tuple of datasets", datasets)
        endless = bool(datasets) and all(map(_is_endless, datasets))
        return Dataset(lambda: zip(*datasets, strict=False), endless)

    def map(
        self, map_func: Callable[..., Any], num_parallel_calls: int | None = None, deterministic: object = None
    ) -> Dataset:
        """Return a dataset of ``map_func`` of each element; the arrays of a tuple are its arguments, one each."""
        if not callable(map_func):
            checks.wrong_type("map_func", "a function of an element", map_func)
        return Dataset(
            lambda: (_element(_called("map_func", map_func, element)) for element in self._begin()), self.endless
        )

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Return a dataset of the elements for which ``predicate`` holds."""
        if not callable(predicate):
            checks.wrong_type("predicate", "a function of an element", predicate)
        return Dataset(
            lambda: (element for element in self._begin() if _called("predicate", predicate, element)), self.endless
        )

    def shuffle(
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """Return a dataset in another order: each element is drawn from the next ``buffer_size``.

        The order is drawn from ``seed``, 0 without one, and is another one each time that it is gone through.
        """
        checks.whole("buffer_size", buffer_size, 1)
        key = 0 if seed is None else checks.whole("seed", seed)
        times = itertools.count() if reshuffle_each_iteration is not False else itertools.repeat(0)

        def begin() -> Iterator[Element]:
            rng = np.random.default_rng([key, next(times)])
            source, held = self._begin(), []
            for element in source:
                held.append(element)
                if len(held) > buffer_size:
                    yield _drawn(held, rng)
            while held:
                yield _drawn(held, rng)

        return Dataset(begin, self.endless)

    def repeat(self, count: int | None = None) -> Dataset:
        """Return a dataset that begins anew ``count`` times, None or -1 without end."""
        times = -1 if count is None else checks.integer("count", count)

        def begin() -> Iterator[Element]:
            for _ in itertools.count() if times < 0 else range(times):
                empty = True
                for element in self._begin():
                    empty = False
                    yield element
                if empty:
                    if times < 0:
                        raise ModelError("repeat: expected a dataset with elements, got none")
                    return

        return Dataset(begin, times < 0 or (times > 0 and self.endless))

    def batch(self, batch_size: int, drop_remainder: bool = False, **_: object) -> Dataset:
        """Return a dataset of ``batch_size`` elements stacked; a rest that is shorter is one, or is dropped."""
        checks.whole("batch_size", batch_size, 1)
        checks.truth("drop_remainder", drop_remainder)

        def begin() -> Iterator[Element]:
            source = self._begin()
            while elements := list(itertools.islice(source, batch_size)):
                if len(elements) == batch_size or not drop_remainder:
                    yield _stacked(elements)

        return Dataset(begin, self.endless)

    def take(self, count: int) -> Dataset:
        """Return the first elements, all for -1."""
        number = checks.whole("count", count, -1)
        if number < 0:
            return Dataset(self._begin, self.endless)
        return Dataset(lambda: itertools.islice(self._begin(), number))

    def skip(self, count: int) -> Dataset:
        """Return all but the first elements."""
        number = checks.whole("count", count)
        return Dataset(lambda: itertools.islice(self._begin(), number, None), self.endless)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Return each ``num_shards``-th element from number ``index`` on; raises ProgramError for another number."""
        count, first = checks.whole("num_shards", num_shards, 1), checks.whole("index", index)
        if first >= count:
            checks.wrong_value("index", f"a number below num_shards, {count}", first)
        return Dataset(lambda: itertools.islice(self._begin(), first, None, count), self.endless)

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Return the elements of this and then those of another."""
        if not isinstance(dataset, Iterable):
            checks.wrong_type("dataset", "a dataset", dataset)
        return Dataset(lambda: itertools.chain(self._begin(), dataset), self.endless or _is_endless(dataset))

    def enumerate(self, start: int = 0) -> Dataset:
        """Return pairs of a number and an element."""
        first = checks.whole("start", start)
        return Dataset(
            lambda: ((np.int64(number), element) for number, element in enumerate(self._begin(), first)), self.endless
        )

    def prefetch(self, buffer_size: int) -> Dataset:
        """Return the dataset: what the host prepares ahead takes no simulated time."""
        return self

    def cache(self, filename: str = "") -> Dataset:
        """Return the dataset."""
        return self

    def with_options(self, options: object) -> Dataset:
        """Return the dataset."""
        return self


def _is_endless(elements: Iterable[Any]) -> bool:
    return isinstance(elements, Dataset) and elements.endless


def _element(value: Any) -> Element:
    """Return a tuple or dictionary of arrays, or an array; a list is a tuple, as what map's function returns is."""
    if isinstance(value, Mapping):
        return {name: _element(each) for name, each in value.items()}
    if isinstance(value, tuple) or (isinstance(value, list) and any(np.ndim(each) for each in value)):
        return tuple(map(_element, value))
    return as_tensor(checks.numbers("element", value)) if not isinstance(value, np.generic) else value


def _typed(value: Any, types: Any) -> Element:
    if isinstance(types, Mapping):
        return {name: _typed(value[name], each) for name, each in types.items()}
    if isinstance(types, tuple | list):
        return tuple(_typed(each, kind) for each, kind in zip(value, types, strict=True))
    return np.asarray(value, checks.dtype("output_types", types, "biuf"))


def _mapped(function: Callable[..., Any], *elements: Element) -> Element:
    first = elements[0]
    if isinstance(first, np.ndarray):  # told first: most are
        return function(*elements)
    if isinstance(first, Mapping):
        return {name: _mapped(function, *(each[name] for each in elements)) for name in first}
    if isinstance(first, tuple):
        return tuple(_mapped(function, *parts) for parts in zip(*elements, strict=True))
    return function(*elements)


def _at(element: Element, place: int) -> Element:
    return _mapped(lambda array: array[place], element)


def _stacked(elements: list[Element]) -> Element:
    with Failing("batch: elements that cannot be stacked"):
        return _mapped(lambda *arrays: np.stack(arrays), *elements)


def _called(name: str, function: Callable[..., Any], element: Element) -> Any:
    """Return what a user's function gives for an element; raises ModelError, with its name, where it fails."""
    with Failing(f"{name} failed"):
        return function(*element) if isinstance(element, tuple) else function(element)


def _drawn(held: list[Element], rng: np.random.Generator) -> Element:
    place = int(rng.integers(len(held)))
    held[place], held[-1] = held[-1], held[place]
    return held.pop()

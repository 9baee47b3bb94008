"""Datasets in TensorFlow's names: where elements come from, and what becomes of them on the way to a queue.

An element is an array, a tuple of arrays, or a dictionary of arrays. Each way through a dataset begins anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import partial
from typing import Any

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import ModelError, ProgramTypeError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.program_state import at_once
from ipusim.ipu.runtime.structures import leaves
from ipusim.ipu.tensorflow.dataset_elements import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    DatasetIterator,
    Element,
    SessionIterator,
    Simulated,
    applied,
    called,
    check_shapes,
    drawn,
    element_of,
    now,
    padded,
    result_of,
    rows,
    stacked,
    taking_turns,
    together,
    typed,
    windows,
)


class Dataset(Simulated):
    """A stream of elements.

    Args:
        begin: returns an iterator from the first element on.
        length: how many elements it has, None where that is not known, infinite where it is known to have no end.
    """

    def __init__(self, begin: Callable[[], Iterator[Element]], length: float | None = None) -> None:
        """Take what begins."""
        self._begin, self.length = begin, length

    @property
    def endless(self) -> bool:
        """Whether it is known to have no end."""
        return self.length == math.inf

    def __len__(self) -> int:
        """Return how many elements it has; raises ProgramTypeError where it has no end or that is not known."""
        if self.length is None or self.endless:
            raise ProgramTypeError(f"The dataset {'is infinite' if self.endless else 'length is unknown'}.")
        return int(self.length)

    def cardinality(self) -> np.int64:
        """Return how many elements it has, as far as that is known."""
        length = UNKNOWN_CARDINALITY if self.length is None else self.length
        return np.int64(INFINITE_CARDINALITY if self.endless else length)

    def __bool__(self) -> bool:
        """Return that there is a dataset, also where it has no elements."""
        return True

    def __iter__(self) -> DatasetIterator:
        """Go through the elements from the first on, on the host or in a loop on the device."""
        return DatasetIterator(self._begin())

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """Return a dataset of one element."""
        element = element_of(tensors)
        return Dataset(lambda: iter([now(element)]), 1)

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """Return a dataset of an element for each place along the first axis, which is as long in all arrays.

        Raises ProgramError for arrays of other lengths, or without an axis.
        """
        element = element_of(tensors)
        lengths = {array.shape[0] if array.shape else -1 for array in leaves(element)}
        if len(lengths) != 1 or -1 in lengths:
            checks.wrong_value("tensors", "arrays that are equally long along their first axis", lengths)
        (length,) = lengths

        def begin() -> Iterator[Element]:
            arrays = now(element)
            return rows(arrays, len(next(leaves(arrays))))

        return Dataset(begin, length)

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = (),
        output_signature: Any = None,
    ) -> Dataset:
        """Return a dataset of what ``generator(*args)`` yields, in the types given.

        ``output_signature`` says types and shapes as specifications, such as ``tf.TensorSpec``. An
        element that contradicts them is refused when it comes, by a ModelError.
        """
        checks.function("generator", generator, "a function that returns something to iterate over")
        checks.instance("args", args, list | tuple, "a tuple of the generator's arguments")

        types = output_types if output_signature is None else output_signature
        shapes = output_shapes if output_signature is None else output_signature

        def begin() -> Iterator[Element]:
            for value in generator(*args):
                with functions.Failing("generator: a value that is not of the output_types and output_shapes"):
                    element = result_of(value) if types is None else typed(value, types)
                    check_shapes(element, shapes)
                yield element

        return Dataset(begin)

    @staticmethod
    def range(*args: int, output_type: Any = np.int64, name: str | None = None) -> Dataset:
        """Return a dataset of numbers of a dtype, as Python's range has them."""
        numbers, kind = range(*args), checks.dtype("output_type", output_type, "iuf").type
        return Dataset(lambda: map(kind, numbers), len(numbers))

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Return a dataset of an element of each in such a structure, as long as the shortest."""
        structure = tuple(datasets) if isinstance(datasets, list) else datasets
        every = list(leaves(structure))
        if not isinstance(structure, tuple | dict) or not all(isinstance(dataset, Iterable) for dataset in every):
            checks.wrong_type("datasets", "a tuple of datasets", datasets)
        lengths = list(map(_length, every))
        known = [length for length in lengths if length is not None]
        length = min(known, default=0.0) if len(known) == len(lengths) else None
        return Dataset(lambda: together(structure), length)

    def map(
        self, map_func: Callable[..., Any], num_parallel_calls: int | None = None, deterministic: object = None
    ) -> Dataset:
        """Return a dataset of ``map_func`` of each element; the arrays of a tuple are its arguments, one each."""
        checks.function("map_func", map_func, "a function of an element")
        return Dataset(
            lambda: (result_of(called("map_func", map_func, element)) for element in self._begin()), self.length
        )

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int = 1,
        num_parallel_calls: int | None = None,
        deterministic: object = None,
    ) -> Dataset:
        """Return a dataset that takes ``block_length`` elements in turn of the datasets that ``map_func`` returns.

        ``cycle_length`` of them take turns, by default as many as ``num_parallel_calls`` says, or one.
        """
        ahead = num_parallel_calls if num_parallel_calls is not None and num_parallel_calls > 0 else 1
        cycle = checks.whole("cycle_length", ahead if cycle_length in (None, -1) else cycle_length, 1)
        block = checks.whole("block_length", block_length, 1)
        checks.function("map_func", map_func, "a function from an element to a dataset")

        def sources() -> Iterator[Iterator[Element]]:
            for element in self._begin():
                source = called("map_func", map_func, element)
                checks.instance("map_func", source, Dataset, "a function from an element to a dataset")
                yield source._begin()

        return Dataset(lambda: taking_turns(sources(), cycle, block), self._unknown)

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """Return a dataset of the elements of the datasets that ``map_func`` returns, one after the other."""
        return self.interleave(map_func)

    def unbatch(self) -> Dataset:
        """Return a dataset of the places along the first axis of each element."""
        return self.flat_map(lambda *arrays: Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0]))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Return a dataset of the elements for which ``predicate`` holds."""
        checks.function("predicate", predicate, "a function of an element")
        return Dataset(lambda: filter(partial(called, "predicate", predicate), self._begin()), self._unknown)

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
            waiting: list[Element] = []
            for element in self._begin():
                waiting.append(element)
                if len(waiting) >= buffer_size:
                    yield drawn(waiting, rng)
            while waiting:
                yield drawn(waiting, rng)

        return Dataset(begin, self.length)

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

        if times <= 0:
            return Dataset(begin, math.inf if times else 0)
        return Dataset(begin, None if self.length is None else times * self.length)

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Return a dataset of ``batch_size`` elements stacked; a rest that is shorter is one, or is dropped.

        ``num_parallel_calls`` and ``deterministic`` are without effect.
        """
        return self._in_batches(batch_size, drop_remainder, stacked)

    def padded_batch(
        self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False
    ) -> Dataset:
        """Return a dataset of ``batch_size`` elements stacked, filled up behind with ``padding_values``, 0 by default.

        Axes are as long as ``padded_shapes`` says, by default and for None or -1 as in the longest element of a batch.
        """
        return self._in_batches(
            batch_size, drop_remainder, lambda elements: padded(elements, padded_shapes, padding_values)
        )

    def _in_batches(self, batch_size: int, drop_remainder: bool, join: Callable[[list[Element]], Element]) -> Dataset:
        size, drop = checks.whole("batch_size", batch_size, 1), checks.truth("drop_remainder", drop_remainder)

        def begin() -> Iterator[Element]:
            source = self._begin()
            while elements := list(itertools.islice(source, size)):
                if len(elements) == size or not drop:
                    yield join(elements)

        if self.length is None or self.endless:
            return Dataset(begin, self.length)
        return Dataset(begin, self.length // size if drop else -(-self.length // size))

    def window(self, size: int, shift: int | None = None, stride: int = 1, drop_remainder: bool = False) -> Dataset:
        """Return a dataset of windows, each a dataset of ``size`` elements that are ``stride`` places apart.

        Each begins ``shift`` places behind the one before, by default ``size``; those at the end that are shorter are
        windows too, or are dropped. Of tuples and dictionaries each array has a dataset of its own in a window.
        """
        width, step = checks.whole("size", size, 1), checks.whole("stride", stride, 1)
        by = checks.whole("shift", width if shift is None else shift, 1)
        drop = checks.truth("drop_remainder", drop_remainder)

        def begin() -> Iterator[Element]:
            for elements in windows(self._begin(), width, by, step):
                if len(elements) == width or not drop:
                    yield applied(lambda *arrays: Dataset(lambda: iter(arrays), len(arrays)), *elements)

        if self.length is None or self.endless:
            return Dataset(begin, self.length)
        return Dataset(begin, max(-(-(self.length - drop * (width - 1) * step) // by), 0))

    def take(self, count: int) -> Dataset:
        """Return the first elements, all for -1."""
        number = checks.whole("count", count, -1)
        if number < 0:
            return Dataset(self._begin, self.length)
        length = None if self.length is None else min(number, self.length)
        return Dataset(lambda: itertools.islice(self._begin(), number), length)

    def take_while(self, predicate: Callable[..., Any]) -> Dataset:
        """Return the elements before the first one for which ``predicate`` does not hold."""
        checks.function("predicate", predicate, "a function of an element")
        return Dataset(lambda: itertools.takewhile(partial(called, "predicate", predicate), self._begin()))

    def skip(self, count: int) -> Dataset:
        """Return all but the first elements, none for -1."""
        number = checks.whole("count", count, -1)
        if number < 0:
            return Dataset(lambda: iter(()), 0)
        length = None if self.length is None else max(self.length - number, 0)
        return Dataset(lambda: itertools.islice(self._begin(), number, None), length)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Return each ``num_shards``-th element from number ``index`` on; raises ProgramError for another number."""
        count, first = checks.whole("num_shards", num_shards, 1), checks.whole("index", index)
        if first >= count:
            checks.wrong_value("index", f"a number below num_shards, {count}", first)
        length = self.length if self.length is None or self.endless else -(-max(self.length - first, 0) // count)
        return Dataset(lambda: itertools.islice(self._begin(), first, None, count), length)

    def concatenate(self, dataset: Dataset) -> Dataset:
        """Return the elements of this and then those of another."""
        checks.instance("dataset", dataset, Iterable, "a dataset")
        lengths = self.length, _length(dataset)
        length = math.inf if math.inf in lengths else None if None in lengths else sum(filter(None, lengths))
        return Dataset(lambda: itertools.chain(self._begin(), dataset), length)

    def enumerate(self, start: int = 0) -> Dataset:
        """Return pairs of a number and an element."""
        first = checks.whole("start", start)
        return Dataset(
            lambda: ((np.int64(number), element) for number, element in enumerate(self._begin(), first)), self.length
        )

    def prefetch(self, buffer_size: int) -> Dataset:
        """Return the dataset: what the host prepares ahead takes no simulated time."""
        return self

    def cache(self, filename: str = "") -> Dataset:
        """Return a dataset whose elements are those of its first time from beginning to end, kept in memory."""
        if self.endless:
            return self
        whole: list[list[Element]] = []

        def begin() -> Iterator[Element]:
            if whole:
                yield from whole[0]
                return
            elements = []
            for element in self._begin():
                elements.append(element)
                yield element
            whole[:] = [elements]

        return Dataset(begin, self.length)

    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any]) -> Any:
        """Return what ``reduce_func`` of a state and each element in turn gives at last."""
        state = element_of(initial_state)
        for element in self._begin():
            with functions.Failing("reduce_func failed"), at_once():
                state = result_of(reduce_func(state, element))
        return state

    def apply(self, transformation_func: Callable[[Dataset], Any]) -> Any:
        """Return what a function makes of the dataset."""
        return transformation_func(self)

    def as_numpy_iterator(self) -> Iterator[Element]:
        """Return an iterator of the elements, in arrays."""
        return self._begin()

    def make_one_shot_iterator(self) -> SessionIterator:
        """Return an iterator whose elements runs of a session take."""
        return SessionIterator(self._begin, ready=True)

    def make_initializable_iterator(self, shared_name: str | None = None) -> SessionIterator:
        """Return an iterator whose elements runs of a session take, once one has run its ``initializer``."""
        return SessionIterator(self._begin)

    def with_options(self, options: object) -> Dataset:
        """Return the dataset."""
        return self

    @property
    def _unknown(self) -> float | None:
        """The length of what may have fewer elements for each, or more."""
        return math.inf if self.endless else None


def _length(elements: Iterable[Any]) -> float | None:
    if isinstance(elements, Dataset):
        return elements.length
    return len(elements) if isinstance(elements, Sized) else None

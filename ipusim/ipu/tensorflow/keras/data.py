"""The data of fit, evaluate and predict: arrays or a dataset, as batches of flat elements for the infeed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.program_state import seed_of
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.tensorflow.dataset import Dataset

#: Samples of a batch, where nothing says it, as in Keras.
_BATCH = 32


@dataclass(frozen=True)
class Element:
    """What a batch consists of: structures of whole numbers, each the place of an array in the flat element.

    Attributes:
        x, y, sample_weight: the structures; None for none.
    """

    x: Any
    y: Any
    sample_weight: Any

    def unpack(self, arrays: Sequence[Any] | Mapping[int, Any]) -> tuple[Any, Any, Any]:
        """Return inputs, labels and weights, each in its structure; ``arrays`` are in their places or by these."""

        return _each_of(lambda index: arrays[index], (self.x, self.y, self.sample_weight))


def _each_of(function: Callable[[Any], Any], parts: Iterable[Any]) -> tuple[Any, Any, Any]:
    """Return x, y and sample_weight with a function of each of their leaves; None stays None."""
    x, y, sample_weight = (None if part is None else mapped(function, part) for part in parts)
    return x, y, sample_weight


def flat_element(batch: Any) -> tuple[Element, tuple[Array, ...]]:
    """Return what a batch of a dataset consists of, and its arrays: (x,), (x, y) or (x, y, sample_weight), or x."""
    arrays: list[Array] = []

    def append(array: Any) -> int:
        result = np.asarray(array)
        arrays.append(result.astype(np.float32) if result.dtype == np.float64 else result)
        return len(arrays) - 1

    parts = batch if isinstance(batch, tuple) else (batch,)
    if len(parts) > 3:
        raise ProgramError(
            "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y, sample_weight)`, found: "
            f"{len(parts)} values"
        )
    return Element(*_each_of(append, (*parts, None, None)[:3])), tuple(arrays)


class Batches:
    """Batches, epoch by epoch.

    Attributes:
        element: what a batch consists of.
        example: the first batch's arrays.
        steps: batches of an epoch of all replicas together; None where the dataset has no end.
        rest: the batch of fewer samples that ends an epoch; None where all are of one size.
    """

    def __init__(
        self,
        begin: Callable[[int], Iterator[Any]],
        first: Any,
        steps: int | None,
        goes_on: bool,
        rest: Batches | None = None,
    ) -> None:
        """Take what begins an epoch, the first batch, the batches of one, and whether epochs go on where they were."""
        self.rest = rest
        self.element, self.example = flat_element(first)
        if not self.example or not self.example[0].ndim:
            raise ProgramError("Expect x to be a non-empty array or dataset.")
        self.steps = steps
        self._begin, self._goes_on = begin, goes_on
        self._running: Iterator[Any] | None = None

    @property
    def samples(self) -> int:
        """The samples of a batch."""
        return len(self.example[0])

    def epoch(self, number: int) -> Iterator[tuple[Array, ...]]:
        """Yield the elements of an epoch."""
        if self._running is None or not self._goes_on:
            self._running = self._begin(number)
        for batch in self._running:
            yield flat_element(batch)[1]


def batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool = False,
    *,
    partial: bool = False,
) -> Batches:
    """Return the batches of arrays, reshuffled in each epoch if ``shuffle``, or those of a dataset.

    A dataset's batches are as it has them: as in Keras, ``batch_size`` is without effect there. Where a ``partial``
    batch may end an epoch, as it may for a model of the host, it is the ``rest`` of the others.

    Raises ProgramError and ProgramTypeError, in Graphcore's words where it has any, for a partial batch, for data
    whose shape is not known ahead, and for labels beside a dataset.
    """
    if steps is not None:
        checks.whole("steps", steps, 1)
    if x is None:
        raise ProgramError("Expect x to be a non-empty array or dataset.")
    if isinstance(x, Dataset):
        return _of_dataset(x, y, sample_weight, steps, partial)
    if hasattr(x, "__next__") or callable(x) or (not _is_arrays(x) and hasattr(x, "__getitem__")):
        raise ProgramError(
            f"The provided set of data is of type `{type(x).__name__}` which is not compatible with the IPU's "
            "requirement to know the data shape ahead of time. Please use `tf.data.Dataset.from_generator()` to "
            "specify the shape of your data."
        )
    return _of_arrays(x, y, sample_weight, batch_size, steps, shuffle, partial and steps is None)


def samples_of(x: Any) -> int:
    """Return how many samples the arrays of one batch have; raises ProgramError for a dataset, or what has none."""
    if x is None or isinstance(x, Dataset) or not _is_arrays(x):
        checks.wrong_type("x", "the arrays of one batch", x)
    lengths = [len(leaf) if np.ndim(leaf) else 0 for leaf in leaves(_as_structure(x))]
    if not any(lengths):
        raise ProgramError("Expect x to be a non-empty array or dataset.")
    return lengths[0]


def _is_arrays(x: Any) -> bool:
    return isinstance(x, np.ndarray | list | tuple | Mapping) or hasattr(x, "__array__")


def _of_dataset(dataset: Dataset, y: Any, sample_weight: Any, steps: int | None, partial: bool) -> Batches:
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ProgramError(f"`{name}` argument is not supported when using dataset as input.")
    if steps is None and dataset.endless:
        raise ProgramError(
            "When providing an infinite dataset, you must specify the number of steps to run (if you did not intend to "
            "create an infinite dataset, make sure to not call `repeat()` on the dataset)."
        )
    if steps is not None:
        begun = iter(dataset)
        first = next(begun, None)
        if first is None:
            raise ProgramError("Expect x to be a non-empty array or dataset.")
        waiting = [itertools.chain([first], begun)]  # begins with the element that was read already
        return Batches(lambda _: waiting.pop() if waiting else iter(dataset), first, None, goes_on=True)
    stored = list(dataset)
    if not stored:
        raise ProgramError("Expect x to be a non-empty array or dataset.")

    def begin(number: int) -> Iterator[Any]:
        return iter(stored) if number == 0 else iter(dataset)

    last, first = (flat_element(batch)[1][0].shape for batch in (stored[-1], stored[0]))
    if partial and last[1:] == first[1:] and last[0] < first[0]:
        return _with_rest(begin, stored[0], stored[-1], len(stored) - 1)
    if last != first:
        raise ProgramError(
            f"The provided set of data contains a shape {(None, *last[1:])} which is not fully defined. "
            "Executing on IPU requires all dataset elements to have fully defined shapes. If using batch() make sure "
            "to set `drop_remainder=True`."
        )
    return Batches(begin, stored[0], len(stored), goes_on=False)


def _with_rest(begin: Callable[[int], Iterator[Any]], first: Any, last: Any, steps: int) -> Batches:
    """Return the batches of an epoch but the last, of fewer samples, as the rest of so many others."""
    begun: list[Iterator[Any]] = []

    def begin_all(number: int) -> Iterator[Any]:
        begun[:] = [begin(number)]
        return itertools.islice(begun[0], steps)

    rest = Batches(lambda _number: begun[0], last, 1, goes_on=False)
    return Batches(begin_all, first, steps, goes_on=False, rest=rest)


def _of_arrays(
    x: Any, y: Any, sample_weight: Any, batch_size: Any, steps: int | None, shuffle: bool, partial: bool
) -> Batches:
    parts = _structures(x, y, sample_weight)
    lengths = [len(leaf) if np.ndim(leaf) else -1 for part in parts if part is not None for leaf in leaves(part)]
    if len(set(lengths)) != 1 or -1 in lengths:
        raise ProgramError(
            f"Data cardinality is ambiguous: sizes {', '.join(map(str, lengths))}. Make sure all arrays contain the "
            "same number of samples."
        )
    samples = lengths[0]
    of_steps = _BATCH if steps is None else max(-(-samples // steps), 1)
    size = of_steps if batch_size is None else checks.whole("batch_size", batch_size, 1)
    size = min(size, samples) if partial and samples else size
    if samples % size and not partial:
        raise ProgramError(
            "The provided set of data has a partial batch, which could result in data being dropped. Either adjust the "
            f"`batch_size` of your model (currently set to {size}) or pad your dataset to ensure there are no partial "
            "batches."
        )

    def begin(number: int) -> Iterator[Any]:
        order = np.random.default_rng([seed_of(None), number]).permutation(samples) if shuffle else None
        for start in range(0, samples, size):
            rows = slice(start, start + size) if order is None else order[start : start + size]
            yield _each_of(itemgetter(rows), parts)

    if not samples:
        raise ProgramError("Expect x to be a non-empty array or dataset.")

    def begin_all(number: int) -> Iterator[Any]:
        return itertools.chain.from_iterable(map(begin, itertools.count(number)))

    first = _each_of(itemgetter(slice(size)), parts)
    if samples % size:
        last = _each_of(itemgetter(slice(samples // size * size, samples)), parts)
        return _with_rest(begin, first, last, samples // size)
    # Where steps are said, an epoch goes on where the one before ended, among batches that follow without an end.
    some = steps is not None and steps * size < samples
    return Batches(begin_all if some else begin, first, samples // size, goes_on=some)


def _structures(*parts: Any) -> tuple[Any, Any, Any]:
    """Return x, y and sample_weight as structures of arrays, in float32 in place of float64."""
    return _each_of(_array, map(_as_structure, parts))


def _as_structure(part: Any) -> Any:
    """Return lists of arrays as such; a list of numbers is an array."""
    is_list = isinstance(part, list | tuple) and len(part) > 0
    if is_list and not all(hasattr(item, "__array__") and np.ndim(item) for item in part):
        return checks.numbers("data", part)
    return part


def _array(value: Any) -> Array:
    result = checks.numbers("data", value)
    return result.astype(np.float32) if result.dtype == np.float64 else result


def split_off(x: Any, y: Any, sample_weight: Any, share: float) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """Return the data of training and those of validation, the last ``share`` of arrays.

    Raises ProgramError for a share that is none or leaves nothing of one of both, or data that are no arrays.
    """
    if checks.not_negative("validation_split", share) > 1:
        checks.wrong_value("validation_split", "a share from 0 to 1", share)
    if isinstance(x, Dataset) or not _is_arrays(x):
        raise ProgramError(
            "`validation_split` is only supported for Tensors or NumPy arrays, found following types in the input: "
            f"[{type(x)}]"
        )
    parts = _structures(x, y, sample_weight)
    lengths = [len(leaf) for part in parts if part is not None for leaf in leaves(part)]
    at = int(np.floor(lengths[0] * (1.0 - share)))
    if at in (0, lengths[0]):
        raise ProgramError(
            f"Training data contains {lengths[0]} samples, which is not sufficient to split it into a validation and "
            f"training set as specified by `validation_split={share}`. Either provide more data, or a different value "
            "for the `validation_split` argument."
        )

    return _each_of(itemgetter(slice(at)), parts), _each_of(itemgetter(slice(at, None)), parts)


def by_class(x: Any, y: Any, sample_weight: Any, class_weight: Any) -> tuple[Any, Any, Any]:
    """Return data whose samples weigh as their classes, times weights that they have.

    Args:
        x, y, sample_weight: arrays, or in ``x`` a dataset of batches of two or all of them.
        class_weight: of each class number a weight; None for none.

    Raises ProgramError in Keras' words for other classes than numbers from 0, and for labels of several outputs or of
    more than two axes; ProgramTypeError for what is no dictionary.
    """
    if class_weight is None:
        return x, y, sample_weight
    weights = _table(class_weight)
    if not isinstance(x, Dataset):
        return x, y, _weighed(y, sample_weight, weights)

    def begin() -> Iterator[Any]:
        for element in x:
            parts = element if isinstance(element, tuple) else (element,)
            inputs, labels, values = (*parts, None, None)[:3]
            yield inputs, labels, _weighed(labels, values, weights)

    return Dataset(begin, x.length), y, sample_weight


def _table(class_weight: Any) -> Array:
    checks.instance("class_weight", class_weight, Mapping, "a dictionary of the weight of each class")
    if set(class_weight) != set(range(len(class_weight))):
        raise ProgramError(
            "Expected `class_weight` to be a dict with keys from 0 to one less than the number of classes, found "
            f"{class_weight}"
        )
    weights = [checks.not_negative("class_weight", class_weight[item]) for item in range(len(class_weight))]
    return np.asarray(weights, np.float32)


def _weighed(y: Any, sample_weight: Any, weights: Array) -> Array:
    """Return the weight of each sample; labels are class numbers, or rows of one for each class."""
    if y is None or isinstance(y, Mapping) or (isinstance(y, list | tuple) and any(np.ndim(item) for item in y)):
        raise ProgramError("`class_weight` is only supported for Models with a single output.")
    labels = checks.numbers("y", y)
    if labels.ndim > 2:
        raise ProgramError("`class_weight` not supported for 3+ dimensional targets.")
    if labels.ndim == 2:
        labels = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0]
    if not np.isfinite(labels).all():
        checks.wrong_value("y", "class numbers where there is a class_weight", labels)
    numbers = labels.astype(np.int64)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(weights):
        checks.wrong_value(
            "class_weight", f"a weight of each class up to {numbers.max()}", dict(enumerate(weights.tolist()))
        )
    result: Array = weights[numbers]
    return result if sample_weight is None else result * checks.numbers("sample_weight", sample_weight)

"""Measure how fast the host produces elements of a data set.

The measurement runs the program's input code on this computer and reads the wall clock, since a simulation cannot know
the speed of that code. To simulate a host as fast as this computer, write the rate into a scenario as
``system.host.data_rate``. All replicas share this rate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.queues import elements_anew

tf = load()
#: Nanoseconds per second.
_SECOND_NS: Final = 10**9


def dataset_benchmark(
    dataset: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_options: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """Measure how fast a data set produces elements; epochs follow one another without a restart.

    Args:
        dataset: a ``tf.data.Dataset``, read from the first element on.
        number_of_epochs: number of measurements.
        elements_per_epochs: elements per measurement.
        print_stats: whether to print an epoch's rates.
        apply_options: without effect: TensorFlow applies a data set's options.
        do_memcpy: whether to copy elements into the host's buffer as well.

    Returns:
        A tensor with a JSON text. An entry of ``epochs`` has elements_processed, total_bytes_processed, time_elapsed in
        seconds, elements_per_second, and bandwidth in GB/s.

    Raises:
        ProgramTypeError: unless dataset is a data set (Graphcore's message).
        ProgramError: if a number is below 1.
    """
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise ProgramTypeError(
            f"Expected `dataset` argument to be of type `tf.data.Dataset`, but got {dataset} instead."
        )
    checks.truth("apply_options", apply_options)
    return _benchmark(dataset, number_of_epochs, elements_per_epochs, print_stats, do_memcpy)


def infeed_benchmark(
    infeed_queue: IPUInfeedQueue,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """Measure how fast a queue's data set produces elements, as :func:`dataset_benchmark` does.

    The measurement iterates over the data set separately, and takes no elements away from programs.

    Args:
        infeed_queue: the queue.
        number_of_epochs, elements_per_epochs, print_stats, do_memcpy: see :func:`dataset_benchmark`.

    Raises:
        ProgramTypeError: unless infeed_queue is a queue (Graphcore's message).
    """
    if not isinstance(infeed_queue, IPUInfeedQueue):
        raise ProgramTypeError(
            "Expected `infeed_queue` argument to be of type `ipu.ipu_infeed_queue.IPUInfeedQueue`, but got "
            f"{infeed_queue} instead."
        )
    dataset = infeed_queue.feed.dataset
    return _benchmark(dataset, number_of_epochs, elements_per_epochs, print_stats, do_memcpy)


def _benchmark(
    dataset: Any, number_of_epochs: int, elements_per_epochs: int, print_stats: bool, do_memcpy: bool
) -> Any:
    numbers = {"number_of_epochs": number_of_epochs, "elements_per_epochs": elements_per_epochs}
    for name, value in numbers.items():
        if checks.integer(name, value) < 1:
            raise ProgramError(f"Expected `{name}` to be at least 1.")
    checks.truth("print_stats", print_stats)
    checks.truth("do_memcpy", do_memcpy)

    def measure(elements: Iterator[Sequence[Array]]) -> list[str]:
        buffer: list[Array] = []
        epochs = []
        for epoch in range(number_of_epochs):
            begin = perf_counter_ns()
            total_bytes = 0
            for _ in range(elements_per_epochs):
                element = next(elements, None)
                if element is None:
                    raise ModelError(
                        "The dataset iterator has reached the end of the dataset: expected "
                        f"{number_of_epochs * elements_per_epochs} elements, give more or repeat it"
                    )
                total_bytes += _fill(buffer, element, do_memcpy)
            epochs.append(_epoch(elements_per_epochs, total_bytes, perf_counter_ns() - begin))
            if print_stats:
                print(_line(epoch, epochs[-1]))
        return [json.dumps({"epochs": epochs})]

    return elements_anew(dataset, lambda elements: np.array(measure(elements), object))


def _fill(buffer: list[Array], arrays: Sequence[Array], copies: bool) -> int:
    """Return an element's bytes; if it ``copies``, copy the arrays into the host's ``buffer``.

    Raises:
        ProgramError: if an array has no elements.
    """
    if [(item.shape, item.dtype) for item in arrays] != [(item.shape, item.dtype) for item in buffer]:
        buffer[:] = [np.empty_like(item) for item in arrays]
        if any(item.size == 0 for item in arrays):
            raise ProgramError("Detected a tensor in the dataset with a dimension of size 0")
    if copies:
        for target, array in zip(buffer, arrays, strict=True):
            np.copyto(target, array)
    return sum(array.nbytes for array in arrays)


def _epoch(elements: int, total_bytes: int, elapsed_ns: int) -> dict[str, float]:
    """Return an epoch's JSON entry; a time below the clock's nanosecond counts as 1 ns."""
    seconds = max(elapsed_ns, 1) / _SECOND_NS
    return {
        "elements_processed": elements,
        "total_bytes_processed": total_bytes,
        "time_elapsed": seconds,
        "elements_per_second": elements / seconds,
        "bandwidth": total_bytes / seconds / 10**9,
    }


def _line(epoch: int, result: dict[str, float]) -> str:
    """Return the printed line about an epoch."""
    return f"Epoch {epoch}: {result['elements_per_second']:,.0f} elements/second, {result['bandwidth']:.6f} GB/s."

"""Elements of datasets and inputs of programs as files, in NumPy's own format, which ``numpy.load`` reads."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ipusim.errors import ModelError, ProgramError
from ipusim.files import archive_of, write_file
from ipusim.ipu import checks
from ipusim.ipu.dataset import Dataset
from ipusim.ipu.host import Placeholder, Running, Tensor
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.structures import leaves
from ipusim.model.layers.layer import Array


def export_dataset_to_file(
    dataset_or_infeed: Dataset | IPUInfeedQueue,
    output_filename: str | PathLike[str],
    num_elements: int,
    feed_name: str = "",
    apply_options: bool = True,
) -> None:
    """Write the first elements of a dataset, or of a queue's, one array of them after another: [num_elements, ...].

    An element of several arrays gives a file for each, whose number stands before the suffix: ``my_dataset.0.bin``
    and ``my_dataset.1.bin``. Each is written whole or not at all, and programs miss none of the queue's elements.
    ``feed_name`` and ``apply_options`` have no effect.

    Raises ProgramTypeError for what is no dataset or whose elements come once, ProgramError for fewer than one element
    and for elements of several forms, ModelError where there are not as many, OutputError for a place that takes no
    files.
    """
    target = _path(output_filename)
    checks.text("feed_name", feed_name)
    checks.truth("apply_options", apply_options)
    if checks.integer("num_elements", num_elements) < 1:
        raise ProgramError("Expected `num_elements` to be at least 1.")
    columns = _columns(dataset_or_infeed, checks.whole("num_elements", num_elements))
    for place, column in enumerate(columns):
        where = target if len(columns) == 1 else target.with_suffix(f".{place}{target.suffix}")
        content = io.BytesIO()
        np.save(content, column, allow_pickle=False)
        write_file(where, content.getvalue())


def export_inputs_to_file(
    inputs: Sequence[Any], output_filename: str | PathLike[str], feed_dict: Mapping[Any, Any]
) -> None:
    """Write the values of a program's inputs by name, as an archive of arrays (npz).

    A placeholder has its own name; what has none is called by its place among the inputs.

    Raises ProgramTypeError and ProgramError for inputs that are none or have no value, OutputError for a place that
    takes no file.
    """
    target = _path(output_filename)
    if not isinstance(inputs, list | tuple):
        checks.wrong_type("inputs", "a list or a tuple of placeholders and values", inputs)
    if not isinstance(feed_dict, Mapping) or not all(isinstance(key, Placeholder) for key in feed_dict):
        checks.wrong_type("feed_dict", "a dictionary of placeholders' values", feed_dict)
    running = Running({key: key.fed(value) for key, value in feed_dict.items()})
    arrays: dict[str, Array] = {}
    for place, each in enumerate(inputs):
        name = each.name if isinstance(each, Placeholder) else f"input_{place}"
        value = running.value(each) if isinstance(each, Tensor) else each
        arrays[name if name not in arrays else f"{name}_{place}"] = checks.numbers(f"inputs[{place}]", value)
    write_file(target, archive_of(arrays))


def _path(output_filename: Any) -> Path:
    if not isinstance(output_filename, str | PathLike) or not str(output_filename):
        checks.wrong_type("output_filename", "the name of a file", output_filename)
    return Path(output_filename)


def _columns(source: Any, num_elements: int) -> list[Array]:
    """Return each array of the first elements, stacked."""
    dataset: Iterable[Any]
    arrays: Callable[[Any], Iterable[Array]]
    if isinstance(source, IPUInfeedQueue):
        dataset, arrays = source.anew("dataset_or_infeed"), source.arrays
    elif isinstance(source, Dataset):
        dataset, arrays = source, leaves
    else:
        checks.wrong_type("dataset_or_infeed", "a Dataset or an IPUInfeedQueue", source)
    rows = [tuple(arrays(element)) for element in itertools.islice(dataset, num_elements)]
    if len(rows) < num_elements:
        raise ModelError(
            f"The dataset iterator has reached the end of the dataset: expected {num_elements} elements, "
            f"got {len(rows)}"
        )
    if len({tuple((np.shape(each), np.result_type(each)) for each in row) for row in rows}) > 1:
        checks.wrong_value("dataset_or_infeed", "elements of one shape and type", source)
    return [np.stack(column) for column in zip(*rows, strict=True)]

"""Write data sets and inputs to files, and read events of a session's runs: Graphcore's ``utils``.

Events of a run are executed programs; there are no events of compilation or of engine loading. Files of elements and
inputs have NumPy's format, readable with ``numpy.load``.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ipusim.api import Array
from ipusim.base.errors import ModelError, ProgramError
from ipusim.base.files import archive_of, write_file
from ipusim.ipu.config import get_ipu_config
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import ipu_ordinal
from ipusim.ipu.runtime.offered import in_module, rows
from ipusim.ipu.runtime.poplar_flags import uses_synthetic_data

tf = load()


class SyntheticDataCategory(Enum):
    """Categories of data; synthetic data are not transferred."""

    Infeed = "infeed"
    Outfeed = "outfeed"
    Seed = "seed"
    Hostembedding = "hostembedding"
    Parameters = "parameters"


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Return the number of IPUs of a configured device.

    Args:
        ipu_device: name of the device.
        device: without effect.

    Raises:
        ProgramStateError: if no device is configured.
        DeviceError: if the device number is unknown.
    """
    ordinal = ipu_ordinal("ipu_device", ipu_device)
    checks.text("device", device)
    return get_ipu_config()[0].system((0,), False, ordinal=ordinal).count


def move_variable_initialization_to_cpu(graph: Any = None) -> None:
    """Do nothing: TensorFlow always draws initial values on the host."""


def reset_ipu_seed(
    seed: int, device: str = "/device:IPU:0", cpu_device: str = "cpu", experimental_identical_replicas: bool = False
) -> None:
    """Only check the arguments: a draw's place in the program seeds it, so that runs are reproducible.

    Args:
        seed, device, cpu_device, experimental_identical_replicas: without effect.
    """
    checks.integer("seed", seed)
    checks.text("device", device)
    checks.text("cpu_device", cpu_device)
    checks.truth("experimental_identical_replicas", experimental_identical_replicas)


def running_on_ipu_model() -> bool:
    """Return False: this simulator is not Graphcore's IPU Model."""
    return False


def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory) -> bool:
    """Tell whether data are synthetic, the same for all categories.

    TF_POPLAR_FLAGS, a profile, or the command line make data synthetic.

    Args:
        synthetic_data_category: without effect beyond the check of its type.

    Raises:
        ProgramTypeError: unless the argument is a SyntheticDataCategory.
    """
    if not isinstance(synthetic_data_category, SyntheticDataCategory):
        checks.wrong_type("synthetic_data_category", "a SyntheticDataCategory", synthetic_data_category)
    return uses_synthetic_data()


def export_dataset_to_file(
    dataset_or_infeed: Any,
    output_filename: str | PathLike[str],
    num_elements: int,
    feed_name: str = "",
    apply_options: bool = True,
) -> None:
    """Write the first elements of a data set or queue, stacked to [num_elements, ...].

    Elements of several arrays give several files, numbered before the suffix: ``my_dataset.0.bin`` and
    ``my_dataset.1.bin``. A file is written whole or not at all. Programs still get all elements of the queue.

    Args:
        dataset_or_infeed: data set or queue to export.
        output_filename: path of the file.
        num_elements: number of elements.
        feed_name, apply_options: without effect.

    Raises:
        ProgramTypeError: unless dataset_or_infeed is a data set.
        ProgramError: if there is less than one element or elements differ in shape.
        ModelError: if the data set is too short.
        OutputError: if the path is not writable.
    """
    target = _path(output_filename)
    checks.text("feed_name", feed_name)
    checks.truth("apply_options", apply_options)
    if checks.integer("num_elements", num_elements) < 1:
        raise ProgramError("Expected `num_elements` to be at least 1.")
    columns = _columns(dataset_or_infeed, checks.whole("num_elements", num_elements))
    for number, column in enumerate(columns):
        path = target if len(columns) == 1 else target.with_suffix(f".{number}{target.suffix}")
        content = io.BytesIO()
        np.save(content, column, allow_pickle=False)
        write_file(path, content.getvalue())


def export_inputs_to_file(
    inputs: Sequence[Any], output_filename: str | PathLike[str], feed_dict: Mapping[Any, Any]
) -> None:
    """Write a program's inputs by name, as an archive of arrays (npz).

    Args:
        inputs: placeholders, other tensors, or values; values are named by position.
        output_filename: path of the file.
        feed_dict: values of placeholders.

    Raises:
        ProgramTypeError: if an input has a wrong type.
        OutputError: if the path is not writable.
    """
    target = _path(output_filename)
    checks.instance("inputs", inputs, list | tuple, "a list or a tuple of placeholders and values")
    checks.instance("feed_dict", feed_dict, Mapping, "a dictionary of placeholders' values")
    arrays: dict[str, Array] = {}
    with tf.compat.v1.Session() as session:
        for index, item in enumerate(inputs):
            name = item.op.name if isinstance(item, tf.Tensor) else f"input_{index}"
            value = session.run(item, dict(feed_dict)) if isinstance(item, tf.Tensor) else item
            arrays[name if name not in arrays else f"{name}_{index}"] = checks.numbers(f"inputs[{index}]", value)
    write_file(target, archive_of(arrays))


def _path(output_filename: Any) -> Path:
    if not isinstance(output_filename, str | PathLike) or not str(output_filename):
        checks.wrong_type("output_filename", "the name of a file", output_filename)
    return Path(output_filename)


def _columns(source: Any, num_elements: int) -> list[Array]:
    """Return the arrays of the first elements, stacked."""
    dataset = source.feed.dataset if isinstance(source, IPUInfeedQueue) else source
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        checks.wrong_type("dataset_or_infeed", "a Dataset or an IPUInfeedQueue", source)
    element_arrays = [tuple(map(np.asarray, tf.nest.flatten(element))) for element in _elements(dataset, num_elements)]
    if len(element_arrays) < num_elements:
        raise ModelError(
            f"The dataset iterator has reached the end of the dataset: expected {num_elements} elements, "
            f"got {len(element_arrays)}"
        )
    shapes = {tuple(array.shape for array in element) for element in element_arrays}
    if len(shapes) > 1:
        shapes_text = " and ".join(str(shape[0] if len(shape) == 1 else shape) for shape in sorted(shapes))
        checks.wrong_value("dataset_or_infeed", "elements of one shape", shapes_text)
    return [np.stack(column) for column in zip(*element_arrays, strict=True)]


def _elements(dataset: Any, number: int) -> list[Any]:
    """Return the first elements of a data set, eagerly or in a session."""
    if tf.executing_eagerly():
        return list(itertools.islice(dataset.as_numpy_iterator(), number))
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    next_element, elements = iterator.get_next(), []
    with tf.compat.v1.Session() as session:
        session.run(iterator.initializer)
        for _ in range(number):
            try:
                elements.append(session.run(next_element))
            except tf.errors.OutOfRangeError:
                break
    return elements


class IpuTraceEventType(Enum):
    """Type of an event."""

    EXECUTE = "EXECUTE"


@dataclass(frozen=True)
class IpuTraceEvent:
    """Event of a session's run.

    Attributes:
        type: type of the event.
        module_name: name of the program.
        execution_report: times of the run as JSON.
    """

    type: IpuTraceEventType
    module_name: str
    execution_report: str


def extract_all_events(events: Any) -> list[IpuTraceEvent]:
    """Return the events of a trace, from a session's texts or from a summary.

    Raises:
        ProgramTypeError: if events does not have the expected form.
    """
    try:
        if isinstance(events, str | Mapping):
            raise TypeError
        texts = _texts_of(events) if isinstance(events, bytes) else list(events)
        items = [event if isinstance(event, IpuTraceEvent) else json.loads(event) for event in texts]
        return [event if isinstance(event, IpuTraceEvent) else _event(event) for event in items]
    except (TypeError, ValueError, KeyError, DecodeError):
        checks.wrong_type("events", "what a session returns for an ipu_compile_summary", events)


def _texts_of(summary: bytes) -> list[Any]:
    """Return the JSON texts of a summary's events."""
    values = tf.compat.v1.Summary.FromString(summary).value
    return [text for value in values for text in tf.make_ndarray(value.tensor)]


def _event(data: Mapping[str, str]) -> IpuTraceEvent:
    return IpuTraceEvent(IpuTraceEventType(data["type"]), data["module_name"], data["execution_report"])


def extract_all_types_from_event_trace(events: Any) -> list[IpuTraceEventType]:
    """Return the types of events; raises ProgramTypeError for another form."""
    return [event.type for event in extract_all_events(events)]


def extract_all_strings_from_event_trace(events: Any) -> str:
    """Return the events as text, one below the other; raises ProgramTypeError for another form."""
    return "".join(
        f"{'-' * 70}\n=> Execute: {event.module_name}\n{event.execution_report}\n"
        for event in extract_all_events(events)
    )


def extract_execute_reports(events: Any) -> list[tuple[str, str]]:
    """Return name and report of every execution; raises ProgramTypeError for another form."""
    return [(event.module_name, event.execution_report) for event in extract_all_events(events)]


def extract_compile_reports(events: Any) -> list[tuple[str, str]]:
    """Return nothing: a trace has no compiler reports. Raises ProgramTypeError for another form."""
    extract_all_events(events)
    return []


def extract_poplar_serialized_graphs(events: Any) -> list[tuple[str, str]]:
    """Return nothing: a trace has no compiler graphs. Raises ProgramTypeError for another form."""
    extract_all_events(events)
    return []


__getattr__, __dir__ = rows(
    __name__,
    in_module(
        "ipusim.ipu.config",
        "DeviceConnectionType ExecutionProfileType IPUConfig MergeRemoteBuffersBehaviour SchedulingAlgorithm "
        "SelectionOrder configure_ipu_system get_ipu_config reset_ipu_configuration",
    )
    | in_module("ipusim.ipu.runtime.verification", "KeyId VerificationOptions")
    | in_module(
        "ipusim.ipu.runtime.ipu_options",
        "auto_select_ipus create_ipu_config select_ipus set_compilation_options set_convolution_options "
        "set_experimental_multi_replica_distribution_options set_floating_point_behaviour_options set_gcl_options "
        "set_io_tile_options set_ipu_connection_type set_ipu_model_options set_matmul_options set_norm_options "
        "set_optimization_options set_pooling_options set_recomputation_options set_report_options "
        "set_serialization_options set_transfer_options set_verification_options",
    ),
)

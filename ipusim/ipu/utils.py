"""Functions of Graphcore's ``utils`` that programs of pipelines call.

A run's events are the programs that the device executed: nothing is compiled and no engine is loaded. They are for
programs that print their trace, such as graphcore/examples at commit 3c88014,
applications/tensorflow/reinforcement_learning/rl_benchmark.py. Files of elements and inputs are in NumPy's own format,
which ``numpy.load`` reads.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ipusim.api import Array, hardware
from ipusim.base.errors import ModelError, ProgramError
from ipusim.base.files import archive_of, write_file
from ipusim.ipu.config import get_ipu_config
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.devices import ipu_ordinal
from ipusim.ipu.runtime.host import Placeholder, Running, Tensor
from ipusim.ipu.runtime.offered import in_module, rows
from ipusim.ipu.runtime.poplar_flags import uses_synthetic_data
from ipusim.ipu.runtime.structures import leaves
from ipusim.ipu.tensorflow.dataset import Dataset


class SyntheticDataCategory(Enum):
    """Categories of data that may be synthetic, and do not travel then."""

    Infeed = "infeed"
    Outfeed = "outfeed"
    Seed = "seed"
    Hostembedding = "hostembedding"
    Parameters = "parameters"


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Return the number of IPUs of a device that has been configured.

    ``ipu_device`` has no effect: one device is simulated.

    Raises ProgramStateError where none has, DeviceError for an unknown number.
    """
    ordinal = ipu_ordinal("ipu_device", ipu_device)
    checks.text("device", device)
    result = get_ipu_config()[0].device((0,), ordinal=ordinal)
    system = hardware.build_system(
        result["name"], mapping=(0,), ipus=result["auto_select_ipus"], select=result["select_ipus"], pipelined=False
    )
    return system.count


def move_variable_initialization_to_cpu(graph: object = None) -> None:
    """Do nothing: initial values are drawn on the host."""


def reset_ipu_seed(
    seed: int, device: str = "/device:IPU:0", cpu_device: str = "cpu", experimental_identical_replicas: bool = False
) -> None:
    """Seed the random draws of the device.

    Without effect but for the check of its arguments: draws are seeded by their place in the program, so that each run
    is the same.
    """
    checks.whole("seed", seed)
    checks.text("device", device)
    checks.text("cpu_device", cpu_device)
    checks.truth("experimental_identical_replicas", experimental_identical_replicas)


def running_on_ipu_model() -> bool:
    """Return False: this simulator is not Graphcore's IPU Model."""
    return False


def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory) -> bool:
    """Tell whether no data travel, as TF_POPLAR_FLAGS, a profile or the command line says, of any category.

    Raises ProgramTypeError for what is no SyntheticDataCategory.
    """
    if not isinstance(synthetic_data_category, SyntheticDataCategory):
        checks.wrong_type("synthetic_data_category", "a SyntheticDataCategory", synthetic_data_category)
    return uses_synthetic_data()


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
    for number, column in enumerate(columns):
        where = target if len(columns) == 1 else target.with_suffix(f".{number}{target.suffix}")
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
    checks.instance("inputs", inputs, list | tuple, "a list or a tuple of placeholders and values")
    if not isinstance(feed_dict, Mapping) or not all(isinstance(key, Placeholder) for key in feed_dict):
        checks.wrong_type("feed_dict", "a dictionary of placeholders' values", feed_dict)
    running = Running({key: key.fed(value) for key, value in feed_dict.items()})
    arrays: dict[str, Array] = {}
    for index, item in enumerate(inputs):
        name = item.name if isinstance(item, Placeholder) else f"input_{index}"
        value = running.value(item) if isinstance(item, Tensor) else item
        arrays[name if name not in arrays else f"{name}_{index}"] = checks.numbers(f"inputs[{index}]", value)
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
    if len({tuple((np.shape(item), np.result_type(item)) for item in row) for row in rows}) > 1:
        checks.wrong_value("dataset_or_infeed", "elements of one shape and type", source)
    return [np.stack(column) for column in zip(*rows, strict=True)]


class IpuTraceEventType(Enum):
    """The type of an event."""

    EXECUTE = "EXECUTE"


@dataclass(frozen=True)
class IpuTraceEvent:
    """An event: what it is, of which program, and the times of the run as JSON."""

    type: IpuTraceEventType
    module_name: str
    execution_report: str


def extract_all_events(events: Sequence[IpuTraceEvent]) -> list[IpuTraceEvent]:
    """Return the events of a trace; raises ProgramTypeError for others."""
    return _checked(events)


def extract_all_types_from_event_trace(events: Sequence[IpuTraceEvent]) -> list[IpuTraceEventType]:
    """Return the types of events; raises ProgramTypeError for other values."""
    return [event.type for event in _checked(events)]


def extract_all_strings_from_event_trace(events: Sequence[IpuTraceEvent]) -> str:
    """Return what the events say, one under the other; raises ProgramTypeError for others."""
    return "".join(
        f"{'-' * 70}\n=> Execute: {event.module_name}\n{event.execution_report}\n" for event in _checked(events)
    )


def extract_execute_reports(events: Sequence[IpuTraceEvent]) -> list[tuple[str, str]]:
    """Return name and report of each execution; raises ProgramTypeError for others."""
    return [(event.module_name, event.execution_report) for event in _checked(events)]


def extract_compile_reports(events: Sequence[IpuTraceEvent]) -> list[tuple[str, str]]:
    """Return nothing, as SDK 2.1 does: a trace has no reports of the compiler. Raises ProgramTypeError for others."""
    _checked(events)
    return []


def extract_poplar_serialized_graphs(events: Sequence[IpuTraceEvent]) -> list[tuple[str, str]]:
    """Return nothing, as SDK 2.1 does: a trace has no graphs. Raises ProgramTypeError for other events."""
    _checked(events)
    return []


def _checked(events: object) -> list[IpuTraceEvent]:
    if not isinstance(events, list | tuple) or not all(isinstance(event, IpuTraceEvent) for event in events):
        checks.wrong_type("events", "what a session returns for an ipu_compile_summary", events)
    return list(events)


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

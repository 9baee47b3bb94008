"""Functions of Graphcore's ``utils`` that programs of pipelines call."""

from __future__ import annotations

from enum import Enum

from ipusim.hardware.build import build_system
from ipusim.ipu import checks
from ipusim.ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    VerificationOptions,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipusim.ipu.device_ordinal import ipu_ordinal
from ipusim.ipu.exports import export_dataset_to_file, export_inputs_to_file
from ipusim.ipu.ipu_options import (
    auto_select_ipus,
    create_ipu_config,
    select_ipus,
    set_compilation_options,
    set_convolution_options,
    set_experimental_multi_replica_distribution_options,
    set_floating_point_behaviour_options,
    set_gcl_options,
    set_io_tile_options,
    set_ipu_connection_type,
    set_ipu_model_options,
    set_matmul_options,
    set_norm_options,
    set_optimization_options,
    set_pooling_options,
    set_recomputation_options,
    set_report_options,
    set_serialization_options,
    set_transfer_options,
    set_verification_options,
)
from ipusim.ipu.poplar_flags import uses_synthetic_data
from ipusim.ipu.trace_events import (
    extract_all_events,
    extract_all_strings_from_event_trace,
    extract_all_types_from_event_trace,
    extract_compile_reports,
    extract_execute_reports,
    extract_poplar_serialized_graphs,
)

__all__ = [
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "SyntheticDataCategory",
    "VerificationOptions",
    "auto_select_ipus",
    "configure_ipu_system",
    "create_ipu_config",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "extract_all_events",
    "extract_all_strings_from_event_trace",
    "extract_all_types_from_event_trace",
    "extract_compile_reports",
    "extract_execute_reports",
    "extract_poplar_serialized_graphs",
    "get_ipu_config",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_configuration",
    "reset_ipu_seed",
    "running_on_ipu_model",
    "select_ipus",
    "set_compilation_options",
    "set_convolution_options",
    "set_experimental_multi_replica_distribution_options",
    "set_floating_point_behaviour_options",
    "set_gcl_options",
    "set_io_tile_options",
    "set_ipu_connection_type",
    "set_ipu_model_options",
    "set_matmul_options",
    "set_norm_options",
    "set_optimization_options",
    "set_pooling_options",
    "set_recomputation_options",
    "set_report_options",
    "set_serialization_options",
    "set_transfer_options",
    "set_verification_options",
    "use_synthetic_data_for",
]


class SyntheticDataCategory(Enum):
    """What data may be synthetic, and travel not at all."""

    Infeed = "infeed"
    Outfeed = "outfeed"
    Seed = "seed"
    Hostembedding = "hostembedding"
    Parameters = "parameters"


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """Return the number of IPUs of a device that has been configured.

    Raises ProgramStateError where none has, DeviceError for a number that there is not.
    """
    ordinal = ipu_ordinal("ipu_device", ipu_device)
    checks.text("device", device)
    found = get_ipu_config()[0].device((0,), ordinal=ordinal)
    system = build_system(
        found["name"], mapping=(0,), ipus=found["auto_select_ipus"], select=found["select_ipus"], pipelined=False
    )
    return system.count


def move_variable_initialization_to_cpu(graph: object = None) -> None:
    """Do nothing: initial values are drawn on the host."""


def reset_ipu_seed(
    seed: int, device: str = "/device:IPU:0", cpu_device: str = "cpu", experimental_identical_replicas: bool = False
) -> None:
    """Check the arguments: draws are seeded by their place in the program, so that each run is the same."""
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

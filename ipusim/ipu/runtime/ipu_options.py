"""Build a configuration by the functions of releases up to SDK 2.1, which change an IPUConfig.

Graphcore's TensorFlow 1 programs use these functions, for example graphcore/examples at commit 3c88014,
applications/tensorflow/autoencoder/util.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.attributes import is_int
from ipusim.ipu.runtime.options_table import ATTRIBUTES, MAX_REPORT_SIZE, WITHOUT_EFFECT
from ipusim.ipu.runtime.verification import VerificationOptions

#: Schedulers by their names before the enumeration existed.
_SCHEDULERS: Final = {
    "": SchedulingAlgorithm.CHOOSE_BEST,
    "Clustering": SchedulingAlgorithm.CLUSTERING,
    "PostOrder": SchedulingAlgorithm.POST_ORDER,
    "LookAhead": SchedulingAlgorithm.LOOK_AHEAD,
    "ShortestPath": SchedulingAlgorithm.SHORTEST_PATH,
}


class _OldConfig(IPUConfig):
    """Configuration that also offers attributes by the fields of the message that it was up to SDK 2.1.

    Fields have the names of arguments or of attributes, without categories: ``enable_gather_simplifier``.
    """

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of a field; raises Graphcore's error for other names."""
        paths = [path for path in ATTRIBUTES.values() if path.endswith(f".{name}")]
        path = ATTRIBUTES.get(name) or (paths[0] if len(paths) == 1 else None)
        return super().__getattr__(name) if path in (None, name) else attrgetter(path)(self)


def create_ipu_config(
    profiling: bool = False,
    enable_ipu_events: bool = False,
    use_poplar_text_report: bool = False,
    use_poplar_cbor_report: bool = False,
    profile_execution: bool | ExecutionProfileType | None = None,
    enable_poplar_serialized_graph: bool = False,
    report_every_nth_execution: int = 0,
    max_report_size: int = MAX_REPORT_SIZE,
    report_directory: str = "",
    scheduler_selection: SchedulingAlgorithm | str = SchedulingAlgorithm.CHOOSE_BEST,
    always_rearrange_copies_on_the_host: bool = False,
    merge_infeed_io_copies: bool = False,
    disable_graph_outlining: bool = False,
    retain_control_dependencies: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_scheduler_lookahead_depth: int = 5,
    max_scheduler_search_space_size: int = 64,
    prefetch_data_streams: bool = True,
    selection_order: SelectionOrder = SelectionOrder.AUTO,
    enable_experimental_remote_buffer_embedding: bool = False,
) -> IPUConfig:
    """Return an IPUConfig from arguments that became attributes.

    Arguments other than ``selection_order`` and ``max_cross_replica_sum_buffer_size`` have no effect; a run's notes
    give reasons for arguments that differ from the defaults.

    Raises ProgramError and ProgramTypeError with Graphcore's message for an unknown profile or scheduler.
    """
    options = dict(locals())
    config = _OldConfig()
    _check_profile(profiling, enable_ipu_events, profile_execution)
    _check_unused(
        config, "create_ipu_config", {name: value for name, value in options.items() if name in WITHOUT_EFFECT}
    )
    options["disable_graph_outlining"] = not checks.truth("disable_graph_outlining", disable_graph_outlining)
    options["scheduler_selection"] = _scheduler(scheduler_selection)
    return _set_attributes(config, **{name: value for name, value in options.items() if name in ATTRIBUTES})


def auto_select_ipus(opts: IPUConfig, num_ipus: int | list[int] | tuple[int, ...]) -> IPUConfig:
    """Configure a device with ``num_ipus`` IPUs, and return the configuration.

    Raises:
        ProgramError: if devices are already configured; with Graphcore's message.
        ProgramTypeError: for non-numbers.
    """
    _check_no_devices(opts)
    if not isinstance(num_ipus, int | list | tuple):
        raise ProgramTypeError("`num_ipus` must be an integer, list or tuple.")
    return _set_attributes(opts, num_ipus=num_ipus)


def select_ipus(opts: IPUConfig, indices: list[int] | tuple[int, ...]) -> IPUConfig:
    """Request devices by id from the machine's list, and return the configuration.

    Raises:
        ProgramError: if devices are already configured, and for an id that occurs twice; with Graphcore's messages.
        ProgramTypeError: unless ``indices`` is a list or tuple.
    """
    _check_no_devices(opts)
    if not isinstance(indices, list | tuple):
        raise ProgramTypeError("`indices` must be a list or tuple.")
    if any(index in indices[:number] for number, index in enumerate(indices)):
        raise ProgramError("All device indices in `indices` must be unique.")
    return _set_attributes(opts, indices=indices)


def set_compilation_options(opts: IPUConfig, compilation_options: dict[str, str] | None = None) -> IPUConfig:
    """Add Poplar's compilation options; raises ProgramTypeError with Graphcore's message for non-dictionaries.

    Without effect: ipusim compiles nothing with Poplar.
    """
    return _merge_dictionary(opts, "compilation_options", compilation_options)


def set_convolution_options(opts: IPUConfig, convolution_options: dict[str, str] | None = None) -> IPUConfig:
    """Add convolution options for stages without options; raises ProgramTypeError for non-dictionaries."""
    return _merge_dictionary(opts, "convolution_options", convolution_options)


def set_experimental_multi_replica_distribution_options(
    opts: IPUConfig, process_count: int, process_index: int
) -> IPUConfig:
    """Set the number of processes, and the index of this process.

    Raises ProgramError with Graphcore's message for an index out of range. Numbers other than those of the simulated
    hosts are refused when the configuration takes effect.
    """
    count, index = checks.whole("process_count", process_count), checks.integer("process_index", process_index)
    if not 0 <= index < count:
        raise ProgramError("0 <= process_index < process_count")
    return _set_attributes(opts, process_count=count, process_index=index)


def set_floating_point_behaviour_options(
    opts: IPUConfig, inv: bool = True, div0: bool = True, oflo: bool = True, esr: bool = True, nanoo: bool = True
) -> IPUConfig:
    """Choose the floating-point operations that stop a run, and the rounding of values.

    Without effect: no operation stops a run, and NumPy rounds to nearest. A run's notes name the first value that is
    not finite.
    """
    return _set_attributes(**locals())


def set_gcl_options(opts: IPUConfig, gcl_options: dict[str, str] | None = None) -> IPUConfig:
    """Add options for collectives; raises ProgramTypeError with Graphcore's message for None and non-dictionaries.

    Without effect: collectives run by the machine's algorithms.
    """
    if gcl_options is None:
        raise ProgramTypeError("`gcl_options` must be a dictionary")
    return _merge_dictionary(opts, "gcl_options", gcl_options)


def set_io_tile_options(
    opts: IPUConfig,
    num_io_tiles: int,
    place_ops_on_io_tiles: bool | None = None,
    io_tile_available_memory_proportion: float = 0.9,
) -> IPUConfig:
    """Reserve tiles for host copies; None keeps the current placement of operations.

    Raises ProgramError with Graphcore's message for operations on zero tiles.
    """
    arguments: dict[str, Any] = {
        "num_io_tiles": num_io_tiles,
        "io_tile_available_memory_proportion": io_tile_available_memory_proportion,
    }
    if place_ops_on_io_tiles is not None:
        arguments["place_ops_on_io_tiles"] = checks.truth("place_ops_on_io_tiles", place_ops_on_io_tiles)
    if place_ops_on_io_tiles and checks.integer("num_io_tiles", num_io_tiles) == 0:
        raise ProgramError("Cannot place ops on I/O tiles when num_io_tiles == 0")
    return _set_attributes(opts, **arguments)


def set_ipu_connection_type(
    opts: IPUConfig,
    connection_type: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    ipu_version: str | int = "",
    enable_remote_buffers: bool = False,
) -> IPUConfig:
    """Choose when to attach to the device, and whether the device has remote buffers.

    ``ipu_version`` has no effect: the machine determines the IPU version.

    Numeric versions, allowed before SDK 2.1, become texts. Raises ProgramError with Graphcore's message if a version is
    required and missing.
    """
    version = f"ipu{ipu_version}" if is_int(ipu_version) else ipu_version
    compiles_without_device = (
        connection_type is DeviceConnectionType.NEVER or connection_type is DeviceConnectionType.PRE_COMPILE
    )
    if compiles_without_device and isinstance(version, str) and not version:
        raise ProgramError(f"`ipu_version` must be specified when `connection_type` isset to `{connection_type}`.")
    return _set_attributes(
        opts, connection_type=connection_type, ipu_version=version, enable_remote_buffers=enable_remote_buffers
    )


def set_ipu_model_options(
    opts: IPUConfig, compile_ipu_code: bool = True, tiles_per_ipu: int | None = None, ipu_model_version: str = "ipu2"
) -> IPUConfig:
    """Set options of Graphcore's IPU Model; None keeps the number of tiles.

    Without effect: Graphcore's IPU Model does not run in ipusim.
    """
    tiles = {} if tiles_per_ipu is None else {"tiles_per_ipu": tiles_per_ipu}
    return _set_attributes(opts, compile_ipu_code=compile_ipu_code, ipu_model_version=ipu_model_version, **tiles)


def set_matmul_options(
    opts: IPUConfig, matmul_options: dict[str, str] | None = None, clear_pass_type: bool = False
) -> IPUConfig:
    """Add matmul options for stages without options; raises ProgramTypeError for non-dictionaries.

    ``clear_pass_type`` has no effect: products are planned by shape alone, in any pass.
    """
    _merge_dictionary(opts, "matmul_options", matmul_options)
    return _set_attributes(opts, clear_pass_type=clear_pass_type)


def set_norm_options(
    opts: IPUConfig,
    use_stable_statistics: bool = False,
    experimental_distributed_batch_norm_replica_group_size: int = 1,
) -> IPUConfig:
    """Set options of normalisations, for example the number of replicas that share batch statistics.

    ``use_stable_statistics`` has no effect: the mean is always subtracted before the variance is computed.
    """
    return _set_attributes(**locals())


def set_optimization_options(
    opts: IPUConfig,
    combine_embedding_lookups: bool = False,
    combine_matmuls: bool = False,
    max_cross_replica_sum_buffer_size: int = 0,
    max_reduce_scatter_buffer_size: int = 0,
    max_inter_ipu_copies_buffer_size: int = 0,
    max_send_recv_cluster_size: int = 0,
    minimum_remote_tensor_size: int = 128,
    merge_remote_buffers: MergeRemoteBuffersBehaviour = MergeRemoteBuffersBehaviour.NO_MERGING,
    gather_simplifier: bool = True,
    triangular_solve_expander_block_size: int = 0,
    cholesky_block_size: int = 0,
    enable_fast_math: bool = False,
) -> IPUConfig:
    """Set the minimum size of remote tensors and the replica sum buffer, in bytes.

    Arguments other than ``minimum_remote_tensor_size`` and ``max_cross_replica_sum_buffer_size`` have no effect; a
    run's notes give reasons for arguments that differ from the defaults.
    """
    return _set_attributes(**locals())


def set_pooling_options(opts: IPUConfig, pooling_options: dict[str, str] | None = None) -> IPUConfig:
    """Add pooling options; raises ProgramTypeError with Graphcore's message for non-dictionaries.

    Without effect: poolings take equally long under any plan.
    """
    return _merge_dictionary(opts, "pooling_options", pooling_options)


def set_recomputation_options(opts: IPUConfig, allow_recompute: bool = True) -> IPUConfig:
    """Choose whether stages keep only their inputs and recompute activations."""
    return _set_attributes(opts, allow_recompute=allow_recompute)


def set_report_options(
    opts: IPUConfig, graph_options: dict[str, str] | None = None, execution_options: dict[str, str] | None = None
) -> IPUConfig:
    """Take options of Poplar's reports; raises ProgramTypeError for non-dictionaries.

    Without effect: ipusim makes no Poplar reports.
    """
    arguments = {"graph_options": graph_options, "execution_options": execution_options}
    for name, value in arguments.items():
        _check_dictionary(name, value)
    return _check_unused(opts, "set_report_options", arguments)


def set_serialization_options(opts: IPUConfig, output_folder: str = "") -> IPUConfig:
    """Set the folder for executables.

    Without effect: ipusim has no compiler, and therefore no executables.
    """
    return _set_attributes(opts, output_folder=output_folder)


def set_transfer_options(opts: IPUConfig, use_verified_transfers: bool = False) -> IPUConfig:
    """Choose whether transfers are verified.

    Without effect: data on simulated host links are neither encrypted nor checked.
    """
    return _check_unused(opts, "set_transfer_options", {"use_verified_transfers": use_verified_transfers})


def set_verification_options(opts: IPUConfig, verification_options: VerificationOptions) -> IPUConfig:
    """Take the keys of verified transfers; raises ProgramTypeError with Graphcore's message for wrong types.

    Without effect: data on simulated host links are neither encrypted nor checked.
    """
    if not isinstance(verification_options, VerificationOptions):
        raise ProgramTypeError("`verification_options` must be of type VerificationOptions")
    return _check_unused(opts, "set_verification_options", {"verification_options": verification_options})


def _check_config(opts: Any) -> None:
    checks.instance("opts", opts, IPUConfig, "what create_ipu_config returns, or an IPUConfig")


def _check_no_devices(opts: Any) -> None:
    _check_config(opts)
    if opts.auto_select_ipus not in ([], ()) or opts.select_ipus not in ([], ()):
        raise ProgramError("IPU devices have already been configured.")


def _check_dictionary(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, dict):
        raise ProgramTypeError(f"`{name}` must be a dictionary")


def _check_profile(profiling: bool, enable_ipu_events: bool, profile_execution: Any) -> None:
    events = checks.truth("enable_ipu_events", enable_ipu_events)
    if checks.truth("profiling", profiling) and events:
        raise ProgramError("`profiling` and `enable_ipu_events` are mutually exclusive")
    if not isinstance(profile_execution, bool | ExecutionProfileType | None):
        raise ProgramTypeError("`profile_execution` must be True, False, or an ExecutionProfileType instance")
    if profile_execution not in (None, False, ExecutionProfileType.NO_PROFILE) and not profiling:
        raise ProgramError("`profiling` is required when `profile_execution` is set")


def _scheduler(selection: SchedulingAlgorithm | str) -> SchedulingAlgorithm:
    if not isinstance(selection, str):
        return selection
    if selection not in _SCHEDULERS:
        raise ProgramTypeError(f"Could not convert '{selection}' to a valid `SchedulingAlgorithm`.")
    return _SCHEDULERS[selection]


def _set_attributes(opts: IPUConfig, **arguments: Any) -> IPUConfig:
    """Set attributes from arguments; raises the assignment's error, preceded by the argument's name."""
    _check_config(opts)
    for argument, value in arguments.items():
        folder, _, last = ATTRIBUTES[argument].rpartition(".")
        category = attrgetter(folder)(opts) if folder else opts
        try:
            setattr(category, last, value)
        except ProgramError as error:
            raise type(error)(f"{argument}: {error}") from None
    return opts


def _merge_dictionary(opts: IPUConfig, argument: str, added: dict[str, str] | None) -> IPUConfig:
    """Merge a dictionary into a dictionary attribute; None adds nothing."""
    _check_config(opts)
    _check_dictionary(argument, added)
    return _set_attributes(opts, **{argument: attrgetter(ATTRIBUTES[argument])(opts) | (added or {})})


def _check_unused(opts: IPUConfig, function: str, options: Mapping[str, Any]) -> IPUConfig:
    """Check arguments without an attribute, and note the reason if a changed value has no effect."""
    _check_config(opts)
    for argument, value in options.items():
        row = WITHOUT_EFFECT[argument]
        if isinstance(row.default, bool):
            checks.truth(argument, value)
        elif isinstance(row.default, int):
            checks.whole(argument, value)
        elif isinstance(row.default, str):
            checks.text(argument, value)
        if value and value != row.default:
            opts.remark(f"{argument} of {function}", row.reason)
    return opts

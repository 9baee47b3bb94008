"""Map configuration arguments up to SDK 2.1 to IPUConfig attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipusim.ipu.runtime.verification import VerificationOptions


@dataclass(frozen=True)
class UnusedArgument:
    """An argument without an attribute: default, and reason for having no effect."""

    default: Any
    reason: str


#: Default maximum report size: 256 MiB.
MAX_REPORT_SIZE: Final = 268435456
_NO_PROFILE: Final = "a simulated run always has its whole profile, which is no part of the program"
_NO_REPORT: Final = "Poplar makes no reports here"
_NO_TRANSFER: Final = "what crosses a simulated host link is neither encrypted nor checked"
#: IPUConfig attribute by argument name, for all functions.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "scheduler_selection": "scheduling.algorithm",
    "always_rearrange_copies_on_the_host": "experimental.always_rearrange_copies_on_the_host",
    "merge_infeed_io_copies": "optimizations.merge_infeed_io_copies",
    "disable_graph_outlining": "optimizations.enable_graph_outlining",
    "max_scheduler_lookahead_depth": "scheduling.maximum_scheduler_lookahead_depth",
    "max_scheduler_search_space_size": "scheduling.maximum_scheduler_search_space_size",
    "prefetch_data_streams": "optimizations.prefetch_data_streams",
    "selection_order": "selection_order",
    "enable_experimental_remote_buffer_embedding": "experimental.enable_remote_buffer_embedding",
    "num_ipus": "auto_select_ipus",
    "indices": "select_ipus",
    "compilation_options": "compilation_poplar_options",
    "convolution_options": "convolutions.poplar_options",
    "process_count": "experimental.multi_replica_distribution.process_count",
    "process_index": "experimental.multi_replica_distribution.process_index",
    **{name: f"floating_point_behaviour.{name}" for name in ("inv", "div0", "oflo", "esr", "nanoo")},
    "gcl_options": "gcl_poplar_options",
    "num_io_tiles": "io_tiles.num_io_tiles",
    "place_ops_on_io_tiles": "io_tiles.place_ops_on_io_tiles",
    "io_tile_available_memory_proportion": "io_tiles.available_memory_proportion",
    "connection_type": "device_connection.type",
    "ipu_version": "device_connection.version",
    "enable_remote_buffers": "device_connection.enable_remote_buffers",
    "compile_ipu_code": "ipu_model.compile_ipu_code",
    "tiles_per_ipu": "ipu_model.tiles_per_ipu",
    "ipu_model_version": "ipu_model.version",
    "matmul_options": "matmuls.poplar_options",
    "clear_pass_type": "matmuls.clear_pass_type",
    "use_stable_statistics": "norms.use_stable_statistics",
    "experimental_distributed_batch_norm_replica_group_size": (
        "norms.experimental.distributed_batch_norm_replica_group_size"
    ),
    "combine_embedding_lookups": "optimizations.combine_embedding_lookups",
    "combine_matmuls": "optimizations.combine_matmuls",
    "max_cross_replica_sum_buffer_size": "optimizations.maximum_cross_replica_sum_buffer_size",
    "max_reduce_scatter_buffer_size": "optimizations.maximum_reduce_scatter_buffer_size",
    "max_inter_ipu_copies_buffer_size": "optimizations.maximum_inter_ipu_copies_buffer_size",
    "max_send_recv_cluster_size": "optimizations.maximum_send_recv_cluster_size",
    "minimum_remote_tensor_size": "optimizations.minimum_remote_tensor_size",
    "merge_remote_buffers": "optimizations.merge_remote_buffers",
    "gather_simplifier": "optimizations.enable_gather_simplifier",
    "triangular_solve_expander_block_size": "optimizations.triangular_solve_expander_block_size",
    "cholesky_block_size": "optimizations.cholesky_block_size",
    "enable_fast_math": "optimizations.enable_fast_math",
    "pooling_options": "pooling.poplar_options",
    "allow_recompute": "allow_recompute",
    "output_folder": "serialization_output_folder",
}
#: Arguments without an attribute.
WITHOUT_EFFECT: Final[Mapping[str, UnusedArgument]] = {
    "profiling": UnusedArgument(False, _NO_PROFILE),
    "enable_ipu_events": UnusedArgument(False, _NO_PROFILE),
    "use_poplar_text_report": UnusedArgument(False, _NO_REPORT),
    "use_poplar_cbor_report": UnusedArgument(False, _NO_REPORT),
    "profile_execution": UnusedArgument(None, _NO_PROFILE),
    "enable_poplar_serialized_graph": UnusedArgument(False, _NO_REPORT),
    "report_every_nth_execution": UnusedArgument(0, _NO_REPORT),
    "max_report_size": UnusedArgument(MAX_REPORT_SIZE, _NO_REPORT),
    "report_directory": UnusedArgument("", _NO_REPORT),
    "retain_control_dependencies": UnusedArgument(False, "there is no graph"),
    "graph_options": UnusedArgument(None, _NO_REPORT),
    "execution_options": UnusedArgument(None, _NO_REPORT),
    "use_verified_transfers": UnusedArgument(False, _NO_TRANSFER),
    "verification_options": UnusedArgument(VerificationOptions(), _NO_TRANSFER),
}

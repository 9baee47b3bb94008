"""Graphcore's options of a pipeline, one by one: where a scenario says them, and what they do here.

Arguments are those of ``pipelining_ops.pipeline`` in Graphcore's TensorFlow, old names
included; fields are those of its ``IPUConfig`` that change how a pipeline runs. An option
without a key is not accepted: a scenario that names it is refused, so that none is
silently ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Option:
    """One of Graphcore's options.

    Attributes:
        name: Graphcore's.
        key: the key in a scenario; empty where it is not accepted.
        effect: what it does here, or what there is instead.
        test: a test that holds it, ``file::function``; empty where it is not accepted.
    """

    name: str
    key: str
    effect: str
    test: str = ""


_RUN: Final = "tests/oracles/test_training_equals_unsplit.py"
_OFFLOAD: Final = "tests/oracles/test_offload.py"
_IO_TILES: Final = "tests/oracles/test_io_tiles.py"
_OUTFEED: Final = "tests/oracles/test_outfeed.py"
_SERIAL: Final = "tests/oracles/test_batch_serialization.py"
_STAGE_OPTIONS: Final = "tests/oracles/test_stage_options.py"
_SHARDING: Final = "tests/oracles/test_sharding.py"
_RESOLVE: Final = "tests/unit/test_scenario_resolve.py"

#: Arguments of ``pipelining_ops.pipeline``.
ARGUMENTS: Final = (
    Option(
        "computational_stages",
        "pipeline.stages",
        "stages as lists of layers, functions or costs, or lists of concurrent ones; or `pipeline.splits`",
        f"{_RUN}::test_every_split_and_schedule",
    ),
    Option(
        "gradient_accumulation_count",
        "pipeline.gradient_accumulation_count",
        "micro-batches of an execution; a multiple of the overlap length, with Graphcore's message",
        "tests/unit/test_schedules.py::test_count_that_is_no_multiple",
    ),
    Option("pipeline_depth", "", "the old name of gradient_accumulation_count, which is the one to use"),
    Option(
        "gradient_accumulation_dtype",
        "pipeline.gradient_accumulation_dtype",
        "type of the accumulators, their bytes and the time of adding; of all, or by layer or variable",
        "tests/oracles/test_accumulation.py::test_float32_accumulators_keep_small_addends_that_float16_loses",
    ),
    Option(
        "repeat_count",
        "pipeline.repeat_count",
        "executions in a step, each with its weight update",
        "tests/unit/test_machine.py::test_weight_update_follows_every_execution_and_none_overlap",
    ),
    Option(
        "batch_serialization_iterations",
        "pipeline.batch_serialization_iterations",
        "each stage runs so many micro-batches before the next one begins; Sequential on one IPU, SUM",
        f"{_SERIAL}::test_every_stage_runs_its_micro_batches_in_a_row",
    ),
    Option(
        "inputs",
        "",
        "of `ipusim.ipu` only: in a scenario all values come through the data, and a learning rate is the optimizer's",
    ),
    Option(
        "infeed_queue",
        "infeed",
        "prefetch depth, bytes and host rates; the data are `data`",
        "tests/unit/test_machine.py::test_infeed_waits_only_when_the_host_is_behind",
    ),
    Option(
        "outfeed_queue",
        "outfeed",
        "mode ALL or LAST, buffer depth, bytes and host rates",
        "tests/unit/test_machine.py::test_outfeed_modes",
    ),
    Option(
        "optimizer_function",
        "optimizer",
        "sgd, momentum, adam or lamb, with gradients mapped as `optimizer.map_gradient` says; none is inference",
        f"{_RESOLVE}::test_without_optimizer_or_with_training_off_it_is_inference",
    ),
    Option(
        "device_mapping",
        "pipeline.device_mapping",
        "the IPU of each stage, several on one IPU included, and lists for concurrent stages",
        f"{_RUN}::test_device_mappings",
    ),
    Option(
        "pipeline_schedule",
        "pipeline.schedule",
        "grouped, interleaved, sequential; beside them sharded and single",
        "tests/golden/test_grids.py::test_grid",
    ),
    Option(
        "recomputation_mode",
        "pipeline.recomputation_mode",
        "Auto, RecomputeThenBackpropagate, RecomputeAndBackpropagateInterleaved, as each schedule allows; "
        "recomputation_checkpoint is `pipeline.recomputation_checkpoints`",
        "tests/unit/test_schedules.py::test_recomputation_modes_that_a_schedule_has_not",
    ),
    Option(
        "forward_propagation_stages_poplar_options",
        "pipeline.forward_propagation_stages_poplar_options",
        "availableMemoryProportion of matrix products and convolutions: less memory for more supersteps (assumed)",
        f"{_STAGE_OPTIONS}::test_an_operation_is_split_until_its_parts_fit",
    ),
    Option(
        "backward_propagation_stages_poplar_options",
        "pipeline.backward_propagation_stages_poplar_options",
        "the same of backward passes",
        f"{_STAGE_OPTIONS}::test_each_pass_has_its_own_options",
    ),
    Option(
        "weight_update_poplar_options",
        "pipeline.weight_update_poplar_options",
        "the same of the weight update, whose operations are elementwise here, so that nothing is split",
        f"{_STAGE_OPTIONS}::test_a_weight_update_without_products_is_left_as_it_is",
    ),
    Option(
        "offload_weight_update_variables",
        "pipeline.offload_weight_update_variables",
        "optimizer state in Streaming Memory, loaded and stored around the weight update; absent: if there is any",
        f"{_OFFLOAD}::test_only_the_weight_update_becomes_longer",
    ),
    Option(
        "replicated_optimizer_state_sharding",
        "pipeline.replicated_optimizer_state_sharding",
        "each replica stores its part of the offloaded optimizer's state; an all-gather before each weight update",
        f"{_SHARDING}::test_a_sharded_update_loads_a_part_and_gathers_the_whole",
    ),
    Option(
        "offload_activations",
        "pipeline.offload_activations",
        "activations in Streaming Memory, with batch serialization alone; absent: if there is any",
        f"{_SERIAL}::test_activations_come_and_go_with_every_pass",
    ),
    Option(
        "offload_gradient_accumulation_buffers",
        "pipeline.offload_gradient_accumulation_buffers",
        "accumulators in Streaming Memory, loaded and stored around every backward pass; absent: with serialization",
        f"{_OFFLOAD}::test_accumulators_come_and_go_with_every_backward_pass",
    ),
    Option(
        "replicated_weight_sharding",
        "pipeline.replicated_weight_sharding",
        "each replica stores its part of the weights; an all-gather before each pass; absent: with serialization",
        f"{_SHARDING}::test_sharded_weights_come_before_every_pass",
    ),
    Option(
        "offload_weights",
        "pipeline.offload_weights",
        "true or absent: those parts lie in Streaming Memory; false is refused with sharding, as the compiler does",
        f"{_SHARDING}::test_what_is_refused",
    ),
    Option(
        "continuous_weight_updates",
        "pipeline.continuous_weight_updates",
        "false; true is refused in Graphcore's words: it is not implemented there either",
        "tests/unit/test_scenario_options.py::test_continuous_weight_updates_are_refused_in_graphcores_words",
    ),
    Option(
        "outfeed_loss",
        "pipeline.outfeed_loss",
        "a training program's outfeed carries the loss alone, as it does here without outfeed_mask too",
        f"{_OUTFEED}::test_what_is_refused",
    ),
    Option(
        "accumulate_outfeed",
        "pipeline.accumulate_outfeed",
        "results are summed up on the IPU; one element goes out with each weight update",
        f"{_OUTFEED}::test_the_sum_goes_out_with_the_weight_update_and_not_before",
    ),
    Option(
        "accumulate_outfeed_dtype",
        "pipeline.accumulate_outfeed_dtype",
        "type of that sum, and so its bytes",
        f"{_OUTFEED}::test_a_wider_sum_keeps_what_a_narrow_one_loses",
    ),
    Option(
        "outfeed_mask",
        "pipeline.outfeed_mask",
        "which of predictions and loss are left out; with it the last stage gives both",
        f"{_OUTFEED}::test_what_is_masked_is_not_sent",
    ),
    Option(
        "reduction_method",
        "pipeline.reduction_method",
        "SUM, MEAN or RUNNING_MEAN",
        "tests/oracles/test_accumulation.py::test_reduction_methods",
    ),
    Option("name", "name", "names the run's folder", f"{_RESOLVE}::test_defaults"),
)

#: Fields of ``IPUConfig`` that change how a pipeline runs.
FIELDS: Final = (
    Option(
        "auto_select_ipus",
        "system.auto_select_ipus",
        "size of the device, a power of two; more IPUs than the stages take run replicas",
        "tests/oracles/test_replicas.py::test_replicas_train_as_one_loop_over_all_their_micro_batches",
    ),
    Option(
        "select_ipus",
        "system.select_ipus",
        "id of the device in the machine's listing; one program runs, so one id",
        "tests/unit/test_hardware_system.py::test_a_device_selected_by_id_keeps_its_places_in_the_machine",
    ),
    Option(
        "selection_order",
        "system.selection_order",
        "AUTO, ZIGZAG, SNAKE or HOOF",
        "tests/unit/test_hardware_orders.py::test_sixteen_ipus",
    ),
    Option(
        "allow_recompute",
        "pipeline.allow_recompute",
        "activations are computed again instead of kept",
        f"{_RUN}::test_recomputation_changes_no_bit",
    ),
    Option(
        "io_tiles.num_io_tiles",
        "system.io_tiles.num_io_tiles",
        "tiles of each IPU that neither compute nor hold the program's memory",
        f"{_IO_TILES}::test_fewer_tiles_compute_and_hold_memory",
    ),
    Option(
        "io_tiles.place_ops_on_io_tiles",
        "system.io_tiles.place_ops_on_io_tiles",
        "feeds run beside the passes, one time-step ahead and behind; Grouped only",
        f"{_IO_TILES}::test_a_time_step_lasts_as_long_as_the_passes_or_the_host_copies_beside_them",
    ),
    Option(
        "io_tiles.available_memory_proportion",
        "system.io_tiles.available_memory_proportion",
        "share of the tiles' memory for the feeds; with more to place, nothing is, and all tiles compute",
        f"{_IO_TILES}::test_feeds_are_placed_up_to_the_proportion",
    ),
    Option(
        "device_connection.enable_remote_buffers",
        "system.enable_remote_buffers",
        "whether variables may lie in Streaming Memory, where the machine has it",
        f"{_OFFLOAD}::test_what_is_refused",
    ),
    Option(
        "optimizations.minimum_remote_tensor_size",
        "system.minimum_remote_tensor_size",
        "smaller tensors of the optimizer's state are not offloaded",
        f"{_OFFLOAD}::test_small_tensors_stay",
    ),
    Option("optimizations.prefetch_data_streams", "", "infeeds prefetch as deep as `infeed.prefetch_depth` says"),
    Option(
        "optimizations.maximum_cross_replica_sum_buffer_size",
        "",
        "all gradients of an IPU are summed up in one buffer",
    ),
    Option("optimizations.maximum_reduce_scatter_buffer_size", "", "no program scatters its gradients"),
    Option(
        "optimizations.maximum_inter_ipu_copies_buffer_size", "", "all copies of a time-step are one, however large"
    ),
    Option(
        "convolutions.poplar_options",
        "system.convolutions.poplar_options",
        "availableMemoryProportion of convolutions in stages that give none",
        f"{_STAGE_OPTIONS}::test_options_of_the_system_hold_where_a_stage_gives_none",
    ),
    Option(
        "matmuls.poplar_options",
        "system.matmuls.poplar_options",
        "availableMemoryProportion of matrix products in stages that give none",
        f"{_STAGE_OPTIONS}::test_options_of_the_system_hold_where_a_stage_gives_none",
    ),
    Option("floating_point_behaviour.esr", "", "no stochastic rounding: NumPy rounds to nearest"),
    Option("norms.experimental.distributed_batch_norm_replica_group_size", "", "there is no batch normalisation"),
)

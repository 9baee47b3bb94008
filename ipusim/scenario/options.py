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
    """

    name: str
    key: str
    effect: str


#: Arguments of ``pipelining_ops.pipeline``.
ARGUMENTS: Final = (
    Option(
        "computational_stages",
        "pipeline.stages",
        "stages as lists of layers, functions or costs, or lists of concurrent ones; or `pipeline.splits`",
    ),
    Option(
        "gradient_accumulation_count",
        "pipeline.gradient_accumulation_count",
        "micro-batches of an execution; a multiple of the overlap length, with Graphcore's message",
    ),
    Option("pipeline_depth", "", "the old name of gradient_accumulation_count, which is the one to use"),
    Option(
        "gradient_accumulation_dtype",
        "pipeline.gradient_accumulation_dtype",
        "type of the accumulators, their bytes and the time of adding; of all, or by layer or variable",
    ),
    Option("repeat_count", "pipeline.repeat_count", "executions in a step, each with its weight update"),
    Option(
        "batch_serialization_iterations",
        "pipeline.batch_serialization_iterations",
        "each stage runs so many micro-batches before the next one begins; Sequential on one IPU, SUM",
    ),
    Option(
        "inputs",
        "",
        "of `ipusim.ipu` only: in a scenario all values come through the data, and a learning rate is the optimizer's",
    ),
    Option("infeed_queue", "infeed", "prefetch depth, bytes and host rates; the data are `data`"),
    Option("outfeed_queue", "outfeed", "mode ALL or LAST, buffer depth, bytes and host rates"),
    Option(
        "optimizer_function",
        "optimizer",
        "sgd, momentum, adam or lamb, with gradients mapped as `optimizer.map_gradient` says; none is inference",
    ),
    Option(
        "device_mapping",
        "pipeline.device_mapping",
        "the IPU of each stage, several on one IPU included, and lists for concurrent stages",
    ),
    Option(
        "pipeline_schedule",
        "pipeline.schedule",
        "grouped, interleaved, sequential; beside them sharded and single",
    ),
    Option(
        "recomputation_mode",
        "pipeline.recomputation_mode",
        "Auto, RecomputeThenBackpropagate, RecomputeAndBackpropagateInterleaved, as each schedule allows; "
        "recomputation_checkpoint is `pipeline.recomputation_checkpoints`",
    ),
    Option(
        "forward_propagation_stages_poplar_options",
        "pipeline.forward_propagation_stages_poplar_options",
        "availableMemoryProportion of matrix products and convolutions: less memory for more supersteps (assumed)",
    ),
    Option(
        "backward_propagation_stages_poplar_options",
        "pipeline.backward_propagation_stages_poplar_options",
        "the same of backward passes",
    ),
    Option(
        "weight_update_poplar_options",
        "pipeline.weight_update_poplar_options",
        "the same of the weight update, whose operations are elementwise here, so that nothing is split",
    ),
    Option(
        "offload_weight_update_variables",
        "pipeline.offload_weight_update_variables",
        "optimizer state in Streaming Memory, loaded and stored around the weight update; absent: if there is any",
    ),
    Option(
        "replicated_optimizer_state_sharding",
        "pipeline.replicated_optimizer_state_sharding",
        "each replica stores its part of the offloaded optimizer's state; an all-gather before each weight update",
    ),
    Option(
        "offload_activations",
        "pipeline.offload_activations",
        "activations in Streaming Memory, with batch serialization alone; absent: if there is any",
    ),
    Option(
        "offload_gradient_accumulation_buffers",
        "pipeline.offload_gradient_accumulation_buffers",
        "accumulators in Streaming Memory, loaded and stored around every backward pass; absent: with serialization",
    ),
    Option(
        "replicated_weight_sharding",
        "pipeline.replicated_weight_sharding",
        "each replica stores its part of the weights; an all-gather before each pass; absent: with serialization",
    ),
    Option(
        "offload_weights",
        "pipeline.offload_weights",
        "true or absent: those parts lie in Streaming Memory; false is refused with sharding, as the compiler does",
    ),
    Option(
        "continuous_weight_updates",
        "pipeline.continuous_weight_updates",
        "false; true is refused in Graphcore's words: it is not implemented there either",
    ),
    Option(
        "outfeed_loss",
        "pipeline.outfeed_loss",
        "a training program's outfeed carries the loss alone, as it does here without outfeed_mask too",
    ),
    Option(
        "accumulate_outfeed",
        "pipeline.accumulate_outfeed",
        "results are summed up on the IPU; one element goes out with each weight update",
    ),
    Option("accumulate_outfeed_dtype", "pipeline.accumulate_outfeed_dtype", "type of that sum, and so its bytes"),
    Option(
        "outfeed_mask",
        "pipeline.outfeed_mask",
        "which of predictions and loss are left out; with it the last stage gives both",
    ),
    Option("reduction_method", "pipeline.reduction_method", "SUM, MEAN or RUNNING_MEAN"),
    Option("name", "name", "names the run's folder"),
)

#: Fields of ``IPUConfig`` that change how a pipeline runs.
FIELDS: Final = (
    Option(
        "auto_select_ipus",
        "system.auto_select_ipus",
        "size of the device, a power of two; more IPUs than the stages take run replicas",
    ),
    Option(
        "select_ipus",
        "system.select_ipus",
        "id of the device in the machine's listing; one program runs, so one id",
    ),
    Option("selection_order", "system.selection_order", "AUTO, ZIGZAG, SNAKE or HOOF"),
    Option("allow_recompute", "pipeline.allow_recompute", "activations are computed again instead of kept"),
    Option(
        "io_tiles.num_io_tiles",
        "system.io_tiles.num_io_tiles",
        "tiles of each IPU that neither compute nor hold the program's memory",
    ),
    Option(
        "io_tiles.place_ops_on_io_tiles",
        "system.io_tiles.place_ops_on_io_tiles",
        "feeds run beside the passes, one time-step ahead and behind; Grouped only",
    ),
    Option(
        "io_tiles.available_memory_proportion",
        "system.io_tiles.available_memory_proportion",
        "share of the tiles' memory for the feeds; with more to place, nothing is, and all tiles compute",
    ),
    Option(
        "device_connection.enable_remote_buffers",
        "system.enable_remote_buffers",
        "whether variables may lie in Streaming Memory, where the machine has it",
    ),
    Option(
        "optimizations.minimum_remote_tensor_size",
        "system.minimum_remote_tensor_size",
        "smaller tensors of the optimizer's state are not offloaded",
    ),
    Option("optimizations.prefetch_data_streams", "", "infeeds prefetch as deep as `infeed.prefetch_depth` says"),
    Option(
        "optimizations.maximum_cross_replica_sum_buffer_size",
        "",
        "all gradients of an IPU are summed up in one buffer",
    ),
    Option("optimizations.maximum_reduce_scatter_buffer_size", "", "no program scatters its gradients"),
    Option(
        "optimizations.maximum_inter_ipu_copies_buffer_size",
        "",
        "all copies of a time-step are one, however large",
    ),
    Option(
        "convolutions.poplar_options",
        "system.convolutions.poplar_options",
        "availableMemoryProportion of convolutions in stages that give none",
    ),
    Option(
        "matmuls.poplar_options",
        "system.matmuls.poplar_options",
        "availableMemoryProportion of matrix products in stages that give none",
    ),
    Option("floating_point_behaviour.esr", "", "no stochastic rounding: NumPy rounds to nearest"),
    Option("norms.experimental.distributed_batch_norm_replica_group_size", "", "there is no batch normalisation"),
)

"""Map synonyms from PyTorch, DeepSpeed, Megatron, Keras and papers to ipusim's keys, for messages.

Synonyms are not aliases: a scenario with a synonym is refused, and the message names ipusim's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

#: Foreign words per word of ipusim, in their original spelling; case and separators do not matter.
FOREIGN: Final[Mapping[str, str]] = {
    # keys of a scenario
    "auto_select_ipus": "num_ipus ipus n_ipus num_gpus gpus n_gpus num_devices devices world_size nproc_per_node "
    "nproc tensor_parallel_size",
    "select_ipus": "ipu_ids device_ids",
    "gradient_accumulation_count": "accumulation_steps gradient_accumulation_steps gradient_accumulation "
    "grad_accum_steps grad_accum accum_steps accum_iter accumulate_grad_batches num_micro_batches num_microbatches "
    "n_microbatches micro_batches microbatches chunks gas gradient_accumulation_factor",
    "micro_batch_size": "batch_size micro_batch mbs train_micro_batch_size_per_gpu per_device_train_batch_size "
    "per_gpu_batch_size local_batch_size device_batch_size",
    "repeat_count": "iterations_per_loop steps_per_execution device_iterations",
    "splits": "split_points split_spec pipeline_parallel_size pipeline_model_parallel_size pp_size num_stages "
    "partition balance",
    "device_mapping": "device_map placement stage_to_rank stage_index_to_group_rank",
    "virtual_stages": "num_model_chunks virtual_pipeline_model_parallel_size virtual_pipeline_parallel_size "
    "num_layers_per_virtual_pipeline_stage",
    "micro_batch_group_size": "microbatch_group_size_per_vp_stage microbatch_group_size_per_virtual_pipeline_stage "
    "num_rounds",
    "segments": "num_splits num_slices slices seq_splits pp_sp sequence_chunks",
    "allow_recompute": "recompute recompute_activations recomputation activation_checkpointing gradient_checkpointing "
    "checkpoint_activations activation_checkpoint remat",
    "recomputation_checkpoints": "checkpoints",
    "replicated_optimizer_state_sharding": "zero zero1 zero_stage zero_optimization distributed_optimizer "
    "use_distributed_optimizer optimizer_state_sharding",
    "replicated_weight_sharding": "fsdp zero3 fully_sharded weight_sharding",
    "offload_weight_update_variables": "cpu_offload offload_optimizer optimizer_offload offload_optimizer_state",
    "offload_weights": "offload_param param_offload",
    "offload_activations": "activation_offload cpu_checkpointing activation_offloading",
    "continuous_weight_updates": "async_updates weight_stashing",
    "reduction_method": "gradient_reduction loss_reduction",
    "steps": "epochs num_epochs n_epochs max_steps num_steps n_steps total_steps train_steps train_iters iterations "
    "max_iters",
    "seed": "random_seed manual_seed random_state rng_seed",
    "precision": "dtype torch_dtype data_type mixed_precision fp16",
    "training": "train is_training",
    "evaluate": "eval validation evaluation",
    "optimizer": "optim opt",
    "prefetch_depth": "prefetch_factor prefetch num_prefetch",
    # keys of data
    "hold_out": "validation_split val_split val_fraction test_size test_split validation_fraction",
    "classes": "num_classes n_classes",
    "samples": "num_samples n_samples dataset_size",
    "length": "seq_len sequence_length seq_length max_seq_len max_length context_length block_size",
    "vocabulary": "vocab_size vocab",
    # keys of layers and stages
    "units": "out_features hidden_units hidden_size hidden_dim out_dim output_size features",
    "filters": "out_channels channels",
    "strides": "stride",
    "pool_size": "kernel",
    "use_bias": "bias",
    "epsilon": "eps",
    "rate": "p dropout_rate drop_prob dropout_prob",
    "input_dim": "num_embeddings vocab_size",
    "output_dim": "embedding_dim embed_dim d_model",
    "num_heads": "nhead n_head heads num_attention_heads attention_heads",
    "key_dim": "head_dim head_size d_k",
    "causal": "is_causal",
    "target_shape": "new_shape",
    "forward": "fwd forward_cycles forward_time",
    "backward": "bwd backward_cycles backward_time",
    "update": "weight_update step_cycles",
    # keys of optimizers
    "learning_rate": "lr alpha step_size eta base_lr",
    "beta_1": "adam_beta1 betas b1",
    "beta_2": "adam_beta2 b2",
    "weight_decay": "wd l2_reg decay_rate",
    "map_gradient": "gradient_clipping grad_clip clip_grad",
    "clip_by_norm": "clip_grad_norm max_grad_norm max_norm",
    "clip_by_value": "clip_grad_value",
    # layers, losses, activations
    "dense": "linear fc fully_connected affine mlp gemm matmul ffn",
    "conv2d": "conv convolution",
    "batch_norm": "bn batchnorm2d batchnorm1d batch_normalization",
    "layer_norm": "ln layer_normalization rms_norm rmsnorm",
    "group_norm": "gn group_normalization",
    "instance_norm": "instancenorm2d",
    "max_pool2d": "max_pool maxpool max_pooling max_pooling2d",
    "average_pool2d": "avg_pool avgpool avg_pool2d average_pooling2d adaptive_avg_pool2d mean_pool",
    "multi_head_attention": "attention mha self_attention scaled_dot_product_attention sdpa",
    "embedding": "embed token_embedding wte",
    "position_embedding": "positional_encoding pos_embed wpe positional_embedding",
    "residual": "skip skip_connection shortcut",
    "tied_projection": "lm_head",
    "reshape": "view unflatten",
    "softmax_cross_entropy": "cross_entropy cross_entropy_loss ce nll nll_loss sparse_categorical_crossentropy "
    "categorical_crossentropy softmax log_softmax bce",
    "mean_squared_error": "mse mse_loss l2 l2_loss mean_square_error",
    "relu": "relu6 leaky_relu prelu elu rectifier",
    "gelu": "gelu_new gelu_tanh quick_gelu",
    "gelu_erf": "gelu_exact",
    "swish": "silu",
    "sigmoid": "logistic",
    "identity": "linear none",
    # optimizers, data, precisions
    "sgd": "gd gradient_descent",
    "momentum": "sgdm nesterov heavy_ball",
    "adam": "adamw adam_w fused_adam",
    "lamb": "fused_lamb",
    "synthetic": "random fake dummy",
    "synthetic_targets": "regression",
    "synthetic_tokens": "tokens text",
    "idx": "mnist fashion_mnist",
    "npz": "numpy npy",
    "float16": "fp16 half f16 16 bf16 bfloat16",
    "float32": "fp32 single float f32 32",
    "float64": "fp64 double f64 64",
    # schedules, sync modes, reductions, frameworks
    "gpipe": "afab all_forward_all_backward fill_drain f_then_b",
    "1f1b": "one_forward_one_backward pipedream pipedream_flush dapple schedule_1f1b non_interleaved",
    "interleaved_1f1b": "virtual_pipeline looped_dfs vpp megatron",
    "gis": "group_interleaved group_interleaved_1f1b pipeoffload",
    "zero_bubble_h1": "zb zbh1 zb_h1 zero_bubble interleaved_zero_bubble",
    "zero_bubble_h2": "zbh2 zb_h2",
    "zbv": "zbv_zero_bubble",
    "breadth_first": "looped_bfs bfs looped",
    "eager_1f1b": "eager",
    "1f1b_v": "v_1f1b v1f1b",
    "chimera": "bidirectional",
    "hanayo": "waves wave",
    "single": "none no_pipeline",
    "sharded": "model_parallel naive",
    "lock_step": "bsp synchronous sync barrier",
    "point_to_point": "p2p async asynchronous send_recv",
    "MEAN": "average avg",
    "SUM": "add",
    "RUNNING_MEAN": "running_average",
    "tensorflow1": "tf1",
    "tensorflow2": "tf2 tensorflow tf keras",
    "pytorch": "torch poptorch",
    # machines and chips
    "c2_server": "c2 mk1 gc2 ipu1 dss8440",
    "m2000": "mk2 gc200 ipu ipu2 ipu_machine colossus ipu_m2000",
    "pod16": "ipu_pod16 classic_pod16 mk2_pod16",
    "pod64": "ipu_pod64 classic_pod64",
    "pod128": "ipu_pod128",
    "pod256": "ipu_pod256",
    "bow2000": "bow bow_machine mk3 bow_ipu",
    "GC2": "mk1 ipu1 c2 colossus_mk1",
    "GC200": "mk2 ipu2 m2000 colossus colossus_mk2",
    "BOW": "bow_ipu mk3 bow2000",
    # units
    "s": "sec second secs seconds",
    "ms": "msec millisecond milliseconds",
    "us": "usec microsecond microseconds",
    "ns": "nsec nanosecond nanoseconds",
    "GB/s": "gbps gbyte/s gbytes/s",
    "Gbit/s": "gigabit/s",
    "MB/s": "mbps",
    "B": "bytes byte",
    "KiB": "k kbytes",
    "MiB": "m mbytes",
    "GiB": "g gbytes",
}


def spelling_key(word: str) -> str:
    """Return a key that is equal for words that differ only in case, or in separators between parts."""
    return "".join(letter for letter in word.lower() if letter.isalnum())


@cache
def _keys_by_foreign_word() -> Mapping[str, tuple[str, ...]]:
    ours_of: dict[str, tuple[str, ...]] = {}
    for ours, foreign in FOREIGN.items():
        for word in foreign.split():
            ours_of[spelling_key(word)] = (*ours_of.get(spelling_key(word), ()), ours)
    return ours_of


def keys_for(word: str) -> tuple[str, ...]:
    """Return ipusim's keys for a foreign word, likeliest first; empty for an unknown word.

    >>> keys_for("lr"), keys_for("BatchNorm2d")
    (('learning_rate',), ('batch_norm',))
    """
    return _keys_by_foreign_word().get(spelling_key(word), ())

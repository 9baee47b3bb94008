"""Whatever is done to any key of a scenario, it ends as an Job or as problems with places; nothing else."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipusim.app.scenario import ScenarioError, load_job
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.source import Source, read_source
from ipusim.runs.job import Job
from ipusim.runs.places import Place
from ipusim.runs.request.schema import json_schema
from tests.effort import runs_slowest, sampled, share
from tests.random_runs import any_text

KeyPath = tuple[str | int, ...]

#: Good scenarios that together use every key of the schema; small, so that each resolves in a millisecond.
SAMPLES: dict[str, dict[str, Any]] = {
    "training": {
        "name": "training",
        "disturbances": [
            {"ipu": 1, "slower": 1.5, "from": "1 us", "until": 5000},
            {"ipu": 0, "jitter": "5 %", "seed": 7},
            {"link": [0, 1], "slower": 4, "delay": "2 us"},
            {"link": [0, 1], "delay": 100},
            {"link": [0, 1], "dead": False},
            {"host": "infeed", "stall": "2 us", "at": 100},
            {"streaming_memory": 0, "slower": 2},
            {
                "ipu": 1,
                "lost": "4 us",
                "detect": "1 us",
                "restart": "1 us",
                "checkpoint": 10,
                "checkpoint_every": 2,
                "spare": False,
            },
        ],
        "system": {
            "name": "m2000",
            "auto_select_ipus": 2,
            "selection_order": "SNAKE",
            "sync_replicas_independently": True,
            "clock": "1.5 GHz",
            "overhead": "3 us",
            "host": {
                "infeed": "4 GB/s",
                "host_fill": 4e9,
                "data_rate": "2 GB/s",
                "outfeed": "3.5 GB/s",
                "host_drain": "3 GB/s",
                "network": "12 GB/s",
                "count": 2,
                "sum_over": "links",
                "framework": "pytorch",
                "updates_optimizer": "every 3 session runs",
                "optimizer_values": 4,
            },
            "enable_remote_buffers": True,
            "streaming_memory": {"bandwidth": "20 GB/s", "ipu_bandwidth": "8 GB/s", "capacity": "1 GiB"},
            "minimum_remote_tensor_size": "64 B",
            "minimum_sharded_elements": 16,
            "maximum_cross_replica_sum_buffer_size": "1 KiB",
            "io_tiles": {"num_io_tiles": 32, "place_ops_on_io_tiles": True, "available_memory_proportion": 0.5},
        },
        "data": {
            "type": "synthetic",
            "shape": [3, 2],
            "classes": 3,
            "samples": 40,
            "noise": 0.1,
            "label_count": 3,
            "seed": 1,
            "hold_out": 0.2,
            "shuffle": False,
        },
        "model": {
            "layers": [
                {"name": "flatten", "type": "flatten"},
                {"name": "rows", "type": "reshape", "target_shape": [3, 2]},
                {"name": "hidden", "type": "dense", "units": 4, "activation": "tanh", "use_bias": False},
                {"name": "more", "type": "activation", "activation": "tanh"},
                {"name": "sum", "type": "add", "from": "hidden"},
                {"name": "logits", "type": "dense", "units": 3},
                {"name": "cel", "type": "softmax_cross_entropy"},
            ]
        },
        "pipeline": {
            "schedule": "grouped",
            "sync": "lock_step",
            "overlap_copies": False,
            "splits": ["logits"],
            "cycles": [{"forward": 10, "backward": 20, "update": 5}, {"forward": 10}],
            "device_mapping": [1, 0],
            "micro_batch_size": 4,
            "gradient_accumulation_count": 8,
            "repeat_count": 2,
            "continuous_weight_updates": False,
            "outfeed_loss": False,
            "outfeed_mask": [False, True],
            "accumulate_outfeed": True,
            "accumulate_outfeed_dtype": "float32",
            "allow_recompute": True,
            "recomputation_mode": "RecomputeThenBackpropagate",
            "gradient_accumulation_dtype": "float32",
            "reduction_method": "MEAN",
            "offload_weight_update_variables": True,
            "offload_gradient_accumulation_buffers": True,
            "offload_activations": {"to": "streaming_memory", "stages": ["stage0"], "keep": 1, "buffers": 2},
            "batch_serialization_iterations": 1,
            "replicated_optimizer_state_sharding": True,
            "replicated_weight_sharding": False,
            "offload_weights": False,
            "variables_on_host": False,
        },
        "optimizer": {
            "type": "lars",
            "learning_rate": 0.1,
            "momentum": 0.9,
            "nesterov": True,
            "eeta": 0.01,
            "skip_list": ["/b"],
        },
        "training": True,
        "steps": 2,
        "seed": 7,
        "precision": "float64",
        "numerics": "on",
        "memory": "report",
        "code_bytes": "2 MiB",
        "infeed": {"prefetch_depth": 2, "element_bytes": "1 KiB"},
        "outfeed": {"mode": "ALL", "buffer_depth": 2, "element_bytes": 8},
        "evaluate": {"every": 1},
    },
    "python": {
        "system": {"name": "c2_server", "select_ipus": 17},
        "rates": {
            "amp_ceiling": 0.8,
            "product_layout_cycles": 700,
            "pool_layout_cycles": 2500,
            "variable_layout_cycles": 9000,
            "vector_slowdown": 4,
            "transcendental_operations": 6.5,
            "program_code": "4 KiB",
            "compute_set_code": 137.5,
            "exchange_efficiency": 0.9,
            "compute_set_cycles": 300,
            "link": "16 GB/s",
            "link_efficiency": 0.83,
            "rung_links": 6,
            "rung_crossing_links": 1,
            "rail_links": 3,
            "gateway_link": "100 Gbit/s",
            "gateway_links": 2,
            "hop_latency": "20 ns",
            "gateway_latency": "1 us",
            "machine_rung": "30 GB/s",
            "sync_skew_cycles": 100,
            "pre_copy_cycles": 1500.5,
            "pair_exchange": "3 us",
            "beyond_pair_exchange": 4e-6,
            "post_copy_cycles": 0,
            "session_run": "0.2 s",
            "optimizer_value": "0.1 ms",
            "pytorch_optimizer_value": "30 us",
            "offchip_state": 0,
            "offchip_stream": "100 ns",
            "pytorch_offchip_state": "2 us",
        },
        "data": {
            "type": "synthetic_targets",
            "shape": [4],
            "target_shape": [2],
            "samples": 20,
            "noise": 0.1,
            "seed": 3,
            "hold_out": 5,
            "shuffle": True,
        },
        "model": {
            "layers": [
                {
                    "name": "mine",
                    "python": "f.py:block",
                    "parameters": {"W": [4, 2]},
                    "fill": {"W": 0.5},
                    "cost": {"forward": 100, "backward": 200},
                },
                {"name": "mse", "type": "mean_squared_error"},
            ]
        },
        "pipeline": {
            "schedule": "Sharded",
            "stages": [
                {"name": "s0", "python": "f.py:double", "cost": "counted", "loss": False},
                ["mine", "mse"],
            ],
            "gradient_accumulation_count": 2,
        },
        "optimizer": {
            "type": "ftrl",
            "learning_rate": 0.1,
            "learning_rate_power": -0.4,
            "initial_accumulator": 0.2,
            "l1": 0.001,
            "l2": 0.01,
            "l2_shrinkage": 0.001,
            "beta": 0.1,
        },
    },
    "timed": {
        "system": {"name": "free"},
        "pipeline": {
            "sync": "point_to_point",
            "overlap_copies": False,
            "overlapped": "max",
            "segments": 2,
            "virtual_stages": 1,
            "stages": [
                {
                    "name": "s0",
                    "forward": 10,
                    "backward": 20,
                    "update": 3,
                    "output_bytes": "4 KiB",
                    "label_bytes": 64,
                    "gradient_bytes": 0,
                    "parameter_bytes": "1 MB",
                    "stash_bytes": "3 MiB",
                    "backward_input": 12,
                    "backward_weights": 11,
                    "rest_bytes": "2 MiB",
                    "input_bytes": 512,
                    "state_bytes": "1 MB",
                    "accumulator_bytes": "1 MB",
                },
                {"name": "s1", "forward": 10},
            ],
            "schedule": "zero_bubble_h1",
            "gradient_accumulation_count": 4,
        },
        "use_synthetic_data": True,
    },
    "transformer": {
        "system": {"name": "m2000"},
        "numerics": "off",
        "data": {"type": "synthetic_tokens", "length": 4, "vocabulary": 8, "samples": 16, "noise": 0.1, "seed": 1},
        "model": {
            "layers": [
                {"name": "tokens", "type": "embedding", "input_dim": 8, "output_dim": 4},
                {"name": "positions", "type": "position_embedding"},
                {
                    "name": "block",
                    "type": "residual",
                    "layers": [
                        {"name": "norm", "type": "layer_norm", "epsilon": 0.01, "center": True, "scale": True},
                        {
                            "name": "heads",
                            "type": "multi_head_attention",
                            "num_heads": 2,
                            "key_dim": 3,
                            "causal": True,
                            "use_bias": False,
                            "dropout": 0.1,
                            "split_qkv": True,
                            "padding_mask": True,
                        },
                        {
                            "name": "relative",
                            "type": "relative_multi_head_attention",
                            "num_heads": 2,
                            "key_dim": 3,
                            "causal": False,
                            "use_bias": True,
                            "dropout": 0.2,
                            "split_qkv": False,
                        },
                        {"name": "mine", "python": "f.py:double"},
                    ],
                },
                {
                    "repeat": 2,
                    "layers": [
                        {"name": "drop", "type": "dropout", "rate": 0.2},
                        {"repeat": 1, "layers": [{"name": "gelu", "type": "activation", "activation": "gelu"}]},
                    ],
                },
                {"name": "wide", "type": "conv1d", "filters": 8, "kernel_size": 3, "padding": "same", "groups": 2},
                {"name": "gate", "type": "glu"},
                {"name": "norm", "type": "batch_norm", "epsilon": 0.01},
                {"name": "masked", "type": "take_positions", "count": 3},
                {"name": "scores", "type": "tied_projection", "embedding": "tokens", "units": 8, "use_bias": False},
                {
                    "name": "logits",
                    "type": "dense",
                    "units": 8,
                    "serialization_factor": 2,
                    "serialization_dimension": "b_rows",
                },
                {"name": "cel", "type": "masked_softmax_cross_entropy", "positions": 2},
            ]
        },
        "pipeline": {
            "schedule": "interleaved_1f1b",
            "micro_batch_group_size": 2,
            "authors_order": False,
            "sync": "point_to_point",
            "overlap_copies": True,
            "overlapped": 4000,
            "virtual_stages": 2,
            "splits": ["positions", "drop1", "logits"],
            "gradient_accumulation_count": 4,
            "micro_batch_size": 2,
        },
        "optimizer": {
            "type": "adam",
            "learning_rate": 0.01,
            "beta_1": 0.8,
            "beta_2": 0.99,
            "epsilon": 1e-7,
            "weight_decay": 0.01,
            "exclude_from_weight_decay": ["/b", "norm"],
            "map_gradient": {"decay": 0.001, "clip_by_value": 0.5, "clip_by_norm": 1.0},
        },
    },
    "convolutions": {
        "system": {
            "name": "m2000",
            "matmuls": {"poplar_options": {"availableMemoryProportion": 0.5, "partialsType": "half"}},
            "convolutions": {"poplar_options": {}},
        },
        "data": {"type": "synthetic", "shape": [6, 6, 2], "classes": 3, "samples": 12},
        "model": {
            "layers": [
                {
                    "name": "conv",
                    "trainable": False,
                    "type": "conv2d",
                    "filters": 4,
                    "groups": 2,
                    "kernel_size": [3, 3],
                    "strides": [1, 2],
                    "padding": "same",
                    "activation": "swish",
                    "use_bias": False,
                },
                {"name": "groups", "type": "group_norm", "groups": 2, "strided_channel_grouping": False},
                {
                    "name": "block",
                    "type": "residual",
                    "layers": [{"name": "a", "type": "conv2d", "filters": 6, "kernel_size": [1, 1]}],
                    "shortcut": [{"name": "b", "type": "conv2d", "filters": 6, "kernel_size": [1, 1]}],
                },
                {"name": "instance", "type": "instance_norm", "epsilon": 0.001},
                {
                    "name": "windows",
                    "type": "window_attention",
                    "num_heads": 2,
                    "key_dim": 3,
                    "causal": False,
                    "use_bias": True,
                    "dropout": 0.2,
                    "split_qkv": False,
                    "window": 3,
                    "shift": 1,
                },
                {"name": "excite", "type": "squeeze_excite", "units": 3, "activation": "swish"},
                {"name": "blocks", "type": "space_to_depth", "block_size": 1},
                {"name": "each", "type": "depthwise_conv2d", "kernel_size": [1, 1], "depth_multiplier": 2},
                {"name": "max", "type": "max_pool2d", "pool_size": [2, 1], "strides": [2, 1], "padding": "valid"},
                {"name": "mean", "type": "average_pool2d", "pool_size": [3, 3], "padding": "same"},
                {"name": "up", "type": "conv2d_transpose", "filters": 2, "kernel_size": [2, 2], "strides": [2, 2]},
                {"name": "beside", "type": "concatenate", "from": "each", "crop": [2, 2]},
                {"name": "flatten", "type": "flatten"},
                {
                    "name": "sides",
                    "type": "parallel",
                    "branches": [
                        [{"name": "left", "type": "dense", "units": 2}],
                        [{"name": "right", "type": "dense", "units": 3}, {"name": "r2", "type": "dense", "units": 2}],
                    ],
                },
                {"name": "logits", "type": "dense", "units": 3},
                {"name": "cel", "type": "softmax_cross_entropy"},
            ]
        },
        "pipeline": {
            "splits": ["max", "sides", "logits"],
            "device_mapping": [0, 1, [0, 2], 3],
            "gradient_accumulation_count": 8,
            "micro_batch_size": 2,
            "allow_recompute": True,
            "recomputation_mode": "RecomputeAndBackpropagateInterleaved",
            "recomputation_checkpoints": ["groups", "block"],
            "gradient_accumulation_dtype": {"conv": "float64", "logits/b": "float64"},
            "forward_propagation_stages_poplar_options": [{"matmul_options": {"availableMemoryProportion": 0.1}}] * 4,
            "backward_propagation_stages_poplar_options": [{"convolution_options": {}}] * 4,
            "weight_update_poplar_options": {"matmul_options": {"availableMemoryProportion": 0.2}},
        },
        "optimizer": {
            "type": "lamb",
            "learning_rate": 0.01,
            "epsilon": 1e-6,
            "first_moment": "float16",
            "second_moment": "float32",
        },
    },
    "recurrent": {
        "system": {"name": "m2000"},
        "data": {"type": "synthetic", "shape": [3, 2], "classes": 2, "samples": 12},
        "model": {
            "layers": [
                {
                    "name": "lstm",
                    "type": "lstm",
                    "units": 3,
                    "activation": "relu",
                    "recurrent_activation": "hard_sigmoid",
                    "use_bias": True,
                    "return_sequences": True,
                    "unit_forget_bias": False,
                },
                {"name": "augru", "type": "augru", "units": 3, "masked": True, "return_sequences": True},
                {"name": "gru", "type": "gru", "units": 2, "reset_after": False},
                {"name": "cel", "type": "softmax_cross_entropy"},
            ]
        },
        "pipeline": {
            "splits": ["gru"],
            "cycles": "p.csv",
            "gradient_accumulation_count": 4,
            "micro_batch_size": 2,
        },
        "rates": "r.yaml",
        "optimizer": {
            "type": "rmsprop",
            "learning_rate": 0.1,
            "decay": 0.8,
            "momentum": 0.5,
            "epsilon": 1e-6,
            "centered": True,
        },
    },
    "measured": {"system": {"name": "m2000"}, "pipeline": {"stages": "p.csv", "gradient_accumulation_count": 8}},
    "digits": {
        "system": {"name": "bow2000"},
        "expect": {"throughput": "0.9 M..1.1 M samples/s", "peak": {"0": "<= 600 MiB"}, "time_steps": 36},
        "data": {"type": "digits", "hold_out": 100, "shuffle": False},
        "model": {"layers": [{"name": "flatten", "type": "flatten"}]},
        "pipeline": {"schedule": "single", "gradient_accumulation_count": 1},
    },
    "idx": {
        "system": {"name": "pod16"},
        "data": {"type": "idx", "images": "images.idx", "labels": "labels.idx", "hold_out": 1, "shuffle": False},
        "model": {"layers": [{"name": "flatten", "type": "flatten"}]},
        "pipeline": {"schedule": "single", "gradient_accumulation_count": 1},
    },
    "words": {
        "system": {"name": "m2000"},
        "data": {"type": "npz", "file": "words.npz"},
        "model": {
            "layers": [
                {"name": "ear", "type": "gru", "units": 2, "return_sequences": True, "masked": True},
                {"name": "ctc", "type": "ctc", "labels": 1, "blank": 0, "timed": True, "log_probabilities": True},
            ]
        },
        "pipeline": {"schedule": "single", "gradient_accumulation_count": 1},
        "optimizer": {"type": "adadelta", "learning_rate": 1, "rho": 0.9, "epsilon": 0.001},
    },
    "npz": {
        "system": {"name": "pod64"},
        "data": {
            "type": "npz",
            "file": "data.npz",
            "x": "inputs",
            "y": "targets",
            "tokens": False,
            "hold_out": 1,
            "shuffle": False,
        },
        "model": {"layers": [{"name": "flatten", "type": "flatten"}]},
        "pipeline": {"schedule": "single", "gradient_accumulation_count": 1},
    },
}

#: Values of every kind, ordinary and extreme.
VALUES: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    3,
    65_536,
    2**31,
    2**63,
    10**30,
    -(10**30),
    0.5,
    -0.5,
    1e-300,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "x",
    "off",
    "flatten",
    "cel",
    "single",
    "interleaved",
    "gpipe",
    "point_to_point",
    "float32",
    "3 GB",
    "-1 us",
    "1e99 GHz",
    "9" * 3000,
    "a/b:c",
    "f.py:broken",
    "f.py:missing",
    "f.csv",
    "p.csv",
    "wrong.csv",
    "r.yaml",
    "wrong.yaml",
    "a\nb",
    "\x00",
    "é→",
    [],
    [[]],
    [1],
    [0, 0],
    [0, 63],
    [1] * 2000,
    ["logits", "logits"],
    [["flatten"], ["hidden"]],
    [{}],
    {},
    {"name": "x"},
    {"type": "dense"},
    {"forward": 1},
    {"python": "f.py:block"},
    [{"name": "n", "type": "residual", "layers": []}],
    [{"name": "n", "type": "dense", "units": 4}],
    {"repeat": 2, "layers": [{"name": "n", "type": "dense", "units": 4}]},
    [{"repeat": 1000, "layers": [{"repeat": 1000, "layers": [{"name": "n", "type": "flatten"}]}]}],
    {"clip_by_norm": 0},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "f.py").write_text(
        "import autograd.numpy as np\n"
        "def block(x, W): return np.tanh(x @ W)\n"
        "def double(x): return 2.0 * x\n"
        "def broken(x): return x.nothing\n"
    )
    (folder / "p.csv").write_text("stage,forward [us],backward,update\nlstm,1.5,2 ms,7\n1,4,,\n")
    (folder / "wrong.csv").write_text("stage,forward,backward\nlstm,-1,x\n1,,3 parsecs\n")
    (folder / "r.yaml").write_text("# measured\namp_ceiling: 0.9\nhop_latency: 20 ns\nsession_run: 0.2\n")
    (folder / "wrong.yaml").write_text("amp_ceilin: 0.9\nhop_latency: [20 ns]\nsession_run: 3 parsecs\n")
    np.savez(folder / "data.npz", inputs=np.zeros((4, 3)), targets=np.zeros((4, 3)))
    np.savez(folder / "words.npz", x=np.ones((4, 3, 3)), y=np.ones((4, 2), int))
    (folder / "images.idx").write_bytes(b"\0\0\x08\x02\0\0\0\x03\0\0\0\x01abc")
    (folder / "labels.idx").write_bytes(b"\0\0\x08\x01\0\0\0\x03\0\1\0")
    return folder


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    """The schema as an independent reader takes it; that it is one, a test of the command line says."""
    return jsonschema_rs.Draft202012Validator(json_schema())


def places(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every value below ``value``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield (*path, step)
        yield from places(inner, (*path, step))


def parent(data: Any, path: KeyPath) -> Any:
    for step in path[:-1]:
        data = data[step]
    return data


def experiment(data: dict[str, Any], folder: Path) -> Job | ScenarioError:
    """Resolve ``data`` without the detour over YAML; return the error instead of raising it."""
    source = Source(folder / "fuzz.yaml", "", data, {(): Place("fuzz.yaml", 1, 1)}, {})
    result = outcome(lambda: job_of(source))
    if isinstance(result, ScenarioError):
        assert_plain(result, "fuzz.yaml:1:1: ")
    return result


def outcome(action: Callable[[], Job]) -> Job | ScenarioError:
    try:
        return action()
    except ScenarioError as error:
        return error


def assert_plain(error: ScenarioError, start: str) -> None:
    """Every line begins with a place, and holds no word of the validator's own, nor a tag of a union."""
    lines = str(error).splitlines()
    assert lines
    for line in lines:
        assert line.startswith(start)
        for jargon in (
            "Input should",
            "value_error",
            "Field required",
            "Extra inputs",
            "tuple",
            "union",
            "[key]",
            ".<",
        ):
            assert jargon not in line or "PipelineStageOptions" in line  # Graphcore's own text says tuple


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_good(name: str, folder: Path, validator: jsonschema_rs.Draft202012Validator) -> None:
    result = experiment(SAMPLES[name], folder)
    assert isinstance(result, Job), result
    validator.validate(SAMPLES[name])
    assert result.request.replace({}) == result.request


def test_the_samples_use_every_key_of_the_schema() -> None:
    schema = json_schema()
    nodes = {"Scenario": schema, **schema["$defs"]}
    keys = {key for node in nodes.values() for key in node.get("properties", {})}
    used = {path[-1] for sample in SAMPLES.values() for path in places(sample)}
    assert keys - used == set()


@sampled(2)
@pytest.mark.parametrize("name", SAMPLES)
def test_any_key_missing_or_misspelt(name: str, folder: Path) -> None:
    """One of the two, in turn, of every key by default; both with ``--all``."""
    for number, path in enumerate(places(SAMPLES[name])):
        spelt = isinstance(path[-1], str) and path[-2:-1] not in (("parameters",), ("fill",), ("peak",))
        if runs_slowest() or not spelt or number % 2:
            missing = copy.deepcopy(SAMPLES[name])
            del parent(missing, path)[path[-1]]
            experiment(missing, folder)
        if spelt and (runs_slowest() or number % 2 == 0):
            misspelt = copy.deepcopy(SAMPLES[name])
            where = parent(misspelt, path)
            wrong = path[-1][:-1] + "_" + path[-1][-1]
            where[wrong] = where.pop(path[-1])
            error = experiment(misspelt, folder)
            assert isinstance(error, ScenarioError)
            assert repr(wrong) in str(error) or "got nothing" in str(error)


@sampled(2)
@pytest.mark.parametrize("name", SAMPLES)
def test_any_value_replaced(name: str, folder: Path, validator: jsonschema_rs.Draft202012Validator) -> None:
    draw, data = random.Random(name), copy.deepcopy(SAMPLES[name])
    count = share(20) if runs_slowest() else 2
    for path in places(SAMPLES[name]):
        where = parent(data, path)
        kept = where[path[-1]]
        for value in draw.sample(VALUES, count):
            where[path[-1]] = copy.deepcopy(value)
            result = experiment(data, folder)
            if isinstance(result, Job) and "type" not in path:
                assert validator.is_valid(data)
        where[path[-1]] = kept
    assert data == SAMPLES[name], "what is asked for stays as it was"


@settings(max_examples=share(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_several_changes_at_once_through_yaml(folder: Path, draw: st.DataObject) -> None:
    data = copy.deepcopy(SAMPLES[draw.draw(st.sampled_from(sorted(SAMPLES)))])
    for _ in range(draw.draw(st.integers(1, 4))):
        paths = list(places(data))
        if paths:
            path = draw.draw(st.sampled_from(paths))
            value = draw.draw(st.sampled_from([*VALUES, ...]))
            if value is ...:
                parent(data, path).pop(path[-1])
            else:
                parent(data, path)[path[-1]] = copy.deepcopy(value)
    file = folder / "drawn.yaml"
    file.write_text(flow(data), encoding="utf-8")
    result = outcome(lambda: resolved(file, data))
    if isinstance(result, ScenarioError):
        assert_plain(result, f"{file}:")


def resolved(file: Path, data: dict[str, Any]) -> Job:
    source = read_source(file)
    assert flow(source.data) == flow(data)
    return job_of(source)


@settings(max_examples=share(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_text(max_size=80) | st.binary(max_size=80) | st.text("-:#{}[],&*!|>'\"%@` \n\tab1", max_size=40))
def test_any_text_as_a_scenario_and_as_an_override(folder: Path, text: str | bytes) -> None:
    file = folder / "text.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ScenarioError):
        load_job(file)
    if isinstance(text, str):
        good = folder / "good.yaml"
        good.write_text(flow(SAMPLES["timed"]))
        for override in (text, f"seed={text}", f"pipeline.stages.{text}"):
            result = outcome(lambda given=override: load_job(good, [given]))
            assert isinstance(result, Job) or str(result).startswith("--set ")


def flow(value: Any) -> str:
    """Return YAML for plain data."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value)

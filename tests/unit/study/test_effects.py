"""The options that a run names as in effect."""

import pytest

from ipusim.analysis.effects import effects_of
from ipusim.runs.execute import execute

SCENARIO = """
system: {name: pod16, auto_select_ipus: 4, enable_remote_buffers: true, minimum_remote_tensor_size: 1 B}
data: {type: synthetic, shape: [6], classes: 3, samples: 96}
model:
  layers:
    - {name: a, type: dense, units: 5, activation: tanh}
    - {name: b, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [b], micro_batch_size: 4, gradient_accumulation_count: 8, offload_weight_update_variables: false}
optimizer: {type: momentum, learning_rate: 0.1, momentum: 0.5}
"""
ON_ONE = "system.auto_select_ipus=1", "pipeline.batch_serialization_iterations=2"


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ((), {}),
        (("pipeline.allow_recompute=true",), {"recomputation": "RecomputeThenBackpropagate"}),
        (
            ("pipeline.allow_recompute=true", "pipeline.schedule=sequential"),
            {"recomputation": "RecomputeAndBackpropagateInterleaved"},
        ),
        (
            ON_ONE,
            {
                "batch serialization": "2 micro-batches of a stage in a row",
                "Streaming Memory": "gradient accumulators, activations",
            },
        ),
        (
            ("system.io_tiles={num_io_tiles: 32, place_ops_on_io_tiles: true}",),
            {"I/O tiles": "32 of 1472, feeds overlapped"},
        ),
        (("system.io_tiles.num_io_tiles=32",), {"I/O tiles": "32 of 1472, nothing overlapped"}),
        (
            (
                "pipeline.offload_weight_update_variables=true",
                "pipeline.replicated_optimizer_state_sharding=true",
                "pipeline.replicated_weight_sharding=true",
            ),
            {"Streaming Memory": "optimizer state in parts, weights in parts"},
        ),
        (
            ("use_synthetic_data=true",),
            {"synthetic data": "without the host: feeds take no time"},
        ),
        (("pipeline.accumulate_outfeed=true",), {"outfeed": "accumulated"}),
        (
            ("pipeline.accumulate_outfeed=true", "pipeline.accumulate_outfeed_dtype=float64"),
            {"outfeed": "accumulated as float64"},
        ),
        (("pipeline.outfeed_mask=[false, false]",), {"outfeed carries": "predictions and loss"}),
        (
            ("system.sync_replicas_independently=true",),
            {"replicas": "meet before weight updates only"},
        ),
        (("system.sync_replicas_independently=true", "system.auto_select_ipus=2"), {}),  # a single replica
    ],
)
def test_what_is_in_effect(load, changes, right):
    experiment = load(SCENARIO, *changes)
    assert effects_of(experiment.program, experiment.system) == right


def test_the_summary_names_them(load):
    result = execute(load(SCENARIO, "pipeline.allow_recompute=true"))
    assert result.summary.to_dict()["options"] == {"recomputation": "RecomputeThenBackpropagate"}


def test_concurrent_stages(load):
    left, right = (f"[{{name: {name}, type: dense, units: {units}}}]" for name, units in (("l", 2), ("r", 1)))
    heads = f"{{name: b, type: parallel, branches: [{left}, {right}]}}"
    last = "{name: c, type: dense, units: 3}"
    text = SCENARIO.replace("{name: b, type: dense, units: 3}", f"{heads}\n    - {last}")
    text = text.replace("splits: [b]", "splits: [b, c], device_mapping: [0, [1, 2], 3]")
    experiment = load(text, "pipeline.gradient_accumulation_count=6")
    assert effects_of(experiment.program, experiment.system) == {"concurrent stages": "2 at the same time"}

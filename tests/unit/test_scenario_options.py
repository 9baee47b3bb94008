"""The table of Graphcore's options: whole, true of the schema, and held by tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipusim.runs.request.schema import json_schema
from ipusim.scenario import load_job
from ipusim.scenario.options import ARGUMENTS, FIELDS
from ipusim.scenario.problems import ScenarioError

ROOT = Path(__file__).parents[2]
#: The arguments of Graphcore's function, of its last release and (pipeline_depth) of older ones.
SIGNATURE = [
    "computational_stages",
    "pipeline_depth",
    "gradient_accumulation_count",
    "gradient_accumulation_dtype",
    "repeat_count",
    "batch_serialization_iterations",
    "inputs",
    "infeed_queue",
    "outfeed_queue",
    "optimizer_function",
    "device_mapping",
    "pipeline_schedule",
    "recomputation_mode",
    "forward_propagation_stages_poplar_options",
    "backward_propagation_stages_poplar_options",
    "weight_update_poplar_options",
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
    "continuous_weight_updates",
    "outfeed_loss",
    "accumulate_outfeed",
    "accumulate_outfeed_dtype",
    "outfeed_mask",
    "reduction_method",
    "name",
]
SCENARIO = """
system: {name: m2000}
pipeline: {gradient_accumulation_count: 4, stages: [{name: a, forward: 1}, {name: b, forward: 1}]}
"""
REFUSED = [each for each in (*ARGUMENTS, *FIELDS) if not each.key]


def key_exists(key):
    schema = json_schema()
    node = schema
    for word in key.split("."):
        node = node.get("properties", {}).get(word)
        if node is None:
            return False
        for choice in (node, *node.get("anyOf", ())):
            if "$ref" in choice:
                node = schema["$defs"][choice["$ref"].rsplit("/", 1)[1]]
    return True


def test_every_argument_is_listed_once():
    assert sorted(each.name for each in ARGUMENTS) == sorted(SIGNATURE)
    assert len({each.name for each in FIELDS}) == len(FIELDS)


@pytest.mark.parametrize("option", [*ARGUMENTS, *FIELDS], ids=lambda option: option.name)
def test_what_the_table_says_is_so(option):
    assert bool(option.key) == bool(option.test)
    assert option.effect
    if option.key:
        assert key_exists(option.key)
        path, function = option.test.split("::")
        assert f"\ndef {function}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("option", REFUSED, ids=lambda option: option.name)
def test_what_is_not_accepted_is_refused_by_name(option, tmp_path):
    path = tmp_path / "option.yaml"
    path.write_text(SCENARIO)
    load_job(path)
    section = "system" if option in FIELDS else "pipeline"
    key = option.name.split(".")[0]
    with pytest.raises(ScenarioError) as caught:
        load_job(path, [f"{section}.{key}=1"])
    assert "expected one of the keys" in str(caught.value)


def test_continuous_weight_updates_are_refused_in_graphcores_words(tmp_path):
    path = tmp_path / "option.yaml"
    path.write_text(SCENARIO)
    with pytest.raises(ScenarioError) as caught:
        load_job(path, ["pipeline.continuous_weight_updates=true"])
    (problem,) = caught.value.problems
    assert problem.text == "Continuous weight updates are currently not supported."
    assert load_job(path, ["pipeline.continuous_weight_updates=false"]).executions == 1

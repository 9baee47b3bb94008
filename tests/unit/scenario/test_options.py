"""The table of Graphcore's options: whole, true of the schema, and held by tests that exist."""

import re
from dataclasses import MISSING
from inspect import signature
from operator import attrgetter

import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.problems import ScenarioError
from ipusim.ipu.config import IPUConfig
from ipusim.model.learning import table
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.runs.request.graphcore_options import (
    OTHER_ARGUMENTS,
    OTHER_ATTRIBUTES,
    OTHER_OPTIMIZERS,
    arguments,
    attributes,
)
from tests.programs import needs_tensorflow
from tests.scenarios import ROOT

TESTS = ROOT / "tests"
ARGUMENTS = (*arguments(), *OTHER_ARGUMENTS)
FIELDS = (*attributes(), *OTHER_ATTRIBUTES)
#: The arguments of Graphcore's function, of its last release and (pipeline_depth) of older ones.
SIGNATURE = [
    "computational_stages",
    "pipeline_depth",
    "gradient_accumulation_count",
    "gradient_accumulation_dtype",
    "gradient_accumulation_for_captured_grads",
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
#: A test that holds each accepted option, wherever in tests/ it stands.
HELD_BY = {
    "computational_stages": "test_options_together_change_no_result",
    "gradient_accumulation_count": "test_count_of_zero",
    "gradient_accumulation_dtype": "test_float32_accumulators_of_float16_gradients_are_scaled_in_float32",
    "repeat_count": "test_options_together_change_no_result",
    "batch_serialization_iterations": "test_every_stage_runs_its_micro_batches_in_a_row",
    "infeed_queue": "test_infeed_waits_only_when_the_host_is_behind",
    "outfeed_queue": "test_outfeed_modes",
    "optimizer_function": "test_without_optimizer_or_with_training_off_it_is_inference",
    "device_mapping": "test_any_legal_order_learns_what_the_whole_model_does",
    "pipeline_schedule": "test_grid",
    "recomputation_mode": "test_recomputation_modes",
    "forward_propagation_stages_poplar_options": "test_products_are_planned_in_the_memory_that_they_may_take",
    "backward_propagation_stages_poplar_options": "test_each_pass_has_its_own_options",
    "weight_update_poplar_options": "test_a_weight_update_without_products_is_left_as_it_is",
    "offload_weight_update_variables": "test_only_the_weight_update_becomes_longer",
    "replicated_optimizer_state_sharding": "test_a_sharded_update_loads_a_part_and_gathers_the_whole",
    "offload_activations": "test_activations_come_and_go_with_every_pass",
    "offload_gradient_accumulation_buffers": "test_accumulators_come_and_go_with_every_backward_pass",
    "replicated_weight_sharding": "test_sharded_weights_come_before_every_pass",
    "offload_weights": "test_what_is_refused",
    "continuous_weight_updates": "test_continuous_weight_updates_are_refused_in_graphcores_words",
    "outfeed_loss": "test_what_is_refused",
    "accumulate_outfeed": "test_the_sum_goes_out_with_the_weight_update_and_not_before",
    "accumulate_outfeed_dtype": "test_a_wider_sum_keeps_what_a_narrow_one_loses",
    "outfeed_mask": "test_what_is_masked_is_not_sent",
    "reduction_method": "test_case_7_reduction_methods",
    "name": "test_defaults",
    "auto_select_ipus": "test_options_together_change_no_result",
    "select_ipus": "test_a_device_selected_by_id_keeps_its_places_in_the_machine",
    "selection_order": "test_sixteen_ipus",
    "allow_recompute": "test_any_legal_order_learns_what_the_whole_model_does",
    "io_tiles.num_io_tiles": "test_fewer_tiles_compute_and_hold_memory",
    "io_tiles.place_ops_on_io_tiles": "test_a_time_step_lasts_as_long_as_the_passes_or_the_host_copies_beside_them",
    "io_tiles.available_memory_proportion": "test_feeds_are_placed_up_to_the_proportion",
    "device_connection.enable_remote_buffers": "test_what_is_refused",
    "optimizations.minimum_remote_tensor_size": "test_small_tensors_stay",
    "optimizations.maximum_cross_replica_sum_buffer_size": "test_one_sum_follows_the_other",
    "convolutions.poplar_options": "test_options_of_the_system_hold_where_a_stage_gives_none",
    "matmuls.poplar_options": "test_options_of_the_system_hold_where_a_stage_gives_none",
}
SCENARIO = """
system: {name: m2000}
pipeline: {gradient_accumulation_count: 4, stages: [{name: a, forward: 1}, {name: b, forward: 1}]}
"""
REFUSED = [each for each in (*ARGUMENTS, *FIELDS) if not each.path]


@pytest.fixture(scope="module")
def names_of_tests():
    texts = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)}


def test_signature_and_configuration_have_every_name():
    needs_tensorflow()
    from ipusim.ipu.pipelining_ops import pipeline  # noqa: PLC0415 - which imports TensorFlow

    assert {*SIGNATURE} - {"pipeline_depth"} == {*signature(pipeline).parameters} - {"config"}
    for option in FIELDS:
        attrgetter(option.name)(IPUConfig())


def test_every_argument_is_listed_once():
    assert sorted(each.name for each in ARGUMENTS) == sorted(SIGNATURE)
    assert len({each.name for each in FIELDS}) == len(FIELDS)


@pytest.mark.parametrize("option", [*ARGUMENTS, *FIELDS], ids=lambda option: option.name)
def test_what_the_table_says_is_so(option, names_of_tests):
    assert option.effect
    assert bool(option.path) == (option.name in HELD_BY)
    if option.path:
        assert HELD_BY[option.name] in names_of_tests


@pytest.mark.parametrize("option", REFUSED, ids=lambda option: option.name)
def test_what_is_not_accepted_is_refused_by_name(option, tmp_path):
    path = tmp_path / "option.yaml"
    path.write_text(SCENARIO)
    load_job(path)
    section = "system" if option in FIELDS else "pipeline"
    *_, key = option.name.split(".")
    with pytest.raises(ScenarioError) as caught:
        load_job(path, [f"{section}.{key}=1"])
    said = f"got {key!r}; Graphcore's {option.name} is no key here: {option.effect}; expected one of the keys "
    several = [each for each in (*ARGUMENTS, *FIELDS) if each.name.split(".")[-1] == key]
    # One name of several options says none of them.
    assert str(caught.value).startswith(f"--set {section}.{key}: {said}") == (len(several) == 1)


def test_an_optimizer_is_the_same_rule_by_graphcores_name():
    """LAMB is no optimizer of TensorFlow's: programs bring it along, in operations that are priced one by one."""
    needs_tensorflow()
    from ipusim.ipu import optimizers  # noqa: PLC0415 - which imports TensorFlow
    from ipusim.ipu.graph.prices.rules import rule_of  # noqa: PLC0415
    from ipusim.ipu.graph.reading import read_graph  # noqa: PLC0415

    v1, found = optimizers.tf.compat.v1, {}
    for row in table.rows():
        if make := getattr(v1.train, row.graphcore, None):
            with v1.Graph().as_default() as graph:
                weight = v1.get_variable("weight", [2], use_resource=True)
                make(**{key.argument: 0.5 for key in row.keys if key.default is MISSING}).minimize(weight)
            nodes = read_graph(graph).nodes.values()
            found[row.kind] = [type(rule) for node in nodes if (rule := rule_of(node)) is not None]
    own = [row for row in table.rows() if row.graphcore not in ("", "LAMBOptimizer")]
    assert found == {row.kind: [row.kind_class] for row in own}
    assert hasattr(optimizers, GradientMap.graphcore)
    assert all(hasattr(optimizers, row.name) for row in OTHER_OPTIMIZERS)


UNLIKE_OTHERS = [each for each in (*arguments(), *attributes()) if not each.name.endswith(".poplar_options")]


@pytest.mark.parametrize("option", UNLIKE_OTHERS, ids=lambda option: option.name)
def test_graphcores_name_of_a_key_leads_to_it(option, tmp_path):
    path = tmp_path / "option.yaml"
    path.write_text(SCENARIO)
    *_, name = option.name.split(".")
    for section in ("pipeline", "system"):
        if option.path in ((section, name), ("name",)):
            continue
        with pytest.raises(ScenarioError) as caught:
            load_job(path, [f"{section}.{name}=1"])
        said = f"; Graphcore's {option.name} is {'.'.join(option.path)} here; expected one of the keys "
        assert said in str(caught.value)


def test_continuous_weight_updates_are_refused_in_graphcores_words(tmp_path):
    path = tmp_path / "option.yaml"
    path.write_text(SCENARIO)
    with pytest.raises(ScenarioError) as caught:
        load_job(path, ["pipeline.continuous_weight_updates=true"])
    (problem,) = caught.value.problems
    assert problem.text == "Continuous weight updates are currently not supported."
    assert load_job(path, ["pipeline.continuous_weight_updates=false"]).executions == 1

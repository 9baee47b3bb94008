"""The table of Graphcore's options: whole, and true of the schema."""

from dataclasses import MISSING
from inspect import signature
from operator import attrgetter

import pytest

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

ARGUMENTS = (*arguments(), *OTHER_ARGUMENTS)
FIELDS = (*attributes(), *OTHER_ATTRIBUTES)
SCENARIO = """
system: {name: m2000}
pipeline: {gradient_accumulation_count: 4, stages: [{name: a, forward: 1}, {name: b, forward: 1}]}
"""
REFUSED = [each for each in (*ARGUMENTS, *FIELDS) if not each.path]


def test_every_argument_and_attribute_of_graphcores_is_listed_once_with_its_effect():
    """Of releases before 1.4 pipeline_depth too; a test or a program uses each that is accepted: test_graphcore_api."""
    needs_tensorflow()
    from ipusim.ipu.pipelining_ops import pipeline  # noqa: PLC0415 - which imports TensorFlow

    names = {*signature(pipeline).parameters} - {"config"} | {"pipeline_depth"}
    assert sorted(each.name for each in ARGUMENTS) == sorted(names)
    assert len({each.name for each in FIELDS}) == len(FIELDS)
    for option in FIELDS:
        attrgetter(option.name)(IPUConfig())
    assert all(option.effect for option in (*ARGUMENTS, *FIELDS))


@pytest.mark.parametrize("option", REFUSED, ids=lambda option: option.name)
def test_what_is_not_accepted_is_refused_by_name(option, load):
    load(SCENARIO)
    section = "system" if option in FIELDS else "pipeline"
    *_, key = option.name.split(".")
    with pytest.raises(ScenarioError) as caught:
        load(SCENARIO, f"{section}.{key}=1")
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
def test_graphcores_name_of_a_key_leads_to_it(option, load):
    *_, name = option.name.split(".")
    for section in ("pipeline", "system"):
        if option.path in ((section, name), ("name",)):
            continue
        with pytest.raises(ScenarioError) as caught:
            load(SCENARIO, f"{section}.{name}=1")
        said = f"; Graphcore's {option.name} is {'.'.join(option.path)} here; expected one of the keys "
        assert said in str(caught.value)


def test_continuous_weight_updates_are_refused_in_graphcores_words(load):
    with pytest.raises(ScenarioError) as caught:
        load(SCENARIO, "pipeline.continuous_weight_updates=true")
    (problem,) = caught.value.problems
    assert problem.text == "Continuous weight updates are currently not supported."
    assert load(SCENARIO, "pipeline.continuous_weight_updates=false").executions == 1

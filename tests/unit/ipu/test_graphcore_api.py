"""Every public name of Graphcore's references: signatures and defaults of those that are here, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.ipu import custom_ops, scopes, sharding, utils
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_estimator import IPUEstimator
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_pipeline_estimator import IPUPipelineEstimator
from ipusim.ipu.ipu_run_config import IPURunConfig, RunConfig
from ipusim.ipu.keras import layers
from reports.graphcore_names import Argument, Name, names
from reports.graphcore_page import graphcore_page
from reports.graphcore_status import EXCEPTIONS, Status, said_of, said_of_arguments


def test_each_name_is_listed_once():
    paths = [name.path for name in names()]
    assert len(paths) == len(set(paths)) == 394
    assert {name.kind for name in names()} == {
        *("class", "function", "method", "property", "member", "attribute", "category", "alias")
    }


@pytest.mark.parametrize("name", [name for name in names() if name.here is not None], ids=lambda name: name.path)
def test_what_is_here_has_graphcores_signature_and_defaults(name):
    assert said_of(name).status is not Status.NOT_YET, said_of(name).why
    found = [argument for argument, said in said_of_arguments(name).items() if said.status is Status.NOT_YET]
    assert found == []


def test_a_difference_is_seen():
    """The check itself: of arguments, their order and defaults, of a type, and of what an alias stands for."""
    path = "ipu.optimizers.CrossReplicaOptimizer"
    assert Name("class", path, "(opt, name='CrossReplicaOptimizer')").differences() == {}
    assert Name("class", path, "(opt, name=None)").differences() == {"name": "by default 'CrossReplicaOptimizer'"}
    assert Name("class", path, "(opt, more, name='CrossReplicaOptimizer')").differences() == {
        "more": "not taken",
        "name": "by its name alone, as its place is another",
    }
    assert Name("class", path, "(opt='x', *args)").differences() == {"opt": "without a default", "*args": "not taken"}
    attribute = "ipu.config.IPUConfig.allow_recompute"
    assert Name("attribute", attribute, ": bool = True").differences() == {"": "here it is: bool = False"}
    other = Name("alias", "ipu.get_variable", " = ipu.optimizers.CrossReplicaOptimizer")
    assert said_of(other).why == "is another object"
    assert Name("function", "ipu.bogus.more", "()").here is None
    assert Name("function", "a.b", "(x, *y, z=1, **w)").arguments == (
        Argument("x", None),
        Argument("*y", None),
        Argument("z", "1"),
        Argument("**w", None),
    )


#: What each refusal is the answer to, and what may stand behind it.
def _refused_pipeline(run):
    run(continuous_weight_updates=True)


def _configured(path, value):
    def call(run):
        config = IPUConfig()
        config.auto_select_ipus = 2
        *above, last = path.split(".")
        place = config
        for each in above:
            place = getattr(place, each)
        setattr(place, last, value)
        run(config=config)

    return call


def _optioned(function, **given):
    return lambda run: run(config=function(utils.auto_select_ipus(utils.create_ipu_config(), 2), **given))


def _refused_layer(path):
    """Make a recurrent layer with an argument that the reference calls unsupported, or that is not simulated."""
    name, argument = path.removeprefix("ipu.keras.layers.").rstrip(")").split("(")
    value = 0.5 if argument == "recurrent_dropout" else "l2" if argument.endswith(("zer", "constraint")) else True
    return lambda run: getattr(layers, name)(4, **{argument: value})


def _exporting(kind, method):
    def call(run):
        function = (lambda features, mode: None) if kind is IPUEstimator else (lambda mode: None)
        getattr(kind(function, "model", RunConfig()), method)("folder", None)

    return call


CALLS = {
    path: _refused_layer(path)
    for path, said in EXCEPTIONS.items()
    if path.startswith("ipu.keras.layers.Popnn") and said.status is Status.REFUSED
} | {
    "ipu.custom_ops.precompiled_user_op(gp_path)": lambda run: custom_ops.precompiled_user_op([], "a.py", "a.gp"),
    **{
        f"ipu.{kind.__module__.removeprefix('ipusim.ipu.')}.{kind.__name__}.{method}": _exporting(kind, method)
        for kind in (IPUEstimator, IPUPipelineEstimator)
        for method in ("experimental_export_all_saved_models", "export_saved_model", "export_savedmodel")
    },
    "ipu.ipu_run_config.IPURunConfig(ordinal)": lambda run: IPURunConfig(ordinal=1),
    "ipu.keras.layers.Dropout(noise_shape)": lambda run: layers.Dropout(0.5, noise_shape=(2, 1)),
    "ipu.keras.layers.GroupNormalization(channels_axis)": lambda run: layers.GroupNormalization(channels_axis=1),
    "ipu.keras.layers.InstanceNormalization(channels_axis)": lambda run: layers.InstanceNormalization(channels_axis=1),
    "ipu.keras.layers.LayerNormalization(axis)": lambda run: layers.LayerNormalization(axis=1),
    "ipu.ipu_infeed_queue.IPUInfeedQueue.get_next": lambda run: IPUInfeedQueue(repeat([np.ones(2)])).get_next(),
    "ipu.scopes.partials_type": lambda run: scopes.partials_type(np.float16).__enter__(),
    "ipu.ipu_run_config.IPURunConfig(compile_summary)": lambda run: IPURunConfig(compile_summary=True),
    "ipu.pipelining_ops.pipeline(continuous_weight_updates)": _refused_pipeline,
    "ipu.sharding.dependencies": lambda run: sharding.dependencies([]),
    "ipu.sharding.get_shard_from_colocation": lambda run: sharding.get_shard_from_colocation(None),
    "ipu.sharding.has_attr": lambda run: sharding.has_attr(None, "a"),
}


def test_every_refusal_is_tried():
    assert set(CALLS) == {path for path, said in EXCEPTIONS.items() if said.status is Status.REFUSED}
    known = {name.path for name in names()} | {
        f"{name.path}({argument.name})" for name in names() for argument in name.arguments
    }
    assert set(EXCEPTIONS) <= known


@pytest.mark.parametrize("path", CALLS)
def test_what_is_refused_has_the_text_of_the_page(path, run, refused):
    refused(Exception, EXCEPTIONS[path].why, lambda: CALLS[path](run))


def test_a_category_or_an_enumeration_without_any_effect_does_not_say_that_it_works():
    said = {name.path: said_of(name).status for name in names()}
    config = "ipu.config.IPUConfig."
    for path, status in said.items():
        below = {said[other] for other in said if path.startswith(config) and other.startswith(f"{path}.")}
        assert not (below == {Status.NO_EFFECT} and status is Status.WORKS), path
    for kind, attribute in (
        ("DeviceConnectionType", "device_connection.type"),
        ("MergeRemoteBuffersBehaviour", "optimizations.merge_remote_buffers"),
        ("SchedulingAlgorithm", "scheduling.algorithm"),
        ("SelectionOrder", "selection_order"),
    ):
        members = {said[path] for path in said if f"{path}.".startswith(f"ipu.config.{kind}.")}
        assert members == {said[f"{config}{attribute}"]}


def test_the_page_has_a_row_for_each_name():
    rows = [line for line in graphcore_page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(names())
    not_yet = [name for name in names() if said_of(name).status is Status.NOT_YET]
    assert sum("` | not yet |" in row for row in rows) == len(not_yet)

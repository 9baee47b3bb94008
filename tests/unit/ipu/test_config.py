"""The configuration of a device: Graphcore's rules with their exact texts, and what they choose."""

from __future__ import annotations

import copy
import operator

import pytest

from ipusim.errors import DeviceError, ProgramError, UnsupportedProgramError
from ipusim.ipu.config import (
    DeviceConnectionType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
)
from ipusim.ipu.optimizers import GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import (
    OptimizerFunctionOutput,
)


def learn(*outputs):
    return OptimizerFunctionOutput(GradientDescentOptimizer(0.1), outputs[-1])


def test_recomputation_needs_leave(run):
    config = IPUConfig()
    config.allow_recompute = True
    config.auto_select_ipus = 2
    assert run(optimizer_function=learn, config=config).program.shape.recompute


def configured(**attributes):
    """Return a configuration with these attributes; a double underscore stands for a dot."""
    config = IPUConfig()
    for name, value in attributes.items():
        *path, last = name.split("__")
        place = config
        for step in path:
            place = getattr(place, step)
        setattr(place, last, value)
    return config


@pytest.mark.parametrize(
    ("attributes", "kind", "text"),
    [
        (
            {"auto_select_ipus": 2, "select_ipus": 3},
            Exception,
            "Only one of `auto_select_ipus` and `select_ipus` can be set.",
        ),
        ({"select_ipus": [1, 1]}, ValueError, "All MultiIPU indices in `select_ipus` must be unique."),
        (
            {"io_tiles__place_ops_on_io_tiles": True, "auto_select_ipus": 2},
            ValueError,
            "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0",
        ),
        (
            {"device_connection__type": DeviceConnectionType.NEVER},
            ValueError,
            "device_connection.version must be set when device_connection.type is DeviceConnectionType.NEVER or "
            "DeviceConnectionType.PRE_COMPILE",
        ),
        ({}, RuntimeError, "No IPU devices configured."),
        (
            {"auto_select_ipus": 3},
            ValueError,
            "Unsupported number of IPUs requested - could not find an IPU device with 3 IPUs for the TensorFlow "
            "virtual device /device:IPU:0. Use `gc-info -l` to view the available device configurations.",
        ),
        (
            {"auto_select_ipus": 1},
            ValueError,
            "Trying to compile a graph for an IPU device with 1 IPUs and 2 shards. The number of shards needs to "
            "divide the number of IPUs.",
        ),
    ],
)
def test_configuration_of_a_pipeline(attributes, kind, text, run, refused):
    refused(kind, text, lambda: run(config=configured(**attributes)))


@pytest.mark.parametrize(
    ("attributes", "kind", "text"),
    [
        (
            {"auto_select_ipu": 2},
            ValueError,
            "'auto_select_ipu' is not a valid attribute of this config. Did you mean 'auto_select_ipus'?",
        ),
        (
            {"io_tiles__num_tiles": 2},
            ValueError,
            "'num_tiles' is not a valid attribute of this config. Did you mean 'io_tiles.num_io_tiles'?",
        ),
        ({"_path": ""}, ValueError, "'_path' is not a valid attribute of this config. "),
        ({"colour": "red"}, ValueError, "'colour' is not a valid attribute of this config. "),
        (
            {"device_connection__version": "bogus"},
            ValueError,
            "Trying to set device_connection.version to 'bogus', but it must be one of '', 'ipu1', 'ipu2'",
        ),
        (
            {"io_tiles__num_io_tiles": -1000},
            ValueError,
            "Trying to set io_tiles.num_io_tiles to -1000, but it must be 0 or more",
        ),
        (
            {"io_tiles__available_memory_proportion": 5.0},
            ValueError,
            "Trying to set io_tiles.available_memory_proportion to 5.0, but it must be above 0 and at most 1",
        ),
        ({"io_tiles": 32}, Exception, "io_tiles is a category and cannot be assigned to."),
        (
            {"io_tiles__num_io_tiles": True},
            TypeError,
            "Trying to set io_tiles.num_io_tiles to True, but it must be of type int",
        ),
        (
            {"allow_recompute": "yes"},
            TypeError,
            "Trying to set allow_recompute to yes, but it must be of type bool",
        ),
        (
            {"selection_order": "SNAKE"},
            TypeError,
            "Trying to set selection_order to SNAKE, but it must be of type SelectionOrder",
        ),
        (
            {"auto_select_ipus": "2"},
            TypeError,
            "Trying to set auto_select_ipus to 2, but it must be of type "
            "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]",
        ),
    ],
)
def test_configuration_attributes(attributes, kind, text, refused):
    refused(kind, text, lambda: configured(**attributes))


#: Graphcore's attributes that choose nothing here, by category, with values that are not their defaults.
NOT_SIMULATED = {
    "": {
        "serialization_output_folder": "x",
        "compilation_poplar_options": {"a": "b"},
        "gcl_poplar_options": {"a": "b"},
    },
    "experimental": {"always_rearrange_copies_on_the_host": True, "enable_remote_buffer_embedding": True},
    "experimental.multi_replica_distribution": {"process_index": 1, "process_count": 2},
    "floating_point_behaviour": dict.fromkeys(["inv", "div0", "oflo", "esr", "nanoo", "set_all"], True),
    "matmuls": {"clear_pass_type": True},
    "norms": {"use_stable_statistics": True},
    "norms.experimental": {"distributed_batch_norm_replica_group_size": 2},
    "optimizations": {
        "prefetch_data_streams": False,
        "combine_embedding_lookups": True,
        "combine_matmuls": True,
        "enable_graph_outlining": False,
        "merge_infeed_io_copies": True,
        "maximum_cross_replica_sum_buffer_size": 1,
        "maximum_reduce_scatter_buffer_size": 1,
        "maximum_inter_ipu_copies_buffer_size": 1,
        "maximum_send_recv_cluster_size": 1,
        "merge_remote_buffers": MergeRemoteBuffersBehaviour.MERGE,
        "enable_gather_simplifier": False,
        "triangular_solve_expander_block_size": 1,
        "cholesky_block_size": 1,
        "enable_fast_math": True,
    },
    "pooling": {"poplar_options": {"a": "b"}},
    "scheduling": {
        "algorithm": SchedulingAlgorithm.CLUSTERING,
        "maximum_scheduler_lookahead_depth": 6,
        "maximum_scheduler_search_space_size": 65,
    },
}


@pytest.mark.parametrize(
    ("category", "name", "value"),
    [(category, name, value) for category, values in NOT_SIMULATED.items() for name, value in values.items()],
)
def test_graphcores_other_attributes_are_there_and_keep_their_defaults(category, name, value):
    config = IPUConfig()
    place = operator.attrgetter(category)(config) if category else config
    default = getattr(place, name)
    setattr(place, name, default)
    config.check()
    with pytest.raises(UnsupportedProgramError) as caught:
        setattr(place, name, value)
    path = f"{category}.{name}".lstrip(".")
    assert str(caught.value) == f"{path} is not simulated: expected its default {default!r}, got {value!r}"
    with pytest.raises(TypeError, match=f"^Trying to set {path} to None, but it must be of type "):
        setattr(place, name, None)
    assert getattr(place, name) == default


def test_dictionaries_changed_in_place_are_checked_before_a_run(run):
    config = configured(auto_select_ipus=2, ipu_model__compile_ipu_code=False, ipu_model__version="ipu1")
    run(config=config)
    config.compilation_poplar_options["target.type"] = "Cpu"
    with pytest.raises(UnsupportedProgramError, match="compilation_poplar_options is not simulated"):
        run(config=config)


def test_what_is_no_attribute_is_not_there():
    config = IPUConfig()
    assert not hasattr(config, "auto_select_ipu")
    assert not hasattr(config.io_tiles, "tiles")
    assert getattr(config, "colour", 3) == 3
    assert hasattr(config.norms.experimental, "distributed_batch_norm_replica_group_size")
    with pytest.raises(ProgramError, match="cannot be deleted"):
        del config.allow_recompute
    with pytest.raises(UnsupportedProgramError, match="the argument `config` of pipelining_ops"):
        config.configure_ipu_system()


def test_a_configuration_reads_back_and_copies():
    config = configured(selection_order=SelectionOrder.HOOF, optimizations__minimum_remote_tensor_size=64)
    other = copy.deepcopy(config)
    other.optimizations.minimum_remote_tensor_size = 32
    assert config.selection_order is SelectionOrder.HOOF
    assert config.optimizations.minimum_remote_tensor_size == 64
    with pytest.raises(ProgramError, match="'pod' is not a valid attribute of this config"):
        config.pod  # noqa: B018 - reading it raises


def test_the_configured_device_is_the_one_that_runs(run):
    config = configured(machine="bow_pod16", auto_select_ipus=[4], selection_order=SelectionOrder.HOOF)
    found = run(config=config)
    assert (found.system.name, found.system.count, found.system.replicas) == ("bow_pod16", 4, 2)
    with pytest.raises(DeviceError, match="unknown system 'bow_pod15'"):
        run(config=configured(machine="bow_pod15", auto_select_ipus=2))
    with pytest.raises(ProgramError, match="auto_select_ipus: expected one device"):
        run(config=configured(auto_select_ipus=[2, 2]))


def test_remote_buffers_take_the_optimizers_state_by_default(run):
    config = configured(auto_select_ipus=2, device_connection__enable_remote_buffers=True)
    assert run(optimizer_function=learn, config=config).program.offload.weight_update_variables
    assert not run(optimizer_function=learn).program.offload.weight_update_variables

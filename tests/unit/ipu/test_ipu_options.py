"""The configuration as releases up to SDK 2.1 make it: what each argument sets, Graphcore's texts, and the notes."""

import inspect
import operator

import pytest

from ipusim.ipu import utils
from ipusim.ipu.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    KeyId,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    VerificationOptions,
)
from ipusim.ipu.runtime.options_table import ATTRIBUTES, WITHOUT_EFFECT


def sets(function, **arguments):
    """Return of each argument its attribute and a value, with what the attribute is then if it is something else."""
    return [(function, name, *row) for name, row in arguments.items()]


#: Function and argument, the attribute, a value, and what the attribute is then if it is something else.
SETS = [
    *sets(
        "create_ipu_config",
        scheduler_selection=("scheduling.algorithm", "Clustering", SchedulingAlgorithm.CLUSTERING),
        always_rearrange_copies_on_the_host=("experimental.always_rearrange_copies_on_the_host", True),
        merge_infeed_io_copies=("optimizations.merge_infeed_io_copies", True),
        disable_graph_outlining=("optimizations.enable_graph_outlining", True, False),
        max_cross_replica_sum_buffer_size=("optimizations.maximum_cross_replica_sum_buffer_size", 7),
        max_inter_ipu_copies_buffer_size=("optimizations.maximum_inter_ipu_copies_buffer_size", 7),
        max_scheduler_lookahead_depth=("scheduling.maximum_scheduler_lookahead_depth", 7),
        max_scheduler_search_space_size=("scheduling.maximum_scheduler_search_space_size", 7),
        prefetch_data_streams=("optimizations.prefetch_data_streams", False),
        selection_order=("selection_order", SelectionOrder.SNAKE),
        enable_experimental_remote_buffer_embedding=("experimental.enable_remote_buffer_embedding", True),
    ),
    *sets("create_ipu_config", scheduler_selection=("scheduling.algorithm", SchedulingAlgorithm.LOOK_AHEAD)),
    *sets("auto_select_ipus", num_ipus=("auto_select_ipus", 4)),
    *sets("select_ipus", indices=("select_ipus", [3])),
    *sets("set_compilation_options", compilation_options=("compilation_poplar_options", {"a": "b"})),
    *sets("set_convolution_options", convolution_options=("convolutions.poplar_options", {"a": "b"})),
    *(
        ("set_floating_point_behaviour_options", name, f"floating_point_behaviour.{name}", value)
        for name in ("inv", "div0", "oflo", "esr", "nanoo")
        for value in (True, False)
    ),
    *sets("set_gcl_options", gcl_options=("gcl_poplar_options", {"a": "b"})),
    *sets(
        "set_io_tile_options",
        num_io_tiles=("io_tiles.num_io_tiles", 32),
        place_ops_on_io_tiles=("io_tiles.place_ops_on_io_tiles", True),
        io_tile_available_memory_proportion=("io_tiles.available_memory_proportion", 0.5),
    ),
    *sets(
        "set_ipu_connection_type",
        connection_type=("device_connection.type", DeviceConnectionType.ON_DEMAND),
        ipu_version=("device_connection.version", "ipu1"),
        enable_remote_buffers=("device_connection.enable_remote_buffers", True),
    ),
    *sets("set_ipu_connection_type", ipu_version=("device_connection.version", 2, "ipu2")),
    *sets(
        "set_ipu_model_options",
        compile_ipu_code=("ipu_model.compile_ipu_code", False),
        tiles_per_ipu=("ipu_model.tiles_per_ipu", 4),
        ipu_model_version=("ipu_model.version", "ipu1"),
    ),
    *sets(
        "set_matmul_options",
        matmul_options=("matmuls.poplar_options", {"a": "b"}),
        clear_pass_type=("matmuls.clear_pass_type", True),
    ),
    ("set_norm_options", "use_stable_statistics", "norms.use_stable_statistics", True),
    (
        "set_norm_options",
        "experimental_distributed_batch_norm_replica_group_size",
        "norms.experimental.distributed_batch_norm_replica_group_size",
        2,
    ),
    *sets(
        "set_optimization_options",
        combine_embedding_lookups=("optimizations.combine_embedding_lookups", True),
        combine_matmuls=("optimizations.combine_matmuls", True),
        max_cross_replica_sum_buffer_size=("optimizations.maximum_cross_replica_sum_buffer_size", 7),
        max_reduce_scatter_buffer_size=("optimizations.maximum_reduce_scatter_buffer_size", 7),
        max_inter_ipu_copies_buffer_size=("optimizations.maximum_inter_ipu_copies_buffer_size", 7),
        max_send_recv_cluster_size=("optimizations.maximum_send_recv_cluster_size", 7),
        minimum_remote_tensor_size=("optimizations.minimum_remote_tensor_size", 64),
        merge_remote_buffers=("optimizations.merge_remote_buffers", MergeRemoteBuffersBehaviour.MERGE),
        gather_simplifier=("optimizations.enable_gather_simplifier", False),
        triangular_solve_expander_block_size=("optimizations.triangular_solve_expander_block_size", 7),
        cholesky_block_size=("optimizations.cholesky_block_size", 7),
        enable_fast_math=("optimizations.enable_fast_math", True),
    ),
    *sets("set_pooling_options", pooling_options=("pooling.poplar_options", {"a": "b"})),
    *sets("set_recomputation_options", allow_recompute=("allow_recompute", False)),
    *sets("set_serialization_options", output_folder=("serialization_output_folder", "x")),
]
#: What must be given beside an argument.
BESIDE = {"place_ops_on_io_tiles": {"num_io_tiles": 16}, "io_tile_available_memory_proportion": {"num_io_tiles": 16}}


def arguments_in(table):
    """Return each function with each of its arguments that a table has."""
    functions = [name for name in dir(utils) if name.startswith(("auto_select", "create_ipu", "select_ipus", "set_"))]
    return [
        (function, argument)
        for function in functions
        for argument in inspect.signature(getattr(utils, function)).parameters
        if argument in table
    ]


def call(function, given):
    if function == "create_ipu_config":
        return utils.create_ipu_config(**given)
    config = IPUConfig()
    assert getattr(utils, function)(config, **given) is config
    return config


@pytest.mark.parametrize("row", SETS)
def test_an_argument_sets_its_attribute(row):
    function, argument, path, value, *otherwise = row
    config = call(function, {argument: value, **BESIDE.get(argument, {})})
    assert [operator.attrgetter(path)(config)] == (otherwise or [value])


def test_every_argument_is_tried():
    tried = {(function, argument) for function, argument, *_ in SETS}
    named = arguments_in(ATTRIBUTES)
    processes = "set_experimental_multi_replica_distribution_options"
    assert {argument for _, argument in named} == set(ATTRIBUTES)
    assert set(named) == tried | {(processes, "process_count"), (processes, "process_index")}


def test_a_configuration_offers_fields_of_the_message_that_it_was():
    config = utils.create_ipu_config(prefetch_data_streams=False)
    assert (config.enable_gather_simplifier, config.prefetch_data_streams) == (True, False)
    for unknown in (lambda: config.gather, lambda: IPUConfig().enable_gather_simplifier):
        with pytest.raises(ValueError, match="is not a valid attribute of this config"):
            unknown()


def test_defaults_are_those_of_a_configuration():
    """But for the three that releases up to 2.1 have otherwise in their functions."""
    config = utils.create_ipu_config()
    assert (config.notes(), config.auto_select_ipus) == ((), [])
    utils.set_ipu_model_options(config)
    utils.set_norm_options(config)
    utils.set_io_tile_options(config, 0)
    utils.set_matmul_options(config)
    utils.set_report_options(config)
    utils.set_transfer_options(config)
    utils.set_verification_options(config, VerificationOptions())
    utils.set_ipu_connection_type(config)
    assert config.notes() == ()
    utils.set_optimization_options(config)
    utils.set_floating_point_behaviour_options(config)
    utils.set_recomputation_options(config)
    assert [note.split(" ")[0] for note in config.notes()] == [
        *(f"IPUConfig.floating_point_behaviour.{name}" for name in ("inv", "div0", "oflo", "esr", "nanoo")),
        "IPUConfig.optimizations.merge_remote_buffers",
    ]
    assert config.allow_recompute


def test_an_old_programs_configuration_is_the_one_that_runs(run):
    config = utils.create_ipu_config(profiling=True, selection_order=SelectionOrder.HOOF)
    config = utils.auto_select_ipus(config, 4)
    config = utils.set_matmul_options(config, {"availableMemoryProportion": "0.2"})
    utils.configure_ipu_system(config)
    try:
        assert utils.get_num_of_ipus_in_device("/device:IPU:0") == 4
        found = run().job
    finally:
        utils.reset_ipu_configuration()
    assert (found.system.count, found.system.replicas) == (4, 2)
    assert found.notes == (
        "profiling of create_ipu_config will have no effect: a simulated run always has its whole profile, which is "
        "no part of the program.",
    )


def test_several_calls_add_options():
    config = utils.set_compilation_options(utils.create_ipu_config(), {"a": "1", "b": "2"})
    utils.set_compilation_options(config, {"b": "3"})
    assert config.compilation_poplar_options == {"a": "1", "b": "3"}
    assert utils.create_ipu_config().compilation_poplar_options == {}


UNUSED = {
    "profiling": True,
    "enable_ipu_events": True,
    "use_poplar_text_report": True,
    "use_poplar_cbor_report": True,
    "profile_execution": ExecutionProfileType.TILE_PROFILE,
    "enable_poplar_serialized_graph": True,
    "report_every_nth_execution": 3,
    "max_report_size": 1,
    "report_directory": "x",
    "retain_control_dependencies": True,
    "graph_options": {"a": "b"},
    "execution_options": {"a": "b"},
    "use_verified_transfers": True,
    "verification_options": VerificationOptions(inputs=KeyId(1)),
}


@pytest.mark.parametrize(("function", "argument"), arguments_in(WITHOUT_EFFECT))
def test_what_became_no_attribute_is_noted(function, argument):
    beside = {"profiling": True} if argument == "profile_execution" else {}
    notes = call(function, {argument: UNUSED[argument], **beside}).notes()
    assert notes[-1] == f"{argument} of {function} will have no effect: {WITHOUT_EFFECT[argument].reason}."
    assert len(notes) == 1 + len(beside)


def test_keys_of_verified_transfers():
    options = VerificationOptions()
    options.infeeds["training_feed"] = KeyId(2)
    options.outfeeds["out"].key = 3
    assert options.outfeeds == {"out": KeyId(3, -1)}
    assert (options.checkpoint_in, options.inputs) == (KeyId(0, 0), KeyId(0, -1))
    assert options.infeeds["other"].start_id == -1


OF_VALUE_ERROR = [
    (
        "`profiling` and `enable_ipu_events` are mutually exclusive",
        lambda config: utils.create_ipu_config(profiling=True, enable_ipu_events=True),
    ),
    (
        "`profiling` is required when `profile_execution` is set",
        lambda config: utils.create_ipu_config(profile_execution=True),
    ),
    (
        "IPU devices have already been configured.",
        lambda config: utils.auto_select_ipus(utils.auto_select_ipus(config, 2), 2),
    ),
    (
        "IPU devices have already been configured.",
        lambda config: utils.select_ipus(utils.auto_select_ipus(config, 2), [2]),
    ),
    (
        "All device indices in `indices` must be unique.",
        lambda config: utils.select_ipus(config, [2, 2]),
    ),
    (
        "Cannot place ops on I/O tiles when num_io_tiles == 0",
        lambda config: utils.set_io_tile_options(config, 0, True),
    ),
    (
        "`ipu_version` must be specified when `connection_type` isset to `DeviceConnectionType.NEVER`.",
        lambda config: utils.set_ipu_connection_type(config, DeviceConnectionType.NEVER),
    ),
]
OF_TYPE_ERROR = [("`gcl_options` must be a dictionary", utils.set_gcl_options)]
TOGETHER = {ValueError: OF_VALUE_ERROR, TypeError: OF_TYPE_ERROR}


@pytest.mark.parametrize(("kind", "text", "wrong"), [(kind, *case) for kind in TOGETHER for case in TOGETHER[kind]])
def test_what_does_not_go_together_is_refused(kind, text, wrong, refused):
    refused(kind, text, lambda: wrong(IPUConfig()))


def test_data_of_a_program_travel_to_ipus_that_are_no_model():
    assert utils.running_on_ipu_model() is False
    assert [utils.use_synthetic_data_for(each) for each in utils.SyntheticDataCategory] == [False] * 5

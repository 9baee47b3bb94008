"""The configuration of a device: Graphcore's rules with their exact texts, and what they choose."""

import copy
import operator
from enum import Enum

import pytest

from ipusim.base.errors import DeviceError, ProgramError, ProgramTypeError
from ipusim.ipu.config import (
    AttributeMetadata,
    DeviceConnectionType,
    IPUConfig,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from reports.graphcore_names import names
from reports.graphcore_status import Status, said_of
from tests.programs import configured
from tests.programs import run as run_program


def learn(run):
    optimizer = run.names.tf.train.GradientDescentOptimizer(0.1)
    return lambda loss: run.names.ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)


#: Attributes that do not go together, or not with a pipeline of two stages.
CONFIGURATIONS = [
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
        {"norms__experimental__distributed_batch_norm_replica_group_size": 2, "io_tiles__num_io_tiles": 32},
        ValueError,
        "norms.experimental.distributed_batch_norm_replica_group_size is not supported with I/O tiles.",
    ),
    (
        {
            "experimental__multi_replica_distribution__process_index": 2,
            "experimental__multi_replica_distribution__process_count": 2,
        },
        ValueError,
        "experimental.multi_replica_distribution.process_index must be in the range [0, "
        "experimental.multi_replica_distribution.process_count).",
    ),
    (
        {"experimental__multi_replica_distribution__process_count": 2},
        NotImplementedError,
        "experimental.multi_replica_distribution.process_count: expected 0 or 1, because one process is simulated, "
        "got 2: start so many hosts with ipusim run --hosts",
    ),
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
]


@pytest.mark.parametrize(("attributes", "kind", "text"), CONFIGURATIONS)
def test_configuration_of_a_pipeline(attributes, kind, text, run, refused):
    refused(kind, text, lambda: run(config=configured(**attributes)))


#: Attributes that there are not, or not with such a value.
ATTRIBUTES = [
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
        {"auto_select_ipus": "2"},
        TypeError,
        "Trying to set auto_select_ipus to 2, but it must be of type "
        "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]",
    ),
]


@pytest.mark.parametrize(("attributes", "kind", "text"), ATTRIBUTES)
def test_configuration_attributes(attributes, kind, text, refused):
    refused(kind, text, lambda: configured(**attributes))


#: Attributes that choose something, with values that choose another thing than their defaults.
EFFECTIVE = {
    "allow_recompute": True,
    "auto_select_ipus": 4,
    "select_ipus": 5,
    "selection_order": SelectionOrder.HOOF,
    "machine": "c2_server",
    "device_connection.enable_remote_buffers": True,
    "io_tiles.num_io_tiles": 64,
    "io_tiles.place_ops_on_io_tiles": True,
    "io_tiles.available_memory_proportion": 0.5,
    "matmuls.poplar_options": {"partialsType": "half"},
    "convolutions.poplar_options": {"partialsType": "half"},
    "optimizations.minimum_remote_tensor_size": 1,
    "optimizations.maximum_cross_replica_sum_buffer_size": 1,
    "norms.experimental.distributed_batch_norm_replica_group_size": 2,
}
#: Attributes that are checked against the simulated hosts, which ipusim run --hosts starts.
OF_HOSTS = {f"experimental.multi_replica_distribution.{name}" for name in ("process_count", "process_index")}
#: Attribute that lets a program offload: test_arguments_in_effect.py.
OF_PROGRAMS = {"device_connection.type"}


@pytest.mark.parametrize("path", EFFECTIVE)
def test_attributes_that_work_choose_something(path):
    def chosen(config):
        return config.options(), config.statistics_group, config.device((0, 1), is_configured=False)

    config = IPUConfig()
    config.io_tiles.num_io_tiles = 32 if path.startswith("io_tiles") else 0
    before = chosen(config)
    category, _, name = path.rpartition(".")
    setattr(operator.attrgetter(category)(config) if category else config, name, EFFECTIVE[path])
    assert chosen(config) != before
    assert config.notes() == ()


def test_every_attribute_of_graphcores_chooses_something_or_says_why_not():
    """device_connection.version was said to work, and nothing but the check of its text read it."""
    listed = [name for name in names() if name.kind == "attribute" and name.path.startswith("ipu.config.IPUConfig.")]
    paths = {name.path.removeprefix("ipu.config.IPUConfig."): name for name in listed}
    works = {path for path, name in paths.items() if said_of(name).status is Status.WORKS}
    assert works == EFFECTIVE.keys() - {"machine"} | OF_HOSTS | OF_PROGRAMS
    for path in paths.keys() - works:
        config = IPUConfig()
        assert config.notes() == ()
        category, _, name = path.rpartition(".")
        setattr(operator.attrgetter(category)(config) if category else config, name, another_value(path))
        config.check()
        (note,) = config.notes()
        assert note.startswith(f"IPUConfig.{path} will have no effect: ")


def another_value(path):
    """Return a value of an attribute that is not its default."""
    found = IPUConfig().get_attribute_metadata(path)
    if isinstance(found.default, Enum):
        return next(value for value in type(found.default) if value is not found.default)
    if path.endswith("version"):
        return "ipu1"
    return {"bool": not found.default, "dict": {"a": "b"}, "str": "x"}.get(found.type, 77)


def test_a_run_notes_what_has_no_effect(run):
    config = configured(auto_select_ipus=2)
    config.compilation_poplar_options["target.type"] = "Cpu"
    assert run(config=config).job.notes == (
        "IPUConfig.compilation_poplar_options will have no effect: ipusim compiles nothing with Poplar.",
    )
    assert run(config=configured(auto_select_ipus=2)).job.notes == ()
    config.select_ipus = []
    config.compilation_poplar_options = {}
    config.auto_select_ipus = [2]
    config.auto_select_ipus.append("2")
    with pytest.raises(TypeError, match=r"^Trying to set auto_select_ipus to \[2, '2'\], but it must be of type "):
        run(config=config)


def test_a_run_notes_what_has_no_effect_of_its_outfeed(run):
    tf, ipu = run.names.tf, run.names.ipu
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(io_batch_size=2)
    done = run_program(run.names, lambda: ipu.loops.repeat(1, lambda: outfeed.enqueue(tf.ones([]))), outfeed)
    assert done.job.notes == (
        "io_batch_size of IPUOutfeedQueue will have no effect: each element is sent when it is there.",
    )


def test_metadata_of_every_attribute():
    config = IPUConfig()
    found = config.get_attribute_metadata("optimizations.minimum_remote_tensor_size")
    assert (found.name, found.type, found.default) == ("optimizations.minimum_remote_tensor_size", "int", 128)
    assert (found.deprecated, found.deprecated_msg) == (False, None)
    assert found.check_type(4)
    with pytest.raises(TypeError) as caught:
        found.check_type("4")
    assert str(caught.value) == (
        "Trying to set optimizations.minimum_remote_tensor_size to 4, but it must be of type int"
    )
    below = config.optimizations.get_attribute_metadata("minimum_remote_tensor_size")
    assert below.name == found.name
    category = config.get_attribute_metadata("io_tiles")
    assert (category.name, category.type, category.default, category.check_type(3)) == ("io_tiles", None, None, True)
    found.default  # noqa: B018 - a copy
    config.get_attribute_metadata("gcl_poplar_options").default["a"] = "b"
    assert config.get_attribute_metadata("gcl_poplar_options").default == {}


@pytest.mark.parametrize(
    ("attr", "kind", "text"),
    [
        (
            "io_tiles.num_tiles",
            ValueError,
            "Could not get attribute metadata for 'io_tiles.num_tiles': 'num_tiles' is not a valid attribute of this "
            "config. Did you mean 'io_tiles.num_io_tiles'?",
        ),
        (
            "",
            ValueError,
            "Could not get attribute metadata for '': '' is not a valid attribute of this config. ",
        ),
        (
            "allow_recompute.__class__",
            ValueError,
            "Could not get attribute metadata for 'allow_recompute.__class__': allow_recompute is no category",
        ),
        (3, TypeError, "attr: expected a text, got 3"),
    ],
)
def test_metadata_of_what_is_not_there(attr, kind, text, refused):
    refused(kind, text, lambda: IPUConfig().get_attribute_metadata(attr))


def test_a_deprecated_attribute_says_so_in_the_log(caplog):
    AttributeMetadata("a.b", None, "use c").warn_if_deprecated()
    IPUConfig().get_attribute_metadata("allow_recompute").warn_if_deprecated()
    assert [record.getMessage() for record in caplog.records] == ["a.b has been deprecated: use c"]


def test_what_is_no_attribute_is_not_there():
    config = IPUConfig()
    assert not hasattr(config, "auto_select_ipu")
    assert not hasattr(config.io_tiles, "tiles")
    assert getattr(config, "colour", 3) == 3
    assert hasattr(config.norms.experimental, "distributed_batch_norm_replica_group_size")
    with pytest.raises(ProgramError, match="cannot be deleted"):
        del config.allow_recompute


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
    found = run(config=config).job
    assert (found.system.name, found.system.count, found.system.replicas) == ("bow_pod16", 4, 2)
    with pytest.raises(DeviceError, match="unknown system 'bow_pod15'"):
        run(config=configured(machine="bow_pod15", auto_select_ipus=2))
    assert run(config=configured(auto_select_ipus=[2, 1])).job.system.count == 2


@pytest.mark.parametrize(
    ("id_of_device", "machine", "ipus"), [(0, "m2000", 1), (6, "m2000", 4), (8, "pod16", 1), (24, "pod16", 4)]
)
def test_a_device_is_chosen_on_the_smallest_machine_that_has_its_id(id_of_device, machine, ipus, run):
    found = run(config=configured(select_ipus=id_of_device), device_mapping=[0, 0]).job
    assert (found.system.name, found.system.count) == (machine, ipus)


def test_remote_buffers_take_the_optimizers_state_by_default(run):
    config = configured(auto_select_ipus=2, device_connection__enable_remote_buffers=True)
    assert run(optimizer_function=learn(run), config=config).job.program.offload.weight_update_variables
    assert not run(optimizer_function=learn(run)).job.program.offload.weight_update_variables


@pytest.mark.parametrize("value", [False, True, *StochasticRoundingBehaviour])
def test_stochastic_rounding_is_said_by_a_truth_value_or_by_its_behaviour(value):
    config = IPUConfig()
    config.floating_point_behaviour.esr = value
    said = [note for note in config.notes() if note.startswith("IPUConfig.floating_point_behaviour.esr")]
    assert said == ["IPUConfig.floating_point_behaviour.esr will have no effect: no stochastic rounding: NumPy rounds "
                    "to nearest."] * bool(value)  # fmt: skip
    assert StochasticRoundingBehaviour.from_bool(bool(value)) == bool(value)
    with pytest.raises(ProgramTypeError, match="esr to 1, but it must be of type bool"):
        config.floating_point_behaviour.esr = 1

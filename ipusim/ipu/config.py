"""Configure a program's device: Graphcore's IPUConfig, the enumerations of its attributes, and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cache
from operator import attrgetter
from typing import Any, Final

from ipusim.api import System, hardware, pipelines, runs
from ipusim.api import machine as core_machine
from ipusim.base.errors import ProgramError, ProgramStateError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import attributes, checks
from ipusim.ipu.runtime.attributes import AttributeMetadata, Category, Field, Fields
from ipusim.ipu.runtime.devices import chosen_device, device_count
from ipusim.ipu.runtime.pipeline_options import plan_options, poplar_options
from ipusim.ipu.runtime.program_state import configure, configured
from ipusim.ipu.runtime.verification import KeyId, VerificationOptions

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "KeyId",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "VerificationOptions",
    "configure_ipu_system",
    "get_ipu_config",
    "reset_ipu_configuration",
]


class SelectionOrder(Enum):
    """Placement of a device's logical IPUs on the machine."""

    AUTO = "AUTO"
    ZIGZAG = "ZIGZAG"
    SNAKE = "SNAKE"
    HOOF = "HOOF"


class DeviceConnectionType(Enum):
    """Time of a program's attachment to its device.

    A simulated device is always available. With ``ALWAYS`` a program offloads without ``enable_remote_buffers``.
    """

    ALWAYS = "ALWAYS"
    ON_DEMAND = "ON_DEMAND"
    PRE_COMPILE = "PRE_COMPILE"
    NEVER = "NEVER"


class MergeRemoteBuffersBehaviour(Enum):
    """Cases in which buffers in remote memory are merged.

    Without effect: the simulator counts bytes of remote memory and ignores the number of buffers.
    """

    NO_MERGING = "NO_MERGING"
    MERGE = "MERGE"
    IF_BENEFICIAL = "IF_BENEFICIAL"


class SchedulingAlgorithm(Enum):
    """Algorithm by which the compiler orders an IPU's operations.

    Without effect: operations run in program order.
    """

    CHOOSE_BEST = "CHOOSE_BEST"
    CLUSTERING = "CLUSTERING"
    POST_ORDER = "POST_ORDER"
    LOOK_AHEAD = "LOOK_AHEAD"
    SHORTEST_PATH = "SHORTEST_PATH"


class ExecutionProfileType(Enum):
    """Contents of an execution profile.

    Without effect: a Timeline always contains a full profile, except for tiles.
    """

    NO_PROFILE = "NO_PROFILE"
    DEVICE_PROFILE = "DEVICE_PROFILE"
    IPU_PROFILE = "IPU_PROFILE"
    TILE_PROFILE = "TILE_PROFILE"


class StochasticRoundingBehaviour(IntEnum):
    """Stochastic rounding, in releases from 2.4 on; earlier releases take True or False."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> StochasticRoundingBehaviour:
        """Return the member for True or False, the values of releases before 2.4."""
        return cls.ON if value else cls.OFF


#: Attribute for the number of replicas that share batch statistics.
_STATISTICS_GROUP: Final = "norms.experimental.distributed_batch_norm_replica_group_size"
#: Category of attributes about a program's processes.
_PROCESSES: Final = "experimental.multi_replica_distribution"
#: Reason why attributes of Graphcore's IPU Model have no effect.
_NO_IPU_MODEL: Final = "Graphcore's IPU Model does not run here"
#: Attributes without a scenario key, or that accept more forms of a value than their key, such as a list of devices.
_OWN_ATTRIBUTES: Final[Mapping[str, Field]] = {
    "auto_select_ipus": attributes.devices(),
    "select_ipus": attributes.devices(),
    "selection_order": attributes.member(SelectionOrder.AUTO),
    "device_connection.type": attributes.member(DeviceConnectionType.ALWAYS),
    "device_connection.version": replace(
        attributes.text("", "", "ipu1", "ipu2"), without_effect="the machine says which IPUs it has"
    ),
    # Only Graphcore's IPU Model reads these attributes, also in Graphcore's software.
    "ipu_model.compile_ipu_code": replace(attributes.flag(True), without_effect=_NO_IPU_MODEL),
    "ipu_model.tiles_per_ipu": replace(attributes.whole(0), without_effect=_NO_IPU_MODEL),
    "ipu_model.version": replace(attributes.text("ipu2", "ipu1", "ipu2"), without_effect=_NO_IPU_MODEL),
    f"{_PROCESSES}.process_index": attributes.whole(0),
    f"{_PROCESSES}.process_count": attributes.whole(0),
    _STATISTICS_GROUP: attributes.whole(1, least=1),
    "machine": attributes.text(),
    "disturbances": Field((), "list", lambda value: isinstance(value, list | tuple)),
}
#: Attributes without effect whose type is not bool or whose default is not False.
_FURTHER_ATTRIBUTES: Final[Mapping[str, Field]] = {
    "serialization_output_folder": attributes.text(),
    "compilation_poplar_options": attributes.options(),
    "gcl_poplar_options": attributes.options(),
    "floating_point_behaviour.esr": replace(
        attributes.flag(), fits=lambda value: isinstance(value, bool | StochasticRoundingBehaviour)
    ),
    "optimizations.prefetch_data_streams": attributes.flag(True),
    "optimizations.enable_graph_outlining": attributes.flag(True),
    "optimizations.maximum_reduce_scatter_buffer_size": attributes.whole(0),
    "optimizations.maximum_reduce_many_buffer_size": attributes.whole(0),
    "optimizations.maximum_all_gather_buffer_size": attributes.whole(0),
    "optimizations.maximum_inter_ipu_copies_buffer_size": attributes.whole(0),
    "optimizations.maximum_send_recv_cluster_size": attributes.whole(0),
    "optimizations.merge_remote_buffers": attributes.member(MergeRemoteBuffersBehaviour.IF_BENEFICIAL),
    "optimizations.enable_gather_simplifier": attributes.flag(True),
    "optimizations.enable_dynamic_slice_replacement": attributes.flag(True),
    "optimizations.triangular_solve_expander_block_size": attributes.whole(0),
    "optimizations.cholesky_block_size": attributes.whole(0),
    "optimizations.math.dot_strength": attributes.flag(True),
    "pooling.poplar_options": attributes.options(),
    "slices.poplar_options": attributes.options(),
    "scheduling.algorithm": attributes.member(SchedulingAlgorithm.CHOOSE_BEST),
    "scheduling.maximum_scheduler_lookahead_depth": attributes.whole(5),
    "scheduling.maximum_scheduler_search_space_size": attributes.whole(64),
}


@cache
def _fields() -> Fields:
    """Return the fields of all attributes, in mappings nested by the dots of an attribute's name."""
    fields_without_effect = {
        row.name: replace(_FURTHER_ATTRIBUTES.get(row.name, attributes.flag()), without_effect=row.effect)
        for row in runs.OTHER_ATTRIBUTES
    }
    result: dict[str, Any] = {}
    for path, field in (
        fields_without_effect | {row.name: _field(row) for row in runs.attributes()} | dict(_OWN_ATTRIBUTES)
    ).items():
        *categories, name = path.split(".")
        _nested(result, categories)[name] = field
    return result


def _field(row: runs.GraphcoreOption) -> Field:
    """Return the field of an attribute with a scenario key; the default of both is Graphcore's."""
    if row.kind is bool:
        return attributes.flag(row.default)
    if row.kind is int:
        return attributes.whole(row.default or 0)
    return attributes.share(row.default) if row.kind is float else attributes.options()


def _nested(result: dict[str, Any], categories: Sequence[str]) -> dict[str, Any]:
    """Return the nested mapping at the path ``categories``; missing levels are created."""
    for item in categories:
        result = result.setdefault(item, {})
    return result


class IPUConfig(Category):
    """Device that a pipeline runs on, and options of execution.

    Attributes (Graphcore's, with Graphcore's defaults):
        auto_select_ipus: the device's number of IPUs. A list of numbers makes several devices, ``/device:IPU:0``,
            ``/device:IPU:1`` and so on; every device is a separate system.
        select_ipus: id of the device in the machine's listing, or a list of ids for several devices.
        selection_order: a SelectionOrder.
        allow_recompute: whether stages keep only inputs and recompute activations in the backward pass.
        io_tiles: num_io_tiles, place_ops_on_io_tiles, available_memory_proportion.
        device_connection: enable_remote_buffers, type, version.
        optimizations: minimum_remote_tensor_size and maximum_cross_replica_sum_buffer_size, in bytes.
        matmuls, convolutions: poplar_options for stages without options.
        ipu_model: compile_ipu_code, tiles_per_ipu, version; only Graphcore's IPU Model reads them.

    Graphcore's remaining attributes exist as well. If a program changes an attribute without
    effect, a note in the run gives the reason.

    This simulator adds two attributes:
        machine: name of the machine, from ``ipusim.api.hardware.MACHINES``; empty for the smallest machine of GC200
            that has the IPUs of all devices.
        disturbances: deviations from the rates, as a list of mappings with a scenario's keys, such as
            ``[{"ipu": 2, "slower": 1.5}]``.
    """

    def __init__(self) -> None:
        """Begin with the defaults."""
        super().__init__("", _fields())
        self.__dict__["_remarks"] = {}

    @property
    def statistics_group(self) -> int:
        """Number of replicas that share the statistics of batch normalisation."""
        return int(self.norms.experimental.distributed_batch_norm_replica_group_size)

    def remark(self, setting: str, reason: str) -> None:
        """Add a note that ``setting``, which is not an attribute, has no effect, with the reason."""
        self._remarks[setting] = f"{setting} will have no effect: {reason}."

    def notes(self) -> tuple[str, ...]:
        """Return a note with the reason for every changed value without effect."""
        return (*super().notes(), *self._remarks.values())

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Apply a copy of this configuration to later programs that name no configuration.

        ``device`` has no effect: a simulated host has one TensorFlow device.

        Raises ProgramError with Graphcore's message for conflicting attributes.
        """
        configure_ipu_system(self, device)

    def options(self) -> dict[str, Any]:
        """Return the attributes with a scenario key, by key.

        Raises UnsupportedProgramError for refused Poplar options.
        """
        result: dict[str, Any] = {}
        for row in runs.attributes():
            value: Any = attrgetter(row.name)(self)
            if isinstance(value, dict):
                value = poplar_options(plan_options(value, row.name))
            elif row.optional and row.kind is int:  # Graphcore's default is 0; a scenario omits the key
                value = value or None
            *categories, key = row.path
            _nested(result, categories)[key] = value.value if isinstance(value, Enum) else value
        if (processes := self.experimental.multi_replica_distribution.process_count) > 1:
            _nested(result, ("system", "host")).update(count=processes, sum_over="links")
        return result

    def device(
        self, mapping: Sequence[int], pipelined: bool = True, *, is_configured: bool = True, ordinal: int = 0
    ) -> dict[str, Any]:
        """Return request options of machine and device, for stages on the IPUs of ``mapping``.

        The device is ``/device:IPU:`` with the number ``ordinal``; without ``is_configured``, the smallest device with
        enough IPUs. The machine is the attribute ``machine``, or else the smallest machine that has all devices. Raises
        ProgramError with Graphcore's message for conflicting attributes, ProgramStateError if a configuration asks for
        no device, DeviceError for an unknown device.
        """
        self.check()
        if is_configured and not device_count(self):
            raise ProgramStateError("No IPU devices configured.")
        machine, count, device = chosen_device(self, ordinal, hardware.shards_of(mapping))

        def build(stages: Sequence[int]) -> System:
            return hardware.build_system(
                machine.name,
                mapping=stages,
                ipus=count,
                select=device,
                selection_order=self.selection_order.value,
                pipelined=pipelined,
                remote_buffers=self.device_connection.enable_remote_buffers,
                io_tiles=self.io_tiles.num_io_tiles,
            )

        # As a program attaches before it compiles, a wrong number of IPUs is reported before a wrong mapping.
        if count is not None or device is not None:
            hardware.replication_factor(build((0,)).count, hardware.shards_of(mapping))
        build(mapping)
        return {"name": machine.name, "auto_select_ipus": count, "select_ipus": device}

    def system(self, mapping: Sequence[int], pipelined: bool = True, **options: Any) -> System:
        """Return the system of a device, for stages on the IPUs of ``mapping``; arguments as in :meth:`device`."""
        device = self.device(mapping, pipelined, **options)
        return hardware.build_system(
            device["name"],
            mapping=mapping,
            ipus=device["auto_select_ipus"],
            select=device["select_ipus"],
            pipelined=pipelined,
        )

    def check(self) -> None:
        """Refuse wrong or conflicting attributes; raises ProgramError with Graphcore's message if Graphcore has any."""
        self.check_all()
        if self.auto_select_ipus not in ([], ()) and self.select_ipus not in ([], ()):
            raise ProgramError("Only one of `auto_select_ipus` and `select_ipus` can be set.")
        selection = self.select_ipus
        if not isinstance(selection, int) and len(set(selection)) != len(selection):
            raise ProgramError("All MultiIPU indices in `select_ipus` must be unique.")
        connection = self.device_connection
        types_without_device = DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE
        if connection.type in types_without_device and not connection.version:
            raise ProgramError(
                "device_connection.version must be set when device_connection.type is DeviceConnectionType.NEVER or "
                "DeviceConnectionType.PRE_COMPILE"
            )
        tiles = self.io_tiles
        if self.statistics_group > 1 and tiles.num_io_tiles:
            raise ProgramError(f"{_STATISTICS_GROUP} is not supported with I/O tiles.")
        _check_processes(self.experimental.multi_replica_distribution)
        pipelines.IoTiles(
            tiles.num_io_tiles, tiles.place_ops_on_io_tiles, Fraction(str(tiles.available_memory_proportion))
        )


def _check_processes(processes: Any) -> None:
    """Refuse a process count other than the number of simulated hosts, and an index other than this host's rank.

    Raises:
        ProgramError: if the index is not valid (Graphcore's message if it is not below the count).
        UnsupportedProgramError: if the count is not valid.
    """
    index = processes.process_index
    if processes.process_count and index >= processes.process_count:
        raise ProgramError(f"{_PROCESSES}.process_index must be in the range [0, {_PROCESSES}.process_count).")
    if processes.process_count > 1:
        host = core_machine.this_host()
        if host is None or host.count != processes.process_count:
            process_count, hosts_text = (
                (1, "one process is") if host is None else (host.count, f"{host.count} hosts are")
            )
            raise UnsupportedProgramError(
                f"{_PROCESSES}.process_count: expected 0 or {process_count}, because {hosts_text} simulated, got "
                f"{processes.process_count}: start so many hosts with ipusim run --hosts"
            )
        if index != host.rank:
            raise ProgramError(f"{_PROCESSES}.process_index: expected {host.rank}, the rank of this host, got {index}")


def configure_ipu_system(config: IPUConfig, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Apply a copy of ``config`` to later programs that name no configuration.

    A program that has run continues on the newly configured device, with its variables and its places in infeeds. An
    equal configuration changes nothing, as in Graphcore's software. ``device`` has no effect.

    Raises ProgramTypeError if config is not a configuration, ProgramError with Graphcore's message for conflicting
    attributes, and ProgramError for a different configuration without ``reset_configuration``.
    """
    if not isinstance(config, IPUConfig):
        raise ProgramTypeError(f"`config` must be an IPUConfig object, got {type(config)}.")
    checks.text("device", device)
    previous = configured()
    resets = checks.truth("reset_configuration", reset_configuration)
    config.check()
    if previous is not None and config.same_as(previous) and config.notes() == previous.notes():
        return
    if previous is not None and not resets:
        raise ProgramError("IPU devices have already been configured: expected reset_configuration=True")
    configure(deepcopy(config))


def reset_ipu_configuration() -> None:
    """Forget the configuration."""
    configure(None)


def get_ipu_config(session: object = None) -> list[IPUConfig]:
    """Return the current configuration, once per device; raises ProgramStateError without a configuration.

    ``session`` has no effect: the configuration belongs to the program, not to a session.
    """
    result = configured()
    if result is None:
        raise ProgramStateError("No IPU devices configured.")
    return [result] * max(1, device_count(result))

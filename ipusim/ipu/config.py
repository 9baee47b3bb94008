"""The configuration of a device: the part of Graphcore's IPUConfig that a pipeline meets, under its names."""

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
    """Where the logical IPUs of a device lie."""

    AUTO = "AUTO"
    ZIGZAG = "ZIGZAG"
    SNAKE = "SNAKE"
    HOOF = "HOOF"


class DeviceConnectionType(Enum):
    """When a device is attached to.

    Without effect: a simulated device is always there.
    """

    ALWAYS = "ALWAYS"
    ON_DEMAND = "ON_DEMAND"
    PRE_COMPILE = "PRE_COMPILE"
    NEVER = "NEVER"


class MergeRemoteBuffersBehaviour(Enum):
    """When buffers in remote memory are merged.

    Without effect: remote memory is counted in bytes, however many buffers they are in.
    """

    NO_MERGING = "NO_MERGING"
    MERGE = "MERGE"
    IF_BENEFICIAL = "IF_BENEFICIAL"


class SchedulingAlgorithm(Enum):
    """How the compiler orders an IPU's operations.

    Without effect: operations run in the order in which they are written.
    """

    CHOOSE_BEST = "CHOOSE_BEST"
    CLUSTERING = "CLUSTERING"
    POST_ORDER = "POST_ORDER"
    LOOK_AHEAD = "LOOK_AHEAD"
    SHORTEST_PATH = "SHORTEST_PATH"


class ExecutionProfileType(Enum):
    """What an execution profile has.

    Without effect: a Timeline always has all of a profile but the tiles.
    """

    NO_PROFILE = "NO_PROFILE"
    DEVICE_PROFILE = "DEVICE_PROFILE"
    IPU_PROFILE = "IPU_PROFILE"
    TILE_PROFILE = "TILE_PROFILE"


class StochasticRoundingBehaviour(IntEnum):
    """Where numbers are rounded at random, in releases from 2.4 on; before, True or False says it."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> StochasticRoundingBehaviour:
        """Return what an older release's truth value means."""
        return cls.ON if value else cls.OFF


_GROUP: Final = "norms.experimental.distributed_batch_norm_replica_group_size"
_PROCESSES: Final = "experimental.multi_replica_distribution"
_NO_IPU_MODEL: Final = "Graphcore's IPU Model does not run here"
#: Attributes that choose something here and are no key of a scenario, or one with fewer ways to say it.
_OWN: Final[Mapping[str, Field]] = {
    "auto_select_ipus": attributes.devices(),
    "select_ipus": attributes.devices(),
    "selection_order": attributes.member(SelectionOrder.AUTO),
    "device_connection.type": replace(
        attributes.member(DeviceConnectionType.ALWAYS), without_effect="a simulated device is always there"
    ),
    "device_connection.version": replace(
        attributes.text("", "", "ipu1", "ipu2"), without_effect="the machine says which IPUs it has"
    ),
    # Has an effect where Graphcore's IPU Model runs only, there as here.
    "ipu_model.compile_ipu_code": replace(attributes.flag(True), without_effect=_NO_IPU_MODEL),
    "ipu_model.tiles_per_ipu": replace(attributes.whole(0), without_effect=_NO_IPU_MODEL),
    "ipu_model.version": replace(attributes.text("ipu2", "ipu1", "ipu2"), without_effect=_NO_IPU_MODEL),
    f"{_PROCESSES}.process_index": attributes.whole(0),
    f"{_PROCESSES}.process_count": attributes.whole(0),
    _GROUP: attributes.whole(1, least=1),
    "machine": attributes.text(),
    "disturbances": Field((), "list", lambda value: isinstance(value, list | tuple)),
}
#: Graphcore's other attributes, with Graphcore's defaults where those are not what their kind begins with.
_OTHERS: Final[Mapping[str, Field]] = {
    "serialization_output_folder": attributes.text(),
    "compilation_poplar_options": attributes.options(),
    "gcl_poplar_options": attributes.options(),
    "floating_point_behaviour.esr": replace(
        attributes.flag(), fits=lambda value: isinstance(value, bool | StochasticRoundingBehaviour)
    ),
    "optimizations.prefetch_data_streams": attributes.flag(True),
    "optimizations.enable_graph_outlining": attributes.flag(True),
    "optimizations.maximum_reduce_scatter_buffer_size": attributes.whole(0),
    "optimizations.maximum_inter_ipu_copies_buffer_size": attributes.whole(0),
    "optimizations.maximum_send_recv_cluster_size": attributes.whole(0),
    "optimizations.merge_remote_buffers": attributes.member(MergeRemoteBuffersBehaviour.IF_BENEFICIAL),
    "optimizations.enable_gather_simplifier": attributes.flag(True),
    "optimizations.triangular_solve_expander_block_size": attributes.whole(0),
    "optimizations.cholesky_block_size": attributes.whole(0),
    "optimizations.math.dot_strength": attributes.flag(True),
    "pooling.poplar_options": attributes.options(),
    "scheduling.algorithm": attributes.member(SchedulingAlgorithm.CHOOSE_BEST),
    "scheduling.maximum_scheduler_lookahead_depth": attributes.whole(5),
    "scheduling.maximum_scheduler_search_space_size": attributes.whole(64),
}


@cache
def _fields() -> Fields:
    """Return all attributes: those that are keys of a scenario as their rows say, and the others as without effect."""
    others = {
        row.name: replace(_OTHERS.get(row.name, attributes.flag()), without_effect=row.effect)
        for row in runs.OTHER_ATTRIBUTES
    }
    result: dict[str, Any] = {}
    for path, field in (others | {row.name: _field(row) for row in runs.attributes()} | dict(_OWN)).items():
        *above, name = path.split(".")
        _within(result, above)[name] = field
    return result


def _field(row: runs.GraphcoreOption) -> Field:
    """Return the attribute of a row, by its kind; Graphcore's defaults are those of a scenario."""
    if row.kind is bool:
        return attributes.flag(row.default)
    if row.kind is int:
        return attributes.whole(row.default or 0)
    return attributes.share(row.default) if row.kind is float else attributes.options()


def _within(result: dict[str, Any], above: Sequence[str]) -> dict[str, Any]:
    """Return the mapping below ``above`` in nested ones; those that are missing are made."""
    for item in above:
        result = result.setdefault(item, {})
    return result


class IPUConfig(Category):
    """Which device a pipeline runs on, and how.

    Attributes (Graphcore's, with Graphcore's defaults):
        auto_select_ipus: number of IPUs of the device, or a list of those of several: ``/device:IPU:0``,
            ``/device:IPU:1`` and so on, each a system of its own.
        select_ipus: id of the device in the machine's listing, or a list of the ids of several.
        selection_order: a SelectionOrder.
        allow_recompute: whether stages keep their inputs and compute their activations again.
        io_tiles: num_io_tiles, place_ops_on_io_tiles, available_memory_proportion.
        device_connection: enable_remote_buffers, type, version.
        optimizations: minimum_remote_tensor_size and maximum_cross_replica_sum_buffer_size, in bytes.
        matmuls, convolutions: poplar_options, of those whose stage gives none.
        ipu_model: compile_ipu_code, tiles_per_ipu, version, which are for Graphcore's IPU Model alone.

    Graphcore's other attributes are there as well; a run's notes say why a value of theirs has no effect.

    Two are this simulator's:
        machine: name of the machine, one of ``ipusim.api.hardware.MACHINES``; when empty, the smallest
            of GC200 that has the IPUs of all devices.
        disturbances: what works otherwise than the rates say, as a list of mappings with a scenario's keys, such as
            ``[{"ipu": 2, "slower": 1.5}]``.
    """

    def __init__(self) -> None:
        """Begin with the defaults."""
        super().__init__("", _fields())
        self.__dict__["_remarks"] = {}

    @property
    def statistics_group(self) -> int:
        """The replicas that batch normalisations take their statistics of, together."""
        return int(self.norms.experimental.distributed_batch_norm_replica_group_size)

    def remark(self, setting: str, why: str) -> None:
        """Note that a ``setting`` of the program has no effect, and why, where no attribute says it."""
        self._remarks[setting] = f"{setting} will have no effect: {why}."

    def notes(self) -> tuple[str, ...]:
        """Return why each value that is not the default has no effect, where it has none."""
        return (*super().notes(), *self._remarks.values())

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Take this configuration, as it is now, for all programs that run from now on and name none.

        ``device`` has no effect: a simulated host has one device of TensorFlow's own.

        Raises ProgramError in Graphcore's words for attributes that do not go together.
        """
        configure_ipu_system(self, device)

    def options(self) -> dict[str, Any]:
        """Return the attributes that are keys of a scenario, by those; raises UnsupportedProgramError as stages do."""
        result: dict[str, Any] = {}
        for row in runs.attributes():
            value: Any = attrgetter(row.name)(self)
            if isinstance(value, dict):
                value = poplar_options(plan_options(value, row.name))
            elif row.optional and row.kind is int:  # which begins with 0 where a scenario leaves it out
                value = value or None
            *above, key = row.path
            _within(result, above)[key] = value.value if isinstance(value, Enum) else value
        if (processes := self.experimental.multi_replica_distribution.process_count) > 1:
            _within(result, ("system", "host")).update(count=processes, sum_over="links")
        return result

    def device(
        self, mapping: Sequence[int], pipelined: bool = True, *, configured: bool = True, ordinal: int = 0
    ) -> dict[str, Any]:
        """Return the machine and the device of it for stages on the IPUs of ``mapping``, as options of a request.

        It is the device ``/device:IPU:`` with the number ``ordinal``; without being ``configured`` the smallest. The
        machine is the smallest that has all devices. Raises ProgramError in Graphcore's words for attributes that do
        not go together, ProgramStateError when no device is asked for, DeviceError for an unknown one.
        """
        self.check()
        if configured and not device_count(self):
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

        if count is not None or device is not None:  # attached to first, and then compiled for
            hardware.replication_factor(build((0,)).count, hardware.shards_of(mapping))
        build(mapping)
        return {"name": machine.name, "auto_select_ipus": count, "select_ipus": device}

    def check(self) -> None:
        """Refuse attributes that are wrong or do not go together; raises ProgramError, in Graphcore's words if any."""
        self.check_all()
        if self.auto_select_ipus not in ([], ()) and self.select_ipus not in ([], ()):
            raise ProgramError("Only one of `auto_select_ipus` and `select_ipus` can be set.")
        chosen = self.select_ipus
        if not isinstance(chosen, int) and len(set(chosen)) != len(chosen):
            raise ProgramError("All MultiIPU indices in `select_ipus` must be unique.")
        connection = self.device_connection
        offline = DeviceConnectionType.NEVER, DeviceConnectionType.PRE_COMPILE
        if connection.type in offline and not connection.version:
            raise ProgramError(
                "device_connection.version must be set when device_connection.type is DeviceConnectionType.NEVER or "
                "DeviceConnectionType.PRE_COMPILE"
            )
        tiles = self.io_tiles
        if self.statistics_group > 1 and tiles.num_io_tiles:
            raise ProgramError(f"{_GROUP} is not supported with I/O tiles.")
        _check_processes(self.experimental.multi_replica_distribution)
        pipelines.IoTiles(
            tiles.num_io_tiles, tiles.place_ops_on_io_tiles, Fraction(str(tiles.available_memory_proportion))
        )


def _check_processes(processes: Any) -> None:
    """Refuse other processes than the simulated hosts; raises ProgramError, in Graphcore's words for an index."""
    index = processes.process_index
    if processes.process_count and index >= processes.process_count:
        raise ProgramError(f"{_PROCESSES}.process_index must be in the range [0, {_PROCESSES}.process_count).")
    if processes.process_count > 1:
        host = core_machine.this_host()
        if host is None or host.count != processes.process_count:
            most, there = (1, "one process is") if host is None else (host.count, f"{host.count} hosts are")
            raise UnsupportedProgramError(
                f"{_PROCESSES}.process_count: expected 0 or {most}, as {there} simulated, got "
                f"{processes.process_count}: start so many hosts with horovod.run"
            )
        if index != host.rank:
            raise ProgramError(f"{_PROCESSES}.process_index: expected {host.rank}, the rank of this host, got {index}")


def configure_ipu_system(config: IPUConfig, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Take ``config``, as it is now, for all programs that run from now on and name none.

    A program that has run goes on from where it is, on the device that is configured; as in Graphcore's, the same
    configuration again changes nothing. ``device`` is without effect. Raises ProgramTypeError for what is no
    configuration, ProgramError in Graphcore's words for attributes that do not go together, and for another one without
    ``reset_configuration``.
    """
    if not isinstance(config, IPUConfig):
        raise ProgramTypeError(f"`config` must be an IPUConfig object, got {type(config)}.")
    checks.text("device", device)
    before = configured()
    resets = checks.truth("reset_configuration", reset_configuration)
    config.check()
    if before is not None and config.same_as(before) and config.notes() == before.notes():
        return
    if before is not None and not resets:
        raise ProgramError("IPU devices have already been configured: expected reset_configuration=True")
    configure(deepcopy(config))


def reset_ipu_configuration() -> None:
    """Forget what has been configured."""
    configure(None)


def get_ipu_config(session: object = None) -> list[IPUConfig]:
    """Return the configuration in effect, once for each device; raises ProgramStateError where none is.

    ``session`` has no effect: the configuration is the program's, in any session.
    """
    result = configured()
    if result is None:
        raise ProgramStateError("No IPU devices configured.")
    return [result] * max(1, device_count(result))

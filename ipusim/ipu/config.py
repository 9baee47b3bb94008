"""The configuration of a device: the part of Graphcore's IPUConfig that a pipeline meets, under its names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from ipusim.errors import DeviceError, ProgramError, ProgramStateError, ProgramTypeError
from ipusim.hardware.build import build_system, replication_factor, shards_of
from ipusim.hardware.machines import MACHINES, find_machine
from ipusim.hardware.system import System
from ipusim.ipu.stage_options import proportion
from ipusim.model.stage_options import StageOptions
from ipusim.pipeline.io_tiles import AVAILABLE_MEMORY_PROPORTION, IoTiles
from ipusim.pipeline.offload import MINIMUM_REMOTE_TENSOR_SIZE

#: Machines that a program runs on when none is named: the first with enough IPUs.
_USUAL_MACHINES: Final = ("m2000", "pod16", "pod64", "pod128", "pod256")


class SelectionOrder(Enum):
    """Where the logical IPUs of a device lie."""

    AUTO = "AUTO"
    ZIGZAG = "ZIGZAG"
    SNAKE = "SNAKE"
    HOOF = "HOOF"


class DeviceConnectionType(Enum):
    """When a device is attached to; a simulated one always is."""

    ALWAYS = "ALWAYS"
    ON_DEMAND = "ON_DEMAND"
    PRE_COMPILE = "PRE_COMPILE"
    NEVER = "NEVER"


@dataclass(frozen=True)
class _Field:
    """An attribute: its default, and its type as messages call it and as a test."""

    default: Any
    type_name: str
    fits: Callable[[Any], bool]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(default: int) -> _Field:
    return _Field(default, "int", _is_int)


def _flag() -> _Field:
    return _Field(False, "bool", lambda value: isinstance(value, bool))


def _text() -> _Field:
    return _Field("", "str", lambda value: isinstance(value, str))


def _member(default: Enum) -> _Field:
    kind = type(default)
    return _Field(default, kind.__name__, lambda value: isinstance(value, kind))


def _devices() -> _Field:
    def fits(value: Any) -> bool:
        return _is_int(value) or (isinstance(value, list | tuple) and all(map(_is_int, value)))

    return _Field([], "Union[int, List[int], Tuple[int, ...]]", fits)


def _options() -> _Field:
    return _Field({}, "Dict[str, str]", lambda value: isinstance(value, dict))


class _Category:
    """Attributes by name, some of them categories themselves; no others can be read or set."""

    def __init__(self, path: str, fields: dict[str, _Field | dict[str, Any]]) -> None:
        prefix = f"{path}." if path else ""
        values = {
            name: _Category(prefix + name, each) if isinstance(each, dict) else copy(each.default)
            for name, each in fields.items()
        }
        self.__dict__.update(_path=prefix, _fields=fields, **values)

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that there is not; raises ProgramError (a ValueError) with the nearest name."""
        if name.startswith("__"):  # asked for by Python itself, which expects an AttributeError
            raise AttributeError(name)
        near = get_close_matches(name, self._fields)
        hint = f"Did you mean '{self._path}{near[0]}'?" if near else ""
        raise ProgramError(f"'{name}' is not a valid attribute of this config. {hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; raises ProgramError for one that there is not, ProgramTypeError for another type."""
        field = self._fields.get(name)
        if field is None:
            self.__getattr__(name)
        elif isinstance(field, dict):
            raise ProgramError(f"{self._path}{name} is a category and cannot be assigned to.")
        elif not field.fits(value):
            raise ProgramTypeError(
                f"Trying to set {self._path}{name} to {value}, but it must be of type {field.type_name}"
            )
        else:
            self.__dict__[name] = value


class IPUConfig(_Category):
    """Which device a pipeline runs on, and how.

    Attributes (Graphcore's, with Graphcore's defaults):
        auto_select_ipus: number of IPUs of the device, or a list with that number.
        select_ipus: id of the device in the machine's listing, or a list with that id.
        selection_order: a SelectionOrder.
        allow_recompute: whether stages keep their inputs and compute their activations again.
        io_tiles: num_io_tiles, place_ops_on_io_tiles, available_memory_proportion.
        device_connection: enable_remote_buffers, type, version.
        optimizations: minimum_remote_tensor_size, in bytes.
        matmuls, convolutions: poplar_options, of those whose stage gives none.

    And one of this simulator:
        machine: name of the machine, one of ``ipusim.hardware.machines.MACHINES``; when empty, the smallest
            of GC200 that has the IPUs.
    """

    def __init__(self) -> None:
        """Begin with the defaults."""
        proportion = float(AVAILABLE_MEMORY_PROPORTION)
        super().__init__(
            "",
            {
                "auto_select_ipus": _devices(),
                "select_ipus": _devices(),
                "selection_order": _member(SelectionOrder.AUTO),
                "allow_recompute": _flag(),
                "io_tiles": {
                    "num_io_tiles": _whole(0),
                    "place_ops_on_io_tiles": _flag(),
                    "available_memory_proportion": _Field(proportion, "float", lambda value: isinstance(value, float)),
                },
                "device_connection": {
                    "enable_remote_buffers": _flag(),
                    "type": _member(DeviceConnectionType.ALWAYS),
                    "version": _text(),
                },
                "optimizations": {"minimum_remote_tensor_size": _whole(MINIMUM_REMOTE_TENSOR_SIZE)},
                "matmuls": {"poplar_options": _options()},
                "convolutions": {"poplar_options": _options()},
                "machine": _text(),
            },
        )

    def wanted_io_tiles(self) -> IoTiles:
        """Return what is asked of I/O tiles; raises ProgramError for feeds on none."""
        asked = self.io_tiles
        share = Fraction(str(asked.available_memory_proportion))
        return IoTiles(asked.num_io_tiles, asked.place_ops_on_io_tiles, share)

    def general_options(self) -> StageOptions:
        """Return the options of operations whose stage gives none; raises UnsupportedProgramError as stages do."""
        return StageOptions(
            proportion(self.matmuls.poplar_options, "matmuls.poplar_options"),
            proportion(self.convolutions.poplar_options, "convolutions.poplar_options"),
        )

    def system(self, mapping: Sequence[int], pipelined: bool = True) -> System:
        """Return the device for stages on the IPUs of ``mapping``.

        Raises ProgramError in Graphcore's words for attributes that do not go together,
        ProgramStateError when no device is asked for, DeviceError for one that there is not.
        """
        self.check()
        count, device = _single(self.auto_select_ipus, "auto_select_ipus"), _single(self.select_ipus, "select_ipus")
        if count is None and device is None:
            raise ProgramStateError("No IPU devices configured.")
        return _build(self, mapping, pipelined, count, device)

    def check(self) -> None:
        """Refuse attributes that do not go together; raises ProgramError in Graphcore's words."""
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
        self.wanted_io_tiles()


def default_system(config: IPUConfig | None, mapping: Sequence[int], pipelined: bool = True) -> System:
    """Return the configured device, or without a configuration the smallest for ``mapping``."""
    return _build(IPUConfig(), mapping, pipelined, None, None) if config is None else config.system(mapping, pipelined)


def _build(config: IPUConfig, mapping: Sequence[int], pipelined: bool, count: int | None, device: int | None) -> System:
    needed = count or shards_of(mapping)
    fitting = [name for name in _USUAL_MACHINES if MACHINES[name].count >= needed]
    machine = find_machine(config.machine or (fitting or _USUAL_MACHINES[-1:])[0])
    if count is not None and count not in machine.sizes:
        raise DeviceError(
            f"Unsupported number of IPUs requested - could not find an IPU device with {count} IPUs for the "
            "TensorFlow virtual device /device:IPU:0. Use `gc-info -l` to view the available device configurations."
        )

    def found(stages: Sequence[int]) -> System:
        return build_system(
            machine.name,
            mapping=stages,
            ipus=count,
            select=device,
            selection_order=config.selection_order.value,
            pipelined=pipelined,
            remote_buffers=config.device_connection.enable_remote_buffers,
            io_tiles=config.io_tiles.num_io_tiles,
        )

    if count is not None or device is not None:  # attached to first, and then compiled for
        replication_factor(found((0,)).count, shards_of(mapping))
    return found(mapping)


def _single(value: int | Sequence[int], name: str) -> int | None:
    """Return the one device that an attribute asks for; None for none at all. Raises ProgramError for several."""
    if isinstance(value, int):
        return value
    if len(value) > 1:
        raise ProgramError(f"{name}: expected one device, as one is simulated at a time, got {len(value)}")
    return value[0] if value else None

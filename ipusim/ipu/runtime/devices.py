"""Choose the devices requested by a configuration, and the current device of programs and queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from ipusim.api import Machine, hardware
from ipusim.base.errors import DeviceError, ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import Scoped

P = ParamSpec("P")
T = TypeVar("T")

#: Candidate machines for a program without a machine name; the first machine with enough IPUs is used.
_USUAL_MACHINES: Final = ("m2000", "pod16", "pod64", "pod128", "pod256")


class ChosenDevice(NamedTuple):
    """A machine's device, in the form of a request.

    Attributes:
        machine: machine of the device.
        ipus: size, if the device is the first device of that size; None if ``device`` is given or nothing is chosen.
        device: id in the machine's device list.
    """

    machine: Machine
    ipus: int | None = None
    device: int | None = None


def device_count(config: Any) -> int:
    """Return the number of TensorFlow devices requested by an IPUConfig; 0 without devices."""
    return max(len(_as_tuple(config.auto_select_ipus)), len(_as_tuple(config.select_ipus)))


def chosen_device(config: Any, ordinal: int, least: int) -> ChosenDevice:
    """Return the device with an ordinal among the devices of an IPUConfig.

    Args:
        config: the configuration. All devices lie on one machine, the smallest suitable machine, and share no IPU; a
            size stands for the first device of that size with free IPUs.
        ordinal: number after ``/device:IPU:``.
        least: minimum IPUs of the machine if the configuration requests no device.

    Raises:
        DeviceError: if the device does not exist (Graphcore's message).
    """
    sizes, ids = _as_tuple(config.auto_select_ipus), _as_tuple(config.select_ipus)
    names = (config.machine,) if config.machine else _USUAL_MACHINES
    count = device_count(config)
    if not count:
        sufficient_names = [name for name in names if config.machine or hardware.MACHINES[name].count >= least]
        return ChosenDevice(hardware.find_machine((sufficient_names or names)[0 if sufficient_names else -1]))
    if ordinal >= count:
        argument = "auto_select_ipus" if sizes else "select_ipus"
        raise DeviceError(
            f"Device ordinal {ordinal} not in device configuration list. Expected a device from /device:IPU:0 to "
            f"/device:IPU:{count - 1}, because IPUConfig.{argument} has {count}"
        )
    machine = next(
        (item for item in map(hardware.find_machine, names) if _has_all(item, sizes, ids)),
        hardware.find_machine(names[-1]),
    )
    device = list(_attached_devices(machine, sizes, ids))[ordinal]
    if not ids and device == hardware.first_device(machine, device.count):
        return ChosenDevice(machine, ipus=device.count)
    return ChosenDevice(machine, device=device.id)


def _has_all(machine: Machine, sizes: Sequence[int], ids: Sequence[int]) -> bool:
    """Tell whether a machine has disjoint devices of all sizes, or devices with all ids."""
    if ids:
        return max(ids) < len(hardware.devices_of(machine))
    try:
        return bool(list(_attached_devices(machine, sizes, ())))
    except DeviceError:
        return False


def _attached_devices(machine: Machine, sizes: Sequence[int], ids: Sequence[int]) -> Iterator[hardware.Device]:
    """Yield devices in order of attachment, which is the order of ordinals."""
    taken_positions: set[int] = set()
    for ordinal, size_or_id in enumerate(ids or sizes):
        device = (
            _free_device(machine, size_or_id, ordinal, taken_positions)
            if sizes
            else hardware.select_device(machine, size_or_id)
        )
        if device is None or not taken_positions.isdisjoint(device.positions):
            size = size_or_id if device is None else device.count
            raise DeviceError(
                f"Could not find an available device for TensorFlow virtual device /device:IPU:{ordinal}. This device "
                f"was expected to have {size} IPU(s). Common causes of this error include: incorrect configuration of "
                "your V-IPU partition, requesting more IPUs than are available on your system, or IPUs being used by "
                "another program. Use `gc-info -l` and `gc-monitor` to check your configuration. The devices before "
                f"it have {len(taken_positions)} of the {machine.count} IPUs of {machine.name}; each IPU belongs to "
                "one device"
            )
        taken_positions.update(device.positions)
        yield device


def _free_device(machine: Machine, size: int, ordinal: int, taken_positions: set[int]) -> hardware.Device | None:
    """Return the first free device of a size, or None; raises DeviceError for unknown sizes."""
    if size not in machine.sizes:
        raise DeviceError(
            f"Unsupported number of IPUs requested - could not find an IPU device with {size} IPUs for the TensorFlow "
            f"virtual device /device:IPU:{ordinal}. Use `gc-info -l` to view the available device configurations."
        )
    fitting = (device for device in hardware.devices_of(machine) if device.count == size)
    return next((item for item in fitting if taken_positions.isdisjoint(item.positions)), None)


def _as_tuple(value: int | Sequence[int]) -> tuple[int, ...]:
    """Return an attribute with one number or several numbers as a tuple."""
    return (value,) if isinstance(value, int) else tuple(value)


#: Graphcore's message for several pipelines in a program.
ONE_PIPELINE: Final = (
    "Only a single ipu.pipeline() is allowed in a compiled program - if multiple pipelines are required the program "
    "needs to be split into multiple compilations."
)
#: Name of an IPU device.
_IPU: Final = re.compile(r"(?:^|[/:])IPU(?::(?P<number>.*))?$", re.IGNORECASE)
#: Device number for programs built in this context.
device_ordinal: Final = Scoped("device_of_programs", 0)
#: Sets the device number for programs built in a block.
on_device: Final = device_ordinal.set_to
#: Whether the caller is a function of a program under construction.
builds_program: Final = Scoped("builds_program", False)
#: Device for queues created without a device.
_queue_ordinal: Final = Scoped("device_of_queues", 0)
#: Kind of program under trace: "pipeline", "loop", "inner loop", or an empty text.
traced_program: Final = Scoped("traced_program", "")
#: Kind of a loop inside of a program, which is control flow of that program.
INNER_LOOP: Final = "inner loop"


@contextmanager
def exclusive_program(kind: str) -> Iterator[None]:
    """Trace the stages of a pipeline, or a loop body, in the block.

    Args:
        kind: "pipeline" or "loop".

    Raises:
        ProgramError: if the pipeline is inside another (Graphcore's message).
        UnsupportedProgramError: if a loop is inside a program, or a pipeline inside a loop.
    """
    outer_kind = traced_program()
    if outer_kind == kind == "pipeline":
        raise ProgramError(ONE_PIPELINE)
    if outer_kind:
        raise UnsupportedProgramError(
            f"expected no {kind} of Graphcore's inside of a {outer_kind}, which is a program: use tf.while_loop"
        )
    with traced_program.set_to(kind):
        yield


def refuse_in_inner_loop(action: str) -> None:
    """Raise UnsupportedProgramError for an action on queues inside of an inner loop."""
    if traced_program() == INNER_LOOP:
        raise UnsupportedProgramError(
            f"{action} in a loop inside of a program: queues belong to the program's own loop"
        )


def building_program(build: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function that builds a program and calls the program's functions."""

    @wraps(build)
    def build_in_block(*args: P.args, **kwargs: P.kwargs) -> T:
        with builds_program.set_to(True):
            return build(*args, **kwargs)

    return build_in_block


def ordinal_of(device: str) -> int | None:
    """Return the IPU device number from a name like '/device:IPU:1'; None for the host.

    Raises:
        ProgramTypeError: for non-strings.
        ProgramError: for text instead of digits after ``IPU:``.
    """
    match = _IPU.search(checks.text("device", device))
    if match is None:
        return None
    number = match["number"] or "0"
    if not number.isdecimal():
        checks.wrong_value("device", "a number after IPU, as in /device:IPU:0", device)
    return int(number)


def ipu_ordinal(argument: str, device: str) -> int:
    """Return an argument's IPU device number.

    Raises:
        ProgramTypeError: for non-strings.
        ProgramError: for the host, and for text instead of digits after ``IPU:``.
    """
    ordinal = ordinal_of(checks.text(argument, device))
    if ordinal is None:
        checks.wrong_value(argument, "an IPU device, such as /device:IPU:0", device)
    return ordinal


@contextmanager
def all_on_device(ordinal: int) -> Iterator[None]:
    """Build the programs of a block for a device, and queues for which the program states no device."""
    with _queue_ordinal.set_to(ordinal), on_device(ordinal):
        yield


def ordinal_of_queue(ordinal: object) -> int:
    """Return a queue's device number; None and 0 select the enclosing strategy's device.

    Raises ProgramError unless the ordinal is an integer of at least 0.
    """
    if ordinal is None:
        return _queue_ordinal()
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise ProgramError("Device ordinal must be an integer")
    if ordinal < 0:
        raise ProgramError("Device ordinal must be >= 0")
    return ordinal or _queue_ordinal()


def check_queue_on_device(queue: str, ordinal: int) -> None:
    """Raise ProgramError if a queue's device ``ordinal`` differs from the current program's device.

    ``queue`` is the argument name in the message.
    """
    if ordinal != device_ordinal():
        raise ProgramError(
            f"{queue}: expected a queue with device_ordinal={device_ordinal()}, because the program runs on "
            f"/device:IPU:{device_ordinal()}, got device_ordinal={ordinal}"
        )


def check_deprecated(feed_name: object, replication_factor: object) -> None:
    """Check deprecated arguments of releases up to 2.1, without effect today.

    Raises ProgramTypeError for wrong types, ProgramError for a factor below 1.
    """
    checks.instance("feed_name", feed_name, str | None, "a text")
    if replication_factor is not None:
        checks.whole("replication_factor", replication_factor, 1)

"""The numbers of TensorFlow's IPU devices: those that names such as ``/device:IPU:1`` have, and that of a queue.

Each device of a configuration is a system of its own. A program runs on the device in whose scope it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ipusim.errors import ProgramError
from ipusim.ipu import checks

_IPU: Final = re.compile(r"(?:^|[/:])IPU(?::(?P<number>.*))?$", re.IGNORECASE)
#: The device that programs run on which are built here.
_PROGRAMS: Final[ContextVar[int]] = ContextVar("device_of_programs", default=0)
#: The device of queues that are made here and name none.
_QUEUES: Final[ContextVar[int]] = ContextVar("device_of_queues", default=0)


def ordinal_of(device: str) -> int | None:
    """Return the number of the IPU device that has a name such as '/device:IPU:1'; None for the host.

    Raises ProgramTypeError for what is no text, ProgramError for an IPU device without a number.
    """
    named = _IPU.search(checks.text("device", device))
    if named is None:
        return None
    number = named["number"] or "0"
    if not number.isdecimal():
        checks.wrong_value("device", "a number behind IPU, as in /device:IPU:0", device)
    return int(number)


def ipu_ordinal(argument: str, device: str) -> int:
    """Return the number of the IPU device that an argument names; raises as :func:`ordinal_of`, and for the host."""
    found = ordinal_of(checks.text(argument, device))
    if found is None:
        checks.wrong_value(argument, "an IPU device, such as /device:IPU:0", device)
    return found


def device_ordinal() -> int:
    """Return the number of the device that programs run on which are built here."""
    return _PROGRAMS.get()


@contextmanager
def on_device(ordinal: int) -> Iterator[None]:
    """Let programs that are built in the block run on the device with that number."""
    token = _PROGRAMS.set(ordinal)
    try:
        yield
    finally:
        _PROGRAMS.reset(token)


@contextmanager
def all_on_device(ordinal: int) -> Iterator[None]:
    """Let programs that are built in the block run on a device, and queues that name none be that device's."""
    token = _QUEUES.set(ordinal)
    try:
        with on_device(ordinal):
            yield
    finally:
        _QUEUES.reset(token)


def ordinal_of_queue(ordinal: object) -> int:
    """Return the number of a queue's device: ``ordinal``, or where that is None or 0 the one of the strategy around.

    Raises ProgramError for what is no whole number from 0 up.
    """
    if ordinal is None:
        return _QUEUES.get()
    if not isinstance(ordinal, int) or isinstance(ordinal, bool):
        raise ProgramError("Device ordinal must be an integer")
    if ordinal < 0:
        raise ProgramError("Device ordinal must be >= 0")
    return ordinal or _QUEUES.get()


def check_queue_on_device(queue: str, ordinal: int) -> None:
    """Refuse a queue of the device ``ordinal`` for a program that is built here for another one; raises ProgramError.

    ``queue`` is what the program calls it.
    """
    if ordinal != device_ordinal():
        raise ProgramError(
            f"{queue}: expected a queue with device_ordinal={device_ordinal()}, as the program runs on "
            f"/device:IPU:{device_ordinal()}, got device_ordinal={ordinal}"
        )


def check_deprecated(feed_name: object, replication_factor: object) -> None:
    """Take what releases up to 2.1 call deprecated, a name and a number without effect.

    Raises ProgramTypeError for others, ProgramError for a factor below 1.
    """
    if feed_name is not None:
        checks.text("feed_name", feed_name)
    if replication_factor is not None:
        checks.whole("replication_factor", replication_factor, 1)

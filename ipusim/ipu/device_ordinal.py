"""The device ordinal that both queues take."""

from __future__ import annotations

from ipusim.errors import ProgramError


def check_device_ordinal(device_ordinal: object) -> None:
    """Refuse an ordinal that is no whole number from 0 up; None is the first device. Raises ProgramError."""
    if device_ordinal is None:
        return
    if not isinstance(device_ordinal, int):
        raise ProgramError("Device ordinal must be an integer")
    if device_ordinal < 0:
        raise ProgramError("Device ordinal must be >= 0")

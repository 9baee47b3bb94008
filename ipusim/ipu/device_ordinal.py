"""The device ordinal that both queues take."""

from __future__ import annotations

from ipusim.errors import ProgramError


def check_device_ordinal(device_ordinal: object) -> None:
    """Refuse an ordinal that is no whole number from 0 up; None is the first device. Raises ProgramError."""
    if device_ordinal is None:
        return
    if isinstance(device_ordinal, str) and not device_ordinal.isdecimal():  # in the place of a release before
        raise ProgramError(
            f"Device ordinal must be an integer, got {device_ordinal!r}: the names of queues (feed_name) are "
            "generated, leave them out"
        )
    if not isinstance(device_ordinal, int) or isinstance(device_ordinal, bool):
        raise ProgramError("Device ordinal must be an integer")
    if device_ordinal < 0:
        raise ProgramError("Device ordinal must be >= 0")

"""What both queues take beside their own arguments: a device's number, and a name in releases up to 2.1."""

from __future__ import annotations

from ipusim.errors import ProgramError
from ipusim.ipu import checks


def check_device_ordinal(device_ordinal: object) -> None:
    """Refuse an ordinal that is no whole number from 0 up; None is the first device. Raises ProgramError."""
    if device_ordinal is None:
        return
    if not isinstance(device_ordinal, int) or isinstance(device_ordinal, bool):
        raise ProgramError("Device ordinal must be an integer")
    if device_ordinal < 0:
        raise ProgramError("Device ordinal must be >= 0")


def check_deprecated(feed_name: object, replication_factor: object) -> None:
    """Take what releases up to 2.1 call deprecated, a name and a number without effect.

    Raises ProgramTypeError for others, ProgramError for a factor below 1.
    """
    if feed_name is not None:
        checks.text("feed_name", feed_name)
    if replication_factor is not None:
        checks.whole("replication_factor", replication_factor, 1)

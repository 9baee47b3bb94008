"""Where the participants of a collective lie in the machine."""

from __future__ import annotations

from collections.abc import Sequence

from ipusim.base.errors import DeviceError
from ipusim.hardware.system import System


def as_they_lie(system: System, participants: Sequence[int]) -> list[int]:
    """Return logical IPUs in the order of their positions in the machine, rung by rung and pod by pod.

    Raises DeviceError for an IPU that the device does not have.
    """
    for ipu in participants:
        if not 0 <= ipu < system.count:
            raise DeviceError(f"{system.name}: no IPU {ipu} in a device of {system.count} IPUs")
    return sorted(participants, key=lambda ipu: system.ipus[ipu])

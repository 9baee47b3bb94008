"""How often what a system is made of fails: records of large trainings, by component and with their source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Failures:
    """Failures counted over the time of a training.

    Attributes:
        name: of the record.
        devices: that were watched.
        hours: for which they were.
        counts: of the failures that interrupted the training, by component.
        source: of the counts.
    """

    name: str
    devices: int
    hours: float
    counts: dict[str, int]
    source: str

    @property
    def per_device_hour(self) -> float:
        """Failures of a device in an hour, of all components."""
        return sum(self.counts.values()) / (self.devices * self.hours)

    def mtbf_s(self, devices: int) -> dict[str, float]:
        """Return the mean seconds between failures of each component among so many devices.

        A component fails in proportion to the devices, also one that several share, such as a switch.
        """
        return {name: self.hours * _HOUR_S * self.devices / (count * devices) for name, count in self.counts.items()}


#: The unexpected interruptions of Llama 3 405B's pre-training.
LLAMA3: Final = Failures(
    "llama3",
    devices=16384,
    hours=54 * 24.0,
    counts={
        "faulty accelerator": 148,
        "high-bandwidth memory": 72,
        "software": 54,
        "network switch or cable": 35,
        "host maintenance": 32,
        "on-chip memory": 19,
        "system processor": 17,
        "network interface": 7,
        "collectives' watchdog": 7,
        "silent data corruption": 6,
        "thermal interface and sensor": 6,
        "disk": 3,
        "power supply": 3,
        "server chassis": 2,
        "input and output board": 2,
        "dependency": 2,
        "host processor": 2,
        "host memory": 2,
    },
    source="The Llama 3 Herd of Models (arXiv 2407.21783), table 5: 54 days on 16,384 H100",
)
#: Every record, by its name.
FAILURES: Final = {record.name: record for record in (LLAMA3,)}

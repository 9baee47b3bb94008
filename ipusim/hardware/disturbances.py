"""Disturbances of a System: what in it works otherwise than its rates say. How time then passes is the machine's."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from ipusim.base.errors import DeviceError
from ipusim.hardware.resources import Resource, Resources


class Disturbance(Protocol):
    """A frozen value; ``rule`` of ``machine/disturbances.py`` says for its class how it changes time."""

    def check(self, resources: Resources) -> None:
        """Raise DeviceError where a system of these resources cannot be disturbed in this way."""


@dataclass(frozen=True)
class Slower:
    """One IPU, link, host or memory that is slower for a while; work in progress goes on at the new speed.

    Attributes:
        resource: what is slower, such as ``Resource("IPU", 1)`` or ``Resource("link", "0→1 rung")``.
        speed: of its full speed: 1/2 where work takes twice as long, 0 where it stands still, which has to end.
        first: the cycle from which on it is slower.
        until: the cycle from which on it is as fast as before; None where it stays slower.
    """

    resource: Resource
    speed: Fraction
    first: int = 0
    until: int | None = None

    def check(self, resources: Resources) -> None:
        """Raise DeviceError for another speed, cycles in another order, and a resource that is none of these."""
        if not 0 <= self.speed <= 1 or (not self.speed and self.until is None):
            expected = "expected a speed from 0, only until some cycle, to 1"
            raise DeviceError(f"{expected}, got {self.speed} {self._when}")
        if self.first < 0 or (self.until is not None and self.until < self.first):
            raise DeviceError(f"expected a first cycle from 0 up and an end that is no earlier, got {self._when}")
        self.resource.check(resources)

    @property
    def _when(self) -> str:
        return f"from cycle {self.first} " + ("on" if self.until is None else f"until {self.until}")

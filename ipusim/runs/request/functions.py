"""Stages that are Python functions, as a front door has tried them."""

from __future__ import annotations

from typing import Protocol

from ipusim.hardware.system import System
from ipusim.pipeline.offload import Offload
from ipusim.runs.content import Content


class Functions(Protocol):
    """Stages that need no options to say what they are."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each computational stage; concurrent ones have one."""

    @property
    def parts(self) -> tuple[int, ...]:
        """How many run in each computational stage: 1, or the number of concurrent ones."""

    @property
    def training(self) -> bool:
        """Whether they train."""

    def content(self, system: System, offload: Offload) -> Content:
        """Return what they cost and compute on ``system``.

        Raises an IpusimError for what does not go with it.
        """

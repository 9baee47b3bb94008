"""Describe where and how a Plan breaks a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ipusim.pipeline.ops import Op

Rule = Literal["once", "placement", "dependency", "repeat", "memory", "range", "meeting", "sending", "feed", "deadlock"]


@dataclass(frozen=True)
class Violation:
    """One broken rule: name, place, description, and offending passes. The place is None if the Plan lacks the pass."""

    rule: Rule
    time_step: int | None
    ipu: int | None
    text: str
    ops: tuple[Op, ...] = ()

    def __str__(self) -> str:
        """Return place and text on one line."""
        if self.time_step is None:
            return self.text if self.ipu is None else f"IPU {self.ipu}: {self.text}"
        return f"time-step {self.time_step}, IPU {self.ipu}: {self.text}"

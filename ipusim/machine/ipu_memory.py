"""All tensors on one IPU while the arithmetic runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ipusim.machine.pieces import Payload, Pieces
from ipusim.machine.stage_memory import Array, StageMemory
from ipusim.model.functions.untrained import Untrained
from ipusim.model.layers.layer import Rest


@dataclass
class IpuMemory:
    """All tensors on one IPU, by what they are for.

    Attributes:
        stages: the stages that live here.
        arrived: inputs by (step, micro-batch), delivered by a copy or the infeed.
        inputs: stage inputs kept for recomputation, by (stage, micro-batch), with untrained variables as they were.
        saved: what a forward keeps for its backward, by (stage, micro-batch).
        rests: what the first half of a backward keeps for the second, by (stage, micro-batch).
        outbox: outputs by (step, micro-batch) that wait for the next copy.
        waiting: values and, with True, gradients by (name, micro-batch) that a later pass on this IPU takes.
    """

    stages: dict[int, StageMemory] = field(default_factory=dict)
    arrived: dict[tuple[int, int], Payload | Pieces] = field(default_factory=dict)
    inputs: dict[tuple[int, int], tuple[Payload, Untrained | None]] = field(default_factory=dict)
    saved: dict[tuple[int, int], Any] = field(default_factory=dict)
    rests: dict[tuple[int, int], Rest] = field(default_factory=dict)
    outbox: dict[tuple[int, int], Payload] = field(default_factory=dict)
    waiting: dict[tuple[bool, str, int], Array] = field(default_factory=dict)

    def put(self, names: Sequence[str], micro_batch: int, made: Any, backward: bool = False) -> Any:
        """Keep the last of what a pass has made under ``names``, and return the rest of it."""
        if not names:
            return made
        for name, array in zip(names, made[-len(names) :], strict=True):
            self.waiting[backward, name, micro_batch] = array
        rest = made[: -len(names)]
        return rest[0] if len(rest) == 1 else rest

    def take(self, names: Sequence[str], micro_batch: int, given: Any, backward: bool = False) -> Any:
        """Return ``given`` with what waits under ``names`` behind it; raises KeyError where it does not."""
        if not names:
            return given
        found = [self.waiting.pop((backward, name, micro_batch)) for name in names]
        return (*(given if isinstance(given, tuple) else (given,)), *found)

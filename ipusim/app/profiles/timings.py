"""What was measured, as traces and logs have it: how long a named thing took on a rank."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ipusim.api import hardware, runs

#: Measurements of a file at most: what a stranger's file takes of memory.
MOST: Final = 1 << 20
#: Microseconds of a pass at most: a scenario takes no more cycles, on the machine that an import begins with.
LONGEST_US: Final = runs.MOST_CYCLES * 1_000_000 // int(hardware.GC200.clock_hz)


@dataclass(frozen=True)
class Timing:
    """One measurement.

    Attributes:
        rank: the process that it was made in.
        what: a pass or the update.
        stage: the stage's name, or its number as text; empty where only the rank says.
        us: how long it took, in microseconds.
    """

    rank: int
    what: str
    stage: str
    us: Fraction


@dataclass(frozen=True)
class Measured:
    """The measurements in files of one kind.

    Attributes:
        files: that hold it, for messages.
        tool: what measured it.
        timings: all that is named as a part of a pipeline.
        stages: that the ranks are divided among; None where the file does not say.
        count: micro-batches behind a weight update; None where the file does not say.
        notes: what a person has to know about it.
    """

    files: str
    tool: str
    timings: tuple[Timing, ...]
    stages: int | None = None
    count: int | None = None
    notes: tuple[str, ...] = ()

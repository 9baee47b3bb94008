"""Internal disturbances of a simulation: pauses and moves after losses, stated lengths of passes, skips, watching.

No scenario names these; :mod:`ipusim.machine.disturbances` has the rule of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ipusim.hardware.disturbances import Disturbance, Lost, Problems
from ipusim.hardware.placed import Placed
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.kinds import SpanKind


class RunChange:
    """A change of a run that the simulator makes itself: no scenario can name it, so that it has no problems."""

    kind: ClassVar[str] = "change of a run"

    def problems(self, system: Placed) -> Problems:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


@dataclass(frozen=True)
class Watched(RunChange):
    """Nothing: all is as fast as ever, and simulated as if disturbances might slow it, so that states can be compared.

    Attributes:
        others: the disturbances.
    """

    others: tuple[Disturbance, ...]


@dataclass(frozen=True)
class Pause(RunChange):
    """All IPUs stand before an execution: what losses of IPUs come to once it is known when they meet the run.

    Attributes:
        execution: before which they stand.
        spans: the kind of each span and its cycles.
        under_way: the execution in which an IPU was lost, which is that of the span of lost work.
    """

    execution: int
    spans: tuple[tuple[SpanKind, int], ...]
    under_way: int = NONE


@dataclass(frozen=True)
class Moved(RunChange):
    """The move of a logical IPU to another physical one: that of a logical IPU without a stage, a spare one.

    The logical IPU keeps its number, and with it all rows and tracks, as where a partition of a machine has a physical
    IPU replaced; the two change their physical IPUs.

    Attributes:
        ipu: the logical IPU that is lost.
        spare: the one without a stage.
        from_: the cycle from which on it is so, in which nothing is under way.
    """

    ipu: int
    spare: int
    from_: int


@dataclass(frozen=True)
class Stated(RunChange):
    """Passes of stated lengths, as a real run was measured to have.

    Attributes:
        factors: how many times as long as priced each pass takes, by kind of span, stage and micro-batch: a numerator
            and a denominator.
    """

    factors: Mapping[tuple[SpanKind, int, int], tuple[int, int]]


@dataclass(frozen=True)
class Skip(RunChange):
    """A run goes on as if it were later: copies of what repeats itself are left out of it.

    Attributes:
        at: the cycle from which on it is later, counted without what is left out before.
        cycles: by how many cycles more.
    """

    at: int
    cycles: int


def replacements(system: System, mapping: Sequence[int]) -> list[tuple[Lost, int | None]]:
    """Return the losses of IPUs in order, with the logical IPU whose physical one takes the place of the lost one.

    That is None without ``spare``, where every IPU has a stage or was lost itself, and for several replicas or hosts,
    whose collectives keep their routes.

    Args:
        system: that loses them.
        mapping: the logical IPU of each stage.
    """
    losses = sorted((loss for loss in system.disturbances if isinstance(loss, Lost)), key=lambda loss: loss.lost)
    alone = system.replicas == 1 and system.hosts == 1
    spares = [ipu for ipu in range(system.count) if ipu not in mapping] if alone else []
    replaced = []
    for loss in losses:
        if loss.ipu in spares:
            spares.remove(loss.ipu)
        replaced.append((loss, spares.pop(0) if loss.spare and loss.ipu in mapping and spares else None))
    return replaced


def moves_of(system: System) -> list[Moved]:
    """Return the moves to spare IPUs, in order."""
    return sorted((move for move in system.disturbances if isinstance(move, Moved)), key=lambda move: move.from_)


def swapped(system: System, move: Moved) -> System:
    """Return a system in which two logical IPUs have changed their physical ones."""
    ipus = list(system.ipus)
    ipus[move.ipu], ipus[move.spare] = ipus[move.spare], ipus[move.ipu]
    return replace(system, ipus=tuple(ipus))


def moved_to(ipu: int, moves: Sequence[Moved], cycle: int) -> int:
    """Return the logical IPU on whose physical IPU of the beginning a logical IPU is in a cycle."""
    for move in reversed([move for move in moves if move.from_ <= cycle]):
        ipu = {move.ipu: move.spare, move.spare: move.ipu}.get(ipu, ipu)
    return ipu

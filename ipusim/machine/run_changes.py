"""Define disturbances that only the simulator adds to a run: pauses, moves to spare IPUs, skipped periods.

Scenarios cannot name them. Modules of :mod:`ipusim.runs` add them to the System for losses of IPUs, measured times, and
the omission of repeating parts; :mod:`ipusim.machine.disturbances` defines their effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ipusim.hardware.disturbances import Disturbance, Lost, Problems
from ipusim.hardware.placed import Placement
from ipusim.hardware.system import System
from ipusim.pipeline.instructions import NONE
from ipusim.timeline.kinds import SpanKind


class RunChange:
    """A change made by the simulator, not by scenarios, and hence without problems to report."""

    kind: ClassVar[str] = "change of a run"

    def problems(self, system: Placement) -> Problems:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


@dataclass(frozen=True)
class Watched(RunChange):
    """Disturbances without their effect on speed.

    The machine records states as if the resources changed speed, so that the states of an undisturbed run can be
    compared with those of a disturbed run.
    """

    disturbances: tuple[Disturbance, ...]


@dataclass(frozen=True)
class Pause(RunChange):
    """A pause of every IPU before an execution, caused by lost IPUs.

    Attributes:
        execution: execution after the pause.
        spans: kind and cycles of every span.
        under_way: execution in which an IPU was lost; the span of lost work has its number.
    """

    execution: int
    spans: tuple[tuple[SpanKind, int], ...]
    under_way: int = NONE


@dataclass(frozen=True)
class IpuMove(RunChange):
    """The move of a logical IPU to the physical IPU of a spare.

    Spares are logical IPUs without stages. The two logical IPUs swap their physical IPUs. The lost logical IPU keeps
    its number, rows and tracks, like after the replacement of a physical IPU in a partition.

    Attributes:
        ipu: logical IPU that is lost.
        spare: logical IPU without a stage.
        from_: cycle of the move; nothing is under way then.
    """

    ipu: int
    spare: int
    from_: int


@dataclass(frozen=True)
class StatedLengths(RunChange):
    """Stated pass lengths, for example measured in a real run.

    Attributes:
        factors: length of a pass relative to its cost, by kind of span, stage and micro-batch: a numerator and a
            denominator.
    """

    factors: Mapping[tuple[SpanKind, int, int], tuple[int, int]]


@dataclass(frozen=True)
class Skip(RunChange):
    """A jump forward in time, over omitted copies of a repeated block.

    Attributes:
        cycle: cycle of the jump, not counting earlier omitted cycles.
        cycles: length of the jump.
    """

    cycle: int
    cycles: int


def replacements(system: System, mapping: Sequence[int]) -> list[tuple[Lost, int | None]]:
    """Return the losses of IPUs in order, with the replacing spare IPUs.

    Args:
        system: system with losses.
        mapping: logical IPU of every stage.

    Returns:
        Pairs of loss and spare. The spare is None if the lost IPU holds no stage, if the loss asks for no spare, if no
        IPU is free (every IPU has a stage or is lost itself), or if there are several replicas or hosts, because a move
        does not change the routes of their collectives.
    """
    losses = sorted((loss for loss in system.disturbances if isinstance(loss, Lost)), key=lambda loss: loss.lost)
    is_single = system.replicas == 1 and system.hosts == 1
    spares = [ipu for ipu in range(system.count) if ipu not in mapping] if is_single else []
    pairs = []
    for loss in losses:
        if loss.ipu in spares:
            spares.remove(loss.ipu)
        pairs.append((loss, spares.pop(0) if loss.spare and loss.ipu in mapping and spares else None))
    return pairs


def moves_of(system: System) -> list[IpuMove]:
    """Return the moves to spare IPUs, in order."""
    return sorted((move for move in system.disturbances if isinstance(move, IpuMove)), key=lambda move: move.from_)


def swap_ipus(system: System, move: IpuMove) -> System:
    """Return a system in which two logical IPUs have swapped their physical IPUs."""
    ipus = list(system.ipus)
    ipus[move.ipu], ipus[move.spare] = ipus[move.spare], ipus[move.ipu]
    return replace(system, ipus=tuple(ipus))


def original_ipu(ipu: int, moves: Sequence[IpuMove], cycle: int) -> int:
    """Return the logical IPU that started on the current physical IPU of ``ipu``."""
    for move in reversed([move for move in moves if move.from_ <= cycle]):
        ipu = {move.ipu: move.spare, move.spare: move.ipu}.get(ipu, ipu)
    return ipu

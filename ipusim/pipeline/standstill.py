"""Deadlock detection: a walk through the IPUs' instructions, and the circle of waiting IPUs.

The walk goes instruction by instruction, which is slow. Only Plans already known to deadlock need the walk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import Final

from ipusim.pipeline.instructions import PASSES, Code, text_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.violation import Violation

#: Codes of meetings of a replica's IPUs.
MEETINGS: Final = frozenset(map(int, (Code.MEET, Code.SUM_COPIES, Code.ALL_REDUCE, Code.END)))
_SENDS: Final = frozenset(map(int, (Code.SEND, Code.BLOCKING_SEND)))
Instruction = tuple[int, int, int, int]


def standstill(plan: Plan) -> list[Violation]:
    """Return the deadlock of ``plan`` with waiting IPUs and the circle among them; empty if every IPU reaches its end.

    The violation names the next passes of IPUs in the circle, or of every waiting IPU without a circle.
    """
    walk = _Walk(plan)
    walk.go()
    waiting = walk.waiting()
    if not waiting:
        return []
    circle = circle_of({ipu: others for ipu, (_, others) in waiting.items()})
    if not circle:
        listed = ", ".join(f"IPU {ipu} at '{text}'" for ipu, (text, _) in waiting.items())
        text = f"a deadlock: an awaited tensor never arrives: {listed}"
        return [Violation("deadlock", None, None, text, walk.next_passes(waiting))]
    first, *others_there = (f"IPU {ipu}, which waits at '{waiting[ipu][0]}'" for ipu in circle)
    steps = " for ".join([first.replace(", which", "", 1), *others_there, f"IPU {circle[0]}"])
    others = [f"IPU {ipu} at '{text}'" for ipu, (text, _) in waiting.items() if ipu not in circle]
    behind = f"; further IPUs wait for these: {', '.join(others)}" if others else ""
    return [Violation("deadlock", None, None, f"a deadlock: {steps}{behind}", walk.next_passes(circle))]


def circle_of(waits: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Return IPUs that wait for each other in a circle; empty without a circle."""
    graph: TopologicalSorter[int] = TopologicalSorter()
    for ipu, others in waits.items():
        if present := [other for other in others if other in waits]:
            graph.add(ipu)
            for other in present:
                graph.add(other, ipu)
    try:
        graph.prepare()
    except CycleError as error:
        circle: list[int] = error.args[1]
        return tuple(circle[:-1])  # graphlib repeats the first IPU at the end
    return ()


def all_end(receives: Iterable[tuple[int, int, int, int]]) -> bool:
    """Tell whether IPUs reach their end if each receive waits for its send.

    Measured on 98,000 instructions: 0.02 s, while scipy's strongly connected components take 0.2 s, and 30 MB, to
    import.

    Args:
        receives: IPU and row of each receive, IPU and row of its send; receives of an IPU in order of execution.
    """
    ahead: dict[int, list[tuple[int, int, int]]] = {}
    for ipu, row, sender, sent in receives:
        ahead.setdefault(ipu, []).append((row, sender, sent))
    for of_ipu in ahead.values():
        of_ipu.reverse()
    reached, waiting, ready = dict.fromkeys(ahead, -1), defaultdict[int, list[int]](list), [*ahead]
    while ready:
        ipu = ready.pop()
        left, before = ahead[ipu], reached[ipu]
        while left:
            reached[ipu], sender, sent = left[-1]
            if reached.get(sender, sent + 1) <= sent:
                waiting[sender].append(ipu)
                break
            left.pop()
        else:
            del reached[ipu]
        if reached.get(ipu) != before:
            ready += waiting.pop(ipu, ())
    return not any(ahead.values())


class _Walk:
    """A walk of IPUs through their instructions, without time."""

    def __init__(self, plan: Plan) -> None:
        self._left: dict[int, list[Instruction]] = {
            ipu: [(row[1], row[2], row[3], row[4]) for row in rows][::-1]
            for ipu, rows in groupby(plan.instructions.tolist(), key=lambda row: row[0])
        }
        self._sent: set[tuple[int, int, int]] = set()

    def go(self) -> None:
        """Advance every IPU until the walk is stuck."""
        moved = True
        while moved:
            moved = bool(sum(map(self._run, self._left.values()))) or self._meet()

    def waiting(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Return instruction and awaited IPUs of each IPU before its end."""
        return {ipu: (text_of(*left[-1]), self._late(ipu, left[-1])) for ipu, left in self._left.items() if left}

    def next_passes(self, ipus: Iterable[int]) -> tuple[Op, ...]:
        """Return the next passes of given IPUs; an IPU may have none left."""
        ahead = (next((row for row in reversed(self._left[ipu]) if row[0] < PASSES), None) for ipu in ipus)
        return tuple(Op(Pass(code), stage, micro_batch) for code, stage, micro_batch, _ in filter(None, ahead))

    def _run(self, left: list[Instruction]) -> bool:
        moved = False
        while left and left[-1][0] not in MEETINGS:
            code, stage, micro_batch, number = left[-1]
            if code == Code.RECEIVE and (number, stage, micro_batch) not in self._sent:
                break
            if code in _SENDS:
                self._sent.add((stage, number, micro_batch))
            left.pop()
            moved = True
        return moved

    def _meet(self) -> bool:
        """Advance all IPUs past a common meeting; False without a common meeting."""
        heads = [left[-1] if left else None for left in self._left.values()]
        first = heads[0]
        if first is None or first[0] not in MEETINGS or any(head is None or head[0] != first[0] for head in heads):
            return False
        times = min(head[3] for head in heads if head is not None)
        for left in self._left.values():
            code, stage, micro_batch, number = left.pop()
            if code == Code.MEET and number > times:
                left.append((code, stage, micro_batch, number - times))
        return True

    def _late(self, ipu: int, at: Instruction) -> tuple[int, ...]:
        code, stage, micro_batch, number = at
        if code == Code.RECEIVE:
            sends = {(send, number, micro_batch, stage) for send in _SENDS}
            return tuple(other for other, left in self._left.items() if sends & set(left))
        return tuple(other for other, left in self._left.items() if other != ipu and (not left or left[-1][0] != code))

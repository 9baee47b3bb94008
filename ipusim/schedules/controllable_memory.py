"""Lay out V-Half and V-Min: ZB-V with half, or a third, of the activations, at the cost of a bubble.

Qi et al., Pipeline Parallelism with Controllable Memory (arXiv 2405.15362). Passes are laid out in slots
of equal length. The passes of a micro-batch form a pattern of slots that repeats every six slots, as an IPU has six
passes of each micro-batch. The distance from a forward pass to its backward pass determines the memory. In the ramps
(ramp-up and ramp-down), an IPU has fewer than six passes in six slots; they are then closed up as far as the largest
peak of activations allows. The pattern between the ramps is periodic, so the layout time does not grow with the count.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from ipusim.base.cache import shared
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.chunks import ChunkPass, order_of, repeat_period, zigzag_chunks_of

#: Passes of a micro-batch on an IPU in order: forward there and back, backward there and back, and the weight-gradient
#: halves, which run later in free slots.
_PASSES: Final[tuple[tuple[Pass, int], ...]] = (
    (Pass.FORWARD, 0),
    (Pass.FORWARD, 1),
    (Pass.INPUT_GRADIENT, 1),
    (Pass.INPUT_GRADIENT, 0),
    (Pass.WEIGHT_GRADIENT, 1),
    (Pass.WEIGHT_GRADIENT, 0),
)
#: Indices in ``_PASSES``; ``_WEIGHTS`` is the first weight-gradient half.
_WAY_OUT, _WAY_BACK, _GRADIENT_BACK, _GRADIENT_THERE, _WEIGHTS = range(5)
#: Indices of the input-gradient halves.
_GRADIENTS: Final = (_GRADIENT_BACK, _GRADIENT_THERE)
#: Content of an empty slot.
_EMPTY: Final = -1
#: Slots between consecutive micro-batches.
_PERIOD: Final = len(_PASSES)

#: Content of each slot of an IPU: ``_EMPTY``, or a pass as a number: index in ``_PASSES`` x the count + micro-batch.
_Lane = list[int]
#: Slot of each pass of an IPU; ``_EMPTY`` for passes without a slot.
_Slots = list[int]


def v_half(shape: PlanShape) -> Order:
    """Lay out V-Half; adjacent stages of an IPU form a chunk per direction.

    Of N IPUs, an IPU keeps at most 2 floor((N + 2) / 2) micro-batches of a stage; in ZB-V it keeps 2 N.

    Raises:
        ProgramError: for fewer than two stages.
        CountError: for a count below 1.
        UnsupportedProgramError: for stages that are not placed as a V.
    """
    return _order("v_half", shape, _half)


def v_min(shape: PlanShape) -> Order:
    """Lay out V-Min.

    Of N IPUs, an IPU keeps at most 2 floor((N + 4) / 3) micro-batches of a stage.

    Raises:
        ProgramError: for fewer than two stages.
        CountError: for a count below 1.
        UnsupportedProgramError: for stages that are not placed as a V.
    """
    return _order("v_min", shape, _third)


def _half(ipus: int, rank: int) -> tuple[int, ...]:
    """Return V-Half's slots of the first micro-batch (paper's table 9, summed up)."""
    gap = 0 if ipus % 2 else 3
    return 2 * rank, 3 * ipus - 2 - rank, 3 * ipus - 1 + gap + 2 * rank, 6 * ipus - 2 + gap - rank


def _third(ipus: int, rank: int) -> tuple[int, ...]:
    """Return V-Min's slots of the first micro-batch (paper's table 8, summed up)."""
    gap = 0 if ipus % 3 else 2
    return rank, 2 * ipus - 1 - rank, 2 * ipus + gap + rank, 4 * ipus - 1 + gap - rank


def _order(name: str, shape: PlanShape, pattern: Callable[[int, int], tuple[int, ...]]) -> Order:
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    chunks = zigzag_chunks_of(shape, name)
    ipus, count = len(chunks), shape.micro_batches
    laid_out_count = min(count, 2 * ipus + 2)  # enough for a period between the ramps of each IPU
    lanes = shared()(_lay_out, [pattern(ipus, rank) for rank in range(ipus)], laid_out_count, shape.authors)
    begin = (*_PASSES[_WAY_OUT], ipus + 1)
    passes = {
        ipu: (ipu_chunks, repeat_period(lane, begin, _PERIOD, count - laid_out_count))
        for (ipu, ipu_chunks), lane in zip(chunks.items(), lanes, strict=True)
    }
    return order_of(name, shape, passes)


def _lay_out(patterns: Sequence[tuple[int, ...]], count: int, authors: bool = False) -> list[list[ChunkPass]]:
    """Return each IPU's passes, from slots of the first micro-batch.

    The ramps are closed up twice: with weight-gradient halves, as far as the pattern has room for them, and without.
    Then the halves are inserted again, first the halves of the way back.
    """
    lanes = []
    for pattern in patterns:
        lane = [_EMPTY] * (max(pattern) + _PERIOD * (count - 1) + 1)
        for number, slot in enumerate(pattern):
            lane[slot : slot + _PERIOD * count : _PERIOD] = range(number * count, (number + 1) * count)
        lanes.append(lane)
    lanes = _close_ramps([_fill_halves(lane, count) for lane in lanes], count, ramp_up=True, authors=authors)
    lanes = [_without_halves(lane, count) for lane in _squeeze(lanes, count)]
    lanes = _close_ramps(lanes, count, ramp_up=False, authors=authors)
    lanes = _squeeze([_fill_halves(lane, count) for lane in lanes], count)
    lanes = [_fill_halves(_without_halves(lane, count), count, by_stage=True) for lane in lanes]
    return [[(*_PASSES[entry // count], entry % count) for entry in lane if entry != _EMPTY] for lane in lanes]


def _without_halves(lane: _Lane, count: int) -> _Lane:
    """Remove the weight-gradient halves from an IPU's passes."""
    return [entry if entry < _WEIGHTS * count else _EMPTY for entry in lane]


def _fill_halves(lane: _Lane, count: int, *, by_stage: bool = False) -> _Lane:
    """Put weight-gradient halves into free slots.

    With ``by_stage``, halves of the way back come first. Without ``by_stage``, halves are numbered in order of
    execution, and not yet assigned to gradients.
    """
    queues = deque[int](), deque[int]()  # of the way back, and of the way there
    halves = iter(range(_WEIGHTS * count, len(_PASSES) * count))
    new_lane = list[int]()
    for entry in lane:
        if entry // count in _GRADIENTS:
            queues[entry // count - _GRADIENT_BACK].append(entry + len(_GRADIENTS) * count)
        queue = next(filter(None, queues), None) if entry == _EMPTY else None
        half = entry if queue is None else queue.popleft()
        new_lane.append(half if queue is None or by_stage else next(halves))
    return [*new_lane, *(chain(*queues) if by_stage else halves)]


def _close_ramps(lanes: Sequence[_Lane], count: int, *, ramp_up: bool, authors: bool) -> list[_Lane]:
    """Move passes of the ramps to the first free slot after their inputs.

    Passes between two passes of the first IPU stay in place: its first gradient of the way there and its last forward
    pass. Without ``ramp_up``, earlier passes stay as well. No move raises an IPU's memory above the largest peak before
    all moves. With ``ramp_up`` weight-gradient halves are present; otherwise a half is assumed in each free slot after
    a gradient.

    With few micro-batches, the first IPU's last forward pass precedes its first gradient of the way there. The
    ramp-down is then closed up from this forward pass on. In the authors' code, the ramp-down is closed up from the
    last forward pass of an IPU where this pass follows the gradient: the earliest such pass. Without such an IPU, the
    ramp-down stays.
    """
    slots = [_slots_of(lane, count) for lane in lanes]
    begin = slots[0][_GRADIENT_THERE * count]
    ends = [(ipu_slots[(_WAY_OUT + 1) * count - 1], rank) for rank, ipu_slots in enumerate(slots)]
    end = min((end for end in ends if end > (begin, 0)), default=None) if authors else ends[0]
    memories = [_SavedBySlot(lane, count, halves=ramp_up) for lane in lanes]
    most = max(saved.most for saved in memories)
    gradients: list[list[int]] = [[] for _ in lanes]  # slots of visited gradients
    for slot, rank, entry in sorted(
        (slot, rank, entry) for rank, lane in enumerate(lanes) for slot, entry in enumerate(lane) if entry != _EMPTY
    ):
        ipu_slots, number = slots[rank], entry // count
        if (end is not None and (slot, rank) > end) or (slot < begin and ramp_up):
            input_slots = [ipu_slots[entry - 1]] if entry % count or number > _WEIGHTS else [_EMPTY]
            if number >= _WEIGHTS:
                input_slots.append(gradients[rank][entry - _WEIGHTS * count])
            else:
                input_slots += [ipu_slots[entry - count]] if number else []
                input_slots += [neighbour[entry] for neighbour in _neighbours(slots, rank, number)]
            ipu_slots[entry] = memories[rank].move(slot, max(input_slots) + 1, most)
        if number in _GRADIENTS:
            insort(gradients[rank], ipu_slots[entry])
    return [saved.lane for saved in memories]


def _slots_of(lane: _Lane, count: int) -> _Slots:
    """Return the slot of each pass."""
    slots = [_EMPTY] * (len(_PASSES) * count)
    for slot, entry in enumerate(lane):
        if entry != _EMPTY:
            slots[entry] = slot
    return slots


def _neighbours(ranks: Sequence[_Slots], rank: int, number: int) -> Sequence[_Slots]:
    """Return the slots of the neighbour with the preceding pass; empty without a neighbour."""
    if number >= _WEIGHTS:
        return ()
    source = rank - 1 if number in (_WAY_OUT, _GRADIENT_BACK) else rank + 1
    return ranks[source : source + 1] if source >= 0 else ()


class _SavedBySlot:
    """Passes of an IPU, with the number of stored micro-batches after each slot.

    A micro-batch is stored from a forward pass to the weight-gradient half, separately per direction.

    Attributes:
        lane: passes of the IPU.
    """

    def __init__(self, lane: _Lane, count: int, *, halves: bool) -> None:
        """Take passes, with weight-gradient ``halves`` or without; if without, assume a half in every free slot."""
        self.lane = [*lane]
        pending_half = 0 if halves else 1
        # For each of the six passes: changes of stored micro-batches, and of pending halves.
        changes = (1, 0), (1, 0), (0, pending_half), (0, pending_half), (-1, 0), (-1, 0)
        self._changes = [change for change in changes for _ in range(count)]
        self._states = [(0, 0), *self._states_from(0, 0, 0)]  # before the first slot, and after each slot

    @property
    def most(self) -> int:
        """Maximum number of stored micro-batches."""
        return max(level for level, _ in self._states)

    def move(self, slot: int, ready: int, most: int) -> int:
        """Move a pass to the first free slot from ``ready`` on that keeps the peak within ``most``; return the slot."""
        entry, self.lane[slot] = self.lane[slot], _EMPTY
        for target in range(ready, slot):
            if self.lane[target] == _EMPTY:
                self.lane[target] = entry
                if self._fits(target, slot, most):
                    return target
                self.lane[target] = _EMPTY
        self.lane[slot] = entry
        return slot

    def _fits(self, target: int, slot: int, most: int) -> bool:
        """Tell whether the peak from slot ``target`` on is within ``most``; if it is, update the states."""
        states = list[tuple[int, int]]()
        for index, state in enumerate(self._states_from(target, *self._states[target]), target + 1):
            if state[0] > most:
                return False
            if index > slot and state == self._states[index]:
                break  # unchanged from here on
            states.append(state)
        self._states[target + 1 : target + 1 + len(states)] = states
        return True

    def _states_from(self, begin: int, level: int, halves: int) -> Iterator[tuple[int, int]]:
        """Yield states after slots from ``begin`` on: stored micro-batches, and pending weight-gradient halves."""
        for entry in islice(self.lane, begin, None):
            if entry != _EMPTY:
                change, pending_change = self._changes[entry]
                level, halves = level + change, halves + pending_change
            elif halves:
                level, halves = level - 1, halves - 1
            yield level, halves


def _squeeze(lanes: Sequence[_Lane], count: int) -> list[_Lane]:
    """Give passes the first slot after their inputs, in unchanged order per IPU."""
    orders = [[entry for entry in lane if entry != _EMPTY][::-1] for lane in lanes]
    slots = [[_EMPTY] * (len(_PASSES) * count) for _ in lanes]
    squeezed: list[_Lane] = [[] for _ in lanes]
    progress = True
    while progress:
        progress = False
        for rank, stack in enumerate(orders):
            while stack:
                entry = stack[-1]
                input_slots = [neighbour[entry] for neighbour in _neighbours(slots, rank, entry // count)]
                if _EMPTY in input_slots:
                    break
                lane = squeezed[rank]
                slot = max(len(lane), 1 + max(input_slots, default=_EMPTY))
                lane += [_EMPTY] * (slot - len(lane)) + [stack.pop()]
                slots[rank][entry] = slot
                progress = True
    return squeezed

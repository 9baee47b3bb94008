"""V-Half and V-Min: ZB-V with half, or a third, of the activations, and a bubble that pays for it.

Qi et al., Pipeline Parallelism with Controllable Memory (arXiv 2405.15362). Passes are laid out in slots
of equal length. A micro-batch's passes have a pattern of slots that begins anew every six slots, one for each pass that
an IPU has of a micro-batch; how far apart a forward pass and its backward pass are says how much is kept. Ramp-up and
ramp-down, where an IPU has fewer than six passes in six slots, are then moved together as far as the largest peak of
activations allows. Between them the pattern repeats itself, so that laying out a long execution takes no longer.
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
from ipusim.schedules.chunks import ChunkPass, order_of, repeated, zigzag_chunks_of

#: Passes of a micro-batch on an IPU in the order of its way: forward there and back, backward there and back, and the
#: weights' halves, which stand behind the others wherever an IPU is free.
_PASSES: Final[tuple[tuple[Pass, int], ...]] = (
    (Pass.FORWARD, 0),
    (Pass.FORWARD, 1),
    (Pass.INPUT_GRADIENT, 1),
    (Pass.INPUT_GRADIENT, 0),
    (Pass.WEIGHT_GRADIENT, 1),
    (Pass.WEIGHT_GRADIENT, 0),
)
_THERE, _BACK, _GRADIENT_BACK, _GRADIENT_THERE, _WEIGHTS = range(5)
_GRADIENTS: Final = (_GRADIENT_BACK, _GRADIENT_THERE)
#: In a slot that has no pass.
_FREE: Final = -1
#: Slots from one micro-batch to the next.
_PERIOD: Final = len(_PASSES)

#: What is in each slot of an IPU: ``_FREE``, or a pass as its number in ``_PASSES`` x the count + its micro-batch.
_Lane = list[int]
#: The slot of each pass of an IPU, ``_FREE`` of one that has none yet.
_Slots = list[int]


def v_half(shape: PlanShape) -> Order:
    """Return the Order of V-Half; stages that follow each other on an IPU on the way there, or back, run as one.

    An IPU keeps 2 floor((N + 2) / 2) micro-batches of a stage at most, where ZB-V keeps 2 N.

    Raises ProgramError for fewer than two stages, CountError for a count below 1 and UnsupportedProgramError for
    stages that are not placed as a V.
    """
    return _order("v_half", shape, _half)


def v_min(shape: PlanShape) -> Order:
    """Return the Order of V-Min, which keeps 2 floor((N + 4) / 3) micro-batches of a stage at most.

    Raises as :func:`v_half` does.
    """
    return _order("v_min", shape, _third)


def _half(ipus: int, rank: int) -> tuple[int, ...]:
    """Return the slots of the first micro-batch's passes under V-Half (table 9 of the paper, summed up)."""
    apart = 0 if ipus % 2 else 3
    return 2 * rank, 3 * ipus - 2 - rank, 3 * ipus - 1 + apart + 2 * rank, 6 * ipus - 2 + apart - rank


def _third(ipus: int, rank: int) -> tuple[int, ...]:
    """Return the slots of the first micro-batch's passes under V-Min (table 8 of the paper, summed up)."""
    apart = 0 if ipus % 3 else 2
    return rank, 2 * ipus - 1 - rank, 2 * ipus + apart + rank, 4 * ipus - 1 + apart - rank


def _order(name: str, shape: PlanShape, pattern: Callable[[int, int], tuple[int, ...]]) -> Order:
    check_stages(shape.positions)
    check_count(shape.micro_batches, 1)
    chunks = zigzag_chunks_of(shape, name)
    ipus, count = len(chunks), shape.micro_batches
    few = min(count, 2 * ipus + 2)  # with which each IPU has a period between its ramps
    lanes = shared()(_laid_out, [pattern(ipus, rank) for rank in range(ipus)], few, shape.authors)
    begin = (*_PASSES[_THERE], ipus + 1)
    passes = {
        ipu: (own, repeated(lane, begin, _PERIOD, count - few))
        for (ipu, own), lane in zip(chunks.items(), lanes, strict=True)
    }
    return order_of(name, shape, passes)


def _laid_out(patterns: Sequence[tuple[int, ...]], count: int, authors: bool = False) -> list[list[ChunkPass]]:
    """Return the passes of each IPU in order, by the slots of its first micro-batch's.

    The ramps are moved together twice: with the weights' halves where the pattern leaves room for them, and without,
    which are then filled in anew, those of the way back first.
    """
    lanes = []
    for pattern in patterns:
        lane = [_FREE] * (max(pattern) + _PERIOD * (count - 1) + 1)
        for number, slot in enumerate(pattern):
            lane[slot : slot + _PERIOD * count : _PERIOD] = range(number * count, (number + 1) * count)
        lanes.append(lane)
    lanes = _closed_up([_filled(lane, count) for lane in lanes], count, ramp_up=True, authors=authors)
    lanes = [_bare(lane, count) for lane in _squeezed(lanes, count)]
    lanes = _closed_up(lanes, count, ramp_up=False, authors=authors)
    lanes = _squeezed([_filled(lane, count) for lane in lanes], count)
    lanes = [_filled(_bare(lane, count), count, by_stage=True) for lane in lanes]
    return [[(*_PASSES[one // count], one % count) for one in lane if one != _FREE] for lane in lanes]


def _bare(lane: _Lane, count: int) -> _Lane:
    """Return an IPU's passes without the weights' halves."""
    return [one if one < _WEIGHTS * count else _FREE for one in lane]


def _filled(lane: _Lane, count: int, *, by_stage: bool = False) -> _Lane:
    """Return an IPU's passes with the weights' halves in its free slots, those of the way back first ``by_stage``.

    Else it does not matter yet of which gradient each is the half, and they are numbered as they run.
    """
    waiting = deque[int](), deque[int]()  # of the way back, and of the way there
    halves = iter(range(_WEIGHTS * count, len(_PASSES) * count))
    filled = list[int]()
    for one in lane:
        if one // count in _GRADIENTS:
            waiting[one // count - _GRADIENT_BACK].append(one + len(_GRADIENTS) * count)
        first = next(filter(None, waiting), None) if one == _FREE else None
        half = one if first is None else first.popleft()
        filled.append(half if first is None or by_stage else next(halves))
    return [*filled, *(chain(*waiting) if by_stage else halves)]


def _closed_up(lanes: Sequence[_Lane], count: int, *, ramp_up: bool, authors: bool) -> list[_Lane]:
    """Return ``lanes`` with passes of the ramps moved to the first free slot behind what they need.

    What lies between the first IPU's first gradient for the way there and its last forward pass stays, and where
    ``ramp_up`` is not to be closed up, what lies before that. No move makes an IPU keep more than the most that any
    kept before. With ``ramp_up`` the weights' halves are there; else one runs in each free slot behind a gradient.

    Of few micro-batches the first IPU's last forward pass comes before that gradient. The ramp-down is closed up from
    that pass on then; in the authors' own code from the first IPU on that has its last forward pass behind the
    gradient, and where none has, not at all.
    """
    slots = [_slots_of(lane, count) for lane in lanes]
    begin = slots[0][_GRADIENT_THERE * count]
    ends = [(own[(_THERE + 1) * count - 1], rank) for rank, own in enumerate(slots)]
    end = min((end for end in ends if end > (begin, 0)), default=None) if authors else ends[0]
    saved = [_SavedBySlot(lane, count, halves=ramp_up) for lane in lanes]
    most = max(of_ipu.most for of_ipu in saved)
    gradients: list[list[int]] = [[] for _ in lanes]  # slots of those looked at so far
    for slot, rank, one in sorted(
        (slot, rank, one) for rank, lane in enumerate(lanes) for slot, one in enumerate(lane) if one != _FREE
    ):
        own, number = slots[rank], one // count
        if (end is not None and (slot, rank) > end) or (slot < begin and ramp_up):
            before = [own[one - 1]] if one % count or number > _WEIGHTS else [_FREE]
            if number >= _WEIGHTS:
                before.append(gradients[rank][one - _WEIGHTS * count])
            else:
                before += [own[one - count]] if number else []
                before += [neighbour[one] for neighbour in _neighbours(slots, rank, number)]
            own[one] = saved[rank].moved(slot, max(before) + 1, most)
        if number in _GRADIENTS:
            insort(gradients[rank], own[one])
    return [of_ipu.lane for of_ipu in saved]


def _slots_of(lane: _Lane, count: int) -> _Slots:
    """Return the slot of each pass."""
    slots = [_FREE] * (len(_PASSES) * count)
    for slot, one in enumerate(lane):
        if one != _FREE:
            slots[one] = slot
    return slots


def _neighbours(ranks: Sequence[_Slots], rank: int, number: int) -> Sequence[_Slots]:
    """Return the slots of the IPU whose pass of a number comes before that of the ``rank``-th one, where one does."""
    if number >= _WEIGHTS:
        return ()
    before = rank - 1 if number in (_THERE, _GRADIENT_BACK) else rank + 1
    return ranks[before : before + 1] if before >= 0 else ()


class _SavedBySlot:
    """The micro-batches that an IPU saves behind each slot, from a forward pass to the weights' half.

    Attributes:
        lane: its passes.
    """

    def __init__(self, lane: _Lane, count: int, *, halves: bool) -> None:
        """Take the passes, with the weights' ``halves`` or without: then one runs in each slot that is free for it."""
        self.lane = [*lane]
        waits = 0 if halves else 1
        changes = (1, 0), (1, 0), (0, waits), (0, waits), (-1, 0), (-1, 0)
        self._changes = [change for change in changes for _ in range(count)]
        self._states = [(0, 0), *self._from(0, 0, 0)]  # before the first slot, and behind each

    @property
    def most(self) -> int:
        """The most that it keeps."""
        return max(saved for saved, _ in self._states)

    def moved(self, slot: int, ready: int, most: int) -> int:
        """Move a pass to the first free slot from ``ready`` on with which it keeps no more than ``most``; return it."""
        one, self.lane[slot] = self.lane[slot], _FREE
        for earlier in range(ready, slot):
            if self.lane[earlier] == _FREE:
                self.lane[earlier] = one
                if self._fits(earlier, slot, most):
                    return earlier
                self.lane[earlier] = _FREE
        self.lane[slot] = one
        return slot

    def _fits(self, earlier: int, slot: int, most: int) -> bool:
        """Whether the IPU keeps at most ``most`` micro-batches from slot ``earlier`` on; updates its states if so."""
        states = list[tuple[int, int]]()
        for behind, state in enumerate(self._from(earlier, *self._states[earlier]), earlier + 1):
            if state[0] > most:
                return False
            if behind > slot and state == self._states[behind]:
                break  # as before from here on
            states.append(state)
        self._states[earlier + 1 : earlier + 1 + len(states)] = states
        return True

    def _from(self, begin: int, saved: int, waiting: int) -> Iterator[tuple[int, int]]:
        """Yield the states behind each slot from ``begin`` on: micro-batches kept, and weights' halves not yet run."""
        for one in islice(self.lane, begin, None):
            if one != _FREE:
                more, wait = self._changes[one]
                saved, waiting = saved + more, waiting + wait
            elif waiting:
                saved, waiting = saved - 1, waiting - 1
            yield saved, waiting


def _squeezed(lanes: Sequence[_Lane], count: int) -> list[_Lane]:
    """Return each IPU's passes in their order, each in the first slot in which what it needs is done."""
    orders = [[one for one in lane if one != _FREE][::-1] for lane in lanes]
    slots = [[_FREE] * (len(_PASSES) * count) for _ in lanes]
    squeezed: list[_Lane] = [[] for _ in lanes]
    waiting = True
    while waiting:
        waiting = False
        for rank, left in enumerate(orders):
            while left:
                one = left[-1]
                before = [neighbour[one] for neighbour in _neighbours(slots, rank, one // count)]
                if _FREE in before:
                    break
                lane = squeezed[rank]
                slot = max(len(lane), 1 + max(before, default=_FREE))
                lane += [_FREE] * (slot - len(lane)) + [left.pop()]
                slots[rank][one] = slot
                waiting = True
    return squeezed

"""V-Half and V-Min: ZB-V with half, or a third, of the activations, and a bubble that pays for it.

Qi et al., Pipeline Parallelism with Controllable Memory (arXiv 2405.15362). Passes are laid out in slots
of equal length. A micro-batch's passes have a pattern of slots that begins anew every six slots, one for each pass that
an IPU has of a micro-batch; how far apart a forward pass and its backward pass are says how much is kept. Ramp-up and
ramp-down, where an IPU has fewer than six passes in six slots, are then moved together as far as the largest peak of
activations allows. Between them the pattern repeats itself, so that laying out a long execution takes no longer.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.ops import Pass
from ipusim.pipeline.order import Order
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_count, check_stages
from ipusim.schedules.chunks import order_of, repeated, zigzag_chunks_of

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
#: The number of no pass, the last of what follows.
_FREE: Final = -1
#: What a pass adds to what is kept, with weights' halves and without; and to the halves that wait for a free slot. The
#: last is of no pass.
_KEPT: Final = np.array([1, 1, 0, 0, -1, -1, 0])
_KEPT_BY_GRADIENTS: Final = np.array([1, 1, -1, -1, 0, 0, 0])
_QUEUED: Final = np.array([0, 0, 1, 1, 0, 0, -1])
#: Slots from one micro-batch to the next.
_PERIOD: Final = len(_PASSES)

Numbers = npt.NDArray[np.int64]


class _Placed(NamedTuple):
    """A pass of a micro-batch on an IPU: its number in ``_PASSES``, and the micro-batch."""

    number: int
    micro_batch: int


#: Of each IPU, what is in each of its slots.
_Lanes = list[dict[int, _Placed]]


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
    lanes = _laid_out([pattern(ipus, rank) for rank in range(ipus)], few)
    begin = (*_PASSES[_THERE], ipus + 1)
    passes = {
        ipu: (own, repeated([(*_PASSES[number], batch) for number, batch in lane], begin, _PERIOD, count - few))
        for (ipu, own), lane in zip(chunks.items(), lanes, strict=True)
    }
    return order_of(name, shape, passes)


def _laid_out(patterns: list[tuple[int, ...]], count: int) -> list[list[_Placed]]:
    """Return the passes of each IPU in order, by the slots of its first micro-batch's.

    The ramps are moved together twice: with the weights' halves where the pattern leaves room for them, and without,
    which are then filled in anew, those of the way back first.
    """
    lanes: _Lanes = [
        {
            slot + _PERIOD * batch: _Placed(number, batch)
            for number, slot in enumerate(pattern)
            for batch in range(count)
        }
        for pattern in patterns
    ]
    ramps = partial(_closed_up, count=count)
    lanes = _squeezed(ramps([_filled(lane) for lane in lanes], ramp_up=True))
    lanes = _squeezed([_filled(lane) for lane in ramps([_bare(lane) for lane in lanes], ramp_up=False)])
    lanes = [_filled(_bare(lane), by_stage=True) for lane in lanes]
    return [[lane[slot] for slot in sorted(lane)] for lane in lanes]


def _bare(lane: dict[int, _Placed]) -> dict[int, _Placed]:
    """Return an IPU's passes without the weights' halves."""
    return {slot: placed for slot, placed in lane.items() if placed.number < _WEIGHTS}


def _filled(lane: dict[int, _Placed], *, by_stage: bool = False) -> dict[int, _Placed]:
    """Return an IPU's passes with the weights' halves in its free slots, those of the way back first ``by_stage``.

    Else it does not matter yet of which gradient each is the half, and they are numbered as they run.
    """
    filled, waiting = dict(lane), list[_Placed]()
    slot, left, runs = 0, len(lane), 0
    while left or waiting:
        placed = lane.get(slot)
        if placed is not None:
            left -= 1
            if placed.number in _GRADIENTS:
                waiting.append(_Placed(placed.number + len(_GRADIENTS), placed.micro_batch))
        elif waiting:
            first = min(waiting, key=lambda weights: weights.number) if by_stage else waiting[0]
            waiting.remove(first)
            filled[slot] = first if by_stage else _Placed(_WEIGHTS, runs)
            runs += 1
        slot += 1
    return filled


def _closed_up(lanes: _Lanes, *, count: int, ramp_up: bool) -> _Lanes:
    """Return ``lanes`` with passes of the ramps moved to the first free slot behind what they need.

    What lies between the first IPU's first gradient for the way there and its last forward pass stays, and where
    ``ramp_up`` is not to be closed up, what lies before that. No move makes an IPU keep more than the most that any
    kept before.
    """
    slot_of = [{placed: slot for slot, placed in lane.items()} for lane in lanes]
    begin, end = slot_of[0][_Placed(_GRADIENT_THERE, 0)], slot_of[0][_Placed(_THERE, count - 1)]
    numbers = [_numbers(lane) for lane in lanes]
    most = max(map(_most_kept, numbers))
    every = sorted((slot, rank, placed) for rank, lane in enumerate(lanes) for slot, placed in lane.items())
    gradients: list[list[int]] = [[] for _ in lanes]  # slots of those looked at so far
    for slot, rank, placed in every:
        if (slot, rank) > (end, 0) or (slot < begin and ramp_up):
            needs = [slot_of[ipu].get(before, -1) for ipu, before in _needs(rank, placed, len(lanes))]
            needs += [gradients[rank][placed.micro_batch]] if placed.number == _WEIGHTS else []
            own = numbers[rank]
            own[slot] = _FREE
            for earlier in range(max(needs, default=-1) + 1, slot + 1):
                if own[earlier] == _FREE:
                    own[earlier] = placed.number
                    if earlier == slot or _most_kept(own) <= most:
                        slot_of[rank][placed] = earlier
                        break
                    own[earlier] = _FREE
        if placed.number in _GRADIENTS:
            insort(gradients[rank], slot_of[rank][placed])
    return [{slot: placed for placed, slot in slots.items()} for slots in slot_of]


def _needs(rank: int, placed: _Placed, ipus: int) -> Iterator[tuple[int, _Placed]]:
    """Yield the passes that one waits for, each with its IPU: neighbours', its own way's, the micro-batch before's."""
    number, micro_batch = placed
    if number < _WEIGHTS:
        neighbour = rank - 1 if number in (_THERE, _GRADIENT_BACK) else rank + 1
        if 0 <= neighbour < ipus:
            yield neighbour, placed
        if number:
            yield rank, _Placed(number - 1, micro_batch)
    if micro_batch:
        yield rank, _Placed(number, micro_batch - 1)


def _numbers(lane: dict[int, _Placed]) -> Numbers:
    """Return the number of the pass in each slot, or ``_FREE``."""
    numbers = np.full(max(lane) + 1, _FREE, np.int64)
    numbers[list(lane)] = [placed.number for placed in lane.values()]
    return numbers


def _most_kept(numbers: Numbers) -> int:
    """Return the most micro-batches of its stages that an IPU keeps, from a forward pass to the weights' half.

    Where there are no such halves, one runs in each free slot behind a gradient.
    """
    if numbers.max() >= _WEIGHTS:
        return int(_KEPT[numbers].cumsum().max())
    kept, queue = _KEPT_BY_GRADIENTS[numbers].cumsum(), _QUEUED[numbers].cumsum()
    return int((kept + queue - np.minimum(np.minimum.accumulate(queue), 0)).max())


def _squeezed(lanes: _Lanes) -> _Lanes:
    """Return each IPU's passes in their order, each in the first slot in which what it needs is done."""
    orders = [[lane[slot] for slot in sorted(lane)] for lane in lanes]
    slot_of: list[dict[_Placed, int]] = [{} for _ in lanes]
    free = [0] * len(lanes)
    position = [0] * len(lanes)
    waiting = True
    while waiting:
        waiting = False
        for rank, own in enumerate(orders):
            while position[rank] < len(own):
                placed = own[position[rank]]
                needs = [slot_of[ipu].get(before) for ipu, before in _needs(rank, placed, len(lanes))]
                if None in needs:
                    break
                slot_of[rank][placed] = max([free[rank], *(slot + 1 for slot in needs if slot is not None)])
                free[rank] = slot_of[rank][placed] + 1
                position[rank] += 1
                waiting = True
    return [{slot: placed for placed, slot in slots.items()} for slots in slot_of]

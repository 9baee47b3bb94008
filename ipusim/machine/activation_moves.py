"""Move activations off an IPU after a forward pass, and back before a later pass.

This facility of the machine carries out a Plan's move instructions. Moves to Streaming Memory or to another IPU take
place while passes run. An IPU waits for a move when it needs the memory or the activations. In lock-step it waits for
every move, unless I/O tiles carry the move, or the merged copy does: the single copy that exchanges all tensors after a
time-step. Each move is recorded as a span (an interval of the run) with its cause, the span that let it begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import simpy

from ipusim.machine import resources
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.flows import Tensor
from ipusim.machine.links import Links
from ipusim.machine.shared_rate import SharedRate
from ipusim.pipeline.instructions import Code
from ipusim.pipeline.moves import Way, moves_of
from ipusim.pricing.costs import Send
from ipusim.timeline.kinds import STREAMED_KINDS, SpanKind
from ipusim.timeline.timeline import NONE

#: Key of a move within its IPU: stage, micro-batch, direction (a ``Way``).
_Key = tuple[int, int, int]
#: Function that returns the current carrier of moves: Streaming Memory, or links.
_Carrier = Callable[[], SharedRate | Links]


@dataclass(eq=False)
class _MoveUnderWay:
    """A move that has begun and not ended.

    Attributes:
        step: time-step of the move's span.
        start: first cycle of the move's span.
        cause: number of the span that let the move begin.
        predecessors: moves that must end before this move begins.
        position: function that returns the move's position among the carrier's transfers under way.
        tensor: the move as a tensor on links; None in Streaming Memory.
        end_event: event of the move's end, if an IPU waits for the move.
        followers: moves that wait for the end of this move.
    """

    step: int
    start: int
    cause: int
    predecessors: tuple[_Key, ...] = ()
    position: Callable[[], Hashable] = lambda: None
    tensor: Tensor | None = None
    end_event: simpy.Event | None = None
    followers: list[_Key] = field(default_factory=list)


class ActivationMoves(Facility):
    """Moves of an IPU's activations."""

    def __init__(
        self,
        context: Context,
        ipu: IpuId,
        receiver: IpuId,
        earlier_moves: Mapping[tuple[int, int], int],
        carrier: _Carrier | None,
    ) -> None:
        """Prepare the moves of ``ipu``.

        Args:
            context: the run.
            ipu: the IPU that makes and uses the activations.
            receiver: the IPU that receives the activations; ``ipu`` for Streaming Memory.
            earlier_moves: for each (stage, micro-batch), the micro-batch that must have moved out before this
                micro-batch moves back.
            carrier: function that returns the current carrier; None if the merged copies carry the moves.
        """
        self.ipus = (ipu,)
        self.handlers = {Code.MOVE: self._begin, Code.MOVED: self._wait}
        self._ipu, self._receiver, self._earlier_moves, self._carrier = ipu, receiver, earlier_moves, carrier
        self._clock, self._record = context.clock, context.recorder.record
        self._move = context.executor(ipu.replica).move
        self._both_ipus = resources.ipus([ipu.number, receiver.number])
        stages = {stage for stage, _ in earlier_moves}
        self._sends = _moves_of_ipu(context.costs.moves, ipu, stages)
        for rerouted in context.rerouted:
            context.clock.call_at(
                rerouted.cycle, partial(self._reroute, _moves_of_ipu(rerouted.moves, ipu, stages), rerouted.dead)
            )
        self._under_way: dict[_Key, _MoveUnderWay] = {}
        (self._wait_description,) = context.describe_ipus(SpanKind.MOVE_WAIT, [ipu]).values()
        table = context.plan.instructions
        _, _, stage, micro_batch, way = table[(table[:, 0] == ipu.shard) & (table[:, 1] == Code.MOVE)].T
        kinds = STREAMED_KINDS if receiver == ipu else (SpanKind.MOVE_OUT, SpanKind.MOVE_BACK)
        sizes = [context.program.saved_bytes(number) for number in range(context.plan.shape.stages)]
        first = context.recorder.describe_columns(
            len(way),
            kind=np.array(kinds)[way],
            ipu=ipu.number,
            stage=stage,
            micro_batch=micro_batch,
            bytes=np.array(sizes, np.int64)[stage],
            replica=ipu.replica,
        )
        keys = zip(stage.tolist(), micro_batch.tolist(), way.tolist(), strict=True)
        self._descriptions = {key: first + number for number, key in enumerate(keys)}

    def _begin(self, _ipu: IpuId, stage: int, micro_batch: int, way: int, step: int, cause: int) -> int:
        """Begin a move, now or after earlier moves; return ``cause``, as the IPU does not wait."""
        key = stage, micro_batch, way
        earlier_keys: tuple[_Key, ...] = ()
        if way == Way.BACK:
            micro_batches = {self._earlier_moves.get((stage, micro_batch), NONE), micro_batch}
            earlier_keys = tuple((stage, number, int(Way.OUT)) for number in sorted(micro_batches))
        predecessors = tuple(predecessor for predecessor in earlier_keys if predecessor in self._under_way)
        move = self._under_way[key] = _MoveUnderWay(step, self._clock.now, cause, predecessors)
        for predecessor in predecessors:
            self._under_way[predecessor].followers.append(key)
        if not predecessors:
            self._hand_to_carrier(key, move)
        return cause

    def _hand_to_carrier(self, key: _Key, move: _MoveUnderWay) -> None:
        """Hand a move to the carrier."""
        move.start, send = self._clock.now, self._sends[key[0], key[2]]
        if self._carrier is None:
            return
        if not (send.lead_cycles or send.links if self._receiver != self._ipu else send.bytes):
            self._end(key)
            return
        carrier = self._carrier()
        if isinstance(carrier, Links):
            tensor = Tensor(NONE, send, move.step, move.cause, move.start, partial(self._on_carried, key))
            move.position = partial(carrier.places, tensor)
            move.tensor = tensor
            carrier.carry(tensor, self._both_ipus)
        else:
            end_event = carrier.transfer(send.bytes)
            end_event.callbacks.append(partial(self._on_carried, key))
            move.position = partial(carrier.state, end_event)

    def _on_carried(self, key: _Key, *_: object) -> None:
        self._end(key)

    def _end(self, key: _Key) -> int:
        """End a move: record its span, begin followers, wake the IPU; return the span."""
        move, (stage, micro_batch, way) = self._under_way.pop(key), key
        self._move(self._ipu.shard, self._receiver.shard, stage, micro_batch, way)
        span = self._record(self._descriptions[key], move.step, move.start, self._clock.now, move.cause)
        for follower_key in move.followers:
            follower = self._under_way[follower_key]
            follower.predecessors = tuple(predecessor for predecessor in follower.predecessors if predecessor != key)
            if not follower.predecessors:
                follower.cause = span
                self._hand_to_carrier(follower_key, follower)
        if move.end_event is not None:
            move.end_event.succeed(span)
        return span

    def _wait(
        self, _ipu: IpuId, stage: int, micro_batch: int, way: int, _step: int, cause: int
    ) -> int | tuple[simpy.Event, int]:
        """Return ``cause`` if the move has ended, else the event of its end."""
        key = stage, micro_batch, way
        move = self._under_way.get(key)
        if move is None:
            return cause
        if self._carrier is None:  # the merged copy before this time-step has carried the move
            self._end(key)
            return cause
        move.end_event = self._clock.event()
        return move.end_event, self._wait_description

    def _reroute(self, sends: dict[tuple[int, int], Send], dead: frozenset[int], _: object) -> None:
        """Switch to other routes, and restart moves over dead links."""
        self._sends = sends
        for (stage, _, way), move in [*self._under_way.items()]:
            carrier = self._carrier() if self._carrier is not None else None
            if isinstance(carrier, Links) and move.tensor and dead.intersection(move.tensor.send.links):
                carrier.reroute(move.tensor, sends[stage, way], self._both_ipus)

    def waits_for(self, ipu: int) -> Wait | None:  # noqa: ARG002 - a facility serves a single IPU
        """Return the move that the IPU waits for; None if the IPU does not wait."""
        keys = [key for key, move in self._under_way.items() if move.end_event is not None]
        return Wait("the move of activations {1} of stage {0}".format(*keys[0])) if keys else None

    def state(self, first_micro_batch: int) -> Hashable:
        """Return the moves under way, in the order in which they began, with their positions in the carrier."""
        cycle = self._clock.now

        def relative(key: _Key) -> _Key:
            return key[0], key[1] - first_micro_batch, key[2]

        return tuple(
            (
                relative(key),
                cycle - move.start,
                tuple(map(relative, move.predecessors)),
                tuple(map(relative, move.followers)),
                move.end_event is not None,
                move.position(),
            )
            for key, move in self._under_way.items()
        )


def _moves_of_ipu(
    moves: Mapping[tuple[int, int, int, int], Send], ipu: IpuId, stages: Iterable[int]
) -> dict[tuple[int, int], Send]:
    """Return the moves of one IPU by stage and direction, in plain numbers."""
    return {(stage, int(way)): moves[ipu.replica, ipu.shard, stage, way].plain() for stage in stages for way in Way}


def activation_moves(
    context: Context, carrier_of: Callable[[IpuId], _Carrier | None] = lambda _: None
) -> Iterator[Facility]:
    """Yield a facility for every IPU whose activations are moved.

    Args:
        context: the run.
        carrier_of: function that returns the carrier of an IPU's moves; by default the merged copies carry moves.
    """
    options, plan = context.program.moved_activations, context.plan
    if options is None:
        return
    earlier_moves: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for move in moves_of(plan.table, plan.shape, options, has_time_steps=plan.sync.has_time_steps):
        earlier_moves[move.ipu][move.stage, move.micro_batch] = move.earlier_move
    for ipu in context.ipus():
        if ipu.shard in earlier_moves:
            receiver = context.ipu(ipu.replica, options.receiving_ipu(ipu.shard, plan.shape.mapping))
            yield ActivationMoves(context, ipu, receiver, earlier_moves[ipu.shard], carrier_of(ipu))

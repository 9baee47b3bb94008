"""Simulate a resource that serves transfers in parallel, at a rate that depends on their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import simpy

from ipusim.machine.clock import Clock, Process
from ipusim.machine.resources import Workers
from ipusim.timeline.kinds import SpanKind


@dataclass(eq=False)
class _Transfer:
    """A transfer in progress: the amount left, and the event of its end."""

    amount: Fraction
    end_event: simpy.Event


class SharedRate:
    """A resource whose transfers advance in parallel, at equal rates.

    Between events every transfer advances by its share, in exact arithmetic. The transfer with the least amount left
    ends in the first whole cycle in which its whole amount has passed. Transfers that end in the same cycle end in the
    order in which they began.
    """

    def __init__(self, clock: Clock, workers: Workers, kind: SpanKind, share: Callable[[int], Fraction]) -> None:
        """Begin idle.

        Args:
            clock: the time of the machine.
            workers: the resource, as a tuple of length 1.
            kind: kind of the work, which selects the disturbances that slow the resource.
            share: function from the number of transfers to the amount per transfer and cycle.
        """
        (self._worker,) = self._workers = workers
        self._clock, self._kind, self._share = clock, kind, cache(share)
        self._active: list[_Transfer] = []
        self._last_cycle = 0
        self._serving = False
        self._change = clock.event()

    def transfer(self, amount: int) -> simpy.Event:
        """Begin a transfer of ``amount``, at least 1; return the event of its end."""
        self._advance()
        self._active.append(_Transfer(Fraction(amount), self._clock.event()))
        if not self._serving:
            self._serving = True
            self._clock.process(self._serve())
        elif not self._change.triggered:
            self._change.succeed()
        return self._active[-1].end_event

    def state(self, end_event: simpy.Event | None = None) -> Hashable:
        """Return the position of a given transfer, and the remaining amounts of all transfers, oldest first.

        Args:
            end_event: event of a transfer's end.

        Returns:
            The position of the transfer with ``end_event`` (-1 if it is not in progress), and the amounts.
        """
        progress = self._progress()
        place = next((place for place, transfer in enumerate(self._active) if transfer.end_event is end_event), -1)
        return place, tuple(transfer.amount - progress for transfer in self._active)

    def _progress(self) -> Fraction:
        """Return the amount per transfer passed since the last advance."""
        work_cycles = self._clock.work_cycles(self._worker, self._kind, self._last_cycle, self._clock.now)
        return self._share(max(len(self._active), 1)) * work_cycles

    def _serve(self) -> Process:
        """End transfers in turn until no transfer is left; a SimPy process."""
        while self._active:
            self._change = self._clock.event()
            least = min(transfer.amount for transfer in self._active)
            cycles = math.ceil(least / self._share(len(self._active)))
            yield self._clock.spend(self._workers, self._kind, cycles) | self._change
            self._advance()
        self._serving = False

    def _advance(self) -> None:
        """Advance every transfer to the current cycle, and end finished transfers."""
        if self._active:
            progress = self._progress()
            for transfer in self._active:
                transfer.amount -= progress
            for transfer in [transfer for transfer in self._active if transfer.amount <= 0]:
                self._active.remove(transfer)
                transfer.end_event.succeed()
        self._last_cycle = self._clock.now

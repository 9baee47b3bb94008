"""A pass of all replicas in lock step, where its function calls collectives.

Each replica's pass is a greenlet, of which exactly one runs at a time. It hands over at each collective, and goes on
when the others are there, with what the collective has made of the arrays of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import cache, partial

import numpy as np
from greenlet import getcurrent, greenlet

from ipusim.base.errors import ModelError
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.collectives.run import run
from ipusim.hardware.system import System
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.functions.replica import Replica
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.layers.layer import Array
from ipusim.pricing.costs import Costs, PassCollective


class InLockStep:
    """Runs the passes that call collectives, each in all replicas at once: when the first of them begins it."""

    def __init__(self, executors: Sequence[NumpyExecutor], system: System, costs: Costs) -> None:
        """Take over the passes with collectives of the executors, which are in the order of the replicas."""
        self._executors, self._system, self._passes = tuple(executors), system, costs.collectives
        self._plans = cache(self._found_plans)
        #: The passes that have run, with the replicas that have not begun them yet.
        self._ahead: dict[tuple[int, int, int, int], set[int]] = {}
        self._failed: BaseException | None = None
        for number, executor in enumerate(executors):
            executor.acting = Surrounded(replica=Replica(number, _hand_over, count=len(executors)))
            executor.together = dict.fromkeys(self._passes, self.run)

    def begin(self) -> None:
        """Begin a run: drop the passes and the error of an earlier one."""
        self._ahead.clear()
        self._failed = None

    def run(self, replica: int, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run a pass of ``replica``, unless it ran when another replica began it.

        Raises what the executors do, and ModelError for replicas that do not call what was seen when the function
        was tried.
        """
        if self._failed is not None:  # the others' processes go on until time does, and would tell of what is missing
            raise self._failed
        key = ipu, kind, stage, micro_batch
        if key not in self._ahead:
            try:
                self._run_all(*key)
            except BaseException as error:
                self._failed = error
                raise
            self._ahead[key] = set(range(len(self._executors)))
        self._ahead[key].remove(replica)
        if not self._ahead[key]:
            del self._ahead[key]

    def _run_all(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        turns = [_Turn(partial(executor.run_alone, ipu, kind, stage, micro_batch)) for executor in self._executors]
        with ExitStack() as ending:
            for turn in reversed(turns):
                ending.callback(turn.end)
            answers: list[Array | None] = [None] * len(turns)
            for expected in (*self._passes[kind, stage], None):
                requests = [turn.next(answer) for turn, answer in zip(turns, answers, strict=True)]
                calls = [request and request[0] for request in requests]
                if problem := _problem(calls, None if expected is None else expected.call):
                    raise self._executors[0].failed(kind, stage, micro_batch, ModelError(problem))
                if expected is not None:
                    answers = list(self._carried_out(expected, ipu, [request[1] for request in requests if request]))

    def _carried_out(self, collective: PassCollective, ipu: int, arrays: Sequence[Array]) -> Iterator[Array]:
        """Yield the result of a collective in each replica."""
        call, replicas = collective.call, len(arrays)
        combine: np.ufunc = getattr(np, call.combination)
        plans = self._plans(call, collective.algorithm, ipu)
        for members, plan in zip(call.groups(replicas), plans, strict=True):
            for made in run(plan, [arrays[replica] for replica in members], combine):
                yield made.reshape(call.shape) if call.operation == "all_to_all" else _filled_up(made, plan)

    def _found_plans(self, call: CollectiveCall, algorithm: str, ipu: int) -> list[Collective]:
        """Return the collective of each group of replicas; found once, as a ring is found by comparing routes."""
        system, plan_of = self._system, ALGORITHMS[call.operation][algorithm]
        groups = ([replica * system.shards + ipu for replica in members] for members in call.groups(system.replicas))
        return [plan_of(system, group, call.elements(system.replicas), call.itemsize) for group in groups]


class _Turn:
    """The pass of one replica, which runs when it is its turn."""

    def __init__(self, run_pass: partial[None]) -> None:
        self._greenlet = greenlet(run_pass, parent=getcurrent())
        self._greenlet.gr_context = copy_context()

    def next(self, answer: Array | None) -> tuple[CollectiveCall, Array] | None:
        """Resume the pass with the result of a collective; return its next call and array, None at its end."""
        if self._greenlet.dead:
            return None
        request: tuple[CollectiveCall, Array] = self._greenlet.switch(*(() if answer is None else (answer,)))
        return None if self._greenlet.dead else request

    def end(self) -> None:
        """Abandon the pass unless it has ended."""
        if self._greenlet and not self._greenlet.dead:
            with suppress(Exception):  # the pass tells of it as of any other error
                self._greenlet.throw()


def _hand_over(call: CollectiveCall, x: Array) -> Array:
    """Switch to the other replicas, and return the result of the collective."""
    parent = getcurrent().parent
    assert parent is not None
    combined: Array = parent.switch((call, x))
    return combined


def _problem(calls: Sequence[CollectiveCall | None], expected: CollectiveCall | None) -> str:
    """Return a message where the replicas' calls are not all as expected; else an empty one."""
    other = next((replica for replica, call in enumerate(calls) if call != calls[0]), None)
    if other is not None:
        return (
            f"replica {other} calls {_words(calls[other])} where replica 0 calls {_words(calls[0])}: all replicas call "
            "the same collectives in the same order"
        )
    if calls[0] != expected:
        return (
            f"it calls {_words(calls[0])} where it called {_words(expected)} when it was tried: call the same "
            "collectives in every call"
        )
    return ""


def _words(call: CollectiveCall | None) -> str:
    return "no further collective" if call is None else str(call)


def _filled_up(array: Array, plan: Collective) -> Array:
    """Return a reduce-scatter's chunk as long as the longest, with zeros behind; anything else as it is."""
    if plan.operation != "reduce_scatter" or array.size == plan.chunk:
        return array
    return np.concatenate([array, np.zeros(plan.chunk - array.size, array.dtype)])

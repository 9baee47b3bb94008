"""Run passes with collectives, such as an all-reduce, in all replicas at the same time.

A replica's pass is a greenlet; a single greenlet runs at a time. The pass yields at every collective, and resumes with
the collective's result after the last replica has arrived.
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
    """Runs passes with collectives in every replica at once.

    The first replica to begin such a pass runs the pass of every replica.
    """

    def __init__(self, executors: Sequence[NumpyExecutor], system: System, costs: Costs) -> None:
        """Take over the executors' passes with collectives; executors are in replica order."""
        self._executors, self._system, self._passes = tuple(executors), system, costs.collectives
        self._collectives_of = cache(self._find_collectives)
        #: Completed passes, with replicas still to arrive at the pass.
        self._ahead: dict[tuple[int, int, int, int], set[int]] = {}
        self._error: BaseException | None = None
        for number, executor in enumerate(executors):
            executor.replica_context = Surrounded(replica=Replica(number, _hand_over, count=len(executors)))
            executor.joint_runs = dict.fromkeys(self._passes, self.run)

    def begin(self) -> None:
        """Begin a run: drop an earlier run's passes and error."""
        self._ahead.clear()
        self._error = None

    def run(self, replica: int, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        """Run a pass of ``replica``, unless it already ran when another replica began the same pass.

        Raises the executors' errors, and ModelError for replicas with different collectives than in the trial run of
        the function.
        """
        if self._error is not None:  # IPUs continue after an error, and would report missing tensors
            raise self._error
        key = ipu, kind, stage, micro_batch
        if key not in self._ahead:
            try:
                self._run_all(*key)
            except BaseException as error:
                self._error = error
                raise
            self._ahead[key] = set(range(len(self._executors)))
        self._ahead[key].remove(replica)
        if not self._ahead[key]:
            del self._ahead[key]

    def _run_all(self, ipu: int, kind: int, stage: int, micro_batch: int) -> None:
        replica_passes = [
            _ReplicaPass(partial(executor.run_alone, ipu, kind, stage, micro_batch)) for executor in self._executors
        ]
        with ExitStack() as cleanup:
            for replica_pass in reversed(replica_passes):
                cleanup.callback(replica_pass.abandon)
            answers: list[Array | None] = [None] * len(replica_passes)
            for collective in (*self._passes[kind, stage], None):
                requests = [
                    replica_pass.next(answer) for replica_pass, answer in zip(replica_passes, answers, strict=True)
                ]
                calls = [request and request[0] for request in requests]
                if problem := _problem(calls, None if collective is None else collective.call):
                    raise self._executors[0].failure(kind, stage, micro_batch, ModelError(problem))
                if collective is not None:
                    answers = list(self._carry_out(collective, ipu, [request[1] for request in requests if request]))

    def _carry_out(self, collective: PassCollective, ipu: int, arrays: Sequence[Array]) -> Iterator[Array]:
        """Yield the result of a collective, per replica."""
        call, replicas = collective.call, len(arrays)
        combine: np.ufunc = getattr(np, call.combination)
        group_collectives = self._collectives_of(call, collective.algorithm, ipu)
        for members, group_collective in zip(call.groups(replicas), group_collectives, strict=True):
            for result in run(group_collective, [arrays[replica] for replica in members], combine):
                is_whole = call.operation == "all_to_all"
                yield result.reshape(call.shape) if is_whole else _fill_up(result, group_collective)

    def _find_collectives(self, call: CollectiveCall, algorithm: str, ipu: int) -> list[Collective]:
        """Return the collective of every group of replicas; results are cached, as the search for rings is slow."""
        system, find_collective = self._system, ALGORITHMS[call.operation][algorithm]
        groups = ([replica * system.shards + ipu for replica in members] for members in call.groups(system.replicas))
        return [find_collective(system, group, call.elements(system.replicas), call.itemsize) for group in groups]


class _ReplicaPass:
    """A replica's pass, resumed in turns."""

    def __init__(self, run_pass: partial[None]) -> None:
        self._greenlet = greenlet(run_pass, parent=getcurrent())
        self._greenlet.gr_context = copy_context()

    def next(self, answer: Array | None) -> tuple[CollectiveCall, Array] | None:
        """Resume the pass with a collective's result; return the next call and array.

        Returns None at the end of the pass.
        """
        if self._greenlet.dead:
            return None
        request: tuple[CollectiveCall, Array] = self._greenlet.switch(*(() if answer is None else (answer,)))
        return None if self._greenlet.dead else request

    def abandon(self) -> None:
        """Abandon an unfinished pass."""
        if self._greenlet and not self._greenlet.dead:
            with suppress(Exception):  # the pass reports the abandonment like any error
                self._greenlet.throw()


def _hand_over(call: CollectiveCall, x: Array) -> Array:
    """Switch to the next replica, and return the result of the collective."""
    parent = getcurrent().parent
    assert parent is not None
    combined: Array = parent.switch((call, x))
    return combined


def _problem(calls: Sequence[CollectiveCall | None], expected_call: CollectiveCall | None) -> str:
    """Return a message about unexpected or differing calls of replicas; empty without a problem."""
    differing_replica = next((replica for replica, call in enumerate(calls) if call != calls[0]), None)
    if differing_replica is not None:
        return (
            f"replica {differing_replica} calls {_call_text(calls[differing_replica])} where replica 0 calls "
            f"{_call_text(calls[0])}: all replicas call the same collectives in the same order"
        )
    if calls[0] != expected_call:
        return (
            f"the stage calls {_call_text(calls[0])}, but called {_call_text(expected_call)} in its trial: call the "
            "same collectives in every call"
        )
    return ""


def _call_text(call: CollectiveCall | None) -> str:
    return "no further collective" if call is None else str(call)


def _fill_up(array: Array, collective: Collective) -> Array:
    """Pad a reduce-scatter's chunk with zeros to the length of the longest chunk; return other results unchanged."""
    if collective.operation != "reduce_scatter" or array.size == collective.chunk:
        return array
    return np.concatenate([array, np.zeros(collective.chunk - array.size, array.dtype)])

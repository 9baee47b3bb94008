"""Values that several simulated hosts reduce, gather or broadcast: at once, or in each run of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipusim.ipu.host import Fetch, Running, Tensor
from ipusim.machine import host_collectives
from ipusim.machine.hosts import this_host
from ipusim.model.layers.layer import Array


class _Together(Tensor):
    """A tensor of the host that all hosts make together, in each run of a session."""

    def __init__(self, function: Callable[[Array], Array], value: Fetch, example: Array) -> None:
        super().__init__(example)
        self._function, self._value = function, value

    @property
    def late(self) -> bool:
        return self._value.late

    def evaluate(self, running: Running) -> Array:
        return self._function(np.asarray(running.value(self._value)))


def reduced(name: str, value: Any, operation: str, before: Callable[[Array], Array] = np.asarray) -> Any:
    """Return ``before`` of the value, reduced over all hosts as ``host_collectives.all_reduce`` does."""

    def of(array: Array) -> Array:
        return host_collectives.all_reduce(this_host(), name, before(array), operation)

    return _made(of, value, before)


def gathered(name: str, value: Any) -> Any:
    """Return the values of all hosts one after the other, as ``host_collectives.all_gather`` does.

    A session's tensor is tried on as many rows as this host has, times the hosts: each may have others.
    """
    host = this_host()

    def example(array: Array) -> Array:
        return array if host is None else np.concatenate([array] * host.count) if array.ndim else array

    return _made(lambda array: host_collectives.all_gather(this_host(), name, array), value, example)


def broadcasted(name: str, value: Any, root: int) -> Any:
    """Return the value of the host with rank ``root``, as ``host_collectives.broadcast`` does."""
    return _made(lambda array: host_collectives.broadcast(this_host(), name, array, root), value, np.asarray)


def _made(function: Callable[[Array], Array], value: Any, example: Callable[[Array], Array]) -> Any:
    if isinstance(value, Fetch):
        tried = value.example if isinstance(value, Tensor) else np.zeros((), np.float32)
        return _Together(function, value, example(tried))
    return function(np.asarray(value))

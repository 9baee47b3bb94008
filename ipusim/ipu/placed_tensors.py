"""Tensors of the host that a program computes in a scope for an IPU, without compiling a computation.

A session computes them on the device, each as a program of one iteration: what is fed and what comes back are copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from ipusim.ipu.compiled_computation import CompiledComputation
from ipusim.ipu.host import Computed, Fetch, Placeholder, Running
from ipusim.ipu.scopes import ipu_shard
from ipusim.model.layers.layer import Array


class SessionRun(Running):
    """A run of a session, which computes on the device what scopes place there."""

    def evaluate(self, fetch: Fetch) -> Any:
        """Return the value of a Fetch; raises as computations do."""
        if not isinstance(fetch, Computed) or not fetch.on_ipu or not _is_of_placeholders(fetch):
            return super().evaluate(fetch)
        fetch.placed = fetch.placed or PlacedTensor(fetch)
        return fetch.placed.value(self)


class PlacedTensor:
    """A tensor's programs, one for each form of what is fed."""

    def __init__(self, tensor: Computed) -> None:
        """Take the tensor, which is computed of placeholders alone."""
        self._tensor = tensor
        self._inputs = list(dict.fromkeys(_fetches(tensor)))
        self._programs: dict[Any, CompiledComputation] = {}

    def value(self, running: Running) -> Array:
        """Run the program on what is fed; raises as computations do."""
        values = [running.value(each) for each in self._inputs]
        form = tuple((value.shape, value.dtype) for value in values)
        if form in self._programs:
            self._programs[form].run(values)
        else:
            self._programs[form] = CompiledComputation(self._computed, values, name="session_run", at_once=True)
        found: Array = np.asarray(self._programs[form].values())
        return found.astype(self._tensor.dtype, copy=False)

    def _computed(self, *values: Any) -> Any:
        known: dict[int, Any] = {id(each): value for each, value in zip(self._inputs, values, strict=True)}

        def value(tensor: Any) -> Any:
            if isinstance(tensor, Computed) and id(tensor) not in known:
                given = [value(each) for each in tensor.arguments]
                with nullcontext() if tensor.shard is None else ipu_shard(tensor.shard):
                    known[id(tensor)] = tensor.function(*given)
            return known.get(id(tensor), tensor)

        return value(self._tensor)


def _is_of_placeholders(tensor: Computed) -> bool:
    """Tell whether a tensor is computed of placeholders alone, so that a program by itself can compute it."""
    return all(isinstance(each, Placeholder) for each in _fetches(tensor))


def _fetches(tensor: Computed) -> Iterator[Fetch]:
    """Yield what a session has to evaluate to compute a tensor."""
    for each in tensor.arguments:
        if isinstance(each, Computed):
            yield from _fetches(each)
        elif isinstance(each, Fetch):
            yield each

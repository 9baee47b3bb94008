"""The hosts of an estimator: which of them is the chief, their shares of the data, and what they exchange."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ipusim.api import Array, machine
from ipusim.base.errors import ProgramError, ProgramStateError
from ipusim.ipu.estimators.program import Of
from ipusim.ipu.ipu_strategy import HostStrategy
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.distribution import averaging, gathered, in_scope_of, reduced
from ipusim.ipu.runtime.host import Fetch
from ipusim.ipu.tensorflow.distribute import InputContext

T = TypeVar("T")


class Workers:
    """The simulated hosts of a strategy, or this one alone where there is no strategy, or no other host."""

    def __init__(self, strategy: HostStrategy | None) -> None:
        """Take the strategy of what runs next."""
        self._strategy = strategy
        host = machine.this_host()
        self._host = None if strategy is None or host is None or host.count == 1 else host

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self._host is None else self._host.count

    @property
    def is_chief(self) -> bool:
        """Whether this one saves and logs."""
        return self._host is None or self._host.rank == 0

    def check(self, count: int) -> None:
        """Refuse an estimator that was made for ``count`` workers; raises ProgramStateError."""
        if self._strategy is not None and count != self.count:
            raise ProgramStateError(
                f"train_distribute: expected an estimator that each host makes on itself, got one of {count} "
                f"worker{'s' * (count != 1)} on one of {self.count} hosts"
            )

    def batch(self, name: str, size: Any, replicas: int) -> int | None:
        """Return the part of a batch that a replica of a worker has; raises ProgramError in Graphcore's words."""
        if size is None:
            return None
        if checks.integer(name, size) < 1:
            raise ProgramError(f"{name} (got {size}) must be positive")
        if size % (self.count * replicas):
            raise ProgramError(
                f"{name} (got {size}) must be divisible by num_workers * num_replicas ({self.count} * {replicas})"
            )
        return checks.whole(name, size) // (self.count * replicas)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Enter the strategy's scope for the block, in which gradients are averaged; without a strategy, leave any."""
        with in_scope_of(None), in_scope_of(self._strategy), averaging():
            yield

    def input_arguments(self) -> dict[str, Any]:
        """Return what an input function is given besides: an ``input_context`` under a strategy, as in TensorFlow."""
        if self._strategy is None:
            return {}
        rank = 0 if self._host is None else self._host.rank
        return {"input_context": InputContext(self.count, rank, self.count)}

    def of_chief(self, what: str, value: T) -> T:
        """Return the chief's value of what all have; it takes no simulated time."""
        of_chief: T = value if self._host is None else self._host.exchange(what, value)[0]
        return of_chief

    def any(self, stop: bool) -> bool:
        """Tell whether one of them asks to stop; it takes no simulated time."""
        return stop if self._host is None else any(self._host.exchange("the end of a run of an estimator", stop))

    def mean(self, loss: Fetch | None) -> Fetch | None:
        """Return the mean of a loss over all, which goes over their network."""
        if loss is None or self._host is None:
            return loss
        return Of(reduced("the mean loss of a run", loss, "average"), np.float32)

    def gather(self, value: Any) -> Array:
        """Return a value of all, one row a worker, which goes over their network."""
        row = np.asarray(value)[None]
        rows: Array = row if self._host is None else gathered("the metrics of an evaluation", row)
        return rows

"""Share an estimator's run among hosts: the chief, and a worker's share of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from ipusim.api import machine
from ipusim.base.errors import ProgramError, ProgramStateError, UnsupportedProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host_strategy import averages, in_scope_of
from ipusim.ipu.traced.host_collectives import reduced

T = TypeVar("T")
tf = load()
_HOOK: Any = tf.compat.v1.train.SessionRunHook


class Workers:
    """Hosts of a strategy, or this host alone if there is no strategy.

    An estimator communicates with other hosts only through this class.
    """

    def __init__(self, strategy: Any, config: Any) -> None:
        """Set the strategy of the coming run, and the RunConfig.

        Raises:
            UnsupportedProgramError: if there are several workers without a strategy.
        """
        self._strategy = strategy
        if config.train_distribute is None and config.num_worker_replicas + config.num_ps_replicas > 1:
            raise UnsupportedProgramError(
                "TF_CONFIG: expected one worker of a RunConfig without train_distribute, the strategy of several "
                f"workers, got {config.cluster_spec}"
            )

        host = machine.this_host()
        self._host = None if strategy is None or host is None or host.count == 1 else host

    @property
    def count(self) -> int:
        """Number of hosts."""
        return 1 if self._host is None else self._host.count

    @property
    def is_chief(self) -> bool:
        """Whether this host saves and logs."""
        return self._host is None or self._host.rank == 0

    def check(self, count: int) -> None:
        """Refuse an estimator created for a different number of hosts; raises ProgramStateError."""
        if self._strategy is not None and count != self.count:
            raise ProgramStateError(
                f"train_distribute: expected each host to make its own estimator, got an estimator of {count} "
                f"worker{'s' * (count != 1)} on one of {self.count} hosts"
            )

    def batch(self, name: str, size: Any, replicas: int) -> int | None:
        """Return a replica's share of a batch; raises ProgramError with Graphcore's message."""
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
        """Enter the strategy's scope with averaged gradients; without a strategy, leave the surrounding scope."""
        scope = nullcontext() if self._strategy is None else self._strategy.scope()
        with in_scope_of(None), scope, averages.set_to(True):
            yield

    def input_arguments(self) -> dict[str, Any]:
        """Return other arguments of an input function: ``input_context`` under a strategy."""
        if self._strategy is None:
            return {}
        rank = 0 if self._host is None else self._host.rank
        return {"input_context": tf.distribute.InputContext(self.count, rank, self.count)}

    def mean(self, loss: Any) -> Any:
        """Return the mean of a loss over all hosts, computed over the hosts' network."""
        return loss if loss is None or self._host is None else reduced("the mean loss of a run", loss, "average")

    def mean_metric(self, value: Any) -> Any:
        """Return the mean of a metric over all hosts, computed over the hosts' network."""
        if self._host is None:
            return value
        name = "the metrics of an evaluation"
        return np.mean(machine.all_gather(self._host, name, np.asarray(value)[None]), axis=0)

    def of_chief(self, subject: str, value: T) -> T:
        """Return the chief's value on all hosts, in no simulated time."""
        result: T = value if self._host is None else self._host.exchange(subject, value)[0]
        return result

    def hooks(self) -> list[Any]:
        """Return the hooks that run last on every host."""
        return [] if self._host is None else [_StopTogether(self._host)]


class _StopTogether(_HOOK):  # type: ignore[misc]  # TensorFlow has no types
    """Stops all hosts if one host requests a stop, in no simulated time."""

    def __init__(self, host: machine.Host) -> None:
        super().__init__()
        self._host = host

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if any(self._host.exchange("the end of a run of an estimator", run_context.stop_requested)):
            run_context.request_stop()

"""The hosts that run an estimator together: the chief, and each worker's share of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


class Workers:
    """The hosts of a strategy; this host alone where there is no strategy.

    All that an estimator knows of other hosts is asked for here.
    """

    def __init__(self, strategy: Any, config: Any) -> None:
        """Take the strategy of what runs next, and the RunConfig.

        Raises:
            UnsupportedProgramError: for several workers without a strategy.
        """
        self._strategy = strategy
        if strategy is None and config.num_worker_replicas + config.num_ps_replicas > 1:
            raise UnsupportedProgramError(
                "TF_CONFIG: expected one worker of a RunConfig without train_distribute, which says the strategy of "
                f"several, got {config.cluster_spec}"
            )

    @property
    def count(self) -> int:
        """The number of hosts."""
        return 1

    @property
    def is_chief(self) -> bool:
        """Whether this host saves and logs."""
        return True

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
        """Be in the strategy's scope in the block."""
        if self._strategy is None:
            yield
        else:
            with self._strategy.scope():
                yield

    def input_arguments(self) -> dict[str, Any]:
        """Return what an input function is given besides: an ``input_context`` under a strategy."""
        return (
            {} if self._strategy is None else {"input_context": tf.distribute.InputContext(self.count, 0, self.count)}
        )

    def mean(self, loss: Any) -> Any:
        """Return the mean of a loss over all hosts."""
        return loss

    def hooks(self) -> list[Any]:
        """Return hooks that all hosts need, behind all others."""
        return []

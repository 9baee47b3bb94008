"""What an estimator runs: a compiled program, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ipusim.ipu.host import Fetch, Running
from ipusim.ipu.tensorflow.session_run_hook import SessionRunHook


class Results(Fetch):
    """What one run of a program has sent, taken from its outfeed as soon as it has run."""

    def __init__(self, operation: Fetch, dequeued: Callable[[], Any]) -> None:
        """Take what runs the program, and what dequeues."""
        self._operation, self._dequeued = operation, dequeued

    def evaluate(self, running: Running) -> Any:
        """Run, and dequeue."""
        running.value(self._operation)
        return running.values(self._dequeued())


class Of(Fetch):
    """A function of what a run has sent."""

    def __init__(self, results: Fetch, function: Callable[[Any], Any]) -> None:
        """Take the results, and what is made of them."""
        self._results, self._function = results, function

    def evaluate(self, running: Running) -> Any:
        """Return it."""
        return self._function(running.value(self._results))


@dataclass(frozen=True, eq=False)
class EstimatorProgram:
    """A program of an estimator for one mode.

    Attributes:
        iterations: mini-batches of each replica in a run.
        loss: mean loss of a run; None for predictions.
        values: of an evaluation metrics by name, of predictions those of each mini-batch.
        hooks, chief_hooks: that the model function has named; the latter come before all others.
    """

    iterations: int
    loss: Fetch | None = None
    values: Fetch | None = None
    hooks: Sequence[SessionRunHook] = ()
    chief_hooks: Sequence[SessionRunHook] = ()


def mean_loss(losses: Any) -> np.float32:
    """Return the mean of a run's losses, over mini-batches and replicas."""
    return np.float32(np.mean(np.asarray(losses, np.float32)))

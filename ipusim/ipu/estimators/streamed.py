"""Metrics of an evaluation, which go on from run to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ipusim.ipu.tensorflow.estimator_spec import checked_metrics
from ipusim.ipu.tensorflow.metrics import Metric


class Streamed:
    """The metrics of an evaluation so far: sums of those of ``tf.metrics``, the last values of others."""

    def __init__(self) -> None:
        """Begin without any."""
        self._found: dict[str, Any] = {}

    def add(self, metrics: Mapping[str, object]) -> None:
        """Add those of one run; raises ProgramTypeError in TensorFlow's words for what is no metric."""
        for name, pair in checked_metrics(metrics).items():
            before = self._found.get(name)
            if isinstance(pair, Metric) and isinstance(before, Metric):
                self._found[name] = pair.summed([before.total, pair.total], [before.count, pair.count])
            else:
                self._found[name] = pair

    def join(self, each: Callable[[Any], Any]) -> None:
        """Add up the sums of several workers, and average the last values of others; ``each`` gives a value of all."""
        for name, pair in sorted(self._found.items()):
            if isinstance(pair, Metric):
                self._found[name] = pair.summed(each(pair.total), each(pair.count))
            else:
                value = np.mean(each(pair[1]), axis=0)
                self._found[name] = value, value

    def values(self) -> dict[str, Any]:
        """Return them by name, each as a number or an array."""
        return {name: np.asarray(pair[1])[()] for name, pair in sorted(self._found.items())}


def metrics_to_send(metrics: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return what the body of a loop sends of its metrics, by names of their own."""
    found: dict[str, Any] = {}
    for name, pair in metrics.items():
        if isinstance(pair, Metric):
            found |= {f"metric/{name}/total": pair.total, f"metric/{name}/count": pair.count}
        else:
            found[f"metric/{name}"] = pair[1]
    return found


def metrics_received(metrics: Mapping[str, tuple[Any, Any]], results: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the metrics of a run: sums over its mini-batches, or the last values, over replicas their mean."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, pair in metrics.items():
        if isinstance(pair, Metric):
            found[name] = pair.summed(results[f"metric/{name}/total"], results[f"metric/{name}/count"])
        else:
            value = np.mean(results[f"metric/{name}"][-1])
            found[name] = value, value
    return found

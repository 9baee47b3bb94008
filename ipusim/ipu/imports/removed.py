"""Accept statistics of data sets from earlier TensorFlow releases, without effect."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from ipusim.ipu.graph.tensorflow_import import load

tf = load()
_OPTIONS: Any = tf.data.Options


class Options(_OPTIONS):  # type: ignore[misc]
    """Options of a data set.

    Attributes:
        experimental_stats: options of the data set's statistics.
    """

    experimental_stats: ClassVar[Any] = SimpleNamespace()


class StatsAggregator:
    """Collector of statistics, always empty."""

    def get_summary(self) -> Any:
        """Return a summary without values."""
        return tf.constant(b"")


def latency_stats(tag: str) -> Callable[[Any], Any]:
    """Return the identity function of data sets.

    Args:
        tag: name of the statistics.
    """
    return lambda dataset: dataset


bytes_produced_stats = latency_stats

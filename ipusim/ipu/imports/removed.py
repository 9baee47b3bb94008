"""Statistics of data sets, which TensorFlow had in the releases of Graphcore's programs: without effect."""

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
        experimental_stats: options of its statistics.
    """

    experimental_stats: ClassVar[Any] = SimpleNamespace()


class StatsAggregator:
    """A collector of statistics, which collects none."""

    def get_summary(self) -> Any:
        """Return a summary without values."""
        return tf.constant(b"")


def latency_stats(tag: str) -> Callable[[Any], Any]:
    """Return the function that leaves a data set as it is.

    Args:
        tag: name of the statistics.
    """
    return lambda dataset: dataset


bytes_produced_stats = latency_stats

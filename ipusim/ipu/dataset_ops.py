"""Offer Graphcore's data set of whole buffers."""

from __future__ import annotations

from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


class BufferDataset:
    """Data set without the last elements, if they fill no whole buffer."""

    def __new__(cls, input_dataset: Any, buffer_size: int) -> Any:
        """Return the data set.

        Args:
            input_dataset: a ``tf.data.Dataset``.
            buffer_size: elements per buffer.

        Raises:
            ProgramTypeError: if input_dataset is not a data set or buffer_size is not a number.
            ProgramError: if buffer_size is below 1 (Graphcore's message).
        """
        checks.instance("input_dataset", input_dataset, tf.data.Dataset | tf.compat.v1.data.Dataset, "a Dataset")
        if checks.integer("buffer_size", buffer_size) < 1:
            raise ProgramError("Buffer size must be greater than zero.")
        return input_dataset.batch(buffer_size, drop_remainder=True).unbatch()

"""Input functions from arrays: TensorFlow 1's ``tf.estimator.inputs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Return an input function for a data set of array rows.

    Args:
        x: an array, or a dictionary of arrays.
        y: an array, or a dictionary of arrays; None for no labels.
        batch_size: rows per batch. With ``num_epochs`` None, an incomplete last batch is dropped.
        num_epochs: number of passes over the rows; None to repeat endlessly.
        shuffle: whether to shuffle the rows.
        queue_capacity: size of the shuffle buffer in rows.
        num_threads: without effect.

    Raises:
        ProgramError: ``shuffle`` is no truth value.
    """
    if not isinstance(shuffle, bool):
        raise ProgramError(f"shuffle must be provided and explicitly set as boolean, got {shuffle}")
    checks.whole("batch_size", batch_size, 1)

    def input_fn() -> Any:
        rows = tf.data.Dataset.from_tensor_slices(x if y is None else (x, y))
        rows = rows.shuffle(queue_capacity) if shuffle else rows
        return rows.repeat(num_epochs).batch(batch_size, drop_remainder=num_epochs is None)

    return input_fn

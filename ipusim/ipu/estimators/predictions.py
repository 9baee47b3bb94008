"""Select predictions of a session run by key, and divide a mini-batch into samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks


def chosen_of(predictions: Any, keys: Any) -> Any:
    """Return the predictions selected by keys; raises ProgramError with TensorFlow's message for unknown keys."""
    if not isinstance(predictions, dict):
        if keys is not None:
            raise ProgramError("predict_keys argument is not valid in case of non-dict predictions.")
        return predictions
    if keys is None:
        return predictions
    if isinstance(keys, str) or not (isinstance(keys, Collection) and all(isinstance(key, str) for key in keys)):
        checks.wrong_type("predict_keys", "a list of names", keys)
    result = {name: value for name, value in predictions.items() if name in keys}
    if not result:
        raise ProgramError(f"Expected to run at least one output from {list(predictions)}, provided {list(keys)}.")
    return result


def samples_of(batch: Any) -> Iterator[Any]:
    """Yield the samples of a mini-batch; raises ProgramError with TensorFlow's message for unequal lengths."""
    if not isinstance(batch, dict):
        yield from batch
        return
    lengths = {np.shape(item)[:1] for item in batch.values()}
    if len(lengths) != 1 or () in lengths:
        raise ProgramError("Batch length of predictions should be same.")
    for sample in range(*lengths.pop()):
        yield {name: item[sample] for name, item in batch.items()}

"""Predictions of mini-batches, sample by sample."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ipusim.errors import ProgramError
from ipusim.ipu import checks


def examples_of(batches: Any, keys: Any, single: bool, replicated: bool) -> Iterator[Any]:
    """Yield the predictions of one run, a value or a dictionary of them, sample by sample or batch by batch.

    ``batches`` have an axis of mini-batches, and where they are ``replicated`` one of replicas behind it. Of a
    dictionary the ``keys`` are yielded, by default all. Raises ProgramError in TensorFlow's words for others.
    """
    chosen = _chosen(batches, keys)
    flat = {name: _joined(np.asarray(each), replicated) for name, each in chosen.items()}
    alone = not isinstance(batches, dict)
    for number in range(min(len(each) for each in flat.values())):
        batch = {name: each[number] for name, each in flat.items()}
        if not single:
            yield batch[""] if alone else batch
            continue
        lengths = {np.shape(each)[:1] for each in batch.values()}
        if len(lengths) != 1 or () in lengths:
            raise ProgramError("Batch length of predictions should be same.")
        for place in range(*lengths.pop()):
            yield batch[""][place] if alone else {name: each[place] for name, each in batch.items()}


def _chosen(batches: Any, keys: Any) -> dict[str, Any]:
    if not isinstance(batches, dict):
        if keys is not None:
            raise ProgramError("predict_keys argument is not valid in case of non-dict predictions.")
        return {"": batches}
    if keys is None:
        return batches
    if isinstance(keys, str) or not (isinstance(keys, Collection) and all(isinstance(each, str) for each in keys)):
        checks.wrong_type("predict_keys", "a list of names", keys)
    found = {name: each for name, each in batches.items() if name in keys}
    if not found:
        raise ProgramError(f"Expected to run at least one output from {list(batches)}, provided {list(keys)}.")
    return found


def _joined(array: Any, replicated: bool) -> Any:
    """Return an array whose mini-batches of all replicas stand one behind the other."""
    return array.reshape(-1, *array.shape[2:]) if replicated else array

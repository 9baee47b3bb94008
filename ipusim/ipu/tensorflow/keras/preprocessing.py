"""``tf.keras.preprocessing``: sequences of different lengths made equally long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipusim.api import Array, functions
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.offered import offering


class sequence:  # noqa: N801 - Keras' name of a module
    """``tf.keras.preprocessing.sequence``."""

    @staticmethod
    def pad_sequences(
        sequences: Sequence[Sequence[Any]],
        maxlen: int | None = None,
        dtype: Any = "int32",
        padding: str = "pre",
        truncating: str = "pre",
        value: float = 0.0,
    ) -> Array:
        """Return an array of a row for each sequence, filled up or cut to ``maxlen``, by default to the longest.

        Args:
            sequences: lists of numbers, or of arrays of one shape.
            maxlen: elements of a row.
            dtype: of the array.
            padding: "pre" or "post": whether ``value`` stands before or behind a sequence.
            truncating: "pre" or "post": whether elements are cut off before or behind.
            value: what rows are filled up with.

        Raises:
            ProgramError: for other words, and for elements of different shapes.
            ProgramTypeError: for what is no sequence of sequences.
        """
        for name, word in {"padding": padding, "truncating": truncating}.items():
            if word not in ("pre", "post"):
                checks.wrong_value(name, "'pre' or 'post'", word)
        if not hasattr(sequences, "__len__") or not all(hasattr(item, "__len__") for item in sequences):
            checks.wrong_type("sequences", "a list of lists of numbers", sequences)
        length = max(map(len, sequences), default=0) if maxlen is None else checks.whole("maxlen", maxlen)
        shape = next((np.shape(item)[1:] for item in sequences if len(item)), ())
        result = np.full((len(sequences), length, *shape), value, checks.dtype("dtype", dtype, "biuf"))
        for row, item in zip(result, sequences, strict=True):
            part = item[max(len(item) - length, 0) :] if truncating == "pre" else item[:length]
            if len(part):
                with functions.Failing("pad_sequences: elements of one shape are expected"):
                    row[length - len(part) :] = part
                    if padding == "post":
                        row[:] = np.roll(row, len(part) - length, 0)
        return result


__getattr__, __dir__ = offering("tf.keras.preprocessing", {"sequence": f"{__name__}:sequence"})

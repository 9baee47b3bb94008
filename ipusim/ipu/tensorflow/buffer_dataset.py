"""Graphcore's dataset of whole buffers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.dataset import Dataset
from ipusim.ipu.tensorflow.dataset_elements import Element


class BufferDataset(Dataset):
    """A dataset that has a multiple of ``buffer_size`` elements: those at its end that fill no buffer are dropped.

    Raises ProgramTypeError for what is no dataset or number, ProgramError in Graphcore's words for one below 1.
    """

    def __init__(self, input_dataset: Dataset, buffer_size: int) -> None:
        """Check the arguments."""
        checks.instance("input_dataset", input_dataset, Dataset, "a Dataset")
        if checks.integer("buffer_size", buffer_size) < 1:
            raise ProgramError("Buffer size must be greater than zero.")

        def begin() -> Iterator[Element]:
            source = input_dataset._begin()
            while len(buffer := list(itertools.islice(source, buffer_size))) == buffer_size:
                yield from buffer

        length = input_dataset.length
        super().__init__(begin, length if length in (None, math.inf) else length // buffer_size * buffer_size)

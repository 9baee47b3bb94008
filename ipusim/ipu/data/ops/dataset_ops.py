"""Datasets of Graphcore's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.dataset import Dataset
from ipusim.ipu.dataset_elements import Element

__all__ = ["BufferDataset"]


class BufferDataset(Dataset):
    """A dataset that has a multiple of ``buffer_size`` elements: those at its end that fill no buffer are dropped.

    Raises ProgramTypeError for what is no dataset or number, ProgramError in Graphcore's words for one below 1.
    """

    def __init__(self, input_dataset: Dataset, buffer_size: int) -> None:
        """Check the arguments."""
        if not isinstance(input_dataset, Dataset):
            checks.wrong_type("input_dataset", "a Dataset", input_dataset)
        if checks.integer("buffer_size", buffer_size) < 1:
            raise ProgramError("Buffer size must be greater than zero.")

        def begin() -> Iterator[Element]:
            source = input_dataset._begin()
            while len(buffer := list(itertools.islice(source, buffer_size))) == buffer_size:
                yield from buffer

        super().__init__(begin, input_dataset.length)

"""Samples: datasets from files, synthetic and built-in datasets, and feeds of micro-batches.

As ``datasets`` of :mod:`ipusim.api` this room offers datasets, and readers for files of samples.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.data.dataset_files import read_idx
    from ipusim.model.data.synthetic import synthetic_classes
else:
    __getattr__, __dir__ = lazy(__name__)

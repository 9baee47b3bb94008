"""Samples: datasets of files, made and built-in ones, and the feeds that take micro-batches from them.

As ``datasets`` of :mod:`ipusim.api` this room offers datasets, and how files of samples are read.
"""

from typing import TYPE_CHECKING

from ipusim.base.lazy import lazy

if TYPE_CHECKING:
    from ipusim.model.data.dataset_files import read_idx
    from ipusim.model.data.synthetic import synthetic_classes
else:
    __getattr__, __dir__ = lazy(__name__)

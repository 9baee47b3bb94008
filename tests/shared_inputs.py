"""What is read and drawn for many tests, once in a process: texts of scenarios, and the samples that models learn.

A third of the time of loading a small scenario went into YAML that another test had read, and a tenth of a second into
drawing the tutorial's samples, each time the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import pytest

from ipusim.app.scenario import source
from ipusim.app.scenario.problems import ScenarioError
from ipusim.model.data import dataset_files
from ipusim.runs.assemble import data
from ipusim.runs.places import Place

#: Datasets in memory at most, of up to 16 MB each: more than tests that follow each other use.
_DATASETS = 8
_TEXTS = 256


@contextmanager
def remembered() -> Iterator[None]:
    """Read texts of scenarios, draw synthetic classes and read the digits once while the block runs."""
    read = source.parse_source
    once = lru_cache(_TEXTS)(partial(read, path=Path()))  # tests write the same text into a folder of each's own

    @lru_cache(_TEXTS)
    def placed(text: str, path: Path) -> source.Source:
        found, here = once(text), str(path)
        values, keys = (
            {key: Place(here, place.line, place.column) for key, place in of.items()}
            for of in (found.values, found.keys)
        )
        return replace(found, path=path, values=values, keys=keys)

    def parse_source(text: str, path: Path) -> source.Source:
        try:
            found = placed(text, path)
        except ScenarioError:
            return read(text, path)  # whose message names the file
        return replace(found, data=deepcopy(found.data))  # which a test may change

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "parse_source", parse_source)
        patch.setattr(data, "synthetic_classes", lru_cache(_DATASETS)(data.synthetic_classes))
        patch.setattr(dataset_files, "digits", lru_cache(_DATASETS)(dataset_files.digits))
        yield

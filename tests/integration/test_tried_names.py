"""What the page of Graphcore's API says works is tried by a program: its test fails where it is taken away."""

from __future__ import annotations

import pytest

from tests.effort import rarest
from tests.tried_names import Sabotage, in_table, wanted, without_test

FILES = sorted({test.partition("::")[0] for test in in_table().values()})


def test_every_name_and_every_argument_that_works_has_its_test():
    """``python -m tests.tried_names`` finds tests, and writes the table again."""
    assert len(wanted()) > 500
    assert without_test(in_table()) == []
    assert set(in_table()) <= set(wanted())


@pytest.mark.parametrize("file", FILES)
@rarest
def test_what_a_test_tries_is_missed_where_it_is_taken_away(file):
    tries = Sabotage({key: test for key, test in in_table().items() if test.startswith(f"{file}::")})
    tries.run()
    assert tries.not_missed == set()


def test_a_homonym_counts_for_nothing():
    """A test that calls IPUEstimator.train misses no other train, and one that gives no argument misses none."""
    test = next(test for key, test in in_table().items() if key.startswith("ipu.ipu_estimator.IPUEstimator.train"))
    others = ["ipu.ipu_pipeline_estimator.IPUPipelineEstimator.train", "ipu.ipu_compiler.compile(inputs)"]
    tries = Sabotage(dict.fromkeys(others, test))
    tries.run()
    assert tries.not_missed == set(others)

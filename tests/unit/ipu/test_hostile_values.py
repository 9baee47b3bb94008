"""Values that nobody means, at the doors of Graphcore's API: one message each, and soon."""

import numpy as np
import pytest

from ipusim.app.render.lettering import _outline_width, text_width, truncate
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime.pipeline_options import plan_options
from ipusim.machine import feeds
from tests.programs import hosted_names, pipelined

HOLDS_ITSELF: list = []
HOLDS_ITSELF.append(HOLDS_ITSELF)
#: The last one is a number of a thousand million digits.
NO_SHARES = ["1/0", "0/0", "x" * 40_000, "9" * 5000, 10**5000, HOLDS_ITSELF, float("nan"), None, True, "1e999999999"]


@pytest.mark.parametrize("option", ["availableMemoryProportion", "partialsType"])
@pytest.mark.parametrize("value", NO_SHARES, ids=map(str, range(len(NO_SHARES))))
def test_options_of_products_that_say_nothing_are_refused(option, value):
    with pytest.raises(ProgramError, match=rf"^options: expected .* {option}.*, got") as error:
        plan_options({option: value}, "options")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("value", [1, 1.0, np.float32(0.5), "0.25", " 1/3 ", "5e-1", ".5", "+0.1"])
def test_shares_are_read_as_they_were(value):
    assert 0 < plan_options({"availableMemoryProportion": value}, "options").memory_proportion <= 1


def test_a_name_of_any_length_is_cut_soon_and_as_before():
    calls = _outline_width.cache_info().misses
    assert truncate("x" * 1000, 10, 100) == "x" * 15 + "…"
    assert _outline_width.cache_info().misses - calls < 20
    for word in ("exchange", "AVAVAVAV", "W" * 40, ""):
        for width in range(5, 120, 7):
            ends = [end for end in range(len(word), 0, -1) if text_width(word[:end] + "…", 9) <= width]
            whole = text_width(word, 9) <= width
            assert truncate(word, 9, width) == (word if whole else word[: ends[0] if ends else 0] + "…")


def test_an_outfeed_takes_no_more_memory_than_the_run_sends(monkeypatch):
    depths = []

    class Counted(feeds.HostStream):
        def __init__(self, *words, depth, **options):
            depths.append(depth)
            super().__init__(*words, depth=depth, **options)

    monkeypatch.setattr(feeds, "HostStream", Counted)
    with hosted_names() as names:
        deep = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue(buffer_depth=10**9)
        dataset = names.tf.data.Dataset.from_tensors(np.zeros((2, 3), np.float32)).repeat()
        pipelined(names, [names.tf.nn.relu] * 2, dataset, 4, queue=deep, outfeed_queue=deep)
    assert 0 < max(depths) < 100

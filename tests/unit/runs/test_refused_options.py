"""What a schedule, a sync mode or a system refuses is told at the option that asked for it, with what would do."""

import pytest

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError, dotted
from ipusim.runs.request.request import Request


def refused(stages=4, passes=("forward", "backward"), system=(), **pipeline):
    """Return the option of the one problem of a pipeline of stages known by their cost, and its text."""
    costs = [{"name": f"s{number}"} | dict.fromkeys(passes, 100) for number in range(stages)]
    options = {"system": {"name": "m2000"} | dict(system), "pipeline": {"gradient_accumulation_count": 8} | pipeline}
    options["pipeline"]["stages"] = costs
    with pytest.raises(RequestError) as caught:
        assemble(Request.from_dict(options))
    (problem,) = caught.value.problems
    return dotted(problem.path), problem.text


@pytest.mark.parametrize(
    ("options", "key", "text"),
    [
        (
            {"schedule": "1f1b", "device_mapping": [0, 1, 2, 3], "passes": ["forward"]},
            "pipeline.schedule",
            "The pipelining schedule '1f1b' does not support inference.",
        ),
        (
            {
                "schedule": "grouped",
                "sync": "point_to_point",
                "system": {"io_tiles": {"num_io_tiles": 32, "place_ops_on_io_tiles": True}},
            },
            "pipeline.sync",
            "I/O tiles",
        ),
        (
            {"batch_serialization_iterations": 2, "virtual_stages": 2},
            "pipeline.virtual_stages",
            "all the pipeline stages need to be mapped to a single IPU",
        ),
        ({"schedule": "single", "virtual_stages": 2}, "pipeline.virtual_stages", "IPU"),
        (
            {"device_mapping": [0, 1, 2, 3], "system": {"host": {"count": 129, "sum_over": "links"}}},
            "system.host.count",
            "expected at most",
        ),
    ],
    ids=["inference", "sync", "serialized", "single", "hosts"],
)
def test_it_is_told_at_the_option_that_asks_for_it(options, key, text):
    told, said = refused(**options)
    assert told == key, said
    assert text in said

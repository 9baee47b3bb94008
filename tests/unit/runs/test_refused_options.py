"""What a schedule, a sync mode or a system refuses is told at the option that asked for it, with what would do."""

import pytest

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError, dotted
from ipusim.runs.request.request import Request


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
    """Options are those of a pipeline of four stages, but for the passes that these have and for the system's."""
    passes, system = options.get("passes", ("forward", "backward")), options.get("system", {})
    pipeline = {name: value for name, value in options.items() if name not in ("passes", "system")}
    pipeline["stages"] = [{"name": f"s{number}"} | dict.fromkeys(passes, 100) for number in range(4)]
    pipeline["gradient_accumulation_count"] = 8
    with pytest.raises(RequestError) as caught:
        assemble(Request.from_dict({"system": {"name": "m2000"} | system, "pipeline": pipeline}))
    (problem,) = caught.value.problems
    assert dotted(problem.path) == key, problem.text
    assert text in problem.text

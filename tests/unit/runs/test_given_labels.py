"""Bytes of labels that a stage known by its cost says: no gradient comes back for them."""

import pytest

from ipusim.pipeline.ops import Pass
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request


def asked(labels):
    """Return a request of four stages, of which the second and the third run at the same time."""
    last = {"name": "d", "forward": 10, "backward": 20, "gradient_bytes": 3000}
    beside = {"forward": 10, "backward": 20, "output_bytes": 1000}
    return Request.from_dict(
        {
            "system": {"name": "m2000"},
            "pipeline": {
                "stages": [
                    {"name": "a", "forward": 10, "backward": 20, "output_bytes": 500, "label_bytes": 0},
                    [{"name": "b", **beside}, {"name": "c", **beside, "label_bytes": labels}],
                    last,
                ],
                "device_mapping": [0, [1, 2], 3],
                "gradient_accumulation_count": 12,
            },
        }
    )


@pytest.mark.parametrize(("labels", "parts"), [(0, (1500, 1500)), (500, (2000, 1000)), (1000, (3000, 0))])
def test_gradients_go_where_what_learns_came_from(labels, parts):
    job = assemble(asked(labels))
    assert (job.program.sent_bytes(3, 1), job.program.sent_bytes(3, 2)) == parts
    assert (job.program.sent_bytes(2, 3), job.costs.passes[Pass.FORWARD, 2]) == (1000, 10)


def test_more_labels_than_leave_the_stage_are_refused():
    with pytest.raises(RequestError) as caught:
        assemble(asked(1001))
    (problem,) = caught.value.problems
    assert problem.path == ("pipeline", "stages", 1, 1, "label_bytes")
    assert problem.text == "expected at most the output_bytes, 1000, got 1001"

"""Which tensors have the links of their route to themselves, so that their arrival is known when they are sent."""

import pytest

from ipusim.machine import delivery
from ipusim.machine.tensor_ways import lanes_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request

#: Bytes that an IPU-Link of a Mk2 IPU carries in 1,000 cycles or more.
BYTES = 32_000
#: Both ways between three stages: replica, copy of the pipeline, sending and receiving stage.
FORWARD, BACKWARD = {(0, 0, 0, 1), (0, 0, 1, 2)}, {(0, 0, 2, 1), (0, 0, 1, 0)}


@pytest.fixture
def lanes(monkeypatch):
    """Return a function from passes' cycles to the lanes and the sends of a run; options are the request's."""

    def found(forward, backward, **options):
        stages = [
            {"name": name, "forward": forward, "backward": backward, "output_bytes": BYTES, "gradient_bytes": BYTES}
            for name in "abc"
        ]
        del stages[0]["gradient_bytes"]
        pipeline = {"schedule": "gpipe", "sync": "point_to_point", "gradient_accumulation_count": 4, "stages": stages}
        system = {"name": "m2000"}
        job = assemble(Request.from_dict({"system": system, "pipeline": pipeline, **options}))
        contexts = []
        monkeypatch.setattr(delivery, "lanes_of", lambda context: contexts.append(context) or lanes_of(context))
        execute(job, jump=False)
        return lanes_of(contexts[0]), contexts[0].costs.sends

    return found


def test_tensors_no_longer_on_links_than_a_pass_have_lanes(lanes):
    _, sends = lanes(1, 1)
    (longest, _), (_, second) = sorted(((int(sends[key].cycles), key) for key in FORWARD), reverse=True)
    assert lanes(longest, longest)[0] == FORWARD | BACKWARD
    assert lanes(longest - 1, longest)[0] == BACKWARD | {second}
    assert lanes(longest, longest - 1)[0] == FORWARD | {(0, 0, second[3], second[2])}


def test_jitter_may_shorten_a_pass(lanes):
    _, sends = lanes(1, 1)
    cycles = max(int(send.cycles) for send in sends.values())
    jitter = [{"jitter": "5 %"}]
    assert lanes(cycles, 2 * cycles, disturbances=jitter)[0] == BACKWARD
    assert lanes(2 * cycles, 2 * cycles, disturbances=jitter)[0] == FORWARD | BACKWARD


@pytest.mark.parametrize(
    ("disturbance", "found"),
    [
        ({"link": [0, 1], "slower": 2}, {(0, 0, 1, 2), (0, 0, 2, 1)}),
        ({"link": [0, 1], "delay": 10}, {(0, 0, 1, 2), (0, 0, 2, 1)}),
        ({"ipu": 2, "slower": 2}, {(0, 0, 0, 1), (0, 0, 1, 0)}),
        ({"link": [0, 1], "dead": True, "from": 5000}, set()),
    ],
    ids=["slow cable", "late cable", "slow IPU", "new routes"],
)
def test_disturbed_parts_have_no_lanes(lanes, disturbance, found):
    assert lanes(10_000, 10_000, disturbances=[disturbance])[0] == found

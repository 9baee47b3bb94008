"""What laying schedules out costs beside 1F1B's, and that a long execution costs no more than a short one."""

from __future__ import annotations

import pytest

from ipusim.pipeline.plan import Sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.request.request import Request
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import find, names
from tests.schedules import goes_around, is_halved

IPUS, COUNT, LONG = 64, 1024, 1 << 20
NAMES = [name for name in names() if Feature.SEVERAL_IPUS in find(name).supports]
ROUNDS = 4


def request(name: str, count: int, sync: Sync) -> Request:
    """Return a request of 64 IPUs, with two stages on each where that is the schedule's point."""
    stages = IPUS * (2 if goes_around(name) else find(name).per_ipu)
    stage = {"forward": 1000, "backward": 2000, "output_bytes": 4096, "gradient_bytes": 4096}
    stage |= {"backward_input": 1000, "backward_weights": 1000} if is_halved(name) else {}
    lines = [{**stage, "name": f"s{number}"} for number in range(stages)]
    del lines[0]["gradient_bytes"], lines[-1]["output_bytes"]
    pipeline = {"schedule": name, "sync": sync.value, "gradient_accumulation_count": count, "stages": lines}
    pipeline |= {"device_mapping": [*range(IPUS)] * 2} if goes_around(name) else {}
    # Schedules whose IPUs keep all micro-batches do not fit at the longer count, which is laid out all the same.
    return Request.from_dict({"system": {"name": "pod64"}, "pipeline": pipeline, "training": True, "memory": "report"})


@pytest.mark.parametrize(("name", "sync"), [(name, sync) for name in NAMES for sync in find(name).syncs])
def test_laying_out_costs_little_more_than_1f1b(name, sync, ratio):
    """Whole requests, from options to a checked Job; 1F1B's takes a ninth of a second, in lock-step a sixth."""
    found = ratio(
        f"{name} in {sync.words}: 64 IPUs x 1,024 micro-batches, assembled, against 1f1b",
        lambda: assemble(request(name, COUNT, sync)),
        lambda: assemble(request("1f1b", COUNT, sync)),
        rounds=ROUNDS,
    )
    assert found <= 12


@pytest.mark.parametrize("name", NAMES)
def test_a_long_execution_is_laid_out_as_quickly(name, ratio):
    sync = find(name).syncs[0]
    found = ratio(
        f"{name}: assembled, 1,048,576 micro-batches against 1,024",
        lambda: assemble(request(name, LONG, sync)),
        lambda: assemble(request(name, COUNT, sync)),
    )
    assert found <= 1.2

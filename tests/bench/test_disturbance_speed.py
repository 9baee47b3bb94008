"""What many disturbances cost: function calls of a run, which are the same on any machine."""

from __future__ import annotations

import cProfile
import pstats
import random
from typing import Any

import pytest

from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.request.request import Request

#: Windows of disturbances and micro-batches of the smaller run, and how many times as many the larger one has.
WINDOWS, COUNT, TIMES = 100, 64, 4
#: How many times the calls of a run without disturbances one with two windows a micro-batch takes at most: look-ups,
#: fractions, and the states of some ten runs in which a part to be left out is looked for.
MORE = 12
#: Cycles of a micro-batch on an IPU, about.
PASSES = 3000


def request(windows: int, count: int, sync: str) -> Request:
    """Return a pipeline of four IPUs with so many windows, spread over all of its run, in which one of them is slow."""
    rng, stages = random.Random(2), []
    for number in range(4):
        sizes = {"output_bytes": 3000} if number < 3 else {}
        sizes |= {"gradient_bytes": 3000} if number else {}
        stages.append({"name": f"s{number}", "forward": PASSES // 3, "backward": 2 * PASSES // 3, **sizes})
    slow: list[dict[str, Any]] = []
    for _ in range(windows):
        first = rng.randrange(count * PASSES)
        slow.append({"ipu": rng.randrange(4), "slower": 2, "from": first, "until": first + rng.randrange(1, 600)})
    pipeline = {"schedule": "1f1b", "sync": sync, "gradient_accumulation_count": count, "stages": stages}
    return Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline, "disturbances": slow})


def calls(windows: int, count: int, sync: str, *, jump: bool = True) -> int:
    """Return the function calls that it takes to assemble and run so many windows and micro-batches."""
    asked = request(windows, count, sync)
    profile = cProfile.Profile()
    profile.runcall(lambda: execute(assemble(asked), jump=jump))
    return int(pstats.Stats(profile).total_calls)


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_windows_and_micro_batches_each_cost_by_their_number_and_not_by_their_product(sync: str) -> None:
    """Four times as many of both take about four times as long: a product of them would take sixteen times."""
    calls(1, 8, sync)  # which imports what is missing
    for times in (1, TIMES):
        windows, count = times * WINDOWS, times * COUNT
        plain, disturbed = calls(0, count, sync, jump=False), calls(windows, count, sync)
        ratio = disturbed / plain
        print(f"\n{windows} windows on {count} micro-batches: {disturbed} calls, {ratio:.1f} times those without")
        assert ratio <= MORE

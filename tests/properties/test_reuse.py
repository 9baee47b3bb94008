"""A request that is assembled with what others left comes to the same as by itself, whatever differs between them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.cache import Cache
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.effort import share
from tests.properties.test_disturbed_runs import LEARNING
from tests.properties.test_option_combinations import scenarios
from tests.scenarios import job_from

#: Changes that leave most as it is, and some that leave little.
CHANGES = (
    {},
    {"pipeline.gradient_accumulation_count": 24},
    {"pipeline.gradient_accumulation_count": 7},
    {"pipeline.repeat_count": 2, "steps": 3},
    {"pipeline.schedule": "sequential"},
    {"pipeline.schedule": "1f1b"},
    {"pipeline.schedule": "1f1b", "pipeline.sync": "lock_step"},
    {"pipeline.micro_batch_size": 1},
    {"system.name": "m2000", "rates.amp_ceiling": 0.5},
    {"rates.amp_ceiling": 0.5},
    {"optimizer.learning_rate": 0.5},
    {"precision": "float16"},
    {"code_bytes": 4096},
    {"disturbances": [{"ipu": 0, "slower": 2}, {"jitter": "5 %"}]},
    {"disturbances": []},
    {"infeed.element_bytes": 64},
    {"pipeline.allow_recompute": True},
)


def found(request, changes):
    """Return everything that an assembly says, or what is wrong with it."""
    try:
        job = assemble(request.replace({"numerics": "off", **changes}))
    except RequestError as error:
        return sorted(map(str, error.problems))
    return (
        job.system,
        job.program,
        job.plan.listing(),
        job.costs,
        job.schedule.name,
        job.memory.peaks,
        job.memory.footprint,
        job.notes,
        job.steps,
    )


@settings(max_examples=share(40))
@given(scenario=scenarios(), chosen=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=4))
def test_what_others_left_changes_nothing(scenario, chosen):
    request, cache = Request.from_dict(scenario, name="drawn"), Cache()
    for changes in chosen:
        with cache.activate():
            shared = found(request, changes)
        assert shared == found(request, changes)


def test_arithmetic_of_one_request_knows_nothing_of_another():
    with Cache().activate():
        first, second = (job_from(LEARNING).workload(0) for _ in range(2))
    assert first is not second
    for one, other in zip(first.feed.element(1), second.feed.element(1), strict=True):
        np.testing.assert_array_equal(one, other)

"""Outcomes of runs that differ in seeds of jitter are those of simulations, also where they are computed together."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product

from ipusim.api import Request
from ipusim.app.sweep.outcome import outcome_of
from ipusim.app.sweep.seeds import disturbed_outcomes
from ipusim.app.sweep.weak_points import one_at_a_time
from ipusim.hardware.disturbances import Jitter
from tests.effort import share
from tests.properties.test_retiming import cases

#: Drawn requests with jitter, and the seeds that each is run with.
REQUESTS, SEEDS = 200, 4


def requests_with_jitter(count: int) -> Iterator[Request]:
    """Yield so many drawn requests with jitter, some with slower IPUs and several jitters."""
    drawn = (case.job.request for case in cases(20 * count, seed=1) if jitters(case.job.system.disturbances))
    yield from islice(drawn, count)


def jitters(disturbances) -> list[int]:
    return [place for place, each in enumerate(disturbances) if isinstance(each, Jitter)]


def test_computed_outcomes_are_those_of_simulations() -> None:
    rng = random.Random(2)
    seen = computed = 0
    for request in requests_with_jitter(share(REQUESTS)):
        places = [at for at, each in enumerate(request.options.disturbances) if hasattr(each, "seed")]
        points = {number: {f"disturbances.{at}.seed": rng.randrange(2**32) for at in places} for number in range(SEEDS)}
        outcomes = dict(disturbed_outcomes(request, points))
        for number, outcome in outcomes.items():
            assert outcome == outcome_of(request, points[number]), (request.to_dict(), points[number])
        seen, computed = seen + 1, computed + (len(outcomes) > 1)
    assert seen > 0
    # The others have tensors that share links, or another reason of the domain of times without events.
    assert computed >= 0.8 * seen, (computed, seen)


def test_outcomes_of_slower_ipus_and_cables_are_those_of_simulations() -> None:
    """Also beside jitter, and for each value of another option; cables without shared links are computed too."""
    computed: Counter[str] = Counter()
    for case in cases(20 * share(REQUESTS), seed=5, one_in=40):
        request = case.job.request
        slower = one_at_a_time(request, 1.5).values
        points = {
            number: {"disturbances": value, "pipeline.repeat_count": count}
            for number, (value, count) in enumerate(product(slower, (1, 2)))
        }
        for number, outcome in disturbed_outcomes(request, points):
            assert outcome == outcome_of(request, points[number]), (case.name, points[number])
            computed.update(points[number]["disturbances"][-1].keys() & {"ipu", "link"} if number > 1 else ())
    assert computed["ipu"] >= 20, computed
    assert computed["link"] >= 20, computed


def test_other_changes_than_seeds_are_left_to_simulations() -> None:
    request = next(requests_with_jitter(1))
    points = {number: {"pipeline.gradient_accumulation_count": 8 * (number + 1)} for number in range(4)}
    assert not list(disturbed_outcomes(request, points))
    few = {number: {"disturbances.0.seed": number} for number in range(2)}
    assert not list(disturbed_outcomes(request, few))

"""Figures of runs of up to 63 bits: those of a run of fewer cycles, times as many, or the run is refused."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from ipusim.app.explain.explanation import explain
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.schedules.registry import names
from tests.effort import seeds
from tests.schedules import goes_around, is_a_v, mapping_of

#: What a stage's cycles are multiples of, so that parts for each IPU, stage and half of a pass are whole.
EVEN = 288
#: Most cycles of a pass, which the schema has.
MOST = 10**11


def scenario(seed: int, times: int, count: int) -> dict[str, Any]:
    """Return a drawn scenario, on a machine where only passes and updates take time, of ``times`` as many cycles."""
    rng = random.Random(seed)
    schedule, ipus = rng.choice(sorted(names())), 4
    stages = []
    turns = 2 if is_a_v(schedule) or goes_around(schedule) else 1
    for number in range(ipus * turns):
        forward, update = EVEN * rng.randint(1, 3), EVEN * rng.randint(0, 2)
        stages.append({"name": f"s{number}", "forward": forward, "backward": 2 * forward, "update": update})
    for stage in stages:
        stage |= {key: times * stage[key] for key in ("forward", "backward", "update")}
    pipeline: dict[str, Any] = {"schedule": schedule, "stages": stages, "gradient_accumulation_count": count}
    if turns > 1:
        pipeline["device_mapping"] = list(mapping_of(schedule, ipus * turns))
    system = {"name": "free", "auto_select_ipus": ipus * rng.choice((1, 2, 16))}
    return {"system": system, "pipeline": pipeline, "memory": "off"}


def figures(data: object, path: str = "") -> Iterator[tuple[str, int | float]]:
    """Yield every number of nested data with its path."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from figures(value, f"{path}.{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from figures(value, f"{path}.{number}")
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path, data


def told(request: Request) -> dict[str, int | float]:
    """Return every number that is told of a run and its idle time."""
    run = execute(assemble(request))
    return dict(figures({"run": run.summary.to_dict(), "why": explain(run.timeline, "-").data()}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", seeds(60))
def test_figures_grow_with_the_cycles_of_passes_until_the_run_is_refused(seed: int) -> None:
    """Every figure in cycles is as many times as large, and every share the same; else the run is too long."""
    count, refused = 48 * random.Random(seed).choice((1, 1_000, 1_000_000)), 0
    base = told(Request.from_dict(scenario(seed, 1, count)))
    cycles = {path: value for path, value in base.items() if "cycles" in path and isinstance(value, int)}
    assert cycles
    shares = {path: value for path, value in base.items() if "fraction" in path or "share" in path}
    for power in range(3, 10, 2):
        times = 10**power
        if times * 6 * EVEN > MOST:
            break
        try:
            more = told(Request.from_dict(scenario(seed, times, count)))
        except RequestError as error:
            (problem,) = error.problems
            assert problem.path == ("pipeline",)
            refused += 1
            continue
        assert not refused, "a longer run is not refused, and a shorter one is"
        assert {path: more[path] for path in cycles} == {path: times * value for path, value in cycles.items()}
        assert {path: more[path] for path in shares} == pytest.approx(shares)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", seeds(40))
def test_figures_grow_with_the_product_of_disturbances_until_one_of_them_is_refused(seed: int) -> None:
    """Every IPU is as many times slower by each of several disturbances: passes take the product of all."""
    data = scenario(seed, 1, 48 * random.Random(seed).choice((1, 1_000)))
    base, plain, disturbances = execute(assemble(Request.from_dict(data))), 1, list[dict[str, Any]]()
    ipus = base.job.system.count
    for _ in range(8):
        plain *= 1000
        disturbances += [{"ipu": ipu, "slower": 1000} for ipu in range(ipus)]
        try:
            run = execute(assemble(Request.from_dict(data | {"disturbances": disturbances})))
        except RequestError as error:
            (problem,) = error.problems
            assert problem.path in (("disturbances", len(disturbances) - ipus, "slower"), ("pipeline",))
            break
        assert run.timeline.makespan_cycles == plain * base.timeline.makespan_cycles
        shares = (
            {path: value for path, value in figures(of.summary.times_dict()) if "fraction" in path}
            for of in (run, base)
        )
        assert next(shares) == pytest.approx(next(shares))
    else:
        pytest.fail("no product is refused")

"""Outcomes of seeds, and words of stragglers and of changes, are those of simulations where no event is simulated."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import Any

import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.api import Request, assemble, runs
from ipusim.app.explain.stragglers import stragglers
from ipusim.app.explain.trial import WhatIf
from ipusim.app.explain.what_if import what_if
from ipusim.app.sweep.outcome import outcome_of
from ipusim.app.sweep.seeds import disturbed_outcomes
from ipusim.app.sweep.weak_points import one_at_a_time
from ipusim.base.errors import IpusimError
from ipusim.hardware.disturbances import Jitter
from ipusim.retiming.retiming import Retiming
from ipusim.runs import other_passes, time_alone, waterfall
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.runs.execute import execute
from tests.effort import seeds, share
from tests.properties.test_retiming import cases
from tests.schedules import is_a_v

#: Drawn requests, and the seeds that each with jitter is run with.
REQUESTS, SEEDS = 200, 4
#: Schedules whose IPUs go on by themselves, and others.
FREELY = ("1f1b", "eager_1f1b", "zero_bubble_h1")
OTHERS = (
    "grouped",
    "interleaved",
    "zbv",
    "v_half",
    "dualpipe",
    "dualpipe_v",
    "hanayo",
    "zero_bubble_h2",
    "v_min",
)


def test_words_are_those_of_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of runs with disturbances, several executions and hosts; most are computed in part."""
    seen, computed = 0, []
    executions = Retiming.executions

    def counted(self: Retiming, *args: object) -> object:
        found = executions(self, *args)  # type: ignore[arg-type]
        computed.append(bool(found.exact.all()))
        return found

    for case in cases(20 * share(REQUESTS), seed=3, one_in=20):
        try:
            timeline = execute(case.job).timeline
        except IpusimError:  # as with a stage whose program does not learn
            continue
        with monkeypatch.context() as patch:
            patch.setattr(Retiming, "executions", counted)
            found = stragglers(case.job, timeline)
        with monkeypatch.context() as patch:
            patch.setattr(other_passes, "are_quick", lambda *_: False)
            assert stragglers(case.job, timeline) == found, case.name
        seen += 1
    assert sum(computed) >= 0.6 * seen > 0, (computed, seen)


def test_waterfalls_and_changes_are_those_of_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of a run without repetition; many of its changed runs are computed without events."""
    seen, lengths = 0, []
    run_without_events = other_passes.run_without_events

    def counted(*args: Any, **keywords: Any) -> int | None:
        lengths.append(run_without_events(*args, **keywords))
        return lengths[-1]

    for case in cases(20 * share(REQUESTS), seed=4, one_in=40):
        try:
            timeline = execute(case.job, jump=False).timeline
        except IpusimError:  # as with a stage whose program does not learn
            continue
        job = case.job
        with monkeypatch.context() as patch:
            for module in (waterfall, runs):
                patch.setattr(module, "run_without_events", counted)
            found = waterfall.waterfall_of(job, timeline), what_if(job, timeline)
            of_length = waterfall.waterfall_of(job, throughput_of(timeline).run_cycles) if not job.between else found[0]
        with monkeypatch.context() as patch:
            patch.setattr(other_passes, "MOST_PASSES_OF_ONE_RUN", 0)
            simulated = waterfall.waterfall_of(job, timeline), what_if(job, timeline)
        assert _outcomes(found[1]) == _outcomes(simulated[1]), case.name
        assert found[0] == of_length == simulated[0], case.name
        seen += 1
    assert sum(length is not None for length in lengths) >= 2 * seen > 0, (len(lengths), seen)


@pytest.mark.parametrize("is_short", [True, False])
def test_lengths_found_without_events_are_those_of_simulations(is_short: bool) -> None:
    """The part of one count gives the runs of others, or of its own; uneven stages, with time-steps and without.

    The part is that of a short run, as one that is simulated would be, or of the Plan that is laid out.
    """
    found: list[int | None] = []
    for seed in seeds(REQUESTS):
        rng = random.Random(f"{seed} {is_short}")
        ipus, even = rng.randint(2, 9) if is_short else rng.choice([2, 4, 6]), not is_short and rng.random() < 0.3
        schedule = rng.choice(FREELY if is_short else (*FREELY, *OTHERS))
        sizes = {"output_bytes": 1000, "gradient_bytes": rng.choice([0, 3000])}
        stages = [
            {"name": f"s{at}", "forward": 1000 if even else rng.randint(0, 9000), **sizes}
            | {"backward": 2000 if even else rng.randint(100, 9000)}
            for at in range(ipus * (2 if is_a_v(schedule) else 1))
        ]
        count = rng.randint(150, 250) if is_short else 2 * ipus * rng.randint(20, 60)
        pipeline = {"schedule": schedule, "stages": stages, "gradient_accumulation_count": count}
        pipeline |= {} if is_short else {"sync": rng.choice(["lock_step", "point_to_point"])}
        system = {"name": rng.choice(["bow_pod16", "free"])}
        job = assemble(Request.from_dict({"system": system, "pipeline": pipeline}))
        counts, longer = [job.plan.shape.micro_batches], [count]
        if is_short:
            least = rng.choice([1, 40])
            counts = [each for each in short_counts(job.schedule, job.program.shape) if each >= least]
            longer = [times * count + rng.randrange(3) for times in (1, 2, 3)]
        recurrence = runs.recurrence_of(job, counts)
        if is_short:
            run = time_alone._ShorterRuns(job, 1, lambda part: (part.costs, part.system), None, None, None)
            repeats = any(run._short_run(each, 1).inner_repeats for each in counts)
            assert recurrence is not None or not repeats, seed
        for each in longer if recurrence is not None else ():
            other = assemble(job.request.replace({"pipeline.gradient_accumulation_count": each}))
            cycles = runs.long_run_without_events(other, recurrence)
            whole = throughput_of(runs.timeline_of(other, 1, jump=False)).run_cycles
            assert cycles in (None, whole), (seed, job.request.to_dict(), each)
            found.append(cycles)
        found += [None] if recurrence is None else []
    assert sum(cycles is not None for cycles in found) >= len(found) / (2 if is_short else 3) > 0, found


def _outcomes(what_ifs: Iterable[WhatIf]) -> list[tuple[object, ...]]:
    """Return the fields of outcomes, with the words of changes in place of their functions."""
    return [
        (each.change.words, each.before, each.after, each.refusal, each.fits, each.excess_bytes, each.cause)
        for each in what_ifs
    ]


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

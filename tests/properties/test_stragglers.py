"""Words of stragglers are the same whether runs are computed together or simulated one by one."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from ipusim.analysis.throughput import throughput_of
from ipusim.api import Request, assemble, runs
from ipusim.app.explain.stragglers import stragglers
from ipusim.app.explain.trial import WhatIf
from ipusim.app.explain.what_if import what_if
from ipusim.base.errors import IpusimError
from ipusim.retiming.retiming import Retiming
from ipusim.runs import other_passes, time_alone, waterfall
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.runs.execute import execute
from tests.effort import seeds, share
from tests.properties.test_retiming import cases

#: Drawn requests.
REQUESTS = 200


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


def test_long_runs_are_those_of_simulations_where_a_part_of_another_count_recurs() -> None:
    """1F1B of uneven stages: the part of one count gives the runs of others, which no simulation cuts short."""
    found: list[int | None] = []
    for seed in seeds(REQUESTS):
        rng = random.Random(seed)
        ipus = rng.randint(2, 9)
        sizes = {"output_bytes": rng.choice([0, 1000]), "gradient_bytes": rng.choice([0, 3000])}
        stages = [
            {"name": f"s{at}", "forward": rng.randint(100, 9000), "backward": rng.randint(100, 9000), **sizes}
            for at in range(ipus)
        ]
        pipeline = {"schedule": rng.choice(["1f1b", "eager_1f1b", "zero_bubble_h1"]), "stages": stages}
        pipeline["gradient_accumulation_count"] = rng.randint(150, 250)
        name = rng.choice(["bow_pod16", "free"])
        job = assemble(Request.from_dict({"system": {"name": name}, "pipeline": pipeline}))
        least = rng.choice([1, 40])
        counts = [count for count in short_counts(job.schedule, job.program.shape) if count >= least]
        recurrence = runs.recurrence_of(job, counts)
        run = time_alone._ShorterRuns(job, 1, lambda part: (part.costs, part.system), None, None, None)
        repeats = any(run._short_run(count, 1).inner_repeats for count in counts)
        assert recurrence is not None or not repeats, seed
        for times in (1, 2, 3) if recurrence is not None else ():
            count = times * pipeline["gradient_accumulation_count"] + rng.randrange(3)
            longer = assemble(job.request.replace({"pipeline.gradient_accumulation_count": count}))
            cycles = runs.long_run_without_events(longer, recurrence)
            whole = throughput_of(runs.timeline_of(longer, 1, jump=False)).run_cycles
            assert cycles in (None, whole), (seed, job.request.to_dict(), count)
            found.append(cycles)
    assert sum(cycles is not None for cycles in found) >= len(found) / 2 > 0, found


def test_parts_found_without_events_give_the_lengths_of_simulations() -> None:
    """A part found without events gives the run's length; uneven stages, schedules with and without time-steps."""
    found: list[int | None] = []
    names = [
        "grouped",
        "interleaved",
        "1f1b",
        "eager_1f1b",
        "zero_bubble_h1",
        "zbv",
        "v_half",
        "dualpipe",
        "dualpipe_v",
        "hanayo",
        "zero_bubble_h2",
        "v_min",
    ]
    for seed in seeds(REQUESTS):
        rng = random.Random(seed)
        ipus = rng.choice([2, 4, 6])
        even = rng.random() < 0.3
        times = [(1000, 2000) if even else (rng.randint(0, 900), rng.randint(100, 2000)) for _ in range(2 * ipus)]
        schedule = rng.choice(names)
        chunks = 2 if schedule in ("zbv", "v_half", "v_min", "dualpipe_v", "hanayo") else 1
        stages = [
            {"name": f"s{at}", "forward": times[at][0], "backward": times[at][1], "output_bytes": 1000}
            for at in range(chunks * ipus)
        ]
        pipeline = {"schedule": schedule, "sync": rng.choice(["lock_step", "point_to_point"]), "stages": stages}
        pipeline["gradient_accumulation_count"] = 2 * ipus * rng.randint(20, 60)
        system = {"name": rng.choice(["bow_pod16", "free"]), "auto_select_ipus": ipus}
        try:
            job = assemble(Request.from_dict({"system": system, "pipeline": pipeline}))
        except IpusimError:
            continue
        recurrence = runs.recurrence_of(job, [job.plan.shape.micro_batches])
        if recurrence is not None:
            whole = throughput_of(runs.timeline_of(job, 1, jump=False)).run_cycles
            cycles = runs.long_run_without_events(job, recurrence)
            assert cycles in (None, whole), (seed, job.request.to_dict())
        found.append(None if recurrence is None else cycles)
    assert sum(cycles is not None for cycles in found) >= len(found) / 3 > 0, found


def _outcomes(what_ifs: Iterable[WhatIf]) -> list[tuple[object, ...]]:
    """Return the fields of outcomes, with the words of changes in place of their functions."""
    return [
        (each.change.words, each.before, each.after, each.refusal, each.fits, each.excess_bytes, each.cause)
        for each in what_ifs
    ]

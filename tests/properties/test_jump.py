"""A run of time alone that jumps over its repeats is the same, written out, as one that does not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipusim.analysis.memory import memory_curves
from ipusim.errors import IpusimError
from ipusim.hardware.system import System
from ipusim.pricing.costs import Costs, Send
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.runs.job import Job
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.runs.time_alone import time_alone
from ipusim.scenario.load import load_job
from tests.effort import share, slowest
from tests.replay.requests import DRAWN, drawn_requests

#: Passes of a drawn run, and tensors that may wait for a stage in it, at most.
MOST_PASSES, MOST_WAITING = 30_000, 100
#: How many of each sort are drawn: of all options, of users' Orders, of stages known by their cycles, with tables.
SORTS = {"options": 10, "cycles": 16, "orders": 3, "tables": 4}


def jobs(sorts: dict[str, int], folder: Path, seed: int = 0) -> Iterator[tuple[str, Job]]:
    """Yield drawn Jobs of time alone with many micro-batches and executions, each by its name."""
    rng = random.Random(seed)
    for drawn in drawn_requests({**dict.fromkeys(DRAWN, 0), **sorts}):
        for name, text in drawn.files.items():
            (folder / name).write_text(text)
        off = ["memory=report"]  # tensors that wait for an IPU are as many more as there are micro-batches
        off += [] if drawn.name.startswith(("cycles", "orders")) else ["numerics=off"]
        pipeline = load_job(folder / drawn.file, off).request.options.pipeline
        counts = {
            "gradient_accumulation_count": pipeline.gradient_accumulation_count * rng.choice([8, 20, 60]),
            "repeat_count": pipeline.repeat_count * rng.choice([1, 3, 5]),
        }
        if drawn.name.startswith("orders"):  # which are of one count
            counts.pop("gradient_accumulation_count")
        changes = [f"pipeline.{name}={count}" for name, count in counts.items()]
        job = load_job(folder / drawn.file, [*off, *changes])
        # Where tensors pile up on links that are too slow for them, a run takes as long as the square of their number.
        piled_up = any(tensors > MOST_WAITING for tensors in job.plan.waiting.values())
        if not piled_up and job.of_whole(lambda of: len(of.plan.table)) * job.executions <= MOST_PASSES:
            yield f"{drawn.name} {' '.join(changes)}", job


@pytest.mark.parametrize("sort", SORTS)
def test_jumping_over_repeats_changes_nothing(sort: str, tmp_path: Path) -> None:
    """Every span, its cause, what memory holds and the summary are those of a run that is simulated whole."""
    jumped = 0
    for name, job in jobs({sort: share(SORTS[sort])}, tmp_path):
        part, whole = execute(job), execute(job, jump=False)
        assert part.timeline.expanded() == whole.timeline, name
        assert int(part.timeline.weights.sum()) == len(whole.timeline), name
        assert part.summary.to_dict() == whole.summary.to_dict(), name
        for replica in range(job.system.replicas):
            curves = zip(*(held(run, replica) for run in (part, whole)), strict=True)
            assert all(np.array_equal(*columns) for of in curves for columns in zip(*of, strict=True)), name
        jumped += bool(part.timeline.repeats)
    assert jumped


def held(run: Run, replica: int) -> list[tuple[Any, ...]]:
    """Return the columns of what each IPU of a replica holds over time."""
    footprint = run.job.memory.footprint
    curves = memory_curves(run.timeline.expanded(), footprint, replica)
    return [(curve.time, curve.live_bytes, curve.fifo_bytes, [curve.resident_bytes]) for curve in curves]


def flight(cycles: int, ipus: int, forward: int, backward: int, count: int) -> Job:
    """Return a 1F1B pipeline of equal stages in point-to-point with so many micro-batches."""
    stage = {"forward": forward, "backward": backward, "output_bytes": 1000, "gradient_bytes": 1000}
    stages = [dict(stage, name=f"s{number}") for number in range(ipus)]
    del stages[0]["gradient_bytes"], stages[-1]["output_bytes"]
    data = {
        "training": True,
        "system": {"name": "bow_pod64", "auto_select_ipus": 32},
        "pipeline": {
            "schedule": "1f1b",
            "sync": "point_to_point",
            "gradient_accumulation_count": count,
            "stages": stages,
        },
    }
    return assemble(Request.from_dict(data, name=f"transfers of {cycles} cycles"))


@pytest.mark.parametrize("ipus", [4, 8, 16, 24])
@pytest.mark.parametrize("cycles", [0, 7])
def test_1f1b_of_a_million_micro_batches_takes_what_its_closed_form_says(ipus: int, cycles: int) -> None:
    """A micro-batch takes the largest mean over loops of k + 1 neighbours, of their passes and 2 k transfers.

    k + 1 micro-batches go round such a loop at a time (a cycle mean of the timed event graph; Baccelli et al., 1992).
    """
    forward, backward, count = 100, 200, 1_000_000

    def priced(job: Job) -> tuple[Costs, System]:
        sends = {key: Send(send.bytes, lead_cycles=cycles) for key, send in job.costs.sends.items()}
        return replace(job.costs, sends=sends), job.system

    job = flight(cycles, ipus, forward, backward, count)
    timeline = time_alone(job, priced=priced)
    one = max(Fraction((k + 1) * (forward + backward) + 2 * k * cycles, k + 1) for k in range(ipus))
    (block,) = timeline.repeats
    assert Fraction(block.cycles, block.micro_batches) == one
    assert block.micro_batches == (ipus if cycles else 1)
    fewer = 16 * ipus + count % ipus
    short = time_alone(job.of(fewer, 1), priced=priced, jump=False)
    assert timeline.makespan_cycles == short.makespan_cycles + one * (count - fewer)


def test_a_run_that_does_not_repeat_itself_is_simulated_whole() -> None:
    """GPipe keeps all micro-batches before it goes back: its Order has no period, and each execution is whole."""
    data = flight(0, 2, 10, 20, 64).request.given()
    data["pipeline"]["schedule"] = "gpipe"
    job = assemble(Request.from_dict(data, name="gpipe"))
    timeline = time_alone(job)
    assert not timeline.repeats
    assert timeline == time_alone(job, jump=False)


@slowest
def test_what_repeats_is_not_counted_against_memory_and_what_does_not_is() -> None:
    """A million micro-batches under 1F1B are kept in part; under GPipe they are refused before the run."""
    million = flight(0, 8, 100, 200, 1_000_000)
    assert million.plan.shape.micro_batches < 200
    data = million.request.given()
    data["pipeline"]["schedule"] = "gpipe"
    with pytest.raises(IpusimError, match="expected a run that takes at most 2 GiB of memory"):
        assemble(Request.from_dict(data, name="gpipe"))

"""Make a Job with stated times of passes, copies and weight updates, such as measured times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ipusim.machine.run_changes import StatedLengths
from ipusim.pricing.costs import Send
from ipusim.runs.job import Job
from ipusim.timeline.kinds import PASS_OF_KIND


def with_stated_times(
    job: Job,
    copies: Mapping[tuple[int, int], int],
    passes: Mapping[Any, int] | None = None,
    updates: Mapping[int, int] | None = None,
) -> Job:
    """Return a Job with stated cycles of passes, copies and updates.

    Args:
        job: Job with all micro-batches laid out (:attr:`Job.whole`), and one replica in point-to-point: copies are
            stated for replica 0 only.
        copies: cycles of a tensor's copy, by sending and receiving stage.
        passes: cycles of each pass, by kind of span, stage and micro-batch; by default unchanged.
        updates: cycles of each IPU's weight update; by default unchanged.
    """
    # key of a send: replica, copy of the pipeline, sending and receiving stage
    sends = {(0, 0, *ends): Send(lead_cycles=cycles) for ends, cycles in copies.items()}
    costs = replace(job.costs, sends=sends, updates=job.costs.updates if updates is None else dict(updates))
    if passes is None:
        return replace(job, costs=costs)
    # A stated length is a ratio to the pass's cost, so no cost may be 0.
    base_passes = {key: max(cycles, 1) for key, cycles in costs.passes.items()}
    factors = {key: (cycles, int(base_passes[PASS_OF_KIND[key[0]], key[1]])) for key, cycles in passes.items()}
    return replace(
        job, costs=replace(costs, passes=base_passes), system=job.system.disturbed((StatedLengths(factors),))
    )

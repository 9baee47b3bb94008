"""Test explanations of published throughputs that no option or rate expresses, by changing the programs.

A row is a published training with its throughput.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ipusim.api import Job, pricing
from ipusim.app.fidelity.throughputs import PreparedRow, SimulatedRow, cycles_without_host
from ipusim.lowering.lower import complete
from ipusim.model.collective_call import CollectiveCall

#: Means and variances of 256 channels, typical of ResNet-50's middle norms.
_STATISTICS: Final = CollectiveCall("all_reduce", (2, 256), "float32", group=2)


def with_shared_statistics(rows: Sequence[PreparedRow]) -> list[SimulatedRow]:
    """Simulate rows with batch norms shared between two replicas.

    Replicas sum mean and variance in each pass.
    """

    def with_sums(job: Job) -> Job:
        model = job.request.options.model
        calls = (_STATISTICS,) * (_batch_norms(model.layers) if model else 0)
        first, *others = job.program.stages
        first = replace(first, forward_collectives=calls, backward_collectives=calls)
        program = replace(job.program, stages=(first, *others))
        plan = complete(job.plan, program, job.system.replicas, job.system.hosts)
        costs = pricing.price_plan(plan, program, job.system)
        return replace(
            job,
            program=program,
            plan=plan,
            costs=costs,
            with_counts=lambda *counts: with_sums(job.with_counts(*counts)),
        )

    result = []
    for entry in rows:
        jobs = tuple(map(with_sums, entry.jobs))
        result.append(replace(entry, jobs=jobs, cycles=tuple(map(cycles_without_host, jobs))))
    return [SimulatedRow(entry, entry.time()) for entry in result]


def _batch_norms(layers: Iterable[Any]) -> int:
    """Return the number of batch norms, including nested layers."""
    result = 0
    for entry in layers:
        inner_layers = (*(getattr(entry, "layers", None) or ()), *(getattr(entry, "shortcut", None) or ()))
        is_norm = getattr(entry, "type", "") == "batch_norm"
        result += getattr(entry, "repeat", 1) * (is_norm + _batch_norms(inner_layers))
    return result

"""Improve the split of a run's model, by the cycles of its layers.

A split names the layers at which a new stage begins, its cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ipusim.api import Job, pricing

#: Maximum number of moves of one cut.
_MOST_MOVES: Final = 1000
#: Maximum number of yielded splits.
_MOST_SPLITS: Final = 3


def better_splits(job: Job) -> Iterator[tuple[str, ...]]:
    """Yield splits that reduce the load of the busiest IPUs, best first; nothing for models without splits.

    Starting with the run's split, a greedy search moves one cut at a time to the position with the smallest IPU loads,
    compared from the largest load down, until no move improves. The search ends at the best split. Then earlier
    splits of the search are yielded, since an earlier split may fit memory if the best does not. A layer's load is its
    forward cycles, plus a proportional part of the stage's backward cycles.
    """
    splits = job.request.options.pipeline.splits
    stages = job.program.stages
    if not splits:
        return
    works_of_layers = [() if isinstance(profile.forward, int) else profile.forward for profile in stages]
    have_single_layers = all(
        len(profile.layers) == len(work) for profile, work in zip(stages, works_of_layers, strict=True)
    )
    if not have_single_layers or len(splits) != len(stages) - 1:
        return  # concurrent stages, or composed layers
    names = [name for profile in stages for name in profile.layers]
    if not set(splits) <= set(names):
        return
    loads, mapping = _loads(job), job.plan.shape.mapping
    found_cuts = [tuple(names.index(name) for name in splits)]
    for _ in range(_MOST_MOVES):
        best = min(
            _moves(found_cuts[-1], len(names)), key=lambda cuts: _sorted_ipu_loads(loads, cuts, mapping), default=None
        )
        if best is None or _sorted_ipu_loads(loads, best, mapping) >= _sorted_ipu_loads(loads, found_cuts[-1], mapping):
            break
        found_cuts.append(best)
    best_first = found_cuts[:0:-1]
    step = max(1, len(best_first) // _MOST_SPLITS)
    for cuts in best_first[::step][:_MOST_SPLITS]:
        yield tuple(names[layer] for layer in cuts)


def _loads(job: Job) -> list[float]:
    """Return the forward and backward cycles of every layer."""
    loads: list[float] = []
    costs, system = job.costs.passes, job.system
    for stage, profile in enumerate(job.program.stages):
        assert not isinstance(profile.forward, int)
        forward = [float(pricing.pass_cycles((work,), system.ipu, system.rates)) for work in profile.forward]
        # Kind 0 is the forward pass, kind 1 the backward pass.
        stage_cycles = costs[0, stage] + (costs[1, stage] if job.plan.shape.training else 0)
        factor = stage_cycles / sum(forward) if sum(forward) else 1.0
        loads += [cycles * factor for cycles in forward]
    return loads


def _moves(cuts: Sequence[int], layers: int) -> Iterator[tuple[int, ...]]:
    """Yield splits with a single cut moved between its neighbours."""
    for number, layer in enumerate(cuts):
        low = cuts[number - 1] + 1 if number else 1
        high = cuts[number + 1] if number + 1 < len(cuts) else layers
        for new_layer in range(low, high):
            if new_layer != layer:
                yield (*cuts[:number], new_layer, *cuts[number + 1 :])


def _sorted_ipu_loads(loads: Sequence[float], cuts: Sequence[int], mapping: Sequence[int]) -> list[float]:
    """Return the loads of the IPUs, largest first."""
    load_of: dict[int, float] = {}
    begins, ends = (0, *cuts), (*cuts, len(loads))
    for ipu, begin, end in zip(mapping, begins, ends, strict=True):
        load_of[ipu] = load_of.get(ipu, 0.0) + sum(loads[begin:end])
    return sorted(load_of.values(), reverse=True)

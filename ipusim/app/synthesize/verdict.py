"""Describe a synthesis in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.api import analysis
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_words import ties
from ipusim.app.synthesize.synthesis import Synthesis
from ipusim.app.synthesize.tasks import unsearched_for
from ipusim.base.units import counted, format_figure, format_seconds


def verdict(synthesis: Synthesis) -> Iterator[str]:
    """Yield the verdict: best Order, gain, distance from the bound, binding part, and possible counts."""
    times = synthesis.best.times
    assert times is not None, "the best row has a result"
    period = format_seconds(times.throughput.weight_update_period_s)
    as_fast = "; ".join(ties(synthesis.fitting))
    tie_text = f" ({as_fast})" if as_fast else ""
    if synthesis.new_order is None:
        yield (
            f"Best: {synthesis.best_named.name}{tie_text}, {period} per weight update: no better Order was found, so "
            "scenario.yaml names this schedule."
        )
        if synthesis.is_among_all:
            yield "With `--schedules 1f1b` an Order has to beat 1f1b alone, and is written to the folder."
    else:
        comparison = Comparison((synthesis.best_named, synthesis.new_order))
        difference = comparison.difference(synthesis.new_order, synthesis.best_named) or 0.0
        less = format_figure(-100 * difference)
        group = "named schedule" if synthesis.is_among_all else "of the given schedules"
        comparison_text = f"the best {group} that fits, {synthesis.best_named.name}{tie_text}"
        gain = (
            f"{less}% less time than {comparison_text}"
            if difference < 0
            else f"no more time than {comparison_text}, and a lower cost"
        )
        yield f"Best: {synthesis.new_order.name}, {period} per weight update; {gain}."
    yield from _bound_words(synthesis, times)
    if (most := synthesis.micro_batches) is not None:
        cost, work = times.bubble.rank_cost_cycles, times.bubble.ideal_cycles
        yield (
            f"No IPU holds more than {counted(most, 'micro-batch', 'es')}. The cost, the longest time from the first "
            f"to the last pass of an IPU, is {cost:,} cycles, {format_figure(100 * (cost / work - 1))}% above the "
            f"work of the busiest IPU, {work:,}."
        )
    if (alternative := synthesis.unsearched) is not None and alternative.result is not None:
        comparison = Comparison((synthesis.best, alternative))
        if comparison.cost(alternative) < comparison.cost(synthesis.best):
            less = format_figure(-100 * (comparison.difference(alternative, synthesis.best) or 0.0))
            reason = unsearched_for(alternative.result.job)
            yield f"{alternative.name}, with {reason}, takes {less}% less; Orders with {reason} are not searched."
    if synthesis.new_order is not None:
        yield _served_counts(synthesis)


def _bound_words(synthesis: Synthesis, times: analysis.RunTimes) -> Iterator[str]:
    """Yield makespan, distance from the bound, and binding part."""
    bound_s = times.seconds(synthesis.bound.cycles)
    name = synthesis.best.schedule
    makespan = times.makespan_cycles
    seconds = f"{synthesis.seconds:.1f} s"
    ends = f"Without its weight update {name} takes {makespan:,} cycles ({format_seconds(times.seconds(makespan))})"
    if not synthesis.has_bound:
        yield f"{ends}. No bound is known, because {name} does not copy after every time-step."
        return
    if synthesis.is_optimal and synthesis.bound.states:
        states = f"{synthesis.bound.states:,} states of the pipeline"
        yield f"{ends}, which is proven the best: in {states}, all possible improvements, no Order takes less."
    elif synthesis.is_optimal:
        count = counted(times.count, "micro-batch", "es")
        passes = "forward passes and halves of backward passes" if synthesis.contains("IW") else "these passes"
        yield f"{ends}, which is optimal for {count}: no Order of {passes} takes less."
    else:
        excess = format_figure(100 * (makespan / synthesis.bound.cycles - 1))
        yield (
            f"{ends}, {excess}% above a bound of {synthesis.bound.cycles:,} ({format_seconds(bound_s)}). The search "
            f"ended after {seconds}, which is no proof: a better Order may exist."
        )
    yield f"The bound comes from {synthesis.bound.words}. It ignores memory, and links shared by several copies."


def _served_counts(synthesis: Synthesis) -> str:
    """Return a sentence on the numbers of micro-batches that the new Order and torch's CSV serve."""
    least_count = synthesis.least_count
    counts = f"every count from {least_count} on" if synthesis.is_periodic else f"only a count of {least_count}"
    csv_remark = ", without the time-steps" if synthesis.contains("|") else ""
    return f"The Order serves {counts}; the CSV for torch is for {synthesis.torch_count} micro-batches{csv_remark}."

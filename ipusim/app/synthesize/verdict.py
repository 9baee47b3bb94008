"""What a synthesis comes to, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from ipusim.app.compare.comparison import Comparison
from ipusim.app.synthesize.synthesis import Synthesis
from ipusim.app.synthesize.tasks import unsearched_for
from ipusim.base.units import format_figure, format_seconds


def verdict(found: Synthesis) -> Iterator[str]:
    """Yield the verdict: the best Order and its gain, its distance from the bound, what binds, and its counts."""
    times = found.best.times
    assert times is not None, "of a row that ran"
    period = format_seconds(times.throughput.weight_update_period_s)
    if found.made is None:
        yield f"Best: {found.named.name}, {period} per weight update: no better Order was found."
    else:
        comparison = Comparison((found.named, found.made))
        less = format_figure(-100 * comparison.difference(found.made, found.named))
        yield (
            f"Best: {found.made.name}, {period} per weight update; {less}% less time than the best named schedule that "
            f"fits, {found.named.name}."
        )
    bound = times.seconds(found.bound.cycles)
    name = found.best.schedule
    makespan = times.makespan_cycles
    seconds = f"{found.seconds:.1f} s"
    ends = f"Without its weight update {name} takes {makespan:,} cycles ({format_seconds(times.seconds(makespan))})"
    if found.is_optimal:
        yield f"{ends}, which is optimal: no Order of these passes takes less."
    else:
        above = format_figure(100 * (makespan / found.bound.cycles - 1))
        yield (
            f"{ends}, {above}% above a bound of {found.bound.cycles:,} ({format_seconds(bound)}). The search ended "
            f"after {seconds}, which proves nothing: a better Order may be there."
        )
    yield f"What binds: {found.bound.words}. The bound leaves out memory, and links that several copies share."
    if (other := found.unsearched) is not None and other.result is not None:
        comparison = Comparison((found.best, other))
        if comparison.cost(other) < comparison.cost(found.best):
            less = format_figure(-100 * comparison.difference(other, found.best))
            what = unsearched_for(other.result.job)
            yield f"{other.name}, with {what}, takes {less}% less; such Orders are not searched."
    if found.made is not None:
        counts = f"every count from {found.least} on" if found.is_periodic else f"a count of {found.least} alone"
        yield f"It serves {counts}; the CSV for torch is of {found.torch_count} micro-batches."

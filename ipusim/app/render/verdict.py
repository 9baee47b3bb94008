"""The verdict on a run in a few lines: speed, utilisation, bottleneck, and the comparison with one IPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ipusim.api import Summary, analysis, timelines
from ipusim.app.render.tables import Table
from ipusim.base.units import counted, enumerated_rows, format_figure, format_seconds, numbered

#: Least share of the time for a part to be named.
_LEAST_SHARE: Final = 0.0005


def verdict_table(summary: Summary) -> Table:
    """Return the main results of a run, one in each row."""
    verdict, rates = summary.verdict, summary.throughput
    alike = (("replicas", summary.replicas), ("hosts", summary.hosts))
    replicas = "".join(f" x {count} {what}" for what, count in alike if count > 1)
    size, count = summary.micro_batch_size, summary.count
    batch = f"{counted(size, 'sample')} x {counted(count, 'micro-batch', 'es')}{replicas}"
    rows = [
        ("schedule", f"{summary.order_and_sync}, {_ipus(summary)} of {summary.system}"),
        (
            "time per weight update" if summary.training else "time per execution",
            f"{format_seconds(rates.weight_update_period_s)} for {batch}",
        ),
        ("throughput", f"{format_figure(rates.samples_per_s)} samples/s"),
        *([("its error", summary.throughput_error)] if summary.throughput_error else []),
        ("time goes into", waterfall_words(summary.waterfall)),
    ]
    if summary.disturbances is not None:
        rows.append(("disturbances", disturbance_words(summary.disturbances, summary)))
    rows += _slowest(summary)
    if verdict.speed_up:
        rows.append(("against one IPU", _against_one(summary)))
    rows.append(("memory", summary.memory.verdict.removeprefix("Memory: ")))
    rows += _learned(summary.learning)
    return Table(summary.name, ("", ""), tuple(rows))


def _ipus(summary: Summary) -> str:
    used, every = len(summary.ipus) - len(summary.idle_ipus), len(summary.ipus)
    return f"{every} IPU{'s' * (every != 1)}" if used == every else f"{used} of {every} IPUs"


def waterfall_words(waterfall: analysis.Waterfall | None) -> str:
    """Return useful compute and the other parts of a run's time, the largest first, and why one is negative."""
    if waterfall is None:
        return "not told of a run this long, which does not repeat itself: ipusim explain does"
    parts = [(timelines.TimePart.USEFUL, waterfall.share(timelines.TimePart.USEFUL)), *waterfall.largest()]
    named = [f"{part.words} {share:.1%}" for part, share in parts if abs(share) >= _LEAST_SHARE]
    return ". ".join([", ".join(named) or "nothing: it takes no time", *waterfall.remarks()])


#: What IPUs are idle for, as the end of a sentence.
_LONGER_FOR: Final = {
    timelines.Idle.COPIES: "copies and sync",
    timelines.Idle.HOST: "the host",
    timelines.Idle.STREAMING: "Streaming Memory",
    timelines.Idle.UPDATE: "collectives and weight updates",
    timelines.Idle.DISTURBANCES: "checkpoints",
    timelines.Idle.NO_STAGE: "want of a stage",
}


def disturbance_words(cost: analysis.DisturbanceCost, summary: Summary) -> str:
    """Return a sentence on the cost of disturbances: slow-down S, waiting IPUs, and time to recovery."""
    parts = [
        f"S is {cost.slowdown:.3f}: the run takes {format_seconds(summary.seconds(cost.cycles))}, without them "
        f"{format_seconds(summary.seconds(cost.plain_cycles))}"
    ]
    if cost.cause not in (None, timelines.Idle.PASSES):
        more = format_seconds(summary.seconds(cost.idle[cost.cause]))
        of_loss = " and the loss of an IPU" * (cost.loses and cost.cause is timelines.Idle.DISTURBANCES)
        parts.append(f"IPUs together are idle {more} longer for {_LONGER_FOR[cost.cause]}{of_loss}")
    for source, cycles, ipus in islice(cost.most_waited_for(), 1):
        more = format_seconds(summary.seconds(cycles))
        waits = "together wait" if ipus[1:] else "waits"
        parts.append(f"{numbered('IPU', ipus)} {waits} {more} longer for IPU {source}")
    if cost.recovery is not None:
        when = f"{cost.recovery} micro-batch{'es' * (cost.recovery != 1)} later" if cost.recovery else "at once"
        parts.append(f"when they end all goes on as before {when}")
    elif cost.passes:
        parts.append("when they end it does not come to go on as before")
    return "; ".join(parts)


def waterfall_table(waterfall: analysis.Waterfall, clock_hz: int) -> Table:
    """Return the parts of the time of a run that take any, in the order in which they come in; they add up to it."""
    rows = tuple(
        (part.words, f"{cycles:,}", f"{waterfall.share(part):.1%}", part.meaning)
        for part, cycles in waterfall.cycles.items()
        if cycles or part is timelines.TimePart.USEFUL
    )
    run = f"{waterfall.run_cycles:,} cycles, {format_seconds(waterfall.run_cycles / clock_hz)}"
    if waterfall.executions > 1:
        run += f", of {waterfall.executions:,} executions"
    return Table(f"Parts of the time, {run}", ("part", "cycles", "share", "what it is"), rows)


def _slowest(summary: Summary) -> list[tuple[str, str]]:
    """Return the line of the slowest stage, where there are several."""
    verdict = summary.verdict
    if len(summary.stages) < 2:
        return []
    slowest = verdict.slowest_stages
    if len(slowest) == len(summary.stages):
        return [("slowest stage", "none: all take as long")]
    names = enumerated_rows(slowest, summary.stages.__getitem__)
    tie = f"{names} tie" if len(slowest) > 1 else f"{names} on IPU {summary.mapping[slowest[0]]}"
    return [("slowest stage", f"{tie}, {verdict.slowest_ratio:.2f} times the mean")]


def _against_one(summary: Summary) -> str:
    verdict, ipus = summary.verdict, len(summary.ipus) - len(summary.idle_ipus)
    alone = format_seconds(summary.seconds(verdict.single_ipu_cycles))
    if ipus == 1:
        return f"its arithmetic alone takes {alone}"
    if verdict.speed_up < 1:
        return (
            f"slower: one IPU with the memory would take {alone} for the same arithmetic, {verdict.speed_up:.2f} times"
        )
    return f"{verdict.speed_up:.2f} times as fast: the same arithmetic on one IPU takes {alone}"


def _learned(learning: analysis.LearningSummary | None) -> Iterator[tuple[str, str]]:
    if learning is None:
        return
    known = learning.constant_predictor_loss
    constant = "" if known is None else f"; {known:.4f} of the best constant predictor"
    losses = [loss for loss in learning.mean_loss_by_step if loss is not None]
    if learning.diverged_at is not None:
        yield "mean loss", f"not finite from step {learning.diverged_at} on: lower the learning rate"
    elif len(losses) != len(learning.mean_loss_by_step):
        yield "mean loss", "never finite"
    elif len(losses) > 1:
        yield "mean loss", f"{losses[0]:.4f} in the first step, {losses[-1]:.4f} in the last of {len(losses)}{constant}"
    elif losses:
        yield "mean loss", f"{losses[0]:.4f}{constant}"
    for evaluation in learning.evaluations[-1:]:
        accuracy = "" if evaluation.accuracy is None else f", accuracy {evaluation.accuracy:.1%}"
        loss = "not finite" if evaluation.loss is None else f"{evaluation.loss:.4f}"
        yield "held-out data", f"loss {loss}{accuracy}"

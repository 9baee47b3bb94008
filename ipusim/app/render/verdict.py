"""Describe a run in a few lines: speed, utilisation, bottleneck, and comparison with one IPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from ipusim.api import Summary, analysis, timelines
from ipusim.app.render.tables import Table
from ipusim.base.units import (
    counted,
    enumerated,
    enumerated_rows,
    format_bytes,
    format_seconds,
    noun_with_numbers,
)

#: Minimum share of the run's time of a part that is named.
_LEAST_SHARE: Final = 0.0005
#: Maximum number of disturbed cables named in a sentence.
_MOST_CABLES: Final = 3


def verdict_table(summary: Summary) -> Table:
    """Return the main results of a run, with a row for each."""
    verdict, rates = summary.verdict, summary.throughput
    copies = (("replicas", summary.replicas), ("hosts", summary.hosts))
    replicas = "".join(f" x {count} {unit}" for unit, count in copies if count > 1)
    size, count = summary.micro_batch_size, summary.count
    batch = f"{counted(size, 'sample')} x {counted(count, 'micro-batch', 'es')}{replicas}"
    unloaded = ", without the time to load data" if analysis.SYNTHETIC_DATA in summary.options else ""
    without_updates = ", weight updates left out" if summary.training else ""
    rows = [
        ("schedule", f"{summary.order_and_sync}, {_ipus(summary)} of {summary.system}"),
        (
            f"time per {summary.period}",
            f"{format_seconds(rates.weight_update_period_s)} for {batch}",
        ),
        ("throughput", f"{rates.words}{unloaded}"),
        *([("error of throughput", summary.throughput_error)] if summary.throughput_error else []),
        ("bubble", f"{summary.bubble.idle_fraction:.1%} of the IPUs' time is without arithmetic{without_updates}"),
        ("time goes into", waterfall_words(summary.waterfall)),
    ]
    if summary.disturbances is not None:
        rows.append(("disturbances", disturbance_words(summary.disturbances, summary.seconds)))
    rows += _slowest(summary)
    if summary.faster_order is not None:
        rows.append(("selection order", faster_order_words(summary, summary.faster_order)))
    if used_ipus(summary) > 1 and verdict.speed_up != 0:
        disturbed = summary.disturbances is not None
        rows.append(("against one IPU", against_one_words(verdict, summary.seconds, disturbed=disturbed)))
    rows.append(("memory", summary.memory.verdict.removeprefix("Memory: ")))
    rows += _learned(summary.learning)
    return Table(summary.name, ("", ""), tuple(rows))


def _ipus(summary: Summary) -> str:
    used_ipus, all_ipus = len(summary.ipus) - len(summary.idle_ipus), len(summary.ipus)
    return f"{all_ipus} IPU{'s' * (all_ipus != 1)}" if used_ipus == all_ipus else f"{used_ipus} of {all_ipus} IPUs"


def faster_order_words(summary: Summary, faster: analysis.FasterOrder) -> str:
    """Return the current selection order, and the time that a faster order saves."""
    estimated = ", estimated only from copies and sums of gradients" if faster.is_estimate else ""
    less = f"{faster.saved:.1%} less time per {summary.period}"
    return f"{summary.selection_order}; {faster.order} takes {less}{estimated}"


def waterfall_words(waterfall: analysis.Waterfall | None) -> str:
    """Return useful compute and other parts of a run's time, largest first. Remarks explain negative parts."""
    if waterfall is None:
        return "not computed for a long run without repetition: use ipusim explain"
    parts = [(timelines.TimePart.USEFUL, waterfall.share(timelines.TimePart.USEFUL)), *waterfall.largest()]
    texts = [f"{part.words} {share:.1%}" for part, share in parts if abs(share) >= _LEAST_SHARE]
    words, remarks = ", ".join(texts) or "nothing: the run takes no time", [*waterfall.remarks()]
    return " ".join([f"{words}.", *remarks]) if remarks else words


#: Causes of idle time as the end of a sentence.
_LONGER_FOR: Final = {
    timelines.Idle.COPIES: "copies and sync",
    timelines.Idle.HOST: "the host",
    timelines.Idle.STREAMING: "Streaming Memory",
    timelines.Idle.UPDATE: "collectives and weight updates",
    timelines.Idle.DISTURBANCES: "checkpoints",
    timelines.Idle.NO_STAGE: "want of a stage",
}


def disturbance_words(cost: analysis.DisturbanceCost, seconds: Callable[[int], float]) -> str:
    """Return a sentence on the cost of disturbances: slow-down, waiting IPUs, cables, recovery.

    Args:
        cost: cost of the run's disturbances.
        seconds: conversion of cycles to seconds.
    """
    growth, change = cost.cycles - cost.plain_cycles, ""
    if growth and cost.plain_cycles:
        share = f", {growth / cost.cycles:.1%} of the longer run" if growth > 0 else ""
        change = f" ({abs(growth) / cost.plain_cycles:.1%} {'more' if growth > 0 else 'less'}{share})"
    parts = [
        f"S is {cost.slowdown:.3f}: the run takes {format_seconds(seconds(cost.cycles))}, without them "
        f"{format_seconds(seconds(cost.plain_cycles))}{change}"
    ]
    by_cables = timelines.Idle.COPIES if cost.cables else None
    if cost.cause not in (None, timelines.Idle.PASSES, by_cables):
        extra_time = format_seconds(seconds(cost.idle[cost.cause]))
        of_loss = " and the loss of an IPU" * (cost.loses and cost.cause is timelines.Idle.DISTURBANCES)
        slow = " (a slower IPU copies more slowly too)" * (cost.cause is timelines.Idle.COPIES and bool(cost.slow_ipus))
        parts.append(f"added up, IPUs are idle {extra_time} longer for {_LONGER_FOR[cost.cause]}{of_loss}{slow}")
    for source, cycles, ipus in islice(cost.most_waited_for(), 1):
        extra_time = format_seconds(seconds(cycles))
        who = f"added up, {noun_with_numbers('IPU', ipus)} wait" if ipus[1:] else f"IPU {ipus[0]} waits"
        parts.append(f"{who} {extra_time} longer for IPU {source}")
    parts += _cables(cost, seconds)
    if cost.recovery is not None:
        when = f"{cost.recovery} micro-batch{'es' * (cost.recovery != 1)} later" if cost.recovery else "at once"
        parts.append(f"after the end of the disturbances the run continues as before {when}")
    elif cost.passes:
        parts.append("after the end of the disturbances the run does not return to its earlier times")
    return "; ".join(parts)


def _cables(cost: analysis.DisturbanceCost, seconds: Callable[[int], float]) -> Iterator[str]:
    """Yield clauses on waits for copies over disturbed cables, and on disturbed cables without copies."""
    used_cables, unused_cables = (
        [cable for cable in cost.cables if cable.used is used_cables] for used_cables in (True, False)
    )
    if used_cables:
        ways = enumerated(map(_way_words, used_cables), _MOST_CABLES)
        extra_time = format_seconds(seconds(cost.cable_cycles))
        if cost.cable_cycles:
            yield f"added up, IPUs wait {extra_time} longer for copies {ways}"
        else:
            yield f"IPUs wait no longer for copies {ways}"
        if cost.cables_alone and cost.cycles < cost.plain_cycles:
            yield (
                "the run is shorter, because copies share links with other copies than before; no single copy is faster"
            )
        elif all(cable.dead for cable in used_cables) and cost.slowdown < 1 + _LEAST_SHARE:
            yield "the links of the detour have room for these copies"
        if not all(cable.dead for cable in used_cables):
            yield "copies stay on a slow cable, because routes are fixed when a program is compiled"
    if unused_cables:
        ends = enumerated((_ends_words(cable) for cable in unused_cables), _MOST_CABLES)
        yield f"no copies go over the cable{'s' * (len(unused_cables) > 1)} between {ends}"


def _way_words(cable: analysis.DisturbedCable) -> str:
    if not cable.dead:
        return f"over the cable between {_ends_words(cable)}"
    detour = f"IPU{'s' * (len(cable.detour) > 1)} {enumerated(cable.detour)}"
    return f"round the dead cable between {_ends_words(cable)} (by way of {detour})"


def _ends_words(cable: analysis.DisturbedCable) -> str:
    return " and ".join(f"IPU {ipu}" for ipu in cable.link)


def waterfall_table(waterfall: analysis.Waterfall, clock_hz: int) -> Table:
    """Return a table of the nonzero parts of a run's time, which add up to it."""
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
    """Return the line on the slowest stage, or on the busiest IPU if IPUs hold several; empty for a single stage."""
    verdict = summary.verdict
    if len(summary.stages) < 2:
        return []
    holders = [use for use in summary.pipeline_use if use.holds_stage]
    if len({use.stages for use in holders}) > 1 and any(len(use.stages) > 1 for use in holders):
        return [("busiest IPU", _busiest(summary, holders))]
    slowest = verdict.slowest_stages
    if len(slowest) == len(summary.stages):
        return [("slowest stage", f"none: all stages take equal time{_beside_slow(summary)}")]
    names = enumerated_rows(slowest, summary.stages.__getitem__)
    tie = f"{names} tie" if len(slowest) > 1 else f"{names} on IPU {summary.mapping[slowest[0]]}"
    return [
        ("slowest stage", f"{tie}, {verdict.slowest_ratio:.2f} times the mean of all stages{_beside_slow(summary)}")
    ]


def _busiest(summary: Summary, holders: Sequence[analysis.IpuUse]) -> str:
    """Return the IPUs with the most arithmetic in the pipeline, with stages and ratio to the mean of ``holders``."""
    cycles = [use.compute_cycles for use in holders]
    most = max(cycles)
    busiest = [use for use in holders if use.compute_cycles == most]
    if len(busiest) == len(holders):
        return "none: all IPUs compute equally long"
    ratio = f"{analysis.ratio(most * len(cycles), sum(cycles)):.2f} times the mean of all IPUs"
    ipus, sets = noun_with_numbers("IPU", [use.ipu for use in busiest]), {use.stages for use in busiest}
    if len(sets) > 1:
        return f"{ipus} tie, {ratio}"
    return f"{ipus} with {enumerated_rows(sorted(sets.pop()), summary.stages.__getitem__)}, {ratio}"


def _beside_slow(summary: Summary) -> str:
    """Return a clause on the IPUs that disturbances slow down, which stage cycles ignore; empty without slow IPUs."""
    slow = () if summary.disturbances is None else summary.disturbances.slow_ipus
    if not slow:
        return ""
    return f" by themselves; disturbances make {noun_with_numbers('IPU', slow)} slower"


def used_ipus(times: analysis.RunTimes) -> int:
    """Return the number of IPUs with a stage, over every host."""
    return (len(times.ipus) - len(times.idle_ipus)) * times.hosts


def against_one_words(verdict: analysis.Verdict, seconds: Callable[[int], float], *, disturbed: bool) -> str:
    """Return the speed-up over one IPU, with the single IPU's time and memory.

    Args:
        verdict: verdict on the run.
        seconds: conversion of cycles to seconds.
        disturbed: whether the run has disturbances, which the single IPU does not have.
    """
    if verdict.speed_up is None or verdict.single_ipu_cycles is None:
        return f"not known: {verdict.single_ipu_refusal}"
    subject = "one undisturbed IPU" if disturbed else "one IPU"
    single = one_ipu_words(seconds(verdict.single_ipu_cycles), verdict.single_ipu_excess_bytes, subject)
    if not verdict.single_ipu_cycles:
        return f"as fast: {single}"
    slower = "slower, " if verdict.speed_up < 1 else ""
    return f"{slower}{verdict.speed_up:.2f} times as fast: {single}"


def one_ipu_words(seconds: float, excess_bytes: int, subject: str = "one IPU") -> str:
    """Return one IPU's time for a weight update's samples, and the IPU's missing memory."""
    lack = f", but lacks {format_bytes(excess_bytes)} of memory" if excess_bytes else ""
    takes = "would take" if excess_bytes else "takes"
    return f"{subject} {takes} {format_seconds(seconds)} for the same number of samples{lack}"


def _learned(learning: analysis.LearningSummary | None) -> Iterator[tuple[str, str]]:
    if learning is None:
        return
    constant_loss = learning.constant_predictor_loss
    constant = "" if constant_loss is None else f"; a model that ignores its input has {constant_loss:.4f} at best"
    losses = [loss for loss in learning.mean_loss_by_step if loss is not None]
    if learning.diverged_at is not None:
        yield "mean loss", f"not finite from step {learning.diverged_at}: lower the learning rate"
    elif len(losses) != len(learning.mean_loss_by_step):
        yield "mean loss", "never finite"
    elif len(losses) > 1:
        yield (
            "mean loss",
            f"{losses[0]:.4f} in the first step, {losses[-1]:.4f} in step {len(losses)} (the last){constant}",
        )
    elif losses:
        yield "mean loss", f"{losses[0]:.4f}{constant}"
    for evaluation in learning.evaluations[-1:]:
        accuracy = "" if evaluation.accuracy is None else f", accuracy {evaluation.accuracy:.1%}"
        loss = "not finite" if evaluation.loss is None else f"{evaluation.loss:.4f}"
        yield "held-out data", f"loss {loss}{accuracy}"

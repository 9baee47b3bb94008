"""Timelines in tests: laid out by hand, folded into blocks, and the spans that every one has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from ipusim.pipeline.ops import Op
from ipusim.pipeline.order import CopyRule
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules import registry
from ipusim.timeline.copies import Gap, cause_rows
from ipusim.timeline.kinds import BACK_KINDS, OUT_KINDS, PASSES, SpanKind, of_kinds
from ipusim.timeline.repeats import Repeat, block_between, with_copies
from ipusim.timeline.timeline import ALL_IPUS, NONE, Span, Timeline, TimelineInfo


def lay_out_timeline(
    schedule: str = "grouped",
    *,
    mapping: Sequence[int] = (0, 1),
    count: int = 4,
    training: bool = True,
    recompute: bool = False,
    forward: int | Sequence[int] = 100,
    backward: int | Sequence[int] = 200,
    update: int = 150,
    sync: int = 10,
    exchange: int = 20,
    infeed: int = 0,
    outfeed: int = 0,
    host_wait: int = 0,
    executions: int = 1,
    ipus: Sequence[int] | None = None,
    clock_hz: int = 1_600_000_000,
) -> Timeline:
    """Return the Timeline of a lock-step machine; what takes no time leaves no span.

    ``forward`` and ``backward`` are cycles, of all stages or stage by stage.
    """
    shape = PlanShape(mapping=tuple(mapping), micro_batches=count, training=training, recompute=recompute)
    plan = plan_of(registry.find(schedule), shape)
    physical = tuple(ipus) if ipus is not None else tuple(range(max(mapping) + 1))
    passes = {
        int(kind): [cycles] * shape.stages if isinstance(cycles, int) else list(cycles)
        for kind, cycles in ((SpanKind.FORWARD, forward), (SpanKind.BACKWARD, backward), (SpanKind.RECOMPUTE, forward))
    }
    cells = defaultdict(list)
    for step, ipu, *op in sorted(plan.table.tolist(), key=itemgetter(1)):
        cells[step].append((ipu, Op(*op)))  # its kind as a number, which is found faster than a member
    spans: list[tuple[int, ...]] = []
    waits: list[tuple[int, int, int, list[int]]] = []  # until when, step, run, and since when each IPU waits

    host, forward_pass = int(SpanKind.HOST), int(SpanKind.FORWARD)

    def span(start, length, kind, ipu, *, stage=NONE, batch=NONE, step=NONE, run=0, link=NONE, size=0):
        if length:
            kind = int(kind)
            replica = NONE if ipu in (NONE, ALL_IPUS) and kind != host else 0
            spans.append((start, start + length, kind, ipu, stage, batch, step, run, link, size, NONE, replica))
        return start + length

    now = 0
    for run in range(executions):
        free = dict.fromkeys(range(len(physical)), now)
        for step in range(plan.emitted):
            ops = cells.get(step, ())
            for ipu, op in ops:
                if op.stage == 0 and op.kind == forward_pass:
                    span(free[ipu], infeed, SpanKind.HOST, NONE, batch=op.micro_batch, step=step, run=run, link=0)
                    free[ipu] = span(free[ipu], host_wait, SpanKind.HOST_WAIT, ipu, step=step, run=run)
                    where = {"batch": op.micro_batch, "step": step, "run": run, "size": 64}
                    free[ipu] = span(free[ipu], infeed, SpanKind.INFEED, ipu, stage=0, **where)
                where = {"stage": op.stage, "batch": op.micro_batch, "step": step, "run": run}
                free[ipu] = span(free[ipu], passes[op.kind][op.stage], op.kind, ipu, **where)
            crosses = len(physical) > 1 and (plan.copy_rule is not CopyRule.CROSSING or _crosses(shape, ops))
            if crosses:
                meet = max(free.values())
                waits.append((meet, step, run, [*free.values()]))
                synced = span(meet, sync, SpanKind.SYNC, ALL_IPUS, step=step, run=run)
                now = span(synced, exchange, SpanKind.EXCHANGE, ALL_IPUS, step=step, run=run, size=4096)
                for link, share in enumerate((exchange, exchange // 2)):
                    span(synced, share, SpanKind.LINK, NONE, step=step, run=run, link=link, size=2048)
                free = dict.fromkeys(free, now)
            for ipu, op in ops:
                if op.stage == shape.stages - 1 and op.kind == forward_pass:
                    where = {"batch": op.micro_batch, "step": step, "run": run, "size": 8}
                    span(free[ipu], outfeed, SpanKind.HOST, NONE, link=1, **where)
                    free[ipu] = span(free[ipu], outfeed, SpanKind.OUTFEED, ipu, stage=op.stage, **where)
        now = max(free.values())
        if training:
            free = dict.fromkeys(free, now)
            for ipu in shape.mapping:
                free[ipu] = span(free[ipu], update, SpanKind.WEIGHT_UPDATE, ipu, step=plan.emitted, run=run)
            now = max(free.values())
            for ipu in set(shape.mapping):
                span(free[ipu], now - free[ipu], SpanKind.SYNC_WAIT, ipu, step=plan.emitted, run=run)
    table = np.concatenate([np.array(spans, dtype=np.int64).reshape(-1, 12), _waited(waits)])
    order = np.lexsort((table[:, 8], table[:, 3], table[:, 2], table[:, 1], table[:, 0]))
    info = TimelineInfo(
        name=f"{schedule} by hand",
        system="by_hand",
        clock_hz=clock_hz,
        ipus=physical,
        selection_order="ZIGZAG",
        schedule=schedule,
        training=training,
        stages=tuple(f"stage{index}" for index in range(shape.stages)),
        mapping=shape.mapping,
        count=count,
        overlap=plan.overlap,
        time_steps=plan.emitted,
        executions=executions,
        executions_per_step=executions,
        micro_batch_size=16,
        links=("0→1 rung", "1→0 rung"),
    )
    return Timeline(info, table[order])


def _waited(waits: Sequence[tuple[int, int, int, list[int]]]) -> np.ndarray:
    """Return the spans of waiting at syncs, by far the most of many IPUs: built as arrays, they take no time."""
    if not waits:
        return np.zeros((0, 12), np.int64)
    meets, steps, runs, since = map(np.array, zip(*waits, strict=True))
    row, ipu = np.nonzero(since < meets[:, None])
    spans = np.full((len(row), 12), NONE)
    spans[:, 0], spans[:, 1], spans[:, 2], spans[:, 3] = since[row, ipu], meets[row], SpanKind.SYNC_WAIT, ipu
    spans[:, 6], spans[:, 7], spans[:, 9], spans[:, 11] = steps[row], runs[row], 0, 0
    return spans


_laid_out = lru_cache(maxsize=64)(lay_out_timeline)


def timeline_by_hand(*names: str, **changes: Any) -> Timeline:
    """Return what :func:`lay_out_timeline` does, laid out once for the same arguments."""
    hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    return _laid_out(*names, **hashable)


def _crosses(shape: PlanShape, ops: Sequence[tuple[int, object]]) -> bool:
    steps = shape.device_of_step
    for ipu, op in ops:
        step = op.stage if op.kind == SpanKind.FORWARD else 2 * shape.stages - 1 - op.stage
        if op.kind != SpanKind.RECOMPUTE and step + 1 < len(steps) and steps[step + 1] != ipu:
            return True
    return False


def folded(timeline: Timeline, copies: int = 3) -> Timeline:
    """Return the same run with blocks of what happens ``copies`` times or more, micro-batches within executions.

    Every execution leaves as many micro-batches out, as the info of a Timeline with blocks needs it.
    """
    outer = _executions(timeline, copies)
    runs = [_micro_batches(timeline, execution, copies) for execution in range(timeline.info.executions)]
    is_even = len({sum((block.times - 1) * block.micro_batches for block in run) for run in runs}) == 1
    blocks = [*outer]
    for block in (block for run in runs if is_even for block in run):
        is_nested = any(around.first <= block.first and _end(block) <= around.last for around in outer)
        is_beside = all(_end(block) <= around.first or _end(around) <= block.first for around in outer)
        blocks += [block] if is_nested or is_beside else []
    blocks.sort(key=lambda block: (block.first, -block.last))
    kept = np.ones(len(timeline), dtype=bool)
    for block in blocks:
        kept[block.last : _end(block)] = False
    gaps = []
    for block in blocks:
        first, last = (int(kept[:row].sum()) for row in (block.first, block.last))
        gaps.append(Gap(block._replace(first=first, last=last), block.first, block.last - block.first))
    table = np.stack([getattr(timeline, name)[kept] for name in Span._fields], axis=1)
    table[:, Span._fields.index("cause")] = cause_rows(table[:, Span._fields.index("cause")], gaps)
    found = Timeline(timeline.info, table, [gap.block for gap in gaps])
    return found if found.expanded() == timeline and _is_run(found.contiguous()) else timeline


def _end(block: Repeat) -> int:
    """Return the span behind the last copy of a block whose copies are written out."""
    return block.first + block.times * (block.last - block.first)


def _is_run(once: Timeline) -> bool:
    """Whether every micro-batch passes through all that any does, as in a run of so many."""
    passes = np.flatnonzero(of_kinds(once.kind, PASSES))
    columns = [getattr(once, name)[passes] for name in ("micro_batch", "replica", "execution", "kind", "stage")]
    passed = np.unique(np.stack(columns), axis=1)
    others = np.unique(passed[1:], axis=1)
    return passed.shape[1] == len(passes) == others.shape[1] * once.info.count and passed[0].min() == 0


def _micro_batches(timeline: Timeline, execution: int, copies: int) -> list[Repeat]:
    """Return the block of micro-batches of an execution that leaves out most of them, the first of several."""
    own = (timeline.kind == SpanKind.FORWARD) & (timeline.stage == 0) & (timeline.replica == 0)
    rows = np.flatnonzero(own & (timeline.execution == execution))
    rows = rows[np.argsort(timeline.micro_batch[rows], kind="stable")]
    start, step = timeline.start[rows].tolist(), timeline.time_step[rows].tolist()
    found = [
        block
        for period in range(1, len(rows) // copies + 1)
        for at in range(min(len(rows) - copies * period + 1, len(rows) - period))
        for block in _blocks(timeline, start[at], start[at + period], copies, period, step[at + period] - step[at])
    ]
    return [max(found, key=lambda block: (block.times - 1) * block.micro_batches)] if found else []


def _executions(timeline: Timeline, copies: int) -> list[Repeat]:
    """Return the block of whole executions, if they repeat."""
    rows = np.flatnonzero(timeline.ipu != -1)
    _, first = np.unique(timeline.execution[rows], return_index=True)
    start = timeline.start[rows[first]].tolist()
    return [block for begin, end in pairwise(start) for block in _blocks(timeline, begin, end, copies, 0, 0, 1)][:1]


def _blocks(
    timeline: Timeline, begin: int, end: int, copies: int, micro_batches: int, time_steps: int, executions: int = 0
) -> list[Repeat]:
    """Return the block between two cycles with all copies beside it, if they are so many."""
    numbers = {"micro_batches": micro_batches, "time_steps": time_steps, "executions": executions}
    once = block_between(timeline.columns, begin, end, **numbers)
    block = None if once is None else with_copies(timeline.columns, once)
    return [block] if block is not None and block.times >= copies else []


#: Spans that are on no IPU's own track: beside its passes, or beside all IPUs.
BESIDE = (
    SpanKind.SEND,
    SpanKind.LINK,
    SpanKind.HOST,
    SpanKind.OVERLAPPED_INFEED,
    SpanKind.OVERLAPPED_OUTFEED,
    SpanKind.OVERLAPPED_WAIT,
    *OUT_KINDS,
    *BACK_KINDS,
)


def check_tiling(timeline: Timeline) -> int:
    """Hold that each IPU's spans tile the run, and that no link and no track of a host has two at once.

    Returns the cycle in which the last IPU ends.
    """
    shards = len(timeline.info.ipus) // timeline.info.replicas
    own, ends = ~np.isin(timeline.kind, BESIDE), []
    for ipu in {
        replica * shards + shard for replica in range(timeline.info.replicas) for shard in timeline.info.mapping
    }:
        replica = ipu // shards
        mine = (timeline.ipu == ipu) | ((timeline.ipu == ALL_IPUS) & np.isin(timeline.replica, (replica, NONE)))
        start, end = _spans(timeline, own & mine)
        assert start[0] == 0
        assert (start[1:] == end[:-1]).all(), "two spans at once, or a gap that none explains"
        ends.append(int(end[-1]))
    for kind in (SpanKind.LINK, SpanKind.HOST):
        rows = timeline.kind == kind
        for track, replica in set(zip(timeline.link[rows].tolist(), timeline.replica[rows].tolist(), strict=True)):
            start, end = _spans(timeline, rows & (timeline.link == track) & (timeline.replica == replica))
            assert (start[1:] >= end[:-1]).all(), "two spans at once on one track"
    return max(ends)


def _spans(timeline: Timeline, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of spans that take time, in the order of time."""
    start, end = timeline.start[rows], timeline.end[rows]
    order = np.lexsort((end, start))
    return start[order], end[order]

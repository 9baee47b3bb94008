"""Timelines laid out by hand: the lock-step rules in plain loops, for the tests of analysis and render."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import settings

from ipusim.pipeline.plan import CopyRule
from ipusim.pipeline.program import PlanShape
from ipusim.scenario import load_experiment
from ipusim.schedules import registry
from ipusim.timeline.timeline import ALL_IPUS, NONE, SpanKind, Timeline, TimelineInfo

# The same examples in every run, and no judgement of how long one takes: machines are shared.
settings.register_profile("ipusim", deadline=None, derandomize=True)
settings.load_profile("ipusim")


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
    copy_bytes: int = 4096,
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
    shape = PlanShape(mapping=tuple(mapping), count=count, training=training, recompute=recompute)
    plan = registry.find(schedule).plan(shape)
    physical = tuple(ipus) if ipus is not None else tuple(range(max(mapping) + 1))
    passes = {
        kind: [cycles] * shape.stages if isinstance(cycles, int) else list(cycles)
        for kind, cycles in ((SpanKind.FORWARD, forward), (SpanKind.BACKWARD, backward), (SpanKind.RECOMPUTE, forward))
    }
    cells = plan.cells()
    spans: list[tuple[int, ...]] = []

    def span(start, length, kind, ipu, *, stage=NONE, batch=NONE, step=NONE, run=0, link=NONE, size=0):
        if length:
            replica = NONE if ipu == NONE and kind != SpanKind.HOST else 0
            spans.append((start, start + length, int(kind), ipu, stage, batch, step, run, link, size, NONE, replica))
        return start + length

    now = 0
    for run in range(executions):
        free = dict.fromkeys(range(len(physical)), now)
        for step in range(plan.emitted):
            ops = [(ipu, op) for ipu in free for op in cells.get((step, ipu), [])]
            for ipu, op in ops:
                if op.stage == 0 and op.kind == SpanKind.FORWARD:
                    span(free[ipu], infeed, SpanKind.HOST, NONE, batch=op.micro_batch, step=step, run=run, link=0)
                    free[ipu] = span(free[ipu], host_wait, SpanKind.HOST_WAIT, ipu, step=step, run=run)
                    where = {"batch": op.micro_batch, "step": step, "run": run, "size": 64}
                    free[ipu] = span(free[ipu], infeed, SpanKind.INFEED, ipu, stage=0, **where)
                where = {"stage": op.stage, "batch": op.micro_batch, "step": step, "run": run}
                free[ipu] = span(free[ipu], passes[op.kind][op.stage], SpanKind(op.kind), ipu, **where)
            crosses = len(physical) > 1 and (plan.copy_rule is not CopyRule.CROSSING or _crosses(shape, ops))
            if crosses:
                meet = max(free.values())
                for ipu, at in free.items():
                    span(at, meet - at, SpanKind.SYNC_WAIT, ipu, step=step, run=run)
                synced = span(meet, sync, SpanKind.SYNC, ALL_IPUS, step=step, run=run)
                now = span(synced, exchange, SpanKind.EXCHANGE, ALL_IPUS, step=step, run=run, size=copy_bytes)
                for link, share in enumerate((exchange, exchange // 2)):
                    span(synced, share, SpanKind.LINK, NONE, step=step, run=run, link=link, size=copy_bytes // 2)
                free = dict.fromkeys(free, now)
            for ipu, op in ops:
                if op.stage == shape.stages - 1 and op.kind == SpanKind.FORWARD:
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
    table = np.array(spans, dtype=np.int64).reshape(-1, 12)
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


def _crosses(shape: PlanShape, ops: Sequence[tuple[int, object]]) -> bool:
    steps = shape.device_of_step
    for ipu, op in ops:
        step = op.stage if op.kind == SpanKind.FORWARD else 2 * shape.stages - 1 - op.stage
        if op.kind != SpanKind.RECOMPUTE and step + 1 < len(steps) and steps[step + 1] != ipu:
            return True
    return False


@pytest.fixture(scope="session")
def lock_step() -> Callable[..., Timeline]:
    """The builder of hand-made Timelines, :func:`lay_out_timeline`."""
    return lay_out_timeline


@pytest.fixture
def load(tmp_path):
    """Resolve the text of a scenario, with changes: ``load(text, "steps=2")``."""

    def of(text, *overrides):
        path = tmp_path / "scenario.yaml"
        path.write_text(text)
        return load_experiment(path, overrides)

    return of

"""Timelines laid out by hand, the lock-step rules in plain loops; and a reader of Perfetto traces."""

from __future__ import annotations

import gc
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, Trace, TracePacket, TrackEvent

from ipusim.pipeline.ops import Op
from ipusim.pipeline.plan import CopyRule
from ipusim.pipeline.program import PlanShape
from ipusim.scenario import load_job
from ipusim.schedules import registry
from ipusim.timeline.kinds import SpanKind
from ipusim.timeline.timeline import ALL_IPUS, NONE, Timeline, TimelineInfo

# What is imported and collected stays: to look for garbage in it, again and again, took a fifth of a test's time.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


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
    shape = PlanShape(mapping=tuple(mapping), micro_batches=count, training=training, recompute=recompute)
    plan = registry.find(schedule).plan(shape)
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
                now = span(synced, exchange, SpanKind.EXCHANGE, ALL_IPUS, step=step, run=run, size=copy_bytes)
                for link, share in enumerate((exchange, exchange // 2)):
                    span(synced, share, SpanKind.LINK, NONE, step=step, run=run, link=link, size=copy_bytes // 2)
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


@pytest.fixture(scope="session")
def lock_step() -> Callable[..., Timeline]:
    """The builder of hand-made Timelines, :func:`timeline_by_hand`."""
    return timeline_by_hand


@pytest.fixture
def load(tmp_path):
    """Resolve the text of a scenario, with changes: ``load(text, "steps=2")``."""

    def of(text, *overrides):
        path = tmp_path / "scenario.yaml"
        path.write_text(text)
        return load_job(path, overrides)

    return of


class PerfettoReader:
    """A Perfetto trace read back by the library's own messages, as a viewer does.

    Attributes:
        tracks: path of each track, from the top: its name, with those that it lies under before it.
        slices: track, name, category, start_ns, end_ns, args, leaving, arriving, and how many are open around it.
        counters: (time_ns, value) of each counter's track; ``units`` has their units.
    """

    def __init__(self, trace: bytes) -> None:
        self.descriptors, self.slices, self.counters = {}, [], defaultdict(list)
        names: dict[str, dict[int, str]] = {}
        events = []
        for packet in Trace.FromString(trace).packet:
            if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                names = defaultdict(dict)
            for field, entries in packet.interned_data.ListFields():
                for entry in entries:
                    names[field.name][entry.iid] = entry.str.decode() if hasattr(entry, "str") else entry.name
            if packet.HasField("track_descriptor"):
                self.descriptors[packet.track_descriptor.uuid] = packet.track_descriptor
            elif packet.HasField("track_event"):
                events.append((packet.timestamp, packet.track_event, names))
        events.sort(key=lambda event: event[0])
        open_slices = defaultdict(list)
        for time_ns, event, known in events:
            track = self.path(event.track_uuid)
            match event.type:
                case TrackEvent.TYPE_COUNTER:
                    self.counters[track].append((time_ns, event.counter_value))
                case TrackEvent.TYPE_SLICE_BEGIN:
                    found = SimpleNamespace(
                        track=track,
                        name=event.name or known["event_names"][event.name_iid],
                        category=known["event_categories"][event.category_iids[0]],
                        start_ns=time_ns,
                        end_ns=None,
                        args={
                            known["debug_annotation_names"][each.name_iid]: _argument(each, known)
                            for each in event.debug_annotations
                        },
                        leaving=list(event.flow_ids),
                        arriving=list(event.terminating_flow_ids),
                        around=len(open_slices[track]),
                    )
                    open_slices[track].append(found)
                    self.slices.append(found)
                case TrackEvent.TYPE_SLICE_END:
                    open_slices[track].pop().end_ns = time_ns
        assert not any(open_slices.values())

    @property
    def tracks(self) -> list[tuple[str, ...]]:
        return [self.path(uuid) for uuid in self.descriptors]

    @property
    def units(self) -> dict[tuple[str, ...], str]:
        counters = {uuid: each.counter for uuid, each in self.descriptors.items() if each.HasField("counter")}
        return {
            self.path(uuid): counter.unit_name or CounterDescriptor.Unit.Name(counter.unit)
            for uuid, counter in counters.items()
        }

    def path(self, uuid: int) -> tuple[str, ...]:
        track = self.descriptors[uuid]
        return (*(self.path(track.parent_uuid) if track.parent_uuid else ()), track.name)


def _argument(each, known):
    if each.HasField("string_value_iid"):
        return known["debug_annotation_string_values"][each.string_value_iid]
    return each.string_value if each.HasField("string_value") else each.int_value


@pytest.fixture(scope="session")
def read_perfetto() -> Callable[[bytes], PerfettoReader]:
    """The reader of Perfetto traces."""
    return PerfettoReader


def pytest_terminal_summary(terminalreporter):
    """Print what the tests of each folder took: seconds of all workers together, and of a clock."""
    seconds, workers, began, ended = Counter(), set(), [], []
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("/")[2].partition("/")[0]] += report.duration
            workers.add(getattr(report, "node", None))
            began.append(report.start)
            ended.append(report.stop)
    terminalreporter.section("seconds of tests")
    for folder, taken in seconds.most_common():
        terminalreporter.write_line(f"{folder:12}{taken:8.1f}  {taken / len(workers):7.1f} over {len(workers)} workers")
    if began:
        terminalreporter.write_line(
            f"{'all':12}{seconds.total():8.1f}  {max(ended) - min(began):7.1f} from first to last"
        )

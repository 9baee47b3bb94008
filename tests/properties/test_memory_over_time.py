"""Memory at every moment of a run, against a sum in plain loops over the Plan's and Timeline's numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.analysis.memory import memory_curves
from ipusim.hardware.build import build_system
from ipusim.machine.simulate import simulate
from ipusim.model.profile import StageProfile
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.liveness import peaks
from ipusim.pipeline.program import Infeed, Outfeed, PipelineProgram, PlanShape
from ipusim.schedules.registry import find
from ipusim.timeline.timeline import SpanKind

SIZES = (
    "output_bytes",
    "gradient_bytes",
    "parameter_bytes",
    "state_bytes",
    "accumulator_bytes",
    "input_bytes",
    "stash_bytes",
    "working_bytes",
    "weight_gradient_bytes",
    "code_bytes",
)


@st.composite
def programs(draw):
    stages = draw(st.integers(2, 4))
    schedule = draw(st.sampled_from(["grouped", "interleaved", "sequential", "sharded", "single"]))
    training = draw(st.booleans())
    mapping = tuple(draw(st.permutations(range(stages))))
    if schedule == "single":
        mapping = (0,) * stages
    elif schedule in ("grouped", "sequential") and draw(st.booleans()):
        mapping = tuple(draw(st.lists(st.integers(0, 2), min_size=stages, max_size=stages)))
    overlap = {"grouped": 2 * stages if training else stages, "interleaved": stages}.get(schedule, 1)
    shape = PlanShape(
        mapping,
        overlap * draw(st.integers(1, 2)),
        training,
        training and schedule in ("grouped", "interleaved") and draw(st.booleans()),
    )
    profiles = tuple(
        StageProfile(
            f"s{index}",
            draw(st.integers(0, 40)),
            draw(st.integers(0, 40)),
            draw(st.integers(0, 9)),
            **{size: draw(st.integers(0, 999)) for size in SIZES},
        )
        for index in range(stages)
    )
    return PipelineProgram(
        profiles,
        shape,
        schedule,
        repeat_count=draw(st.integers(1, 2)),
        infeed=Infeed(draw(st.integers(0, 99))),
        outfeed=Outfeed(draw(st.integers(0, 99))),
    )


def resident(program, plan, ipu):
    """Bytes that an IPU holds all the time."""
    total = 0
    last = program.shape.stages - 1
    for index, profile in enumerate(program.stages):
        if program.shape.mapping[index] != ipu:
            continue
        total += profile.parameter_bytes + profile.code_bytes
        if program.shape.training:
            total += profile.state_bytes + profile.accumulator_bytes
            recomputes = program.shape.recompute and index < last
            total += plan.fifo_depths[index] * (profile.input_bytes if recomputes else profile.stash_bytes)
        if index == 0:
            total += program.infeed.element_bytes
        if index == last:
            total += program.outfeed.element_bytes
    merged = program.schedule in ("grouped", "interleaved")
    for index in range(last):
        forward, back = program.stages[index].output_bytes, program.stages[index + 1].gradient_bytes
        here = [program.shape.mapping[index] == ipu, program.shape.mapping[index + 1] == ipu]
        buffers = sum(here) if merged or not all(here) else 1
        total += buffers * (forward + back)
    return total


def lives(timeline):
    """The passes of each (stage, execution, micro-batch): start and end by kind."""
    found = {}
    for span in timeline:
        if span.kind in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.RECOMPUTE):
            life = found.setdefault((span.stage, span.execution, span.micro_batch), {})
            life[SpanKind(span.kind)] = span.start, span.end
    return found


def at(program, plan, passes, ipu, now):
    """Bytes alive, and bytes in FIFOs, of one IPU at one moment."""
    live = in_fifos = 0
    for index, profile in enumerate(program.stages):
        if program.shape.mapping[index] != ipu:
            continue
        recomputes = program.shape.recompute and index < program.shape.stages - 1
        kept = working = 0
        for (stage, _, _), life in passes.items():
            if stage != index:
                continue
            running = [kind for kind, (start, end) in life.items() if start <= now < end]
            release = SpanKind.RECOMPUTE if recomputes else SpanKind.BACKWARD
            if SpanKind.FORWARD in running:
                live += profile.output_bytes
                if recomputes or not program.shape.training:
                    live += max(profile.working_bytes - profile.output_bytes, 0)
            if SpanKind.BACKWARD in running:
                live += max(profile.working_bytes, profile.gradient_bytes) + profile.weight_gradient_bytes
            if program.shape.training:
                working += SpanKind.FORWARD in running or release in running
                kept += life[SpanKind.FORWARD][0] <= now < life[release][1]
            if recomputes and life[SpanKind.RECOMPUTE][0] <= now < life[SpanKind.BACKWARD][1]:
                live += profile.stash_bytes
        if program.shape.training:
            outside = max(working, kept - plan.fifo_depths[index])
            size = profile.input_bytes if recomputes else profile.stash_bytes
            live += size * outside
            in_fifos += size * (kept - outside)
    return live, in_fifos


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from(["free", "m2000"]))
def test_memory_is_the_sum_of_what_is_alive_at_every_moment(program, machine):
    plan = find(program.schedule).plan(program.shape)
    timeline = simulate(plan, program, build_system(machine, mapping=program.shape.mapping))
    held = footprint(plan, program)
    passes = lives(timeline)
    for peak, curve in zip(peaks(plan, held), memory_curves(timeline, held), strict=True):
        assert curve.resident_bytes == resident(program, plan, curve.ipu)
        assert (np.diff(curve.time) >= 0).all()
        assert curve.live_bytes.min() >= 0
        assert curve.fifo_bytes.min() >= 0
        assert (curve.fifo_bytes <= curve.resident_bytes).all()
        assert curve.live_bytes[0] == curve.live_bytes[-1] == 0, "back at what is resident"
        assert curve.fifo_bytes[0] == curve.fifo_bytes[-1] == 0
        assert curve.allocated_bytes.max() == peak.bytes, "from the order alone as from the run"
        moments = np.unique(curve.time)
        for now in {*moments.tolist(), *(moments[:-1] + np.diff(moments) // 2).tolist(), timeline.makespan_cycles}:
            entry = int(np.searchsorted(curve.time, now, side="right")) - 1
            found = int(curve.live_bytes[entry]), int(curve.fifo_bytes[entry])
            assert found == at(program, plan, passes, curve.ipu, now)

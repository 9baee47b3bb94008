"""Plans as tests write, read, change, check and run them.

``order_violations`` is an independent reading of the compiler's layout: it goes from an operation to its time-step by
the closed form, where the schedules go from time-steps to operations. Orders that break no dependency, yet are not
the compiler's, show there.
"""

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.hardware.system import System
from ipusim.lowering.lower import complete, lower
from ipusim.machine.clock import Clock
from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.executor import NullExecutor, Replicas
from ipusim.machine.facility import Context
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.rerouted import rerouted
from ipusim.machine.simulate import simulate
from ipusim.machine.speeds import speeds_of
from ipusim.pipeline.check import Violation
from ipusim.pipeline.grid import parse_mapping
from ipusim.pipeline.instructions import COLUMNS, NONE, PASSES, Code, Table
from ipusim.pipeline.moves import Way
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.order import CopyRule, Order
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing.costs import Costs
from ipusim.pricing.price import price_plan
from ipusim.schedules.serial import time_step_of
from ipusim.timeline.recorder import Recorder
from ipusim.timeline.timeline import Timeline

_HEADER: Final = re.compile(
    r"(?P<schedule>\S+) (?P<task>training|inference)(?P<recompute> with recomputation)?(?P<inline> inside backward)?"
    r"(?P<io> with overlapped I/O)?, stages on IPUs (?P<mapping>[\d, +]+), count (?P<count>\d+)"
    r"(, (?P<serial>\d+) in a row)?"
)
_EMITTED: Final = re.compile(
    r"time-steps (?P<emitted>\d+) emitted(, \d+ with passes)?, copies (?P<copies>.+), FIFO depths (?P<depths>.*)"
)
_OFFSETS: Final = re.compile(r"offsets \[([\d, ]*)\]")
_ROW: Final = re.compile(r"\s*(\d+)\s\s(.*?)(\s+<--.*)?")


def parse_grid(text: str) -> Plan:
    """Read back what :func:`format_grid` wrote."""
    lines = [line for line in text.splitlines() if line.strip()]
    head, emitted = _HEADER.fullmatch(lines[0].strip()), _EMITTED.fullmatch(lines[1].strip())
    offsets = _OFFSETS.fullmatch(lines[2].strip())
    assert head
    assert emitted
    assert offsets
    mapping, sizes = parse_mapping(head["mapping"])
    inline = head["inline"] is not None
    shape = PlanShape(
        mapping=mapping,
        micro_batches=int(head["count"]),
        training=head["task"] == "training",
        recompute=head["recompute"] is not None and not inline,
        recompute_inline=inline,
        overlapped_io=head["io"] is not None,
        sizes=sizes,
        serialization=int(head["serial"] or 1),
    )
    rows: list[tuple[int, ...]] = []
    for line in lines[3:]:
        match = _ROW.fullmatch(line)
        assert match
        for ipu, cell in zip(sorted(set(mapping)), match[2].split("|"), strict=True):
            rows += ((int(match[1]), ipu, *Op.parse(word)) for word in cell.split() if word != ".")
    order = Order(
        head["schedule"],
        shape,
        offsets=tuple(int(offset) for offset in re.findall(r"\d+", offsets[1])),
        emitted=int(emitted["emitted"]),
        fifo_depths=tuple(int(depth) for depth in re.findall(r"\d+", emitted["depths"])),
        copy_rule=CopyRule(emitted["copies"]),
        table=np.array(rows, dtype=np.int64).reshape(-1, 5),
    )
    return lower(order, Sync.LOCK_STEP)


def with_table(plan: Plan, table: npt.NDArray[np.int64]) -> Plan:
    """Return a Plan in lock-step with the same header and other operations."""
    order = Order(
        plan.schedule,
        plan.shape,
        offsets=plan.offsets or (0,),
        emitted=plan.emitted,
        fifo_depths=plan.fifo_depths,
        copy_rule=plan.copy_rule,
        table=table,
    )
    return lower(order, Sync.LOCK_STEP)


def time_steps_with_work(plan: Plan) -> int:
    """Return the number of time-steps in which any IPU runs an operation."""
    return len(np.unique(plan.time_step))


_CODES = {code.word: code for code in Code if code >= PASSES}


def parse_listing(text: str) -> Table:
    """Read back what :meth:`Plan.listing` wrote."""
    rows: list[tuple[int, ...]] = []
    for line in text.splitlines():
        head, _, rest = line.partition(": ")
        rows += ((int(head.removeprefix("IPU ")), *parse(instruction)) for instruction in rest.split(";"))
    return np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))


def _of_pass(text: str, has_micro_batch: bool) -> tuple[int, int, int]:
    """Read the pass that an instruction is for, or ``update``, as (stage, micro-batch, number)."""
    if text == "update":
        return NONE, NONE, NONE
    op = Op.parse(text if has_micro_batch else f"{text}.0")
    return op.stage, op.micro_batch if has_micro_batch else NONE, int(op.kind)


def parse(text: str) -> tuple[int, int, int, int]:  # noqa: PLR0911
    """Read back what :func:`text_of` wrote, as (code, stage, micro-batch, number)."""
    word, _, rest = text.strip().partition(" ")
    code = _CODES.get(word)
    if code is None:
        op = Op.parse(word)
        return int(op.kind), op.stage, op.micro_batch, NONE
    if code is Code.MEET:
        return code, NONE, NONE, int(rest.removeprefix("x") or 1)
    if code in (Code.SEND, Code.BLOCKING_SEND, Code.RECEIVE):
        source, target, micro_batch = map(int, re.split(r"->|\.", rest))
        return code, *((target, micro_batch, source) if code is Code.RECEIVE else (source, micro_batch, target))
    if code is Code.OUTFEED:
        micro, _, period = rest.partition(" /")
        return code, NONE, int(micro), int(period or 1)
    if code in (Code.INFEED, Code.ADD_RESULTS, Code.LOOK_UP, Code.UPDATE_ROWS, Code.MOVE, Code.MOVED):
        which, _, way = rest.partition(" ")
        of_stage, _, micro = which.rpartition(".")
        return code, int(of_stage or NONE), int(micro), Way[way.upper()] if way else NONE
    if code is Code.BEGIN_IO:
        moved, _, period = rest.partition(" /")
        handed_out, taken = (NONE if side == "." else int(side) for side in moved.split())
        return code, int(period or 1), taken, handed_out
    if code in (Code.LOAD, Code.STORE, Code.COLLECTIVE, Code.OUTSIDE):
        return code, *_of_pass(rest, code in (Code.COLLECTIVE, Code.OUTSIDE))
    if code in (Code.GATHER, Code.RELEASE):
        return code, NONE if rest == "update" else int(rest), NONE, NONE
    return code, NONE, NONE, NONE


def expected_time_step(plan: Plan, op: Op) -> int:
    """Return the time-step of ``op``: k_j + S * floor(m / V) + q, with j = m mod V and q its step.

    A recomputation runs one time-step before the backward that it serves. With overlapped
    I/O all passes run one time-step later; with batch serialization see :func:`time_step_of`.
    """
    if plan.shape.serialization > 1:
        return time_step_of(plan.shape, plan.shape.step_of(op.kind, op.stage), op.micro_batch)
    row, column = op.micro_batch % plan.overlap, op.micro_batch // plan.overlap
    start = plan.offsets[row] + plan.shape.steps * column + plan.shape.overlapped_io
    if op.kind == Pass.FORWARD:
        return start + plan.shape.position_of[op.stage]
    backward = start + plan.shape.step_of(Pass.BACKWARD, op.stage)
    return backward - 1 if op.kind == Pass.RECOMPUTE else backward


def order_violations(plan: Plan) -> list[Violation]:
    """Return every operation that is not where the compiler puts it, or not in its order within a time-step.

    Within a time-step an IPU runs stage programs in descending step order
    (backward before forward), then recomputations, later stages first.
    """
    found = []
    last: tuple[int, int, tuple[int, int]] | None = None
    for time_step, ipu, op in plan.ops():
        right = expected_time_step(plan, op)
        if right != time_step:
            text = f"{op} belongs in time-step {right} of the {plan.schedule} schedule"
            found.append(Violation("order", time_step, ipu, text))
        key = (1, -op.stage) if op.kind == Pass.RECOMPUTE else (0, -plan.shape.step_of(op.kind, op.stage))
        if last is not None and last[:2] == (time_step, ipu) and last[2] > key:
            text = f"{op} runs too late in its time-step: backward goes before forward, recomputation last"
            found.append(Violation("order", time_step, ipu, text))
        last = (time_step, ipu, key)
    return found


def price_and_run(plan: Plan, program: PipelineProgram, system: System, **options: Any) -> Timeline:
    """Return the Timeline of ``plan``; ``options`` are those of :func:`ipusim.machine.simulate.simulate`."""
    plan = complete(plan, program, system.replicas)
    costs = price_plan(plan, program, system)
    if isinstance(executor := options.get("executor"), NumpyExecutor):
        options["executor"] = replicas_of([executor], plan, program, system, costs)
    return simulate(plan, program, system, costs=costs, **options)


def context_of(plan: Plan, program: PipelineProgram, system: System, costs: Costs, executions: int) -> Context:
    """Return the context of a run without arithmetic, for a machine that a test looks into."""
    costs, routes = rerouted(plan, program, system, costs)
    together = Replicas((NullExecutor(),) * system.replicas)
    clock, recorder = Clock(speeds_of(system)), Recorder(plan.emitted + 1)
    return Context(clock, recorder, plan, program, system, costs, together, executions, lambda steps: None, routes)

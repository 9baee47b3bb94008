"""Check that a Plan obeys the rules of every Plan, independently of the code that lays Plans out.

The rules follow from the life of one micro-batch. In lock-step, a pass may start only in a time-step after its inputs
were produced, because tensors move at the end of a time-step. The last stage's backward pass is an exception: its
inputs are on the same IPU, so the pass may follow the forward pass in the same time-step. The passes and copies of such
a Plan cannot deadlock: time-steps run one after the other, and within a time-step no IPU waits for another. A Plan in
point-to-point has no time-steps: its sends and receives are checked for circular waits.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import MOST_SHOWN_CHARACTERS, PlanError, without_middle
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.instructions import NONE, any_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.violation import Rule, Violation
from ipusim.pipeline.waits import endings, feeds, meetings, waits

#: Grid rows in a message, around the first violation.
_CONTEXT_ROWS: Final = 60
#: Maximum length of a grid row in a message, in characters.
_WIDTH: Final = 200
#: Time-step of operations missing in a Plan.
_NO_STEP: Final = np.iinfo(np.int64).min


def violations(plan: Plan) -> list[Violation]:
    """Return all violations in ``plan``; empty for a correct plan.

    Rules of all Plans:

    - once: every pass of every stage over every micro-batch runs exactly once;
    - placement: every pass runs on the IPU of its stage;
    - dependency: every pass runs after all needed passes;
    - memory: the FIFO and the stage hold all micro-batches between a stage's forward and backward pass;
    - feed: each input and result is transferred once, in order with its pass;
    - deadlock: no IPUs wait for each other in a circle.

    Rules of lock-step:

    - repeat: no stage program runs twice in a time-step;
    - range: no operation lies outside the emitted time-steps;
    - meeting: after every time-step all IPUs meet (wait for each other), and they run passes in the Plan's time-steps.

    Rule of point-to-point:

    - sending: every received tensor is sent, after the pass that produces the tensor.

    Feeds and the meetings of an execution's end are checked only in Plans without other violations.
    """
    rows = _Rows(plan)
    if not plan.sync.has_time_steps:
        found_violations = [*_check_once(rows), *_placement(rows), *_segments(rows), *waits(plan), *_memory(rows)]
    else:
        timing = [*_dependencies(rows), *_segments(rows), *_repeats(rows)]
        found_violations = [*_check_once(rows), *_placement(rows), *timing, *_memory(rows), *meetings(plan)]
    return found_violations or [*endings(plan), *feeds(plan)]


def check_plan(plan: Plan) -> None:
    """Raise PlanError with the grid and its violations marked, if ``plan`` has any.

    For an Order read from a file, the message includes where the file has the passes of the first violation.
    """
    found_violations = violations(plan)
    if not found_violations:
        return
    notes: dict[int, str] = {}
    marks: dict[tuple[int | None, Op], str] = {}
    for violation in found_violations:
        remark = f"ERROR HERE: {violation.text}"
        if violation.time_step is not None and not violation.ops:
            notes.setdefault(violation.time_step, remark)
        for op in violation.ops:
            marks.setdefault((violation.time_step, op), remark)
    grid = format_grid(plan, notes, marks).splitlines()
    first = next((index for index, line in enumerate(grid) if "<--" in line), 0)
    shown_lines = [
        without_middle(line, _WIDTH) for line in grid[max(3, first - _CONTEXT_ROWS // 2) : first + _CONTEXT_ROWS // 2]
    ]
    mark_row = min(first - 3, _CONTEXT_ROWS // 2)
    rows = max(1, MOST_SHOWN_CHARACTERS // (2 * max(map(len, shown_lines), default=1) + 2))
    count = "a rule" if len(found_violations) == 1 else f"rules in {len(found_violations)} places"
    lines = [
        *(without_middle(line, _WIDTH) for line in grid[:3]),
        *shown_lines[max(0, mark_row - rows) : max(mark_row, 0) + rows],
    ]
    raise PlanError(
        "\n".join([f"the plan breaks {count}: {found_violations[0]}{_in_file(plan, found_violations[0])}", *lines])
    )


def _in_file(plan: Plan, violation: Violation) -> str:
    """Return file positions of the passes in a violation; empty without a file."""
    places = [f"{op} in {plan.order.places[op]}" for op in violation.ops if op in plan.order.places]
    return f" ({plan.schedule}: {', '.join(places)})" if places else ""


class _Rows:
    """Operations of a Plan as columns; only operations in violations become objects.

    Attributes:
        plan: the Plan.
        is_known: mask of operations with an existing stage and micro-batch.
        key: index of a known operation in a table of all kinds, stages and micro-batches.
        table: shape of that table.
        size: number of its entries.
        in_halves: mask by stage and micro-batch: backward passes that run in two halves, as an input-gradient pass and
            a weight-gradient pass.
    """

    def __init__(self, plan: Plan) -> None:
        shape = plan.shape
        self.plan = plan
        stage, micro_batch = plan.stage, plan.micro_batch
        self.is_known = (stage >= 0) & (stage < shape.stages) & (micro_batch >= 0) & (micro_batch < shape.micro_batches)
        self.key = np.where(self.is_known, (plan.kind * shape.stages + stage) * shape.micro_batches + micro_batch, -1)
        self.table = len(Pass), shape.stages, shape.micro_batches
        self.size = math.prod(self.table)
        occurs = np.zeros(self.table, bool)
        occurs.flat[self.key[self.is_known]] = True
        self.in_halves = occurs[Pass.INPUT_GRADIENT] | occurs[Pass.WEIGHT_GRADIENT]

    def op(self, row: int) -> Op:
        """Return the operation of a row."""
        plan = self.plan
        return Op(Pass(int(plan.kind[row])), int(plan.stage[row]), int(plan.micro_batch[row]))

    def violation(self, rule: Rule, row: int, text: str) -> Violation:
        """Return a violation by the operation of ``row``; ``text`` follows the operation's name."""
        op = self.op(row)
        return Violation(rule, *self.step_and_ipu(row), f"{op.text(self.plan.shape.segments)} {text}", (op,))

    def step_and_ipu(self, row: int) -> tuple[int | None, int]:
        """Return time-step and IPU of an operation; the time-step is None in point-to-point."""
        has_time_steps = self.plan.sync.has_time_steps
        return int(self.plan.time_step[row]) if has_time_steps else None, int(self.plan.ipu[row])


def _needs_of_execution(rows: _Rows) -> npt.NDArray[np.bool_]:
    """Mask the keys of operations needed by a pipeline execution."""
    shape = rows.plan.shape
    needs = np.zeros(rows.table, bool)
    needs[Pass.FORWARD] = True
    needs[Pass.BACKWARD] = shape.training & ~rows.in_halves
    needs[[Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT]] = shape.training & rows.in_halves
    needs[Pass.RECOMPUTE, :-1] = shape.recompute and shape.training
    return needs.ravel()


def _check_once(rows: _Rows) -> list[Violation]:
    plan, needs = rows.plan, _needs_of_execution(rows)
    times = np.bincount(rows.key[rows.is_known], minlength=rows.size)
    is_unknown = ~rows.is_known | ~needs[rows.key]
    is_outside = plan.sync.has_time_steps & ((plan.time_step < 0) | (plan.time_step >= plan.emitted))
    is_repeat = np.zeros(len(plan.table), bool)
    for key in np.flatnonzero(needs & (times > 1)).tolist():
        is_repeat[np.flatnonzero(rows.key == key)[1]] = True
    found_violations = []
    for row in np.flatnonzero(is_unknown | is_repeat | is_outside).tolist():
        if is_unknown[row]:
            found_violations.append(rows.violation("once", row, "is no operation of this pipeline"))
        elif is_repeat[row]:
            found_violations.append(rows.violation("once", row, "runs a second time; each runs exactly once"))
        if is_outside[row]:
            found_violations.append(rows.violation("range", row, f"lies outside the {plan.emitted} time-steps emitted"))
    for key in np.flatnonzero(needs & (times == 0)).tolist():
        stage, micro_batch = divmod(key, plan.shape.micro_batches)
        op = Op(Pass(stage // plan.shape.stages), stage % plan.shape.stages, micro_batch)
        found_violations.append(Violation("once", None, None, f"{op} never runs; each runs exactly once"))
    return found_violations


def _placement(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    has_stage = (plan.stage >= 0) & (plan.stage < plan.shape.stages)
    home = plan.shape.ipu_of(np.where(has_stage, plan.stage, 0), plan.micro_batch)
    return [
        rows.violation("placement", row, f"runs on IPU {plan.ipu[row]}, but its stage lives on IPU {home[row]}")
        for row in np.flatnonzero(has_stage & (home != plan.ipu)).tolist()
    ]


def _needs(plan: Plan, kind: int, stage: int) -> list[tuple[Pass, int]]:
    """Return the passes over a micro-batch that must precede a pass, by consumed tensors."""
    if kind == Pass.FORWARD:
        return [(Pass.FORWARD, source) for source in plan.shape.neighbours(stage, -1)]
    if kind == Pass.RECOMPUTE:
        return [(Pass.FORWARD, stage)]
    if kind == Pass.WEIGHT_GRADIENT:
        return [(Pass.INPUT_GRADIENT, stage)]
    needs = [(Pass.FORWARD, stage), *((Pass.BACKWARD, target) for target in plan.shape.neighbours(stage, 1))]
    if plan.shape.recompute and stage < plan.shape.stages - 1:
        needs.append((Pass.RECOMPUTE, stage))
    return needs


def _dependencies(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    step_of_key, run_at = np.full(rows.size, _NO_STEP), np.full(rows.size, len(plan.table))
    step_of_key[rows.key[rows.is_known]] = plan.time_step[rows.is_known]
    run_at[rows.key[rows.is_known]] = np.flatnonzero(rows.is_known)
    turning_stage = plan.shape.stages - 1 if not plan.shape.sizes else NONE
    late: list[tuple[int, int, str]] = []
    for group in _groups(rows.is_known, plan.kind * plan.shape.stages + plan.stage):
        kind, stage = int(plan.kind[group[0]]), int(plan.stage[group[0]])
        for number, (need_kind, need_stage) in enumerate(_needs(plan, kind, stage)):
            needed_kind = np.full(plan.shape.micro_batches, int(need_kind))
            if need_kind == Pass.BACKWARD:
                needed_kind[rows.in_halves[need_stage]] = Pass.INPUT_GRADIENT
            micro_batch = plan.micro_batch[group]
            need_key = (
                needed_kind[micro_batch] * plan.shape.stages + need_stage
            ) * plan.shape.micro_batches + micro_batch
            need_step = step_of_key[need_key]
            is_early_enough = need_step < plan.time_step[group]
            if (
                need_kind == Pass.FORWARD and need_stage == stage == turning_stage
            ):  # no tensor moves between these passes
                is_early_enough |= (need_step == plan.time_step[group]) & (run_at[need_key] < group)
            wrong = np.flatnonzero((need_step != _NO_STEP) & ~is_early_enough)
            for row, late_step in zip(group[wrong].tolist(), need_step[wrong].tolist(), strict=True):
                op = Op(Pass(needed_kind[plan.micro_batch[row]]), need_stage, int(plan.micro_batch[row]))
                need = op.text(plan.shape.segments)
                text = f"needs {need}, which runs too late, in time-step {late_step}"
                late.append((row, number, text))
    return [rows.violation("dependency", row, text) for row, _, text in sorted(late)]


def _segments(rows: _Rows) -> list[Violation]:
    """Return passes over a segment that run before a needed pass over another segment of the micro-batch.

    A segment is a part of a micro-batch.

    A forward pass needs keys and values of the previous segment; a backward pass needs gradients of the next segment.
    These segments belong to the same stage and IPU, and an IPU runs passes in row order.
    """
    plan, segments, found_violations = rows.plan, rows.plan.shape.segments, []
    if segments == 1:
        return []
    key = plan.stage * plan.shape.micro_batches + plan.micro_batch
    for kinds, stride in (((Pass.FORWARD,), -1), ((Pass.BACKWARD, Pass.INPUT_GRADIENT), 1)):
        indices = np.flatnonzero(rows.is_known & any_of(plan.kind, kinds))
        run_at = np.full(plan.shape.stages * plan.shape.micro_batches, NONE)
        run_at[key[indices]] = indices
        segment = plan.micro_batch[indices] % segments + stride
        indices = indices[(segment >= 0) & (segment < segments)]
        for row in indices[run_at[key[indices] + stride] > indices].tolist():
            need = rows.op(int(run_at[key[row] + stride])).text(segments)
            found_violations.append(rows.violation("dependency", row, f"needs {need}, which its IPU runs later"))
    return found_violations


def _repeats(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    pipeline_copy = plan.micro_batch % len(plan.shape.copies)
    columns = (plan.time_step, plan.kind, plan.stage, pipeline_copy)
    order = np.lexsort(columns[::-1])  # stable: equal rows stay in order
    is_same = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        is_same &= np.diff(column[order]) == 0
    first = np.maximum.accumulate(np.where(np.r_[True, ~is_same], np.arange(len(order)), 0)) if len(order) else order
    wrong = np.flatnonzero(np.r_[False, is_same])
    repeats = sorted(zip(order[wrong].tolist(), order[first[wrong]].tolist(), strict=True))
    return [
        rows.violation(
            "repeat", row, f"runs beside {rows.op(earlier)}; a stage's program runs at most once in a time-step"
        )
        for row, earlier in repeats
    ]


def _memory(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    if not plan.shape.training:
        return []
    if len(plan.fifo_depths) != plan.shape.stages:
        text = f"expected a FIFO depth for each of {plan.shape.stages} stages, got {len(plan.fifo_depths)}"
        return [Violation("memory", None, None, text)]
    has_stage = (plan.stage >= 0) & (plan.stage < plan.shape.stages)
    # A forward pass stores a micro-batch; a backward pass or an input-gradient pass releases it. With recomputation
    # the stored tensor is the input, and the recomputation releases it.
    recomputed = plan.shape.recompute & (plan.stage < plan.shape.stages - 1)
    change = np.where(recomputed, np.array([1, 0, -1, 0, 0])[plan.kind], np.array([1, -1, 0, -1, 0])[plan.kind])
    excess: list[tuple[int, int]] = []
    for group in _groups(has_stage, plan.stage + plan.shape.stages * (plan.micro_batch % len(plan.shape.copies))):
        counts = np.cumsum(change[group])
        depth = plan.fifo_depths[int(plan.stage[group[0]])]
        wrong = np.flatnonzero((plan.kind[group] == Pass.FORWARD) & (counts > depth + 1))
        excess += zip(group[wrong].tolist(), counts[wrong].tolist(), strict=True)
    found_violations = []
    for row, count in sorted(excess):
        op = rows.op(row)
        limit = plan.fifo_depths[op.stage] + 1
        place = f"with {op.text(plan.shape.segments)}, stage {op.stage}"
        text = f"{place} holds {count} micro-batches; its FIFO allows {limit}"
        found_violations.append(Violation("memory", *rows.step_and_ipu(row), text, (op,)))
    return found_violations


def _groups(mask: npt.NDArray[np.bool_], value: npt.NDArray[np.int64]) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each value, in order."""
    indices = np.flatnonzero(mask)
    indices = indices[np.argsort(value[indices], kind="stable")]
    return np.split(indices, np.flatnonzero(np.diff(value[indices])) + 1) if len(indices) else []

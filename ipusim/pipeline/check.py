"""Check the rules of every Plan, independently of the code that lays Plans out.

The rules follow from the life of one micro-batch. A pass may start only in a time-step after its inputs were produced,
because tensors move between steps at the end of a time-step. The last stage's backward pass is an exception: its inputs
are on the same IPU, so the pass may follow the forward pass in the same time-step. Such a Plan cannot deadlock:
time-steps run one after the other, and within a time-step no IPU waits for another.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import MOST_SHOWN, PlanError, without_middle
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
_NEVER: Final = np.iinfo(np.int64).min


def violations(plan: Plan) -> list[Violation]:
    """Return all violations in ``plan``; empty for a correct plan.

    Rules: every pass of every stage over every micro-batch exactly once (once),
    on the IPU of its stage (placement), after all needed passes (dependency);
    no stage program twice in a time-step (repeat); no more micro-batches kept
    between a stage's forward and backward than the FIFO and the stage hold
    (memory); no operation outside the emitted time-steps (range).
    """
    rows = _Rows(plan)
    if not plan.sync.meets:
        broken = [*_once(rows), *_placement(rows), *_segments(rows), *waits(plan), *_memory(rows)]
    else:
        ordered = [*_dependencies(rows), *_segments(rows), *_repeats(rows)]
        broken = [*_once(rows), *_placement(rows), *ordered, *_memory(rows), *meetings(plan)]
    return broken or [*endings(plan), *feeds(plan)]


def check_plan(plan: Plan) -> None:
    """Raise PlanError with the grid and its violations marked, if ``plan`` has any.

    For an Order read from a file, the message includes positions in the file of passes in the first violation.
    """
    broken = violations(plan)
    if not broken:
        return
    notes: dict[int, str] = {}
    marks: dict[tuple[int | None, Op], str] = {}
    for violation in broken:
        remark = f"ERROR HERE: {violation.text}"
        if violation.time_step is not None and not violation.ops:
            notes.setdefault(violation.time_step, remark)
        for op in violation.ops:
            marks.setdefault((violation.time_step, op), remark)
    grid = format_grid(plan, notes, marks).splitlines()
    first = next((index for index, line in enumerate(grid) if "<--" in line), 0)
    around = [
        without_middle(line, _WIDTH) for line in grid[max(3, first - _CONTEXT_ROWS // 2) : first + _CONTEXT_ROWS // 2]
    ]
    marked = min(first - 3, _CONTEXT_ROWS // 2)
    rows = max(1, MOST_SHOWN // (2 * max(map(len, around), default=1) + 2))
    count = "a rule" if len(broken) == 1 else f"rules in {len(broken)} places"
    shown = [
        *(without_middle(line, _WIDTH) for line in grid[:3]),
        *around[max(0, marked - rows) : max(marked, 0) + rows],
    ]
    raise PlanError("\n".join([f"the plan breaks {count}: {broken[0]}{_in_file(plan, broken[0])}", *shown]))


def _in_file(plan: Plan, violation: Violation) -> str:
    """Return file positions of the passes in a violation; empty without a file."""
    places = [f"{op} in {plan.order.places[op]}" for op in violation.ops if op in plan.order.places]
    return f" ({plan.schedule}: {', '.join(places)})" if places else ""


class _Rows:
    """Operations of a Plan as columns; only operations in violations become objects.

    Attributes:
        plan: the Plan.
        known: mask of operations with an existing stage and micro-batch.
        key: index of a known operation in a table of all kinds, stages and micro-batches.
        table, size: shape of that table, and number of entries.
        in_halves: mask by stage and micro-batch of backward passes in halves.
    """

    def __init__(self, plan: Plan) -> None:
        shape = plan.shape
        self.plan = plan
        stage, micro_batch = plan.stage, plan.micro_batch
        self.known = (stage >= 0) & (stage < shape.stages) & (micro_batch >= 0) & (micro_batch < shape.micro_batches)
        self.key = np.where(self.known, (plan.kind * shape.stages + stage) * shape.micro_batches + micro_batch, -1)
        self.table = len(Pass), shape.stages, shape.micro_batches
        self.size = math.prod(self.table)
        there = np.zeros(self.table, bool)
        there.flat[self.key[self.known]] = True
        self.in_halves = there[Pass.INPUT_GRADIENT] | there[Pass.WEIGHT_GRADIENT]

    def op(self, row: int) -> Op:
        """Return the operation of a row."""
        plan = self.plan
        return Op(Pass(int(plan.kind[row])), int(plan.stage[row]), int(plan.micro_batch[row]))

    def violation(self, rule: Rule, row: int, text: str) -> Violation:
        """Return a violation by the operation of ``row``; ``text`` follows the operation's name."""
        op = self.op(row)
        return Violation(rule, *self.where(row), f"{op.text(self.plan.shape.segments)} {text}", (op,))

    def where(self, row: int) -> tuple[int | None, int]:
        """Return time-step and IPU of an operation; the time-step is None in point-to-point."""
        stepless = not self.plan.sync.meets
        return None if stepless else int(self.plan.time_step[row]), int(self.plan.ipu[row])


def _expected(rows: _Rows) -> npt.NDArray[np.bool_]:
    """Mask the keys of operations needed by a pipeline execution."""
    shape = rows.plan.shape
    expected = np.zeros(rows.table, bool)
    expected[Pass.FORWARD] = True
    expected[Pass.BACKWARD] = shape.training & ~rows.in_halves
    expected[[Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT]] = shape.training & rows.in_halves
    expected[Pass.RECOMPUTE, :-1] = shape.recompute and shape.training
    return expected.ravel()


def _once(rows: _Rows) -> list[Violation]:
    plan, expected = rows.plan, _expected(rows)
    times = np.bincount(rows.key[rows.known], minlength=rows.size)
    stranger = ~rows.known | ~expected[rows.key]
    outside = plan.sync.meets & ((plan.time_step < 0) | (plan.time_step >= plan.emitted))
    repeated = np.zeros(len(plan.table), bool)
    for key in np.flatnonzero(expected & (times > 1)).tolist():
        repeated[np.flatnonzero(rows.key == key)[1]] = True
    broken = []
    for row in np.flatnonzero(stranger | repeated | outside).tolist():
        if stranger[row]:
            broken.append(rows.violation("once", row, "is no operation of this pipeline"))
        elif repeated[row]:
            broken.append(rows.violation("once", row, "runs a second time; each runs exactly once"))
        if outside[row]:
            broken.append(rows.violation("range", row, f"lies outside the {plan.emitted} time-steps emitted"))
    for key in np.flatnonzero(expected & (times == 0)).tolist():
        stage, micro_batch = divmod(key, plan.shape.micro_batches)
        op = Op(Pass(stage // plan.shape.stages), stage % plan.shape.stages, micro_batch)
        broken.append(Violation("once", None, None, f"{op} never runs; each runs exactly once"))
    return broken


def _placement(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    there = (plan.stage >= 0) & (plan.stage < plan.shape.stages)
    home = plan.shape.ipu_of(np.where(there, plan.stage, 0), plan.micro_batch)
    return [
        rows.violation("placement", row, f"runs on IPU {plan.ipu[row]}, but its stage lives on IPU {home[row]}")
        for row in np.flatnonzero(there & (home != plan.ipu)).tolist()
    ]


def _needs(plan: Plan, kind: int, stage: int) -> list[tuple[Pass, int]]:
    """Return the passes over a micro-batch that must precede a pass, by consumed tensors."""
    if kind == Pass.FORWARD:
        return [(Pass.FORWARD, before) for before in plan.shape.neighbours(stage, -1)]
    if kind == Pass.RECOMPUTE:
        return [(Pass.FORWARD, stage)]
    if kind == Pass.WEIGHT_GRADIENT:
        return [(Pass.INPUT_GRADIENT, stage)]
    needs = [(Pass.FORWARD, stage), *((Pass.BACKWARD, after) for after in plan.shape.neighbours(stage, 1))]
    if plan.shape.recompute and stage < plan.shape.stages - 1:
        needs.append((Pass.RECOMPUTE, stage))
    return needs


def _dependencies(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    made, run_at = np.full(rows.size, _NEVER), np.full(rows.size, len(plan.table))
    made[rows.key[rows.known]] = plan.time_step[rows.known]
    run_at[rows.key[rows.known]] = np.flatnonzero(rows.known)
    turns = plan.shape.stages - 1 if not plan.shape.sizes else NONE
    late: list[tuple[int, int, str]] = []
    for chosen in _groups(rows.known, plan.kind * plan.shape.stages + plan.stage):
        kind, stage = int(plan.kind[chosen[0]]), int(plan.stage[chosen[0]])
        for number, (of, where) in enumerate(_needs(plan, kind, stage)):
            maker = np.full(plan.shape.micro_batches, int(of))
            if of == Pass.BACKWARD:
                maker[rows.in_halves[where]] = Pass.INPUT_GRADIENT
            micro_batch = plan.micro_batch[chosen]
            need_key = (maker[micro_batch] * plan.shape.stages + where) * plan.shape.micro_batches + micro_batch
            before = made[need_key]
            late_enough = before < plan.time_step[chosen]
            if of == Pass.FORWARD and where == stage == turns:  # no tensor moves between these passes
                late_enough |= (before == plan.time_step[chosen]) & (run_at[need_key] < chosen)
            wrong = np.flatnonzero((before != _NEVER) & ~late_enough)
            for row, at in zip(chosen[wrong].tolist(), before[wrong].tolist(), strict=True):
                op = Op(Pass(maker[plan.micro_batch[row]]), where, int(plan.micro_batch[row]))
                need = op.text(plan.shape.segments)
                text = f"needs {need}, which runs too late, in time-step {at}"
                late.append((row, number, text))
    return [rows.violation("dependency", row, text) for row, _, text in sorted(late)]


def _segments(rows: _Rows) -> list[Violation]:
    """Return passes that precede a needed segment of the same micro-batch.

    A forward pass needs keys and values of the previous segment; a backward pass needs gradients of the next segment.
    These segments belong to the same stage and IPU, and an IPU runs passes in row order.
    """
    plan, segments, broken = rows.plan, rows.plan.shape.segments, []
    if segments == 1:
        return []
    key = plan.stage * plan.shape.micro_batches + plan.micro_batch
    for kinds, further in (((Pass.FORWARD,), -1), ((Pass.BACKWARD, Pass.INPUT_GRADIENT), 1)):
        chosen = np.flatnonzero(rows.known & any_of(plan.kind, kinds))
        run_at = np.full(plan.shape.stages * plan.shape.micro_batches, NONE)
        run_at[key[chosen]] = chosen
        segment = plan.micro_batch[chosen] % segments + further
        chosen = chosen[(segment >= 0) & (segment < segments)]
        for row in chosen[run_at[key[chosen] + further] > chosen].tolist():
            need = rows.op(int(run_at[key[row] + further])).text(segments)
            broken.append(rows.violation("dependency", row, f"needs {need}, which its IPU runs later"))
    return broken


def _repeats(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    copy = plan.micro_batch % len(plan.shape.copies)
    columns = (plan.time_step, plan.kind, plan.stage, copy)
    order = np.lexsort(columns[::-1])  # stable: equal rows stay in order
    same = np.ones(max(len(order) - 1, 0), bool)
    for column in columns:
        same &= np.diff(column[order]) == 0
    first = np.maximum.accumulate(np.where(np.r_[True, ~same], np.arange(len(order)), 0)) if len(order) else order
    wrong = np.flatnonzero(np.r_[False, same])
    repeats = sorted(zip(order[wrong].tolist(), order[first[wrong]].tolist(), strict=True))
    return [
        rows.violation(
            "repeat", row, f"runs beside {rows.op(other)}; a stage's program runs at most once in a time-step"
        )
        for row, other in repeats
    ]


def _memory(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    if not plan.shape.training:
        return []
    if len(plan.fifo_depths) != plan.shape.stages:
        text = f"expected a FIFO depth for each of {plan.shape.stages} stages, got {len(plan.fifo_depths)}"
        return [Violation("memory", None, None, text)]
    there = (plan.stage >= 0) & (plan.stage < plan.shape.stages)
    # A forward pass stores a micro-batch; a backward pass, or its first half, releases it. With recomputation the
    # stored tensor is the input, and the recomputation releases it.
    recomputed = plan.shape.recompute & (plan.stage < plan.shape.stages - 1)
    change = np.where(recomputed, np.array([1, 0, -1, 0, 0])[plan.kind], np.array([1, -1, 0, -1, 0])[plan.kind])
    over: list[tuple[int, int]] = []
    for chosen in _groups(there, plan.stage + plan.shape.stages * (plan.micro_batch % len(plan.shape.copies))):
        saved = np.cumsum(change[chosen])
        depth = plan.fifo_depths[int(plan.stage[chosen[0]])]
        wrong = np.flatnonzero((plan.kind[chosen] == Pass.FORWARD) & (saved > depth + 1))
        over += zip(chosen[wrong].tolist(), saved[wrong].tolist(), strict=True)
    broken = []
    for row, count in sorted(over):
        op = rows.op(row)
        bound = plan.fifo_depths[op.stage] + 1
        where = f"with {op.text(plan.shape.segments)}, stage {op.stage}"
        text = f"{where} holds {count} micro-batches; its FIFO allows {bound}"
        broken.append(Violation("memory", *rows.where(row), text, (op,)))
    return broken


def _groups(among: npt.NDArray[np.bool_], value: npt.NDArray[np.int64]) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each value, in order."""
    chosen = np.flatnonzero(among)
    chosen = chosen[np.argsort(value[chosen], kind="stable")]
    return np.split(chosen, np.flatnonzero(np.diff(value[chosen])) + 1) if len(chosen) else []

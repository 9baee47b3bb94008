"""The rules that every Plan keeps, checked without any of the code that lays Plans out.

The rules are read off one micro-batch's life: a pass may start only in a
time-step after the one that made what it needs, because tensors move between
steps at the end of a time-step; but for the last stage's backward pass, which
needs nothing but what its own IPU has, and may follow its forward pass in the
same one. A Plan that keeps this cannot deadlock: time-steps run one after the
other, and no IPU waits for another in one.
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

#: Rows of the grid that a message shows around the first violation.
_CONTEXT_ROWS: Final = 60
#: Characters of a row of the grid that a message shows.
_WIDTH: Final = 200
#: The time-step of an operation that is nowhere in a Plan.
_NEVER: Final = np.iinfo(np.int64).min


def violations(plan: Plan) -> list[Violation]:
    """Return every rule that ``plan`` breaks, empty when it keeps them all.

    Rules: every pass of every stage over every micro-batch exactly once (once),
    on the IPU of its stage (placement), after all that it needs (dependency);
    no stage program twice in a time-step (repeat); no more micro-batches kept
    between a stage's forward and backward than its FIFO and the stage itself
    hold (memory); nothing outside the emitted time-steps (range).
    """
    rows = _Rows(plan)
    if not plan.sync.meets:
        broken = [*_once(rows), *_placement(rows), *_segments(rows), *waits(plan), *_memory(rows)]
    else:
        ordered = [*_dependencies(rows), *_segments(rows), *_repeats(rows)]
        broken = [*_once(rows), *_placement(rows), *ordered, *_memory(rows), *meetings(plan)]
    return broken or [*endings(plan), *feeds(plan)]


def check_plan(plan: Plan) -> None:
    """Raise PlanError with the grid and the broken rules marked in it, if there are any.

    Of an Order that was read in a file, the message says where in it the passes stand that break the first rule.
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
    """Return where in its file the passes stand that break a rule; empty without a file."""
    places = [f"{op} in {plan.order.places[op]}" for op in violation.ops if op in plan.order.places]
    return f" ({plan.schedule}: {', '.join(places)})" if places else ""


class _Rows:
    """A Plan's operations as columns, and where each lies; only what breaks a rule becomes an object.

    Attributes:
        plan: the Plan.
        known: whether each operation is one of a stage and a micro-batch that there are.
        key: the place of a known operation in a table of all kinds, stages and micro-batches.
        table, size: the shape of that table, and how many places it has.
        in_halves: of each stage and micro-batch, whether any half of the backward pass runs by itself.
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
        """Return a rule broken by the operation of ``row``, which ``text`` goes on to speak of."""
        op = self.op(row)
        return Violation(rule, *self.where(row), f"{op.text(self.plan.shape.segments)} {text}", (op,))

    def where(self, row: int) -> tuple[int | None, int]:
        """Return the time-step, where there are any, and the IPU of an operation."""
        stepless = not self.plan.sync.meets
        return None if stepless else int(self.plan.time_step[row]), int(self.plan.ipu[row])


def _expected(rows: _Rows) -> npt.NDArray[np.bool_]:
    """Return for every key whether one execution of the pipeline needs its operation."""
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
    """Return the passes that must have run on a micro-batch before a pass, by what each kind consumes."""
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
            if of == Pass.FORWARD and where == stage == turns:  # nothing moves between the two
                late_enough |= (before == plan.time_step[chosen]) & (run_at[need_key] < chosen)
            wrong = np.flatnonzero((before != _NEVER) & ~late_enough)
            for row, at in zip(chosen[wrong].tolist(), before[wrong].tolist(), strict=True):
                op = Op(Pass(maker[plan.micro_batch[row]]), where, int(plan.micro_batch[row]))
                need = op.text(plan.shape.segments)
                text = f"needs {need}, which runs in time-step {at}; it must run in an earlier one"
                late.append((row, number, text))
    return [rows.violation("dependency", row, text) for row, _, text in sorted(late)]


def _segments(rows: _Rows) -> list[Violation]:
    """Return passes that run before a segment of their micro-batch whose keys and values, or gradients, they need.

    Those are the segment before in a forward pass, and the one behind in a backward pass. They are of the same stage,
    and so of one IPU, which runs passes in the order of its rows.
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
            broken.append(rows.violation("dependency", row, f"needs {need}, which its IPU runs behind it"))
    return broken


def _repeats(rows: _Rows) -> list[Violation]:
    plan = rows.plan
    copy = plan.micro_batch % len(plan.shape.copies)
    columns = (plan.time_step, plan.kind, plan.stage, copy)
    order = np.lexsort(columns[::-1])  # stable: rows in order where all are the same
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
    # A forward pass keeps, a backward pass or its first half lets go of a micro-batch; where activations are
    # computed again, what is kept is the input, and the recomputation lets go of it.
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
    """Return the rows of each value, in their order."""
    chosen = np.flatnonzero(among)
    chosen = chosen[np.argsort(value[chosen], kind="stable")]
    return np.split(chosen, np.flatnonzero(np.diff(value[chosen])) + 1) if len(chosen) else []

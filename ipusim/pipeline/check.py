"""The rules that every Plan keeps, checked without any of the code that lays Plans out.

The rules are read off one micro-batch's life: a pass may start only in a
time-step after the one that made what it needs, because tensors move between
steps at the end of a time-step. A Plan that keeps this cannot deadlock:
time-steps run one after the other, and nothing in a time-step waits for
anything in the same one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from ipusim.errors import PlanError
from ipusim.pipeline.grid import format_grid
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan

Rule = Literal["once", "placement", "dependency", "repeat", "memory", "range", "order"]

#: Rows of the grid that a message shows around the first violation.
_CONTEXT_ROWS: Final = 60


@dataclass(frozen=True)
class Violation:
    """One broken rule: which, where (None: nowhere in the Plan), and what would be right."""

    rule: Rule
    time_step: int | None
    ipu: int | None
    text: str

    def __str__(self) -> str:
        """Return place and text on one line."""
        if self.time_step is None:
            return self.text
        return f"time-step {self.time_step}, IPU {self.ipu}: {self.text}"


def violations(plan: Plan) -> list[Violation]:
    """Return every rule that ``plan`` breaks, empty when it keeps them all.

    Rules: every pass of every stage over every micro-batch exactly once (once),
    on the IPU of its stage (placement), after all that it needs (dependency);
    no stage program twice in a time-step (repeat); no more micro-batches kept
    between a stage's forward and backward than its FIFO and the stage itself
    hold (memory); nothing outside the emitted time-steps (range).
    """
    placed = list(plan.ops())
    return [
        *_once(plan, placed),
        *_placement(plan, placed),
        *_dependencies(plan, placed),
        *_repeats(placed),
        *_memory(plan, placed),
    ]


def check(plan: Plan) -> None:
    """Raise PlanError with the grid and the broken rules marked in it, if there are any."""
    found = violations(plan)
    if not found:
        return
    notes: dict[int, str] = {}
    for violation in found:
        if violation.time_step is not None:
            notes.setdefault(violation.time_step, f"ERROR HERE: {violation.text}")
    grid = format_grid(plan, notes).splitlines()
    first = next((index for index, line in enumerate(grid) if "<--" in line), 0)
    shown = grid[:3] + grid[max(3, first - _CONTEXT_ROWS // 2) : first + _CONTEXT_ROWS // 2]
    count = "a rule" if len(found) == 1 else f"rules in {len(found)} places"
    raise PlanError("\n".join([f"the plan breaks {count}: {found[0]}", *shown]))


Placed = list[tuple[int, int, Op]]


def _expected(plan: Plan) -> set[Op]:
    """Every operation that one execution of the pipeline needs."""
    shape = plan.shape
    passes = [Pass.FORWARD, *([Pass.BACKWARD] if shape.training else [])]
    ops = {
        Op(kind, stage, micro_batch)
        for kind in passes
        for stage in range(shape.stages)
        for micro_batch in range(shape.count)
    }
    if shape.recompute and shape.training:
        ops |= {
            Op(Pass.RECOMPUTE, stage, micro_batch)
            for stage in range(shape.stages - 1)
            for micro_batch in range(shape.count)
        }
    return ops


def _once(plan: Plan, placed: Placed) -> list[Violation]:
    expected = _expected(plan)
    seen: Counter[Op] = Counter()
    found = []
    for time_step, ipu, op in placed:
        seen[op] += 1
        if op not in expected:
            found.append(Violation("once", time_step, ipu, f"{op} is no operation of this pipeline"))
        elif seen[op] == 2:
            found.append(Violation("once", time_step, ipu, f"{op} runs a second time; each runs exactly once"))
        if not 0 <= time_step < plan.emitted:
            found.append(Violation("range", time_step, ipu, f"{op} lies outside the {plan.emitted} time-steps emitted"))
    missing = sorted(expected - seen.keys())
    found += [Violation("once", None, None, f"{op} never runs; each runs exactly once") for op in missing]
    return found


def _placement(plan: Plan, placed: Placed) -> list[Violation]:
    return [
        Violation("placement", time_step, ipu, f"{op} runs on IPU {ipu}, but its stage lives on IPU {home}")
        for time_step, ipu, op in placed
        if 0 <= op.stage < plan.shape.stages and (home := plan.shape.mapping[op.stage]) != ipu
    ]


def _needs(plan: Plan, op: Op) -> list[Op]:
    """What must have run before ``op``, by what a forward, a recomputation and a backward consume."""
    kind, stage, micro_batch = op
    if not 0 <= stage < plan.shape.stages:
        return []
    if kind == Pass.FORWARD:
        return [Op(Pass.FORWARD, before, micro_batch) for before in plan.shape.neighbours(stage, -1)]
    if kind == Pass.RECOMPUTE:
        return [Op(Pass.FORWARD, stage, micro_batch)]
    needs = [Op(Pass.FORWARD, stage, micro_batch)]
    needs += [Op(Pass.BACKWARD, after, micro_batch) for after in plan.shape.neighbours(stage, 1)]
    if plan.shape.recompute and stage < plan.shape.stages - 1:
        needs.append(Op(Pass.RECOMPUTE, stage, micro_batch))
    return needs


def _dependencies(plan: Plan, placed: Placed) -> list[Violation]:
    time_step_of = {op: time_step for time_step, _, op in placed}
    found = []
    for time_step, ipu, op in placed:
        for need in _needs(plan, op):
            made = time_step_of.get(need)
            if made is not None and made >= time_step:
                text = f"{op} needs {need}, which runs in time-step {made}; it must run in an earlier one"
                found.append(Violation("dependency", time_step, ipu, text))
    return found


def _repeats(placed: Placed) -> list[Violation]:
    programs: dict[tuple[int, Pass, int], Op] = {}
    found = []
    for time_step, ipu, op in placed:
        first = programs.setdefault((time_step, op.kind, op.stage), op)
        if first is not op:
            text = f"{op} runs beside {first}; a stage's program runs at most once in a time-step"
            found.append(Violation("repeat", time_step, ipu, text))
    return found


def _memory(plan: Plan, placed: Placed) -> list[Violation]:
    if not plan.shape.training:
        return []
    if len(plan.fifo_depths) != plan.shape.stages:
        text = f"expected a FIFO depth for each of {plan.shape.stages} stages, got {len(plan.fifo_depths)}"
        return [Violation("memory", None, None, text)]
    held = [0] * plan.shape.stages
    found = []
    for time_step, ipu, op in placed:
        if not 0 <= op.stage < plan.shape.stages:
            continue
        bound = plan.fifo_depths[op.stage] + 1
        held[op.stage] += {Pass.FORWARD: 1, Pass.BACKWARD: -1, Pass.RECOMPUTE: 0}[op.kind]
        if op.kind == Pass.FORWARD and held[op.stage] > bound:
            text = f"with {op}, stage {op.stage} holds {held[op.stage]} micro-batches; its FIFO allows {bound}"
            found.append(Violation("memory", time_step, ipu, text))
    return found

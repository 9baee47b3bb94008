"""Check a Plan for missing tensors and circular waits, by its instructions alone.

The checks do not depend on the code that makes Plans. The life of one micro-batch determines the passes that need a
tensor. The graph of instructions, linked along each IPU and from each send to its receive, must have no circle.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.instructions import NONE, PASSES, Code, any_of, text_of
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.standstill import MEETINGS, all_end, standstill
from ipusim.pipeline.violation import Rule, Violation

Rows = npt.NDArray[np.intp]
_SENDS: Final = (Code.SEND, Code.BLOCKING_SEND)


def meetings(plan: Plan) -> list[Violation]:
    """Return IPUs that miss meetings, and passes whose instructions are in another time-step than the Plan's rows."""
    ipu, code, _, _, number = plan.instructions.T
    meeting_counts = np.where(code == Code.MEET, number, 0)
    found_violations = []
    for home in plan.ipus:
        on_ipu = ipu == home
        times = int(meeting_counts[on_ipu].sum())
        if times != plan.emitted:
            text = (
                f"meets the other IPUs {times} times, but these wait for a meeting after each of {plan.emitted} "
                "time-steps"
            )
            found_violations.append(Violation("meeting", 0, home, text))
            continue
        plan_steps = plan.time_step[plan.ipu == home]
        run_steps = np.cumsum(meeting_counts[on_ipu])[code[on_ipu] < PASSES]
        is_inside = (plan_steps >= 0) & (plan_steps < plan.emitted)
        if len(plan_steps) != len(run_steps) or (plan_steps != run_steps)[is_inside].any():
            found_violations.append(
                Violation("meeting", 0, home, "runs passes in time-steps that differ from the Plan")
            )
    return [*found_violations, *standstill(plan)] if found_violations else []


def waits(plan: Plan) -> list[Violation]:
    """Return unsent tensors, unproduced tensors, misordered passes, and circles of waiting IPUs."""
    graph = _Graph(plan)
    found_violations = [*graph.unsent(), *graph.unordered()]
    return found_violations or (standstill(plan) if graph.circles() else [])


def endings(plan: Plan) -> list[Violation]:
    """Return the deadlock of IPUs with unequal sequences of meetings; usually empty."""
    ipu, code, *_, number = plan.instructions.T
    times = np.where(code == Code.MEET, number, 0)
    first = np.searchsorted(ipu, plan.ipus)
    meeting_count = np.cumsum(times)
    meeting_count -= (meeting_count - times)[first][np.searchsorted(plan.ipus, ipu)]
    rows = np.flatnonzero(any_of(code, [kind for kind in MEETINGS if kind != Code.MEET]))
    meeting_codes = [
        [(int(code[row]), int(meeting_count[row])) for row in rows[ipu[rows] == home]] for home in plan.ipus
    ]
    return standstill(plan) if any(sequence != meeting_codes[0] for sequence in meeting_codes) else []


def feeds(plan: Plan) -> list[Violation]:
    """Return forward passes without an infeed element, and results sent before their pass.

    An infeed element or a result that occurs twice is a violation too, as the host would never serve it.
    """
    graph, found_violations = _Graph(plan), []
    last, count = plan.shape.stages - 1, plan.shape.micro_batches
    is_io = graph.code == Code.BEGIN_IO
    inputs = np.flatnonzero((graph.code == Code.INFEED) | (is_io & (graph.micro != NONE)))
    output_rows = np.flatnonzero(
        any_of(graph.code, (Code.OUTFEED, Code.ADD_RESULTS)) | (is_io & (graph.number != NONE))
    )
    output_batch = np.where(is_io, graph.number, graph.micro)
    for stage, rows, number, is_input in ((0, inputs, graph.micro, True), (last, output_rows, output_batch, False)):
        passes = graph.passes[(graph.code[graph.passes] == Pass.FORWARD) & (graph.stage[graph.passes] == stage)]
        run_row = np.full(count + 1, -1)  # by micro-batch; the additional entry never runs
        run_row[graph.micro[passes]] = passes
        micro_batch = number[rows]
        pass_row = run_row[np.where((micro_batch >= 0) & (micro_batch < count), micro_batch, count)]
        is_right = (pass_row >= 0) & (graph.ipu[pass_row] == graph.ipu[rows]) & ((rows < pass_row) == is_input)
        is_second = np.ones(len(rows), bool)
        is_second[np.unique(micro_batch, return_index=True)[1]] = False
        wrong = np.flatnonzero(~is_right | is_second)
        for row, is_repeat in zip(rows[wrong].tolist(), is_right[wrong].tolist(), strict=True):
            text = "comes too late for its pass" if is_input else "comes before its pass"
            text = "is copied a second time" if is_repeat else text
            found_violations.append(graph.violation("feed", row, f"'{graph.text(row)}' {text}"))
        unfed = passes[~np.isin(graph.micro[passes], micro_batch)] if is_input else ()
        found_violations += [
            graph.violation("feed", row, f"{graph.text(row)} gets no element of the infeed") for row in unfed
        ]
    return found_violations


class _Graph:
    """Instructions of a Plan, with required order."""

    def __init__(self, plan: Plan) -> None:
        self.plan, shape = plan, plan.shape
        self.ipu, self.code, self.stage, self.micro, self.number = plan.instructions.T
        in_range = (self.micro >= 0) & (self.micro < shape.micro_batches)
        self.send = np.flatnonzero(any_of(self.code, _SENDS) & in_range)
        self.receive = np.flatnonzero((self.code == Code.RECEIVE) & in_range)
        self.passes = np.flatnonzero((self.code < PASSES) & in_range)
        self.size = shape.stages * shape.micro_batches

    def _key(
        self, rows: Rows, is_gradient: npt.NDArray[np.bool_], stage: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Number each tensor: output of a stage, or (``is_gradient``) gradient for the previous stage."""
        shape = self.plan.shape
        key: npt.NDArray[np.int64] = (is_gradient * shape.stages + stage) * shape.micro_batches + self.micro[rows]
        return key

    def _first(self, rows: Rows, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the first of ``rows`` for each key; -1 for unused keys."""
        first = np.full(2 * self.size, -1, np.int64)
        first[keys[::-1]] = rows[::-1]
        return first

    def _producers(self) -> npt.NDArray[np.int64]:
        """Return the producing pass of each tensor."""
        kind = self.code[self.passes]
        is_producing = any_of(kind, (Pass.FORWARD, Pass.BACKWARD, Pass.INPUT_GRADIENT))
        rows = self.passes[is_producing]
        return self._first(rows, self._key(rows, self.code[rows] != Pass.FORWARD, self.stage[rows]))

    def _senders(self) -> npt.NDArray[np.int64]:
        rows = self.send
        return self._first(rows, self._key(rows, self.number[rows] < self.stage[rows], self.stage[rows]))

    def _received_keys(self) -> npt.NDArray[np.int64]:
        """Return the key of each receive's tensor."""
        rows = self.receive
        return self._key(rows, self.number[rows] > self.stage[rows], self.number[rows])

    def _consumers(self) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return the passes that consume another stage's tensor, and keys of the tensors."""
        kind, last = self.code[self.passes], self.plan.shape.stages - 1
        stage = self.stage[self.passes]
        forward = (kind == Pass.FORWARD) & (stage > 0)
        backward = any_of(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT)) & (stage < last)
        rows = self.passes[forward | backward]
        is_gradient = self.code[rows] != Pass.FORWARD
        return rows, self._key(rows, is_gradient, self.stage[rows] + np.where(is_gradient, 1, -1))

    def text(self, row: int) -> str:
        """Return an instruction in words."""
        return text_of(*self.plan.instructions[row, 1:].tolist())

    def violation(self, rule: Rule, row: int, text: str) -> Violation:
        """Return a violation by the instruction of ``row``."""
        code, stage, micro_batch = (int(column[row]) for column in (self.code, self.stage, self.micro))
        ops = (Op(Pass(code), stage, micro_batch),) if code < PASSES else ()
        return Violation(rule, None, int(self.ipu[row]), text, ops)

    def unsent(self) -> list[Violation]:
        """Return sends and passes before their tensor exists, and receives without a send."""
        found_violations = []
        producers, senders = self._producers(), self._senders()
        keys = self._key(self.send, self.number[self.send] < self.stage[self.send], self.stage[self.send])
        producer = producers[keys]
        wrong = (producer < 0) | (self.ipu[producer] != self.ipu[self.send]) | (producer > self.send)
        found_violations += [
            self.violation("sending", row, f"'{self.text(row)}' comes before the pass that produces its tensor")
            for row in self.send[wrong].tolist()
        ]
        received_keys = self._received_keys()
        found_violations += [
            self.violation("sending", row, f"'{self.text(row)}' waits for a tensor that no IPU sends")
            for row in self.receive[senders[received_keys] < 0].tolist()
        ]
        rows, keys = self._consumers()
        source = keys // self.plan.shape.micro_batches % self.plan.shape.stages
        is_remote = self.plan.shape.ipu_of(source, self.micro[rows]) != self.ipu[rows]
        receivers = self._first(self.receive, received_keys)
        source_rows = np.where(is_remote, receivers[keys], senders[keys])
        is_early = (source_rows < 0) | (source_rows > rows) | (self.ipu[source_rows] != self.ipu[rows])
        for row, key in zip(rows[is_early].tolist(), source[is_early].tolist(), strict=True):
            text = f"{self.text(row)} runs before the output of stage {key} for the pass has arrived"
            found_violations.append(self.violation("dependency", row, text))
        return found_violations

    def unordered(self) -> list[Violation]:
        """Return passes that run before a needed pass of their stage."""
        found_violations = []
        shape = self.plan.shape
        row_of = np.full((len(Pass), self.size), -1)
        key = self.stage[self.passes] * shape.micro_batches + self.micro[self.passes]
        row_of[self.code[self.passes], key] = self.passes
        recomputes = [shape.recomputes_apart(stage) for stage in range(shape.stages)]
        recomputed = np.repeat(recomputes, shape.micro_batches)
        stash_rows = np.where(recomputed, row_of[Pass.RECOMPUTE], row_of[Pass.FORWARD])
        pairs = (
            (Pass.BACKWARD, stash_rows),
            (Pass.INPUT_GRADIENT, stash_rows),
            (Pass.RECOMPUTE, row_of[Pass.FORWARD]),
            (Pass.WEIGHT_GRADIENT, row_of[Pass.INPUT_GRADIENT]),
        )
        for kind, need in pairs:
            rows_of_kind = row_of[kind]
            for key in np.flatnonzero((rows_of_kind >= 0) & ((need < 0) | (need > rows_of_kind))).tolist():
                row = int(rows_of_kind[key])
                text = f"{self.text(row)} runs before the pass of its stage that the pass needs"
                found_violations.append(self.violation("dependency", row, text))
        return found_violations

    def circles(self) -> bool:
        """Tell whether links along IPUs and from sends to receives form a circle."""
        sends = self._senders()[self._received_keys()]
        columns = (self.ipu[self.receive], self.receive, self.ipu[sends], sends)
        return not all_end(zip(*(column.tolist() for column in columns), strict=True))

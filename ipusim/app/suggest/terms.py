"""Compute the terms of a lower bound on the time of any cut of a model under a Plan, as a sum of maxima over IPUs.

In lock-step, a time-step lasts as long as the busiest IPU and ends with a merged copy: each kind of time-step gives a
term, with a row for each IPU. In point-to-point, an IPU begins once the first micro-batch arrives, runs its passes, and
the last gradient still has to travel back: these paths through the pipeline are the rows of a single term.

:data:`COLUMNS` numbers describe a stage; a row holds a coefficient for each number of each stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import PipelineProgram, Plan, System, hardware, models, pipelines, pricing
from ipusim.app.suggest.tables import Numbers
from ipusim.app.suggest.units import KINDS

Column = npt.NDArray[np.int64]
#: Number of columns per stage: cycles of each kind of pass, then the columns named below. Sends are in bytes
#: (lock-step) or cycles (point-to-point).
COLUMNS: Final = len(KINDS) + 6
RECOMPUTED, SENT_FORWARD, SENT_BACKWARD, UPDATE, INFEED, OUTFEED = range(len(KINDS), COLUMNS)
TRANSFERS: Final = slice(SENT_FORWARD, SENT_BACKWARD + 1)
#: Columns by number of a kind of pass.
_COLUMN_OF: Final = np.array(
    [RECOMPUTED if kind is pipelines.Pass.RECOMPUTE else KINDS.index(kind) for kind in pipelines.Pass]
)
#: Tensor bytes for measuring a path's rate.
_PROBE_BYTES: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class Term:
    """Maximum of several sums, multiplied by a count.

    Attributes:
        times: count of the term.
        rows: coefficients of each stage's columns, one row per sum, shape (rows, COLUMNS * stages).
        loads: rows that count each stage's passes at most once.
    """

    times: int
    rows: Numbers
    loads: Numbers

    @cached_property
    def busy(self) -> int:
        """Number of rows with any pass, at least 1."""
        return max(int(self.loads.any(axis=1).sum()), 1)

    def sums(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows and the loads of cuts with ``values`` of shape (COLUMNS * stages, cuts)."""
        columns, rows, loads = self._used
        used = values[columns]
        result = rows @ used
        return result, result if self.loads is self.rows else loads @ used

    @cached_property
    def _used(self) -> tuple[Column, Numbers, Numbers]:
        """Columns with nonzero coefficients, and these coefficients; most columns have only zeros."""
        columns = np.flatnonzero(self.rows.any(axis=0) | self.loads.any(axis=0))
        return columns, self.rows[:, columns], self.loads[:, columns]


@dataclass(frozen=True, eq=False)
class Copy:
    """Merged copy, multiplied by a count.

    Attributes:
        times: count of the copy.
        fixed: cycles independent of bytes.
        links: cycles of each link direction per byte sent by a stage, shape (links, COLUMNS * stages).
    """

    times: int
    fixed: int
    links: Numbers

    @cached_property
    def used(self) -> tuple[Column, Numbers]:
        """Columns with nonzero coefficients, and these coefficients."""
        columns = np.flatnonzero(self.links.any(axis=0))
        return columns, self.links[:, columns]


@dataclass(frozen=True, eq=False)
class Terms:
    """Least time of any cut under one Plan, on the best of several devices.

    Devices differ in their selection order.

    Attributes:
        passes: terms of passes and weight updates.
        copies: merged copies on each device.
        sends: cycles of each stage's sends in point-to-point, on the fastest device: fixed and per byte, forward and
            back, shape (2, 2, stages); 0 for sends within an IPU. None in lock-step.
    """

    passes: tuple[Term, ...]
    copies: tuple[tuple[Copy, ...], ...] = ((),)
    sends: Numbers | None = None


def on_any(devices: Sequence[Terms]) -> Terms:
    """Return the terms of the fastest of ``devices``, all under one Plan."""
    sends = [device.sends for device in devices if device.sends is not None]
    copies = tuple(copies for device in devices for copies in device.copies)
    return Terms(devices[0].passes, copies, np.minimum.reduce(sends) if sends else None)


def pass_terms(plan: Plan, *, inline: bool) -> tuple[Term, ...]:
    """Return the terms of passes and weight updates.

    Args:
        plan: plan of the pipeline.
        inline: whether backward passes run forward passes again.
    """
    return tuple(_time_steps(plan, inline)) if plan.sync.has_time_steps else (_paths(plan, inline),)


def terms_on(device: System, plan: Plan, passes: tuple[Term, ...]) -> Terms:
    """Return the terms of a Plan on a device, completing its ``passes``."""
    if not plan.sync.has_time_steps:
        return Terms(passes, sends=_sends(plan, device))
    return Terms(passes, (tuple(_copies(plan, device)),))


def _counts(plan: Plan, inline: bool, group: Column, groups: int, members: Column | slice = slice(None)) -> Numbers:
    """Count the ``members`` passes by column and stage in each of ``groups`` groups; ``group`` is a pass's group."""
    kind, stage, stages = plan.kind[members], plan.stage[members], plan.shape.stages
    size = COLUMNS * stages
    columns = group * size + _COLUMN_OF[kind] * stages + stage
    if inline:
        recomputes = np.isin(kind, (pipelines.Pass.BACKWARD, pipelines.Pass.INPUT_GRADIENT))
        repeated = group[recomputes] * size + RECOMPUTED * stages + stage[recomputes]
        columns = np.concatenate([columns, repeated])
    return np.bincount(columns, minlength=groups * size).reshape(groups, size).astype(np.float64)


def _time_steps(plan: Plan, inline: bool) -> Iterator[Term]:
    """Yield a term per kind of time-step, and a term for the weight updates."""
    shape = plan.shape
    counts = _counts(plan, inline, plan.time_step, plan.emitted + 1)
    by_column = counts.reshape(-1, COLUMNS, shape.stages)
    if not shape.overlapped_io:
        forward = plan.kind == pipelines.Pass.FORWARD
        np.add.at(by_column, (plan.time_step[forward & (plan.stage == 0)], INFEED, 0), 1)
        np.add.at(by_column, (plan.time_step[forward & (plan.stage == shape.stages - 1)] + 1, OUTFEED, -1), 1)
    on_ipu = np.array([np.tile(np.array(shape.mapping) == ipu, COLUMNS) for ipu in plan.ipus])
    for kind, times in zip(*_distinct(counts), strict=True):
        if kind.any():
            rows = kind * on_ipu
            yield Term(int(times), rows, rows)
    if shape.training:
        yield _updates(plan)


def _distinct(counts: Numbers) -> tuple[Numbers, Column]:
    """Return the distinct rows of small whole numbers, with their frequencies; rows are compared as bytes for speed."""
    rows = np.ascontiguousarray(counts.astype(np.uint8))
    rows_as_bytes = rows.view(np.dtype((np.void, rows.shape[1]))).ravel()
    _, first, times = np.unique(rows_as_bytes, return_index=True, return_counts=True)
    return counts[first], times


def _updates(plan: Plan) -> Term:
    rows = np.zeros((len(plan.ipus), COLUMNS, plan.shape.stages))
    rows[:, UPDATE] = [np.array(plan.shape.mapping) == ipu for ipu in plan.ipus]
    flat = rows.reshape(len(rows), -1)
    return Term(1, flat, flat)


def _paths(plan: Plan, inline: bool) -> Term:
    """Return the term of all paths through a pipeline in point-to-point."""
    shape, ipus = plan.shape, plan.ipus
    loads = _counts(plan, inline, np.searchsorted(ipus, plan.ipu), len(ipus))
    update = _updates(plan).rows if shape.training else np.zeros_like(loads)
    rows = []
    backward = pipelines.Pass.INPUT_GRADIENT if pipelines.Pass.INPUT_GRADIENT in plan.kind else pipelines.Pass.BACKWARD
    for number, ipu in enumerate(ipus):
        first = shape.mapping.index(ipu)
        head, tail = np.zeros((2, COLUMNS, shape.stages))
        head[KINDS.index(pipelines.Pass.FORWARD), :first] = head[SENT_FORWARD, :first] = 1
        head[INFEED, 0] = first == 0
        rows.append(head.ravel() + loads[number] + update[number])
        if shape.training:
            last = np.flatnonzero((plan.ipu == ipu) & (plan.stage == first) & (plan.kind == backward))[-1]
            earlier_rows = np.flatnonzero(plan.ipu[: last + 1] == ipu)
            tail[KINDS.index(backward), :first] = tail[SENT_BACKWARD, 1 : first + 1] = 1
            part = _counts(plan, inline, np.zeros(len(earlier_rows), dtype=np.int64), 1, earlier_rows)[0]
            rows.append(head.ravel() + part + tail.ravel() + update[ipus.index(shape.mapping[0])])
    return Term(1, np.array(rows), loads)


def _program(plan: Plan, size: int = 1) -> PipelineProgram:
    """Return a program with tensors of ``size`` bytes."""
    profile = models.StageProfile("one", 1, output_bytes=size, gradient_bytes=size if plan.shape.training else 0)
    return PipelineProgram((profile,) * plan.shape.stages, plan.shape)


def _copies(plan: Plan, system: System) -> Iterator[Copy]:
    """Yield the merged copies of all replicas together; copies without a meeting cost nothing."""
    program, shape = _program(plan), plan.shape
    costs = pricing.copy_costs(plan, program, system)
    times = Counter(costs.copy_of)

    @cache  # many copies share an edge
    def link_cycles_per_byte(edge: pipelines.Edge) -> tuple[tuple[hardware.LinkDirection, float], ...]:
        loads = system.merged_copy(pricing.traffic(program, (edge,), system)).links
        rates = [0 if system.free else system.clock_hz / load.direction.bytes_per_s(system.rates) for load in loads]
        return tuple((load.direction, load.bytes * float(rate)) for load, rate in zip(loads, rates, strict=True))

    for number, copy in enumerate(costs.by_group[0]):
        links: dict[hardware.LinkDirection, Numbers] = {}
        for edge in copy.edges:
            column, stage = _sender(plan, edge)
            for direction, cycles in link_cycles_per_byte(edge):
                links.setdefault(direction, np.zeros((COLUMNS, shape.stages)))[column, stage] += cycles
        rows = np.array([row.ravel() for row in links.values()] or np.zeros((1, COLUMNS * shape.stages)))
        yield Copy(times[number], copy.fixed.total_cycles, rows)


def _sender(plan: Plan, edge: pipelines.Edge) -> tuple[int, int]:
    """Return the column and the stage of the tensor that an edge carries."""
    positions, step = plan.shape.positions, edge.source_step
    return (SENT_FORWARD, step) if step < positions else (SENT_BACKWARD, 2 * positions - 1 - step)


def _sends(plan: Plan, system: System) -> Numbers:
    sends = np.zeros((2, 2, plan.shape.stages))
    for (replica, _, source, target), send in pricing.send_costs(
        plan, _program(plan, _PROBE_BYTES), system, {}
    ).items():
        if replica == 0:
            sends[:, int(target < source), source] = send.lead_cycles, max(send.cycles - 1, 0) / _PROBE_BYTES
    return sends

"""How each IPU spends its cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.analysis.executions import BETWEEN_KINDS, UPDATE_KINDS, Execution, on_ipus
from ipusim.timeline.kinds import USES, SpanKind, of_kinds
from ipusim.timeline.timeline import ALL_IPUS, Timeline

Table = npt.NDArray[np.int64]
#: The kinds of span of each use, by its name.
_KINDS: Final = {use.name: tuple(int(kind) for kind in SpanKind if kind.row.use == use) for use in USES}


@dataclass(frozen=True)
class IpuUse:
    """Cycles of one IPU by what it does; what is left of the makespan is waiting without a span.

    ``stages`` are the computational stages that it holds, none for an IPU that is idle by placement.
    ``cycles`` are by the name of the use, every one of :data:`ipusim.timeline.kinds.USES`; those of
    ``overlapped_io``, of host copies on its I/O tiles, lie beside all others.
    """

    ipu: int
    physical_ipu: int
    stages: tuple[int, ...]
    cycles: Mapping[str, int]

    @property
    def compute_cycles(self) -> int:
        """A stage's own arithmetic: forward, backward, recomputation and weight update."""
        return sum(self.cycles[use.name] for use in USES if use.computes)

    @property
    def holds_stage(self) -> bool:
        """Whether any computational stage is mapped to this IPU."""
        return bool(self.stages)


def cycles_by_kind(timeline: Timeline, execution: Execution | None = None) -> Table:
    """Return cycles as an int64 table of shape (IPUs of the device, SpanKinds).

    A span of all IPUs counts on each. With ``execution``, only the pipeline of
    that execution counts, without its weight update, which IPUs in point-to-point begin while
    others still run passes; else the whole run.
    """
    timeline = timeline.peeled(None if execution is None else execution.index)
    rows = on_ipus(timeline)
    if execution is not None:
        rows &= (timeline.execution == execution.index) & ~of_kinds(timeline.kind, (*UPDATE_KINDS, *BETWEEN_KINDS))
        # What the update moves carries the number behind the last time-step, as does the wait for its slowest IPU.
        rows &= (timeline.time_step < timeline.info.time_steps) | (timeline.kind == SpanKind.SYNC_WAIT)
    kind, ipu = timeline.kind[rows], timeline.ipu[rows]
    end = timeline.end[rows]
    if execution is not None:
        # A wait for the slowest weight update starts after the pipeline.
        end = np.minimum(end, execution.pipeline_end)
    cycles = np.maximum(end - timeline.start[rows], 0) * timeline.weights[rows]
    info = timeline.info
    table = np.zeros((len(info.ipus), len(SpanKind)), dtype=np.int64)
    shared = ipu == ALL_IPUS
    np.add.at(table, (ipu[~shared], kind[~shared]), cycles[~shared])
    # Row r for what the IPUs of replica r do all at once, and the last (NONE) for all replicas together.
    together = np.zeros((info.replicas + 1, len(SpanKind)), dtype=np.int64)
    np.add.at(together, (timeline.replica[rows][shared], kind[shared]), cycles[shared])
    total: Table = table + np.repeat(together[:-1], info.shards, axis=0) + together[-1]
    return total


def ipu_uses(timeline: Timeline, execution: Execution | None = None) -> tuple[IpuUse, ...]:
    """Return the use of every IPU of the device, idle ones too, in logical order.

    With ``execution``, of that execution's pipeline without its weight update; else of the whole run.
    """
    info = timeline.info
    stages = info.stages_of_ipu
    return tuple(
        IpuUse(
            ipu=ipu,
            physical_ipu=info.ipus[ipu],
            stages=stages.get(ipu, ()),
            cycles={name: sum(row[kind] for kind in kinds) for name, kinds in _KINDS.items()},
        )
        for ipu, row in enumerate(cycles_by_kind(timeline, execution).tolist())
    )


def ratio(part: int, whole: int) -> float:
    """Return ``part / whole``, and 0.0 of nothing: a pipeline may take no time on a free system."""
    return part / whole if whole else 0.0

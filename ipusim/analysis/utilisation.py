"""Count every IPU's cycles by use, such as arithmetic, copies and host transfers."""

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
#: Kinds of span, by the name of their use.
_KINDS: Final = {use.name: tuple(int(kind) for kind in SpanKind if kind.row.use == use) for use in USES}


@dataclass(frozen=True)
class IpuUse:
    """Cycles of an IPU by use; remaining cycles of the makespan are waits without a span.

    ``stages`` lists computational stages on the IPU; an IPU idle by placement has none.
    ``cycles`` has every use in :data:`ipusim.timeline.kinds.USES`, by name. Cycles of
    ``overlapped_io``, which are host copies on I/O tiles, run in parallel with the others.
    """

    ipu: int
    physical_ipu: int
    stages: tuple[int, ...]
    cycles: Mapping[str, int]

    @property
    def compute_cycles(self) -> int:
        """Arithmetic of stages: forward, backward, recomputation and weight update."""
        return sum(self.cycles[use.name] for use in USES if use.is_arithmetic)

    @property
    def holds_stage(self) -> bool:
        """Whether the IPU holds a computational stage."""
        return bool(self.stages)


def cycles_by_kind(timeline: Timeline, execution: Execution | None = None) -> Table:
    """Return cycles as an int64 table of shape (IPUs of the device, SpanKinds).

    A span of all IPUs counts on every IPU. Without ``execution``, the whole run counts. With ``execution``, only the
    pipeline of that execution counts, without the weight update. In point-to-point, an IPU may begin the weight update
    while passes still run on another IPU.
    """
    timeline = timeline.with_block_ends_expanded(None if execution is None else execution.index)
    rows = on_ipus(timeline)
    if execution is not None:
        rows &= (timeline.execution == execution.index) & ~of_kinds(timeline.kind, (*UPDATE_KINDS, *BETWEEN_KINDS))
        # Transfers of the weight update are in the time-step after the pipeline's last. Waits in that time-step may
        # begin while the pipeline runs.
        rows &= (timeline.time_step < timeline.info.time_steps) | (timeline.kind == SpanKind.SYNC_WAIT)
    kind, ipu = timeline.kind[rows], timeline.ipu[rows]
    end = timeline.end[rows]
    if execution is not None:
        # A wait for the slowest weight update starts after the pipeline.
        end = np.minimum(end, execution.pipeline_end)
    cycles = np.maximum(end - timeline.start[rows], 0) * timeline.weights[rows]
    info = timeline.info
    table = np.zeros((len(info.ipus), len(SpanKind)), dtype=np.int64)
    is_shared = ipu == ALL_IPUS
    np.add.at(table, (ipu[~is_shared], kind[~is_shared]), cycles[~is_shared])
    # Row r holds spans of all IPUs of replica r; the last row (NONE) holds spans of all replicas.
    joint = np.zeros((info.replicas + 1, len(SpanKind)), dtype=np.int64)
    np.add.at(joint, (timeline.replica[rows][is_shared], kind[is_shared]), cycles[is_shared])
    total: Table = table + np.repeat(joint[:-1], info.shards, axis=0) + joint[-1]
    return total


def ipu_uses(timeline: Timeline, execution: Execution | None = None) -> tuple[IpuUse, ...]:
    """Return the use of all IPUs of the device in logical order.

    ``execution`` restricts the result to that execution's pipeline, without weight update.
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
    """Return ``part / whole``, or 0.0 for ``whole`` 0, such as time on a free system."""
    return part / whole if whole else 0.0

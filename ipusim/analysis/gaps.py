"""Measure gaps in main: idle time that every IPU has in the main phases of a run.

Gaps in main are the idle time of the least idle IPU; other IPUs may be idle for longer without harm. In 1F1B with
point-to-point sync, for example, the first IPU waits once in the main phase for its first gradient, however many
micro-batches follow. The last IPU waits equally long, but in the ramps. So the gaps in main are zero.
"""

from __future__ import annotations

import numpy as np

from ipusim.analysis.executions import executions_of
from ipusim.analysis.phases import MAIN, phases_of
from ipusim.timeline.kinds import PASSES, of_kinds
from ipusim.timeline.timeline import Timeline


def gaps_in_main(timeline: Timeline) -> int:
    """Return the least idle cycles of any IPU within main phases.

    Args:
        timeline: a run whose IPUs do nothing but passes.

    Returns:
        Cycles of all executions together. 0 if no execution has a main phase.

    Example:
        >>> from ipusim.api import Request, assemble, execute
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> pipeline = {"schedule": "sequential", "gradient_accumulation_count": 4, "stages": stages}
        >>> run = execute(assemble(Request.from_dict({"system": {"name": "free"}, "pipeline": pipeline})))
        >>> gaps_in_main(run.timeline)
        12000
    """
    main = [phase for phase in phases_of(timeline) if phase.name == MAIN]
    if not main:
        return 0
    times = {execution.index: execution.times for execution in executions_of(timeline)}
    executions, starts, ends = np.array([(phase.execution, phase.start, phase.end) for phase in main]).T
    with_ends = timeline.with_block_ends_expanded()
    rows = np.flatnonzero(of_kinds(with_ends.kind, PASSES) & np.isin(with_ends.execution, executions))
    phase = np.searchsorted(executions, with_ends.execution[rows])
    inside_cycles = np.minimum(with_ends.end[rows], ends[phase]) - np.maximum(with_ends.start[rows], starts[phase])
    busy = np.zeros(len(timeline.info.ipus), dtype=np.int64)
    np.add.at(busy, with_ends.ipu[rows], np.maximum(inside_cycles, 0) * with_ends.weights[rows])
    return sum(phase.cycles * times[phase.execution] for phase in main) - int(busy.max())

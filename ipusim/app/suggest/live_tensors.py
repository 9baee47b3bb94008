"""The tensors that are live on an IPU at once, as sums of what its stages hold: before their bytes are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Plan, pipelines

#: What a stage needs while a pass runs, by attribute of StageFootprint.
_PASS_TENSORS: Final = {
    "forward": pipelines.Pass.FORWARD,
    "backward": pipelines.Pass.BACKWARD,
    "recompute": pipelines.Pass.RECOMPUTE,
    "input_half": pipelines.Pass.INPUT_GRADIENT,
    "weight_half": pipelines.Pass.WEIGHT_GRADIENT,
}
#: What a stage holds, by attribute of StageFootprint.
PARTS: Final = ("saved", "recomputed", "rest", *_PASS_TENSORS)
#: Of each IPU, its stages and the distinct moments: how often each part of each stage is live, a row each.
LiveTensors = Mapping[int, tuple[tuple[int, ...], npt.NDArray[np.int64]]]


def live_tensors(plan: Plan) -> LiveTensors:
    """Return the live tensors of each IPU under ``plan``, as multiples of what each stage holds."""
    shape, live = plan.shape, {}
    for ipu in plan.ipus:
        rows = np.flatnonzero(plan.ipu == ipu)
        stages = tuple(stage for stage, owner in enumerate(shape.mapping) if owner == ipu)
        columns = []
        for stage in stages:
            members = plan.stage[rows] == stage
            kind = plan.kind[rows][members]
            empty = pipelines.StageFootprint(
                ipus=(ipu,),
                fifo_depth=plan.fifo_depths[stage] if shape.training else 0,
                saved=0,
                recomputed=0,
                forward=0,
                backward=0,
                recomputes=shape.recompute and shape.recomputes(stage),
                training=shape.training,
            )
            levels_of = pipelines.alive(empty, kind)
            levels = (levels_of.outside, levels_of.recomputed, levels_of.waiting)
            during = [level.during for level in levels] + [
                (kind == run).astype(np.int64) for run in _PASS_TENSORS.values()
            ]
            levels_after = [level.after for level in levels] + [np.zeros_like(kind)] * len(_PASS_TENSORS)
            of_stage = pipelines.Levels(np.stack(during, axis=1), np.stack(levels_after, axis=1))
            columns.append(pipelines.spread(of_stage, members).during)
        live[ipu] = stages, np.unique(np.concatenate(columns, axis=1), axis=0)
    return live

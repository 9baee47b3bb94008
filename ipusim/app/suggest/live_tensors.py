"""Count simultaneously live parts of stages' memory on an IPU, before bytes are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Plan, pipelines

#: Kind of pass behind some parts of a stage's memory, by StageFootprint attribute.
_PASS_TENSORS: Final = {
    "forward_bytes": pipelines.Pass.FORWARD,
    "backward_bytes": pipelines.Pass.BACKWARD,
    "recompute_weight_bytes": pipelines.Pass.RECOMPUTE,
    "input_half_bytes": pipelines.Pass.INPUT_GRADIENT,
    "weight_half_bytes": pipelines.Pass.WEIGHT_GRADIENT,
}
#: All parts of a stage's memory, by StageFootprint attribute.
PARTS: Final = ("kept_bytes", "recomputed_bytes", "halves_bytes", *_PASS_TENSORS)
#: Stages of each IPU, and for each distinct moment a row of counts: how often each part of each stage is live.
LiveTensors = Mapping[int, tuple[tuple[int, ...], npt.NDArray[np.int64]]]


def live_tensors(plan: Plan) -> LiveTensors:
    """Return each IPU's live tensors under ``plan`` as counts of stages' parts."""
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
                kept_bytes=0,
                recomputed_bytes=0,
                forward_bytes=0,
                backward_bytes=0,
                has_recompute_pass=shape.recomputes_apart(stage),
                training=shape.training,
            )
            levels_of = pipelines.alive(empty, kind)
            levels = (levels_of.outside, levels_of.recomputed, levels_of.halves)
            during = [level.during for level in levels] + [
                (kind == pass_kind).astype(np.int64) for pass_kind in _PASS_TENSORS.values()
            ]
            levels_after = [level.at_end for level in levels] + [np.zeros_like(kind)] * len(_PASS_TENSORS)
            of_stage = pipelines.Levels(np.stack(during, axis=1), np.stack(levels_after, axis=1))
            columns.append(pipelines.spread_levels(of_stage, members).during)
        live[ipu] = stages, np.unique(np.concatenate(columns, axis=1), axis=0)
    return live

"""What is alive on an IPU at once, as sums of what its stages hold: the moments of a Plan, before bytes are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.pipeline.footprint import StageFootprint
from ipusim.pipeline.liveness import spread, stage_levels
from ipusim.pipeline.plan import Plan

#: What a stage holds, by attribute of StageFootprint.
PARTS: Final = ("kept", "recomputed", "forward", "backward", "again", "rest", "input_half", "weight_half")
#: Of each IPU, its stages and the distinct moments: how often each part of each stage is alive, a row each.
Moments = Mapping[int, tuple[tuple[int, ...], npt.NDArray[np.int64]]]


def moments_of(plan: Plan) -> Moments:
    """Return the moments of each IPU under ``plan``: levels are linear in what a stage holds, so units tell them."""
    shape, found = plan.shape, {}
    for ipu in plan.ipus:
        rows = np.flatnonzero(plan.ipu == ipu)
        stages = tuple(stage for stage, each in enumerate(shape.mapping) if each == ipu)
        columns = []
        for stage in stages:
            own = plan.stage[rows] == stage
            nothing = StageFootprint(
                ipu=ipu,
                fifo_depth=plan.fifo_depths[stage] if shape.training else 0,
                kept=0,
                recomputed=0,
                forward=0,
                backward=0,
                recomputes=shape.recompute and shape.recomputes(stage),
                training=shape.training,
            )
            for part in PARTS:
                one: dict[str, Any] = {part: 1}
                levels = stage_levels(replace(nothing, **one), plan.kind[rows][own])
                columns.append(spread(levels.live, own).during)
        found[ipu] = stages, np.unique(np.stack(columns, axis=1), axis=0)
    return found

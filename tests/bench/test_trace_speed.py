"""What drawing an execution trace costs beyond drawing as many boxes."""

import io

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import to_png, to_svg
from ipusim.hardware.build import build_system
from ipusim.model.profile import StageProfile
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from ipusim.timeline.kinds import COMPUTE_KINDS
from tests.plans import price_and_run


@pytest.mark.stable
def test_grouped_64_ipus_1024_micro_batches(ratio):
    shape = PlanShape(mapping=tuple(range(64)), micro_batches=1024)
    profiles = tuple(StageProfile(f"s{i}", 1000 + i % 7, 2000, 100, 4096, 4096) for i in range(64))
    timeline = price_and_run(
        plan_of(find("grouped"), shape), PipelineProgram(profiles, shape), build_system("pod64", mapping=shape.mapping)
    )
    rows = timeline.rows(*COMPUTE_KINDS[:2])
    assert len(rows) == 131_072
    start, end, low = timeline.start[rows], timeline.end[rows], timeline.ipu[rows]
    size = execution_trace(timeline).get_size_inches()

    def bare():
        corners = [(start, low), (end, low), (end, low + 0.8), (start, low + 0.8)]
        figure = Figure(figsize=size)
        axes = figure.add_subplot()
        axes.add_collection(PolyCollection(np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)))
        axes.set(xlim=(0, end.max()), ylim=(0, 64))
        figure.savefig(io.BytesIO(), format="png")

    found = ratio(
        "execution trace of 131,072 operations as PNG", lambda: to_png(execution_trace(timeline)), bare, rounds=2
    )
    svg = to_svg(execution_trace(timeline))
    print(f"SVG: {len(svg) / 1e6:.2f} MB")
    assert len(svg) < 3_000_000
    assert found <= 4

"""What drawing an execution trace costs beyond drawing as many boxes, and what the trace file of a long run takes."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import to_png, to_svg
from ipusim.app.run_folder.report import trace_file
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import COMPUTE_KINDS
from tests.scenarios import job_of


def run(ipus, count, system, **more):
    """Return the run of as many stages as IPUs, of which seven in a row differ."""
    stages = {"backward": 2000, "update": 100, "moved": 4096, **more}
    job = job_of("grouped", mapping=range(ipus), count=count, system=system, **stages)
    forward = {f"pipeline.stages.{stage}.forward": 1000 + stage % 7 for stage in range(ipus)}
    return execute(assemble(job.request.replace(forward)))


@pytest.mark.stable
def test_grouped_64_ipus_1024_micro_batches(ratio):
    spans = run(64, 1024, "pod64").timeline.expanded()
    rows = spans.rows(*COMPUTE_KINDS[:2])
    assert len(rows) == 131_072
    start, end, low = spans.start[rows], spans.end[rows], spans.ipu[rows]
    size = execution_trace(spans).get_size_inches()

    def bare():
        corners = [(start, low), (end, low), (end, low + 0.8), (start, low + 0.8)]
        figure = Figure(figsize=size)
        axes = figure.add_subplot()
        axes.add_collection(PolyCollection(np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)))
        axes.set(xlim=(0, end.max()), ylim=(0, 64))
        figure.savefig(io.BytesIO(), format="png")

    found = ratio(
        "execution trace of 131,072 operations as PNG", lambda: to_png(execution_trace(spans)), bare, rounds=4
    )
    svg = to_svg(execution_trace(spans))
    print(f"SVG: {len(svg) / 1e6:.2f} MB")
    assert len(svg) < 3_000_000
    assert found <= 4


@pytest.mark.stable
def test_the_file_of_four_stages_65536_micro_batches_takes_bounded_memory():
    long = run(4, 65_536, "m2000", held=4096)
    trace_file(long)  # imports the protocol
    tracemalloc.start()
    content = trace_file(long)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nTrace file of 4 stages x 65,536 micro-batches: {len(content) / 1e6:.1f} MB in the file,")
    print(f"{peak / 1e6:.1f} MB of memory at most")
    assert len(content) <= 1_000_000
    assert peak <= 8_000_000  # 1.6 here

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
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import COMPUTE_KINDS
from tests.bench.scenarios import timed_stages


def run(folder, system, ipus, count):
    """Return the run of so many stages on as many IPUs, known by their cycles and bytes."""
    path = folder / "long.yaml"
    path.write_text(timed_stages(system, ipus, count))
    return execute(load_job(path))


@pytest.mark.stable
def test_grouped_64_ipus_1024_micro_batches(ratio, tmp_path):
    spans = run(tmp_path, "pod64", 64, 1024).timeline.expanded()
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
def test_the_file_of_four_stages_65536_micro_batches_takes_bounded_memory(tmp_path):
    long = run(tmp_path, "m2000", 4, 65_536)
    trace_file(long)  # imports the protocol
    tracemalloc.start()
    content = trace_file(long)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nTrace file of 4 stages x 65,536 micro-batches: {len(content) / 1e6:.1f} MB in the file,")
    print(f"{peak / 1e6:.1f} MB of memory at most")
    assert len(content) <= 1_000_000
    assert peak <= 8_000_000  # 1.6 here

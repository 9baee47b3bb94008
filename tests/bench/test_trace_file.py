"""What the default trace file of a long run takes: seconds, bytes, and memory beside the run's own."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from ipusim.scenario import load_experiment
from ipusim.study.report import trace_file
from ipusim.study.run import execute

#: Rounds, of which the fastest counts.
ROUNDS = 5


@pytest.fixture
def result(tmp_path):
    """Return a function that runs so many stages on as many IPUs, known by their cycles and bytes."""

    def of(system, stages, count):
        lines = (
            f"    - {{name: s{stage}, forward: {1000 + stage % 7}, backward: 2000, update: 100, "
            "parameter_bytes: 4 KiB, stash_bytes: 4 KiB, output_bytes: 4 KiB, gradient_bytes: 4 KiB}"
            for stage in range(stages)
        )
        path = tmp_path / "long.yaml"
        path.write_text(
            f"system: {{name: {system}, auto_select_ipus: {stages}}}\nmemory: report\npipeline:\n  schedule: grouped\n"
            f"  gradient_accumulation_count: {count}\n  stages:\n" + "\n".join(lines)
        )
        return execute(load_experiment(path))

    return of


def test_64_ipus_1024_micro_batches(result):
    run = result("pod64", 64, 1024)
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()  # of the processor: whatever else the machine does is not counted
        name, content = trace_file(run)
        found.append(time.process_time() - start)
    print(f"\n{name} of 64 IPUs x 1024 micro-batches: {len(content) / 1e6:.1f} MB in {min(found):.2f} s")
    assert len(content) <= 20_000_000
    assert min(found) <= 2.0


def test_four_stages_65536_micro_batches_take_bounded_memory(result):
    run = result("m2000", 4, 65_536)
    columns = run.timeline._table.nbytes
    tracemalloc.start()
    name, content = trace_file(run)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\n{name} of 4 stages x 65,536 micro-batches: {len(content) / 1e6:.1f} MB in the file,")
    print(f"{peak / 1e6:.0f} MB of memory at most, beside {columns / 1e6:.0f} MB of the timeline")
    assert len(content) <= 50_000_000
    assert peak <= 2 * columns

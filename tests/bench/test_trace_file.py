"""What the default trace file of a long run takes: seconds, bytes, and memory beside the run's own."""

import tracemalloc

import pytest

from ipusim.app.run_folder.report import trace_file
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from tests.bench.scenarios import timed_stages


@pytest.fixture
def result(tmp_path):
    """Return a function that runs so many stages on as many IPUs, known by their cycles and bytes."""

    def of(system, stages, count):
        path = tmp_path / "long.yaml"
        path.write_text(timed_stages(system, stages, count))
        return execute(load_job(path))

    return of


@pytest.mark.stable
def test_four_stages_65536_micro_batches_take_bounded_memory(result):
    run = result("m2000", 4, 65_536)
    trace_file(run)  # imports the protocol
    tracemalloc.start()
    content = trace_file(run)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nTrace file of 4 stages x 65,536 micro-batches: {len(content) / 1e6:.1f} MB in the file,")
    print(f"{peak / 1e6:.1f} MB of memory at most")
    assert len(content) <= 1_000_000
    assert peak <= 8_000_000  # 1.6 here

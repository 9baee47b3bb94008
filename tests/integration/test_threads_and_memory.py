"""A run computes on one thread, whichever BLAS it uses, and takes no more memory than limits count with."""

import json
import subprocess
import sys

from ipusim.runs.assemble.limits import PASS_BYTES, SPAN_BYTES
from tests.effort import slowest
from tests.scenarios import ROOT, SCENARIOS

THREADS = """
import json, threadpoolctl
from ipusim.machine import numpy_executor
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute

found = set()
run = numpy_executor.NumpyExecutor.run

def spying(self, *words):
    found.update((pool["filepath"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info())
    return run(self, *words)

numpy_executor.NumpyExecutor.run = spying
execute(load_job("scenarios/tutorial_step3_pipelining.yaml", ["steps=1", "pipeline.repeat_count=1"]))
print(json.dumps(sorted(found)))
"""


def test_every_blas_runs_on_one_thread_in_a_run():
    """SciPy brings a BLAS of its own, which a limit set before it is loaded would miss."""
    command = [sys.executable, "-W", "error", "-c", THREADS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= 1
    assert {threads for _, threads in found} == {1}


FOUR = SCENARIOS / "schedules_four_ipus.yaml"
MEASURE = """
import resource, sys
from pathlib import Path
from ipusim.app.scenario import load_job
from ipusim.app.run_folder.report import picture_window, run_files
from ipusim.runs.execute import execute
for count in (400, 2_000):
    job = load_job(sys.argv[1], [*sys.argv[2:], f"pipeline.gradient_accumulation_count={count}"])
    result = execute(job, jump=False)
    run_files(result, picture_window(result.timeline), Path())
    print(len(result.timeline.start), len(job.whole.plan.table), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    del result
"""


@slowest
def test_a_run_takes_no_more_memory_for_a_span_than_the_bound_counts():
    """The growth of a whole run's peak, all files included, from one size to five times that."""
    changes = ("system.name=m2000", "pipeline.schedule=sequential", "pipeline.stages.0.output_bytes=4 KiB")
    words = [sys.executable, "-c", MEASURE, FOUR, *changes]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    spans, passes, kibibytes = (large - small for small, large in zip(*found, strict=True))
    assert spans > 4 * passes > 45_000
    assert kibibytes * 1024 <= spans * SPAN_BYTES + passes * PASS_BYTES

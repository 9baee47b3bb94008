"""A run computes on one thread, whichever BLAS it uses."""

import json
import subprocess
import sys

from tests.scenarios import ROOT

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

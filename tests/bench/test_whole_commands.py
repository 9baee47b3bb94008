"""Whole commands, as a user waits for them: from the start of the process to its end, with every file written."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.bench.scenarios import timed_stages

#: Rounds, of which the fastest counts.
ROUNDS = 5


@pytest.mark.parametrize("memory", [False, True])
def test_run_of_64_ipus_1024_micro_batches(tmp_path, memory):
    path = tmp_path / "long.yaml"
    path.write_text(timed_stages("pod64", stages=64, count=1024, memory=memory))
    command = [sys.executable, "-m", "ipusim", "run", str(path), "--out", str(tmp_path / "out")]
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - start)
    files = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    print(f"\nipusim run of 64 IPUs x 1024 micro-batches: {min(took):.2f} s with {', '.join(sorted(files))}")
    assert files >= {"summary.json", "timeline.npz", "trace.pftrace.gz", "trace.png", "trace.svg"}
    assert ("memory.png" in files) == memory

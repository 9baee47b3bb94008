"""A model of real size, its time alone: no weights, activations or samples are made, so that it is soon there."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc

import pytest

from ipusim.app.scenario import load_job
from tests.bench.scenarios import bert_large

#: Rounds, of which the fastest counts.
ROUNDS = 5
#: Trainable elements of a block: projections with biases, two products with biases, and two normalisations.
BLOCK = 4 * (1024 * 1024 + 1024) + (1024 * 4096 + 4096) + (4096 * 1024 + 1024) + 2 * 2 * 1024
#: And of the tables before the blocks, and of what follows them.
FIRST, LAST = (30_522 + 128) * 1024, 2 * 1024 + 1024 * 30_522 + 30_522


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "bert_large.yaml"
    path.write_text(bert_large())
    return path


def test_bert_large_is_laid_out_without_arrays(scenario):
    start = time.perf_counter()
    job = load_job(scenario)  # with what is imported on the way
    first = time.perf_counter() - start
    start = time.perf_counter()
    load_job(scenario)
    again = time.perf_counter() - start
    tracemalloc.start()
    try:
        load_job(scenario)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sizes = [stage.parameter_bytes for stage in job.program.stages]
    taken = f"{first:.2f} s, then {again:.2f} s and {peak / 1e6:.1f} MB"
    print(f"\nBERT-Large, {sum(sizes) / 2e6:.0f} million weights, laid out: {taken}")
    assert sizes == [2 * (6 * BLOCK + FIRST), 2 * 6 * BLOCK, 2 * 6 * BLOCK, 2 * (6 * BLOCK + LAST)]
    assert peak < min(sizes) / 10


#: Runs a command from a small process, as what a process has taken at most includes what the one that starts it has.
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run([sys.executable, "-m", "ipusim", "run", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_run_of_bert_large(scenario, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-c", MEASURE, str(scenario), "--out", str(out)]
    rounds = [subprocess.run(words, capture_output=True, text=True, check=True).stdout.split() for _ in range(ROUNDS)]
    seconds, kibibytes = (list(map(float, each)) for each in zip(*rounds, strict=True))
    peak = max(kibibytes) * 1024
    print(f"\nipusim run of BERT-Large x 512 micro-batches: {min(seconds):.2f} s, {peak / 1e6:.0f} MB with pictures")
    assert {"summary.json", "timeline.npz", "trace.png", "memory.png"} <= {path.name for path in out.iterdir()}
    assert peak < 400e6

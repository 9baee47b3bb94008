"""The Python door: it is imported soon, and a program's stages are tried soon."""

from __future__ import annotations

import contextvars
import runpy
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ipusim.ipu import loops
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.runtime import layouts


def test_the_door_is_imported_soon():
    found = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import ipusim.ipu"], check=True)
        found.append(time.perf_counter() - start)
    print(f"import ipusim.ipu: {min(found):.3f} s, with Python's own start")
    assert min(found) < 0.4


def test_the_stages_of_the_tutorial_are_tried_soon(monkeypatch, capsys):
    """Against the whole of it the second time, when all that it imports is there."""
    seconds = []
    whole = layouts.trace

    def timed(*arguments):
        for _ in range(5):
            start = time.perf_counter()
            found = whole(*arguments)
            seconds.append(time.perf_counter() - start)
        return found

    monkeypatch.setattr(layouts, "trace", timed)
    monkeypatch.setattr(sys, "argv", ["step3_pipelining.py", "--epochs", "1"])
    contextvars.copy_context().run(runpy.run_path, "scenarios/python/step3_pipelining.py", run_name="__main__")
    with capsys.disabled():
        print(f"trace of two stages: {1000 * min(seconds):.1f} ms")
    assert min(seconds) < 0.05


@pytest.mark.stable
def test_a_thread_that_reads_the_losses_does_not_slow_the_run(ratio):
    """A reader that asked again at once, without waiting for what comes, made the run take six times as long."""
    count = 500

    def run(reads):
        outfeed, found = IPUOutfeedQueue(), []

        def body(x):
            loss = tf.reduce_mean((x * tf.get_variable("w", [8], initializer="ones") - 3 * x) ** 2)
            return [outfeed.enqueue(loss), tf.train.GradientDescentOptimizer(0.01).minimize(loss)]

        def read():
            while len(found) < count:
                found.extend(outfeed)

        reader = threading.Thread(target=read, daemon=True)
        if reads:
            reader.start()
        loops.repeat(count, body, None, IPUInfeedQueue(repeat([np.ones(8, np.float32)])))
        if reads:
            reader.join(20)
            assert len(found) == count

    assert ratio("a run with a reader of its losses", lambda: run(True), lambda: run(False), rounds=5) < 1.5

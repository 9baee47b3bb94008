"""The Python door: it is imported soon, and a program's stages are tried soon."""

from __future__ import annotations

import contextvars
import runpy
import subprocess
import sys
import time

from ipusim.ipu import lay_out


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
    whole = lay_out.trace

    def timed(*arguments):
        for _ in range(5):
            start = time.perf_counter()
            found = whole(*arguments)
            seconds.append(time.perf_counter() - start)
        return found

    monkeypatch.setattr(lay_out, "trace", timed)
    monkeypatch.setattr(sys, "argv", ["step3_pipelining.py", "--epochs", "1"])
    contextvars.copy_context().run(runpy.run_path, "scenarios/python/step3_pipelining.py", run_name="__main__")
    with capsys.disabled():
        print(f"trace of two stages: {1000 * min(seconds):.1f} ms")
    assert min(seconds) < 0.05

"""What a second worker brings to ``ipusim test``, from the start of the command to its end."""

from __future__ import annotations

import subprocess
import sys
import time

import joblib
import pytest

from ipusim.app.regression.suite import hold_all
from tests.scenarios import ROOT, SCENARIOS


@pytest.mark.skipif(joblib.cpu_count() < 2, reason="one core")
def test_two_workers_against_one_warm_process():
    """All scenarios that ship, in turn, the fastest of each: this process is warm from its first round on.

    For a machine with nothing else to do: Linux shares out a busy one by session (sched_autogroup_enabled), and the two
    workers, which are of one, get together what one process gets.
    """
    files = sorted(SCENARIOS.glob("*.yaml"))
    command = [sys.executable, "-m", "ipusim", "test", "scenarios", "--workers", "2"]
    alone, together = [], []
    for warm in (False, True, True, True):
        start = time.perf_counter()
        assert {outcome.ended for outcome in hold_all(files, workers=1)} == {"held"}
        if not warm:
            continue
        alone.append(time.perf_counter() - start)
        start = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        together.append(time.perf_counter() - start)
        assert done.stdout.endswith(f"{len(files)} held, of {len(files)} scenarios\n")
    ratio = min(together) / (min(alone) / 2)
    print(f"\n{min(alone):.1f} s by one warm process, {min(together):.1f} s by the command: {ratio:.2f} x half of it")
    assert ratio <= 1.6

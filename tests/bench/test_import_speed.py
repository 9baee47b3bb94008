"""How long a trace of 1 GB takes to import, and how much memory."""

import resource
import subprocess
import sys
import time

from ipusim.app.profiles.read import read_measured
from ipusim.app.profiles.stages import stages_of

#: Events of a block, and blocks of the file: 1.0 GB.
EVENTS, BLOCKS = 100_000, 50


def write(path):
    """Write a trace as torch's profiler does: two spans of passes among 98 of operators."""
    events = []
    for number in range(EVENTS):
        is_pass = number % 50 == 0
        name = f"PP:0{'FB'[number // 50 % 2]}{number // 100 % 8}" if is_pass else "aten::mm"
        category = "user_annotation" if is_pass else "cpu_op"
        events.append(
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 4100, "tid": 4100,\n'
            f'    "ts": @{number * 10:07}.{number % 1000:03}, "dur": 9.125,\n    "args": {{\n'
            f'      "External id": {number},"Record function id": 0, "Ev Idx": {number}\n    }}\n  }}'
        )
    block = ",\n".join(events).encode()
    with path.open("wb") as file:
        file.write(b'{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n')
        for number in range(BLOCKS):
            file.write(b",\n" * (number > 0) + block.replace(b"@", b"%d" % (number + 1)))
        file.write(b"]}\n")


def measure(path):
    """Import a trace, and print seconds of a core and the most memory in bytes."""
    began = time.process_time()
    stages = stages_of(read_measured([path]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(time.process_time() - began, peak, sum(figure.count for figure in stages.stages["0"].values()))


def test_a_trace_of_1_gb_takes_less_than_a_minute_and_1_gb(tmp_path):
    path = tmp_path / "a.json"
    write(path)
    assert 0.99e9 < path.stat().st_size < 1.1e9
    code = f"from pathlib import Path; from tests.bench.test_import_speed import measure; measure(Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, peak, passes = map(float, done.stdout.split())
    print(f"{path.stat().st_size / 1e9:.2f} GB: {seconds:.1f} s of a core, {peak / 1e6:.0f} MB")
    assert (seconds < 60, peak < 1e9, passes) == (True, True, EVENTS * BLOCKS // 50)

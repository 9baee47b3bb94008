"""What a kind of disturbance costs: its value and its rule, a product file each; all else follows."""

from __future__ import annotations

import json

import pytest

from tests.changed_package import copy_package
from tests.interpreter import Interpreter

VALUE = '''

@dataclass(frozen=True)
class Jitter:
    """Passes of all IPUs that take up to twice as long, each drawn by itself."""

    seed: int

    def check(self, resources: Resources) -> None:
        """Accept every system."""
'''
RULE = """

@rule.register
def _jitter(disturbance: Jitter) -> Rule | None:
    import random

    def pace(worker: Resource, work: Work, cycle: int) -> Pace:
        if worker.kind != "IPU" or work.stage == NONE:
            return _FULL, None
        key = disturbance.seed, worker.name, int(work.kind), work.stage, work.micro_batch, work.execution
        return Fraction(100, 100 + random.Random(repr(key)).randrange(100)), None

    return Rule(pace, None)
"""
SCENARIO = """\
system: {name: m2000, auto_select_ipus: 2}
pipeline:
  schedule: grouped
  gradient_accumulation_count: 80
  repeat_count: 6
  stages:
    - {name: a, forward: 1000, backward: 2000, update: 10, output_bytes: 1 KiB}
    - {name: b, forward: 1000, backward: 2000, update: 10, gradient_bytes: 1 KiB}
"""
RUN = """
import json, sys
from dataclasses import replace
from ipusim.hardware import disturbances
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.app.scenario import load_request
from ipusim.timeline.kinds import PASSES
request = load_request("s.yaml", sys.argv[1:])
plain = execute(assemble(request))
run = execute(assemble(replace(request, disturbances=(disturbances.Jitter(7),))))
line = run.timeline
rows = line.rows(*PASSES)
spans = zip(*(getattr(line, name)[rows].tolist() for name in ("ipu", "kind", "stage", "micro_batch", "execution")))
print(json.dumps({
    "passes": sorted([*span, took] for span, took in zip(spans, (line.end - line.start)[rows].tolist())),
    "blocks": [len(plain.timeline.repeats), len(line.repeats)],
    "ends": [plain.summary.makespan_cycles, run.summary.makespan_cycles],
}))
"""


def test_it_disturbs_a_run_pass_by_pass(tmp_path):
    """Each pass of each execution is drawn by itself, and the same in every schedule and mode; nothing is jumped."""
    package = copy_package(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    add(package / "hardware" / "disturbances.py", VALUE)
    add(package / "machine" / "disturbances.py", RULE)
    imported = package / "machine" / "disturbances.py"
    imported.write_text(
        imported.read_text().replace("import Disturbance, Slower", "import Disturbance, Jitter, Slower")
    )
    runs = [outcome(tmp_path, f"pipeline.{of}") for of in ("sync=lock_step", "sync=point_to_point", "schedule=1f1b")]
    for run in runs:
        assert run["passes"] == runs[0]["passes"]
        assert run["blocks"][0], "the same run repeats itself undisturbed"
        assert not run["blocks"][1]
        assert run["ends"][1] > run["ends"][0]
    took = {tuple(key): cycles for *key, cycles in runs[0]["passes"]}
    assert len(took) == 2 * 2 * 80 * 6
    forward = [cycles for (_, kind, *_), cycles in took.items() if kind == 0]
    assert min(forward) >= 1000
    assert max(forward) < 2000
    assert sum(forward) / len(forward) == pytest.approx(1495, abs=30)


def outcome(place, *words):
    with Interpreter(PYTHONPATH=str(place)) as interpreter:
        done = interpreter.run(RUN, *words, folder=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def add(path, text):
    with path.open("a") as file:
        file.write(text)

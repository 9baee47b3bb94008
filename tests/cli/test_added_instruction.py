"""What an instruction costs: its code, the lowering that puts it in, its law and its handler; all else follows."""

from __future__ import annotations

import json
import os

from tests.changed_package import copy_package, put
from tests.interpreter import Interpreter
from tests.places import ROOT

CYCLES = 5_000
SYNCS = ("lock_step", "point_to_point")
#: Each IPU compares its weights with a checksum at the end of an execution.
HANDLER = """
    def _compare(self, ipu, stage, micro_batch, number, step, cause):
        clock, start = self._context.clock, self._context.clock.now
        end = yield clock.spend(resources.ipus([ipu.number]), SpanKind.WEIGHT_UPDATE, CHECKSUM_CYCLES)
        return self._context.recorder.record(self._spans[ipu.number], step, start, end, cause)
"""
SCENARIO = """\
system: {name: m2000, auto_select_ipus: 2}
pipeline:
  schedule: grouped
  gradient_accumulation_count: 4
  repeat_count: 3
  stages:
    - {name: a, forward: 1000, backward: 2000, update: 10, output_bytes: 1 KiB}
    - {name: b, forward: 1000, backward: 2000, update: 10, gradient_bytes: 1 KiB}
"""
RUN = """
import json, sys
from ipusim.runs.execute import execute
from ipusim.app.scenario import load_job
from tests.listings import parse_listing
job = load_job("s.yaml", sys.argv[1:])
run = execute(job)
listing = job.plan.listing()
assert (parse_listing(listing) == job.plan.instructions).all()
print(json.dumps({"end": int(run.timeline.end.max()), "often": listing.count("checksum")}))
"""


def outcomes(place):
    """Run the scenario in both sync modes."""
    with Interpreter(PYTHONPATH=f"{place}{os.pathsep}{ROOT}") as interpreter:
        done = [interpreter.run(RUN, f"pipeline.sync={sync}", folder=place) for sync in SYNCS]
    assert [each.returncode for each in done] == [0] * len(done), [each.stderr for each in done]
    return [json.loads(each.stdout) for each in done]


def test_it_is_printed_read_back_and_carried_out_in_both_sync_modes(tmp_path):
    package = copy_package(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    every_before = outcomes(tmp_path)
    put(package / "pipeline" / "instructions.py", *following("    OUTSIDE = 27\n", "    CHECKSUM = 28\n"))
    put(
        package / "lowering" / "side_instructions.py",
        *before_it("    yield Code.END, NONE\n", "    yield Code.CHECKSUM, NONE\n"),
    )
    with (package / "pricing" / "laws.py").open("a") as laws:
        laws.write(f"#: What comparing weights with a checksum takes.\nCHECKSUM_CYCLES: Final = {CYCLES}\n")
    handlers = "Code.RELEASE: self._release"
    put(package / "machine" / "execution_end.py", *following(handlers, ", Code.CHECKSUM: self._compare"))
    law = "from ipusim.pricing.laws import CHECKSUM_CYCLES\n"
    put(package / "machine" / "execution_end.py", *before_it("from ipusim.timeline.kinds import", law))
    put(package / "machine" / "execution_end.py", *before_it("\n    def _release(", HANDLER))
    for before, after in zip(every_before, outcomes(tmp_path), strict=True):
        assert before["often"] == 0
        assert after["often"] == 2, "once on each IPU"
        assert after["end"] == before["end"] + 3 * CYCLES, "both IPUs at once, in each of three executions"


def following(anchor, text):
    return anchor, anchor + text


def before_it(anchor, text):
    return anchor, text + anchor

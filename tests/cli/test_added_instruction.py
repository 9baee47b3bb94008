"""What an instruction costs: its code, the lowering that puts it in, its law and its handler; all else follows."""

import json

from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from tests.package_copies import ChangedPackage

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
from tests.plans import parse_listing
job = load_job("s.yaml", sys.argv[1:])
run = execute(job)
listing = job.plan.listing()
assert (parse_listing(listing) == job.plan.instructions).all()
print(json.dumps({"end": int(run.timeline.end.max()), "often": listing.count("checksum")}))
"""


def test_it_is_printed_read_back_and_carried_out_in_both_sync_modes(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    package, end = ChangedPackage(tmp_path), "machine/execution_end.py"
    package.put("pipeline/instructions.py", *following("    OUTSIDE = 27\n", "    CHECKSUM = 28\n"))
    package.put(
        "lowering/side_instructions.py",
        *before_it("    yield Code.END, NONE\n", "    yield Code.CHECKSUM, NONE\n"),
    )
    text = f"#: What comparing weights with a checksum takes.\nCHECKSUM_CYCLES: Final = {CYCLES}\n"
    package.add("pricing/laws.py", text)
    package.put(end, *following("Code.RELEASE: self._release", ", Code.CHECKSUM: self._compare"))
    law = "from ipusim.pricing.laws import CHECKSUM_CYCLES\n"
    package.put(end, *before_it("from ipusim.timeline.kinds import", law))
    package.put(end, *before_it("\n    def _release(", HANDLER))
    with package.python() as interpreter:
        for sync in SYNCS:
            done = interpreter.run(RUN, f"pipeline.sync={sync}", folder=tmp_path)
            assert done.returncode == 0, done.stderr
            after = json.loads(done.stdout)
            before = execute(load_job(tmp_path / "s.yaml", [f"pipeline.sync={sync}"]))
            assert before.job.plan.listing().count("checksum") == 0
            assert after["often"] == 2, "once on each IPU"
            assert after["end"] == before.timeline.end.max() + 3 * CYCLES, "both IPUs, in each of three executions"


def following(anchor, text):
    return anchor, anchor + text


def before_it(anchor, text):
    return anchor, text + anchor

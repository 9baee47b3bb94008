"""What an instruction costs: its code, the lowering that puts it in, its law and its handler; all else follows."""

import json

import pytest

from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from ipusim.runs.yaml_text import dump
from tests.scenarios import timed

CYCLES = 5_000
#: Each IPU compares its weights with a checksum at the end of an execution.
HANDLER = """
    def _compare(self, ipu, stage, micro_batch, number, step, cause):
        clock, start = self._context.clock, self._context.clock.now
        end = yield clock.spend(resources.ipus([ipu.number]), SpanKind.WEIGHT_UPDATE, CHECKSUM_CYCLES)
        return self._context.recorder.record(self._spans[ipu.number], step, start, end, cause)
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


BESIDE = {"s.yaml": dump(timed(2) | {"system": {"name": "m2000", "auto_select_ipus": 2}})}


def change(package):
    end, release, imported = "machine/execution_end.py", "\n    def _release(", "from ipusim.timeline.kinds import"
    package.put("pipeline/instructions.py", "    OUTSIDE = 27\n", "    OUTSIDE = 27\n    CHECKSUM = 28\n")
    last = "    yield Code.END, NONE\n"
    package.put("lowering/side_instructions.py", last, "    yield Code.CHECKSUM, NONE\n" + last)
    text = f"#: What comparing weights with a checksum takes.\nCHECKSUM_CYCLES: Final = {CYCLES}\n"
    package.add("pricing/laws.py", text)
    handled = "Code.RELEASE: self._release"
    package.put(end, handled, f"{handled}, Code.CHECKSUM: self._compare")
    package.put(end, imported, "from ipusim.pricing.laws import CHECKSUM_CYCLES\n" + imported)
    package.put(end, release, HANDLER + release)


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_it_is_printed_read_back_and_carried_out_in_both_sync_modes(changed, sync):
    changes = (f"pipeline.sync={sync}", "pipeline.repeat_count=3")
    after = json.loads(changed(RUN, *changes))
    before = execute(load_job(changed.place / "s.yaml", changes))
    assert before.job.plan.listing().count("checksum") == 0
    assert after["often"] == 2, "once on each IPU"
    assert after["end"] == before.timeline.end.max() + 3 * CYCLES, "both IPUs, in each of three executions"

"""What a kind of disturbance costs: its value and its rule, a product file each; all else follows."""

import json

import pytest

from ipusim.runs.yaml_text import dump
from tests.scenarios import timed

VALUE = '''

@dataclass(frozen=True)
class Swing:
    """Passes of an IPU that come in a part of all micro-batches take longer."""

    kind: ClassVar[str] = "swing"

    swing: Annotated[int, Unit("cycles"), Doc("how much longer, in every third micro-batch")]
    ipu: Annotated[int, Ge(0), Le(63), Doc("logical IPU")]

    def problems(self, system: Placed) -> Problems:
        """Yield what is wrong: an IPU that the device has not."""
        yield from _ipu_problems(system, self.ipu)
'''
RULE = """

from ipusim.hardware.disturbances import Swing


@rule.register
def _swing(disturbance: Swing, system: System) -> SpeedRule | None:
    def pace(worker: Resource, work: Work, cycle: int) -> Pace:
        return FULL_SPEED, None

    def delay(worker: Resource, work: Work, cycle: int) -> int:
        is_its = worker == Resource("IPU", disturbance.ipu) and work.stage != NONE
        return disturbance.swing if is_its and work.micro_batch % 3 == 0 else 0

    return SpeedRule(pace, None, delay)
"""
RUN = """
import json, sys
from ipusim.runs.execute import execute
from ipusim.runs.assemble.assemble import assemble
from ipusim.app.scenario import load_request
from ipusim.timeline.kinds import PASSES
request = load_request("s.yaml", sys.argv[1:])
plain, run = (execute(assemble(request.replace({"disturbances": of}))) for of in ([], [{"ipu": 1, "swing": "1 us"}]))
line = run.timeline
rows = line.rows(*PASSES)
spans = zip(*(getattr(line, name)[rows].tolist() for name in ("ipu", "kind", "micro_batch")))
print(json.dumps({
    "passes": sorted([*span, took] for span, took in zip(spans, (line.end - line.start)[rows].tolist())),
    "blocks": [len(plain.timeline.repeats), len(line.repeats)],
    "ends": [plain.summary.makespan_cycles, run.summary.makespan_cycles],
}))
"""


BESIDE = {"s.yaml": dump(timed(2) | {"system": {"name": "m2000", "clock": "1 GHz", "auto_select_ipus": 2}})}
LONG = ("pipeline.gradient_accumulation_count=80", "pipeline.repeat_count=6")


def change(package):
    package.add("hardware/disturbances.py", VALUE)
    package.add("machine/disturbances.py", RULE)


@pytest.mark.parametrize("change", ["sync=lock_step", "sync=point_to_point", "schedule=1f1b"])
def test_it_disturbs_a_run_pass_by_pass(changed, change):
    """Each pass of every third micro-batch on one IPU, in every schedule and mode; nothing is jumped."""
    run = json.loads(changed(RUN, *LONG, f"pipeline.{change}"))
    assert run["blocks"][0], "the same run repeats itself undisturbed"
    assert not run["blocks"][1]
    assert run["ends"][1] > run["ends"][0]
    assert len(run["passes"]) == 2 * 2 * 80 * 6
    for ipu, kind, micro_batch, took in run["passes"]:
        late = 1000 if ipu == 1 and micro_batch % 3 == 0 else 0
        assert took == (2000 if kind else 1000) + late


def test_a_scenario_says_it_and_messages_and_the_schema_know_it(changed):
    wrong = 'disturbances=[{"ipu": 5, "swing": "1 us"}, {"ipu": 1, "3": 3}]'
    said = changed.ipusim("check", "s.yaml", "--set", wrong, returncode=2)
    assert "disturbances.1: got a mapping of 2 keys; expected a disturbance, which has a key out of" in said
    assert "swing, such as" in said
    wrong = 'disturbances=[{"ipu": 5, "swing": "1 us"}]'
    said = changed.ipusim("check", "s.yaml", "--set", wrong, returncode=2)
    assert said == "--set disturbances: disturbances.0.ipu: expected an IPU from 0 to 1 of m2000, got 5\n"
    assert "in every third micro-batch" in changed.ipusim("check", "--schema")

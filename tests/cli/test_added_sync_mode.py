"""What a sync mode costs: its row, a lowering and its row there; schedules name it, and all that shows it follows."""

from __future__ import annotations

import json

#: An IPU that sends does nothing else until its tensor is there: point-to-point without overlap, whatever is asked for.
LOWERING = '''"""Patient: an IPU waits for the delivery of all that it sends."""

from __future__ import annotations

from dataclasses import replace

from ipusim.lowering.side_instructions import SideInstructions
from ipusim.lowering.point_to_point import point_to_point
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Plan, Sync


def patient(order: Order, side: SideInstructions) -> Plan:
    """Return the Plan in which each IPU waits for the delivery of what it sends."""
    made = point_to_point(order, replace(side, overlap_copies=False))
    return Plan(
        order,
        Sync.PATIENT,
        table=made.table,
        emitted=made.emitted,
        make=lambda: made.instructions.copy(),
        count_waiting=lambda: made.waiting,
    )
'''
ROWS = (
    ("pipeline/plan.py", '    POINT_TO_POINT = "point_to_point", False\n', '    PATIENT = "patient", False\n'),
    ("lowering/lower.py", "    Sync.POINT_TO_POINT: point_to_point,\n", "    Sync.PATIENT: patient,\n"),
    (
        "lowering/lower.py",
        "from ipusim.lowering.lock_step import lock_step\n",
        "from ipusim.lowering.patient import patient\n",
    ),
)
SCHEDULE = """
from dataclasses import replace

from ipusim.pipeline.plan import Sync
from ipusim.schedules.registry import find

mine = replace(find("1f1b"), name="mine", syncs=(Sync.PATIENT, Sync.POINT_TO_POINT))
"""
SCENARIO = """\
system: {name: m2000, auto_select_ipus: 2}
pipeline:
  schedule: mine.py:mine
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 100000, backward: 200000, output_bytes: 1 MiB}
    - {name: b, forward: 100000, backward: 200000, gradient_bytes: 1 MiB}
"""
#: Prints how long each IPU of a run waits for its sends, without the run's files.
BLOCKED = """
import sys
from ipusim.runs.execute import execute
from ipusim.app.scenario import load_job
summary = execute(load_job("s.yaml", sys.argv[1:])).summary.to_dict()
print([each["blocking_send_cycles"] for each in summary["pipeline_use"]])
"""


BESIDE = {"mine.py": SCHEDULE, "s.yaml": SCENARIO}


def change(package):
    package.leave_pictures_out()
    package.write("lowering/patient.py", LOWERING)
    for file, anchor, row in ROWS:
        package.put(file, anchor, anchor + row)


def test_it_runs_and_is_named_wherever_a_mode_is(changed):
    assert " in patient" in changed.ipusim("run", "s.yaml", "--out", "out")
    summary = json.loads((changed.place / "out" / "summary.json").read_text())
    assert (summary["sync"], summary["time_steps"]) == ("patient", None)
    assert "patient" in changed.ipusim("check", "s.yaml")


def test_senders_wait(changed):
    first, second = json.loads(changed(BLOCKED, "pipeline.sync=patient"))
    assert first == second > 0, "four tensors of 1 MiB go either way"
    assert json.loads(changed(BLOCKED, "pipeline.sync=point_to_point")) == [0, 0]


def test_other_schedules_refuse_it_by_name(changed):
    words = ("check", "s.yaml", "--set", "pipeline.schedule=1f1b", "--set", "pipeline.sync=patient")
    text = "The schedule '1f1b' runs only in point_to_point or lock_step, not in patient."
    assert text in changed.ipusim(*words, returncode=2)

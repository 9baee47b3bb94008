"""Every pair of operations of small Plans, swapped: each swap is noticed, and by the right one of three guards.

By default one pair in five is.

If it breaks a dependency (or puts a pass on an IPU without its weights), the
check says so, and with the check off the machine stops because a tensor is
missing. If it does not, training still gives a result, and the order check says
that this is not the compiler's order.
"""

from functools import cache
from itertools import combinations, islice

import numpy as np
import pytest

from ipusim.base.errors import MissingTensorError, PlanError
from ipusim.hardware.build import build_system
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.losses import MeanSquaredError
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.workload import Workload
from ipusim.pipeline.check import check_plan, violations
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.effort import draws_everything, runs_slowest, sampled
from tests.plans import order_violations, price_and_run, with_table

PLANS = [
    ("grouped", PlanShape(mapping=(0, 1), micro_batches=4)),
    ("grouped", PlanShape(mapping=(0, 1, 0), micro_batches=6)),
    ("grouped", PlanShape(mapping=(0, 1), micro_batches=4, recompute=True)),
    ("grouped", PlanShape(mapping=(0, 1, 2), micro_batches=3, training=False)),
    ("interleaved", PlanShape(mapping=(0, 1, 2), micro_batches=3)),
    ("interleaved", PlanShape(mapping=(0, 1), micro_batches=4, recompute=True)),
    ("sequential", PlanShape(mapping=(0, 1, 2), micro_batches=2)),
    ("sharded", PlanShape(mapping=(0, 1, 0), micro_batches=2)),
    ("single", PlanShape(mapping=(0, 0), micro_batches=3)),
]


@cache
def trained(schedule, shape):
    """Return the workload, the program and the system of all plans of one shape, whatever their operations."""
    stages = shape.stages
    network = Network(
        tuple(NamedLayer(f"d{i}", Dense(2, "tanh")) for i in range(stages)), (2,), NamedLayer("mse", MeanSquaredError())
    )
    groups = [[f"d{i}"] for i in range(stages - 1)] + [[f"d{stages - 1}", "mse"]]
    rng = np.random.default_rng(0)
    data = Dataset(rng.normal(size=(16, 2)), rng.normal(size=(16, 2)))
    built = build_stages(network, groups)
    workload = Workload(built, Feed(data, 1), SGD(0.1), "SUM", np.dtype(np.float64))
    profiles = tuple(layer_profile(stage, 1, 8) for stage in built)
    return workload, PipelineProgram(profiles, shape, schedule), build_system("free", mapping=shape.mapping)


def machine(plan):
    """Run the plan with arithmetic, unchecked."""
    workload, program, system = trained(plan.schedule, plan.shape)
    price_and_run(plan, program, system, executor=NumpyExecutor(plan.shape, workload))


@sampled(2)
@pytest.mark.parametrize(("schedule", "shape"), PLANS, ids=str)
def test_every_swap_is_noticed(schedule, shape):
    plan = plan_of(find(schedule), shape)
    machine(plan)
    harmless = stopped = 0
    step = 1 if draws_everything() else 5 if runs_slowest() else 9
    for first, second in islice(combinations(range(len(plan.table)), 2), 0, None, step):
        table = plan.table.copy()
        table[[first, second], 2:] = table[[second, first], 2:]
        swapped = with_table(plan, table)
        found = {violation.rule for violation in violations(swapped)}
        label = f"rows {first} and {second}"
        if found & {"dependency", "placement"}:
            stopped += 1
            with pytest.raises(PlanError):
                check_plan(swapped)
            with pytest.raises(MissingTensorError):
                machine(swapped)
        else:
            harmless += 1
            machine(swapped)
            assert order_violations(swapped), label
    assert stopped > 0, "no swap of this plan breaks a dependency: the test shows nothing"
    assert schedule != "grouped" or not shape.training or harmless > 0

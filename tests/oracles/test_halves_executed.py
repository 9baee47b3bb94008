"""An execution with backward passes in halves, the second ones late, makes the bits of one that runs them whole."""

from __future__ import annotations

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.base.errors import MissingTensorError
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.plan import Edge
from tests.effort import sampled
from tests.oracles.test_concurrent_stages import LAYERS as CONCURRENT
from tests.oracles.test_skip_connections import BACK, THERE_AND_BACK
from tests.oracles.test_skip_connections import SCENARIO as SKIPS
from tests.scenarios import SCENARIOS

TUTORIAL = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()
TRANSFORMER = (SCENARIOS / "transformer_eight_ipus.yaml").read_text()
INSIDE = "pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved"
TWO_BLOCKS = "model.layers.2.repeat=2", "pipeline.splits=[attention0, attention1, norm]", "pipeline.micro_batch_size=2"
RUNS = {
    "tutorial": (TUTORIAL, ("pipeline.micro_batch_size=4",)),
    "sums of another width": (CONCURRENT, ("precision=float16", "pipeline.gradient_accumulation_dtype=float32")),
    "transformer, recomputed": (TRANSFORMER, TWO_BLOCKS),
    "recomputed inside": (CONCURRENT, ("pipeline.allow_recompute=true", INSIDE)),
    "running mean": (SKIPS, ("pipeline.reduction_method=RUNNING_MEAN", "pipeline.allow_recompute=true")),
    "skips": (SKIPS, ()),
    "a value that waits on its IPU": (BACK, THERE_AND_BACK),
    "concurrent stages": (CONCURRENT, ()),
}


def weights(job, halves):
    """Run two executions pass by pass, each copied at once; of ``halves`` all second ones at the end."""
    shape = job.program.shape
    executor = NumpyExecutor(shape, job.workload(0))
    edges = [Edge(step, step + 1) for step in range(shape.steps - 1)]
    columns = (job.plan.ipu, job.plan.kind, job.plan.stage, job.plan.micro_batch)
    for execution in range(2):
        executor.begin(execution)
        late = []
        for ipu, kind, stage, micro_batch in zip(*(column.tolist() for column in columns), strict=True):
            if kind == Pass.FORWARD and stage == 0:
                executor.infeed(ipu, micro_batch)
            split = halves and kind == Pass.BACKWARD
            executor.run(ipu, Pass.INPUT_GRADIENT if split else kind, stage, micro_batch)
            executor.copy(edges)
            if split:
                late.append((ipu, Pass.WEIGHT_GRADIENT, stage, micro_batch))
        for arguments in late:
            executor.run(*arguments)
        for ipu in sorted(set(shape.mapping)):
            executor.update(ipu)
    return executor.weights()


@sampled(2)
@pytest.mark.parametrize("name", RUNS)
def test_halves_leave_the_weights_of_whole_passes(name, tmp_path):
    text, changes = RUNS[name]
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    job = load_job(path, changes)
    whole, halves = (weights(job, apart) for apart in (False, True))
    assert whole.keys() == halves.keys()
    drawn = job.workload(0)
    initial = {
        name: array for stage in range(len(drawn.stages)) for name, array in drawn.initial_parameters(stage).items()
    }
    for key, array in whole.items():
        np.testing.assert_array_equal(halves[key], array, err_msg=key)
    assert any(not np.array_equal(array, initial[key]) for key, array in whole.items())


def test_a_half_that_has_nothing_to_go_on_says_so(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SKIPS)
    job = load_job(path)
    executor = NumpyExecutor(job.program.shape, job.workload(0))
    executor.begin(0)
    with pytest.raises(MissingTensorError, match=r"cannot run I0\.0 in execution 0: the stash of its forward pass"):
        executor.run(0, Pass.INPUT_GRADIENT, 0, 0)
    with pytest.raises(MissingTensorError, match=r"cannot run W0\.0 .*: the result of the other half of its backward"):
        executor.run(0, Pass.WEIGHT_GRADIENT, 0, 0)
    executor.infeed(0, 0)
    executor.run(0, Pass.FORWARD, 0, 0)
    with pytest.raises(MissingTensorError, match=r"cannot run I0\.0 .*: the gradient of its output is missing"):
        executor.run(0, Pass.INPUT_GRADIENT, 0, 0)

"""A half of a backward pass that has nothing to go on says so."""

import pytest

from ipusim.app.scenario import load_job
from ipusim.base.errors import MissingTensorError
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.ops import Pass
from tests.oracles.test_skip_connections import SCENARIO as SKIPS


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

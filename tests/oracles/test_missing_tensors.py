"""A pass or a move that has nothing to go on says which tensor is missing."""

import pytest

from ipusim.base.errors import MissingTensorError
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.pipeline.moves import Way
from ipusim.pipeline.ops import Pass
from tests.oracles.test_moved_activations import TRAINED


@pytest.fixture
def executor(load):
    job = load(TRAINED)
    executor = NumpyExecutor(job.program.shape, job.workload(0))
    executor.begin(0)
    return executor


def test_a_half_of_a_backward_pass_misses_what_came_before(executor):
    with pytest.raises(MissingTensorError, match=r"cannot run I0\.0 in execution 0: the stash of its forward pass"):
        executor.run(0, Pass.INPUT_GRADIENT, 0, 0)
    with pytest.raises(MissingTensorError, match=r"cannot run W0\.0 .*: the result of the other half of its backward"):
        executor.run(0, Pass.WEIGHT_GRADIENT, 0, 0)
    executor.infeed(0, 0)
    executor.run(0, Pass.FORWARD, 0, 0)
    with pytest.raises(MissingTensorError, match=r"cannot run I0\.0 .*: the gradient of its output is missing"):
        executor.run(0, Pass.INPUT_GRADIENT, 0, 0)


def test_a_pass_misses_activations_that_are_away_and_a_move_those_that_are_back(executor):
    executor.infeed(0, 0)
    executor.run(0, Pass.FORWARD, 0, 0)
    executor.move(0, 3, 0, 0, Way.OUT)
    with pytest.raises(MissingTensorError, match="the stash of its forward pass is missing"):
        executor.run(0, Pass.BACKWARD, 0, 0)
    executor.move(0, 3, 0, 0, Way.BACK)
    with pytest.raises(MissingTensorError, match="the moved stash of its forward pass is missing"):
        executor.move(0, 3, 0, 0, Way.BACK)

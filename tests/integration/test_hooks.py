"""Hooks look on while a run goes: what they read is what the run has come to, and they change nothing."""

import itertools

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
from tests.scenarios import SCENARIOS

CHANGES = ("steps=2", "pipeline.repeat_count=3", "evaluate.every=1")


class Reader:
    """Reads the outfeed live, and takes a checkpoint at the beginning of each execution."""

    def __init__(self):
        self.elements, self.checkpoints, self.ended = [], [], 0

    def before(self, session, execution):
        assert execution == len(self.elements)
        self.elements.append(len(session.results[0]))
        self.checkpoints.append(session.variables())

    def after(self, session):
        self.ended += 1
        self.checkpoints.append(session.variables())


@pytest.fixture(scope="module")
def job():
    return load_job(SCENARIOS / "digits_training.yaml", CHANGES)


@pytest.fixture(scope="module")
def watched(job):
    reader = Reader()
    return reader, execute(job, hooks=[reader])


def test_a_hook_reads_results_and_variables_as_they_are_at_each_execution(job, watched):
    reader, run = watched
    count = job.program.shape.micro_batches
    assert reader.elements == [execution * count for execution in range(6)]
    assert reader.ended == 1
    first, last = reader.checkpoints[0], reader.checkpoints[-1]
    for name, array in run.learning.weights.items():
        np.testing.assert_array_equal(last[name], array)
    assert not np.array_equal(first["dense256/W"], last["dense256/W"])
    later = [each["dense256/W"] for each in reader.checkpoints]
    assert all(not np.array_equal(one, other) for one, other in itertools.pairwise(later))


def test_a_hook_changes_nothing_and_stands_beside_the_evaluation(job, watched):
    plain, (_, run) = execute(job), watched
    assert plain.learning.losses == run.learning.losses
    assert plain.learning.evaluations == run.learning.evaluations
    assert [step for step, _ in plain.learning.evaluations] == [1, 2]
    np.testing.assert_array_equal(plain.timeline.end, run.timeline.end)


def test_a_checkpoint_of_replicas_that_store_parts_is_whole():
    parts = (
        "steps=1",
        "pipeline.repeat_count=2",
        "system.name=pod16",
        "system.auto_select_ipus=8",
        "system.enable_remote_buffers=true",
        "pipeline.replicated_weight_sharding=true",
    )
    reader, job = Reader(), load_job(SCENARIOS / "digits_training.yaml", parts)
    run = execute(job, hooks=[reader])
    assert all(np.isfinite(array).all() for each in reader.checkpoints for array in each.values())
    assert run.learning.losses == execute(job).learning.losses


def test_without_arithmetic_a_hook_sees_the_end():
    class End:
        before = None
        seen = 0

        def after(self, session):
            assert not session.computes
            assert session.results == []
            assert session.variables() == {}
            self.seen += 1

    end = End()
    execute(load_job(SCENARIOS / "schedules_four_ipus.yaml"), hooks=[end])
    assert end.seen == 1

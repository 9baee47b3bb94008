"""The points of a sweep come to what runs of them come to."""

import pytest

from ipusim.app.scenario.load import load_job, load_request
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.sweep import sweep
from ipusim.app.sweep.vary import axes_of
from ipusim.base.errors import OutputError
from ipusim.runs.execute import execute
from tests.effort import sampled, slowest
from tests.scenarios import SCENARIOS

COUNT = "pipeline.gradient_accumulation_count"


def swept(request, varied, **options):
    return sweep(request, axes_of(varied), crew=Crew(workers=1), **options)


@sampled(2)
@pytest.mark.parametrize(
    ("name", "varied"),
    [
        ("schedules_four_ipus", {COUNT: [8, 16], "pipeline.schedule": ["grouped", "sequential", "1f1b"]}),
        ("data_parallel_4x4", {COUNT: [8], "system.overhead": ["0 us", "2 us"]}),
        ("memory_by_schedule", {"pipeline.schedule": ["grouped", "interleaved"]}),
        ("transformer_eight_ipus", {"pipeline.micro_batch_size": [2, 4]}),
        ("tutorial_step3_pipelining", {"steps": [1, 3]}),
    ],
)
def test_a_point_comes_to_what_a_run_of_it_comes_to(name, varied):
    found = swept(load_request(SCENARIOS / f"{name}.yaml"), varied)
    for point, outcome in found.finished_points:
        changes = [f"{path}={value}" for path, value in found.changes(point).items()]
        run = execute(load_job(SCENARIOS / f"{name}.yaml", ["numerics=off", *changes]))
        summary = run.summary
        assert outcome.message == ""
        assert outcome.makespan_cycles == summary.makespan_cycles
        assert outcome.makespan_s == summary.seconds(summary.makespan_cycles)
        assert outcome.weight_update_period_s == summary.throughput.weight_update_period_s
        assert outcome.samples_per_s == summary.throughput.samples_per_s
        assert outcome.bubble == summary.bubble.idle_fraction
        assert outcome.utilisation == summary.utilisation
        assert outcome.fits is run.memory.fits is run.summary.memory.fits
        assert outcome.peak_bytes == (run.memory.fullest.bytes if run.describes_memory else None)
        assert outcome.loss is None


def test_losses_are_those_of_the_run():
    path = SCENARIOS / "digits_training.yaml"
    found = swept(load_request(path, ["steps=2"]), {"optimizer.learning_rate": [0.01, 0.1]}, losses=True)
    for (rate,), outcome in found.finished_points:
        learnt = execute(load_job(path, ["steps=2", f"optimizer.learning_rate={rate}"])).summary.learning
        assert outcome.loss == learnt.mean_loss_by_step[-1]
        assert outcome.accuracy == learnt.evaluations[-1].accuracy
    assert found.outcomes[0].loss != found.outcomes[1].loss


@slowest
@pytest.mark.filterwarnings("ignore")  # of the cluster itself
def test_a_cluster_that_closes_during_a_sweep_is_one_message():
    distributed = pytest.importorskip("distributed")
    request = load_request(SCENARIOS / "schedules_four_ipus.yaml")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        ended = Crew(None, "dask", address).run(request, {number: {"steps": 1 + number} for number in range(3000)})
        assert next(ended)[1].has_run
        cluster.close()
        with pytest.raises(OutputError, match=f"^{address}: the Dask cluster ended before the sweep did: [A-Za-z]+$"):
            list(ended)

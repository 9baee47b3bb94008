"""The programs of scenarios/python/ as scenarios: the YAML that is written of each takes the time that it took."""

import pytest

from ipusim.app.scenario import load_job
from ipusim.app.scenario.write import scenario_text
from ipusim.ipu.programs.as_scenario import as_scenario
from ipusim.runs.session import Session
from ipusim.timeline.timeline import Span
from tests.effort import sampled, slowest
from tests.programs import PROGRAMS, once

#: Programs that run nothing on IPUs, and those of which no scenario can be: whose stages call collectives, look rows up
#: on the host or have it compute, or whose hosts do something together between session runs.
WITHOUT = {
    "dataset_benchmark",
    "host_embedding",
    "outfeed_iteration",  # which is outfeed_example, but for how the host reads its queue
    "outside_compilation",
    "replicas",
    "several_hosts",
    "soft_plus",
    "variables_on_host",
}
RECORDED = [path for path in sorted(PROGRAMS.glob("*.py")) if path.stem not in WITHOUT]
#: Programs that take long, also in tests of their own.
LONG = (
    *("training", "step5_estimator", "sequences", "keras_functional"),
    *("evaluation", "concurrent_stages"),
)
#: What makes a program shorter, or other than it is by itself: as it runs in other tests already, where there are such.
ARGUMENTS = {
    "keras_saving": ["--epochs", "2"],
    "keras_sequential": ["--epochs", "5"],
    "keras_single_ipu": ["--epochs", "2"],
    "step1_single_ipu": ["--epochs", "1"],
    "step2_sharding": ["--epochs", "1"],
    "step3_pipelining": ["--epochs", "1", "--schedule", "Interleaved"],
    "step4_configurable_stages": ["--epochs", "1", "--splits", "dense128", "dense64", "dense32"],
    "step5_estimator": ["--epochs", "2", "--model-dir", "{folder}/model"],
}
#: Programs whose stages are layers and nothing else where they train.
OF_LAYERS = {
    *("estimator_on_hosts", "outfeed_example", "training"),
    *("step1_single_ipu", "step2_sharding", "step3_pipelining", "step4_configurable_stages", "step5_estimator"),
}


@sampled(2)
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[slowest] * (path.stem in LONG), id=path.stem) for path in RECORDED]
)
def test_its_scenario_takes_the_time_of_the_program(path, tmp_path):
    programs = once(path.stem, *(each.format(folder=tmp_path) for each in ARGUMENTS.get(path.stem, []))).recorded
    assert programs
    for each in programs:
        said = as_scenario(each.as_job())
        file = tmp_path / "said.yaml"
        file.write_text(scenario_text(said.request, tmp_path, said.comments), encoding="utf-8")
        assert said.comments
        assert all(f"# {line}\n" in file.read_text(encoding="utf-8") for line in said.comments)
        job = load_job(file, ["numerics=off"])
        assert job.steps == each.steps
        ran, twin = each.run(each.job.request).timeline.expanded(), Session(job).run(job.executions).expanded()
        for name in Span._fields:
            assert getattr(twin, name).tolist() == getattr(ran, name).tolist(), name
        is_of_layers = path.stem in OF_LAYERS and each.job.plan.shape.training
        assert (said.request.options.model is not None) == is_of_layers

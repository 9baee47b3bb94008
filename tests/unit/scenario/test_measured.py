"""A CSV file of measured stages in the place of a scenario, and as the stages of one."""

import pytest

from ipusim.app.scenario import ScenarioError, load_job, load_request
from ipusim.runs.execute import execute
from ipusim.runs.request.profile import read_stages
from ipusim.schedules import registry
from tests.effort import slowest
from tests.scenarios import SCENARIOS

TIMES = """\
stage,forward [ms],backward_ms,update,bytes [KiB],stash_bytes
encoder,1.5,3.25,0.1 ms,64,1 MB
1,2.0,4,,32,
head,1,,7,,
"""


OWN = "times.csv"


def test_a_table_of_stages_is_a_scenario_whose_plan_begins_on_free(own):
    job = load_job(own(TIMES))
    first, second, last = job.program.stages
    assert (job.name, str(job.system)) == ("times", "free: 4 x GC200 at 1.33 GHz, selection order SNAKE: 0 1 3 2")
    assert job.program.shape.mapping == (0, 1, 2)
    assert (job.program.schedule, job.program.shape.micro_batches) == ("grouped", 12)
    assert [each.name for each in job.program.stages] == ["encoder", "stage1", "head"]
    assert (first.forward, first.backward, first.update) == (1_995_000, 4_322_500, 133_000)
    assert (second.forward, second.backward, second.update, last.update) == (2_660_000, 5_320_000, 0, 7)
    assert (first.output_bytes, first.stash_bytes, second.output_bytes) == (65_536, 10**6, 32_768)


def test_the_gradient_of_a_stages_input_has_the_bytes_that_came_to_it_unless_the_file_says(own):
    sizes = [stage.gradient_bytes for stage in read_stages(own(TIMES), 10**9)]
    assert sizes == [0, 65_536, 0]  # the last has no backward pass
    text = "stage,forward,backward,bytes,label bytes,gradient bytes\na,1,1,9,4,3\nb,1,1,5,,\nc,1,1,,,0\n"
    assert [stage.gradient_bytes for stage in read_stages(own(text), 10**9)] == [3, 5, 0]


@pytest.mark.parametrize("stages", [2, pytest.param(3, marks=slowest), 5, pytest.param(8, marks=slowest)])
def test_its_count_is_legal_under_every_schedule_of_the_house_and_the_least_that_is_for_grouped(own, stages):
    path = own("stage,forward,backward\n" + "".join(f"{stage},1,2\n" for stage in range(stages)))
    job = load_job(path)
    shape, count = job.program.shape, job.program.shape.count
    multiple = registry.find("grouped").multiple(shape)
    assert [each for each in range(4 * stages, count + 1) if each % multiple == 0] == [count]
    refused = {}
    for name in sorted(registry.HOUSE):
        try:
            assert load_job(path, [f"pipeline.schedule={name}"]).program.shape.count == count
        except ScenarioError as error:
            refused[name] = [problem.key for problem in error.problems]
    assert {key for keys in refused.values() for key in keys} <= {"pipeline.schedule"}  # never for the count
    assert not refused.keys() & {"grouped", "interleaved", "sequential", "gpipe", "1f1b", "zero_bubble_h1"}


def test_a_table_without_units_says_that_it_is_taken_for_cycles(own):
    words = "times.csv, 3 stages as measured. Machine"
    assert load_request(own(TIMES)).description.startswith(words)
    request = load_request(own("stage,forward,backward\na,12,25\nb,13,26\n"))
    assert request.description.startswith(
        "times.csv, 2 stages as measured, in cycles of the tile clock, because the columns have no unit."
    )


def test_one_stage_is_a_single_one(own):
    job = load_job(own("stage,forward,backward\na,10,20\n"))
    assert (job.program.schedule, execute(job).summary.makespan_cycles) == ("single", 4 * 30)


def test_what_it_begins_with_is_a_users_to_change_and_a_clock_reads_times_anew(own):
    path = own(TIMES)
    job = load_job(path, ["system.name=bow2000", "system.clock=1 GHz", "pipeline.stages.head.forward=5 us"])
    assert [stage.forward for stage in job.program.stages] == [1_500_000, 2_000_000, 5000]
    with pytest.raises(ScenarioError) as caught:
        load_job(path, ["system.name=bow", "pipeline.gradient_accumulation_count=13"])
    assert str(caught.value).startswith("--set system.name: got 'bow'")
    with pytest.raises(ScenarioError) as caught:
        load_job(path, ["pipeline.gradient_accumulation_count=13"])
    assert str(caught.value).endswith("The nearest counts of grouped: 12 or 18.")


def test_a_scenario_that_names_the_table_runs_as_the_table_does(own, tmp_path):
    path = own(TIMES)
    (tmp_path / "named.yaml").write_text(
        "system: {name: free}\npipeline: {gradient_accumulation_count: 12, stages: times.csv}\n"
    )
    alone, named = load_job(path), load_job(tmp_path / "named.yaml")
    assert (named.program.stages, named.plan, named.costs) == (alone.program.stages, alone.plan, alone.costs)
    slow = load_job(tmp_path / "named.yaml", ["system.clock=1 GHz", "system.name=m2000"])
    assert slow.program.stages[0].forward == 1_500_000
    assert load_request(tmp_path / "named.yaml").files() == ("times.csv",)


def test_of_many_rows_the_medians_count_and_between_two_their_mean(own):
    rows = "a,1 ms,7,9 KB\nb,5,,\na,4 ms,8,\na,2.5 ms,,9 KB\na,3 ms,,11 KB\nb,6,,\n"
    path = own("stage,forward,update,bytes\n" + rows)
    first, second = read_stages(path, 10**9)
    assert (first.forward, first.update, first.output_bytes) == (2_750_000, 8, 9000)  # 7.5 cycles round up
    assert second.forward == 6
    assert load_request(path).to_dict()["pipeline"]["stages"][0]["forward"] == "2750 us"


def test_halves_of_a_backward_pass_are_a_whole_one_where_nothing_else_says(own, tmp_path):
    text = "stage,forward,backward,backward input,backward weights\na,1,,2.5 us,1.25 us\nb,1,9,2,3\nc,1,9,2,\n"
    found = read_stages(own(text), 10**9)
    assert [stage.whole_backward for stage in found] == [3750, 9, 9]
    text = "stage,forward,backward input,backward weights\nd,1,2,3\ne,1,4,5\n"
    own(text, "halves.csv")
    (tmp_path / "layers.yaml").write_text(
        "system: {name: m2000}\n"
        "data: {type: synthetic, shape: [4], classes: 3, samples: 64}\n"
        "model:\n  layers:\n    - {name: d, type: dense, units: 4}\n    - {name: e, type: dense, units: 3}\n"
        "    - {name: cel, type: softmax_cross_entropy}\n"
        "pipeline: {splits: [e], cycles: halves.csv, gradient_accumulation_count: 4}\n"
        "optimizer: {type: sgd, learning_rate: 0.1}\n"
    )
    assert [stage.backward for stage in load_job(tmp_path / "layers.yaml").program.stages] == [5, 9]


def test_the_table_beside_a_model_is_refused_with_the_key_that_takes_its_times(own, tmp_path):
    own(TIMES)
    (tmp_path / "layers.yaml").write_text((SCENARIOS / "tutorial_step3_pipelining.yaml").read_text())
    with pytest.raises(ScenarioError) as caught:
        load_job(tmp_path / "layers.yaml", ["pipeline.stages=times.csv", "pipeline.splits=null"])
    text = "expected no model, because the stages have only costs, got a model: give the cycles of its stages"
    assert text in [problem.text for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "stage,forward [MB],bytes [ms]\na,1,2\n",
            [
                "1: column forward [MB]: expected a unit out of cycles, cycle, s, ms, us, µs, ns, got 'MB'; did you "
                "mean ms?",
                "1: column bytes [ms]: expected a unit out of B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB, got 'ms'; did "
                "you mean MB?",
            ],
        ),
        (
            'stage,forward [ms],bytes\na b,"1,5",1.5\nb,2,"1,5 KiB"\n',
            [
                "2: column forward [ms]: expected cycles from 0 to 100000000000, or a time such as 1.2 ms, got "
                "'1,5 ms'; did you mean 1.5 ms?",
                "2: column stage: expected a name of at most 64 letters, digits, _ and -, the first one a letter or "
                "_, got 'a b'",
                "2: column bytes: expected a whole number of bytes, got '1.5'",
                "3: column bytes: expected a number of bytes such as '624 KiB', got '1,5 KiB'; did you mean 1.5 KiB?",
            ],
        ),
    ],
)
def test_each_problem_of_the_table_stands_with_its_line(own, text, lines, refused):
    path = own(text)
    refused(ScenarioError, "\n".join([f"{path}:{line}" for line in lines]), lambda: load_job(path))
    named = own("system: {name: free}\npipeline: {gradient_accumulation_count: 4, stages: times.csv}\n", "s.yaml")
    with pytest.raises(ScenarioError) as placed:
        load_job(named)
    assert str(placed.value).splitlines() == [f"{named}:2:52: pipeline.stages: times.csv:{line}" for line in lines]


def test_a_table_that_is_not_there_is_told_the_nearest_file(own, tmp_path, monkeypatch, refused):
    own(TIMES)
    monkeypatch.chdir(tmp_path)
    line = "time.csv: expected a file of measured stages, got no such file; did you mean times.csv?"
    refused(ScenarioError, line, lambda: load_job("time.csv"))

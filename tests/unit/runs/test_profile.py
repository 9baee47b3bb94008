"""Measured stages from CSV: cycles of numbers and of times, in the place of those of a list, and what is wrong told."""

import re

import pytest

from ipusim.app.scenario import ScenarioError
from ipusim.base.errors import FileError
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.model_spec import StageCyclesSpec
from ipusim.runs.request.profile import read_profile
from ipusim.runs.request.request import Request
from tests.scenarios import SCENARIOS

#: Two stages, 1.325 GHz.
TUTORIAL = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()
CYCLES = "expected cycles from 0 to 100000000000, or a time such as 1.2 ms, got"
COLUMNS = (
    "stage, forward, backward, update, backward_input, backward_weights, output_bytes, label_bytes, gradient_bytes, "
    "parameter_bytes, state_bytes, accumulator_bytes, input_bytes, stash_bytes, rest_bytes, source"
)


OWN = "profile.csv"


def test_bytes_are_left_alone_beside_a_model(own):
    first, second = read_profile(own("stage,forward,bytes [KiB],stash_bytes\na,1,1.5,few\nb,2,,\n"), 10**9)
    assert (first.cycles, second.cycles) == (StageCyclesSpec(forward=1), StageCyclesSpec(forward=2))


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "stage,forward,bakward\na,1,2\n",
            [f"profile.csv:1: expected columns out of {COLUMNS}, got 'bakward'; did you mean backward?"],
        ),
        ("stage,forward,update,Weight Update\na,1,2,3\n", ["profile.csv:1: column 'update' appears twice"]),
        (
            "stage [us],forward [min]\na,1\n",
            [
                "profile.csv:1: column stage [us]: expected no unit, got 'us'",
                "profile.csv:1: column forward [min]: expected a unit out of cycles, cycle, s, ms, us, µs, ns, got "
                "'min'",
            ],
        ),
        ("stage,forward\n", ["profile.csv: expected from 1 to 256 stages below the titles, got 0"]),
        (
            "stage,forward\n" + "".join(f"{row},1\n" for row in range(257)),
            ["profile.csv: expected from 1 to 256 stages below the titles, got 257"],
        ),
        (
            "stage,forward,backward [us]\n0,1.5,-1\na,,2 ms\n\na,3 min,1\n,1,1,9\n1,1e12,4\n",
            [
                "profile.csv:2: column forward: expected a whole number of cycles, got '1.5': a time has its unit, as "
                "1.5 ms, or forward [ms] as the title",
                f"profile.csv:2: column backward [us]: {CYCLES} '-1 us'",
                f"profile.csv:3: column forward: {CYCLES} nothing "
                "(cycles of the tile clock, or time, of the forward pass of one micro-batch)",
                "profile.csv:3: column backward [us]: expected a number without a unit, as the title has the unit us, "
                "got '2 ms'",
                f"profile.csv:5: column forward: {CYCLES} '3 min'",
                "profile.csv:6: column stage: expected 2, or a name, got nothing",
                "profile.csv:6: expected 3 cells, one for each column, got 4; if 1,1 is a number with a "
                "decimal comma, write 1.1",
                "profile.csv:7: column stage: expected 2, because stages are counted from 0 in the order of the rows, "
                "got 1: the row of stage 2 is missing",
                f"profile.csv:7: column forward: {CYCLES} '1e12'",
            ],
        ),
    ],
)
def test_every_problem_of_a_file_is_told_at_once_with_line_and_column(own, load, text, messages, refused):
    path = own(text)
    refused(FileError, "\n".join(messages), lambda: read_profile(path, 10**9, "profile.csv"))
    with pytest.raises(ScenarioError) as placed:
        load(TUTORIAL, "pipeline.cycles=profile.csv")
    assert str(placed.value).splitlines() == [f"--set pipeline.cycles: {message}" for message in messages]


def test_a_scenario_takes_the_file_beside_it_in_the_place_of_a_list(load, own):
    own("stage,forward [us],backward,update\nstage0,2.5,4000,1 ms\nwhatever,1,2,3\n")
    text = TUTORIAL.replace("pipeline:\n", "pipeline:\n  cycles: profile.csv\n")
    listed = "{forward: 2.5 us, backward: 4000, update: 1 ms}, {forward: 1 us, backward: 2, update: 3}"
    from_file, from_list = load(text), load(TUTORIAL, f"pipeline.cycles=[{listed}]")
    assert (from_file.program, from_file.costs) == (from_list.program, from_list.costs)
    first, second = load(text, "system.clock=1 GHz").program.stages
    assert (first.forward, first.backward, first.update) == (2500, 4000, 1_000_000)
    assert (second.forward, second.backward, second.update) == (1000, 2, 3)
    free = load(text, "system.name=free").program.stages
    assert free[0].forward == 3325, "a time on the machine free is one of its GC200"


def test_the_dict_door_takes_it_from_its_folder_and_another_clock_reads_it_anew(tmp_path, own):
    own("stage,forward\n0,1 us\n1,2 us\n")
    layers = [{"name": "a", "type": "dense", "units": 4}, {"name": "b", "type": "dense", "units": 4}]
    request = Request.from_dict(
        {
            "system": {"name": "m2000"},
            "data": {"type": "synthetic_targets", "shape": [4], "target_shape": [4], "samples": 16},
            "model": {"layers": layers},
            "pipeline": {"splits": ["b"], "cycles": (tmp_path / "profile.csv").name, "gradient_accumulation_count": 4},
        },
        folder=tmp_path,
    )
    assert [stage.forward for stage in assemble(request).program.stages] == [1330, 2660]
    slower = assemble(request.replace({"system.clock": "1 GHz"}))
    assert [stage.forward for stage in slower.program.stages] == [1000, 2000]
    own("stage,forward\nstage1,1\nstage0,2\n")
    with pytest.raises(RequestError) as caught:
        assemble(request)
    assert str(caught.value).splitlines() == [
        f"pipeline.cycles: profile.csv:{line}: column stage: expected '{right}' in this row, got '{wrong}': list the "
        "stages in order"
        for line, right, wrong in ((2, "stage0", "stage1"), (3, "stage1", "stage0"))
    ]


@pytest.mark.parametrize(
    ("cycles", "message"),
    [
        ("none.csv", "expected a file that can be read, got {}/none.csv: No such file or directory"),
        (".csv", "expected a CSV file with a row for each stage, such as profile.csv, got '.csv'"),
        ("profile.txt", "expected a CSV file with a row for each stage, such as profile.csv, got 'profile.txt'"),
        (
            "profile.csv",
            "profile.csv: expected a row for each of the 2 stages, got 1: none for stage 1 (dense32, logits, cel)",
        ),
        ("5", "or a CSV file with a row for each stage, such as profile.csv"),
        ("folder.csv", "expected a file that can be read, got {}/folder.csv: expected a file, got a folder"),
        ("loop.csv", "expected a file that can be read, got {}/loop.csv: Too many levels of symbolic links"),
    ],
)
def test_a_name_that_leads_to_no_profile_is_refused(load, own, tmp_path, cycles, message):
    own("stage,forward\na,1\n")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    with pytest.raises(ScenarioError, match=f"^--set pipeline.cycles: .*{re.escape(message.format(tmp_path))}$"):
        load(TUTORIAL, f"pipeline.cycles={cycles}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,'5,5',1,", "3: column forward [us]: {} '5,5 us'; did you mean 5.5 us?"),
        (
            "a,5 usec,1,",
            "3: column forward [us]: expected a number without a unit, as the title has the unit us, got '5 usec'",
        ),
        (
            "a,9,3,5",
            "3: column source: expected the origin of the measurement, got '5'; if 3,5 is a number with a decimal "
            "comma, write 3.5",
        ),
        (
            "a,5,5,3,x",
            "3: expected 4 cells, one for each column, got 5; if 5,5 is a number with a decimal comma, write 5.5",
        ),
    ],
)
def test_decimal_commas_and_units_below_a_unit_say_what_to_write(own, text, message):
    path = own("stage,forward [us],backward,source\nb,1,2,\n" + text.replace("'", '"'))
    with pytest.raises(FileError) as caught:
        read_profile(path, 10**9, "p.csv")
    assert str(caught.value).splitlines()[-1] == f"p.csv:{message.format(CYCLES)}"


@pytest.mark.parametrize(
    ("stages", "got"),
    [
        ("dense1 dense2 logits", "got 3: none for stage 2 (dense3)"),
        ("a dense3", "got 2: none for stage 2 (dense3) and stage 3 (logits, cel)"),
        ("0 1 2 3 4", "got 5: p.csv:6 belongs to no stage"),
        ("dense1 dense2 other dense3 logits", "got 5: p.csv:4 belongs to no stage"),
    ],
)
def test_a_row_too_few_says_which_stage_has_none_and_one_too_many_which_it_is(load, own, stages, got):
    path = own("stage,forward\n" + "".join(f"{stage},1\n" for stage in stages.split()))
    path.rename(path.with_name("p.csv"))
    with pytest.raises(ScenarioError) as caught:
        load((SCENARIOS / "measured_stages.yaml").read_text(), "pipeline.cycles=p.csv")
    text = f"--set pipeline.cycles: p.csv: expected a row for each of the 4 stages, {got}"
    assert text in str(caught.value).splitlines()


def test_a_file_beside_stages_that_give_their_own_is_refused(load, own):
    own("stage,forward\na,1\n")
    text = (SCENARIOS / "schedules_four_ipus.yaml").read_text()
    with pytest.raises(ScenarioError, match="expected no cycles with stages that have cycles, got both"):
        load(text, "pipeline.cycles=profile.csv")

"""What a scenario may give of stages: cycles of halves of backward passes, bytes between them, and of labels."""

import pytest

from ipusim.app.scenario import ScenarioError
from ipusim.pipeline.ops import Pass
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.scenarios import SCENARIOS

TIMED = """
system: {name: free, auto_select_ipus: 2}
pipeline:
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 10, backward: 21, stash_bytes: 5 B}
    - {name: b, forward: 10, backward: 20, backward_input: 13, backward_weights: 14, stash_bytes: 5 B, rest_bytes: 0 B}
"""
TUTORIAL = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()


def test_stages_known_by_their_cost(load):
    a, b = load(TIMED).program.stages
    assert (a.halves, a.between_halves_bytes) == ((11, 10), 5)
    assert (b.halves, b.between_halves_bytes) == ((13, 14), 0)
    assert (a.backward, b.backward) == (21, 20)


@pytest.mark.parametrize(("given", "halves"), [("", (10, 10)), (", backward_weights: 4", (16, 4))])
def test_given_cycles_take_the_place_of_counted_work(load, given, halves):
    counted = load(TUTORIAL).program.stages
    assert all(isinstance(half, tuple) for each in counted for half in each.halves)
    cycles = f"pipeline.cycles=[{{forward: 7, backward: 20{given}}}, {{forward: 7, backward: 20{given}}}]"
    assert [each.halves for each in load(TUTORIAL, cycles).program.stages] == [halves] * 2


def test_inference_has_no_halves(load):
    text = TIMED.replace("backward: 21, ", "").replace("backward: 20, ", "")
    assert [each.halves for each in load(text, "training=false").program.stages] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            "backward_input: 5",
            "expected backward or backward_weights in addition to backward_input, got only backward_input",
        ),
        (
            "backward_weights: 5",
            "expected backward or backward_input in addition to backward_weights, got only backward_weights",
        ),
        ("backward: 9, backward_input: 10", "expected backward_input of at most backward, 9 cycles, got 10"),
        ("backward: 9, backward_weights: 10", "expected backward_weights of at most backward, 9 cycles, got 10"),
    ],
)
def test_one_half_is_refused_without_the_whole_and_above_it(load, given, text):
    with pytest.raises(ScenarioError) as caught:
        load(TIMED.replace("backward: 21", given))
    (line,) = str(caught.value).splitlines()
    assert "pipeline.stages.0" in line or "pipeline.stages.a" in line
    assert line.endswith(text)


@pytest.mark.parametrize(
    ("half", "halves"), [("backward_input", (5, 16)), ("backward_weights", (16, 5)), ("", (11, 10))]
)
def test_the_other_half_of_a_measured_row_is_the_rest(load, tmp_path, half, halves):
    title, cycles = (f",{half.replace('_', ' ')}", ",5") if half else ("", "")
    (tmp_path / "m.csv").write_text(f"stage,forward,backward{title}\na,10,21{cycles}\nb,10,21{cycles}\n")
    text = TIMED[: TIMED.index("  stages:")] + "  stages: m.csv\n"
    assert [stage.halves for stage in load(text).program.stages] == [halves, halves]
    if half:
        (tmp_path / "m.csv").write_text(f"stage,forward{title}\na,10{cycles}\nb,10{cycles}\n")
        with pytest.raises(ScenarioError, match=f"m.csv:2.*got only {half}"):
            load(text)


def asked(labels):
    """Return a request of four stages, of which the second and the third run at the same time."""
    last = {"name": "d", "forward": 10, "backward": 20, "gradient_bytes": 3000}
    beside = {"forward": 10, "backward": 20, "output_bytes": 1000}
    return Request.from_dict(
        {
            "system": {"name": "m2000"},
            "pipeline": {
                "stages": [
                    {"name": "a", "forward": 10, "backward": 20, "output_bytes": 500, "label_bytes": 0},
                    [{"name": "b", **beside}, {"name": "c", **beside, "label_bytes": labels}],
                    last,
                ],
                "device_mapping": [0, [1, 2], 3],
                "gradient_accumulation_count": 12,
            },
        }
    )


@pytest.mark.parametrize(("labels", "parts"), [(0, (1500, 1500)), (500, (2000, 1000)), (1000, (3000, 0))])
def test_gradients_go_where_what_learns_came_from(labels, parts):
    job = assemble(asked(labels))
    assert (job.program.sent_bytes(3, 1), job.program.sent_bytes(3, 2)) == parts
    assert (job.program.sent_bytes(2, 3), job.costs.passes[Pass.FORWARD, 2]) == (1000, 10)


def test_more_labels_than_leave_the_stage_are_refused():
    with pytest.raises(RequestError) as caught:
        assemble(asked(1001))
    (problem,) = caught.value.problems
    assert problem.path == ("pipeline", "stages", 1, 1, "label_bytes")
    assert problem.text == "expected at most the output_bytes, 1000, got 1001"

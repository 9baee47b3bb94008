"""Layers that repeat: the same as layers written out under numbered names, refused where they are written."""

import pytest

import ipusim
from ipusim.app.scenario import ScenarioError, load_job
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from tests.scenarios import job_from

TEXT = """\
system: {name: m2000}
data: {type: synthetic, shape: [5], classes: 3, samples: 48}
model:
  layers:
    - {name: first, type: dense, units: 4}
    - repeat: 3
      layers:
        - {name: hidden, type: dense, units: 4, activation: tanh}
        - repeat: 2
          layers:
            - {name: conv2, type: dense, units: 4}
            - {name: again, type: add, from: hidden}
        - {name: sum, type: add, from: first}
    - {name: scores, type: dense, units: 3}
    - {name: far, type: softmax_cross_entropy}
pipeline: {splits: [conv2_1_0, hidden2], micro_batch_size: 2, gradient_accumulation_count: 6}
optimizer: {type: sgd, learning_rate: 0.5}
"""


def data(layers, **pipeline):
    return {
        "system": {"name": "m2000"},
        "data": {"type": "synthetic", "shape": [5], "classes": 3, "samples": 48},
        "model": {"layers": layers},
        "pipeline": {"micro_batch_size": 2, "gradient_accumulation_count": 6, **pipeline},
        "optimizer": {"type": "sgd", "learning_rate": 0.5},
    }


def dense(name, **more):
    return {"name": name, "type": "dense", "units": 4, **more}


def written_out():
    layers = [dense("first")]
    for time in range(3):
        hidden = f"hidden{time}"
        layers.append(dense(hidden, activation="tanh"))
        for inner in range(2):
            layers += [
                dense(f"conv2_{time}_{inner}"),
                {"name": f"again{time}_{inner}", "type": "add", "from": hidden},
            ]
        layers.append({"name": f"sum{time}", "type": "add", "from": "first"})
    return [*layers, dense("scores", units=3), {"name": "far", "type": "softmax_cross_entropy"}]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    return path


def problems(file, *overrides):
    with pytest.raises(ScenarioError) as caught:
        load_job(file, overrides)
    return [line.removeprefix(f"{file}:") for line in str(caught.value).splitlines()]


def test_layers_that_repeat_are_those_written_out(file):
    short = load_job(file)
    long = job_from(data(written_out(), splits=["conv2_1_0", "hidden2"]))
    stages = short.workload(0).stages
    assert stages == long.workload(0).stages
    assert stages[1].layers == ("conv2_1_0", "again1_0", "conv2_1_1", "again1_1", "sum1")
    assert short.program.stages == long.program.stages


def test_a_dict_takes_them_and_their_count_is_varied_by_its_name():
    layers = [{"repeat": 4, "layers": (dense("block"),)}, dense("scores", units=3)]
    asked = data(
        [*layers, {"name": "far", "type": "softmax_cross_entropy"}], splits=["block3"], gradient_accumulation_count=8
    )
    weights = ipusim.run(asked).weights
    assert {name.partition("/")[0] for name in weights} == {*(f"block{n}" for n in range(4)), "scores"}
    varied = Request.from_dict(asked).replace({"model.layers.0.repeat": 5})
    assert [entry.name for entry in varied.options.model.layers[1:]] == ["scores", "far"]
    assert varied.options.model.layers[0].repeat == 5


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("model.layers.1.repeat=0", "model.layers.1.repeat: expected a whole number from 1 to 1024, got 0"),
        (
            "model.layers.1.layers.hidden.unit=4",
            "model.layers.1.layers.0.unit: got 'unit'; did you mean units? Expected one of the keys name, trainable, "
            "type, units, activation, use_bias, serialization_factor, serialization_dimension",
        ),
        ("model.layers.1.name=x", "model.layers.1.name: expected one of the keys repeat, layers, got 'name'"),
        (
            "model.layers.1.layers=[]",
            "model.layers.1.layers: expected a list of 1 to 1024 items, each a layer, such as {name: hidden, type: "
            "dense, units: 64}, got []",
        ),
    ],
)
def test_wrong_keys_and_values_are_told_as_everywhere(file, override, problem):
    name = override.partition("=")[0]
    (line,) = problems(file, override)
    assert line == f"--set {name}: {problem.removeprefix(f'{name}: ')}"


@pytest.mark.parametrize(
    ("wrong", "right", "problem"),
    [
        (
            "repeat: 2",
            "repeat: 1024",
            "6:15: model.layers.1.repeat: expected a model of at most 1024 layers, got 6151 up to here: repeat fewer, "
            "or less often",
        ),
        (
            "name: conv2, type: dense, units: 4",
            "name: conv2, type: dense, units: 5",
            "12:46: model.layers.1.layers.1.layers.1.from: expected an earlier layer with an output of the shape [5], "
            "got the output of hidden0 with [4]",
        ),
        (
            "type: dense, units: 4}\n            - ",
            "type: conv2d, filters: 2, kernel_size: [1, 1]}\n            - ",
            "11:15: model.layers.1.layers.1.layers.0: conv2_0_0 does not fit an input of shape [4]: expected images of "
            "height, width and channels, got an input of shape (4,)",
        ),
        (
            "name: scores",
            "name: hidden2",
            "14:14: model.layers.2.name: expected a different name for each layer, got 'hidden2' again",
        ),
        (
            "name: sum,",
            f"name: s{'0' * 62},",
            "13:18: model.layers.1.layers.2.name: expected a name of at most 64 characters with its number, got "
            f"'s{'0' * 62}_0'",
        ),
        (
            "name: sum, type: add, from: first",
            "name: sum, type: mean_squared_error",
            "13:11: model.layers.1.layers.2: expected the loss as the last layer, got layers after 'sum2'",
        ),
    ],
)
def test_problems_stand_once_where_the_layer_is_written(file, wrong, right, problem):
    assert TEXT.count(wrong) == 1
    file.write_text(TEXT.replace(wrong, right))
    assert problems(file) == [problem]


def test_a_split_must_name_a_numbered_layer(file):
    (line,) = problems(file, "pipeline.splits=[hidden]")
    assert line.startswith("--set pipeline.splits: pipeline.splits.0: expected the name of a layer, got 'hidden'; did ")
    assert "did you mean hidden0, hidden1 or hidden2?" in line
    listed = line.partition("(the layers are ")[2].partition(")")[0].split(", ")
    assert {"hidden0", "hidden1", "hidden2", "again0_0"} <= {*listed}


def test_as_many_layers_as_there_may_be():
    layers = [{"repeat": 511, "layers": [dense("a"), dense("b")]}, dense("c"), {"name": "d", "type": "flatten"}]
    assert len(job_from(data(layers, schedule="single") | {"optimizer": None}).workload(0).stages[0].layers) == 1024
    with pytest.raises(RequestError, match=r"^model\.layers\.3: expected a model of at most 1024 layers, got 1"):
        job_from(data([*layers, {"name": "e", "type": "flatten"}]))

"""The layers, optimizers and tokens of scenarios: what each key becomes, and what is said when it is wrong."""

import dataclasses
import inspect
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from ipusim.api import Request, assemble, execute
from ipusim.app.scenario import ScenarioError, load_job
from ipusim.base.near_names import list_names
from ipusim.model.functions.python_layer import PythonLayer
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.convolution import Conv2D
from ipusim.model.layers.network import NamedLayer
from ipusim.model.layers.normalisation import LayerNorm
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.table import rows
from ipusim.model.learning.accumulating_optimizers import Adadelta, Adagrad, Ftrl
from ipusim.model.learning.adaptive_optimizers import LAMB, Adam, RMSProp
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import SGD
from ipusim.runs.request.kinds import OneOfKinds
from ipusim.runs.request.layer_spec import InnerLayerSpec, LayerSpec, PythonSpec, RepeatSpec
from tests.schedules import INNER_LAYERS

TOKENS = """\
system: {name: m2000}
data: {type: synthetic_tokens, length: 6, vocabulary: 8, samples: 40}
model:
  layers:
    - {name: tokens, type: embedding, input_dim: 8, output_dim: 4}
    - name: block
      type: residual
      layers:
        - {name: norm, type: layer_norm}
        - {name: heads, type: multi_head_attention, num_heads: 2}
    - {name: logits, type: dense, units: 8}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [block], micro_batch_size: 2, gradient_accumulation_count: 4}
optimizer: {type: sgd, learning_rate: 0.1}
"""

IMAGES = """\
system: {name: m2000}
data: {type: synthetic, shape: [6, 6, 2], classes: 3, samples: 40}
model:
  layers:
    - {name: conv, type: conv2d, filters: 4, kernel_size: [3, 3]}
    - {name: flatten, type: flatten}
    - {name: logits, type: dense, units: 3}
    - {name: cel, type: softmax_cross_entropy}
pipeline: {splits: [flatten], micro_batch_size: 2, gradient_accumulation_count: 4}
optimizer: {type: sgd, learning_rate: 0.1}
"""


def specs(entry):
    (kinds,) = (mark for mark in get_args(entry) if isinstance(mark, OneOfKinds))
    return {made() for made in kinds.kinds().values()}


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("f.py").write_text("def double(x): return 2.0 * x\n")

    def load(text, *overrides):
        Path("s.yaml").write_text(text)
        return load_job(Path("s.yaml"), overrides)

    return load


def layers_of(experiment):
    return [named.layer for stage in experiment.workload(0).stages for named in stage.named_layers]


KINDS = sorted(specs(LayerSpec) - {PythonSpec, RepeatSpec}, key=lambda spec: spec.__name__)


@pytest.mark.parametrize("spec", KINDS, ids=lambda spec: spec.model_config["title"])
def test_every_key_is_an_argument_of_the_layer_with_the_same_default(spec):
    keys = {name: field for name, field in spec.model_fields.items() if name not in ("name", "trainable", "type")}
    arguments = inspect.signature(spec.row.kind_class).parameters
    assert keys.keys() == arguments.keys()
    for name, field in keys.items():
        required = arguments[name].default is inspect.Parameter.empty
        assert field.is_required() == required, name
        if not required:
            assert field.default == arguments[name].default, name
        assert field.description


def test_every_layer_of_the_table_is_in_the_schema():
    assert sorted(spec.row.kind for spec in KINDS) == sorted(row.kind for row in rows())
    losses = {row.kind for row in rows() if row.is_loss}
    assert losses >= {"softmax_cross_entropy", "masked_softmax_cross_entropy", "mean_squared_error", "ctc"}
    outside = {spec.row.kind for spec in KINDS} - {spec.row.kind for spec in specs(InnerLayerSpec) - {PythonSpec}}
    assert outside == {row.kind for row in rows() if not row.may_be_inner} > losses
    assert outside >= {"embedding", "host_embedding", "residual", "parallel", "add", "concatenate", "tied_projection"}
    assert not outside & {"dense", "activation", "conv2d", "layer_norm", "multi_head_attention"}


def test_a_residual_block(load):
    experiment = load(TOKENS)
    assert layers_of(experiment)[1] == Residual(
        (NamedLayer("norm", LayerNorm()), NamedLayer("heads", MultiHeadAttention(2)))
    )
    assert "block/heads/Wq" in experiment.workload(0).initial_parameters(1)
    assert experiment.workload(0).feed.dataset.x.dtype == np.int32
    assert experiment.program.infeed.element_bytes == 2 * (6 * 4 + 6 * 4)


def test_a_shortcut_and_a_function_within_a_block(load):
    sides = "layers: [{name: f, python: f.py:double}], shortcut: [{name: g, python: f.py:double}]"
    block = f"{{name: conv, type: residual, {sides}}}"
    inner = layers_of(load(IMAGES.replace("{name: conv, type: conv2d, filters: 4, kernel_size: [3, 3]}", block)))[0]
    assert isinstance(inner.layers[0].layer, PythonLayer)
    assert inner.shortcut[0].name == "g"


def test_lists_become_pairs_and_names_any_case(load):
    more = "kernel_size: [3, 2], strides: [2, 1], padding: SAME, activation: Gelu"
    conv = layers_of(load(IMAGES.replace("kernel_size: [3, 3]", more)))[0]
    assert conv == Conv2D(4, (3, 2), (2, 1), "same", "gelu")
    hash(conv)


def test_optimizers(load):
    def optimizer(text):
        experiment = load(TOKENS, f"optimizer={text}")
        return experiment.workload(0).optimizer

    centered = "decay: 0.8, momentum: 0.5, epsilon: 0.1, centered: true"
    assert optimizer(f"{{type: rmsprop, learning_rate: 1, {centered}}}") == RMSProp(1, 0.8, 0.5, 0.1, True)
    penalties = "learning_rate_power: -1, initial_accumulator: 2, l1: 0.1, l2: 0.2, l2_shrinkage: 0.3, beta: 0.4"
    assert optimizer(f"{{type: ftrl, learning_rate: 1, {penalties}}}") == Ftrl(1, -1, 2, 0.1, 0.2, 0.3, 0.4)
    decayed = "weight_decay: 0.01, exclude_from_weight_decay: [beta, /b], beta_1: 0.8, beta_2: 0.9, epsilon: 0.5"
    assert optimizer(f"{{type: lamb, learning_rate: 1, {decayed}}}") == LAMB(1, 0.8, 0.9, 0.5, 0.01, ("beta", "/b"))
    assert optimizer("{type: sgd, learning_rate: 1, map_gradient: {clip_by_norm: 2}}") == SGD(
        1, GradientMap(clip_by_norm=2)
    )
    mapped = optimizer("{type: adam, learning_rate: 1, map_gradient: {decay: 0.1, clip_by_value: 3}}")
    assert mapped == Adam(1, gradient_map=GradientMap(0.1, 3))


def test_defaults_of_the_optimizers_are_those_of_the_schema(load):
    kinds = {"adam": Adam, "lamb": LAMB, "rmsprop": RMSProp, "adagrad": Adagrad, "adadelta": Adadelta, "ftrl": Ftrl}
    for name, kind in kinds.items():
        experiment = load(TOKENS, f"optimizer={{type: {name}, learning_rate: 0.1}}")
        assert dataclasses.asdict(experiment.workload(0).optimizer) == dataclasses.asdict(kind(0.1))


def test_tokens_of_a_file(load, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.array([[0, 7, 1]] * 8), y=np.array([[7, 1, 0]] * 8))
    text = TOKENS.replace("{type: synthetic_tokens, length: 6, vocabulary: 8, samples: 40}", "{DATA}")
    experiment = load(text.replace("{DATA}", "{type: npz, file: d.npz, tokens: true}"))
    assert experiment.workload(0).feed.dataset.x.dtype == np.int32
    with pytest.raises(ScenarioError, match=r"model\.layers\.0: tokens does not fit .* needs whole numbers, such as"):
        load(text.replace("{DATA}", "{type: npz, file: d.npz}"))
    np.savez(tmp_path / "d.npz", x=np.ones((8, 3)), y=np.ones(8))
    with pytest.raises(ScenarioError, match=r"data\.file: d\.npz: expected tokens in array 'x', .* got float64"):
        load(text.replace("{DATA}", "{type: npz, file: d.npz, tokens: true}"))


WHERE = "model.layers"
WRONG = {
    "kernel of one size": (
        IMAGES,
        "[3, 3]",
        "[3]",
        f"s.yaml:5:59: {WHERE}.0.kernel_size: expected two whole numbers from 1 to 128, such as [3, 3], got [3]",
    ),
    "kernel of no size": (
        IMAGES,
        "[3, 3]",
        "[3, 0]",
        f"s.yaml:5:63: {WHERE}.0.kernel_size.1: expected a whole number from 1 to 128, got 0",
    ),
    "kernel larger than the image": (
        IMAGES,
        "[3, 3]",
        "[3, 7]",
        f"s.yaml:5:7: {WHERE}.0: conv does not fit an input of shape [6, 6, 2]: expected images no smaller than the "
        "window (3, 7), got (6, 6)",
    ),
    "activation": (
        IMAGES,
        "filters: 4",
        "filters: 4, activation: gellu",
        f"s.yaml:5:58: {WHERE}.0.activation: expected identity, relu, tanh, sigmoid, hard_sigmoid, swish, gelu or "
        "gelu_erf, got 'gellu'; did you mean gelu?",
    ),
    "key of an inner layer": (
        TOKENS,
        "num_heads: 2",
        "heads: 2",
        f"s.yaml:10:11: {WHERE}.1.layers.1.num_heads: expected a whole number from 1 to 1024, got nothing (number of "
        "attention heads)",
        f"s.yaml:10:53: {WHERE}.1.layers.1.heads: got 'heads'; did you mean num_heads? Expected one of the keys name, "
        "trainable, type, num_heads, key_dim, causal, use_bias, dropout, split_qkv, padding_mask",
    ),
    "inner layer that cannot stand there": (
        TOKENS,
        "type: layer_norm",
        "type: embedding, input_dim: 1, output_dim: 2",
        f"s.yaml:9:30: {WHERE}.1.layers.0.type: got 'embedding'; did you mean position_embedding? Expected "
        f"{list_names(INNER_LAYERS, 'embedding')}, which `ipusim check --schema` lists",
    ),
    "table of no layer": (
        TOKENS,
        "type: dense, units: 8",
        "type: tied_projection, units: 8, embedding: tokans",
        f"s.yaml:11:66: {WHERE}.2.embedding: expected an earlier layer with a parameter W, got 'tokans'; did you mean "
        "tokens? (these are tokens)",
    ),
    "table of another size": (
        TOKENS,
        "type: dense, units: 8",
        "type: tied_projection, units: 9, embedding: tokens",
        f"s.yaml:11:66: {WHERE}.2.embedding: expected tokens/W to have the shape [9, 4], got [8, 4]",
    ),
    "table on another IPU": (
        TOKENS,
        "type: dense, units: 8",
        "type: tied_projection, units: 8, embedding: tokens",
        "s.yaml:13:11: pipeline.device_mapping: expected stages 'stage0' and 'stage1', which both use tokens/W, on the "
        "same IPU, got IPUs 0 and 1",
    ),
    "inner layer that does not fit": (
        TOKENS,
        "num_heads: 2",
        "num_heads: 3",
        f"s.yaml:6:7: {WHERE}.1: block does not fit an input of shape [6, 4]: layer 'heads' on an input of shape "
        "(6, 4): expected a number of heads that divides the input's 4 elements, got 3; or give key_dim",
    ),
    "inner loss": (
        TOKENS,
        "{name: norm, type: layer_norm}",
        "{name: norm, python: f.py:double, loss: true}",
        f"s.yaml:9:51: {WHERE}.1.layers.0.loss: expected no loss within a block, got a loss: a loss ends the model",
    ),
    "frozen within a block": (
        TOKENS,
        "{name: norm, type: layer_norm}",
        "{name: norm, type: layer_norm, trainable: false}",
        f"s.yaml:9:53: {WHERE}.1.layers.0.trainable: expected true within a block, got false: freeze the block, or put "
        "its layers directly into the model",
    ),
    "tokens without embedding": (
        TOKENS,
        "{name: tokens, type: embedding, input_dim: 8, output_dim: 4}",
        "{name: tokens, type: dense, units: 4}",
        f"s.yaml:5:7: {WHERE}.0: tokens does not fit an input of shape [6]: the whole numbers of synthetic tokens "
        "need an embedding as the first layer",
    ),
    "rows in unequal parts": (
        TOKENS,
        "units: 8",
        "units: 8, serialization_factor: 5",
        "s.yaml:4:3: model: layer 'logits' on 2 samples of shape (6, 4): expected a serialization factor that divides "
        "a_columns, which is 12, got 5",
    ),
    "clipping at nothing": (
        TOKENS,
        "learning_rate: 0.1",
        "learning_rate: 0.1, map_gradient: {clip_by_norm: 0}",
        "s.yaml:14:73: optimizer.map_gradient.clip_by_norm: expected a number above 0 to 1000000000, got 0",
    ),
    "attention over too many positions": (
        TOKENS,
        "length: 6",
        "length: 20000",
        "s.yaml:13:47: pipeline.micro_batch_size: expected at most 268435456 activations at once, got 2 samples x "
        "800820000 elements x 3 micro-batches: make it smaller, or simulate only time with numerics: off",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_message(case, load, refused):
    text, old, new, *lines = WRONG[case]
    assert text.count(old) == 1
    refused(ScenarioError, "\n".join(lines), lambda: load(text.replace(old, new)))


def test_windows_that_would_not_fit_in_memory(load, refused):
    text = IMAGES.replace("[6, 6, 2]", "[128, 128, 3]").replace("[3, 3]", "[64, 64], strides: [1, 1], padding: same")
    refused(
        ScenarioError,
        "s.yaml:5:7: model.layers.0: expected a layer with at most 268435456 output elements at once, got 2 samples "
        f"x {128 * 128 * 64 * 64 * 3}: make it smaller, or simulate only time with numerics: off",
        lambda: load(text.replace("samples: 40", "samples: 10")),
    )


@pytest.mark.parametrize("timed", [False, True])
def test_ctc_takes_as_long_without_arithmetic(timed):
    """Its labels are not there then, so that their room in the time steps is not looked at."""
    scores: dict[str, object] = {"name": "scores", "type": "dense", "units": 9}
    options: dict[str, object] = {
        "system": {"name": "m2000"},
        "data": {"type": "synthetic", "shape": [12, 4], "classes": 8, "label_count": 2 + timed, "samples": 8},
        "model": {"layers": [scores, {"name": "loss", "type": "ctc", "labels": 2, "timed": timed}]},
        "pipeline": {"schedule": "single", "splits": [], "micro_batch_size": 2, "gradient_accumulation_count": 2},
        "optimizer": {"type": "momentum", "learning_rate": 0.1, "momentum": 0.9},
    }
    modes = ("off",) if timed else ("off", "on")  # drawn labels are no number of time steps
    found = [execute(assemble(Request.from_dict(options | {"numerics": mode}))).summary for mode in modes]
    assert len({each.execution_cycles for each in found}) == 1
    assert found[0].execution_cycles > 2 * 12 * 600, "a compute set for each time step, there and back"

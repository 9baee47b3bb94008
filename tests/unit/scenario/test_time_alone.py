"""Time alone, `numerics: off`: what is simulated with arithmetic, of models and data that no memory could hold."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from ipusim.runs.problems import RequestError
from tests.effort import slowest
from tests.scenarios import job_from

CLASSES = {"type": "synthetic", "shape": [4, 3], "classes": 3, "samples": 40}
IN_A_ROW = CLASSES | {"label_count": 4}
TARGETS = {"type": "synthetic_targets", "shape": [4, 3], "target_shape": [4, 2], "samples": 40}
TOKENS = {"type": "synthetic_tokens", "length": 4, "vocabulary": 8, "samples": 40}
EMBEDDING = {"name": "tokens", "type": "embedding", "input_dim": 8, "output_dim": 6}
CROSS_ENTROPY = {"name": "loss", "type": "softmax_cross_entropy"}
#: Data, and the first and last layers of a model that takes them.
MODELS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]] = {
    "classes": (CLASSES, [], [{"name": "flat", "type": "flatten"}, {"name": "scores", "type": "dense", "units": 3}]),
    "labels in a row": (IN_A_ROW, [], [{"name": "scores", "type": "dense", "units": 3}]),
    "targets": (TARGETS, [], [{"name": "scores", "type": "dense", "units": 2}]),
    "tokens": (TOKENS, [EMBEDDING], [{"name": "scores", "type": "dense", "units": 8}]),
}


def scenario(name, **more):
    data, first, last = MODELS[name]
    middle = {"name": "hidden", "type": "dense", "units": 6, "activation": "gelu"}
    loss = {"name": "loss", "type": "mean_squared_error"} if name == "targets" else CROSS_ENTROPY
    return {
        "system": {"name": "m2000"},
        "data": data,
        "model": {"layers": [*first, middle, *last, loss]},
        "pipeline": {"splits": ["scores"], "micro_batch_size": 2, "gradient_accumulation_count": 4},
        "optimizer": {"type": "momentum", "learning_rate": 0.1, "momentum": 0.9},
        **more,
    }


PRECISIONS, HOLD_OUTS = ("float16", "float32", "float64"), (None, 0.25, 7)


@pytest.mark.parametrize(
    ("name", "hold_out", "precision"),
    [
        pytest.param(name, hold_out, precision, marks=() if (one + other + number) % 3 == 0 else slowest)
        for number, name in enumerate(MODELS)
        for one, hold_out in enumerate(HOLD_OUTS)
        for other, precision in enumerate(PRECISIONS)
    ],
)
def test_synthetic_data_cost_the_same_whether_they_are_made_or_not(name, hold_out, precision):
    asked = scenario(name, precision=precision)
    asked["data"] = asked["data"] | {"hold_out": hold_out}
    on, off = job_from(asked), job_from(asked | {"numerics": "off"})
    assert off.workload is None
    assert off.held_out is None
    assert (off.program, off.costs, off.plan) == (on.program, on.costs, on.plan)
    assert off.program.infeed.element_bytes > 0


@pytest.mark.parametrize("numerics", ["on", "off"])
@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        (
            "classes",
            {"classes": 4},
            "model.layers.3: loss does not fit the labels of synthetic: softmax cross entropy "
            "on 3 logits needs labels from 0 to 2, got label 3",
        ),
        (
            "targets",
            {"target_shape": [2]},
            "model.layers.2: loss does not fit the labels of synthetic: mean squared "
            "error on outputs of shape (4, 2) needs targets of that shape for each sample, got (2,)",
        ),
        (
            "tokens",
            {"vocabulary": 9},
            "model.layers.0: tokens does not fit an input of shape [4]: an embedding of 8 "
            "rows needs ids from 0 to 7, got 8",
        ),
    ],
)
def test_what_does_not_fit_is_told_either_way(name, data, problem, numerics, refused):
    asked = scenario(name, numerics=numerics)
    asked["data"] = asked["data"] | data
    refused(RequestError, problem, lambda: job_from(asked))


@pytest.mark.parametrize(("data", "key"), [(CLASSES, "shape"), (TARGETS, "shape"), (TARGETS, "target_shape")])
def test_a_sample_has_a_bound(data, key):
    asked = scenario("classes", numerics="off") | {"data": data | {key: [65_536, 1025]}}
    with pytest.raises(RequestError) as caught:
        job_from(asked)
    text = f"data.{key}: expected at most 67108864 numbers in a sample, got 67174400"
    assert text in str(caught.value).splitlines()


def test_more_samples_than_fit_a_memory_take_none():
    asked = scenario("tokens", numerics="off")
    asked["data"] = asked["data"] | {"length": 65_536, "samples": 10**7, "hold_out": 0.5}
    job_from(asked | {"data": TOKENS})  # what is imported on the way is no matter
    tracemalloc.start()
    try:
        job = job_from(asked)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert job.program.infeed.element_bytes == 2 * 2 * 65_536 * 4
    assert peak < 4_000_000


def test_labels_of_a_loss_of_ones_own_are_zeros(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import autograd.numpy as np\ndef loss(x, labels):\n    return np.mean((x[..., 0] - labels[:, None]) ** 2)\n"
    )
    asked = scenario("classes", memory="report")
    asked["model"]["layers"][-1] = {"name": "loss", "python": "mine.py:loss", "loss": True}
    on, off = (job_from(asked | {"numerics": numerics}, tmp_path) for numerics in ("on", "off"))
    assert off.program == on.program


def test_files_are_read_and_checked(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((9, 4, 3)), y=np.full(9, 3))
    asked = scenario("classes", numerics="off", data={"type": "npz", "file": "data.npz"})
    with pytest.raises(RequestError, match="needs labels from 0 to 2, got label 3"):
        job_from(asked, tmp_path)

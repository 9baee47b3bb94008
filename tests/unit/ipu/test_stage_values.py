"""What stages take and return beside arrays one by one: values of a whole run, and dictionaries."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.ipu import get_variable
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import GradientDescentOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput
from ipusim.timeline.kinds import SpanKind

X = np.arange(1, 5, dtype=np.float32)


def learn(rate, loss):
    return OptimizerFunctionOutput(GradientDescentOptimizer(rate), loss)


def train(run, rate, outfeed=None, threaded=True):
    """Fit w x to 3 x, with a step size that goes through all stages, or one that is written down."""

    def scale(*values):
        *rates, x = values
        return *rates, x * get_variable("w", 1.0), x

    def loss(*values):
        *rates, y, x = values
        return *rates, anp.mean((y - 3 * x) ** 2)

    return run(
        computational_stages=[scale, lambda *values: values, loss],
        gradient_accumulation_count=6,
        inputs=[rate] if threaded else None,
        infeed_queue=IPUInfeedQueue(repeat([X])),
        outfeed_queue=outfeed or IPUOutfeedQueue(),
        optimizer_function=learn if threaded else lambda value: learn(rate, value),
    )


def test_a_learning_rate_in_inputs_reaches_the_optimizer_anew_in_each_run(run):
    """With SGD, w goes to w - 6 rate * 2 (w - 3) mean(x^2)."""
    found, w = train(run, 0.001), 1.0
    for rate in (0.001, 0.004, 0.0):
        w -= 6 * rate * 2 * (w - 3) * np.mean(X**2)
        if rate != 0.001:
            found.run([rate])
        assert float(found.variables["w"]) == pytest.approx(w, rel=1e-5)


def test_an_input_that_is_handed_on_as_it_came_travels_over_no_link(run):
    outfeed = IPUOutfeedQueue()
    threaded, written = train(run, 0.001, outfeed), train(run, 0.001, threaded=False)
    for name in ("stage", "ipu", "micro_batch", "link", "bytes"):
        ours, theirs = (getattr(each.timeline, name) for each in (threaded, written))
        assert ours.size == theirs.size
        if name == "bytes":
            extra = ours - theirs
            assert np.unique(extra[threaded.timeline.rows(SpanKind.OUTFEED)]).tolist() == [4]
            assert not extra[threaded.timeline.rows(SpanKind.EXCHANGE, SpanKind.LINK)].any()
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    rates, losses = outfeed.dequeue()
    assert rates.tolist() == [np.float32(0.001)] * 6
    assert losses.shape == (6,)


def test_an_input_that_a_stage_computes_with_travels(run):
    outfeed = IPUOutfeedQueue()
    found = run(
        computational_stages=[lambda a, x: (2 * a, x), lambda a, x: a * x],
        inputs=[np.float32(3)],
        outfeed_queue=outfeed,
    )
    assert outfeed.dequeue()[0].tolist() == [[6.0, 6.0]] * 8
    assert found.program.stages[0].output_bytes == 4 + 8


def test_dictionaries_between_stages_and_out_of_the_pipeline(run):
    outfeed = IPUOutfeedQueue()
    run(
        computational_stages=[
            lambda x: {"a": x, "b": 2 * x},
            lambda both: {"sum": both["a"] + both["b"], "b": both["b"]},
        ],
        outfeed_queue=outfeed,
    )
    found = outfeed.dequeue()
    assert {name: array.tolist() for name, array in found.items()} == {"sum": [[3, 3]] * 8, "b": [[2, 2]] * 8}


def test_a_dictionary_reaches_the_optimizer_function_and_its_gradients_come_back(run):
    outfeed = IPUOutfeedQueue()

    def scaled(x):
        return {"y": x * get_variable("w", 1.0), "x": x}

    def error(both):
        return {"loss": anp.mean((both["y"] - 3 * both["x"]) ** 2), "x": both["x"]}

    found = run(
        computational_stages=[scaled, error],
        outfeed_queue=outfeed,
        optimizer_function=lambda outputs: learn(0.01, outputs["loss"]),
    )
    assert float(found.variables["w"]) == pytest.approx(1 + 8 * 0.01 * 2 * 2)
    (element,) = outfeed.dequeue()
    assert element["loss"].tolist() == [4.0] * 8
    assert element["x"].shape == (8, 2)


def test_a_stage_returns_one_structure_in_all_micro_batches(run):
    calls = []

    def changing(x):
        calls.append(x)
        return {"a": x} if len(calls) < 6 else {"b": x}

    text = r"expected outputs of one structure in all micro-batches, got \({b}\) after \({a}\)$"
    with pytest.raises(ModelError, match=text):
        run(computational_stages=[changing, lambda both: next(iter(both.values()))])
    with pytest.raises(ModelError, match=r"expected texts or numbers as names of its outputs, got 1\.5"):
        run(computational_stages=[lambda x: {1.5: x}, lambda both: both])

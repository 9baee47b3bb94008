"""Pipelined training of transformers, CNNs and RNNs gives what the unsplit model gives, dropout and all."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ipusim.hardware.build import build_system
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.data.synthetic import synthetic_classes, synthetic_tokens
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import Embedding, PositionEmbedding
from ipusim.model.layers.glu import GLU
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten, Reshape
from ipusim.model.layers.losses import MaskedSoftmaxCrossEntropy, SoftmaxCrossEntropy
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm
from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
from ipusim.model.layers.positions import TakePositions
from ipusim.model.layers.relative_attention import RelativeMultiHeadAttention
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.space_to_depth import SpaceToDepth
from ipusim.model.layers.squeeze_excite import SqueezeExcite
from ipusim.model.layers.window_attention import WindowAttention
from ipusim.model.learning.adaptive_optimizers import LAMB, Adam
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.workload import Workload
from ipusim.pipeline.feeds import Infeed, Outfeed
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.plans import plan_of
from ipusim.schedules.registry import find
from tests.effort import sampled
from tests.formulas import split
from tests.plans import price_and_run

BATCH, EXECUTIONS, SEED = 2, 2, 11
CEL = NamedLayer("cel", SoftmaxCrossEntropy())


def stack(**layers):
    return tuple(NamedLayer(name, layer) for name, layer in layers.items())


def transformer() -> tuple[Network, Dataset]:
    attention = Residual(stack(norm=LayerNorm(), heads=MultiHeadAttention(2, causal=True, dropout=0.2)))
    mlp = Residual(stack(norm=LayerNorm(), up=Dense(12, "gelu"), drop=Dropout(0.3), down=Dense(6)))
    layers = stack(
        tokens=Embedding(8, 6),
        place=PositionEmbedding(),
        drop=Dropout(0.1),
        attention=attention,
        mlp=mlp,
        norm=LayerNorm(),
        logits=Dense(8),
    )
    return Network(layers, (5,), CEL), synthetic_tokens(5, 8, 40)


def cnn() -> tuple[Network, Dataset]:
    block = Residual(
        stack(conv=Conv2D(6, (3, 3), (2, 2), "same", "relu"), norm=GroupNorm()),
        stack(resize=Conv2D(6, (1, 1), (2, 2))),
    )
    layers = stack(
        conv=Conv2D(4, (3, 3), padding="same"),
        instance=InstanceNorm(),
        swish=ActivationLayer("swish"),
        max=MaxPool2D(),
        block=block,
        drop=Dropout(0.4),
        mean=AveragePool2D(),
        reshape=Reshape((2, 3)),
        flatten=Flatten(),
        logits=Dense(3),
    )
    return Network(layers, (8, 8, 2), CEL), synthetic_classes((8, 8, 2), 3, 40)


def rnn() -> tuple[Network, Dataset]:
    layers = stack(
        lstm=LSTM(4, return_sequences=True), drop=Dropout(0.5), gru=GRU(5), half=Dense(6, "sigmoid"), logits=Dense(3)
    )
    return Network(layers, (4, 3), CEL), synthetic_classes((4, 3), 3, 40)


def conformer() -> tuple[Network, Dataset]:
    """The convolution module of a Conformer, whose loss is that of the first positions alone."""
    module = Residual(
        stack(
            norm=LayerNorm(),
            widen=Conv1D(12, 1),
            gate=GLU(),
            depthwise=Conv1D(6, 3, padding="same", groups=6),
            batch_norm=BatchNorm(),
            swish=ActivationLayer("swish"),
            project=Conv1D(6, 1),
            drop=Dropout(0.2),
        )
    )
    layers = stack(
        tokens=Embedding(8, 6),
        place=PositionEmbedding(),
        heads=RelativeMultiHeadAttention(2, dropout=0.2),
        module=module,
        norm=BatchNorm(),
        masked=TakePositions(3),
        logits=Dense(8),
    )
    return Network(layers, (5,), NamedLayer("cel", MaskedSoftmaxCrossEntropy(3))), synthetic_tokens(5, 8, 40)


def swin() -> tuple[Network, Dataset]:
    """Blocks of Swin with windows and shifted ones, merged, and an EfficientNet's scaling of channels."""
    block = Residual(
        stack(norm=LayerNorm(), heads=WindowAttention(2, window=2, shift=1, dropout=0.2), drop=Dropout(0.1))
    )
    layers = stack(
        patches=Conv2D(4, (2, 2), (2, 2)),
        heads=WindowAttention(2, window=2),
        block=block,
        merged=SpaceToDepth(),
        scaled=Residual(stack(excite=SqueezeExcite(3, "swish"))),
        flatten=Flatten(),
        logits=Dense(3),
    )
    return Network(layers, (8, 8, 2), CEL), synthetic_classes((8, 8, 2), 3, 40)


MODELS = {
    "transformer": transformer,
    "cnn": cnn,
    "rnn": rnn,
    "conformer": conformer,
    "swin": swin,
}


@cache
def plain_loop(network, dataset, optimizer, mean, count):
    """Train the whole network once, without stages, schedules or executor; dropout's keys are worked out here."""
    layers = network.layers
    weights = {
        f"{named.name}/{name}": array
        for place, (named, shape) in enumerate(zip(layers, network.shapes, strict=False))
        for name, array in named.layer.initial_parameters(shape, np.random.default_rng([SEED, place]), float).items()
    }
    feed, state, losses = Feed(dataset, BATCH, seed=3), optimizer.initial_state(weights), []
    for execution in range(EXECUTIONS):
        total = {name: np.zeros_like(array) for name, array in weights.items()}
        for number in range(execution * count, (execution + 1) * count):
            x, labels = feed.element(number)
            kept = []
            for place, named in enumerate(layers):
                own = {k: weights[f"{named.name}/{k}"] for k in named.layer.parameter_shapes(network.shapes[place])}
                x, saved = named.layer.forward(own, x, (SEED, number, place))
                kept.append((own, saved))
            loss, saved = network.loss.layer.forward({}, x, labels)
            losses.append(float(loss))
            grad, _ = network.loss.layer.backward({}, saved)
            for named, (own, saved) in zip(reversed(layers), reversed(kept), strict=True):
                grad, gradients = named.layer.backward(own, saved, grad)
                for name, gradient in gradients.items():
                    key = f"{named.name}/{name}"
                    total[key] += gradient / count if mean else gradient
        optimizer.apply(weights, total, state)
    return losses, weights


def simulated(network, dataset, optimizer, splits, schedule, mean=False, recompute=False):
    """Return losses and weights of a training with two micro-batches a stage, a round of every schedule."""
    stages = build_stages(network, split(network, splits))
    feed = Feed(dataset, BATCH, seed=3)
    reduction = "MEAN" if mean else "SUM"
    workload = Workload(stages, feed, optimizer, reduction, np.dtype(np.float64), SEED)
    profiles = tuple(layer_profile(stage, BATCH, 8, feed.label_bytes, True, optimizer) for stage in stages)
    mapping = (0,) * len(stages) if schedule == "single" else tuple(range(len(stages)))
    shape = PlanShape(mapping=mapping, micro_batches=2 * len(stages), recompute=recompute)
    program = PipelineProgram(
        profiles, shape, schedule, EXECUTIONS, reduction, Infeed(feed.element_bytes), Outfeed(8), BATCH
    )
    executor = NumpyExecutor(shape, workload)
    system = build_system("c2_server", mapping=mapping)
    price_and_run(plan_of(find(schedule), shape), program, system, executor=executor)
    return [float(loss) for (loss,) in executor.results], executor.weights()


def assert_equal(result, right):
    np.testing.assert_allclose(result[0], right[0], rtol=1e-12)
    assert result[1].keys() == right[1].keys()
    for name, array in result[1].items():
        np.testing.assert_allclose(array, right[1][name], rtol=1e-11, atol=1e-14, err_msg=name)


@cache
def model(name):
    network, dataset = MODELS[name]()
    return network, dataset.astype(np.float64)


@sampled(2)
@pytest.mark.parametrize("name", MODELS)
def test_every_split_into_two_stages_trains_the_same(name):
    network, dataset = model(name)
    # Some biases have no gradient but rounding errors, which a small epsilon would blow up.
    optimizer = Adam(0.01, epsilon=1e-3, weight_decay=0.1, exclude_from_weight_decay=("norm", "/b"))
    right = plain_loop(network, dataset, optimizer, mean=True, count=4)
    for cut in network.names[1:]:
        assert_equal(simulated(network, dataset, optimizer, [cut], "grouped", mean=True), right)


@sampled(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("schedule", ["grouped", "interleaved"])
def test_recomputation_repeats_the_masks_to_the_bit(name, schedule):
    network, dataset = model(name)
    splits = [network.names[2], network.names[4]]
    plain = simulated(network, dataset, LAMB(0.02), splits, schedule)
    again = simulated(network, dataset, LAMB(0.02), splits, schedule, recompute=True)
    assert plain[0] == again[0]
    for name_, array in plain[1].items():
        np.testing.assert_array_equal(again[1][name_], array)


def test_dropout_draws_anew_in_each_micro_batch_and_execution():
    dataset = Dataset(np.ones((4, 50)), np.zeros(4, np.int32), 2)
    network = Network(stack(drop=Dropout(0.5), logits=Dense(2)), (50,), CEL)
    losses, _ = simulated(network, dataset, SGD(0.0), ["logits"], "grouped")
    assert len(set(losses)) == 4 * EXECUTIONS


def test_inference_drops_nothing():
    network = Network(stack(drop=Dropout(0.9), same=ActivationLayer("identity")), (3,))
    dataset = Dataset(np.arange(12.0).reshape(4, 3), np.zeros(4, np.int32), 2)
    stages = build_stages(network, split(network, ["same"]))
    feed = Feed(dataset, 2, shuffle=False)
    shape = PlanShape(mapping=(0, 1), micro_batches=2, training=False)
    profiles = tuple(layer_profile(stage, 2, 8, training=False) for stage in stages)
    program = PipelineProgram(profiles, shape, "grouped", 1, "SUM", Infeed(feed.element_bytes), Outfeed(8), 2)
    executor = NumpyExecutor(shape, Workload(stages, feed, dtype=np.dtype(np.float64)))
    price_and_run(
        plan_of(find("grouped"), shape), program, build_system("c2_server", mapping=(0, 1)), executor=executor
    )
    np.testing.assert_array_equal(np.concatenate([element[0] for element in executor.results]), dataset.x)

"""The halves of a backward pass, the second run at any time later, give the gradients of the whole to the bit."""

from itertools import permutations

import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipusim.machine.stage_memory import StageMemory
from ipusim.model.data.datasets import Dataset
from ipusim.model.data.feed import Feed
from ipusim.model.functions.python_layer import PythonLayer, PythonLoss
from ipusim.model.layers.activations import ACTIVATIONS
from ipusim.model.layers.add import Add
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.concatenate import Concatenate
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.depthwise import DepthwiseConv2D
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import Embedding, HostEmbedding, PositionEmbedding
from ipusim.model.layers.glu import GLU
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten, Reshape
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm
from ipusim.model.layers.parallel import Parallel
from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
from ipusim.model.layers.positions import TakePositions
from ipusim.model.layers.relative_attention import RelativeMultiHeadAttention
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.space_to_depth import SpaceToDepth
from ipusim.model.layers.squeeze_excite import SqueezeExcite
from ipusim.model.layers.table import rows
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.layers.transposed_convolution import Conv2DTranspose
from ipusim.model.layers.window_attention import WindowAttention
from ipusim.model.learning.gradient_map import GradientMap
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.workload import Workload
from tests.formulas import split, with_special_points

BATCH, COUNT, WIDTH, CLASSES = 2, 3, 4, 3


def scaled(x, s):
    return x * anp.tanh(s)


def mean_square(y, labels, s):
    return anp.mean((y * s - labels[:, None]) ** 2)


def inner(*layers):
    return tuple(NamedLayer(f"{type(layer).__name__.lower()}{at}", layer) for at, layer in enumerate(layers))


ANYWHERE = [
    *(ActivationLayer(name) for name in sorted(ACTIVATIONS)),
    *(Dense(WIDTH, name) for name in sorted(ACTIVATIONS)),
    Dense(WIDTH, "relu", use_bias=False, serialization_factor=2),
    Dense(WIDTH, "tanh", True, 2, "b_rows"),
    LayerNorm(),
    LayerNorm(center=False),
    LayerNorm(scale=False, center=False),
    BatchNorm(),
    BatchNorm(center=False),
    Dropout(0.4),
    TakePositions(3),
    Residual(inner(Dense(2 * WIDTH), GLU())),
    SqueezeExcite(2, "swish"),
    Residual(inner(SqueezeExcite(3))),
    Residual(inner(Dense(WIDTH, "gelu"), Dropout(0.5))),
    Residual(inner(LayerNorm()), inner(Dense(WIDTH), ActivationLayer("relu"))),
    Parallel((inner(Dense(1, "tanh")), (NamedLayer("wide", Dense(3)), NamedLayer("drop", Dropout(0.2))))),
    PythonLayer(scaled, {"s": (WIDTH,)}, {"s": 0.7}),
]
#: Of samples of each shape layers that keep it, of every kind between them.
SHAPES = {
    (3, WIDTH): [
        *ANYWHERE,
        LSTM(WIDTH, return_sequences=True),
        LSTM(WIDTH, use_bias=False, return_sequences=True),
        GRU(WIDTH, return_sequences=True),
        GRU(WIDTH, return_sequences=True, reset_after=False),
        Parallel(
            (inner(AUGRU(2, return_sequences=True)), (NamedLayer("gru", GRU(2, masked=True, return_sequences=True)),))
        ),
        MultiHeadAttention(2),
        MultiHeadAttention(2, 3, causal=True, use_bias=False, dropout=0.2, split_qkv=True, padding_mask=True),
        RelativeMultiHeadAttention(2, dropout=0.2),
        PositionEmbedding(),
        Residual(inner(Reshape((WIDTH, 3)), Dense(3, "tanh"), Reshape((3, WIDTH)))),
        Conv1D(WIDTH, 2, padding="same", activation="relu"),
        Conv1D(WIDTH, 3, padding="same", groups=WIDTH),
    ],
    (3, 2, WIDTH): [
        *ANYWHERE,
        Conv2D(WIDTH, (2, 2), padding="same", activation="swish"),
        Conv2D(WIDTH, (1, 1), use_bias=False),
        Conv2D(WIDTH, (3, 1), padding="same", activation="tanh", groups=2),
        Conv2D(WIDTH, (2, 2), padding="same", groups=WIDTH),
        DepthwiseConv2D((2, 2), padding="same", activation="tanh"),
        Conv2DTranspose(WIDTH, (3, 2), padding="same", activation="gelu"),
        Residual(inner(Conv2DTranspose(WIDTH, (2, 3), (2, 2), use_bias=False), MaxPool2D((2, 2), (2, 2)))),
        MaxPool2D((2, 2), (1, 1), "same"),
        AveragePool2D((3, 2), (1, 1), "same"),
        Residual(inner(Reshape((2 * WIDTH, 3)), Reshape((3, 2, WIDTH)))),
        Residual(inner(Reshape((4, 2, 3)), WindowAttention(3, window=2, shift=1), Reshape((3, 2, WIDTH)))),
        Residual(inner(Reshape((2, 2, 6)), WindowAttention(2, window=1, dropout=0.2), Reshape((3, 2, WIDTH)))),
        Residual(inner(Reshape((2, 4, 3)), SpaceToDepth(), Reshape((3, 2, WIDTH)))),
        GroupNorm(),
        InstanceNorm(),
    ],
}
LOSSES = [SoftmaxCrossEntropy(), PythonLoss(mean_square, {"s": (CLASSES,)}, {"s": 0.5})]


def kinds_of(layer):
    yield getattr(type(layer), "kind", "")
    for chain in (getattr(layer, "layers", ()), *getattr(layer, "branches", ())):
        for named in chain:
            yield from kinds_of(named.layer)


def test_every_kind_of_layer_is_drawn():
    drawn = {kind for layers in SHAPES.values() for layer in layers for kind in kinds_of(layer)}
    beside = {
        "add",
        "concatenate",
        "flatten",
        "embedding",
        "host_embedding",
        "tied_projection",
    }  # drawn in place below
    # Losses have no parameters: one is like another.
    assert drawn | beside >= {row.kind for row in rows() if not row.is_loss}


@st.composite
def workloads(draw):
    shape = draw(st.sampled_from(sorted(SHAPES)))
    middle = draw(st.lists(st.sampled_from(SHAPES[shape]), min_size=1, max_size=5))
    tokens = len(shape) == 2 and draw(st.booleans())
    tied = [TiedProjection(7, "layer0", draw(st.booleans()))] if draw(st.booleans()) else []
    table = Embedding if tied else draw(st.sampled_from([Embedding, HostEmbedding]))
    stack = [table(7, WIDTH), *middle, *tied] if tokens else middle
    named = [NamedLayer(f"layer{at}", layer) for at, layer in enumerate(stack)]
    skips = draw(st.booleans())
    wide = len(tied) if tokens else 0  # behind a projection values have another width
    for place in draw(st.sets(st.integers(1, len(named) - wide), max_size=2)) if skips else ():
        at = place + named[place - 1].name.startswith("joined")  # which is wider, until it is made narrow again
        source = draw(st.sampled_from([each for each in named[:at] if not each.name.startswith("joined")]))
        number = f"{at}{len(named)}"
        if draw(st.booleans()):
            named.insert(at, NamedLayer(f"add{number}", Add(source.name)))
            continue
        crop = draw(st.sampled_from([None, shape[:2]])) if len(shape) == 3 else None
        joined = NamedLayer(f"joined{number}", Concatenate(source.name, crop))
        named[at:at] = [joined, NamedLayer(f"narrow{number}", Dense(WIDTH))]
    ends = [NamedLayer("flat", Flatten()), NamedLayer("scores", Dense(CLASSES))]
    given_shape = shape[:-1] if tokens else shape
    loss = NamedLayer("loss", draw(st.sampled_from(LOSSES)))
    frozen = draw(st.just(frozenset()) | st.frozensets(st.sampled_from([each.name for each in named])))
    network = Network((*named, *ends), given_shape, loss, frozen)
    cuts = draw(st.sets(st.sampled_from(network.names[1:]), max_size=3))
    groups = split(network, sorted(cuts, key=network.names.index))
    checkpoints = () if skips else draw(st.sets(st.sampled_from(network.names)))
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64"])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    samples = BATCH * COUNT
    x = (
        rng.integers(0, 7, (samples, *given_shape))
        if tokens
        else with_special_points(rng.normal(size=(samples, *given_shape)))
    )
    data = Dataset(x.astype(np.int32 if tokens else dtype), rng.integers(0, CLASSES, samples), CLASSES)
    return Workload(
        stages=build_stages(network, groups, checkpoints=checkpoints),
        feed=Feed(data, BATCH),
        optimizer=SGD(0.1, draw(st.sampled_from([None, GradientMap(0.1, None, 0.5)]))),
        reduction=draw(st.sampled_from(["SUM", "MEAN", "RUNNING_MEAN"])),
        dtype=dtype,
        accumulation_dtype=draw(st.sampled_from([None, np.float32])) if dtype.itemsize < 8 else None,
    )


class Run:
    """The stages of a workload on memories of their own, and what has come of their passes."""

    def __init__(self, workload):
        self.workload = workload
        self.places = range(len(workload.stages))
        self.memories = [StageMemory(workload, stage, COUNT) for stage in self.places]
        self.needs = [stage.needs_input_gradient for stage in workload.stages]
        self.gradients = {}
        self.rests = {}

    def forward(self, micro_batch):
        x, labels = self.workload.feed.element(micro_batch)
        saved = []
        for memory in self.memories:
            x, kept = memory.passes.forward(x, labels, (0, micro_batch))
            saved.append(kept)
        return saved

    def whole(self, micro_batch, saved):
        grad = None
        for stage in reversed(self.places):
            memory = self.memories[stage]
            memory.micro_batch = micro_batch
            grad = memory.passes.backward(saved[stage], grad, self.needs[stage], memory.accumulate, memory.totals)
            memory.accumulated += 1
            self.gradients[stage, micro_batch] = grad

    def inputs(self, micro_batch, saved):
        grad = None
        for stage in reversed(self.places):
            bound = self.memories[stage].passes
            grad, self.rests[stage, micro_batch] = bound.backward_input(saved[stage], grad, self.needs[stage])
            self.gradients[stage, micro_batch] = grad

    def weights(self, stage, micro_batch):
        memory = self.memories[stage]
        memory.micro_batch = micro_batch
        memory.passes.backward_weights(self.rests.pop((stage, micro_batch)), memory.accumulate, memory.totals)
        memory.accumulated += 1


def bits(thing):
    if isinstance(thing, tuple | list):
        return [bits(each) for each in thing]
    return None if thing is None else (thing.dtype, thing.shape, thing.tobytes())


orders = st.sampled_from(list(permutations(range(COUNT))))


@given(workloads(), orders, orders, st.booleans())
def test_halves_give_the_bits_of_the_whole(workload, order, first, late):
    """First halves in one order of micro-batches, second ones in another, or as soon as that order allows."""
    whole, halves = Run(workload), Run(workload)
    with np.errstate(all="ignore"):
        for micro_batch in order:
            whole.whole(micro_batch, whole.forward(micro_batch))
        waiting = {stage: list(order) for stage in reversed(whole.places)}
        saved = {micro_batch: halves.forward(micro_batch) for micro_batch in first}
        for micro_batch in first:
            halves.inputs(micro_batch, saved.pop(micro_batch))
            for stage, left in waiting.items() if not late else ():
                while left and (stage, left[0]) in halves.rests:
                    halves.weights(stage, left.pop(0))
        for stage, left in waiting.items():
            for micro_batch in left:
                halves.weights(stage, micro_batch)
    assert halves.rests == {}
    for place, grad in whole.gradients.items():
        assert bits(halves.gradients[place]) == bits(grad), place
    for stage, memory in enumerate(whole.memories):
        frozen = whole.workload.stages[stage].frozen_names
        assert memory.accumulators.keys() == memory.parameters.keys() - frozen
        for name, total in memory.accumulators.items():
            assert bits(halves.memories[stage].accumulators[name]) == bits(total), name


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_layers_halves_are_its_whole(shape):
    """And all that it makes is of the type of its input."""
    rng = np.random.default_rng(3)
    for layer in (*SHAPES[shape], TiedProjection(WIDTH, "tokens")):
        parameters = layer.initial_parameters(shape, rng, np.float32)
        x, grad = (with_special_points(rng.normal(size=(BATCH, *shape))).astype(np.float32) for _ in range(2))
        y, saved = layer.forward(parameters, x, (1, 2))
        assert {array.dtype for array in (y, *parameters.values())} == {x.dtype}
        for need in (True, False):
            dx, gradients = layer.backward(parameters, saved, grad, need)
            again, rest = layer.backward_input(parameters, saved, grad, need)
            assert bits(again) == bits(dx)
            assert (dx is None) == (not need)
            assert {array.dtype for array in (*([dx] if need else []), *gradients.values())} <= {x.dtype}
            found = layer.backward_weights(parameters, rest)
            assert {name: bits(array) for name, array in found.items()} == {
                name: bits(array) for name, array in gradients.items()
            }
            assert list(found) == list(parameters)

"""Random trainings of every kind of layer, in stages that share variables, against a plain loop with autograd.

The loop shares no layer, loss or optimizer with ipusim, knows no stages, replicas or parts, and takes its
gradients of textbook formulas. Every layer keeps the form of what it gets, so that any may follow any.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import strategies as st

from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import (
    AdadeltaOptimizer,
    CrossReplicaOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    IpuOptimizer,
    LAMBOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from ipusim.ipu.runtime import layers, program_request
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.augru import AUGRU
from ipusim.model.layers.convolution import Conv1D, Conv2D
from ipusim.model.layers.depthwise import DepthwiseConv2D
from ipusim.model.layers.glu import GLU
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.normalisation import BatchNorm, LayerNorm
from ipusim.model.layers.relative_attention import RelativeMultiHeadAttention
from ipusim.model.learning.accumulating_optimizers import Adagrad
from ipusim.model.learning.adaptive_optimizers import Adam
from tests import formulas
from tests.effort import slowest
from tests.house_schedules import COMPUTING, is_a_v, is_halved, is_mirrored
from tests.sharded import SOME_SHARDS, among, check_shard, drawn, some
from tests.special_points import with_special_points

EXAMPLES = 300

BATCH, TIME, WIDTH, CLASSES, RATE = 2, 3, 4, 3, 0.05
#: Multiples of the two never cancel: LAMB tells a sum that is zero from one that is zero but for rounding.
CLIP = -0.02, 0.02 * math.sqrt(2)
SCALE = np.linspace(0.5, 1.5, WIDTH)
PRODUCT = np.random.default_rng(3).normal(size=(WIDTH, WIDTH)) / 2
RULES = {
    "sgd": lambda: GradientDescentOptimizer(RATE),
    "momentum": lambda: MomentumOptimizer(RATE, 0.75),
    # A large epsilon: a gradient that is zero but for rounding must not be scaled up to a step.
    "adam": lambda: Optimizer(Adam(RATE, epsilon=0.01, weight_decay=0.1)),
    "nesterov": lambda: MomentumOptimizer(RATE, 0.75, use_nesterov=True),
    "rmsprop": lambda: RMSPropOptimizer(RATE, 0.75, 0.5, 0.01, centered=True),
    "adagrad": lambda: Optimizer(Adagrad(RATE, 0.01, 0.01)),
    "adadelta": lambda: AdadeltaOptimizer(1.0, 0.75, 0.01),
    "ftrl": lambda: FtrlOptimizer(RATE, -0.5, 0.01, 0.01, 0.1),
    "lamb": lambda: LAMBOptimizer(RATE, 0.1, epsilon=0.01),
}

#: Hypothesis draws the first of many most often: those that each kind of layer must meet come first, and again.
DRAWN_RULES = ("adam", "lamb", "lamb", "lamb", *sorted(RULES))

#: Formulas of steps over sums of squares, with the numbers of the rules above.
SUMMED = {
    "rmsprop": (formulas.rms_step, RATE, 0.75, 0.5, 0.01, True),
    "adagrad": (formulas.adagrad_step, RATE, 0.01, 0.01),
    "adadelta": (formulas.adadelta_step, 1.0, 0.75, 0.01),
}


def doubled(h):
    """Activations, and beside them the same in reverse order."""
    return anp.concatenate([h, h[..., ::-1]], axis=-1)


def positive(z):
    """Numbers above 0, and 0 for others: blank steps, which meet biases of 0, have no slope."""
    return anp.where(z > 0, z, 0 * z)


def image(of):
    """A function of images as one of sequences: they get a channel, and lose it again."""
    return lambda h, *rest: anp.reshape(of(anp.reshape(h, (*h.shape, 1)), *rest), h.shape)


#: Of each kind the layer in a stage and its formula; both take a name, the activations, and give activations.
KINDS = {
    "dense": (Dense(WIDTH, "tanh"), lambda h, W, b: anp.tanh(formulas.dense(h, W, b))),
    "rectified": (Dense(WIDTH, "relu"), lambda h, W, b: positive(formulas.dense(h, W, b))),
    "lstm": (LSTM(WIDTH, return_sequences=True), formulas.lstm),
    "gru": (GRU(WIDTH, return_sequences=True), lambda *a: formulas.gru(*a, True)),
    "gru before": (GRU(WIDTH, return_sequences=True, reset_after=False), lambda *a: formulas.gru(*a, False)),
    "augru": (AUGRU(WIDTH, return_sequences=True), lambda *a: formulas.gru(*a, True, attended=True)),
    "masked": (GRU(WIDTH, return_sequences=True, masked=True), lambda *a: formulas.gru(*a, True, masked=True)),
    "attention": (MultiHeadAttention(2), lambda *a: formulas.attention(*a, 2, False)),
    "relative": (RelativeMultiHeadAttention(2), lambda *a: formulas.relative_attention(*a, 2)),
    "causal": (MultiHeadAttention(2, causal=True), lambda *a: formulas.attention(*a, 2, True)),
    "convolution": (Conv2D(1, (2, 3), padding="same"), image(formulas.convolution)),
    "sequence convolution": (Conv1D(WIDTH, 3, padding="same"), formulas.convolution_1d),
    "depthwise images": (DepthwiseConv2D((2, 3), padding="same"), image(formulas.convolution)),
    "depthwise": (Conv1D(WIDTH, 2, padding="same", groups=WIDTH), lambda *a: formulas.convolution_1d(*a, WIDTH)),
    "layer norm": (LayerNorm(), formulas.layer_norm),
    "batch norm": (BatchNorm(), formulas.batch_norm),
    "gated": (GLU(), lambda h: formulas.glu(doubled(h))),
}
SHARED = ("shared scale", "shared product", "shared dense")


@dataclass
class Training:
    """What is drawn: stages as lists of (kind, name), and the options."""

    stages: list
    mapping: list
    schedule: str
    rule: str
    replicas: int = 1
    count: int = 4
    executions: int = 2
    reduction: str = "SUM"
    mapped: str = ""
    outside: bool = False
    seed: int = 0
    recompute: bool = False
    serialization: int = 1
    sharding: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)

    @property
    def every(self):
        """All layers in a row: the unsplit model."""
        return [each for stage in self.stages for each in stage]


@st.composite
def trainings(draw):
    schedule = draw(among("Grouped", "Interleaved", "Sequential"))
    drawn = draw(st.lists(st.lists(among(*sorted(KINDS)), min_size=1, max_size=2), min_size=2, max_size=4))
    if schedule != "Interleaved" and draw(st.booleans()):
        kind = draw(among(*SHARED))
        for at in draw(st.sets(st.sampled_from(range(len(drawn))), min_size=2)):
            drawn[at].append(kind)
    stages = [
        [(kind, kind if kind in SHARED else f"l{at}_{place}") for place, kind in enumerate(stage)]
        for at, stage in enumerate(drawn)
    ]
    mapping = place(draw, drawn, schedule)
    serialization = draw(st.integers(2, 3)) if schedule == "Sequential" and set(mapping) == {0} else 1
    overlap = {"Grouped": 2 * len(stages), "Interleaved": len(stages), "Sequential": 1}[schedule]
    shards = 1 << max(mapping).bit_length()
    replicas = draw(among(1, 2, 4 if shards == 1 else 2))
    sharding = {}
    own = beyond_graphcore(draw, schedule, mapping)
    if own["variables_on_host"]:
        sharding["replicated_weight_sharding"] = False
    elif replicas > 1:
        sharding["offload_weight_update_variables"] = True
        sharding["replicated_optimizer_state_sharding"] = draw(st.booleans())
        in_parts = not any(kind in SHARED for stage in drawn for kind in stage) and draw(st.booleans())
        sharding["replicated_weight_sharding"] = in_parts
    return Training(
        stages,
        mapping,
        schedule,
        draw(among(*DRAWN_RULES)),
        replicas,
        overlap * draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        "SUM" if serialization > 1 else draw(among("SUM", "MEAN", "RUNNING_MEAN")),
        draw(among("", "decay", "clip")),
        draw(st.booleans()),
        draw(st.integers(0, 99)),
        not is_halved(own.get("schedule", schedule.lower())) and draw(st.booleans()),
        serialization,
        sharding,
        own,
    )


def beyond_graphcore(draw, schedule, mapping):
    """Return options for which Graphcore's API has no argument: how IPUs wait, who updates, and others' schedules."""
    own = {"sync": draw(among("lock_step", "point_to_point")), "overlap_copies": draw(st.booleans())}
    own["variables_on_host"] = draw(among(False, False, True))
    own["overlapped"] = draw(among("sum", "max", 20_000))
    if schedule == "Grouped" and draw(st.booleans()):
        in_a_row = len([1 for before, after in itertools.pairwise([-1, *mapping]) if before != after])
        once = in_a_row == len(set(mapping))
        half = len(mapping) // 2
        back = len(mapping) % 2 == 0 and mapping == mapping[::-1] and len(set(mapping)) == half
        alone = once and len(mapping) % 2 == 0 and len(set(mapping)) == len(mapping)
        fit = [name for name in COMPUTING if (back if is_a_v(name) else alone if is_mirrored(name) else once)]
        fit = [name for name in fit if name != "interleaved_1f1b"]
        own["schedule"] = draw(st.sampled_from(["gpipe", *fit]))
    return own


def place(draw, stages, schedule):
    """Return an IPU for each stage: stages that share a variable, and only under schedules that allow it, share it."""
    mapping = list(draw(st.permutations(range(len(stages)))))
    if schedule == "Sequential" and draw(st.booleans()):
        return [0] * len(stages)
    for name in SHARED:
        users = [at for at, stage in enumerate(stages) if name in stage]
        homes = {mapping[at] for at in users}
        mapping = [mapping[users[0]] if ipu in homes else ipu for ipu in mapping]
    used = sorted(set(mapping))
    return [used.index(ipu) for ipu in mapping]


def run_layer(kind, name, h, seed):
    """A layer inside a stage."""
    if kind == "shared scale":
        return h * get_variable(name, SCALE)
    if kind == "shared product":
        return anp.tanh(anp.dot(h, get_variable(name, PRODUCT)))
    layer = KINDS["dense" if kind == "shared dense" else kind][0]
    if kind in ("convolution", "depthwise images"):
        h = anp.reshape(h, (*h.shape, 1))
    if kind == "gated":
        h = doubled(h)
    y = layers.layer(name, layer, h, seed=seed)
    return anp.reshape(y, y.shape[:3]) if kind in ("convolution", "depthwise images") else y


def stage_of(training, at):
    """The function of a stage; the last ends in the loss."""
    last = at == len(training.stages) - 1

    def stage(h, labels):
        for kind, name in training.stages[at]:
            h = run_layer(kind, name, h, training.seed)
        if not last:
            return h, labels
        logits = layers.layer("logits", Dense(CLASSES), anp.reshape(h, (BATCH, -1)), seed=training.seed)
        return layers.loss("cel", SoftmaxCrossEntropy(), logits, labels)

    return stage


def losses_of(weights, training, x, labels):
    """The losses of the unsplit model by formulas, on each of several micro-batches, with weights of its own."""
    h = x
    for kind, name in training.every:
        if kind == "shared scale":
            h = h * weights[name][:, None, None]
        elif kind == "shared product":
            h = anp.tanh(anp.matmul(h, weights[name][:, None]))
        else:
            formula = KINDS["dense" if kind == "shared dense" else kind][1]
            own = {key.partition("/")[2]: value for key, value in weights.items() if key.startswith(f"{name}/")}
            attention = ("Wq", "Wk", "Wv", "Wo", "bq", "bk", "bv", "bo", "Wp", "content_bias", "position_bias")
            order = ("W", "U", *attention, "b", "gamma", "beta")
            h = formula(h, *(own[key] for key in order if key in own))
    flat = anp.reshape(h, (*labels.shape, -1))
    return formulas.cross_entropy(anp.matmul(flat, weights["logits/W"]) + weights["logits/b"][:, None], labels)


def mapped(training, gradient, weight):
    if training.mapped == "decay":
        return gradient + 0.1 * weight
    return np.clip(gradient, *CLIP) if training.mapped == "clip" else gradient


def stepped(rule, weight, gradient, slots):
    """The weight after an update; ``slots`` are m, v and the count of updates."""
    if rule in ("sgd", "momentum", "nesterov"):
        slots[0] = (0 if rule == "sgd" else 0.75) * slots[0] + gradient
        return weight - RATE * (gradient + 0.75 * slots[0] if rule == "nesterov" else slots[0])
    if rule == "ftrl":
        return formulas.ftrl_weight(weight, gradient, slots, RATE, 0.01, 0.01, 0.1)
    if rule in SUMMED:
        formula, *numbers = SUMMED[rule]
        return weight - formula(gradient, slots, *numbers)
    slots[0], slots[1] = 0.9 * slots[0] + 0.1 * gradient, 0.999 * slots[1] + 0.001 * gradient**2
    slots[2] += 1
    first, second = 1 - 0.9 ** slots[2], 1 - 0.999 ** slots[2]
    if rule == "adam":
        return weight - RATE * np.sqrt(second) / first * slots[0] / (np.sqrt(slots[1]) + 0.01) - RATE * 0.1 * weight
    step = slots[0] / first / (np.sqrt(slots[1] / second) + 0.01) + 0.1 * weight
    lengths = np.linalg.norm(weight), np.linalg.norm(step)
    return weight - RATE * (lengths[0] / lengths[1] if all(lengths) else 1) * step


def plain_loop(training, weights, elements):
    """The losses of all micro-batches, replicas side by side, and the weights in the end."""
    weights = dict(weights)
    slots = {name: [np.zeros_like(array), np.zeros_like(array), 0] for name, array in weights.items()}
    count, replicas = training.count * training.serialization, training.replicas
    scale = 1 if training.reduction == "SUM" else 1 / count
    losses, stream = [], iter(elements)
    for _ in range(training.executions):
        x, labels = map(np.array, zip(*itertools.islice(stream, count * replicas), strict=True))
        of = partial(losses_of, training=training, x=x, labels=labels)
        each, gradients = formulas.losses_and_gradients(of, weights, len(x))
        losses += each.tolist()
        total = {
            name: scale / replicas * np.sum(mapped(training, np.asarray(gradients[name]), weight), axis=0)
            for name, weight in weights.items()
        }
        weights = {name: stepped(training.rule, array, total[name], slots[name]) for name, array in weights.items()}
    return losses, weights


def mapping(opt, function):
    """Do as MapGradientOptimizer does, in compute_gradients of a class of one's own."""

    class Mapping(IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            pairs = super().compute_gradients(loss, var_list, **kwargs)
            return [(function(gradient, variable.array), variable) for gradient, variable in pairs]

    return Mapping(opt)


def in_pipeline(training, elements):
    """The losses, the initial and the last weights of the simulated machine."""
    initial = {}

    def learn(loss):
        inner = RULES[training.rule]()
        apply = inner.apply_gradients

        def noting(grads_and_vars, global_step=None, name=None):
            pairs = list(grads_and_vars)
            if not initial:
                initial.update({variable.name: variable.numpy() for _, variable in pairs})
            apply(pairs, global_step, name)

        inner.apply_gradients = noting
        chain = [CrossReplicaOptimizer] if training.replicas > 1 else []
        if training.mapped:
            way = mapping if training.outside else MapGradientOptimizer
            chain.append(lambda opt: way(opt, lambda g, v: mapped(training, g, v)))
        for wrap in chain if training.outside else reversed(chain):
            inner = wrap(inner)
        return OptimizerFunctionOutput(inner, loss)

    config = IPUConfig()
    config.auto_select_ipus = training.replicas * (1 << max(training.mapping).bit_length())
    config.allow_recompute = training.recompute
    config.device_connection.enable_remote_buffers = True
    config.optimizations.minimum_remote_tensor_size = 1
    queue = IPUOutfeedQueue()
    asked = program_request._pipeline
    with mock.patch.object(program_request, "_pipeline", lambda *given: asked(*given) | training.own):
        found = run(training, elements, queue, learn, config)
    return np.ravel(queue.dequeue()[0]), initial, found.variables


def run(training, elements, queue, learn, config):
    return pipeline(
        [stage_of(training, at) for at in range(len(training.stages))],
        training.count,
        repeat_count=training.executions,
        batch_serialization_iterations=training.serialization,
        infeed_queue=IPUInfeedQueue(elements),
        outfeed_queue=queue,
        optimizer_function=learn,
        pipeline_schedule=PipelineSchedule[training.schedule],
        device_mapping=training.mapping,
        recomputation_mode=RecomputationMode.Auto,
        reduction_method=training.reduction,
        config=config,
        **training.sharding,
    )


@pytest.mark.parametrize("shard", SOME_SHARDS)
def test_a_pipeline_learns_what_the_formulas_do(shard):
    check_shard(shard, trainings(), check_training, examples=some(EXAMPLES))


def check_training(training):
    """Train in the machine and in the plain loop, and compare."""
    rng = np.random.default_rng(training.seed)
    total = training.count * training.serialization * training.replicas * training.executions
    elements = [  # each begins with a blank step
        (with_special_points(rng.normal(size=(BATCH, TIME, WIDTH))), rng.integers(0, CLASSES, BATCH))
        for _ in range(total)
    ]
    losses, initial, learned = in_pipeline(training, elements)
    expected, weights = plain_loop(training, initial, elements)
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(losses, expected, rtol=1e-10, atol=1e-12)
    assert learned.keys() == weights.keys()
    for name, array in learned.items():
        np.testing.assert_allclose(array, weights[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("mapped", ["decay", "clip"])
@pytest.mark.parametrize("schedule", [name for name in COMPUTING if is_mirrored(name)])
def test_gradients_of_a_stage_that_is_there_twice_are_mapped_one_by_one(schedule, mapped):
    stages = [[("attention", f"l{at}")] for at in range(4)]
    own = {"sync": "lock_step", "variables_on_host": False, "schedule": schedule}
    check_training(Training(stages, [0, 1, 2, 3], "Grouped", "adam", count=8, executions=1, mapped=mapped, own=own))


@slowest
def test_every_kind_and_option_is_drawn_together():
    """What the examples above hold: each kind of layer with replicas, with parts of the state, and with LAMB."""
    seen = set()
    for training in drawn(trainings(), examples=EXAMPLES):
        options = {
            training.rule,
            training.own.get("schedule", training.schedule),
            *training.own.values(),
            *(["variables_on_host"] if training.own["variables_on_host"] else []),
            *(name for name, on in training.sharding.items() if on),
        }
        options |= {"replicas"} if training.replicas > 1 else set()
        seen.update((kind, option) for kind, _ in training.every for option in options)
        if any(kind in SHARED for kind, _ in training.every):
            seen.update(("shared", option) for option in options)
    options = ["lamb", "adam", "replicas", "replicated_optimizer_state_sharding", "Grouped", "Sequential"]
    options += ["variables_on_host"]
    assert {(kind, option) for kind in [*KINDS, "shared"] for option in options} <= seen
    assert {(kind, "replicated_weight_sharding") for kind in KINDS} <= seen

"""Random trainings of every kind of layer, as scenarios, against a plain loop with autograd.

The loop shares no layer, loss or optimizer with ipusim, knows no stages, replicas or parts, and takes its
gradients of textbook formulas. Every layer keeps the form of what it gets, so that any may follow any.
"""

import itertools
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import strategies as st

from ipusim.runs.execute import execute
from tests import formulas
from tests.effort import slowest
from tests.formulas import with_special_points
from tests.random_runs import SOME_SHARDS, among, check_shard, drawn, some
from tests.scenarios import job_from
from tests.schedules import COMPUTING, is_a_v, is_halved, is_mirrored

EXAMPLES = 340

BATCH, TIME, WIDTH, CLASSES, RATE = 2, 3, 4, 3, 0.05
#: Norm of a variable's gradient of a micro-batch, about a half of what most have.
CLIP = 0.05
DECAY = 0.1
MAPS = {"": None, "decay": {"decay": DECAY}, "clip": {"clip_by_norm": CLIP}}
RULES = {
    "sgd": {"type": "sgd"},
    "momentum": {"type": "momentum", "momentum": 0.75},
    # A large epsilon: a gradient that is zero but for rounding must not be scaled up to a step.
    "adam": {"type": "adam", "epsilon": 0.01, "weight_decay": 0.1},
    "nesterov": {"type": "momentum", "momentum": 0.75, "nesterov": True},
    "rmsprop": {"type": "rmsprop", "decay": 0.75, "momentum": 0.5, "epsilon": 0.01, "centered": True},
    "adagrad": {"type": "adagrad", "initial_accumulator": 0.01, "epsilon": 0.01},
    "adadelta": {"type": "adadelta", "learning_rate": 1.0, "rho": 0.75, "epsilon": 0.01},
    "ftrl": {"type": "ftrl", "initial_accumulator": 0.01, "l1": 0.01, "l2": 0.1},
    "lamb": {"type": "lamb", "weight_decay": 0.1, "epsilon": 0.01},
}

#: Hypothesis draws the first of many most often: those that each kind of layer must meet come first, and again.
DRAWN_RULES = ("adam", "adam", "lamb", "lamb", "lamb", *sorted(RULES))

#: Formulas of steps over sums of squares, with the numbers of the rules above.
SUMMED = {
    "rmsprop": (formulas.rms_step, RATE, 0.75, 0.5, 0.01, True),
    "adagrad": (formulas.adagrad_step, RATE, 0.01, 0.01),
    "adadelta": (formulas.adadelta_step, 1.0, 0.75, 0.01),
}


def positive(z):
    """Numbers above 0, and 0 for others: blank steps, which meet biases of 0, have no slope."""
    return anp.where(z > 0, z, 0 * z)


def image(of):
    """A function of images as one of sequences: they get a channel, and lose it again."""
    return lambda h, *rest: anp.reshape(of(anp.reshape(h, (*h.shape, 1)), *rest), h.shape)


def squares(of):
    """A function of images of two rows as one of sequences: their elements become images, and sequences again."""
    return lambda h, *rest: anp.reshape(of(anp.reshape(h, (*h.shape[:-2], 2, TIME * WIDTH // 2, 1)), *rest), h.shape)


IMAGE, SQUARES, SEQUENCE = (
    {"type": "reshape", "target_shape": [TIME, WIDTH, 1]},
    {"type": "reshape", "target_shape": [2, TIME * WIDTH // 2, 1]},
    {"type": "reshape", "target_shape": [TIME, WIDTH]},
)
STEPS = {"units": WIDTH, "return_sequences": True}
#: Of each kind the layers of a scenario, of which the last but a change of form has the name, and the formula of all.
KINDS = {
    "dense": (
        [{"type": "dense", "units": WIDTH, "activation": "tanh"}],
        lambda h, W, b: anp.tanh(formulas.dense(h, W, b)),
    ),
    "rectified": (
        [{"type": "dense", "units": WIDTH, "activation": "relu"}],
        lambda h, W, b: positive(formulas.dense(h, W, b)),
    ),
    "lstm": ([{"type": "lstm", **STEPS}], formulas.lstm),
    "gru": ([{"type": "gru", **STEPS}], lambda *a: formulas.gru(*a, True)),
    "gru before": ([{"type": "gru", **STEPS, "reset_after": False}], lambda *a: formulas.gru(*a, False)),
    "augru": ([{"type": "augru", **STEPS}], lambda *a: formulas.gru(*a, True, attended=True)),
    "masked": ([{"type": "gru", **STEPS, "masked": True}], lambda *a: formulas.gru(*a, True, masked=True)),
    "attention": (
        [{"type": "multi_head_attention", "num_heads": 2}],
        lambda *a: formulas.attention(*a, 2, False),
    ),
    "relative": (
        [{"type": "relative_multi_head_attention", "num_heads": 2}],
        lambda *a: formulas.relative_attention(*a, 2),
    ),
    "causal": (
        [{"type": "multi_head_attention", "num_heads": 2, "causal": True}],
        lambda *a: formulas.attention(*a, 2, True),
    ),
    "convolution": (
        [IMAGE, {"type": "conv2d", "filters": 1, "kernel_size": [2, 3], "padding": "same"}, SEQUENCE],
        image(formulas.convolution),
    ),
    "sequence convolution": (
        [{"type": "conv1d", "filters": WIDTH, "kernel_size": 3, "padding": "same"}],
        formulas.convolution_1d,
    ),
    "depthwise images": (
        [IMAGE, {"type": "depthwise_conv2d", "kernel_size": [2, 3], "padding": "same"}, SEQUENCE],
        image(formulas.convolution),
    ),
    "depthwise": (
        [{"type": "conv1d", "filters": WIDTH, "kernel_size": 2, "padding": "same", "groups": WIDTH}],
        lambda *a: formulas.convolution_1d(*a, WIDTH),
    ),
    "layer norm": ([{"type": "layer_norm"}], formulas.layer_norm),
    "batch norm": ([{"type": "batch_norm"}], formulas.batch_norm),
    "windows": (
        [SQUARES, {"type": "window_attention", "num_heads": 2, "key_dim": 2, "window": 2, "shift": 1}, SEQUENCE],
        squares(partial(formulas.window_attention, heads=2, window=2, shift=1)),
    ),
    "blocks": (
        [SQUARES, {"type": "space_to_depth", "block_size": 2}, SEQUENCE],
        squares(lambda h: formulas.space_to_depth(h, 2)),
    ),
    "scaled": (
        [{"type": "squeeze_excite", "units": 2, "activation": "tanh"}],
        lambda *a: formulas.squeeze_excite(*a, axes=(-2,)),
    ),
    "gated": (
        [{"type": "dense", "units": 2 * WIDTH}, {"type": "glu"}],
        lambda h, W, b: formulas.glu(formulas.dense(h, W, b)),
    ),
}


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
    seed: int = 0
    recompute: bool = False
    serialization: int = 1
    sharding: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)
    system: dict = field(default_factory=dict)
    frozen: set = field(default_factory=set)

    @property
    def every(self):
        """All layers in a row: the unsplit model."""
        return [each for stage in self.stages for each in stage]


@st.composite
def trainings(draw):
    schedule = draw(among("Grouped", "Interleaved", "Sequential"))
    drawn = draw(st.lists(st.lists(among(*sorted(KINDS)), min_size=1, max_size=2), min_size=2, max_size=4))
    stages = [[(kind, f"l{at}_{place}") for place, kind in enumerate(stage)] for at, stage in enumerate(drawn)]
    mapping = (
        [0] * len(stages)
        if schedule == "Sequential" and draw(st.booleans())
        else [*draw(st.permutations(range(len(stages))))]
    )
    serialization = draw(st.integers(2, 3)) if schedule == "Sequential" and set(mapping) == {0} else 1
    overlap = {"Grouped": 2 * len(stages), "Interleaved": len(stages), "Sequential": 1}[schedule]
    shards = 1 << max(mapping).bit_length()
    replicas = draw(among(1, 2, 4 if shards == 1 else 2))
    sharding = {}
    system = {
        "host": {"framework": draw(among("popart", "popart", "tensorflow1"))},
        "minimum_sharded_elements": draw(among(1, 9)),
        "maximum_cross_replica_sum_buffer_size": draw(among(None, 0, 300, "all")),
    }
    own = others(draw, schedule, mapping)
    if own["variables_on_host"]:
        sharding["replicated_weight_sharding"] = False
    elif replicas > 1:
        sharding["offload_weight_update_variables"] = True
        sharding["replicated_optimizer_state_sharding"] = draw(st.booleans())
        sharding["replicated_weight_sharding"] = draw(st.booleans())
        if system["host"]["framework"] == "popart" and not sharding["replicated_weight_sharding"]:
            sharding["offload_weight_update_variables"] = draw(among(True, False, False))
    return Training(
        stages,
        mapping,
        schedule,
        draw(among(*DRAWN_RULES)),
        replicas,
        overlap * draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        "SUM" if serialization > 1 else draw(among("SUM", "MEAN", "RUNNING_MEAN")),
        draw(among(*MAPS)),
        draw(st.integers(0, 99)),
        not is_halved(own.get("schedule", schedule.lower())) and draw(st.booleans()),
        serialization,
        sharding,
        own,
        system,
        draw(st.just(set()) | st.sets(among(*(name for stage in stages for _, name in stage)))),
    )


def others(draw, schedule, mapping):
    """Return options that Graphcore does not have: how IPUs wait, who updates, and schedules of the GPU world."""
    own = {"sync": draw(among("lock_step", "point_to_point")), "overlap_copies": draw(st.booleans())}
    own["variables_on_host"] = draw(among(False, False, True))
    own["overlapped"] = draw(among("sum", "max", 20_000))
    if schedule != "Sequential" and draw(st.booleans()):
        to = draw(among("streaming_memory", "partner"))
        own["offload_activations"] = {"to": to, "keep": draw(st.integers(0, 1)), "buffers": draw(st.integers(1, 2))}
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


def layers_of(kind, name, frozen=()):
    """Return a kind's layers as a scenario writes them, with names; those of a frozen name do not learn."""
    found = [layer | ({"trainable": False} if name in frozen else {}) for layer in KINDS[kind][0]]
    names = {1: [name], 2: [f"{name}_in", name], 3: [f"{name}_in", name, f"{name}_out"]}[len(found)]
    return [{"name": each, **layer} for each, layer in zip(names, found, strict=True)]


def losses_of(weights, training, x, labels):
    """The losses of the unsplit model by formulas, on each of several micro-batches, with weights of its own."""
    h = x
    for kind, name in training.every:
        own = {
            key.partition("/")[2]: value for key, value in weights.items() if key.split("/")[0] in (name, f"{name}_in")
        }
        attention = ("Wq", "Wk", "Wv", "Wo", "bq", "bk", "bv", "bo", "Wp", "content_bias", "position_bias")
        gates = ("reduce/W", "reduce/b", "expand/W", "expand/b")
        order = ("W", "U", *attention, "b", "gamma", "beta", *gates)
        h = KINDS[kind][1](h, *(own[key] for key in order if key in own))
    flat = anp.reshape(h, (*labels.shape, -1))
    return formulas.cross_entropy(anp.matmul(flat, weights["logits/W"]) + weights["logits/b"][:, None], labels)


def mapped(training, gradients, weight):
    """The gradients of several micro-batches, each mapped by itself."""
    if training.mapped == "decay":
        return gradients + DECAY * weight
    if training.mapped == "clip":
        norms = np.sqrt(np.sum(gradients**2, axis=tuple(range(1, gradients.ndim)), keepdims=True))
        return gradients * (CLIP / np.maximum(norms, CLIP))
    return gradients


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
        weights = {
            name: array
            if name.split("/")[0].removesuffix("_in") in training.frozen
            else stepped(training.rule, array, total[name], slots[name])
            for name, array in weights.items()
        }
    return losses, weights


def scenario_of(training):
    """The training as a scenario, with data in a file beside it."""
    stages = [
        [layer for kind, name in stage for layer in layers_of(kind, name, training.frozen)] for stage in training.stages
    ]
    end = [{"name": "flat", "type": "flatten"}, {"name": "logits", "type": "dense", "units": CLASSES}]
    layers = [*itertools.chain(*stages), *end, {"name": "cel", "type": "softmax_cross_entropy"}]
    rule = {"learning_rate": RATE, **RULES[training.rule]}
    return {
        "system": {
            "name": "pod16",
            "auto_select_ipus": training.replicas * (1 << max(training.mapping).bit_length()),
            "enable_remote_buffers": True,
            "minimum_remote_tensor_size": 1,
            **training.system,
        },
        "data": {"type": "npz", "file": "data.npz", "shuffle": False},
        "model": {"layers": layers},
        "pipeline": {
            "schedule": training.schedule.lower(),
            "splits": [stage[0]["name"] for stage in stages[1:]],
            "device_mapping": training.mapping,
            "micro_batch_size": BATCH,
            "gradient_accumulation_count": training.count,
            "repeat_count": training.executions,
            "batch_serialization_iterations": training.serialization,
            "reduction_method": training.reduction,
            "allow_recompute": training.recompute,
            **training.sharding,
            **training.own,
        },
        "optimizer": rule if MAPS[training.mapped] is None else {**rule, "map_gradient": MAPS[training.mapped]},
        "precision": "float64",
        "seed": training.seed,
    }


def simulated(training, elements):
    """The losses, the initial and the last weights of the simulated machine."""
    x, labels = map(np.concatenate, zip(*elements, strict=True))
    with TemporaryDirectory() as folder:
        np.savez(Path(folder, "data.npz"), x=x, y=labels.astype(np.int32))
        job = job_from(scenario_of(training), Path(folder))
        workload = job.workload(0)
        stages = range(len(training.stages))
        initial = {name: array.copy() for at in stages for name, array in workload.initial_parameters(at).items()}
        learning = execute(job).learning
    return [each.loss for each in learning.losses], initial, learning.weights


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
    losses, initial, learned = simulated(training, elements)
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


def is_sharded_on_ipus(training):
    """Whether replicas update parts of variables whose state lies on their IPUs."""
    sharding = training.sharding
    on_ipus = not sharding.get("offload_weight_update_variables", True)
    return on_ipus and sharding["replicated_optimizer_state_sharding"]


@slowest
def test_every_kind_and_option_is_drawn_together():
    """What the examples above hold: each kind of layer with replicas, parts of the state and LAMB; updates in parts."""
    seen = set()
    for training in drawn(trainings(), examples=EXAMPLES):
        options = {
            training.rule,
            training.own.get("schedule", training.schedule),
            *(value for value in training.own.values() if not isinstance(value, dict)),
            *(["offload_activations"] if "offload_activations" in training.own else []),
            *(["variables_on_host"] if training.own["variables_on_host"] else []),
            *(name for name, on in training.sharding.items() if on),
        }
        options |= {"replicas"} if training.replicas > 1 else set()
        seen.update((kind, option) for kind, _ in training.every for option in options)
        seen |= {(training.rule, "sharded on IPUs")} if is_sharded_on_ipus(training) else set()
    options = ["lamb", "adam", "replicas", "replicated_optimizer_state_sharding", "Grouped", "Sequential"]
    options += ["variables_on_host", "offload_activations"]
    assert {(kind, option) for kind in KINDS for option in options} <= seen
    assert {(kind, "replicated_weight_sharding") for kind in KINDS} <= seen
    assert sum(option == "sharded on IPUs" for _, option in seen) >= 3

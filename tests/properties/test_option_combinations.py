"""Whole scenarios of random legal options: each runs, and learns what the unsplit model learns in a plain loop.

The loop shares no layer, loss or optimizer with ipusim, and its gradients are autograd's.
An option is one line of :func:`scenarios`; options that change no number are drawn beside those that do. What holds of
any run whatever it computes is held of these too, as they are drawn and run anyway.
"""

import csv
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.tracer import getval
from hypothesis import strategies as st

from ipusim.analysis.memory import memory_curves
from ipusim.machine.extent import most_cycles, most_spans
from ipusim.model.layers.dropout import Dropout
from ipusim.pipeline.footprint import footprint
from ipusim.runs.execute import execute
from ipusim.runs.session import Session
from tests import formulas
from tests.effort import slowest
from tests.formulas import with_special_points
from tests.random_runs import SHARDS, SOME_SHARDS, among, check_shard, some
from tests.run_checks import check_changes, check_explained, check_recorded, check_waterfall
from tests.scenarios import job_from
from tests.schedules import (
    COMPUTING,
    MEETING,
    goes_around,
    is_a_v,
    is_halved,
    is_mirrored,
    keys_of,
    multiple_of,
    options_of,
    ragged,
    takes_even_ipus,
    trains_only,
)

EXAMPLES = 640

TIME, WIDTH, SAMPLES = 3, 4, 13
ACTIVATIONS = {
    "identity": lambda z: z,
    "relu": lambda z: anp.where(z > 0, z, 0 * z),  # blank steps, which meet biases of 0, have no slope
    "tanh": anp.tanh,
    "sigmoid": lambda z: 1 / (1 + anp.exp(-z)),
}
INSIDE = ("Auto", "RecomputeAndBackpropagateInterleaved")
MODES = {
    "grouped": ("Auto", "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"),
    "interleaved": ("Auto", "RecomputeThenBackpropagate"),
    "sequential": INSIDE,
    "popart": INSIDE,
    **{name: INSIDE for name in COMPUTING if not is_halved(name)},
}
MOMENTUM, LEARNING_RATE = 0.75, 0.05
#: What takes as long as a run itself is held of some: of those of these seeds.
EXPLAINED, CHANGED, RECORDED = (1, 2), (3, 8), (7, 9)
#: The layers before those of rows, by their formulas.
FIRST = {
    "flatten": lambda layer, h: anp.reshape(h, (*h.shape[:2], -1)),
    "reshape": lambda layer, h: anp.reshape(h, (*h.shape[:2], *layer["target_shape"])),
    "lstm": lambda layer, h, **own: formulas.lstm(h, **own),
    "gru": lambda layer, h, **own: formulas.gru(
        h, **own, reset_after=layer["reset_after"], masked=layer["masked"], attended=layer["type"] == "augru"
    ),
    "layer_norm": lambda layer, h, **own: formulas.layer_norm(h, **own, epsilon=layer["epsilon"]),
    "batch_norm": lambda layer, h, **own: formulas.batch_norm(h, **own, epsilon=layer["epsilon"]),
    "glu": lambda layer, h: formulas.glu(h),
    "conv1d": lambda layer, h, **own: formulas.convolution_1d(h, **own, groups=layer["groups"]),
    "conv2d": lambda layer, h, **own: formulas.convolution(h, **own),
    "depthwise_conv2d": lambda layer, h, W, b: formulas.convolution(h, anp.swapaxes(W, -1, -2), b, groups=2),
    "conv2d_transpose": lambda layer, h, **own: formulas.transposed_convolution(h, **own, strides=layer["strides"]),
    "window_attention": lambda layer, h, **own: formulas.window_attention(
        h, *own.values(), heads=layer["num_heads"], window=layer["window"], shift=layer["shift"]
    ),
    "squeeze_excite": lambda layer, h, **own: formulas.squeeze_excite(
        h, *own.values(), axes=(-3, -2) if h.ndim == 5 else (-2,)
    ),
    "space_to_depth": lambda layer, h: formulas.space_to_depth(h, layer["block_size"]),
    "relative_multi_head_attention": lambda layer, h, **own: formulas.relative_attention(
        h, **own, heads=layer["num_heads"], causal=layer["causal"]
    ),
    "multi_head_attention": lambda layer, h, **own: formulas.attention(
        h, **own, heads=layer["num_heads"], causal=layer["causal"]
    ),
}
FIRST["augru"] = FIRST["gru"]
SEQUENCES = (
    "dense",
    "lstm",
    "gru",
    "augru",
    "multi_head_attention",
    "relative_multi_head_attention",
    "layer_norm",
    "batch_norm",
    "conv1d",
)
#: Layers of sequences and of images with optimizers that look at whole variables: rare unless drawn on purpose.
OF_IMAGES = (
    "conv2d",
    "depthwise_conv2d",
    "conv2d_transpose",
    "window_attention",
    "squeeze_excite",
    "space_to_depth",
)
PAIRS = [*product((*SEQUENCES, *OF_IMAGES), ("adam", "lamb"))]
#: Options by which replicas hold parts of weights, and of their optimizer's state.
PARTS = "replicated_weight_sharding", "replicated_optimizer_state_sharding"
#: IPUs of the largest device that is drawn of each machine.
LARGEST = {"c2_server": 16, "m2000": 4, "bow_pod16": 16, "free": 16}
#: How often a program sends its optimizer's values anew.
INTERVALS = "never", "every session run", "every 3 session runs"
#: IPUs of the largest machine of the same, over whose links hosts may sum up.
LARGEST_OF_LINKS = {"c2_server": 16, "m2000": 256, "bow_pod16": 256, "free": 64}


#: True three times out of four.
often = among(True, True, True, False)


def check_part(shard, check, *, examples):
    """Check a shard's part of so many scenarios, and some of each of its pairs of layer and optimizer."""
    check_shard(shard, scenarios(), check, examples=examples)
    for pair in PAIRS[shard::SHARDS]:
        check_shard(shard, scenarios(*pair), check, examples=examples // 8)


@st.composite
def layers(draw, first=None):
    """Return the hidden layers and the logits of a small classifier, with a first layer of some kind.

    Parameters have two elements at least: clipped to a norm, gradients of one would be of one size, which cancel, and
    LAMB tells a sum that is zero from one that is zero but for rounding.
    """
    if first is None:
        found = [*draw(st.lists(sequences(), max_size=3, unique_by=lambda layer: layer["name"]))]
    else:
        found = [draw(sequences(first))] if first in SEQUENCES else []
    if found and draw(st.booleans()):
        found.append({"name": "gated", "type": "glu"})
    if not found and (first is not None or draw(st.booleans())):
        found = draw(images(first))
    if draw(st.booleans()):
        sizes = dict.fromkeys(("conv", "depthwise", "windows", "excite", "blocks"), 16) | {"larger": 32, "joined": 48}
        elements = (sizes | {"gated": TIME * WIDTH // 2}).get(found[-1]["name"] if found else "", TIME * WIDTH)
        found.append({"name": "seen", "type": "reshape", "target_shape": [elements // 2, 2]})
    found.append({"name": "flatten", "type": "flatten"})
    for index in range(draw(st.integers(1, 4))):
        activation = draw(among(*sorted(ACTIVATIONS)))
        if draw(st.booleans()):
            layer = {"type": "dense", "units": draw(st.integers(2, 5)), "use_bias": draw(st.booleans())}
        else:
            layer = {"type": "activation"}
        found.append({"name": f"layer{index}", **layer, "activation": activation})
    if draw(st.booleans()):
        found.append({"name": "drop", "type": "dropout", "rate": draw(among(0.2, 0.5))})
    if draw(st.booleans()):
        found.append({"name": "before", "type": "activation", "activation": "tanh"})
        found += [
            {"name": f"again{index}", "type": "activation", "activation": draw(among(*sorted(ACTIVATIONS)))}
            for index in range(draw(st.integers(0, 2)))
        ]
        found.append({"name": "sum", "type": draw(among("add", "concatenate")), "from": "before"})
    found += draw(repeated())
    if draw(st.booleans()):
        branches = [
            [{"name": f"branch{index}", "type": "dense", "units": units, "activation": "tanh"}]
            for index, units in enumerate(draw(st.lists(st.integers(2, 3), min_size=2, max_size=3)))
        ]
        found.append({"name": "parallel", "type": "parallel", "branches": branches})
    return [*found, {"name": "logits", "type": "dense", "units": 3}]


def freeze(draw, model):
    """Freeze some layers, but for the logits and those that repeat, or all up to one of them."""
    free = [layer for layer in model[:-1] if not layer["name"].startswith(("time", "bent", "sum"))]
    first = draw(among(0, 0, 0, 1, 2, len(free)))
    for place in (*range(first), *draw(st.lists(among(*range(len(free))), max_size=2) if first else st.just([]))):
        free[place]["trainable"] = False


@st.composite
def images(draw, first=None):
    """Return layers of an image of two by four: of 16 elements, or twice as large, or that with its middle behind it.

    Of 16 elements, positions may attend to each other, channels be scaled or by themselves, or blocks become channels.
    """
    heads, shift = draw(st.integers(1, 2)), draw(among(1, 0))
    behind = {
        "depthwise": {"type": "depthwise_conv2d", "kernel_size": [2, draw(among(3, 1, 2))], "padding": "same"},
        "windows": {"type": "window_attention", "num_heads": heads, "window": 2, "shift": shift},
        "excite": {"type": "squeeze_excite", "units": draw(st.integers(2, 3)), "activation": "tanh"},
        "blocks": {"type": "space_to_depth", "block_size": 2},
    }
    kinds = {
        "conv2d": ("conv",),
        "depthwise_conv2d": ("depthwise",),
        "conv2d_transpose": ("larger", "joined"),
        "window_attention": ("windows",),
        "squeeze_excite": ("excite",),
        "space_to_depth": ("blocks",),
    }.get(first, ("conv", "larger", "joined", *behind))
    kind = draw(among(*kinds))
    window = {"filters": 2, "kernel_size": [draw(st.integers(2, 3)), draw(st.integers(1, 3))], "padding": "same"}
    if kind == "conv" or kind in behind:
        more = [{"name": kind, **behind[kind]}] if kind in behind else []
        return [{"name": "conv", "type": "conv2d", **window}, *more]
    larger = [{"name": "larger", "type": "conv2d_transpose", **window, "strides": [2, 1]}]
    if kind == "larger":
        return larger
    folded = {"name": "folded", "type": "reshape", "target_shape": [2, 4, 4]}
    return [*larger, folded, {"name": "joined", "type": "concatenate", "from": "larger", "crop": [2, 4]}]


@st.composite
def repeated(draw):
    """Return layers that come several times under numbered names, with a sum each time or without one, or none."""
    summed = draw(st.booleans())
    more = {"units": draw(st.integers(2, 4)), "activation": draw(among(*sorted(ACTIVATIONS)))}
    times = [
        [
            {"name": f"time{number}", "type": "dense", **more},
            {"name": f"bent{number}", "type": "activation", "activation": "tanh"},
            *([{"name": f"sum{number}", "type": "add", "from": f"time{number}"}] if summed else []),
        ]
        for number in range(draw(among(0, 0, 1, 2, 3)))
    ]
    return [layer for layers in times for layer in layers]


def in_short(layers):
    """Return a list of layers with those of :func:`repeated` as they repeat."""
    first = {"time0": "time", "bent0": "bent", "sum0": "sum"}
    once = [layer | {"name": first[layer["name"]]} for layer in layers if layer["name"] in first]
    if not once:
        return layers
    start = next(index for index, layer in enumerate(layers) if layer["name"] == "time0")
    end = start + sum(layer["name"][:-1] in first.values() for layer in layers)
    block = [layer | {"from": "time"} if layer["type"] == "add" else layer for layer in once]
    return [*layers[:start], {"repeat": (end - start) // len(once), "layers": block}, *layers[end:]]


@st.composite
def sequences(draw, kind=None):
    """Return a layer of sequences that keeps their form; options that change most come first, and so most often."""
    heads = {"num_heads": draw(among(2, 1)), "causal": draw(among(True, False))}
    kind = kind or draw(among(*SEQUENCES, "squeeze_excite"))
    steps = {"units": WIDTH, "return_sequences": True}
    gates = steps | {"reset_after": draw(st.booleans()), "masked": draw(among(True, False))}
    more = {
        "dense": {"units": WIDTH, "activation": draw(among(*sorted(ACTIVATIONS)))},
        "squeeze_excite": {"units": 2, "activation": "tanh"},
        "lstm": steps,
        "gru": gates,
        "augru": gates,
        "multi_head_attention": heads,
        "relative_multi_head_attention": heads,
        # A small one would blow up what rounding makes of few samples, and of elements that are nearly equal.
        "layer_norm": {"epsilon": 0.1},
        "batch_norm": {"epsilon": 0.1},
        "conv1d": {"filters": WIDTH, "kernel_size": draw(st.integers(1, 3)), "padding": "same"},
    }[kind]
    if kind == "conv1d":
        more["groups"] = draw(among(WIDTH, 1, 2))
    return {"name": f"first_{kind}", "type": kind, **more}


@st.composite
def scenarios(draw, first=None, optimizer=None):
    """Return a legal scenario as the mapping that YAML would give.

    It has a first layer of some kind and trains with some optimizer, where they are given.
    """
    model = draw(layers(first))
    freeze(draw, model)
    schedule = draw(among(*MEETING, *COMPUTING))
    names = [layer["name"] for layer in model if layer["name"] not in ("seen", "flatten") and layer is not model[0]]
    splits = sorted(draw(st.sets(among(*names), min_size=1, max_size=3)), key=names.index)
    if (is_a_v(schedule) or takes_even_ipus(schedule)) and len(splits) % 2 == 0:
        splits.pop()
    stages, training = len(splits) + 1, trains_only(schedule) or optimizer is not None or draw(often)
    mapping = places(draw, schedule, stages)
    ipus, rng = len(set(mapping)), draw(st.randoms(use_true_random=False))
    overlap = multiple_of(schedule, stages, ipus, training)
    count = ragged(rng, schedule, overlap * draw(st.integers(1, 2)), ipus)
    pipeline = {
        "schedule": schedule,
        "splits": splits,
        "device_mapping": list(mapping),
        "micro_batch_size": draw(st.integers(1, 4)),
        "gradient_accumulation_count": count,
        "repeat_count": draw(st.integers(1, 2)),
        **keys_of(options_of(rng, schedule, count, ipus)),
    }
    if training:
        accumulate(draw, pipeline, names)
        pipeline["allow_recompute"] = not is_halved(schedule) and draw(st.booleans())
        pipeline["recomputation_mode"] = draw(among(*MODES.get(schedule, ("Auto",))))
    free = synchronise(draw, pipeline)
    if (
        schedule not in ("single", *COMPUTING)
        and not free
        and splits[-2:] == ["parallel", "logits"]
        and draw(st.booleans())
    ):
        concurrent(draw, pipeline, len(model[-2]["branches"]), schedule == "interleaved" and training)
    machine = draw(among("bow_pod16", "m2000", "bow_pod16", "c2_server", "free"))
    shards = shards_of(pipeline["device_mapping"])
    scenario = {
        "system": {
            "name": machine,
            "selection_order": draw(among("AUTO", "ZIGZAG", "SNAKE", "HOOF")),
            "auto_select_ipus": shards * draw(among(2, 1, 4 if machine != "m2000" else 1)),
            "sync_replicas_independently": draw(st.booleans()),
            "maximum_cross_replica_sum_buffer_size": draw(among(None, 0, 100, "all")),
            "minimum_sharded_elements": draw(among(1, 8, 8192)),
            "enable_remote_buffers": machine in ("m2000", "bow_pod16") and draw(often),
        },
        "data": {
            "type": "synthetic",
            "shape": [2, 4, 1] if model[0]["type"].startswith("conv2d") else [TIME, WIDTH],
            "classes": 3,
            "samples": SAMPLES,
            "shuffle": draw(st.booleans()),
        },
        "model": {"layers": [*model, {"name": "cel", "type": "softmax_cross_entropy"}]},
        "pipeline": pipeline,
        "precision": "float64",
        "seed": draw(st.integers(0, 9)),
        "steps": draw(st.integers(1, 2)),
        "use_synthetic_data": draw(st.booleans()),
        "infeed": {"prefetch_depth": draw(among(1, 3, 255))},
        "outfeed": {"mode": draw(among("ALL", "LAST")), "buffer_depth": draw(st.integers(1, 4))},
    }
    place_on_hosts(draw, scenario)
    if schedule == "sequential" and draw(st.booleans()):
        serialize(draw, scenario, stages)
    if schedule == "grouped" and not free and draw(st.booleans()):
        pipeline["gradient_accumulation_count"] = 2 * overlap
        tiles, placed = draw(among(1, 64)), draw(st.booleans())
        scenario["system"]["io_tiles"] = {"num_io_tiles": tiles, "place_ops_on_io_tiles": placed}
    scenario["system"]["auto_select_ipus"] = min(scenario["system"]["auto_select_ipus"], LARGEST[machine])
    if draw(among(False, False, True)):
        scenario["disturbances"] = draw(disturbances(scenario["system"]))
    if draw(st.booleans()):
        scenario["outfeed"]["mode"] = "ALL"
        pipeline["accumulate_outfeed"] = True
    if training:
        pipeline["outfeed_mask"] = draw(st.sampled_from([None, [False, False], [True, False]]))
        place_variables(draw, scenario, often, optimizer)
    if draw(st.booleans()):
        measure(draw, pipeline, stages)
        return scenario
    for name in ("forward", "backward"):
        options = {"availableMemoryProportion": draw(among(1e-9, 0.6))}
        share = {"matmul_options": options | {"partialsType": draw(among(None, "half", "float"))}}
        pipeline[f"{name}_propagation_stages_poplar_options"] = draw(st.sampled_from([None, [share] * stages]))
    return scenario


@st.composite
def disturbances(draw, system):
    """Return one disturbance or more of a device that such a section describes; logical IPUs 0 and 1 share a cable."""
    ipus, cycle = st.integers(0, system["auto_select_ipus"] - 1), st.integers(0, 100_000)
    parts = among("infeed", "outfeed", "tables", "variables", "outside", "network", "program")
    kinds = [
        {"ipu": ipus, "slower": among(1, 1.3, 4), "from": cycle},
        {"ipu": ipus, "jitter": among("5 %", "30 %"), "seed": st.integers(0, 9)},
        {"host": parts, "slower": among(1.5, 3)},
        {"host": parts, "stall": cycle, "at": cycle},
        {"ipu": ipus, "lost": cycle, "restart": cycle, "checkpoint": among(0, 99), "spare": st.booleans()},
    ]
    if system["auto_select_ipus"] > 1:
        kinds.append({"link": st.just([0, 1]), "slower": among(1, 3), "delay": among(0, 500), "until": cycle})
    found = draw(st.lists(st.one_of(*map(st.fixed_dictionaries, kinds)), min_size=1, max_size=3))
    saved = {each["checkpoint"] for each in found if "lost" in each}
    return [each | ({"checkpoint": max(saved)} if "lost" in each else {}) for each in found]


def place_variables(draw, scenario, often, optimizer):
    """Say what updates variables, and where they lie: on IPUs, in their Streaming Memory, or on the host."""
    pipeline = scenario["pipeline"]
    remote = scenario["system"]["enable_remote_buffers"]
    if pipeline.get("batch_serialization_iterations", 1) == 1:
        moved = {"to": draw(among("partner", "streaming_memory" if remote else "partner")), "keep": draw(among(0, 1))}
        moved["buffers"] = draw(st.integers(1, 2))
        pipeline["offload_activations"] = draw(st.sampled_from([None, None, moved]))
    if remote:
        scenario["system"]["minimum_remote_tensor_size"] = draw(among("1 B", "64 B", "1 KiB"))
        pipeline["offload_weight_update_variables"] = draw(among(None, True, False))
        pipeline["offload_gradient_accumulation_buffers"] = draw(st.booleans())
        pipeline["replicated_weight_sharding"] = draw(among(True, None, True, False))
    by_popart = "framework" in scenario["system"]["host"]
    state, weights = (
        pipeline.get(option) for option in ("offload_weight_update_variables", "replicated_weight_sharding")
    )
    offloaded = remote and not by_popart if state is None else state
    if offloaded or (by_popart and (weights is False or not remote)):
        pipeline["replicated_optimizer_state_sharding"] = draw(often)
    scenario["optimizer"] = draw(optimizers(optimizer))
    of_ipus = "offload_weight_update_variables", "replicated_optimizer_state_sharding", "replicated_weight_sharding"
    if not any(pipeline.get(option) for option in of_ipus):
        pipeline["variables_on_host"] = draw(st.booleans())


def place_on_hosts(draw, scenario):
    """Say how fast hosts are, how many there are, and what sums up over them."""
    rates = "infeed", "host_fill", "outfeed", "host_drain", "network", "data_rate"
    host = {}
    if scenario["system"]["name"] != "free":
        host = draw(st.dictionaries(among(*rates), among("50 MB/s", "2 GB/s")))
        compiled = {"framework": draw(among("pytorch", "popart")), "updates_optimizer": draw(among(*INTERVALS))}
        valued = compiled | {"framework": "pytorch", "optimizer_values": draw(among(0, 3, 6))}
        host |= draw(st.sampled_from([{}, compiled, valued]))
    host["sum_over"] = draw(among("network", "links"))
    over_links = host["sum_over"] == "links"
    if not over_links or 2 * scenario["system"]["auto_select_ipus"] <= LARGEST_OF_LINKS[scenario["system"]["name"]]:
        host["count"] = draw(among(1, 2))
    scenario["system"]["host"] = host


def measure(draw, pipeline, stages):
    """Give each stage the cycles or times that were measured of it, instead of what is priced."""
    pipeline.pop("recomputation_checkpoints", None)
    mapping = pipeline.get("device_mapping", [0] * stages)
    cost = st.integers(0, 10**6) | among("1.2 ms", "3.7 us", "0.1 ns")
    halves = {"backward_input": cost, "backward_weights": cost}
    rows = st.fixed_dictionaries({"forward": cost}, optional={"backward": cost, "update": cost, **halves})
    count = sum(len(ipus) if isinstance(ipus, list) else 1 for ipus in mapping)
    pipeline["cycles"] = draw(st.lists(rows, min_size=count, max_size=count))
    for row in pipeline["cycles"]:
        if len(row.keys() & halves) == 1:  # of a whole that is longer, in whatever clock
            row["backward"] = 4 * 10**6


def places(draw, schedule, stages):
    """Return the IPU of each stage."""
    mapping = list(draw(st.permutations(range(stages))))
    if schedule == "single":
        return [0] * stages
    if schedule in ("grouped", "sequential", "sharded", "gpipe") and draw(st.booleans()):
        return draw(st.lists(st.integers(0, 2), min_size=stages, max_size=stages))
    if is_a_v(schedule):
        return mapping[: stages // 2] + mapping[: stages // 2][::-1]
    if goes_around(schedule) and stages == 4 and draw(often):
        return draw(st.sampled_from([[0, 1, 0, 1], [2, 0, 2, 0]]))
    if schedule in COMPUTING and stages > 2 and draw(st.booleans()):  # two stages in a row make one chunk
        return [mapping[0], mapping[0], *(mapping[1:2] * 2 if takes_even_ipus(schedule) else mapping[1:-1])]
    return mapping


def synchronise(draw, pipeline):
    """Draw a sync mode, or leave the schedule its own; return whether IPUs go on by themselves."""
    sync = draw(among("", "lock_step", "point_to_point"))
    if sync:
        pipeline["sync"] = sync
    if draw(st.booleans()):
        pipeline["overlap_copies"] = draw(st.booleans())
    if draw(st.booleans()):
        pipeline["overlapped"] = draw(among("max", "sum", 30_000))
    return sync == "point_to_point" or (pipeline["schedule"] in COMPUTING and not sync)


#: Optimizers that divide by what squares add up to, with their keys; an epsilon is large, as below.
SUMMED = {
    "rmsprop": {"decay": 0.75, "momentum": MOMENTUM, "epsilon": 0.01, "centered": True},
    "adagrad": {"initial_accumulator": 0.01, "epsilon": 0.01},
    "adadelta": {"rho": 0.75, "epsilon": 0.01},
    "ftrl": {"initial_accumulator": 0.01, "l1": 0.01, "l2": 0.1},
}


@st.composite
def optimizers(draw, kind=None):
    """Return an optimizer, and what it does to each micro-batch's gradients."""
    # Those that look at whole variables most often: with every layer, whatever else is drawn.
    kind = kind or draw(among("sgd", "momentum", "lars", *SUMMED, *["adam", "lamb"] * 6))
    # A large epsilon: a gradient that is zero but for rounding must not be scaled up to a step.
    moment = draw(st.sampled_from([None, "float64"]))
    adaptive = {"epsilon": 0.01, "weight_decay": 0.1, "first_moment": moment, "second_moment": moment}
    momentum = {"momentum": MOMENTUM, "nesterov": draw(st.booleans())}
    more = {"sgd": {}, "momentum": momentum, "lars": momentum | {"eeta": 0.5, "epsilon": 0.01}, **SUMMED}.get(
        kind, adaptive
    )
    clips = [None, {"clip_by_value": 0.02}, {"decay": 0.05}, {"decay": 0.01, "clip_by_norm": 0.05}]
    clip = draw(st.sampled_from(clips))
    return {"type": kind, "learning_rate": LEARNING_RATE, "map_gradient": clip, **more}


def accumulate(draw, pipeline, names):
    """Say how gradients are accumulated, and where activations are computed again from."""
    pipeline["reduction_method"] = draw(among("SUM", "MEAN", "RUNNING_MEAN"))
    pipeline["gradient_accumulation_dtype"] = draw(st.sampled_from(["float64", {"logits": "float64"}]))
    if not any(name.startswith(("sum", "joined")) for name in names):
        some = st.lists(among(*names), max_size=3, unique=True)
        pipeline["recomputation_checkpoints"] = draw(st.none() | some)


def serialize(draw, scenario, stages):
    """Let stages run several micro-batches in a row, on one IPU."""
    pipeline = scenario["pipeline"]
    pipeline["device_mapping"] = [0] * stages
    pipeline["batch_serialization_iterations"] = draw(st.integers(2, 3))
    pipeline.pop("schedule" if draw(st.booleans()) else "device_mapping")
    pipeline["reduction_method"] = "SUM"
    pipeline["offload_activations"] = draw(among(None, False))
    scenario["system"]["auto_select_ipus"] = draw(among(1, 2))


def concurrent(draw, pipeline, branches, apart):
    """Give each branch of the last stage but one an IPU; ``apart``: one that no other stage has."""
    mapping = pipeline["device_mapping"]
    free = sorted(set(range(4)) - ({*mapping[:-2], mapping[-1]} if apart else set()))
    if len(free) >= branches:
        mapping[-2] = draw(st.permutations(free))[:branches]


def shards_of(mapping):
    """Return the IPUs of a replica: a power of two."""
    return 1 << max(ipu for ipus in mapping for ipu in (ipus if isinstance(ipus, list) else [ipus])).bit_length()


def losses_of(weights, scenario, x, y, elements):
    """Return the mean cross entropy of the unsplit model on each of several micro-batches, with weights of its own."""
    h, made = x, {}
    for place, layer in enumerate(scenario["model"]["layers"][:-1]):
        name = layer["name"]
        if layer["type"] in FIRST:
            own = {key.partition("/")[2]: value for key, value in weights.items() if key.startswith(f"{name}/")}
            h = made[name] = FIRST[layer["type"]](layer, h, **own)
            continue
        if layer["type"] == "dropout":
            if "optimizer" in scenario:
                # Which elements fall is a draw for each micro-batch: the masks alone are the layer's.
                drop, ones = Dropout(layer["rate"]), np.ones_like(getval(h)[0])
                h = h * np.array(
                    [drop.forward({}, ones, (scenario["seed"], element, place))[0] for element in elements]
                )
            made[name] = h
            continue
        if layer["type"] == "add":
            h = made[name] = h + made[layer["from"]]
            continue
        if layer["type"] == "concatenate":
            earlier = made[layer["from"]]
            if "crop" in layer:  # of four rows the two in the middle
                earlier = earlier[..., 1:3, :, :]
            h = made[name] = anp.concatenate([h, earlier], axis=-1)
            continue
        if layer["type"] == "parallel":
            keys = [f"parallel/{inner['name']}" for (inner,) in layer["branches"]]
            h = anp.concatenate([anp.tanh(row(h, weights[f"{key}/W"], weights[f"{key}/b"])) for key in keys], axis=2)
            continue
        if layer["type"] == "dense":
            products = formulas.dense if h.ndim > 3 else row
            h = products(h, weights[f"{name}/W"], weights.get(f"{name}/b"))
        h = made[name] = ACTIVATIONS[layer.get("activation", "identity")](h)
    return formulas.cross_entropy(h, y)


def row(h, W, b=None):
    """Return a dense layer's products and sums."""
    return anp.matmul(h, W) + (0 if b is None else b[:, None])


def replicas_of(scenario):
    """Return how many replicas the devices of all hosts have."""
    shards = shards_of(scenario["pipeline"].get("device_mapping", [0]))
    return scenario["system"]["auto_select_ipus"] // shards * scenario["system"].get("host", {}).get("count", 1)


def count_of(scenario):
    """Return the micro-batches behind one weight update of a replica."""
    pipeline = scenario["pipeline"]
    return pipeline["gradient_accumulation_count"] * pipeline.get("batch_serialization_iterations", 1)


def plain_loop(scenario, weights, feed, losses_of):
    """Return the loss of every micro-batch, replicas side by side, and the weights at the end."""
    replicas = replicas_of(scenario)
    pipeline, optimizer = scenario["pipeline"], scenario.get("optimizer")
    count = count_of(scenario)
    frozen = {layer["name"] for layer in scenario["model"]["layers"] if not layer.get("trainable", True)}
    scale = 1 if pipeline.get("reduction_method") == "SUM" else 1 / count
    slots = {name: [np.zeros_like(array), np.zeros_like(array), 0] for name, array in weights.items()}
    losses = []
    for execution in range(pipeline["repeat_count"] * scenario["steps"]):
        total = {name: np.zeros_like(array) for name, array in weights.items()}
        elements = range(execution * count * replicas, (execution + 1) * count * replicas)
        x, y = map(np.array, zip(*map(feed.element, elements), strict=True))
        of = partial(losses_of, scenario=scenario, x=x, y=y, elements=elements)
        each, gradients = formulas.losses_and_gradients(of, weights, len(x))
        losses += each.tolist()
        for name, weight in weights.items():
            for gradient in gradients[name]:
                total[name] += scale * mapped(optimizer, gradient, weight) / replicas
        if optimizer:
            weights = {
                name: array if name.split("/")[0] in frozen else stepped(optimizer, array, total[name], slots[name])
                for name, array in weights.items()
            }
    return losses, weights


def mapped(optimizer, gradient, weight):
    """Return a micro-batch's gradient as it is accumulated."""
    how = (optimizer or {}).get("map_gradient") or {}
    gradient = gradient + how.get("decay", 0) * weight
    if "clip_by_value" in how:
        gradient = np.minimum(np.maximum(gradient, -how["clip_by_value"]), how["clip_by_value"])
    if "clip_by_norm" in how:
        gradient = gradient * min(1, how["clip_by_norm"] / max(np.linalg.norm(gradient), 1e-300))
    return gradient


def stepped(optimizer, weight, gradient, slots):
    """Return the weight after one update; ``slots`` are the optimizer's, and its count of updates."""
    rate = optimizer["learning_rate"]
    if optimizer["type"] == "ftrl":
        return formulas.ftrl_weight(weight, gradient, slots, rate, **SUMMED["ftrl"])
    if optimizer["type"] in SUMMED:
        step = {
            "rmsprop": formulas.rms_step,
            "adagrad": formulas.adagrad_step,
            "adadelta": formulas.adadelta_step,
        }
        return weight - step[optimizer["type"]](gradient, slots, rate, **SUMMED[optimizer["type"]])
    if optimizer["type"] == "lars":
        lengths = np.linalg.norm(weight), np.linalg.norm(gradient)
        rate *= 0.5 * lengths[0] / (lengths[1] + 0.01) if all(lengths) else 1
    if optimizer["type"] not in ("adam", "lamb"):
        slots[0] = optimizer.get("momentum", 0) * slots[0] + gradient
        return weight - rate * (gradient + MOMENTUM * slots[0] if optimizer.get("nesterov") else slots[0])
    slots[0], slots[1] = 0.9 * slots[0] + 0.1 * gradient, 0.999 * slots[1] + 0.001 * gradient**2
    slots[2] += 1
    if optimizer["type"] == "lamb":
        first, second = 1 - 0.9 ** slots[2], 1 - 0.999 ** slots[2]
        step = slots[0] / first / (np.sqrt(slots[1] / second) + 0.01) + 0.1 * weight
        lengths = np.linalg.norm(weight), np.linalg.norm(step)
        return weight - rate * (lengths[0] / lengths[1] if all(lengths) else 1) * step
    rate_now = rate * np.sqrt(1 - 0.999 ** slots[2]) / (1 - 0.9 ** slots[2])
    return weight - rate_now * slots[0] / (np.sqrt(slots[1]) + 0.01) - rate * 0.1 * weight


def sent(scenario, values):
    """Return those of all micro-batches' values that the outfeed's mode lets through."""
    count, replicas = count_of(scenario), replicas_of(scenario)
    if scenario["pipeline"].get("accumulate_outfeed"):
        return np.reshape(values, (-1, count, replicas)).sum(axis=1).ravel()
    if scenario["outfeed"]["mode"] == "ALL":
        return values
    a_step = count * scenario["pipeline"]["repeat_count"]
    return np.reshape(values, (-1, replicas_of(scenario)))[a_step - 1 :: a_step].ravel()


@pytest.mark.parametrize("shard", SOME_SHARDS)
def test_options_together_change_no_result(shard):
    check_part(shard, check_scenario, examples=some(EXAMPLES))


def check_scenario(scenario):
    """Run a drawn scenario, half of them on data with special points, and the plain loop from the same weights."""
    with TemporaryDirectory() as folder:
        if scenario["seed"] % 2:
            scenario = scenario | {"data": special_data(scenario, Path(folder))}
        experiment = job_from(scenario | {"model": {"layers": in_short(scenario["model"]["layers"])}}, Path(folder))
        result = check_learning(scenario, experiment, losses_of)
        check_memory(result)
        check_run(result, scenario["seed"])
        if scenario["seed"] in RECORDED:
            check_without_arithmetic(scenario, result.timeline, Path(folder))
        if "cycles" in scenario["pipeline"]:
            check_profile(scenario, experiment, Path(folder))


def special_data(scenario, folder):
    """Write a file of samples in place of a scenario's, every other of which begins with a blank step."""
    rng, pair = np.random.default_rng(scenario["seed"]), (2, *scenario["data"]["shape"])
    pairs = [with_special_points(rng.normal(size=pair)) for _ in range(0, SAMPLES, 2)]
    labels = rng.integers(0, scenario["data"]["classes"], SAMPLES).astype(np.int32)
    np.savez(folder / "data.npz", x=np.concatenate(pairs)[:SAMPLES], y=labels)
    return {"type": "npz", "file": "data.npz", "shuffle": scenario["data"]["shuffle"]}


def check_learning(scenario, experiment, losses_of):
    """Hold a run's losses and weights against those of the plain loop; return the run."""
    workload = experiment.workload(0)
    untrained = {}
    for stage in range(len(workload.stages)):
        untrained.update(workload.initial_parameters(stage))
    result = execute(experiment)
    losses, weights = plain_loop(scenario, untrained, workload.feed, losses_of)
    assert np.isfinite(losses).all()
    # Of a training that diverges, as some drawn ones do, gradients are sums in which large numbers cancel.
    near = max(1.0, max(losses) / 10)
    # An adaptive optimizer divides a gradient that is zero but for rounding by its epsilon.
    steep = max(1, LEARNING_RATE / scenario.get("optimizer", {}).get("epsilon", LEARNING_RATE))
    tolerance = {"rtol": 1e-12 * near, "atol": 1e-14 * near * steep}
    np.testing.assert_allclose([loss.loss for loss in result.learning.losses], sent(scenario, losses), **tolerance)
    assert result.learning.weights.keys() == weights.keys()
    for name, array in result.learning.weights.items():
        np.testing.assert_allclose(array, weights[name], **tolerance, err_msg=name)
    return result


@pytest.mark.parametrize("mapped", [{"decay": 0.1}, {"clip_by_norm": 0.05}], ids=str)
@pytest.mark.parametrize("schedule", [name for name in COMPUTING if is_mirrored(name)])
def test_gradients_of_a_stage_that_is_there_twice_are_mapped_one_by_one(schedule, mapped):
    names = [f"attention{at}" for at in range(4)]
    layers = [{"name": name, "type": "multi_head_attention", "num_heads": 2, "causal": False} for name in names]
    layers += [{"name": "flatten", "type": "flatten"}, {"name": "logits", "type": "dense", "units": 3}]
    pipeline = {"schedule": schedule, "sync": "lock_step", "splits": names[1:], "device_mapping": [0, 1, 2, 3]}
    counts = {"micro_batch_size": 2, "gradient_accumulation_count": 8, "repeat_count": 1, "reduction_method": "SUM"}
    optimizer = {"type": "adam", "learning_rate": LEARNING_RATE, "epsilon": 0.01, "weight_decay": 0.1}
    check_scenario(
        {
            "system": {"name": "bow_pod16", "auto_select_ipus": 4},
            "data": {"type": "synthetic", "shape": [TIME, WIDTH], "classes": 3, "samples": SAMPLES, "shuffle": False},
            "model": {"layers": [*layers, {"name": "cel", "type": "softmax_cross_entropy"}]},
            "pipeline": pipeline | counts,
            "optimizer": optimizer | {"map_gradient": mapped},
            "outfeed": {"mode": "ALL"},
            "precision": "float64",
            "seed": 1,
            "steps": 1,
        }
    )


def check_run(result, seed):
    """What is told of a run before it begins holds; of some also what is told of why it took so long, and by whom."""
    job, timeline = result.job, result.timeline
    if not job.system.disturbances:
        assert len(timeline) <= most_spans(job.plan, job.system, job.costs, job.executions)
        assert timeline.makespan_cycles <= most_cycles(job.plan, job.system, job.costs, job.executions)
    if seed in EXPLAINED:
        check_waterfall(job, timeline)
        check_explained(timeline)
    if seed in CHANGED:
        check_changes(job)


def check_without_arithmetic(scenario, timeline, folder):
    """Hold that the run takes the same time where nothing is computed, and that all of it is recorded."""
    job = job_from(scenario | {"numerics": "off"}, folder)
    alone = Session(job).run(job.executions)
    for one, other in zip(alone, timeline, strict=True):
        assert one == other
    check_recorded(alone)


def check_profile(scenario, job, folder):
    """Lay out the scenario with the same cycles in a file: it is the same program at the same cost."""
    listed = scenario["pipeline"]["cycles"]
    with (folder / "p.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({"stage"}.union(*listed)))
        writer.writeheader()
        writer.writerows({"stage": number, **row} for number, row in enumerate(listed))
    found = job_from({**scenario, "pipeline": {**scenario["pipeline"], "cycles": "p.csv"}}, folder)
    assert (found.program, found.costs) == (job.program, job.costs)


@slowest
def test_layers_optimizers_and_parts_are_drawn_together():
    """Among the examples above every layer meets replicas that store parts of weights and state, LAMB, and what moves.

    And enough of them are looked at for what takes long.
    """
    seen, on_ipus, examples = set(), set(), []
    for shard in range(SHARDS):
        check_part(shard, examples.append, examples=EXAMPLES)
    for scenario in examples:
        options = {scenario.get("optimizer", {}).get("type")}
        options |= {name for name in ("variables_on_host", "offload_activations") if scenario["pipeline"].get(name)}
        if replicas_of(scenario) > 1:
            parts = {name for name in PARTS if scenario["pipeline"].get(name)}
            options |= {"replicas", *parts}
            on_ipus |= options if PARTS[1] in parts and not scenario["system"]["enable_remote_buffers"] else set()
        seen.update((layer["type"], option) for layer in scenario["model"]["layers"] for option in options)
    kinds = {"dense", "activation", "dropout", "add", "concatenate", "parallel", *FIRST}
    options = {"lamb", "adam", "replicas", *PARTS, "variables_on_host", "offload_activations"}
    assert {(kind, option) for kind in kinds for option in options} <= seen
    assert {"sgd", "adam", "lamb"} <= on_ipus
    for seeds, fewest in ((EXPLAINED, 40), (CHANGED, 25), (RECORDED, 25)):
        assert sum(scenario["seed"] in seeds for scenario in examples) >= fewest


def check_memory(result):
    """Time rises, nothing is negative, nothing is alive at the end, and FIFOs lie within what is allocated."""
    for curve in memory_curves(result.timeline, footprint(result.job.plan, result.job.program, 0)):
        assert all(before <= after for before, after in pairwise(curve.time))
        assert curve.live_bytes.min() >= 0
        assert curve.live_bytes[0] == curve.live_bytes[-1] == 0
        assert curve.fifo_bytes.min() >= 0
        assert curve.fifo_bytes.max() <= curve.resident_bytes
        assert curve.fifo_bytes[-1] == 0

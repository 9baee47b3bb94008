"""Every public callable of the Python door with arguments that it does not take.

Each is refused with Graphcore's own text where it has one, else with a TypeError or a ValueError that names the
argument, the value and what would be right; nothing is taken without a word.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ipusim.errors import IpusimError
from ipusim.ipu import get_variable, layers
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, micro_batches, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientDescentOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
    Optimizer,
    Variable,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline
from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.losses import MeanSquaredError
from ipusim.model.learning import optimizers as core


class Strange:
    """An object whose text is known."""

    def __repr__(self):
        return "<strange>"


#: What is put in the place of every argument.
VALUES = {
    "None": None,
    "True": True,
    "False": False,
    "-1": -1,
    "0": 0,
    "1": 1,
    "huge": 2**70,
    "1.5": 1.5,
    "nan": math.nan,
    "infinite": math.inf,
    "complex": 1j,
    "text": "bogus",
    "empty text": "",
    "bytes": b"bogus",
    "empty list": [],
    "empty tuple": (),
    "list": ["bogus", Strange()],
    "ragged": [[1], [2, 3]],
    "empty dictionary": {},
    "dictionary": {"bogus": 1},
    "array": np.ones(3),
    "array of texts": np.array(["bogus"]),
    "class": Strange,
    "object": Strange(),
    "function": lambda: None,
}
NUMBERS = ("True", "False", "-1", "0", "1", "1.5", "nan", "infinite")
FUNCTIONS = ["class", "function"]
TRUTH = ("True", "False")


@dataclass(frozen=True)
class Argument:
    """An argument of a callable.

    Attributes:
        label: the callable's name.
        name: the argument's.
        call: calls it with a value in the argument's place.
        legal: names of the values that it takes.
        texts: Graphcore's own, where it has any, as one pattern.
        named: what ipusim's own messages call the argument.
    """

    label: str
    name: str
    call: Callable[[Any], object]
    legal: tuple[str, ...] = ()
    texts: str = "(?!)"
    named: str = ""


def of(label, function, given, **arguments):
    """Return the arguments of a function, each with its legal values, Graphcore's texts, and its name if another."""
    for name, (legal, *more) in arguments.items():

        def call(value, name=name):
            return function(**{key: make() for key, make in given.items() if key != name}, **{name: value})

        yield Argument(label, name, call, tuple(legal), *more)


def times_w(x):
    return x * get_variable("w", np.ones(3))


def identity(x):
    return x


def learn(loss):
    return OptimizerFunctionOutput(GradientDescentOptimizer(0.1), loss)


def feed():
    return IPUInfeedQueue(repeat([np.ones(3)]))


PIPELINE = {
    "computational_stages": lambda: [times_w, identity],
    "gradient_accumulation_count": lambda: 4,
    "infeed_queue": feed,
    "outfeed_queue": IPUOutfeedQueue,
    "optimizer_function": lambda: learn,
}
WANTS_OPTIONS = r"must be a list or a tuple of PipelineStageOptions objects|to be of type PipelineStageOptions, but got"
NO_REMOTE = (
    "the current configuration of the IPU devices does not support remote memory|^Current configuration of the IPU"
)
PIPELINE_ARGUMENTS = of(
    "pipeline",
    pipeline,
    PIPELINE,
    computational_stages=(
        (),
        "needs to be a list or a tuple|requires at least two computational stages|^When the pipeline stage is a list",
    ),
    gradient_accumulation_count=(
        (),
        "gradient_accumulation_count must be|The number of iterations of the pipeline must",
    ),
    gradient_accumulation_dtype=(("None",), "for variable 'w', got TypeError: <lambda>"),
    gradient_accumulation_for_captured_grads=(TRUTH,),
    repeat_count=(("1",),),
    batch_serialization_iterations=(("1",),),
    infeed_queue=(
        (),
        "^infeed_queue is not an instance of|failed on nothing: TypeError: times_w\\(\\) missing 1 required",
    ),
    outfeed_queue=((), "^outfeed_queue is not an instance of|but no outfeed_queue has been provided"),
    device_mapping=(("None",), "needs to be a list or a tuple|^Each stage must be mapped to an IPU"),
    pipeline_schedule=(("None",), "^The given pipeline_schedule is not a member of"),
    recomputation_mode=(("None",), "^The given recomputation_mode is not a member of"),
    forward_propagation_stages_poplar_options=(("None",), WANTS_OPTIONS),
    backward_propagation_stages_poplar_options=(("None",), WANTS_OPTIONS),
    weight_update_poplar_options=(("None",), WANTS_OPTIONS),
    offload_weight_update_variables=(("None", "False"), NO_REMOTE),
    replicated_optimizer_state_sharding=(("None", "False"), "optimizer state must be offloaded"),
    offload_activations=(("None", "False"), "^Activation offloading is only supported with"),
    offload_gradient_accumulation_buffers=(("None", "False"), NO_REMOTE),
    replicated_weight_sharding=(("None", "False"), "^Requested replicated weight sharding for"),
    offload_weights=(("None", *TRUTH),),
    continuous_weight_updates=(("False",), "^Continuous weight updates are currently not supported"),
    outfeed_loss=(TRUTH,),
    accumulate_outfeed=(TRUTH,),
    accumulate_outfeed_dtype=(("None",), "expected one dtype for all outputs, got a function"),
    outfeed_mask=(("None", "empty list", "empty tuple"), "the `outfeed_mask` has elements"),
    reduction_method=((), "^Cannot parse .* as one of GradientAccumulationReductionMethod"),
    name=(("None", "text", "empty text"),),
    config=(("None",),),
)


def train(**changes):
    return pipeline(**({key: make() for key, make in PIPELINE.items()} | changes))


def in_a_stage(function):
    """Return what calls ``function`` in the last stage, with arguments and the stage's input ``x``."""
    return lambda **given: train(computational_stages=[times_w, lambda x: function(**{"x": x} | given)])


def feeding(dataset):
    queue = IPUInfeedQueue(dataset)
    queue.take(0)
    queue.take(1)


def with_inputs(value):
    return train(computational_stages=[lambda c, x: times_w(x), identity], inputs=[value])


def mapped(result):
    """Train with a mapping function that returns ``result``."""
    optimizer = MapGradientOptimizer(GradientDescentOptimizer(0.1), lambda gradient, variable: result)
    train(optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss))


def variable():
    return Variable("w", np.ones(3), {})


def dataset():
    return Dataset(np.ones((4, 3)), np.zeros(4, np.int32), 2)


def setting(path):
    *places, name = path.split(".")

    def call(value):
        config = IPUConfig()
        setattr(operator.attrgetter(".".join(places))(config) if places else config, name, value)
        if name in {"auto_select_ipus", "select_ipus", "machine", "poplar_options"}:
            train(config=config)

    return call


OUTPUT = {"opt": lambda: GradientDescentOptimizer(0.1), "loss": lambda: np.float32(1)}
ORDINAL = "^Device ordinal must be"
OTHERS = [
    *of(
        "get_variable",
        in_a_stage(lambda x, **given: x * get_variable(**given)),
        {"name": lambda: "v", "initial": lambda: 1.0},
        name=(("text",),),
        initial=(
            [*NUMBERS, "array"],
            "could not be broadcast together with shapes",
            "variable 'v': expected an array of numbers",
        ),
        dtype=(("None",), "(?!)", "variable 'v': expected a(?: floating-point)? dtype"),
    ),
    *of(
        "layer",
        in_a_stage(layers.layer),
        {"name": lambda: "l", "of": lambda: Dense(2), "x": lambda: np.ones((4, 3))},
        name=(("text",),),
        of=((),),
        x=((), "^a dense layer needs an input of at least one axis"),
        seed=(("0", "1"),),
    ),
    *of(
        "loss",
        in_a_stage(layers.loss),
        {
            "name": lambda: "l",
            "of": MeanSquaredError,
            "x": lambda: np.ones((3, 1)),
            "labels": lambda: np.ones((3, 1)),
        },
        name=(("text",),),
        of=((),),
        x=((), "^mean squared error"),
        labels=((), "^mean squared error"),
        seed=(("0", "1"),),
    ),
    Argument(
        "stage",
        "of computational_stages",
        lambda stage: train(computational_stages=[times_w, stage]),
        (),
        "^When the pipeline stage is a list|failed on float64\\[3\\]: TypeError",
        "computational_stages",
    ),
    Argument(
        "IPU", "of device_mapping", lambda ipu: train(device_mapping=[0, ipu]), ("0", "1"), "(?!)", "device_mapping"
    ),
    Argument("input", "of inputs", with_inputs, (*NUMBERS, "array", "empty list", "empty tuple"), "(?!)", "inputs"),
    Argument("truth", "of outfeed_mask", lambda mask: train(outfeed_mask=[mask]), TRUTH, "(?!)", "outfeed_mask"),
    Argument(
        "result",
        "of gradient_accumulation_dtype",
        lambda dtype: train(gradient_accumulation_dtype=lambda variable: dtype),
        (),
        "(?!)",
        "gradient_accumulation_dtype",
    ),
    Argument(
        "result",
        "of optimizer_function",
        lambda result: train(optimizer_function=lambda loss: result),
        (),
        "(?!)",
        "optimizer_function",
    ),
    Argument("result", "of gradient_mapping_function", mapped, ("array",), "(?!)", "gradient_mapping_function"),
    Argument(
        "Pipeline.run",
        "inputs",
        lambda value: with_inputs(2.0).run([value]),
        NUMBERS,
    ),
    *of(
        "IPUInfeedQueue",
        IPUInfeedQueue,
        {"dataset": lambda: [np.ones(3)]},
        feed_name=(("None", "text", "empty text"),),
        device_ordinal=(("None", "0", "1", "huge"), ORDINAL),
        replication_factor=(("None", "1"),),
        data_to_prefetch=(("1",),),
        prefetch_depth=(("None", "1"), "^prefetch_depth must be"),
        optimise_latency=(TRUTH,),
    ),
    Argument(
        "IPUInfeedQueue",
        "dataset",
        feeding,
        ("array",),
        "^expected a dataset with elements, got none|^expected 1 arrays in each element",
    ),
    Argument(
        "IPUInfeedQueue",
        "element",
        lambda value: feeding([value] * 2),
        (*NUMBERS, "array", "dictionary"),
        "^Nested list/tuple",
        "dataset",
    ),
    *of(
        "repeat",
        lambda dataset: next(repeat(dataset)),
        {},
        dataset=(("list", "ragged", "array", "array of texts"), "^expected a dataset with elements each time"),
    ),
    *of(
        "micro_batches",
        lambda **given: next(micro_batches(**given)),
        {"dataset": dataset, "batch_size": lambda: 2},
        dataset=((),),
        batch_size=(("1",), "(?!)", "batch_size|micro-batch size"),
        seed=(("0", "1"),),
        shuffle=(TRUTH,),
    ),
    *of(
        "IPUOutfeedQueue",
        IPUOutfeedQueue,
        {},
        feed_name=(("None", "text", "empty text"),),
        outfeed_mode=(("None",), "^Expected `outfeed_mode` value to be of"),
        device_ordinal=(("None", "0", "1", "huge"), ORDINAL),
        replication_factor=(("None", "1"),),
        io_batch_size=(("1",),),
        buffer_depth=(("1", "huge"), "^Outfeed buffer depth cannot be less than 1"),
        optimise_latency=(TRUTH,),
    ),
    *of("IPUOutfeedQueue.dequeue", lambda **given: finished().dequeue(**given), {}, wait_for_completion=(TRUTH,)),
    *of("parse", GradientAccumulationReductionMethod.parse, {}, reduction_method=((), "^Cannot parse")),
    *of(
        "PipelineStageOptions",
        PipelineStageOptions,
        {},
        convolution_options=(("None", "empty dictionary", "dictionary"), "must be dictionary"),
    ),
    *of(
        "PipelineStageOptions",
        PipelineStageOptions,
        {},
        matmul_options=(("None", "empty dictionary", "dictionary"), "must be dictionary"),
    ),
    *of(
        "PipelineStageOptions",
        PipelineStageOptions,
        {},
        slice_options=(("None", "empty dictionary", "dictionary"), "must be dictionary"),
    ),
    *of(
        "GradientDescentOptimizer",
        GradientDescentOptimizer,
        {"learning_rate": lambda: 0.1},
        learning_rate=(("0", "1", "1.5", "huge"), "(?!)", "learning.rate"),
        use_locking=(TRUTH,),
        name=(("text",), "Must specify the optimizer name"),
    ),
    *of(
        "MomentumOptimizer",
        MomentumOptimizer,
        {"learning_rate": lambda: 0.1, "momentum": lambda: 0.9},
        learning_rate=(("0", "1", "1.5", "huge"), "(?!)", "learning.rate"),
        momentum=(("0", "1", "1.5", "huge"),),
        use_locking=(TRUTH,),
        name=(("text",), "Must specify the optimizer name"),
    ),
    *of(
        "CrossReplicaOptimizer",
        CrossReplicaOptimizer,
        {"opt": lambda: GradientDescentOptimizer(0.1)},
        opt=((),),
        name=(("None", "text"), "Must specify the optimizer name"),
    ),
    *of(
        "MapGradientOptimizer",
        MapGradientOptimizer,
        {"wrapped_optimizer": lambda: GradientDescentOptimizer(0.1), "gradient_mapping_function": lambda: max},
        wrapped_optimizer=((),),
        gradient_mapping_function=(FUNCTIONS,),
        name=(("None", "text"), "Must specify the optimizer name"),
    ),
    *of(
        "Optimizer",
        Optimizer,
        {"rule": lambda: core.SGD(0.1)},
        rule=((),),
        name=(("text",), "Must specify the optimizer name"),
    ),
    *of("Variable.assign", lambda **given: variable().assign(**given), {}, value=([*NUMBERS, "array"],)),
    *of("Variable.assign_add", lambda **given: variable().assign_add(**given), {}, delta=([*NUMBERS, "array"],)),
    *of("Variable.assign_sub", lambda **given: variable().assign_sub(**given), {}, delta=([*NUMBERS, "array"],)),
    *of(
        "OptimizerFunctionOutput",
        OptimizerFunctionOutput,
        OUTPUT,
        opt=((), "opt must be a TensorFlow Optimizer or"),
        loss=(("array",), "loss must be a TensorFlow Tensor object"),
        compute_gradients_args=(("None", "empty tuple"), "compute_gradients_args must be a tuple"),
        compute_gradients_kwargs=(
            ("None", "empty dictionary", "dictionary"),
            "compute_gradients_kwargs must be a dict",
        ),
        apply_gradients_args=(("None", "empty tuple"), "apply_gradients_args must be a tuple"),
        apply_gradients_kwargs=(("None", "empty dictionary", "dictionary"), "apply_gradients_kwargs must be a dict"),
        variables=(
            ("None", "empty list", "empty tuple"),
            "variables must be a tuple or list|variables may only be used with OptimizerV2",
        ),
        tape=(("None",), "tape must be a GradientTape"),
        gradient_capture_context=(("None",), "gradient_capture_context must be an"),
        captured_gradient_outfeed=(("None",), "captured_gradient_outfeed must be an instance of IPUOutfeedQueue"),
    ),
    *(
        Argument(f"IPUConfig.{path}", "", setting(path), tuple(legal), rf"Trying to set {path} to |{more}", path)
        for path, legal, more in [
            (
                "auto_select_ipus",
                (),
                "^Unsupported number of IPUs|^No IPU devices configured|^Trying to compile a graph",
            ),
            (
                "select_ipus",
                (),
                "^No IPU devices configured|has no device with id|^Trying to compile a graph for an IPU device",
            ),
            ("selection_order", (), "(?!)"),
            ("allow_recompute", TRUTH, "(?!)"),
            ("io_tiles.num_io_tiles", ("0", "1", "huge"), "(?!)"),
            ("io_tiles.place_ops_on_io_tiles", TRUTH, "(?!)"),
            ("io_tiles.available_memory_proportion", (), "(?!)"),
            ("device_connection.enable_remote_buffers", TRUTH, "(?!)"),
            ("device_connection.type", (), "(?!)"),
            ("device_connection.version", ("empty text",), "(?!)"),
            ("optimizations.minimum_remote_tensor_size", ("0", "1", "huge"), "(?!)"),
            (
                "matmuls.poplar_options",
                (),
                "^No IPU devices configured|expected no option but availableMemoryProportion",
            ),
            ("convolutions.poplar_options", (), "^No IPU devices|expected no option but availableMemoryProportion"),
            ("machine", (), "^No IPU devices configured|^unknown system"),
        ]
    ),
]


def finished():
    queue = IPUOutfeedQueue(IPUOutfeedMode.ALL)
    queue.connect([((), np.dtype(np.float32))])
    return queue


@pytest.mark.parametrize(
    "argument", [*PIPELINE_ARGUMENTS, *OTHERS], ids=lambda argument: f"{argument.label} {argument.name}"
)
def test_what_an_argument_does_not_take_is_refused_by_name(argument):
    wrong = {value: told for value in VALUES if (told := complaint(argument, value))}
    assert wrong == {}


def complaint(argument, value):
    """What is wrong with how an argument takes a value or refuses it: the name of what does not hold; or nothing."""
    given = VALUES[value]
    try:
        argument.call(given)
    except Exception as error:
        if value in argument.legal:
            return f"legal, but refused by {error!r}"
        text = str(error)
        if not (isinstance(error, TypeError | ValueError) and isinstance(error, IpusimError)):
            return f"refused by {error!r}, which is no such error of ours"
        if re.search(argument.texts, text):
            return None
        named = re.search(argument.named or rf"\b{argument.name}\b", text)
        whole = named and "expected" in text and any(part in text for part in quotes(given))
        return None if whole else f"refused by a text that does not say what was expected or given: {text}"
    return None if value in argument.legal else "taken"


def quotes(value):
    """What a message may quote of a value: itself or an element, as Python writes it or shortened; or its type."""
    parts = [value, *value] if isinstance(value, list | tuple | dict | np.ndarray) else [value]
    shapes = [np.shape(value)] if isinstance(value, np.ndarray) or value in ([], ()) else []
    return [f"got {part}" for part in (*(repr(part)[:20] for part in parts), type(value).__name__, *shapes)]

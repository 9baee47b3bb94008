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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.ipu import data, dataset_benchmark, get_variable, loops, summary_ops, utils
from ipusim.ipu.all_to_all_op import all_gather, all_to_all
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.cross_replica_ops import assume_equal_across_replicas, cross_replica_sum
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, micro_batches, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientDescentOptimizer,
    MapGradientOptimizer,
    MomentumOptimizer,
    Optimizer,
    Variable,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline
from ipusim.ipu.reduce_scatter_op import reduce_scatter
from ipusim.ipu.runtime import layers
from ipusim.ipu.runtime.function import function
from ipusim.ipu.runtime.options_table import ATTRIBUTES
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod
from ipusim.ipu.tensorflow.own_gradients import GradientTape
from ipusim.model.data.datasets import Dataset
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.losses import MeanSquaredError
from ipusim.model.learning import optimizers as core
from tests.effort import in_turn, sampled


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
EMPTY = ("empty list", "empty tuple")
#: What a collective takes: no truth values.
TENSORS = (*NUMBERS[2:], *EMPTY)
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


def in_a_loop(function):
    """Run a loop whose body calls a function of its loss and its variable."""

    def body():
        w = get_variable("w", np.ones(3))
        function((w * w).sum(), w)

    loops.repeat(1, body)


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


def optioned(function):
    """Return what calls a function that acts on a configuration, on a new one unless another is given."""
    return lambda opts=None, **given: function(IPUConfig() if opts is None else opts, **given)


def sets(name, beside=None, **legal):
    """Return the arguments of such a function, each with the values that it takes and Graphcore's texts."""
    function = getattr(utils, name)
    given = {key: (lambda value=value: value) for key, value in (beside or {}).items()}
    own = {
        argument: (
            values,
            rf"^{argument}: Trying to set {ATTRIBUTES.get(argument, '(?!)')} to |^`{argument}` must be ",
        )
        for argument, values in legal.items()
    }
    opts = Argument(name, "opts", lambda value: function(value, **{key: make() for key, make in given.items()}))
    return [opts, *of(name, optioned(function), given, **own)]


MAPPINGS = ("None", "empty dictionary", "dictionary")
NUMBER = ("0", "1", "huge")
OPTIONS = [
    *of(
        "create_ipu_config",
        utils.create_ipu_config,
        {},
        **{
            name: (TRUTH, rf"^{name}: Trying to set ")
            for name in (
                *("profiling", "enable_ipu_events", "use_poplar_text_report", "use_poplar_cbor_report"),
                *("enable_poplar_serialized_graph", "retain_control_dependencies", "disable_graph_outlining"),
                *("always_rearrange_copies_on_the_host", "merge_infeed_io_copies", "prefetch_data_streams"),
                "enable_experimental_remote_buffer_embedding",
            )
        },
        **{
            name: (NUMBER, rf"^{name}: Trying to set ")
            for name in (
                *("max_cross_replica_sum_buffer_size", "max_inter_ipu_copies_buffer_size"),
                *("max_scheduler_lookahead_depth", "max_scheduler_search_space_size"),
            )
        },
        profile_execution=(("None", "False"), "^`profile_execution` must be|^`profiling` is required"),
        report_every_nth_execution=(("0", "1"),),
        max_report_size=(("0", "1"),),
        report_directory=(("text", "empty text"),),
        scheduler_selection=(("empty text",), "^Could not convert|^scheduler_selection: Trying to set "),
        selection_order=((), "^selection_order: Trying to set "),
    ),
    *sets("auto_select_ipus", {"num_ipus": 2}, num_ipus=(*NUMBER, "-1", "empty list", "empty tuple")),
    *sets("select_ipus", {"indices": [2]}, indices=("empty list", "empty tuple")),
    *sets("set_compilation_options", compilation_options=MAPPINGS),
    *sets("set_convolution_options", convolution_options=MAPPINGS),
    *of(
        "set_experimental_multi_replica_distribution_options",
        optioned(utils.set_experimental_multi_replica_distribution_options),
        {"process_count": lambda: 1, "process_index": lambda: 0},
        process_count=(("1",), "^0 <= process_index < process_count$"),
        process_index=(("0",), "^0 <= process_index < process_count$"),
    ),
    *sets("set_floating_point_behaviour_options", **dict.fromkeys(("inv", "div0", "oflo", "esr", "nanoo"), TRUTH)),
    *sets("set_gcl_options", {"gcl_options": {}}, gcl_options=MAPPINGS[1:]),
    *sets(
        "set_io_tile_options",
        {"num_io_tiles": 4},
        num_io_tiles=NUMBER,
        place_ops_on_io_tiles=("None", *TRUTH),
        io_tile_available_memory_proportion=(),
    ),
    *sets("set_ipu_connection_type", connection_type=(), ipu_version=("empty text", "1"), enable_remote_buffers=TRUTH),
    *sets("set_ipu_model_options", compile_ipu_code=TRUTH, tiles_per_ipu=("None", *NUMBER), ipu_model_version=()),
    *sets("set_matmul_options", matmul_options=MAPPINGS, clear_pass_type=TRUTH),
    *sets(
        "set_norm_options",
        use_stable_statistics=TRUTH,
        experimental_distributed_batch_norm_replica_group_size=("1", "huge"),
    ),
    *sets(
        "set_optimization_options",
        **dict.fromkeys(
            ("combine_embedding_lookups", "combine_matmuls", "gather_simplifier", "enable_fast_math"), TRUTH
        ),
        **dict.fromkeys(
            (
                *(f"max_{name}_size" for name in ("cross_replica_sum_buffer", "reduce_scatter_buffer")),
                *("max_inter_ipu_copies_buffer_size", "max_send_recv_cluster_size", "minimum_remote_tensor_size"),
                *("triangular_solve_expander_block_size", "cholesky_block_size"),
            ),
            NUMBER,
        ),
        merge_remote_buffers=(),
    ),
    *sets("set_pooling_options", pooling_options=MAPPINGS),
    *sets("set_recomputation_options", allow_recompute=TRUTH),
    *sets("set_serialization_options", output_folder=("text", "empty text")),
    *(
        argument
        for name, found in {
            "set_report_options": {"graph_options": MAPPINGS, "execution_options": MAPPINGS},
            "set_transfer_options": {"use_verified_transfers": TRUTH},
            "set_verification_options": {"verification_options": ()},
        }.items()
        for argument in of(
            name,
            optioned(getattr(utils, name)),
            {},
            **{each: (legal, rf"^`{each}` must be ") for each, legal in found.items()},
        )
    ),
]


def exporting(**given):
    with TemporaryDirectory() as folder:
        utils.export_inputs_to_file(**{"output_filename": Path(folder) / "file"} | given)


NUMBERED = {"number_of_epochs": lambda: 1, "elements_per_epochs": lambda: 1, "print_stats": lambda: False}
AT_LEAST = "^Expected `{}` to be at least 1.$"
HOST_PIPELINE = [
    *of("use_synthetic_data_for", utils.use_synthetic_data_for, {}, synthetic_data_category=((),)),
    *of(
        "dataset_benchmark",
        lambda **given: dataset_benchmark.dataset_benchmark(**given).numpy(),
        {"dataset": lambda: data.Dataset.range(3), **NUMBERED},
        dataset=((), "^Expected `dataset` argument to be of type"),
        **{name: (("1",), AT_LEAST.format(name) + "|reached the end of") for name in list(NUMBERED)[:2]},
        apply_options=(TRUTH,),
        do_memcpy=(TRUTH,),
        print_stats=(TRUTH,),
    ),
    *of(
        "infeed_benchmark",
        dataset_benchmark.infeed_benchmark,
        {"infeed_queue": lambda: IPUInfeedQueue([np.ones(3)]), **NUMBERED},
        infeed_queue=((), "^Expected `infeed_queue` argument to be of type"),
        **{name: (("1", "huge"), AT_LEAST.format(name)) for name in list(NUMBERED)[:2]},
        do_memcpy=(TRUTH,),
        print_stats=(TRUTH,),
    ),
    *of(
        "BufferDataset",
        data.ops.dataset_ops.BufferDataset,
        {"input_dataset": lambda: data.Dataset.range(3), "buffer_size": lambda: 2},
        input_dataset=((),),
        buffer_size=(("1", "huge"), "^Buffer size must be greater than zero"),
    ),
    *of(
        "export_dataset_to_file",
        utils.export_dataset_to_file,
        {
            "dataset_or_infeed": lambda: data.Dataset.range(0),
            "output_filename": lambda: "unwritten",
            "num_elements": lambda: 1,
        },
        dataset_or_infeed=((),),
        output_filename=((), "^The dataset iterator has reached the end"),
        num_elements=((), "^Expected `num_elements` to be at least 1|^The dataset iterator has reached the end"),
        feed_name=((), "^The dataset iterator has reached the end"),
        apply_options=((), "^The dataset iterator has reached the end"),
    ),
    *of(
        "export_inputs_to_file",
        exporting,
        {"inputs": lambda: [None], "feed_dict": dict},
        inputs=(("empty list", "empty tuple", "ragged"),),
        output_filename=((), r"^inputs\[0\]: expected an array or a number, got None"),
        feed_dict=((), r"^inputs\[0\]: expected an array or a number, got None"),
    ),
    *(
        argument
        for name in ("all_events", "all_strings_from_event_trace", "all_types_from_event_trace", "compile_reports")
        for argument in of(
            f"extract_{name}", getattr(utils, f"extract_{name}"), {}, events=(("empty list", "empty tuple"),)
        )
    ),
    *of(
        "ipu_compile_summary",
        summary_ops.ipu_compile_summary,
        {"name": lambda: "n", "op_list": list},
        name=(("text", "empty text"),),
        op_list=(("empty list", "empty tuple"),),
        collections=(("None", "empty list", "empty tuple", "list", "ragged"),),
    ),
    *of(
        "tensor_summary",
        summary_ops.tensor_summary,
        {"name": lambda: "n", "tensor": lambda: 1.0},
        name=(("text", "empty text"),),
        tensor=(("True", "False", "-1", "0", "1", "1.5", "nan", "infinite", "array", "empty list", "empty tuple"),),
        **dict.fromkeys(("summary_description", "family", "display_name"), (("None", "text", "empty text"),)),
    ),
]
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
        "cross_replica_sum",
        in_a_stage(cross_replica_sum),
        {},
        x=([*TENSORS, "array"],),
        replica_group_size=(("None", "1"),),
    ),
    *of(
        "assume_equal_across_replicas",
        in_a_stage(lambda x, **given: x * assume_equal_across_replicas(**({"tensors": 1.0} | given))),
        {},
        inplace=(TRUTH,),
    ),
    *of(
        "all_gather",
        in_a_stage(all_gather),
        {"replication_factor": lambda: 1},
        x=([*TENSORS, "array"],),
        replication_factor=(("1",),),
    ),
    *of(
        "all_to_all",
        in_a_stage(all_to_all),
        {"split_dimension": lambda: 0, "concat_dimension": lambda: 0, "replication_factor": lambda: 1},
        x=(["array", *EMPTY], "split_dimension: expected a dimension of a tensor of rank 0, got 0$"),
        split_dimension=(("0",),),
        concat_dimension=(("0",),),
        replication_factor=(("1",),),
    ),
    *of(
        "reduce_scatter",
        in_a_stage(reduce_scatter),
        {"replication_factor": lambda: 1},
        x=(["array", *EMPTY], r"x: expected a tensor of rank 1, got \(\)$"),
        replication_factor=(("1",),),
        op=((),),
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
    *of(
        "IPUStrategy.run",
        lambda **given: IPUStrategy().run(**given),
        {"fn": lambda: lambda *_, **__: None},
        fn=(("class", "function"),),
        args=(("empty list", "empty tuple", "list", "ragged"),),
        kwargs=(("None", "empty dictionary", "dictionary"),),
    ),
    *of("GradientTape", GradientTape, {}, persistent=(TRUTH,), watch_accessed_variables=(TRUTH,)),
    *of("tf.function", function, {}, func=(("None", "class", "function"),)),
    *of(
        "GradientTape.gradient",
        lambda **given: in_a_loop(lambda loss, w: GradientTape().gradient(**({"target": loss, "sources": w} | given))),
        {},
        target=(("array",),),
        sources=(
            ("empty list", "empty tuple", "empty dictionary"),
            "^sources: expected variables, as .*got (1$|.bogus)",
        ),
        output_gradients=(("None",),),
    ),
    *of(
        "GradientTape.watch",
        lambda **given: in_a_loop(lambda *_: GradientTape().watch(**given)),
        {},
        tensor=(("empty list", "empty tuple"),),
    ),
    *of(
        "apply_gradients in a loop",
        lambda **given: in_a_loop(lambda *_: GradientDescentOptimizer(0.1).apply_gradients(**given)),
        {},
        grads_and_vars=((), "^No variables provided"),
    ),
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


@sampled(2)
@pytest.mark.parametrize(
    "argument",
    [*PIPELINE_ARGUMENTS, *OTHERS, *OPTIONS, *HOST_PIPELINE],
    ids=lambda argument: f"{argument.label} {argument.name}",
)
def test_what_an_argument_does_not_take_is_refused_by_name(argument):
    """Arguments get one half of the values or the other by default."""
    values = in_turn([*VALUES], argument.label + argument.name)
    wrong = {value: told for value in values if (told := complaint(argument, value))}
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

"""Every public callable of the Python door with arguments that it does not take.

Each is refused with Graphcore's own text where it has one, else with a TypeError or a ValueError that names the
argument, the value and what would be right; nothing is taken without a word. Values of tensors are TensorFlow's.
"""

import inspect
import itertools
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.runs.request.graphcore_options import OTHER_ATTRIBUTES
from tests.effort import in_turn
from tests.programs import needs_tensorflow

needs_tensorflow(at_import=True)

from ipusim.ipu import dataset_benchmark, optimizers, summary_ops, utils  # noqa: E402 - which needs TensorFlow
from ipusim.ipu import horovod as hvd  # noqa: E402 - as above
from ipusim.ipu.all_to_all_op import all_gather, all_to_all  # noqa: E402 - as above
from ipusim.ipu.config import IPUConfig, VerificationOptions  # noqa: E402 - as above
from ipusim.ipu.cross_replica_ops import assume_equal_across_replicas, cross_replica_sum  # noqa: E402 - as above
from ipusim.ipu.graph.tensorflow_import import load  # noqa: E402 - as above
from ipusim.ipu.host_strategies import (  # noqa: E402 - as above
    IPUHorovodStrategy,
    IPUMultiReplicaStrategy,
    IPUMultiWorkerStrategy,
)
from ipusim.ipu.ipu_compiler import compile as compiled  # noqa: E402 - as above
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_strategy import IPUStrategy  # noqa: E402 - as above
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline  # noqa: E402 - as above
from ipusim.ipu.reduce_scatter_op import reduce_scatter  # noqa: E402 - as above
from ipusim.ipu.runtime import distribute  # noqa: E402 - as above
from ipusim.ipu.runtime.options_table import ATTRIBUTES, WITHOUT_EFFECT  # noqa: E402 - as above
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod  # noqa: E402 - as above
from tests.unit.ipu.test_ipu_options import arguments_in  # noqa: E402 - as above

tf = load().compat.v1


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


def of(label, *rest, **arguments):
    """Return the arguments of a function, each with its legal values, Graphcore's texts, and its name if another.

    Args:
        label: the function, or its label before it.
        rest: what makes its other arguments, by name.
        arguments: legal values and texts by the argument's name.
    """
    function, given = (label, *rest) if callable(label) else rest
    label = label.__name__ if callable(label) else label
    for name, (legal, *more) in arguments.items():

        def call(value, name=name):
            return function(**{key: make() for key, make in given.items() if key != name}, **{name: value})

        yield Argument(label, name, call, tuple(legal), *more)


def times_w(x=1.0):
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return x * tf.get_variable("w", [3], initializer=tf.ones_initializer())


def identity(x):
    return x


def sgd():
    return tf.train.GradientDescentOptimizer(0.1)


def learn(loss):
    return OptimizerFunctionOutput(sgd(), loss)


def dataset(*elements):
    return tf.data.Dataset.from_tensors(elements or np.ones(3, np.float32)).repeat()


def feed(**arguments):
    return IPUInfeedQueue(dataset(), **arguments)


def fetched(fetches, *first):
    with tf.Session() as session:
        session.run(first)
        return session.run(fetches)


PIPELINE = {
    "computational_stages": lambda: [times_w, identity],
    "gradient_accumulation_count": lambda: 4,
    "infeed_queue": feed,
    "outfeed_queue": IPUOutfeedQueue,
    "optimizer_function": lambda: learn,
}


def pipeline_with(**changes):
    """Return the arguments of a small pipeline that trains, but for changes."""
    return {key: make() for key, make in PIPELINE.items() if key not in changes} | changes


def train(**changes):
    """Train a pipeline for an execution, in a session."""
    given = pipeline_with(**changes)
    program = compiled(lambda: pipeline(**given))
    queue = given["infeed_queue"]
    fetched(program, tf.global_variables_initializer(), *([] if queue is None else [queue.initializer]))


#: Texts of options of each stage, ``{}`` being the argument.
WANTS_OPTIONS = (
    r"^{0} must be a list or a tuple of PipelineStageOptions objects( of length 2 .+)?\.$|"
    r"^Expected all elements of {0} to be of type PipelineStageOptions, but got .* instead\.$"
)
PIPELINE_ARGUMENTS = of(
    "pipeline",
    train,
    {},
    computational_stages=(
        (),
        r"^computational_stages argument needs to be a list or a tuple\.$|"
        r"^Pipeline requires at least two computational stages\.$|^When the pipeline stage is a list",
    ),
    gradient_accumulation_count=(
        (),
        "gradient_accumulation_count must be|The number of iterations of the pipeline must",
    ),
    gradient_accumulation_dtype=(("None",), "for variable 'w', got TypeError: <lambda>"),
    gradient_accumulation_for_captured_grads=(TRUTH,),
    repeat_count=(("1",),),
    batch_serialization_iterations=(("1",),),
    infeed_queue=(("None",), r"^infeed_queue is not an instance of ipu_infeed_queue\.IPUInfeedQueue$"),
    outfeed_queue=(
        (),
        r"^outfeed_queue is not an instance of ipu_outfeed_queue\.IPUOutfeedQueue$|no outfeed_queue has been provided",
    ),
    device_mapping=(
        ("None",),
        r"^device_mapping argument needs to be a list or a tuple\.$|^Each stage must be mapped to an IPU",
    ),
    pipeline_schedule=(
        ("None",),
        r"^The given pipeline_schedule is not a member of the PipelineSchedule enumeration\.$",
    ),
    recomputation_mode=(
        ("None",),
        r"^The given recomputation_mode is not a member of the RecomputationMode enumeration\.$",
    ),
    **{
        name: (("None",), WANTS_OPTIONS.format(name))
        for name in ("forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options")
    },
    weight_update_poplar_options=(
        ("None",),
        r"^weight_update_poplar_options to be of type PipelineStageOptions, but got .* instead\.$",
    ),
    offload_weight_update_variables=(("None", *TRUTH),),
    replicated_optimizer_state_sharding=(("None", "False"), "optimizer state must be offloaded"),
    offload_activations=(("None", "False"), "^Activation offloading is only supported with"),
    offload_gradient_accumulation_buffers=(("None", *TRUTH),),
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


def in_a_stage(function):
    """Return what calls ``function`` in the last stage, with arguments and the stage's input ``x``."""
    return lambda **given: train(computational_stages=[times_w, lambda x: function(**{"x": x} | given)])


def mapped(result):
    """Train with a mapping function that returns ``result``."""
    optimizer = optimizers.MapGradientOptimizer(sgd(), lambda gradient, variable: result)
    train(optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss))


def setting(path, *, runs=False):
    """Return what sets an attribute, and checks the configuration or trains with it."""
    *places, name = path.split(".")

    def call(value):
        config = IPUConfig()
        setattr(operator.attrgetter(".".join(places))(config) if places else config, name, value)
        if runs and name in {"auto_select_ipus", "select_ipus", "machine", "poplar_options"}:
            train(config=config)
        elif not runs:
            config.check()

    return call


MAPPINGS = ("None", "empty dictionary", "dictionary")
NUMBER = ("0", "1", "huge")
TEXTS = ("text", "empty text")
#: Values that functions of releases up to SDK 2.1 take for an argument: by the type of its attribute, or by its name.
BY_TYPE = {"bool": TRUTH, "int": NUMBER, "dict": MAPPINGS}
BY_NAME = {
    "num_ipus": (*NUMBER, "-1", "empty list", "empty tuple"),
    "indices": ("empty list", "empty tuple"),
    "process_count": ("1",),
    "process_index": ("0",),
    "gcl_options": MAPPINGS[1:],
    "place_ops_on_io_tiles": ("None", *TRUTH),
    "tiles_per_ipu": ("None", *NUMBER),
    "experimental_distributed_batch_norm_replica_group_size": ("1", "huge"),
    "ipu_version": ("empty text", "1"),
    "scheduler_selection": ("empty text",),
    "profile_execution": ("None", "False"),
    **dict.fromkeys(("report_every_nth_execution", "max_report_size"), NUMBER[:2]),
    **dict.fromkeys(("output_folder", "report_directory"), TEXTS),
    **dict.fromkeys(("graph_options", "execution_options"), MAPPINGS),
    **dict.fromkeys(("profiling", "enable_ipu_events", "use_poplar_text_report", "use_poplar_cbor_report"), TRUTH),
    **dict.fromkeys(("enable_poplar_serialized_graph", "retain_control_dependencies", "use_verified_transfers"), TRUTH),
}
#: What is given where it must be.
NEEDED = {"num_ipus": 2, "indices": [2], "gcl_options": {}, "num_io_tiles": 4, "process_count": 1, "process_index": 0}
NEEDED["verification_options"] = VerificationOptions()
CONFIGURED = (
    r"^Could not convert .* to a valid `SchedulingAlgorithm`\.$|"
    "^`profiling` is required when `profile_execution` is set$|^0 <= process_index < process_count$"
)
#: What else Graphcore says of an argument.
MUST_BE = (
    r"a dictionary|an integer, list or tuple\.|a list or tuple\.|of type VerificationOptions|"
    "True, False, or an ExecutionProfileType instance"
)


def options():
    """Yield the arguments of functions of releases up to SDK 2.1, and the configuration that they take."""
    for name, group in itertools.groupby(arguments_in(ATTRIBUTES | WITHOUT_EFFECT), lambda each: each[0]):
        function, arguments = getattr(utils, name), {}
        parameters = inspect.signature(function).parameters
        given = {key: (lambda value=value: value) for key, value in NEEDED.items() if key in parameters}
        if "opts" in parameters:
            given["opts"] = IPUConfig
            arguments["opts"] = ((),)
        for _, argument in group:
            path = ATTRIBUTES.get(argument)
            kind = IPUConfig().get_attribute_metadata(path).type if path else None
            texts = rf"^{argument}: Trying to set {path or ''} .* but it must be |^`{argument}` must be ({MUST_BE})$"
            arguments[argument] = (BY_NAME.get(argument, BY_TYPE.get(kind, ())), f"{texts}|{CONFIGURED}")
        yield from of(name, function, given, **arguments)


NUMBERED = {"number_of_epochs": lambda: 1, "elements_per_epochs": lambda: 1, "print_stats": lambda: False}
AT_LEAST = "^Expected `{}` to be at least 1.$"
HOST_PIPELINE = [
    *of(utils.use_synthetic_data_for, {}, synthetic_data_category=((),)),
    *of(utils.extract_all_events, {}, events=(("empty list", "empty tuple"),)),
    *of(
        "dataset_benchmark",
        lambda **given: fetched(dataset_benchmark.dataset_benchmark(**given)),
        {"dataset": lambda: tf.data.Dataset.range(3), **NUMBERED},
        dataset=((), r"^Expected `dataset` argument to be of type `tf\.data\.Dataset`, but got .* instead\.$"),
        **{name: (("1",), AT_LEAST.format(name) + "|reached the end of") for name in list(NUMBERED)[:2]},
        apply_options=(TRUTH,),
        do_memcpy=(TRUTH,),
        print_stats=(TRUTH,),
    ),
    *of(
        dataset_benchmark.infeed_benchmark,
        {"infeed_queue": feed, **NUMBERED},
        infeed_queue=(
            (),
            r"^Expected `infeed_queue` argument to be of type `ipu\.ipu_infeed_queue\.IPUInfeedQueue`, but got ",
        ),
        **{name: (("1", "huge"), AT_LEAST.format(name)) for name in list(NUMBERED)[:2]},
        do_memcpy=(TRUTH,),
        print_stats=(TRUTH,),
    ),
    *of(
        utils.export_dataset_to_file,
        {
            "dataset_or_infeed": lambda: tf.data.Dataset.range(0),
            "output_filename": lambda: "unwritten",
            "num_elements": lambda: 1,
        },
        dataset_or_infeed=((),),
        output_filename=((), "^The dataset iterator has reached the end"),
        num_elements=((), r"^Expected `num_elements` to be at least 1\.$|^The dataset iterator has reached the end"),
        feed_name=((), "^The dataset iterator has reached the end"),
        apply_options=((), "^The dataset iterator has reached the end"),
    ),
    *(
        argument
        for name in ("all_events", "all_strings_from_event_trace", "all_types_from_event_trace", "compile_reports")
        for argument in of(
            f"extract_{name}", getattr(utils, f"extract_{name}"), {}, events=(("empty list", "empty tuple"),)
        )
    ),
    *of(
        summary_ops.ipu_compile_summary,
        {"name": lambda: "n", "op_list": list},
        name=(("text", "empty text"),),
        op_list=(("empty list", "empty tuple"),),
        collections=(("None", "empty list", "empty tuple"),),
    ),
]
IN_OUTPUT = r"OptimizerFunctionOutput\."
OUTPUT = {"opt": sgd, "loss": lambda: tf.constant(1.0)}
ORDINAL = "^Device ordinal must be"
NAME = ("None", *TEXTS)
ONE = ("None", "1")
OPERATIONS = [
    *of("cross_replica_sum", in_a_stage(cross_replica_sum), {}, replica_group_size=(ONE,)),
    *of("assume_equal_across_replicas", in_a_stage(lambda x, **given: x * assumed(**given)), {}, inplace=(TRUTH,)),
    *of("all_gather", in_a_stage(all_gather), {"replication_factor": lambda: 1}, replication_factor=(("1",),)),
    *of(
        "all_to_all",
        in_a_stage(all_to_all),
        {"split_dimension": lambda: 0, "concat_dimension": lambda: 0, "replication_factor": lambda: 1},
        **dict.fromkeys(("split_dimension", "concat_dimension"), (("0",),)),
        replication_factor=(("1",),),
    ),
    *of(
        "reduce_scatter",
        in_a_stage(reduce_scatter),
        {"replication_factor": lambda: 1},
        replication_factor=(("1",),),
        op=((),),
    ),
]
PLACES = [
    Argument(
        "stage",
        "of computational_stages",
        lambda stage: train(computational_stages=[times_w, stage]),
        (),
        "^When the pipeline stage is a list|^computational_stages: expected a function of 1 arguments, got too many",
        "computational_stages",
    ),
    *(
        Argument(label, f"of {name}", lambda value, call=call: train(**call(value)), legal, "(?!)", name)
        for label, name, call, legal in (
            ("IPU", "device_mapping", lambda value: {"device_mapping": [0, value]}, ("0", "1")),
            ("truth", "outfeed_mask", lambda value: {"outfeed_mask": [value]}, TRUTH),
            (
                "result",
                "gradient_accumulation_dtype",
                lambda value: {"gradient_accumulation_dtype": lambda variable: value},
                ("None",),
            ),
            ("result", "optimizer_function", lambda value: {"optimizer_function": lambda loss: value}, ()),
        )
    ),
]
QUEUES = [
    *of(
        IPUInfeedQueue,
        {"dataset": dataset},
        dataset=((),),
        feed_name=(NAME,),
        device_ordinal=(("None", "0", "1", "huge"), ORDINAL),
        replication_factor=(ONE,),
        data_to_prefetch=(("1",),),
        prefetch_depth=(ONE, "^prefetch_depth must be (greater than zero|less than 256), but it is "),
        optimise_latency=(TRUTH,),
    ),
    *of(
        IPUOutfeedQueue,
        {},
        feed_name=(NAME,),
        outfeed_mode=(
            ("None",),
            r"^Expected `outfeed_mode` value to be of `ipu_outfeed_queue\.IPUOutfeedMode` type, but is .*\.$",
        ),
        device_ordinal=(("None", "0", "1", "huge"), ORDINAL),
        replication_factor=(ONE,),
        io_batch_size=(("1",),),
        buffer_depth=(("1", "huge"), "^Outfeed buffer depth cannot be less than 1$"),
        optimise_latency=(TRUTH,),
    ),
    *of("IPUOutfeedQueue.dequeue", lambda **given: connected().dequeue(**given), {}, wait_for_completion=(TRUTH,)),
    *of(
        "IPUStrategy.run",
        lambda **given: IPUStrategy().run(**given),
        {"fn": lambda: lambda *_, **__: None},
        fn=(FUNCTIONS,),
        args=(("empty list", "empty tuple", "list", "ragged"),),
        kwargs=(("None", "empty dictionary", "dictionary"),),
    ),
]
POSITIVE = (("1",), "num_mini_batches must be a positive number")
ACCUMULATING = {"opt": ((),), "num_mini_batches": POSITIVE, "verify_usage": (TRUTH,)}
ACCUMULATING_V2 = {
    "opt": ((),),
    "num_mini_batches": POSITIVE,
    **dict.fromkeys(("offload_weight_update_variables", "replicated_optimizer_state_sharding"), (("None", *TRUTH),)),
    "dtype": (("None", "function"),),
    "reduction_method": ((), "^Cannot parse .* as one of GradientAccumulationReductionMethod"),
}
OBJECTS = [
    *of(GradientAccumulationReductionMethod.parse, {}, reduction_method=((), "^Cannot parse")),
    *of(
        PipelineStageOptions,
        {},
        **{
            f"{each}_options": (
                ("None", "empty dictionary", "dictionary"),
                rf"^PipelineStageOptions\.{each}_options must be dictionary\.$",
            )
            for each in ("convolution", "matmul", "slice")
        },
    ),
    *of(optimizers.CrossReplicaOptimizer, {"opt": sgd}, opt=((),)),
    *of(optimizers.ShardedOptimizer, {"optimizer": sgd}, optimizer=((),)),
    *(
        argument
        for kind in ("GradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizer")
        for name, arguments in ((kind, ACCUMULATING), (f"{kind}V2", ACCUMULATING_V2))
        for argument in of(name, getattr(optimizers, name), {"opt": sgd, "num_mini_batches": lambda: 4}, **arguments)
    ),
    *of(
        optimizers.MapGradientOptimizer,
        {"wrapped_optimizer": sgd, "gradient_mapping_function": lambda: max},
        wrapped_optimizer=((),),
        gradient_mapping_function=(FUNCTIONS,),
    ),
    *of(
        OptimizerFunctionOutput,
        OUTPUT,
        opt=((), rf"^{IN_OUTPUT}opt must be a TensorFlow Optimizer or Keras OptimizerV2 object\.$"),
        loss=((), rf"^{IN_OUTPUT}loss must be a TensorFlow Tensor object\.$"),
        **{
            f"{each}_gradients_{kind}": (
                ("None", *legal),
                rf"^{IN_OUTPUT}{each}_gradients_{kind} must be a {text}\.$",
            )
            for each in ("compute", "apply")
            for kind, legal, text in (
                ("args", ("empty tuple",), "tuple"),
                ("kwargs", ("empty dictionary", "dictionary"), "dict"),
            )
        },
        variables=(
            ("None", "empty list", "empty tuple"),
            rf"^{IN_OUTPUT}variables (must be a tuple or list|may only be used with OptimizerV2)\.$",
        ),
        tape=(("None",), rf"^{IN_OUTPUT}tape must be a GradientTape\.$"),
        gradient_capture_context=(
            ("None",),
            rf"^{IN_OUTPUT}gradient_capture_context must be an ipu\.eager\.backprop\.GradientCollectionContext\.$",
        ),
        captured_gradient_outfeed=(
            ("None",),
            rf"^{IN_OUTPUT}captured_gradient_outfeed must be an instance of IPUOutfeedQueue\.$",
        ),
    ),
]


def set_to(path):
    """The text of a value that an attribute does not take."""
    return f"^Trying to set {path} to .*, but it must be "


NO_DEVICES, NO_OPTION = "^No IPU devices configured", "expected no option but availableMemoryProportion"
SETTINGS = [
    Argument(f"IPUConfig.{path}", "", setting(path, runs=True), legal, "|".join((set_to(path), *texts)), path)
    for path, (legal, *texts) in {
        "auto_select_ipus": ((), "^Unsupported number of IPUs", NO_DEVICES, "^Trying to compile a graph"),
        "select_ipus": ((), NO_DEVICES, "has no device with id", "^Trying to compile a graph for an IPU device"),
        "selection_order": ((),),
        "allow_recompute": (TRUTH,),
        "io_tiles.num_io_tiles": (NUMBER,),
        "io_tiles.place_ops_on_io_tiles": (TRUTH,),
        "io_tiles.available_memory_proportion": ((),),
        "device_connection.enable_remote_buffers": (TRUTH,),
        "device_connection.type": ((),),
        "device_connection.version": (("empty text",),),
        "optimizations.minimum_remote_tensor_size": (NUMBER,),
        "matmuls.poplar_options": ((), NO_DEVICES, NO_OPTION),
        "convolutions.poplar_options": ((), NO_DEVICES, NO_OPTION),
        "machine": ((), NO_DEVICES, "^unknown system"),
    }.items()
]
#: Values that an attribute without an effect takes, by its type.
OF_TYPE = {**BY_TYPE, "dict": MAPPINGS[1:], "str": TEXTS}


def without_effect():
    """Yield the attributes without an effect."""
    for path in (row.name for row in OTHER_ATTRIBUTES):
        # Whether a group divides the replicas is known when there is a device.
        legal = (
            NUMBER[1:]
            if path.endswith("group_size")
            else OF_TYPE.get(IPUConfig().get_attribute_metadata(path).type, ())
        )
        yield Argument(
            f"IPUConfig.{path}", "", setting(path), legal, f"^Trying to set {path} to .*, but it must be ", path
        )
    yield from of(
        "get_attribute_metadata", IPUConfig().get_attribute_metadata, {}, attr=((), "^Could not get attribute metadata")
    )


def assumed(**given):
    return assume_equal_across_replicas(**({"tensors": tf.constant(1.0)} | given))


def connected():
    queue = IPUOutfeedQueue()
    queue.enqueue(tf.constant(1.0))
    return queue


GROUPS = {
    "pipeline": PIPELINE_ARGUMENTS,
    "operations": OPERATIONS,
    "places": PLACES,
    "queues": QUEUES,
    "objects": OBJECTS,
    "settings": SETTINGS,
    "attributes without an effect": [*without_effect()],
    "options": [*options()],
    "host": HOST_PIPELINE,
}


def wrong(arguments):
    """What arguments take, or refuse, otherwise than they should: by argument and value.

    Arguments get one half of the values or the other, and all of them with ``--every``.
    """
    found = {}
    for argument in arguments:
        for value in in_turn([*VALUES], argument.label + argument.name):
            with tf.Graph().as_default():
                if told := complaint(argument, value):
                    found[f"{argument.label} {argument.name}", value] = told
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_what_an_argument_does_not_take_is_refused_by_name(group):
    assert wrong(GROUPS[group]) == {}


#: What several hosts do together.
HOSTS = [
    *of(hvd.allreduce, {"tensor": lambda: 1.0}, op=(["None"],)),
    *of(hvd.allgather, {"tensor": lambda: np.ones(2)}, name=(NAME,)),
    *of(hvd.broadcast, {"tensor": lambda: 1.0, "root_rank": lambda: 0}, root_rank=(["0"],), name=(NAME,)),
    *of(IPUHorovodStrategy, {}, ipu_device=([],), variables_on_host=(TRUTH,)),
    *of(
        IPUMultiReplicaStrategy,
        {},
        ipu_device=([],),
        add_ipu_cross_replica_reductions=(TRUTH,),
    ),
    *of(
        IPUMultiWorkerStrategy,
        {"cluster_resolver": distribute.cluster_resolver.TFConfigClusterResolver},
        cluster_resolver=([],),
        ipu_device=([],),
        variables_on_host=(TRUTH,),
    ),
    *of(
        distribute.Server,
        {"server_or_cluster_def": dict},
        job_name=(NAME,),
        task_index=(["None", "0", "1"],),
    ),
    *of(
        "reduce",
        lambda **given: IPUHorovodStrategy().reduce(**given),
        {"reduce_op": lambda: "SUM", "value": lambda: np.ones(2)},
        reduce_op=([],),
        axis=(["None", "-1", "0"],),
    ),
]


@pytest.mark.parametrize("argument", HOSTS, ids=lambda argument: f"{argument.label}({argument.name})")
def test_what_hosts_do_not_take_is_refused_by_name(argument):
    assert {value: told for value in VALUES if (told := complaint(argument, value))} == {}


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

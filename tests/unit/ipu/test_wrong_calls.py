"""Wrong calls of Graphcore's names: an error of ours or of TensorFlow's own, and never an exception from inside.

What arguments of pipelines, queues and optimizers say is in test_misuse; here are the arguments of all else.
"""

import inspect
import traceback
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import ipusim
from ipusim.base.errors import IpusimError
from tests.effort import in_turn, sampled
from tests.programs import needs_tensorflow
from tests.unit.ipu.test_misuse import VALUES, IPUInfeedQueue, dataset, fetched, sgd, tf

needs_tensorflow(at_import=True)

from ipusim.ipu import (  # noqa: E402 - which needs TensorFlow
    functional_ops,
    ipu_compiler,
    loops,
    optimizers,
    scopes,
    sharding,
    utils,
)
from ipusim.ipu.config import IPUConfig  # noqa: E402 - as above
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue  # noqa: E402 - as above
from ipusim.ipu.ipu_strategy import IPUStrategy  # noqa: E402 - as above
from ipusim.ipu.pipelining_ops import recomputation_checkpoint  # noqa: E402 - as above

X = np.ones((4, 3), np.float32)
IMAGES = np.ones((2, 4, 4, 3), np.float32)
#: Fewer for functions of tensors, of which there are many.
FEW = ("None", "-1", "huge", "nan", "text", "list", "ragged", "dictionary", "object", "function", "array of texts")


def feed():
    return IPUInfeedQueue(dataset(X))


def entered(manager):
    with manager:
        pass


def run(build):
    """Compile and run what ``build`` writes."""
    return fetched(ipu_compiler.compile(build), tf.global_variables_initializer())


def body(x):
    return x


def configure(**given):
    try:
        utils.configure_ipu_system(**given)
    finally:
        utils.reset_ipu_configuration()


#: Name, function, and arguments that are right, made for each call.
HOST = [
    (
        "repeat",
        lambda **given: run(lambda: loops.repeat(**given)),
        {"n": lambda: 2, "body": lambda: body, "inputs": lambda: [X], "infeed_queue": lambda: None},
    ),
    (
        "while_loop",
        lambda **given: run(lambda: loops.while_loop(**given)),
        {
            "condition": lambda: lambda n: n < 3,
            "body": lambda: lambda n: n + 1,
            "inputs": lambda: [0],
            "infeed_queue": lambda: None,
            "maximum_iterations": lambda: 5,
        },
    ),
    (
        "compile",
        ipu_compiler.compile,
        {"computation": lambda: lambda: loops.repeat(1, body, [X]), "inputs": lambda: []},
    ),
    ("ipu_scope", lambda **given: entered(scopes.ipu_scope(**given)), {"device": lambda: "/device:IPU:0"}),
    ("ipu_shard", lambda **given: entered(scopes.ipu_shard(**given)), {"index": lambda: 0}),
    *(
        (f"sharding.{name}", getattr(sharding, name), {argument: lambda: None})
        for name, argument in {
            "dependencies": "roots",
            "get_shard_from_colocation": "op",
            "propagate_sharding": "g",
        }.items()
    ),
    ("IPUStrategy", IPUStrategy, {"ipu_device": lambda: "/device:IPU:0"}),
    ("outlined_function", functional_ops.outlined_function, {"func": lambda: body}),
    ("get_num_of_ipus_in_device", utils.get_num_of_ipus_in_device, {"ipu_device": lambda: "/device:IPU:0"}),
    ("reset_ipu_seed", utils.reset_ipu_seed, {"seed": lambda: 1, "device": lambda: "/device:IPU:0"}),
    ("configure_ipu_system", configure, {"config": IPUConfig, "device": lambda: "cpu"}),
    ("IpuOptimizer", optimizers.IpuOptimizer, {"opt": sgd, "name": lambda: None}),
    (
        "enqueue",
        lambda **given: run(lambda: loops.repeat(1, lambda x: IPUOutfeedQueue().enqueue(**given), [], feed())),
        {"tensors": lambda: X},
    ),
    ("recomputation_checkpoint", recomputation_checkpoint, {"tensors": lambda: X}),
]
COUNTS = np.ones(4, np.int32)
#: Right arguments of functions of tensors, by name; others keep their defaults.
ARRAYS = {
    **dict.fromkeys(["x", "y", "a", "input", "inputs", "labels", "logits", "params", "src", "dst", "hist"], X),
    **dict.fromkeys(["data", "log_probs"], np.ones((5, 4, 3), np.float32)),
    **dict.fromkeys(["label_length", "logit_length", "data_length", "logits_lengths", "input_lengths"], COUNTS),
    **dict.fromkeys(["num_elems", "src_offsets", "dst_offsets", "ids", "indices"], COUNTS),
    **dict.fromkeys(["channel_offsets", "channel_scales", "biases"], np.ones(3, np.float32)),
    **dict.fromkeys(["num_sampled", "num_classes", "n_bins", "total_elements", "groups", "serialization_factor"], 1),
    **dict.fromkeys(["name", "library_path"], "l"),
    "b": X.T,
    "weights": X,
    "shape": [2],
    "rate": 0.5,
    "dtype": np.float32,
    "image": IMAGES,
    "blank_index": 0,
    "zero_unused": True,
    "levels": np.arange(3, dtype=np.float32),
    "serialization_dimension": "input_columns",
    "vertex_expression": lambda *tensors: tensors[0],
}


OPERATIONS = ("custom", "embedding", "image", "internal", "math", "nn", "normalization", "rand", "replication")
MODULES = [import_module(f"ipusim.ipu.{each}_ops") for each in (*OPERATIONS, "slicing", "statistics")]


def functions_of_tensors():
    """Yield Graphcore's functions of tensors, each with arguments that are right as far as its names say."""
    for module in MODULES:
        for name, function in vars(module).items():
            public = inspect.isfunction(function) and function.__module__ == module.__name__ and name[0] != "_"
            if not public:
                continue
            parameters = inspect.signature(function).parameters.values()
            named = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
            required = [each.name for each in named if each.default is each.empty]
            given = {name: lambda value=ARRAYS[name]: value for name in required}
            yield f"{name} of {module.__name__.rpartition('.')[2]}", function, given, [each.name for each in named]


#: The package itself: the checkout around it may be called so too, and then has TensorFlow in its .venv.
PACKAGE = Path(ipusim.__file__).parent


def inside(error):
    """Whether an exception is one of a mistake of ours: neither an error of ours, nor raised inside of TensorFlow."""
    if isinstance(error, IpusimError):
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    ours = max(place for place, file in enumerate(files) if Path(file).is_relative_to(PACKAGE) or file == __file__)
    return not any("tensorflow" in file for file in files[ours + 1 :])


def leaks(label, call, given, names, values):
    """Return what a function raises from inside, for each argument and wrong value.

    Arguments get one half of the values or the other, and all of them with ``--every``.
    """
    found = {}
    for name in names:
        for value in in_turn([*values], label + name):
            with tf.Graph().as_default():
                arguments = {key: make() for key, make in given.items() if key != name}
                try:
                    call(**arguments, **{name: VALUES[value]})
                except Exception as error:
                    if inside(error):
                        found[name, value] = repr(error)
    return found


@sampled(2)
@pytest.mark.parametrize(("name", "function", "given"), HOST, ids=[name for name, *_ in HOST])
def test_arguments_on_the_host(name, function, given):
    assert leaks(name, function, given, list(given), VALUES) == {}


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__.rpartition(".")[2])
def test_arguments_of_functions_of_tensors(module):
    of = [each for each in functions_of_tensors() if each[1].__module__ == module.__name__]
    found = {label: leaks(label, call, given, names, FEW) for label, call, given, names in of}
    assert {label: told for label, told in found.items() if told} == {}

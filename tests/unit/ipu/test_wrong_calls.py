"""Wrong calls of everything that a program can call: an error of ours or none, and never an exception from inside.

What arguments of pipelines, queues and optimizers say is in test_misuse, and orders, threads and what is used twice are
in test_wrong_orders; here are the arguments of all else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.ipu import (
    embedding_ops,
    functional_ops,
    ipu_compiler,
    loops,
    nn_ops,
    normalization_ops,
    optimizers,
    rand_ops,
    scopes,
    sharding,
    utils,
)
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_strategy import IPUStrategy
from ipusim.ipu.pipelining_ops import recomputation_checkpoint
from ipusim.model.stages.function_stage import try_stage
from tests.effort import in_turn, sampled
from tests.unit.ipu.test_misuse import VALUES

X = np.ones((4, 3), np.float32)
IMAGES = np.ones((2, 4, 4, 3), np.float32)
#: Fewer for functions of arrays, of which there are many.
FEW = ("None", "-1", "huge", "nan", "text", "list", "ragged", "dictionary", "object", "function", "array of texts")


def sgd():
    return tf.train.GradientDescentOptimizer(0.1)


def feed():
    return IPUInfeedQueue(repeat([X]))


def dataset():
    return tf.data.Dataset.from_tensor_slices(X)


def variable():
    return tf.Variable(np.ones(3, np.float32))


def counter():
    return tf.Variable(0, trainable=False)


def took(items):
    """Return the first items of what a wrong argument has made."""
    return [item for _, item in zip(range(3), items, strict=False)]


def entered(manager):
    with manager:
        pass


def fetched(fetches, feed_dict=None):
    with tf.Session() as session:
        return session.run(fetches, feed_dict)


def body(x):
    return x


def in_a_loop(minimize):
    def body(x):
        minimize(tf.reduce_sum(x * tf.get_variable("w", [3])))

    loops.repeat(2, body, [], feed())


def configure(**given):
    try:
        utils.configure_ipu_system(**given)
    finally:
        utils.reset_ipu_configuration()


def applied(**given):
    sgd().apply_gradients(**given)


def computed(**given):
    sgd().compute_gradients(**{"loss": lambda: tf.reduce_sum(tf.get_variable("w", [3])), **given})


#: Name, function, and arguments that are right, made for each call.
HOST: list[tuple[str, Callable[..., object], dict[str, Callable[[], object]]]] = [
    (
        "repeat",
        loops.repeat,
        {"n": lambda: 2, "body": lambda: body, "inputs": lambda: [X], "infeed_queue": lambda: None},
    ),
    (
        "while_loop",
        loops.while_loop,
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
    ("Session.run", fetched, {"fetches": tf.no_op, "feed_dict": dict}),
    ("placeholder", tf.placeholder, {"dtype": lambda: np.float32, "shape": lambda: [2], "name": lambda: "p"}),
    ("placeholder_with_default", tf.placeholder_with_default, {"input": lambda: 1.0, "shape": lambda: []}),
    (
        "fed",
        lambda value: fetched(tf.placeholder(tf.float32, [3]), {tf.placeholder(tf.float32, [3]): value}),
        {"value": lambda: X},
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
    (
        "IPUStrategy.run",
        lambda **given: IPUStrategy().run(**given),
        {"fn": lambda: body, "args": lambda: (1,), "kwargs": dict},
    ),
    (
        "Variable",
        tf.Variable,
        {"initial_value": lambda: 1.0, "trainable": lambda: True, "name": lambda: "v", "dtype": lambda: None},
    ),
    (
        "get_variable",
        tf.get_variable,
        {
            "name": lambda: "v",
            "shape": lambda: [2],
            "dtype": lambda: np.float32,
            "initializer": lambda: None,
            "trainable": lambda: True,
            "regularizer": lambda: None,
            "partitioner": lambda: None,
            "constraint": lambda: None,
        },
    ),
    (
        "variable_scope",
        lambda **given: entered(tf.variable_scope(**given)),
        {"name_or_scope": lambda: "s", "default_name": lambda: None, "reuse": lambda: None},
    ),
    (
        "name_scope",
        lambda **given: entered(tf.name_scope(**given)),
        {"name": lambda: "s", "default_name": lambda: None},
    ),
    ("assign", tf.assign, {"ref": variable, "value": lambda: np.ones(3)}),
    ("assign_add", tf.assign_add, {"ref": counter, "value": lambda: 1}),
    ("assign_sub", tf.assign_sub, {"ref": counter, "value": lambda: 1}),
    ("Variable.assign", lambda **given: variable().assign(**given), {"value": lambda: np.ones(3, np.float32)}),
    ("Variable.assign_add", lambda **given: counter().assign_add(**given), {"delta": lambda: 1}),
    ("Variable.__add__", lambda other: variable() + other, {"other": lambda: 1}),
    ("Variable.__getitem__", lambda key: variable()[key], {"key": lambda: 1}),
    ("global_variables", tf.global_variables, {"scope": lambda: "s"}),
    ("get_collection", tf.get_collection, {"key": lambda: "variables", "scope": lambda: None}),
    ("variables_initializer", tf.variables_initializer, {"var_list": list, "name": lambda: "init"}),
    ("set_random_seed", tf.set_random_seed, {"seed": lambda: 1}),
    ("group", lambda value: fetched(tf.group(value)), {"value": tf.no_op}),
    ("control_dependencies", lambda **given: entered(tf.control_dependencies(**given)), {"control_inputs": list}),
    ("function", tf.function, {"func": lambda: body}),
    ("outlined_function", functional_ops.outlined_function, {"func": lambda: body}),
    ("get_num_of_ipus_in_device", utils.get_num_of_ipus_in_device, {"ipu_device": lambda: "/device:IPU:0"}),
    ("reset_ipu_seed", utils.reset_ipu_seed, {"seed": lambda: 1, "device": lambda: "/device:IPU:0"}),
    (
        "get_attribute_metadata",
        lambda **given: IPUConfig().get_attribute_metadata(**given),
        {"attr": lambda: "auto_select_ipus"},
    ),
    ("configure_ipu_system", configure, {"config": IPUConfig, "device": lambda: "cpu"}),
    *(
        (name, getattr(optimizers, name), {"learning_rate": lambda: 0.1} | dict(more))
        for name, more in {
            "AdamOptimizer": {"beta1": lambda: 0.9, "beta2": lambda: 0.9, "epsilon": lambda: 1e-8, "name": lambda: "A"},
            "RMSPropOptimizer": {
                "decay": lambda: 0.9,
                "momentum": lambda: 0.1,
                "epsilon": lambda: 1e-8,
                "centered": lambda: True,
            },
            "LAMBOptimizer": {
                "weight_decay_rate": lambda: 0.1,
                "beta_1": lambda: 0.9,
                "exclude_from_weight_decay": list,
            },
            "MomentumOptimizer": {"momentum": lambda: 0.9, "use_nesterov": lambda: False},
            "AdagradOptimizer": {"initial_accumulator_value": lambda: 0.1, "use_locking": lambda: True},
            "AdadeltaOptimizer": {"rho": lambda: 0.9, "epsilon": lambda: 1e-8, "name": lambda: "A"},
            "FtrlOptimizer": {
                "learning_rate_power": lambda: -0.5,
                "initial_accumulator_value": lambda: 0.1,
                "l1_regularization_strength": lambda: 0.1,
                "beta": lambda: 0.1,
            },
        }.items()
    ),
    *(
        (name, getattr(optimizers, name), {"opt": sgd, "num_mini_batches": lambda: 2} | dict(more))
        for name, more in {
            "GradientAccumulationOptimizer": {"verify_usage": lambda: True},
            "CrossReplicaGradientAccumulationOptimizer": {"verify_usage": lambda: True, "name": lambda: "A"},
            "GradientAccumulationOptimizerV2": {
                "dtype": lambda: None,
                "reduction_method": lambda: "SUM",
                "offload_weight_update_variables": lambda: None,
            },
            "CrossReplicaGradientAccumulationOptimizerV2": {"replicated_optimizer_state_sharding": lambda: False},
        }.items()
    ),
    ("ShardedOptimizer", optimizers.ShardedOptimizer, {"optimizer": sgd}),
    ("IpuOptimizer", optimizers.IpuOptimizer, {"opt": sgd, "name": lambda: None}),
    (
        "get_slot",
        lambda **given: sgd().get_slot(**given),
        {"var": lambda: optimizers.Variable("w", np.ones(3), {}), "name": lambda: "m"},
    ),
    ("apply_gradients", applied, {"grads_and_vars": list, "global_step": lambda: None, "name": lambda: None}),
    (
        "compute_gradients",
        computed,
        {"loss": lambda: body, "var_list": lambda: None, "gate_gradients": lambda: 1, "grad_loss": lambda: None},
    ),
    (
        "minimize",
        lambda **given: in_a_loop(lambda loss: sgd().minimize(**{"loss": loss} | given)),
        {
            "global_step": lambda: None,
            "var_list": lambda: None,
            "gate_gradients": lambda: 1,
            "name": lambda: None,
            "loss": lambda: X,
        },
    ),
    *(
        (f"Dataset.{name}", lambda name=name, **given: took(getattr(tf.data.Dataset, name)(**given)), given)
        for name, given in {
            "from_tensors": {"tensors": lambda: X},
            "from_tensor_slices": {"tensors": lambda: X},
            "range": {},
            "zip": {"datasets": lambda: (dataset(), dataset())},
        }.items()
        if hasattr(tf.data.Dataset, name)
    ),
    *(
        (f"Dataset().{name}", lambda name=name, **given: took(getattr(dataset(), name)(**given)), given)
        for name, given in {
            "map": {"map_func": lambda: body},
            "shuffle": {"buffer_size": lambda: 2, "seed": lambda: 1},
            "repeat": {"count": lambda: 2},
            "batch": {"batch_size": lambda: 2, "drop_remainder": lambda: True},
            "prefetch": {"buffer_size": lambda: 2},
            "take": {"count": lambda: 2},
            "shard": {"num_shards": lambda: 2, "index": lambda: 1},
        }.items()
    ),
    (
        "IPUOutfeedQueue.enqueue",
        lambda **given: loops.repeat(1, lambda x: IPUOutfeedQueue().enqueue(**given), [], feed()),
        {"tensors": lambda: X},
    ),
    ("recomputation_checkpoint", recomputation_checkpoint, {"tensors": lambda: X}),
]


def in_a_stage(function, **given):
    """Call a function as a stage does: what it raises on its arguments is an error of the stage's."""
    try_stage("stage", lambda: function(**given), ())


#: Right arguments of functions of arrays, by name; others keep their defaults.
ARRAYS = dict.fromkeys(
    [
        "x",
        "y",
        "a",
        "input",
        "inputs",
        "value",
        "tensor",
        "tensors",
        "logits",
        "labels",
        "predictions",
        "features",
        "t",
    ],
    X,
) | {
    "b": X.T,
    "weights": X.T,
    "params": X,
    "values": [X, X],
    "condition": X > 0,
    "axis": 0,
    "axes": [0],
    "shape": [2],
    "dims": [3],
    "perm": [1, 0],
    "multiples": [1, 2],
    "dtype": np.float32,
    "ids": np.zeros(2, np.int32),
    "indices": np.zeros(2, np.int32),
    "depth": 3,
    "num_or_size_splits": 1,
    "clip_value_min": 0.0,
    "clip_value_max": 1.0,
    "equation": "ij->ji",
    "bias": np.ones(3, np.float32),
    "biases": np.ones(4, np.float32),
    "filter": np.ones((2, 2, 3, 1), np.float32),
    "rate": 0.5,
    "keep_prob": 0.5,
    "ksize": 2,
    "strides": 2,
    "start": 0,
    "limit": 3,
    "stop": 1.0,
    "num": 3,
    "num_rows": 2,
    "groups": 3,
}
SKIPPED = {"ConfigProto", "Graph", "GraphKeys", "Session", "Variable", "VariableScope", "compat"}


def array_functions():
    """Yield the functions of arrays that there are, each with arguments that are right as far as its names say."""
    modules = {"tf": tf, "tf.nn": tf.nn, "tf.math": tf.math, "tf.losses": tf.losses}
    graphcore = [embedding_ops, nn_ops, normalization_ops, rand_ops]
    modules |= {each.__name__.rpartition(".")[2]: each for each in graphcore}
    hosts = {name for name, *_ in HOST} | SKIPPED
    for label, module in modules.items():
        for name in dir(module) if label.startswith("tf") else vars(module):
            function = getattr(module, name)
            if name.startswith("_") or name in hosts or not callable(function) or inspect.isclass(function):
                continue
            of = getattr(function, "__module__", "")
            if not of.startswith("ipusim.ipu.tensorflow." if label.startswith("tf") else "ipusim."):
                continue
            names = [
                each
                for each in inspect.signature(function).parameters.values()
                if each.kind is each.POSITIONAL_OR_KEYWORD
            ]
            images = "pool" in name or "conv" in name
            given = {
                each.name: IMAGES if images and each.name in {"value", "input", "inputs"} else ARRAYS[each.name]
                for each in names
                if each.name in ARRAYS
                and (each.default is each.empty or each.name in {"labels", "logits", "axis", "keep_prob"})
            }
            yield f"{label}.{name}", partial(in_a_stage, function), given, [each.name for each in names]


def leaks(label, call, given, names, values):
    """Return what a function raises, for each argument and wrong value, that is no error of ours.

    Arguments get one half of the values or the other by default.
    """
    found = {}
    for name in names:
        for value in in_turn([*values], label + name):
            arguments = {
                key: make() if callable(make) and values is VALUES else make
                for key, make in given.items()
                if key != name
            }
            try:
                call(**arguments, **{name: VALUES[value]})
            except IpusimError:
                pass
            except Exception as error:
                found[name, value] = repr(error)
    return found


@sampled(2)
@pytest.mark.parametrize(("name", "function", "given"), HOST, ids=[name for name, *_ in HOST])
def test_arguments_on_the_host(name, function, given):
    assert leaks(name, function, given, list(given), VALUES) == {}


@pytest.mark.parametrize(
    ("label", "call", "given", "names"), list(array_functions()), ids=[each[0] for each in array_functions()]
)
def test_arguments_of_functions_of_arrays(label, call, given, names):
    assert leaks(label, call, given, names, FEW) == {}


def test_there_are_many():
    on_the_host = sum(len(given) for *_, given in HOST) * len(VALUES)
    of_arrays = sum(len(names) for *_, names in array_functions()) * len(FEW)
    assert min(on_the_host, of_arrays) > 400

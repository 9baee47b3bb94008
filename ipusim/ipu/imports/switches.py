"""Switch TensorFlow's process to version 1 or 2 inside a block, seeded, and restore it afterwards.

TensorFlow's ``disable_v2_behavior`` cannot be undone, and disables resource variables and control flow v2, which
tracing of stages needs. This module switches only reversible settings: eager execution, shapes of ``Dimension``,
comparison of tensors by identity, and Keras layers that compute in the dtype of their inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.context import replaced
from ipusim.ipu.runtime.devices import ordinal_of
from ipusim.ipu.scopes import ipu_scope

tf = load()
_V1: Final = tf.compat.v1
_OPS: Final = import_module("tensorflow.python.framework.ops")
_CONTEXT: Final = import_module("tensorflow.python.eager.context")
_LAYERS: Final = import_module("tf_keras.src.engine.base_layer_utils")
_STACK: Final = import_module("tensorflow.python.framework.stack")
_SHAPES: Final = import_module("tensorflow.python.framework.tensor_shape")
_OPTIMIZERS: Any = import_module("tf_keras.src.optimizers")
_VARIABLE: Final = import_module("tensorflow.python.ops.resource_variable_ops").BaseResourceVariable

#: Default seed of Python, NumPy and TensorFlow, for equal initial values in every run.
SEED: Final = 1
#: Sessions that programs entered and never left. They stay alive, as the end of a session would switch eager execution
#: off in a later program.
_OPEN_SESSIONS: Final[list[Any]] = []


@contextmanager
def process_of(major: int) -> Iterator[None]:
    """Run the block under TensorFlow 1 or 2, with seeds and an empty graph.

    Args:
        major: 1 or 2.
    """
    _CONTEXT.context()  # a context made in version 1 would stop version 2's functions from lifting variables
    state = random.getstate(), np.random.get_state()
    with _own_graphs(), _own_stacks():
        try:
            _switch_to(major)
            tf.keras.utils.set_random_seed(SEED)
            tf.keras.backend.clear_session()
            yield
        finally:
            random.setstate(state[0])
            np.random.set_state(state[1])


def version_1() -> None:
    """Switch to graphs, ``Dimension`` shapes, hashable tensors, and layers in their inputs' dtype."""
    _switch_to(1)


def graphs() -> None:
    """Switch eager execution off."""
    _V1.disable_eager_execution()


def eager() -> None:
    """Switch eager execution on, and leave an existing graph behind."""
    if not tf.executing_eagerly():
        _V1.reset_default_graph()
        _V1.enable_eager_execution()


def _switch_to(major: int) -> None:
    """Change the reversible settings to those of a version."""
    if major == 1:
        graphs()
        _V1.disable_v2_tensorshape()
        _V1.disable_tensor_equality()
        _LAYERS.disable_v2_dtype_behavior()
    else:
        eager()
        _V1.enable_v2_tensorshape()
        _V1.enable_tensor_equality()
        _LAYERS.enable_v2_dtype_behavior()


@contextmanager
def _own_stacks() -> Iterator[None]:
    """Start with empty stacks of graphs and sessions; restore stacks and eager execution afterwards."""
    context, sessions = _CONTEXT.context(), _STACK._default_session_stack
    stacks = (_OPS._default_graph_stack, sessions, context.context_switches)
    state, was_eager = [stack.stack for stack in stacks], context.executing_eagerly()

    def clear() -> None:
        for stack, contexts in zip(stacks, ([], [], state[-1][:1]), strict=True):  # the first switch is to eager mode
            stack.stack = contexts
        _V1.reset_default_graph()

    clear()
    try:
        yield
    finally:
        _OPEN_SESSIONS.extend(sessions.stack)
        clear()
        _switch_to(2)
        for stack, contexts in zip(stacks, state, strict=True):
            stack.stack = contexts
        context._thread_local_data.is_eager = was_eager


@contextmanager
def _own_graphs() -> Iterator[None]:
    """Give the block's graphs seeds, IPU devices and initialized values.

    As in TensorFlow 1, a shape's sizes may be whole numbers given as floats. Names of optimizers, such as "adam", mean
    legacy optimizers, like those of ``tf.keras.optimizers``.
    """
    original_init: Callable[..., None] = tf.Graph.__init__
    original_device: Callable[..., AbstractContextManager[Any]] = tf.Graph.device
    original_dimension_init: Callable[..., None] = _SHAPES.Dimension.__init__

    def seeded_init(graph: Any, *arguments: Any, **options: Any) -> None:
        original_init(graph, *arguments, **options)
        if graph.seed is None:
            graph.seed = SEED

    def device(graph: Any, name: Any) -> AbstractContextManager[Any]:
        if isinstance(name, str) and ordinal_of(name) is not None:
            return ipu_scope(name)
        return original_device(graph, name)

    def dimension_init(dimension: Any, value: Any) -> None:
        is_whole = isinstance(value, float) and value.is_integer() and not _SHAPES._TENSORSHAPE_V2_OVERRIDE
        original_dimension_init(dimension, int(value) if is_whole else value)

    with (
        replaced(tf.Graph, __init__=seeded_init, device=device),
        replaced(_SHAPES.Dimension, __init__=dimension_init),
        replaced(_VARIABLE, initialized_value=_initialized_value),
        replaced(_OPTIMIZERS, get=partial(_OPTIMIZERS.get, use_legacy_optimizer=True)),
    ):
        yield


def _initialized_value(variable: Any) -> Any:
    """Return a variable's value, or its initial value before initialization, as TensorFlow 1 does."""
    has_value = _V1.is_variable_initialized(variable)
    return tf.cond(has_value, variable.read_value, lambda: variable.initial_value)


def no_change() -> None:
    """Do nothing: tracing of stages always needs resource variables and control flow v2."""

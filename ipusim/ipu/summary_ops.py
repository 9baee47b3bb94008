"""Return the events of a session's run as a tensor: Graphcore's ``summary_ops``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.device_program import events_of
from ipusim.ipu.traced.sessions import EAGER, RunningSession, session_token

tf = load()
tensor_summary = tf.compat.v1.summary.tensor_summary


def ipu_compile_summary(name: str, op_list: Any, collections: Sequence[str] | None = None) -> Any:
    """Return a summary of the events of a session's run, evaluated after given operations.

    Args:
        name: name of the summary.
        op_list: an operation or a list of operations to run first, such as results of compiled programs.
        collections: collections for the summary.

    Raises:
        ProgramTypeError: if name is not text, op_list does not hold operations, or collections is not a list.
    """
    checks.text("name", name)
    checks.instance("collections", collections, list | tuple | None, "a list of texts")
    for collection in collections or ():
        checks.text("collections", collection)
    operations = list(op_list) if isinstance(op_list, list | tuple) else [op_list]
    if not all(isinstance(operation, tf.Operation | tf.Tensor) for operation in operations):
        checks.wrong_type("op_list", "an operation or a list of operations", op_list)
    with tf.control_dependencies(operations):
        return tensor_summary(name, event_trace(), collections=collections)


def event_trace() -> Any:
    """Return and clear the session's events so far, as a tensor of JSON texts."""
    if tf.executing_eagerly():
        return tf.constant(events_of(EAGER), tf.string)

    def take(token: Any) -> Any:
        return np.array(events_of(RunningSession(int(token)).session), object)

    result = tf.numpy_function(take, [session_token()], tf.string)
    result.set_shape([None])
    return result

"""Count an epoch's steps on a model's replicas, and refuse batches in Graphcore's words."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load

tf = load()


def install(replicas_of: Callable[[Any, Any], int | None]) -> None:
    """Count steps of fit, evaluate and predict as Graphcore does: a step takes a batch per replica.

    Args:
        replicas_of: function of a model and the form of its batches, returns the number of replicas; None for a model
            on the host.
    """
    adapters: Any = import_module("tf_keras.src.engine.data_adapter")
    original = adapters.get_data_handler

    @wraps(original)
    def get_data_handler(*args: Any, **kwargs: Any) -> Any:
        handler = original(*args, **kwargs)
        replicas = replicas_of(kwargs.get("model"), handler._dataset.element_spec)
        if replicas is not None and handler._inferred_steps is not None:
            _set_steps(handler, replicas)
        return handler

    adapters.get_data_handler = get_data_handler
    compile_model = tf.keras.Model.compile

    @wraps(compile_model)
    def compile_with_number(self: Any, *args: Any, **kwargs: Any) -> None:
        if tf.is_tensor(kwargs.get("steps_per_execution")):  # Keras takes only a number, not a data set's cardinality
            kwargs["steps_per_execution"] = int(kwargs["steps_per_execution"])
        compile_model(self, *args, **kwargs)

    tf.keras.Model.compile = compile_with_number


def _set_steps(handler: Any, replicas: int) -> None:
    """Set an epoch's steps; raises ProgramError with Graphcore's message for too few or indivisible batches."""
    size = handler._adapter.get_size()
    if size is None and (cardinality := int(handler._dataset.cardinality())) >= 0:
        size = cardinality
    batches = handler._inferred_steps if size is None else size
    has_partial = size is not None and batches > 1 and bool(handler._adapter.has_partial_batch())
    requested_steps, full_batches = handler._steps_per_epoch, batches - has_partial
    steps = full_batches // replicas if requested_steps in (None, -1) else requested_steps
    if not steps:
        raise ProgramError(
            f"The provided dataset contains {full_batches} items, but all {replicas} replicas are requested to run 1 "
            f"steps each. Make sure the dataset contains at least {replicas} items."
        )
    if size is not None and steps * replicas > batches:
        raise ProgramError(
            f"Your input does not have enough data. Make sure that your dataset or generator can generate at least "
            f"{steps * replicas} batches (currently it can only generate {batches} batches). You may need to use the "
            "repeat() function when building your dataset."
        )
    if steps % min(int(handler._steps_per_execution), steps):
        to_this = " to this replica" if replicas > 1 else ""
        raise ProgramError(
            f"`steps_per_execution` must be a divisor of the number of batches in the dataset provided{to_this}."
        )
    handler._inferred_steps = steps + (has_partial and replicas == 1 and requested_steps in (None, -1))

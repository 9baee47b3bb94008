"""Check arguments and results of an estimator's model and input functions, and call them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's unbound arguments; raises ProgramTypeError for no function."""
    checks.function("model_fn", function)
    bound_names = set(function.keywords) if isinstance(function, partial) else set()
    return [name for name in inspect.signature(function).parameters if name not in bound_names]


def call_with(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call a function with the options that it has arguments for, by name."""
    names = arguments_of(function)
    return function(**{name: value for name, value in options.items() if name in names})


def dataset_of(input_fn: Any, options: Mapping[str, Any]) -> Any:
    """Return the data set of an input function; raises ProgramError for another result."""
    checks.function("input_fn", input_fn, "a function that returns a dataset")
    result = call_with(input_fn, options)
    if not isinstance(result, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise ProgramError("input_fn must return Dataset")
    return result


def check_model_fn(model_fn: Any, params: Mapping[str, Any] | None) -> None:
    """Check the argument names of a model function, as TensorFlow does; raises ProgramError."""
    names = arguments_of(model_fn)
    if "features" not in names:
        raise ProgramError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ProgramError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    unexpected_names = [
        name for name in names if name not in ("features", "labels", "mode", "params", "config", "self")
    ]
    if unexpected_names:
        raise ProgramError(f"model_fn ({model_fn}) has following not expected args: {unexpected_names}")


def features_and_labels(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return features and labels of a data set's element; raises ProgramError with Graphcore's message."""
    if kwargs:
        return dict(kwargs), None
    if len(args) not in (1, 2):
        raise ProgramError(f"Invalid dataset tuple, expected 1 or 2 elements, got {len(args)}")
    return args if len(args) == 2 else (args[0], None)

"""How an estimator calls the functions that it is given: with the arguments that they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.dataset import Dataset


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a function still takes; raises ProgramTypeError for none."""
    if not callable(function):
        checks.wrong_type("model_fn", "a function", function)
    taken = set(function.keywords) if isinstance(function, partial) else set()
    return [name for name in inspect.signature(function).parameters if name not in taken]


def call_with(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a function with those of the arguments that it takes, each by its name."""
    known = arguments_of(function)
    return function(**{name: value for name, value in given.items() if name in known})


def dataset_of(input_fn: Any, given: Mapping[str, Any]) -> Dataset:
    """Return the dataset that an input function gives; raises ProgramError for anything else."""
    if not callable(input_fn):
        checks.wrong_type("input_fn", "a function that returns a dataset", input_fn)
    found = call_with(input_fn, given)
    if not isinstance(found, Dataset):
        raise ProgramError("input_fn must return Dataset")
    return found


def check_model_fn(model_fn: Any, params: Mapping[str, Any] | None) -> None:
    """Check the arguments that a model function takes, as TensorFlow does; raises ProgramError."""
    names = arguments_of(model_fn)
    if "features" not in names:
        raise ProgramError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ProgramError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    others = [name for name in names if name not in ("features", "labels", "mode", "params", "config", "self")]
    if others:
        raise ProgramError(f"model_fn ({model_fn}) has following not expected args: {others}")


def features_and_labels(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return an element of the dataset as features and labels; raises ProgramError in Graphcore's words."""
    if kwargs:
        return dict(kwargs), None
    if len(args) not in (1, 2):
        raise ProgramError(f"Invalid dataset tuple, expected 1 or 2 elements, got {len(args)}")
    return args if len(args) == 2 else (args[0], None)

"""Keras' objects in plain values, as files of JSON hold them, and back: a class's name and its configuration.

Names of classes are looked up in tables alone: those of the house, and of what the program itself gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.keras.utils import custom_objects, registered_name

_KERAS: Final = "ipusim.ipu.tensorflow.keras"
#: Of each kind of object the modules whose names are known, and the base of its classes.
_KINDS: Final = {
    "layer": (("ipusim.ipu.tensorflow.keras.layers", f"{_KERAS}.models"), f"{_KERAS}.layer:Layer"),
    "initializer": (("ipusim.ipu.runtime.initializers",), "ipusim.ipu.runtime.initializers:Initializer"),
    "loss": ((f"{_KERAS}.losses",), f"{_KERAS}.losses:Loss"),
    "metric": ((f"{_KERAS}.metrics",), f"{_KERAS}.metrics:Metric"),
    "optimizer": ((f"{_KERAS}.optimizers",), f"{_KERAS}.optimizers:Optimizer"),
    "schedule": ((f"{_KERAS}.schedules",), f"{_KERAS}.schedules:LearningRateSchedule"),
}
#: Layers that no module of TensorFlow's has by their names.
_UNOFFERED: Final = {"Functional": f"{_KERAS}.model", "Operator": f"{_KERAS}.graph"}
#: Where Graphcore's layers are, some of which have names of Keras'; theirs stand behind this prefix.
_IPU: Final = ("ipusim.ipu.keras.layers", "ipu>")
_TUPLE, _ARRAY, _SLICE, _ELLIPSIS, _STATE = "__tuple__", "__ndarray__", "__slice__", "__ellipsis__", "LSTMStateTuple"


def described(value: Any) -> Any:
    """Return an object with a ``get_config`` as class_name and config, a function as its name; others as they are."""
    if hasattr(value, "get_config") and not isinstance(value, type):
        return {"class_name": class_name(type(value)), "config": value.get_config()}
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    return registered_name(value) if callable(value) and hasattr(value, "__name__") else value


def class_name(kind: type) -> str:
    """Return the name under which a saved class is looked up."""
    module, prefix = _IPU
    return f"{prefix}{kind.__name__}" if kind.__module__ == module else registered_name(kind)


def plain(value: Any, where: str = "config") -> Any:
    """Return what JSON can hold of a value; raises ProgramTypeError, naming ``where``, for what it cannot."""
    result = described(value)
    if isinstance(result, Mapping) and all(isinstance(name, str) for name in result):
        result = {name: plain(item, f"{where}[{name!r}]") for name, item in result.items()}
    elif isinstance(result, list):
        result = [plain(item, where) for item in result]
    elif isinstance(result, tuple | slice | np.ndarray) or result is Ellipsis:
        result = _named(result, where)
    elif isinstance(result, np.dtype):
        result = result.name
    elif result is not None and not isinstance(result, bool | int | float | str):
        if not hasattr(result, "__float__"):
            checks.wrong_type(where, "numbers, texts, lists, dictionaries, or objects with a get_config()", value)
        result = result.item() if isinstance(result, np.generic) else float(result)
    return result


def _named(value: Any, where: str) -> dict[str, Any]:
    """Return a value that JSON has no form for by a name, and its parts."""
    if isinstance(value, np.ndarray):
        return {"class_name": _ARRAY, "config": [value.dtype.name, value.tolist()]}
    if isinstance(value, slice):
        return {"class_name": _SLICE, "config": plain([value.start, value.stop, value.step], where)}
    if isinstance(value, tuple):
        name = _STATE if type(value).__name__ == _STATE else _TUPLE
        return {"class_name": name, "config": [plain(item, where) for item in value]}
    return {"class_name": _ELLIPSIS, "config": []}


def restored(value: Any) -> Any:
    """Return what :func:`plain` was given, objects still described; raises as making arrays of them does."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    name, config = value.get("class_name"), value.get("config")
    if name in _MADE and isinstance(config, list):
        return _MADE[name](*(restored(item) for item in config))
    return {item: restored(part) for item, part in value.items()}


#: What :func:`_named` has names for, of its parts.
_MADE: Final[dict[Any, Callable[..., Any]]] = {
    _TUPLE: lambda *parts: parts,
    _ARRAY: lambda dtype, value: np.asarray(value, checks.dtype("dtype", dtype, "biuf")),
    _SLICE: slice,
    _ELLIPSIS: lambda: ...,
    _STATE: lambda *parts: import_module("ipusim.ipu.tensorflow.rnn_cell").LSTMStateTuple(*parts),
}


def revived(kind: str, value: Any) -> Any:
    """Return the object that a value describes, or the one of the program's own that it names; others as they are.

    Raises ProgramError for a class that is not known, and as its ``from_config`` does.
    """
    if isinstance(value, Mapping) and {"class_name", "config"} <= set(value):
        return class_of(kind, value["class_name"]).from_config(value["config"])
    return custom_objects().get(value, value) if isinstance(value, str) else value


def class_of(kind: str, name: Any) -> Any:
    """Return the class of a name; raises ProgramError in Keras' words for one that is not known."""
    modules, base = _KINDS[kind]
    if isinstance(name, str):
        if name in (own := custom_objects()):
            return own[name]
        if kind == "layer" and name in _UNOFFERED:
            return getattr(import_module(_UNOFFERED[name]), name)
        home, _, attribute = base.partition(":")
        known = getattr(import_module(home), attribute)
        module, prefix = _IPU
        if kind == "layer" and name.startswith(prefix):
            result = vars(import_module(module)).get(name.removeprefix(prefix))
            if isinstance(result, type) and issubclass(result, known) and result.__module__ == module:
                return result
        for item in map(import_module, modules):
            if name in dir(item) and isinstance(result := getattr(item, name), type) and issubclass(result, known):
                return result
    raise ProgramError(f"Unknown {kind}: {name}. Please ensure this object is passed to the `custom_objects` argument.")


class Configured:
    """Base of objects that are restored from their arguments."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Remember the arguments."""
        made = super().__new__(cls)
        object.__setattr__(made, "_made_with", (args, kwargs))  # some are frozen
        return made

    def get_config(self) -> dict[str, Any]:
        """Return the arguments by their names, defaults included."""
        args, kwargs = self._made_with  # type: ignore[attr-defined]
        bound = inspect.signature(type(self).__init__).bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *options = bound.arguments.items()
        result: dict[str, Any] = {}
        for name, value in options:
            of_kind = bound.signature.parameters[name].kind
            result |= value if of_kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return result

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return one of these arguments; raises as making one does."""
        return cls(**config)

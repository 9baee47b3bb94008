"""``tf.keras.models``: Keras models made of what describes others: a text, a configuration, or a model itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.offered import in_module, offering
from ipusim.ipu.tensorflow.keras.described import restored, revived
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.model import Model
from ipusim.ipu.tensorflow.keras.utils import custom_object_scope


def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """Return the model of what ``to_json`` gave, with weights drawn anew.

    Raises ProgramError for a text that is none, or with what is not known.
    """
    try:
        result = json.loads(checks.text("json_string", json_string))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ProgramError(f"json_string: expected what to_json() gave: {error}") from error
    return model_from_config(result, custom_objects)


def model_from_config(config: Mapping[str, Any], custom_objects: Any = None) -> Any:
    """Return the model of a class_name and what its ``get_config`` gave; raises as :func:`model_from_json` does."""
    if not isinstance(config, dict) or not {"class_name", "config"} <= set(config):
        checks.wrong_type("config", "a dictionary with class_name and config", config)
    with custom_object_scope(custom_objects):
        return revived("layer", restored(config))


def clone_model(model: Any, input_tensors: None = None, clone_function: Callable[[Layer], Layer] | None = None) -> Any:
    """Return a copy of a model with new layers of ``clone_function``, by default with new initial weights.

    Raises ProgramError in Keras' words for a subclass of Model, ProgramTypeError for what is no model.
    """
    checks.instance("model", model, Model, "a model")
    checks.nothing("input_tensors", "the clone has inputs of its own", input_tensors)
    if model.is_subclass:
        raise ProgramError(
            "Expected `model` argument to be a functional `Model` instance, but got a subclass model instead."
        )

    def made(layer: Layer) -> Any:
        result = layer.copied() if clone_function is None else clone_function(layer)
        checks.instance("clone_function", result, Layer, "a layer from it")
        return result

    return model.copied_with(made)


_HERE: Final = "ipusim.ipu.tensorflow.keras"

__getattr__, __dir__ = offering(
    "tf.keras.models",
    {"Model": f"{_HERE}.model:Model", "Sequential": f"{_HERE}.sequential:Sequential"}
    | in_module(__name__, "clone_model model_from_config model_from_json")
    | in_module(f"{_HERE}.whole_models", "load_model save_model"),
)

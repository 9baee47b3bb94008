"""Keras models in files: layers, weights, what they were compiled with, and what their training goes on from.

A file is NumPy's archive (npz) of plain arrays: ``model`` has bytes of JSON, ``weights/`` the weights, ``optimizer/``
the optimizer's arrays by the names of weights. Nothing in it is code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ipusim.errors import IpusimError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.files import archive_of, check_target, write_file
from ipusim.ipu import checks
from ipusim.ipu.tensorflow.keras.custom_objects import custom_object_scope
from ipusim.ipu.tensorflow.keras.described import described, plain, restored, revived
from ipusim.ipu.tensorflow.keras.model_configs import say_what_is_not_kept
from ipusim.ipu.tensorflow.keras.saving import MODEL, arrays_in, check_format, set_weights
from ipusim.ipu.tensorflow.keras.symbolic import mapped_tensors
from ipusim.ipu.tensorflow.keras.training_arrays import (
    places_of,
    resume,
    state_of,
    take_places,
    weight_arrays,
)
from ipusim.ipu.tensorflow.keras.training_config import compile_arguments, training_config
from ipusim.model.layers.layer import Array


def save_model(
    model: Any,
    filepath: str | Path,
    overwrite: bool = True,
    include_optimizer: bool = True,
    save_format: str | None = None,
    signatures: None = None,
    options: None = None,
    save_traces: bool = True,
) -> None:
    """Write a model to one file, whole or not at all; ``save_traces`` has no effect.

    Raises UnsupportedProgramError in Keras' words for a subclass of Model; ProgramError before there are weights, for
    another format and for a file that must not be overwritten; OutputError for one that cannot be written.
    """
    path = check_format(filepath, save_format)
    for name, value in (("signatures", signatures), ("options", options)):
        if value is not None:
            checks.wrong_value(name, "None, as no SavedModel is written", value)
    if not checks.truth("overwrite", overwrite) and path.exists():
        raise ProgramError(f"{path}: expected no file, as overwrite is False, got one")
    check_target(path)
    model.check_built("save")
    say_what_is_not_kept(model)
    text, arrays = _contents(model, checks.truth("include_optimizer", include_optimizer))
    content = {MODEL: np.frombuffer(text.encode(), np.uint8), **weight_arrays(model), **arrays}
    write_file(path, archive_of(content))


def _contents(model: Any, include_optimizer: bool) -> tuple[str, Mapping[str, Array]]:
    """Return a model as a text, and the arrays of its optimizer."""
    found = described(model)
    if model.is_subclass and model.graph is not None:
        found["build_input_shape"] = mapped_tensors(lambda each: each.shape, model.graph.inputs)
    arrays: Mapping[str, Array] = {}
    if include_optimizer and (compiled := training_config(model)) is not None:
        found["training_config"] = compiled
        found["training_state"], arrays = state_of(model)
    found["places"] = places_of(model)
    return json.dumps(plain(found, model.name)), arrays


def load_model(filepath: str | Path, custom_objects: Any = None, compile: bool = True, options: None = None) -> Any:
    """Return a model as it was saved, whose training goes on to the same bits; without ``compile`` it is not compiled.

    Without all of the optimizer's arrays in the file a log says, as Keras' does, that the optimizer begins anew.
    ``custom_objects`` are classes and functions of the program's own by their names. Raises ProgramError for a file
    that cannot be read or is damaged, and for what is not known.
    """
    path = Path(checks.path("filepath", filepath))
    checks.truth("compile", compile)
    arrays = arrays_in(path, "a model that was saved here")
    with custom_object_scope(custom_objects), _made_of(path):
        if MODEL not in arrays:
            raise ProgramError("expected a model that was saved here, got an archive of other arrays: weights alone?")
        found = restored(json.loads(arrays[MODEL].tobytes()))
        model = _checked(revived("layer", found))
        if not model.built and found.get("build_input_shape") is not None:
            model.build(found["build_input_shape"])
        take_places(model, found["places"])
        set_weights(model.weights, arrays, f"{model.path}/")
        if compile and "training_config" in found:
            model.compile(**compile_arguments(found["training_config"]))
            resume(model, found["training_state"], arrays)
        return model


def _checked(model: Any) -> Any:
    if not hasattr(model, "fit"):
        raise ProgramError(f"expected a model, got {model!r}")
    return model


@contextmanager
def _made_of(path: Path) -> Iterator[None]:
    """Name the file in whatever goes wrong with what it holds; raises ProgramError."""
    try:
        yield
    except (ProgramTypeError, UnsupportedProgramError) as error:
        raise type(error)(f"{path}: {error}") from error
    except IpusimError as error:
        raise ProgramError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ProgramError(
            f"{path}: expected a model that can be made again, which fails with {type(error).__name__}: {error}"
        ) from error

"""All that a Keras model's training goes on from, as arrays by name and what stands beside them, and back.

Arrays of the optimizer go by the names that weights have within the model, and back to the weights in their order, so
that a model of another name goes on too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.keras.program import TrainingState
from ipusim.ipu.tensorflow.keras.saving import WEIGHTS, names_of
from ipusim.ipu.tensorflow.session import get_logger
from ipusim.model.layers.layer import Array
from ipusim.runs.checkpoint import OPTIMIZER


def weight_arrays(model: Any) -> dict[str, Array]:
    """Return a model's weights."""
    names = names_of(model.weights, f"{model.path}/")
    return {f"{WEIGHTS}{name}": each.numpy() for name, each in zip(names, model.weights, strict=True)}


def state_of(model: Any) -> tuple[dict[str, Any] | None, Mapping[str, Array]]:
    """Return how far a training is with the names of the optimizer's arrays, None before the first, and these."""
    state = model.training_state
    if state is None:
        return None, {}
    iterations = int(model.optimizer.iterations) if isinstance(model.optimizer, Optimizer) else 0
    names = dict(zip((each.name for each in model.weights), names_of(model.weights, f"{model.path}/"), strict=True))
    arrays = _renamed(state.arrays, names)
    return {"iterations": iterations, "batches": state.batches, "arrays": list(arrays)}, arrays


def resume(model: Any, state: Mapping[str, Any] | None, arrays: Mapping[str, Array]) -> None:
    """Let a compiled model's training go on from there; raises ProgramError for numbers that are none.

    Without all of the optimizer's arrays it begins anew, as in Keras, and a log says so.
    """
    if state is None:
        return
    if missing := [name for name in state["arrays"] if name not in arrays]:
        get_logger().warning(
            "Error in loading the saved optimizer state. As a result, your model is starting with a freshly "
            f"initialized optimizer: expected {len(state['arrays'])} arrays of it, of which {len(missing)} are not "
            f"there, such as {missing[0]!r}."
        )
        return
    held = [name.removeprefix(WEIGHTS) for name in arrays if name.startswith(WEIGHTS)]
    names = dict(zip(held, (each.name for each in model.weights), strict=True))
    found = TrainingState(_renamed(arrays, names), checks.whole("batches", state["batches"]))
    iterations = checks.whole("iterations", state["iterations"])
    model.resume(found)
    if isinstance(model.optimizer, Optimizer):
        model.optimizer.iterations = iterations


def places_of(model: Any) -> list[int]:
    """Return the place of each layer, on which its random draws depend."""
    return [each._place for each in _all_layers(model)]


def take_places(model: Any, places: Any) -> None:
    """Give the layers their places; raises ProgramError for another number of them."""
    layers = list(_all_layers(model))
    if not isinstance(places, list) or len(places) != len(layers):
        checks.wrong_value("places", f"the places of {len(layers)} layers", places)
    for each, place in zip(layers, [checks.whole("places", place) for place in places], strict=True):
        each._place = place


def _all_layers(model: Any) -> Iterator[Any]:
    for each in model.sublayers():
        yield each
        yield from _all_layers(each)


def _renamed(arrays: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    """Return an optimizer's arrays, each with another name of its weight."""
    found: dict[str, Array] = {}
    for name, array in arrays.items():
        parts = name.removeprefix(OPTIMIZER).split("/") if name.startswith(OPTIMIZER) else []
        for count in range(len(parts), 0, -1):
            weight = "/".join(parts[:count])
            if weight in names:
                found[f"{OPTIMIZER}{'/'.join([names[weight], *parts[count:]])}"] = array
                break
    return found

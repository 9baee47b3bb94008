"""All that a Keras model's training goes on from, as arrays by name and what stands beside them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.keras.program import TrainingState
from ipusim.ipu.tensorflow.keras.saving import WEIGHTS, names_of
from ipusim.model.layers.layer import Array
from ipusim.runs.checkpoint import OPTIMIZER


def weight_arrays(model: Any) -> dict[str, Array]:
    """Return a model's weights."""
    names = names_of(model.weights, f"{model.path}/")
    return {f"{WEIGHTS}{name}": each.numpy() for name, each in zip(names, model.weights, strict=True)}


def state_of(model: Any) -> tuple[dict[str, int] | None, Mapping[str, Array]]:
    """Return how far a training is, None before the first, and the optimizer's arrays."""
    state = model.training_state
    if state is None:
        return None, {}
    iterations = int(model.optimizer.iterations) if isinstance(model.optimizer, Optimizer) else 0
    return {"iterations": iterations, "batches": state.batches}, state.arrays


def resume(model: Any, state: Mapping[str, Any] | None, arrays: Mapping[str, Array]) -> None:
    """Let a compiled model's training go on from there; raises ProgramError for numbers that are none."""
    if state is None:
        return
    of_optimizer = {name: each for name, each in arrays.items() if name.startswith(OPTIMIZER)}
    found = TrainingState(of_optimizer, checks.whole("batches", state["batches"]))
    iterations = checks.whole("iterations", state["iterations"])
    model.resume(found)
    if isinstance(model.optimizer, Optimizer):
        model.optimizer.iterations = iterations

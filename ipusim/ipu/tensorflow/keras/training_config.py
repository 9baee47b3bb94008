"""What a Keras model was compiled with as plain values, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ipusim.errors import ProgramError
from ipusim.ipu.tensorflow.keras import losses, metrics
from ipusim.ipu.tensorflow.keras.described import described, revived
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.session import get_logger


def training_config(model: Any) -> dict[str, Any] | None:
    """Return the arguments of compile; None before it, or for an optimizer of ``tf.train``, as a log says then."""
    objective = model._objective
    if objective is None:
        return None
    if not isinstance(model.optimizer, Optimizer):
        get_logger().warning(
            "TensorFlow optimizers do not make it possible to access optimizer attributes or optimizer state after "
            "instantiation. As a result, we cannot save the optimizer as part of the model save file. You will have to "
            "compile your model again after loading it. Prefer using a Keras optimizer instead."
        )
        return None
    loss, asked, weighted, loss_weights = objective.asked
    return {
        "optimizer": described(model.optimizer),
        "loss": loss,
        "metrics": asked,
        "weighted_metrics": weighted,
        "loss_weights": loss_weights,
        "steps_per_execution": model._steps_per_execution,
    }


def compile_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of compile again; raises ProgramError for a loss or metric that is not known."""
    return {
        "optimizer": revived("optimizer", config["optimizer"]),
        "loss": _revived("loss", config["loss"], losses.is_known),
        "metrics": _revived("metric", config["metrics"], metrics.is_known),
        "weighted_metrics": _revived("metric", config["weighted_metrics"], metrics.is_known),
        "loss_weights": config["loss_weights"],
        "steps_per_execution": config["steps_per_execution"],
    }


def _revived(kind: str, value: Any, is_known: Callable[[str], bool]) -> Any:
    if isinstance(value, Mapping) and not {"class_name", "config"} <= set(value):
        return {name: _revived(kind, each, is_known) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_revived(kind, each, is_known) for each in value]
    found = revived(kind, value)
    if isinstance(found, str) and not is_known(found):
        raise ProgramError(
            f"Unknown {kind} function: {found}. Please ensure this object is passed to the `custom_objects` argument."
        )
    return found

"""Keras models in files: layers, weights, what they were compiled with, and what their training goes on from.

A file is NumPy's archive (npz) of plain arrays: ``model`` has bytes of JSON, ``weights/`` the weights, ``optimizer/``
the optimizer's arrays by the names of weights. Nothing in it is code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from ipusim.api import Array
from ipusim.base.errors import IpusimError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.base.files import archive_of, check_target, write_file
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.pipeline_options import GradientAccumulationReductionMethod
from ipusim.ipu.runtime.structures import mapped
from ipusim.ipu.tensorflow.keras import losses, metrics, saving
from ipusim.ipu.tensorflow.keras.described import described, plain, restored, revived
from ipusim.ipu.tensorflow.keras.graph import Graph, InputLayer
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.optimizers import Optimizer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node, mapped_tensors, tensors
from ipusim.ipu.tensorflow.keras.utils import custom_object_scope
from ipusim.ipu.tensorflow.session import get_logger


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
    path = saving.check_format(filepath, save_format)
    for name, value in (("signatures", signatures), ("options", options)):
        checks.nothing(name, "no SavedModel is written", value)
    if not checks.truth("overwrite", overwrite) and path.exists():
        raise ProgramError(f"{path}: expected no file, as overwrite is False, got one")
    check_target(path)
    model.check_built("save")
    log_unsaved_options(model)
    text, arrays = _contents(model, checks.truth("include_optimizer", include_optimizer))
    content = {saving.MODEL: np.frombuffer(text.encode(), np.uint8), **saving.weight_arrays(model), **arrays}
    write_file(path, archive_of(content))


def _contents(model: Any, include_optimizer: bool) -> tuple[str, Mapping[str, Array]]:
    """Return a model as a text, and the arrays of its optimizer."""
    result = described(model)
    if model.is_subclass and model.graph is not None:
        result["build_input_shape"] = mapped_tensors(lambda item: item.shape, model.graph.inputs)
    arrays: Mapping[str, Array] = {}
    if include_optimizer and (compiled := training_config(model)) is not None:
        result["training_config"] = compiled
        result["training_state"], arrays = saving.state_of(model)
    result["places"] = saving.positions_of(model)
    return json.dumps(plain(result, model.name)), arrays


def load_model(filepath: str | Path, custom_objects: Any = None, compile: bool = True, options: None = None) -> Any:
    """Return a model as it was saved, whose training goes on to the same bits; without ``compile`` it is not compiled.

    Without all of the optimizer's arrays in the file a log says, as Keras' does, that the optimizer begins anew.
    ``custom_objects`` are classes and functions of the program's own by their names. Raises ProgramError for a file
    that cannot be read or is damaged, and for what is not known.
    """
    path = Path(checks.path("filepath", filepath))
    checks.truth("compile", compile)
    arrays = saving.arrays_in(path, "a model that was saved here")
    with custom_object_scope(custom_objects), _made_of(path):
        if saving.MODEL not in arrays:
            raise ProgramError("expected a model that was saved here, got an archive of other arrays: weights alone?")
        result = restored(json.loads(arrays[saving.MODEL].tobytes()))
        model = revived("layer", result)
        if not hasattr(model, "fit"):
            raise ProgramError(f"expected a model, got {model!r}")
        if not model.built and result.get("build_input_shape") is not None:
            model.build(result["build_input_shape"])
        saving.take_positions(model, result["places"])
        saving.set_weights(model.weights, arrays, f"{model.path}/")
        if compile and "training_config" in result:
            model.compile(**compile_arguments(result["training_config"]))
            saving.resume(model, result["training_state"], arrays)
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
    loss, unweighted, weighted, loss_weights = objective.arguments
    return {
        "optimizer": described(model.optimizer),
        "loss": loss,
        "metrics": unweighted,
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
        return {name: _revived(kind, item, is_known) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_revived(kind, item, is_known) for item in value]
    result = revived(kind, value)
    if isinstance(result, str) and not is_known(result):
        raise ProgramError(
            f"Unknown {kind} function: {result}. Please ensure this object is passed to the `custom_objects` argument."
        )
    return result


_TENSOR: Final = "__keras_tensor__"
_METHOD: Final = "gradient_accumulation_reduction_method"
#: Options that a model keeps, by their names in a configuration.
_SAVED_OPTIONS: Final = {
    "gradient_accumulation_steps_per_replica": "accumulation_steps",
    "pipelining_gradient_accumulation_steps_per_replica": "pipelining_steps",
    "pipelining_device_mapping": "device_mapping",
    "pipelining_accumulate_outfeed": "accumulate_outfeed",
    "asynchronous_callbacks": "asynchronous",
}
#: Those that it does not, by what sets them anew.
_UNSAVED_OPTIONS: Final = {
    "pipelining": "set_pipelining_options",
    "accumulating": "set_gradient_accumulation_options",
    "infeed": "set_infeed_queue_options",
    "outfeed": "set_outfeed_queue_options",
}


def graph_config(graph: Graph, input_layers: list[Any]) -> dict[str, Any]:
    """Return the layers of a graph, each with its calls, and which tensors are its inputs and outputs."""
    index: dict[int, int] = {}
    calls: dict[int, list[Node]] = {}
    for node in graph.nodes:
        same = calls.setdefault(id(node.layer), [])
        index[id(node)] = len(same)
        same.append(node)

    def named(tensor: KerasTensor) -> Any:
        node = tensor.node
        if node is None:
            path: list[Any] = [tensor.input_layer.name, 0, 0]
        else:
            path = [node.layer.name, index[id(node)], [id(item) for item in tensors(node.outputs)].index(id(tensor))]
        return {"class_name": _TENSOR, "config": path}

    def entry(layer: Any) -> dict[str, Any]:
        nodes = [
            {"args": mapped_tensors(named, node.args), "kwargs": mapped_tensors(named, dict(node.kwargs))}
            for node in calls.get(id(layer), [])
        ]
        return {**described(layer), "name": layer.name, "inbound_nodes": nodes}

    return {
        "layers": [entry(input_layer) for input_layer in [*input_layers, *graph.layers]],
        "input_layers": mapped_tensors(named, graph.inputs),
        "output_layers": mapped_tensors(named, graph.outputs),
    }


def graph_of(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the inputs and outputs of a graph that was described; raises ProgramError for calls without a beginning.

    Raises as making layers does, and whatever comes of a configuration that is none.
    """
    arguments: dict[tuple[str, int, int], Any] = {}
    waiting: list[tuple[str, Any, int, Any]] = []
    for item in config["layers"]:
        layer, name = revived("layer", item), item["name"]
        if isinstance(layer, InputLayer):
            arguments[name, 0, 0] = layer.tensor
        waiting += [(name, layer, number, call) for number, call in enumerate(item["inbound_nodes"])]

    def tensor_of(reference: Any) -> Any:
        return arguments[tuple(reference)]

    while waiting:
        later = []
        for name, layer, number, call in waiting:
            if any(tuple(reference) not in arguments for reference in _places(call)):
                later.append((name, layer, number, call))
                continue
            first, *others = _filled(call["args"], tensor_of)
            outputs = layer(first, *others, **_filled(call["kwargs"], tensor_of))
            arguments.update(((name, number, at), tensor) for at, tensor in enumerate(tensors(outputs)))
        if len(later) == len(waiting):
            raise ProgramError(f"layer {later[0][0]!r}: expected calls on tensors of other layers, got {later[0][3]}")
        waiting = later
    return _filled(config["input_layers"], tensor_of), _filled(config["output_layers"], tensor_of)


def options_config(model: Any) -> dict[str, Any]:
    """Return how a model runs on IPUs."""
    options = model.options
    assigned = model.__dict__.get("_assigned") or None
    if assigned and model.graph is not None:
        assigned = list(options.stage_of(model.graph))
    elif assigned:
        assigned = [item.pipeline_stage for item in assigned]
    saved = {name: getattr(options, own) for name, own in _SAVED_OPTIONS.items()}
    return {"pipeline_stage_assignment": assigned, **saved, _METHOD: options.reduction_method.name.lower()}


def log_unsaved_options(model: Any) -> None:
    """Log which options of a model are not saved with it; once after they were set."""
    if model.__dict__.get("_said") == model.options.version:
        return
    model.__dict__["_said"] = model.options.version
    for name, method in _UNSAVED_OPTIONS.items():
        if value := getattr(model.options, name):
            get_logger().warning(
                "Model %s: %s of %s is not saved, as Graphcore has it: call it again on the model that is loaded",
                *(model.name, ", ".join(value), method),
            )


def set_options(model: Any, config: Mapping[str, Any]) -> None:
    """Set the options of a model as :func:`options_config` returned them; raises ProgramError for other stages."""
    model.options.changed(
        reduction_method=GradientAccumulationReductionMethod.parse(config[_METHOD]),
        **{own: config[name] for name, own in _SAVED_OPTIONS.items()},
    )
    assigned = config["pipeline_stage_assignment"]
    if assigned is not None:
        model.assign_stages(assigned)


def copied_graph(graph: Graph, made: Callable[[Layer], Layer]) -> tuple[Any, Any]:
    """Return inputs and outputs of the same calls, each layer in the place of another that is ``made`` of it."""
    new: dict[int, Any] = {}
    for item in tensors(graph.inputs):
        name = item.input_layer.name if item.input_layer is not None else item.name
        new[id(item)] = KerasTensor(item.shape, item.dtype, name=name)
    layers = {id(layer): made(layer) for layer in graph.layers}

    def of(tensor: KerasTensor) -> Any:
        return new[id(tensor)]

    for node in graph.nodes:
        first, *others = mapped_tensors(of, node.args)
        value = layers[id(node.layer)](first, *others, **mapped_tensors(of, dict(node.kwargs)))
        new.update(zip(map(id, tensors(node.outputs)), tensors(value), strict=True))
    return mapped_tensors(of, graph.inputs), mapped_tensors(of, graph.outputs)


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("class_name") == _TENSOR


def _places(structure: Any) -> list[Any]:
    """Return the places of all tensors in a structure."""
    result: list[Any] = []
    _filled(structure, result.append)
    return result


def _filled(structure: Any, tensor_at: Callable[[Any], Any]) -> Any:
    """Return a structure whose references to tensors are replaced by what ``tensor_at`` returns for them."""
    return mapped(lambda item: tensor_at(item["config"]) if _is_reference(item) else item, structure, _is_reference)

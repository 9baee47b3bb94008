"""A Keras model without its weights as plain values: its layers, their calls, and how it runs on IPUs; and back.

As the seed has it, further arguments of the pipeline, of gradient accumulation and of queues are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ipusim.errors import ProgramError
from ipusim.ipu.gradient_accumulation import GradientAccumulationReductionMethod
from ipusim.ipu.structures import mapped
from ipusim.ipu.tensorflow.keras.described import described, revived
from ipusim.ipu.tensorflow.keras.graph import Graph
from ipusim.ipu.tensorflow.keras.input_layer import InputLayer
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node, mapped_tensors, tensors
from ipusim.ipu.tensorflow.session import get_logger

_TENSOR: Final = "__keras_tensor__"
_METHOD: Final = "gradient_accumulation_reduction_method"
#: Options that a model keeps, by their names in a configuration.
_KEPT: Final = {
    "gradient_accumulation_steps_per_replica": "accumulation_steps",
    "pipelining_gradient_accumulation_steps_per_replica": "pipelining_steps",
    "pipelining_device_mapping": "device_mapping",
    "pipelining_accumulate_outfeed": "accumulate_outfeed",
    "asynchronous_callbacks": "asynchronous",
}
#: Those that it does not, by what sets them anew.
_NOT_KEPT: Final = {
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
            place: list[Any] = [tensor.input_layer.name, 0, 0]
        else:
            place = [node.layer.name, index[id(node)], [id(each) for each in tensors(node.outputs)].index(id(tensor))]
        return {"class_name": _TENSOR, "config": place}

    def entry(layer: Any) -> dict[str, Any]:
        nodes = [
            {"args": mapped_tensors(named, node.args), "kwargs": mapped_tensors(named, dict(node.kwargs))}
            for node in calls.get(id(layer), [])
        ]
        return {**described(layer), "name": layer.name, "inbound_nodes": nodes}

    return {
        "layers": [entry(each) for each in [*input_layers, *graph.layers]],
        "input_layers": mapped_tensors(named, graph.inputs),
        "output_layers": mapped_tensors(named, graph.outputs),
    }


def graph_of(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the inputs and outputs of a graph that was described; raises ProgramError for calls without a beginning.

    Raises as making layers does, and whatever comes of a configuration that is none.
    """
    given: dict[tuple[str, int, int], Any] = {}
    waiting: list[tuple[str, Any, int, Any]] = []
    for each in config["layers"]:
        layer, name = revived("layer", each), each["name"]
        if isinstance(layer, InputLayer):
            given[name, 0, 0] = layer.tensor
        waiting += [(name, layer, number, call) for number, call in enumerate(each["inbound_nodes"])]

    def found(place: Any) -> Any:
        return given[tuple(place)]

    while waiting:
        later = []
        for name, layer, number, call in waiting:
            if any(tuple(place) not in given for place in _places(call)):
                later.append((name, layer, number, call))
                continue
            first, *others = _filled(call["args"], found)
            outputs = layer(first, *others, **_filled(call["kwargs"], found))
            given.update(((name, number, at), each) for at, each in enumerate(tensors(outputs)))
        if len(later) == len(waiting):
            raise ProgramError(f"layer {later[0][0]!r}: expected calls on tensors of other layers, got {later[0][3]}")
        waiting = later
    return _filled(config["input_layers"], found), _filled(config["output_layers"], found)


def options_config(model: Any) -> dict[str, Any]:
    """Return how a model runs on IPUs."""
    options = model.options
    assigned = model.__dict__.get("_assigned") or None
    if assigned and model.graph is not None:
        assigned = list(options.stage_of(model.graph))
    elif assigned:
        assigned = [each.pipeline_stage for each in assigned]
    kept = {name: getattr(options, own) for name, own in _KEPT.items()}
    return {"pipeline_stage_assignment": assigned, **kept, _METHOD: options.reduction_method.name.lower()}


def say_what_is_not_kept(model: Any) -> None:
    """Log which options of a model are not saved with it; once after they were set."""
    if model.__dict__.get("_said") == model.options.version:
        return
    model.__dict__["_said"] = model.options.version
    for name, method in _NOT_KEPT.items():
        if given := getattr(model.options, name):
            get_logger().warning(
                "Model %s: %s of %s is not saved, as Graphcore has it: call it again on the model that is loaded",
                *(model.name, ", ".join(given), method),
            )


def set_options(model: Any, config: Mapping[str, Any]) -> None:
    """Let a model run as another did; raises ProgramError for stages that are not its own."""
    model.options.changed(
        reduction_method=GradientAccumulationReductionMethod.parse(config[_METHOD]),
        **{own: config[name] for name, own in _KEPT.items()},
    )
    assigned = config["pipeline_stage_assignment"]
    if assigned is not None:
        model.assign_stages(assigned)


def copied_graph(graph: Graph, made: Callable[[Layer], Layer]) -> tuple[Any, Any]:
    """Return inputs and outputs of the same calls, each layer in the place of another that is ``made`` of it."""
    new: dict[int, Any] = {}
    for each in tensors(graph.inputs):
        name = each.input_layer.name if each.input_layer is not None else each.name
        new[id(each)] = KerasTensor(each.shape, each.dtype, name=name)
    layers = {id(each): made(each) for each in graph.layers}

    def of(tensor: KerasTensor) -> Any:
        return new[id(tensor)]

    for node in graph.nodes:
        first, *others = mapped_tensors(of, node.args)
        given = layers[id(node.layer)](first, *others, **mapped_tensors(of, dict(node.kwargs)))
        new.update(zip(map(id, tensors(node.outputs)), tensors(given), strict=True))
    return mapped_tensors(of, graph.inputs), mapped_tensors(of, graph.outputs)


def _is_place(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("class_name") == _TENSOR


def _places(structure: Any) -> list[Any]:
    """Return the places of all tensors in a structure."""
    found: list[Any] = []
    _filled(structure, found.append)
    return found


def _filled(structure: Any, found: Callable[[Any], Any]) -> Any:
    """Return a structure with what is ``found`` of each place of a tensor in its stead."""
    return mapped(lambda each: found(each["config"]) if _is_place(each) else each, structure, _is_place)

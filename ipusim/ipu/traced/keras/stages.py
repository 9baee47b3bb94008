"""Turn a model's layer calls into functions of pipeline stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Final

from ipusim.ipu.graph.tensorflow_import import load

tf = load()

#: Attribute in which a Model subclass keeps the layer calls found by a symbolic call.
_CALLS: Final = "_ipu_calls"


@dataclass(frozen=True, eq=False)
class ModelCalls:
    """Layer calls that make up a model.

    Attributes:
        nodes: layer calls in topological order.
        inputs: symbolic input tensors.
        outputs: structure of symbolic output tensors.
    """

    nodes: Sequence[Any]
    inputs: Sequence[Any]
    outputs: Any


def calls_of(outputs: Any, inputs: Sequence[Any]) -> ModelCalls:
    """Return layer calls between symbolic inputs and outputs, in topological order."""
    nodes, _ = import_module("tf_keras.src.engine.functional")._build_map(tf.nest.flatten(outputs))
    return ModelCalls([node for node in nodes if not node.is_input], list(inputs), outputs)


def symbolic_calls(model: Any, element: Any) -> ModelCalls:
    """Return the layer calls of a model.

    Args:
        model: a tf_keras model. The layer calls of a Model subclass come from a call on symbolic inputs.
        element: inputs of a batch, or their ``tf.TensorSpec``, to build an unbuilt model.
    """
    if isinstance(model, tf.keras.Sequential) and not model.inputs:
        (tensor,) = tf.nest.flatten(element)
        model._build_graph_network_for_inferred_shape(tensor.shape, tensor.dtype)
    if model._is_graph_network:
        return calls_of(model._nested_outputs, model.inputs)
    if _CALLS in model.__dict__:
        calls: ModelCalls = model.__dict__[_CALLS]
        return calls
    inputs = tf.nest.map_structure(
        lambda spec: tf.keras.Input(spec.shape[1:], batch_size=spec.shape[0], dtype=spec.dtype), element
    )
    model.__dict__[_CALLS] = calls_of(model.call(inputs), tf.nest.flatten(inputs))
    return symbolic_calls(model, element)


class _Repeatable(dict[str, Any]):
    """Tensors by name for ``Node.map_arguments``, which pops values from lists."""

    def __getitem__(self, name: str) -> list[Any]:
        return [super().__getitem__(name)]


@dataclass
class StageFunctions:
    """Functions of a pipeline's stages.

    A stage takes and sends all tensors: values, masks, layer losses, and the batch. The cut of the step drops tensors
    without readers in later stages.

    Attributes:
        calls: layer calls.
        stage_of: stage per layer call.
        training: whether layers train.
        begin: takes batch tensors, returns model inputs.
        finish: takes model outputs, layer losses and batch tensors; returns the last stage's results.
    """

    calls: ModelCalls
    stage_of: Sequence[int]
    training: bool
    begin: Callable[[list[Any]], list[Any]]
    finish: Callable[[Any, list[Any], list[Any]], Any]
    #: Kind and name of every tensor that a stage sends to the next stage, before the batch.
    _layout: list[tuple[str, str]] = field(default_factory=list)

    def functions(self) -> list[Callable[..., Any]]:
        """Return the function per stage; the first stage takes the batch's tensors."""
        self._layout = []
        return [partial(self._run, stage) for stage in range(max(self.stage_of, default=0) + 1)]

    def _run(self, stage: int, *tensors: Any) -> Any:
        tensor_of = dict(zip(self._layout, tensors, strict=False))
        batch = list(tensors[len(self._layout) :])
        values = {name: tensor for (kind, name), tensor in tensor_of.items() if kind == "value"}
        if stage == 0:
            values = dict(zip(map(_name, self.calls.inputs), self.begin(batch), strict=True))
        losses = [tensor for (kind, _), tensor in tensor_of.items() if kind == "loss"]
        for (kind, name), tensor in tensor_of.items():
            if kind == "mask":
                values[name]._keras_mask = tensor
        for node, number in zip(self.calls.nodes, self.stage_of, strict=True):
            if number == stage:
                losses += self._call(node, values)
        if stage == max(self.stage_of):
            outputs = tf.nest.map_structure(lambda tensor: values[_name(tensor)], self.calls.outputs)
            return self.finish(outputs, losses, batch)
        masks = {
            name: mask for name, value in values.items() if (mask := getattr(value, "_keras_mask", None)) is not None
        }
        tensors_sent = {
            **{("value", name): value for name, value in values.items()},
            **{("mask", name): mask for name, mask in masks.items()},
            **{("loss", str(number)): loss for number, loss in enumerate(losses)},
        }
        self._layout = list(tensors_sent)
        return [*tensors_sent.values(), *batch]

    def _call(self, node: Any, values: dict[str, Any]) -> list[Any]:
        """Call a layer; return the layer's losses."""
        layer = node.layer
        arguments, keywords = node.map_arguments(_Repeatable(values))
        if layer._expects_training_arg and keywords.get("training") is None:
            keywords = {**keywords, "training": self.training}
        outputs = layer(*arguments, **keywords)
        values.update(zip(node.flat_output_ids, tf.nest.flatten(outputs), strict=True))
        first_call = next(call for call in self.calls.nodes if call.layer is layer)
        return [tf.convert_to_tensor(loss) for loss in layer.losses] if node is first_call else []


def _name(tensor: Any) -> str:
    """Return a symbolic tensor's name in tf_keras nodes."""
    return str(id(tensor))


def model_inputs(model: Any, x: Any) -> list[Any]:
    """Return a batch's inputs in the order of the model's symbolic inputs."""
    if not getattr(model, "_is_graph_network", False):
        return list(tf.nest.flatten(x))
    inputs = model._flatten_to_reference_inputs(x)
    pairs = zip(inputs, model.inputs, strict=True)
    return [model._conform_to_reference_input(tensor, ref_input=symbol) for tensor, symbol in pairs]

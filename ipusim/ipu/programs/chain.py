"""Recover the layers of a traced program as a chain, from its nodes.

A layer of a chain takes the output of the layer before; a sum also adds the output of an earlier layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ipusim.api import layers
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.executable import shared_name
from ipusim.ipu.graph.node import Graph, Node, Output
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.observed import Form, form_of
from ipusim.ipu.graph.prices.view import VIEWS, PassView
from ipusim.ipu.graph.profile import ObservedStage
from ipusim.ipu.graph.traced_functions import StepFunctions

#: Types of nodes whose results do not depend on input values.
_VALUE_FREE_TYPES: Final = frozenset({"Const", "Shape", "ShapeN", "Size", "Rank", "VarHandleOp", "ReadVariableOp"})

#: Types of nodes that pass labels on, in another form or dtype.
_SAME_LABELS: Final = VIEWS | {"Cast"}
#: Types of nodes that turn a gradient into a dense tensor: views, and sums over an embedding's rows.
_DENSE_GRADIENT_TYPES: Final = VIEWS | {"UnsortedSegmentSum"}


class NotLayersError(UnsupportedProgramError):
    """Error for a program that is not a chain of layers; the text names the deviation."""


@dataclass(frozen=True, eq=False)
class Chained:
    """Layer or loss in a program's chain.

    Attributes:
        layer: the simulator's layer or loss.
        scoped: name with all scopes.
        variables: shared names of its variables.
        input: form of its input, with the axis of samples.
        labels: form of a loss's labels; None for a layer.
        skipped_from: earlier layer whose output a sum adds; None if the layer is not a sum.
    """

    layer: Any
    scoped: str
    variables: tuple[str, ...]
    input: Form
    labels: Form | None = None
    skipped_from: Chained | None = None


def scoped_names(graph: Graph, stage: ObservedStage) -> list[str]:
    """Return names of a stage's layers, and scopes of variables outside the layers."""
    view = _view(graph, stage)
    layer_of = {name: layer for layer in stage.work.layers for name in layer.nodes}
    layer_variables = {name: layer for layer in stage.work.layers for name in _variables(graph, view, layer)}
    result: dict[str, None] = {}
    for name, entry in view.entries.items():
        if name in layer_of:
            result[_scoped_name(graph, view, layer_of[name])] = None
        elif entry.node.type == "ReadVariableOp" and (handle := graph.nodes.get(entry.node.inputs[0].node)) is not None:
            variable = shared_name(handle)
            if variable not in layer_variables and (scope := variable.rpartition("/")[0]):
                result[scope] = None
    return list(result)


def chain_of(functions: StepFunctions) -> tuple[tuple[Chained, ...], ...]:
    """Return the layers, stage by stage; raises NotLayersError for stages that are not a chain of layers."""
    if any(size > 1 for size in functions.parts):
        raise NotLayersError("stages that run at the same time are known by their cost alone")
    graph, result = functions.step.graph, []
    input_index: int | None = None
    for name, observed in zip(functions.shown_names, functions.observed, strict=True):
        stage = _StageChain(graph, observed, name, input_index)
        result.append(tuple(stage.layers))
        input_index = stage.output_index
    _check_shared_variables(result)
    return tuple(result)


@dataclass(eq=False)
class _StageChain:
    """Part of the chain in one stage.

    Attributes:
        name: name of the stage.
        input_index: index of the input tensor that comes from the last layer of the stage before; None in the first
            stage.
        layers: layers in order.
        output_index: index of the output tensor that comes from the last layer.
    """

    graph: Graph
    observed: ObservedStage
    name: str
    input_index: int | None
    layers: list[Chained] = field(default_factory=list)
    output_index: int = 0

    def __post_init__(self) -> None:
        """Follow the layers in order."""
        observed, self._view = self.observed, _view(self.graph, self.observed)
        if observed.work.outside_types:
            raise NotLayersError(f"stage {self.name!r} calls {observed.work.outside_types[0]}, which is no layer")
        #: Layer of the chain that a node belongs to, by node name.
        self._layer_of_node: dict[str, Chained] = {}
        #: Form of every input tensor of the stage.
        self._input_forms = {
            tensor: form_of(value) for tensor, value in zip(observed.stage_cut.takes, observed.takes, strict=True)
        }
        if self.input_index is None and not observed.work.layers:
            raise NotLayersError(f"stage {self.name!r} runs no layer")
        self._check_gradients()
        end: frozenset[str] | None = None
        shape = None if self.input_index is None else form_of(observed.takes[self.input_index]).shape
        for layer in observed.work.layers:
            shape = self._add(layer, end, shape)
            end = layer.nodes
            self._layer_of_node |= dict.fromkeys(end, self.layers[-1])
        end_indices = [number for number, tensor in enumerate(observed.stage_cut.gives) if self._is_from(tensor, end)]
        if not end_indices:
            raise NotLayersError(f"stage {self.name!r} does not return the output of its last layer")
        self.output_index = end_indices[0]
        result_shape = form_of(observed.gives[self.output_index]).shape
        if shape is not None and _is_flattened(shape, result_shape[1:]):
            self._flatten(observed.stage_cut.gives[self.output_index], shape)
        if not self.layers:
            raise NotLayersError(f"stage {self.name!r} runs no layer")

    def _check_gradients(self) -> None:
        """Refuse gradients that are changed after a layer computes them."""
        for tensor in self.observed.stage_cut.gradients.values():
            maker = self.graph.nodes[tensor.node]
            while maker.type in _DENSE_GRADIENT_TYPES and not maker.origin and maker.inputs:
                maker = self.graph.nodes[maker.inputs[0].node]
            if not maker.origin:
                raise NotLayersError("the optimizer changes gradients by functions of its own")

    def _add(self, layer: FoundLayer, end: frozenset[str] | None, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """Append a layer to the chain; return the shape of its result, with the axis of samples."""
        inputs = self._inputs(layer)
        on_chain = [tensor for tensor in inputs if self._is_from(tensor, end)]
        side_tensors = [tensor for tensor in inputs if tensor not in on_chain]
        is_loss = isinstance(layer.layer, _LOSSES)
        if end is None and self.input_index is None and is_loss is False:
            on_chain, side_tensors = inputs, []
        earlier = None
        if isinstance(layer.layer, layers.Add) and len(side_tensors) == 1:
            earlier = self._layer_of_node.get(self._view.source(side_tensors[0]).node)
            side_tensors = side_tensors if earlier is None else []
        sources = {self._view.source(tensor) for tensor in on_chain}
        if len(sources) != 1 or (side_tensors and not is_loss):
            raise NotLayersError(f"stage {self.name!r} runs layers that are not one after the other")
        labels = [self._view.source(tensor, _SAME_LABELS) for tensor in side_tensors]
        if is_loss and any(tensor not in self._input_forms for tensor in labels):
            raise NotLayersError(f"stage {self.name!r} computes the labels of its loss")
        (source,) = sources
        form = self._input_forms.get(source) or self._view.form(source)
        sample_form = form.shape if shape is None else shape
        if _is_flattened(sample_form, layer.input_shape):
            self._flatten(on_chain[0], sample_form)
        names = tuple(_variables(self.graph, self._view, layer))
        input_form = Form((layer.batch, *layer.input_shape), form.dtype)
        label, scope = self._input_forms.get(labels[0]) if labels else None, _scoped_name(self.graph, self._view, layer)
        self.layers.append(Chained(layer.layer, scope, names, input_form, label, earlier))
        return (layer.batch, *((1,) if is_loss else layer.layer.output_shape(layer.input_shape)))

    def _flatten(self, tensor: Output, shape: tuple[int, ...]) -> None:
        """Append a layer that flattens samples before a tensor."""
        node, scope = self._view.node(tensor), "flatten"
        while node is not None and node.type in VIEWS:
            if node.type == "Reshape":
                scope = _LOOP_SCOPE.sub("", node.name).rpartition("/")[0] or scope
            node = self._view.node(node.inputs[0])
        self.layers.append(Chained(layers.Flatten(), scope, (), Form(shape, self._type_of(tensor))))

    def _type_of(self, tensor: Output) -> Any:
        source = self._view.source(tensor)
        return (self._input_forms.get(source) or self._view.form(source)).dtype

    def _inputs(self, layer: FoundLayer) -> list[Output]:
        """Return the data tensors that a layer's nodes take from other nodes."""
        read = (
            tensor for name in self._view.entries if name in layer.nodes for tensor in self.graph.nodes[name].inputs
        )
        outside = dict.fromkeys(tensor for tensor in read if tensor.node not in layer.nodes)
        return [tensor for tensor in outside if self._is_data(tensor)]

    def _is_data(self, tensor: Output) -> bool:
        """Tell whether a tensor depends on input values, not only on forms."""
        pending, node_names = [tensor], set[str]()
        while pending:
            operand = pending.pop()
            node = self._view.node(operand)
            if node is None:
                maker = self.graph.nodes.get(operand.node)
                if operand in self._input_forms or maker is None or maker.type not in _VALUE_FREE_TYPES:
                    return True
            elif node.name not in node_names and not _is_value_free(node):
                node_names.add(node.name)
                pending += node.inputs
        return False

    def _is_from(self, tensor: Output, end: frozenset[str] | None) -> bool:
        """Tell whether a tensor is a view of the chain's end: a layer's output, or the stage's input."""
        if end is None:
            return (
                self.input_index is not None
                and self._view.source(tensor) == self.observed.stage_cut.takes[self.input_index]
            )
        node = self._view.node(tensor)
        while node is not None and node.name not in end and node.type in VIEWS:
            node = self._view.node(node.inputs[0])
        return node is not None and node.name in end


def _is_value_free(node: Node) -> bool:
    return node.type in _VALUE_FREE_TYPES or node.type.startswith(("Random", "Stateless"))


#: Scope that TensorFlow adds around the body of a loop.
_LOOP_SCOPE: Final = re.compile(r"^while(_\d+)?/")
#: Loss classes of the simulator.
_LOSSES: Final = tuple(row.kind_class for row in layers.rows() if row.is_loss)


def _is_flattened(batch_shape: tuple[int, ...], shape: Sequence[int]) -> bool:
    """Tell whether ``shape`` is a batch's flattened sample shape."""
    return len(batch_shape) > 2 and tuple(shape) == (math.prod(batch_shape[1:]),)


def _view(graph: Graph, stage: ObservedStage) -> PassView:
    """Return the forward pass of a stage."""
    forward = set(stage.stage_cut.forward)
    return PassView(graph, [entry for entry in stage.nodes if entry.node.name in forward])


def _variables(graph: Graph, view: PassView, layer: FoundLayer) -> Iterator[str]:
    """Yield the shared names of a layer's variables."""
    names = (name for name in view.entries if name in layer.nodes)
    yield from dict.fromkeys(shared_name(graph.nodes[handle]) for handle in view.variables_of(names))


def _scoped_name(graph: Graph, view: PassView, layer: FoundLayer) -> str:
    """Return a layer's scoped name: the scope of its first variable, else the scope of its node."""
    for variable in _variables(graph, view, layer):
        if scope := variable.rpartition("/")[0]:
            return scope
    kind = next((row.kind for row in layers.rows() if row.kind_class is type(layer.layer)), "layer")
    *scopes, _ = _LOOP_SCOPE.sub("", layer.name).split("/")
    if (
        scopes
        and scopes[-1][:1].isupper()
        and scopes[-1].partition("_")[0] in (graph.nodes[layer.name].type, graph.nodes[layer.name].type.lower())
    ):
        scopes[-1] = kind  # replaces the scope of a TensorFlow function
    return "/".join(scopes) or kind


def _check_shared_variables(chain: Sequence[Sequence[Chained]]) -> None:
    """Raise NotLayersError if several layers use a variable."""
    names = [name for stage in chain for layer in stage for name in layer.variables]
    shared_variable = next((name for name in names if names.count(name) > 1), None)
    if shared_variable is not None:
        raise NotLayersError(f"variable {shared_variable!r} belongs to several layers")

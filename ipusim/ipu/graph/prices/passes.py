"""Count the work of a traced stage's passes, layer by layer and node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ipusim.api import Work, layers
from ipusim.ipu.graph.cut import StageCut
from ipusim.ipu.graph.executable import shared_name
from ipusim.ipu.graph.node import Graph, Node, Output, source_of
from ipusim.ipu.graph.prices.found import find_layers
from ipusim.ipu.graph.prices.layer import FoundLayer
from ipusim.ipu.graph.prices.nodes import FREE, PRODUCTS, work_of_node
from ipusim.ipu.graph.prices.observed import ObservedNode
from ipusim.ipu.graph.prices.view import PassView, is_constant

#: Operation types for copies of kernels and for casts between precisions.
_SAME_KERNEL: Final = ("Identity", "Cast")


@dataclass(frozen=True)
class StageWork:
    """Work of a stage for one micro-batch.

    Attributes:
        forward, backward: work of every layer, and of every run of nodes between two layers, in order.
        layers: recognised layers, in order.
        outside_types: operation types of nodes outside layers.
    """

    forward: tuple[Work, ...]
    backward: tuple[Work, ...]
    layers: tuple[FoundLayer, ...]
    outside_types: tuple[str, ...]


def work_of_stage(
    graph: Graph, stage_cut: StageCut, forward: Iterable[ObservedNode], backward: Iterable[ObservedNode]
) -> StageWork:
    """Return a stage's work.

    Args:
        graph: the graph.
        stage_cut: the stage.
        forward, backward: observed nodes of the two passes.
    """
    view = PassView(graph, forward)
    found_layers = find_layers(view)
    return _Pricing(graph, stage_cut, view, found_layers, list(backward)).work()


class _Pricing:
    """Adds up the work of a stage's passes from layers, and from runs of nodes outside layers."""

    def __init__(
        self,
        graph: Graph,
        stage_cut: StageCut,
        view: PassView,
        found_layers: list[FoundLayer],
        backward: list[ObservedNode],
    ) -> None:
        self._nodes: Mapping[str, Node] = graph.nodes
        self._stage_cut, self._view, self._found_layers, self._backward = stage_cut, view, found_layers, backward
        self._layer_of = {name: layer for layer in found_layers for name in layer.nodes}
        self._constancy: dict[str, bool] = {}
        self._types_outside: dict[str, None] = {}
        self._own_names = {*view.entries, *(entry.node.name for entry in backward)}
        self._gradient_owners: dict[str, FoundLayer | None] = {}
        self._skips_with_gradient: set[str] = set()
        self._read_tensors: set[Output] | None = None

    def work(self) -> StageWork:
        forward = tuple(self._forward())
        backward = tuple(self._backward_work())
        return StageWork(forward, backward, tuple(self._found_layers), tuple(self._types_outside))

    def _forward(self) -> Iterator[Work]:
        """Yield the work in order of execution; a layer's work comes at the layer's first node."""
        run = _Run()
        priced_names: set[str] = set()
        for entry in self._view.entries.values():
            layer = self._layer_of.get(entry.node.name)
            if layer is None:
                yield from self._add(run, entry)
            elif layer.name not in priced_names:
                priced_names.add(layer.name)
                yield from run.end()
                yield layer.forward
        yield from run.end()

    def _backward_work(self) -> Iterator[Work]:
        """Yield the backward work in order of execution; a layer's work comes at its first gradient node."""
        for entry in self._view.entries.values():  # inputs first: every search stays short
            self._layer_behind(entry.node)
        groups: dict[str, list[ObservedNode]] = {}
        for entry in self._backward:
            layer = self._layer_behind(entry.node)
            if layer is not None and not self._costs_nothing(entry.node):
                groups.setdefault(layer.name, []).append(entry)
        run = _Run()
        by_name = {layer.name: layer for layer in self._found_layers}
        priced_names: set[str] = set()
        for entry in self._backward:
            layer = self._layer_behind(entry.node)
            if layer is None or layer.name not in groups:
                yield from self._add(run, entry)
            elif layer.name not in priced_names and not self._costs_nothing(entry.node):
                yield from run.end()
                for name in (*self._skips_behind(layer, groups, priced_names), layer.name):
                    priced_names.add(name)
                    yield self._backward_of(by_name[name], groups[name])
        yield from run.end()

    def _skips_behind(self, layer: FoundLayer, groups: Mapping[str, object], priced_names: set[str]) -> list[str]:
        """Return the names of skip connections' sums after ``layer`` that have no backward work yet, last first.

        The gradient passes through such a sum before it reaches the layers within the connection. The gradients of both
        branches are added up after these layers.
        """
        later_layers = self._found_layers[self._found_layers.index(layer) + 1 :]
        skips = [skip.name for skip in later_layers if isinstance(skip.layer, layers.Add)]
        return [name for name in reversed(skips) if name in groups and name not in priced_names]

    def _add(self, run: _Run, entry: ObservedNode) -> Iterator[Work]:
        """Add a node outside layers to a run; yield the run before a new run begins."""
        for part in (entry, *entry.inner):
            if part.price is not None:
                yield from run.end()
                yield part.price(self._indices_of_read_results(part.node))
                continue
            work = None if self._costs_nothing(part.node) else work_of_node(part)
            if work is not None:
                self._types_outside[part.node.type] = None
                yield from run.add(part.node, work)

    def _indices_of_read_results(self, node: Node) -> set[int]:
        """Return the indices of those results of a node that other nodes or passes read."""
        if self._nodes.get(node.name) is not node:
            return set(range(len(node.output_types)))
        if self._read_tensors is None:
            nodes = (entry.node for entry in (*self._view.entries.values(), *self._backward))
            outputs = (
                *self._stage_cut.gives,
                *self._stage_cut.keeps,
                *self._stage_cut.returns,
                *self._stage_cut.gradients.values(),
            )
            self._read_tensors = {*outputs, *(tensor for reader in nodes for tensor in reader.inputs)}
        return {tensor.number for tensor in node.outputs if tensor in self._read_tensors}

    def _costs_nothing(self, node: Node) -> bool:
        """Tell whether a node is a view, reads a variable, casts indices, or depends only on constants."""
        is_fixed = self._nodes.get(node.name) is node and is_constant(self._nodes, node, self._constancy)
        return is_fixed or node.type in FREE or node.type == "ReadVariableOp" or _is_cast_of_indices(node)

    def _layer_behind(self, node: Node) -> FoundLayer | None:
        """Return the layer whose gradient includes a node.

        A node without an origin, such as a sum of gradients, belongs to the common layer of all inputs, or is the
        gradient of the sum at the end of a skip connection. Nodes of other stages belong to no layer.
        """
        if node.name not in self._own_names:
            return None
        if node.name not in self._gradient_owners:
            origin = self._nodes.get(node.origin)
            while origin is not None and origin.name not in self._view.entries:
                origin = self._nodes.get(origin.origin)
            self._gradient_owners[node.name] = None  # also the answer for a node that a cycle reaches again
            layer = self._layer_of_inputs(node) if origin is None else self._layer_of.get(origin.name)
            if layer is None and origin is None and node.type == "AddN" and node.name not in self._view.entries:
                layer = self._skip_behind(node)
            self._gradient_owners[node.name] = layer
        return self._gradient_owners[node.name]

    def _skip_behind(self, node: Node) -> FoundLayer | None:
        """Return the sum that ends a skip connection, for the node that adds up the gradients of its branches.

        The connection begins at a tensor that other layers read as well. The gradient of one of these layers provides
        an addend of ``node``. None if no skip connection fits.
        """
        makers = (self._nodes[tensor.node] for tensor in node.inputs if tensor.node in self._nodes)
        layer_names = {layer.name for maker in makers if (layer := self._layer_that_makes(maker))}
        for skip in self._found_layers:
            if isinstance(skip.layer, layers.Add) and skip.name not in self._skips_with_gradient:
                for tensor in self._nodes[skip.name].inputs:
                    readers = self._layers_that_read(self._view.source(tensor)) - {skip.name}
                    if readers & layer_names:
                        self._skips_with_gradient.add(skip.name)
                        return skip
        return None

    def _layers_that_read(self, source: Output) -> set[str]:
        """Return names of layers that read a tensor, in any view."""
        return {
            layer.name
            for layer in self._found_layers
            for name in layer.nodes
            if any(self._view.source(tensor) == source for tensor in self._nodes[name].inputs)
        }

    def _layer_of_inputs(self, node: Node) -> FoundLayer | None:
        """Return the common layer of a node's inputs, ignoring constants; None for several layers."""
        owners: dict[str, FoundLayer | None] = {}
        for tensor in node.inputs:
            maker = self._nodes.get(tensor.node)
            if maker is not None and not is_constant(self._nodes, maker, self._constancy):
                layer = self._layer_that_makes(maker)
                owners[layer.name if layer else ""] = layer
        return next(iter(owners.values())) if len(owners) == 1 else None

    def _layer_that_makes(self, maker: Node) -> FoundLayer | None:
        """Return the layer of a node or gradient node, or of a view's source."""
        layer = self._layer_of.get(maker.name) or self._layer_behind(maker)
        return self._layer_of_inputs(maker) if layer is None and maker.type in FREE else layer

    def _backward_of(self, layer: FoundLayer, group: list[ObservedNode]) -> Work:
        """Return the work of the gradients that are computed: of the layer's input, of its weights, or of both."""
        names = {entry.node.name for entry in group}
        if layer.weight:
            products = [entry.node for entry in group if entry.node.type in PRODUCTS]
            kernel = source_of(self._nodes, Output(layer.weight, 0), _SAME_KERNEL)
            input_gradient_products = [
                node
                for node in products
                if any(source_of(self._nodes, tensor, _SAME_KERNEL) == kernel for tensor in node.inputs)
            ]
            return layer.backward(
                for_input=bool(input_gradient_products), for_weights=len(input_gradient_products) < len(products)
            )
        handles = set(self._view.variables_of(layer.nodes))
        is_trained = any(self._handle_of(name) in handles for name in self._stage_cut.gradients)
        return layer.backward(for_input=self._is_read_outside(names), for_weights=is_trained)

    def _handle_of(self, variable: str) -> str:
        """Return the handle name of a variable."""
        for name, node in self._nodes.items():
            if node.type == "VarHandleOp" and shared_name(node) == variable:
                return name
        return ""

    def _is_read_outside(self, names: set[str]) -> bool:
        """Tell whether other layers or an earlier stage read a result of a layer's gradient."""
        result_names = set(names)
        for entry in self._backward:  # views of results count as results
            if entry.node.type in FREE and any(tensor.node in result_names for tensor in entry.node.inputs):
                result_names.add(entry.node.name)
        gradients = set(self._stage_cut.gradients.values())
        if any(tensor.node in result_names and tensor not in gradients for tensor in self._stage_cut.returns):
            return True
        return any(
            entry.node.name not in result_names and any(tensor.node in result_names for tensor in entry.node.inputs)
            for entry in self._backward
        )


def _is_cast_of_indices(node: Node) -> bool:
    """Tell whether a node casts between integers of 32 and 64 bits, which are equal on IPUs."""
    index_types = (np.dtype(np.int32), np.dtype(np.int64))
    return node.type == "Cast" and node.attributes["SrcT"] in index_types and node.attributes["DstT"] in index_types


class _Run:
    """Consecutive nodes outside layers: a product begins a new run, unless it shares an operand with the run."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._operands: set[Output] = set()

    def add(self, node: Node, work: Work) -> Iterator[Work]:
        """Add a node; yield the previous run if the node begins a new run."""
        if work.products and not (self._operands & set(node.inputs)):
            yield from self.end()
        if work.products:
            self._operands |= set(node.inputs)
        if self._work is None:
            self._work = work
            return
        run_work = self._work
        self._work = replace(
            run_work,
            products=(*run_work.products, *work.products),
            vector=run_work.vector + work.vector,
            sram_bytes=run_work.sram_bytes + work.sram_bytes,
            itemsize=max(run_work.itemsize, work.itemsize),
            compute_sets=run_work.compute_sets + work.compute_sets,
            convolution=run_work.convolution or work.convolution,
        )

    def end(self) -> Iterator[Work]:
        """Yield the current run, if any, and start a new run."""
        if self._work is not None:
            yield self._work
        self._work = None
        self._operands = set()

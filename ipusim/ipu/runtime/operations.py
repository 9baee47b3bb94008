"""Compute operations with special backward passes and costs: CTC and recurrent layers.

A class names its input arrays in parentheses; ``argnums`` are indices of the arrays whose gradients are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ipusim.api import Array, LayerCost, VectorWork, Work, layers
from ipusim.ipu.runtime import checks


@dataclass(frozen=True)
class PerExampleCTC:
    """CTC loss per sample, on (outputs, labels, label counts, time-step counts).

    Attributes:
        loss: ipusim's loss, which takes the number of time steps after the labels.
    """

    loss: layers.CTC

    def check(self, labels: Array, counts: Array, classes: int) -> None:
        """Raise ProgramError for labels or lengths out of range."""
        width = labels.shape[1]
        if counts.min(initial=0) < 0 or counts.max(initial=0) > width:
            checks.wrong_value("label_length", f"lengths from 0 to {width}", counts)
        is_label = np.arange(width) < counts[:, None]
        blank = self.loss.blank
        if (((labels < 0) | (labels == blank % classes)) & is_label).any():
            checks.wrong_value("labels", f"classes from 0 to {classes - 1}, but for the blank, {blank}", labels)

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return the losses (batch,); raises ProgramError and ModelError for unsuitable labels."""
        x, labels, counts, steps = arrays
        self.check(labels, counts, x.shape[-1])
        labels_in_use = np.where(np.arange(labels.shape[1]) < counts[:, None], labels, -1)
        targets = np.concatenate([labels_in_use, steps[:, None]], axis=1).astype(np.int64)
        self.loss.check_labels(x.shape[1:], targets)
        losses, saved_values = self.loss.per_example(x, targets)
        return (losses,), saved_values

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the loss's gradient by the outputs, the only argument with a gradient, as a list."""
        return [self.loss.per_example_gradient(saved_values, grads[0]) for _ in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of the loss."""
        x = arrays[0]
        return self.loss.cost(x.shape[1:], len(x), x.dtype.itemsize)


@dataclass(frozen=True)
class BeamSearch:
    """Beam search for the most likely labels of (scores, steps).

    Scores are (batch, time steps, classes); steps are the time-step counts per sample.

    A beam is a label sequence with two probabilities over all alignments so far: alignments ending in a blank, and
    alignments ending in a label (Graves 2012; Hannun et al. 2014). Ties go to the earlier beam.

    Attributes:
        width: number of beams kept per time step.
        paths: number of label sequences returned.
        blank: class of the blank.
        log_probabilities: whether scores are log probabilities rather than logits.
    """

    width: int
    paths: int
    blank: int
    log_probabilities: bool

    def forward(self, *arrays: Array) -> tuple[Array, ...]:
        """Return negative log probabilities, lengths, and labels padded with -1, in int32."""
        scores, steps = arrays
        x = scores.astype(np.result_type(scores, np.float32))
        if not self.log_probabilities:
            x = x - x.max(axis=-1, keepdims=True)
            x = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
        losses = np.full((len(x), self.paths), np.inf, scores.dtype)
        lengths = np.zeros((len(x), self.paths), np.int32)
        labels = np.full((len(x), self.paths, x.shape[1]), -1, np.int32)
        for sample, count in enumerate(steps):
            for path, (result, score) in enumerate(self._search(x[sample, :count])):
                losses[sample, path], lengths[sample, path] = -score, len(result)
                labels[sample, path, : len(result)] = result
        return losses, lengths, labels

    def _search(self, scores: Array) -> list[tuple[tuple[int, ...], float]]:
        """Return the most likely label sequences with log probabilities, best first."""
        beams: list[tuple[int, ...]] = [()]
        blank, label = np.zeros(1, scores.dtype), np.full(1, -np.inf, scores.dtype)
        for row in scores:
            beams, blank, label = self._step(row, beams, blank, label)
        total = np.logaddexp(blank, label)
        order = np.argsort(-total, kind="stable")[: self.paths]
        return [(beams[index], float(total[index])) for index in order]

    def _step(
        self, row: Array, beams: list[tuple[int, ...]], blank: Array, label: Array
    ) -> tuple[list[tuple[int, ...]], Array, Array]:
        """Advance one time step: beams repeat a label, take a blank, or gain a label."""
        total = np.logaddexp(blank, label)
        last = np.array([beam[-1] if beam else -1 for beam in beams])
        extended = total[:, None] + row
        has_label = last >= 0
        extended[has_label, last[has_label]] = (
            blank[has_label] + row[last[has_label]]
        )  # without a blank between, the label would merge with the last label
        extended[:, self.blank] = -np.inf
        stay_blank = total + row[self.blank]
        stay_label = np.where(has_label, label + row[last], -np.inf)
        index_of = {beam: index for index, beam in enumerate(beams)}
        for index, beam in enumerate(beams):  # add the extension of another beam that equals this beam
            parent = index_of.get(beam[:-1]) if beam else None
            if parent is not None:
                stay_label[index] = np.logaddexp(stay_label[index], extended[parent, beam[-1]])
                extended[parent, beam[-1]] = -np.inf
        scores = np.concatenate([np.logaddexp(stay_blank, stay_label), extended.reshape(-1)])
        best_indices = [
            index for index in np.argsort(-scores, kind="stable")[: self.width].tolist() if scores[index] > -np.inf
        ]
        survivors: list[Any] = []
        for index in best_indices:
            if index < len(beams):
                survivors.append((beams[index], stay_blank[index], stay_label[index]))
            else:
                parent, symbol = divmod(index - len(beams), len(row))
                survivors.append(((*beams[parent], symbol), -np.inf, scores[index]))
        blank, label = (np.array([item[n] for item in survivors], row.dtype) for n in (1, 2))
        return [item for item, _, _ in survivors], blank, label

    def cost(self, arrays: Sequence[Array]) -> Work:
        """Return the work of extending beams by classes and selecting the most likely.

        An extension costs a sum, a logarithm of a sum of two exponentials, and a share of the selection. A time step
        has four compute sets: PopLibs generates, merges, selects and updates candidates (the number is assumed).
        """
        scores = arrays[0]
        batch, steps, classes = scores.shape
        size, candidates = scores.dtype.itemsize, batch * steps * self.width * classes
        softmax = VectorWork(1, reductions=2, transcendentals=1) * (not self.log_probabilities)
        return Work(
            vector=candidates * VectorWork(4, reductions=1, transcendentals=2) + scores.size * softmax,
            sram_bytes=(scores.size + 2 * candidates) * size,
            exchange_bytes=candidates * size,
            itemsize=size,
            compute_sets=4 * steps + 5 * (not self.log_probabilities),
        )


#: Position in Graphcore's kernel, per gate of ipusim's layer (popnn/LstmDef.hpp, popnn/GruDef.hpp).
_GATE_ORDERS: Final[dict[type[layers.Recurrent], tuple[int, ...]]] = {layers.LSTM: (1, 0, 2, 3), layers.GRU: (1, 0, 2)}


@dataclass(frozen=True)
class RecurrentOperation:
    """A recurrent layer on (x, kernel, biases, scores, lengths, states), with Graphcore's layout of kernel and biases.

    Shapes: x (time steps, batch, elements); kernel (elements + units, gates * units); biases (gates, units), or
    (gates, 2, units) if both products have biases. Optional arguments: scores (batch, time steps), lengths (batch,),
    states (batch, units). Results are the outputs of all time steps and the final states.

    Attributes:
        layer: the layer, returning sequences.
        takes_states: whether initial states are arguments.
        partials_itemsize: bytes per partial sum of the products.
    """

    layer: layers.LSTM | layers.GRU
    takes_states: bool
    partials_itemsize: int = 4

    @property
    def _gate_order(self) -> tuple[int, ...]:
        """Position in Graphcore's kernel, per gate of the layer."""
        return next(order for kind, order in _GATE_ORDERS.items() if isinstance(self.layer, kind))

    @property
    def _side_input_count(self) -> int:
        """Number of arguments between biases and states: scores and lengths."""
        return self.layer.extra_elements if isinstance(self.layer, layers.GRU) else 0

    @property
    def _has_attention(self) -> bool:
        return isinstance(self.layer, layers.GRU) and self.layer.attended

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return outputs (time steps, batch, units) and states (batch, units)."""
        x = self._join(arrays)
        parameters = self._unpack(arrays[0].shape[-1], *arrays[1:3])
        outputs, states, saved_values = self.layer.run(
            parameters, x, arrays[3 + self._side_input_count :] if self.takes_states else None
        )
        return (outputs.transpose(1, 0, 2), *states), (parameters, saved_values, arrays[0].shape[-1], arrays[2].shape)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients for arguments ``argnums``; lengths have no gradient."""
        parameters, layer_values, elements, biases = saved_values
        grad, dstates = np.ascontiguousarray(grads[0].transpose(1, 0, 2)), tuple(grads[1:])
        needs_x = bool({0, 3} & set(argnums)) if self._has_attention else 0 in argnums
        dx, dinitial_states, remainder = self.layer.go_back(parameters, layer_values, grad, dstates, needs_x)
        result: dict[int, Any] = {}
        if dx is not None:
            result[0] = dx[..., :elements].transpose(1, 0, 2)
            if self._has_attention:
                result[3] = dx[..., elements]
        if {1, 2} & set(argnums):
            result[1], result[2] = self._pack(self.layer.backward_weights(parameters, remainder), biases)
        result |= {3 + self._side_input_count + argument: item for argument, item in enumerate(dinitial_states)}
        return [result[argument] for argument in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of the layer."""
        steps, batch, elements = arrays[0].shape
        need = 0 in argnums or (self._has_attention and 3 in argnums)
        result = self.layer.cost((steps, elements + self._side_input_count), batch, arrays[0].dtype.itemsize, need)
        return LayerCost(result.forward, result.backward).with_partials(self.partials_itemsize)

    def _join(self, arrays: Sequence[Array]) -> Array:
        """Return the layer's input: batch first, with scores and mask after the elements."""
        x = arrays[0].transpose(1, 0, 2)
        parts = [x]
        if self._has_attention:
            parts.append(arrays[3][..., None].astype(x.dtype))
        if isinstance(self.layer, layers.GRU) and self.layer.masked:
            mask = np.arange(x.shape[1]) < arrays[2 + self._side_input_count][:, None]
            parts.append(mask[..., None].astype(x.dtype))
        return np.concatenate(parts, axis=-1)

    def _unpack(self, elements: int, kernel: Array, biases: Array) -> dict[str, Array]:
        """Return the parameters of ipusim's layer from Graphcore's kernel and biases."""
        order, units = list(self._gate_order), self.layer.units
        columns = kernel.reshape(len(kernel), len(order), units)[:, order].reshape(kernel.shape)
        biases_in_order = biases[order]
        bias = biases_in_order.reshape(-1) if biases.ndim == 2 else biases_in_order.transpose(1, 0, 2).reshape(2, -1)
        return {"W": columns[:elements], "U": columns[elements:], "b": bias}

    def _pack(self, gradients: dict[str, Array], biases: tuple[int, ...]) -> tuple[Array, Array]:
        """Return the gradients of kernel and biases in Graphcore's layout."""
        order, units = list(np.argsort(self._gate_order)), self.layer.units
        columns = np.concatenate([gradients["W"], gradients["U"]])
        kernel = columns.reshape(len(columns), len(order), units)[:, order].reshape(columns.shape)
        bias = gradients["b"]
        parts = bias.reshape(-1, units) if len(biases) == 2 else bias.reshape(2, -1, units).transpose(1, 0, 2)
        return kernel, parts[order]


@dataclass(frozen=True)
class ContinuedRecurrence:
    """A recurrent layer on (x, parameters, states), with ipusim's parameters.

    Shapes: x (batch, time steps, elements), states (batch, units). Results are the outputs of all time steps, or of the
    last time step, and the final states.

    Attributes:
        layer: the layer; ``return_sequences`` selects the outputs.
        names: names of the parameters.
        partials_itemsize: bytes per partial sum of the products.
    """

    layer: layers.LSTM | layers.GRU
    names: tuple[str, ...]
    partials_itemsize: int = 4

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], layers.Saved]:
        """Return outputs (batch, time steps, units) or (batch, units), and states (batch, units)."""
        first = 1 + len(self.names)
        parameters = dict(zip(self.names, arrays[1:first], strict=True))
        outputs, states, saved_values = self.layer.run(parameters, arrays[0], arrays[first:])
        value = outputs if self.layer.return_sequences else outputs[:, -1]
        return (value, *states), (parameters, saved_values, outputs.shape)

    def backward(self, saved_values: layers.Saved, grads: Sequence[Array], argnums: Sequence[int]) -> list[Array]:
        """Return the gradients for arguments ``argnums``."""
        parameters, layer_values, shape = saved_values
        grad = grads[0]
        if not self.layer.return_sequences:
            grad = np.zeros_like(grads[0], shape=shape)
            grad[:, -1] = grads[0]
        dx, dinitial_states, remainder = self.layer.go_back(
            parameters, layer_values, grad, tuple(grads[1:]), 0 in argnums
        )
        gradients = self.layer.backward_weights(parameters, remainder)
        result: list[Any] = [dx, *(gradients[name] for name in self.names), *dinitial_states]
        return [result[index] for index in argnums]

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of the layer."""
        batch, *shape = arrays[0].shape
        cost = self.layer.cost(tuple(shape), batch, arrays[0].dtype.itemsize, 0 in argnums)
        return cost.with_partials(self.partials_itemsize)

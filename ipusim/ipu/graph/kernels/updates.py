"""Run weight updates in NumPy: one operation type per optimizer of TensorFlow.

An optimizer's slots, which hold its state, are variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.node import Node, Variable
from ipusim.ipu.graph.registry import Kernel, Maker, register, register_function


def _descent(variable: Variable, rate: Array, grad: Array) -> None:
    variable.assign(variable.value - rate * grad)


register_function("ResourceApplyGradientDescent", _descent, effect=True)


@register("ResourceApplyMomentum", effect=True)
def _momentum(node: Node) -> Kernel:
    nesterov = node.attributes["use_nesterov"]

    def run(variable: Variable, slot: Variable, rate: Array, grad: Array, momentum: Array) -> None:
        slot.assign(slot.value * momentum + grad)
        step = grad * rate + slot.value * momentum * rate if nesterov else slot.value * rate
        variable.assign(variable.value - step)

    return run


@register("ResourceApplyKerasMomentum", effect=True)
def _keras_momentum(node: Node) -> Kernel:
    nesterov = node.attributes["use_nesterov"]

    def run(variable: Variable, slot: Variable, rate: Array, grad: Array, momentum: Array) -> None:
        slot.assign(slot.value * momentum - grad * rate)
        variable.assign(variable.value + (slot.value * momentum - grad * rate if nesterov else slot.value))

    return run


@register("ResourceApplyAdam", effect=True)
def _adam(node: Node) -> Kernel:
    nesterov = node.attributes["use_nesterov"]

    def run(
        variable: Variable,
        first: Variable,
        second: Variable,
        first_power: Array,
        second_power: Array,
        rate: Array,
        beta1: Array,
        beta2: Array,
        epsilon: Array,
        grad: Array,
    ) -> None:
        unit = grad.dtype.type(1)
        step = rate * np.sqrt(unit - second_power) / (unit - first_power)
        first.assign(first.value + (grad - first.value) * (unit - beta1))
        second.assign(second.value + (grad * grad - second.value) * (unit - beta2))
        momentum_term = grad * (unit - beta1) + beta1 * first.value if nesterov else first.value
        variable.assign(variable.value - momentum_term * step / (np.sqrt(second.value) + epsilon))

    return run


@register("ResourceApplyRMSProp ResourceApplyCenteredRMSProp", effect=True)
def _rms_prop(node: Node) -> Kernel:
    """Divide by the root of the moving mean square, or of the moving variance if centered."""
    centered = node.type == "ResourceApplyCenteredRMSProp"

    def run(variable: Variable, *options: Any) -> None:
        *means, square, moment, rate, decay, momentum, epsilon, grad = options
        share = grad.dtype.type(1) - decay
        square.assign(square.value + (grad * grad - square.value) * share)
        variance = square.value
        if centered:
            (mean,) = means
            mean.assign(mean.value + (grad - mean.value) * share)
            variance = square.value - mean.value * mean.value
        moment.assign(moment.value * momentum + rate * grad / np.sqrt(variance + epsilon))
        variable.assign(variable.value - moment.value)

    return run


@register("ResourceApplyAdagrad ResourceApplyAdagradV2", effect=True)
def _adagrad(node: Node) -> Kernel:
    with_epsilon = node.type.endswith("V2")

    def run(variable: Variable, slot: Variable, rate: Array, *options: Any) -> None:
        grad = options[-1]
        if node.attributes["update_slots"]:
            slot.assign(slot.value + grad * grad)
        slot_root = np.sqrt(slot.value)
        variable.assign(variable.value - grad * rate / (slot_root + options[0] if with_epsilon else slot_root))

    return run


@register("ResourceApplyAdadelta", effect=True)
def _adadelta(node: Node) -> Kernel:
    def run(
        variable: Variable,
        square: Variable,
        updates: Variable,
        rate: Array,
        decay: Array,
        epsilon: Array,
        grad: Array,
    ) -> None:
        share = grad.dtype.type(1) - decay
        square.assign(square.value * decay + grad * grad * share)
        step = np.sqrt(updates.value + epsilon) / np.sqrt(square.value + epsilon) * grad
        variable.assign(variable.value - step * rate)
        updates.assign(updates.value * decay + step * step * share)

    return run


@register("ResourceApplyFtrl ResourceApplyFtrlV2", effect=True)
def _ftrl(node: Node) -> Kernel:
    """Follow the regularised leader; version 2 adds an L2 shrinkage to the gradient of the linear term."""
    shrinks = node.type.endswith("V2")

    def run(
        variable: Variable,
        squares: Variable,
        linear: Variable,
        grad: Array,
        rate: Array,
        l1: Array,
        l2: Array,
        *options: Any,
    ) -> None:
        power = options[-1]
        shrunk = grad + 2 * options[0] * variable.value if shrinks else grad
        total = squares.value + grad * grad
        sigma = (total**-power - squares.value**-power) / rate
        linear.assign(linear.value + shrunk - sigma * variable.value)
        squares.assign(total)
        quadratic = total**-power / rate + 2 * l2
        shrunk_linear = np.sign(linear.value) * l1 - linear.value
        variable.assign(np.where(np.abs(linear.value) > l1, shrunk_linear / quadratic, grad.dtype.type(0)))

    return run


@register("ResourceApplyAdaMax", effect=True)
def _adamax(node: Node) -> Kernel:
    def run(
        variable: Variable,
        first: Variable,
        largest: Variable,
        first_power: Array,
        rate: Array,
        beta1: Array,
        beta2: Array,
        epsilon: Array,
        grad: Array,
    ) -> None:
        unit = grad.dtype.type(1)
        first.assign(first.value + (grad - first.value) * (unit - beta1))
        largest.assign(np.maximum(beta2 * largest.value, np.abs(grad)))
        variable.assign(variable.value - rate / (unit - first_power) * (first.value / (largest.value + epsilon)))

    return run


def _by_rows(dense: Maker, rows_index: int) -> Maker:
    """Return the maker of an update that applies a dense update to single rows, for a sparse gradient.

    Args:
        dense: maker of the dense update, for an optimizer with one slot.
        rows_index: index of the row numbers among the inputs; the gradient stands before them.
    """

    def make(node: Node) -> Kernel:
        rule = dense(node)

        def run(*inputs: Any) -> None:
            (*leading, grad), rows, trailing = inputs[:rows_index], inputs[rows_index], inputs[rows_index:][1:]
            tables = [np.array(variable.value) for variable in leading[:2]]
            for row, part in zip(rows, grad, strict=True):
                views = [Variable("", table[row]) for table in tables]
                rule(*views, *leading[2:], part, *trailing)
                for table, view in zip(tables, views, strict=True):
                    table[row] = view.value
            for variable, table in zip(leading[:2], tables, strict=True):
                variable.assign(table)

        return run

    return make


register("ResourceSparseApplyMomentum", effect=True)(_by_rows(_momentum, 4))
register("ResourceSparseApplyKerasMomentum", effect=True)(_by_rows(_keras_momentum, 4))
register("ResourceSparseApplyAdagrad", effect=True)(_by_rows(_adagrad, 4))
register("ResourceSparseApplyAdagradV2", effect=True)(_by_rows(_adagrad, 5))

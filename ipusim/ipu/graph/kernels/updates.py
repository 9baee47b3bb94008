"""Run weight updates in NumPy: one operation type per optimizer of TensorFlow.

An optimizer's slots, which hold its state, are variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ipusim.api import Array
from ipusim.ipu.graph.node import Variable
from ipusim.ipu.graph.registry import Kernel, kernel


@kernel("ResourceApplyGradientDescent", effect=True)
def _descent(variable: Variable, rate: Array, grad: Array) -> None:
    variable.assign(variable.value - rate * grad)


@kernel("ResourceApplyMomentum", "use_nesterov", effect=True)
def _momentum(nesterov: bool, variable: Variable, slot: Variable, rate: Array, grad: Array, momentum: Array) -> None:
    slot.assign(slot.value * momentum + grad)
    step = grad * rate + slot.value * momentum * rate if nesterov else slot.value * rate
    variable.assign(variable.value - step)


@kernel("ResourceApplyKerasMomentum", "use_nesterov", effect=True)
def _keras_momentum(
    nesterov: bool, variable: Variable, slot: Variable, rate: Array, grad: Array, momentum: Array
) -> None:
    slot.assign(slot.value * momentum - grad * rate)
    variable.assign(variable.value + (slot.value * momentum - grad * rate if nesterov else slot.value))


@kernel("ResourceApplyAdam", "use_nesterov", effect=True)
def _adam(nesterov: bool, variable: Variable, first: Variable, second: Variable, *options: Array) -> None:
    first_power, second_power, rate, beta1, beta2, epsilon, grad = options
    unit = grad.dtype.type(1)
    step = rate * np.sqrt(unit - second_power) / (unit - first_power)
    first.assign(first.value + (grad - first.value) * (unit - beta1))
    second.assign(second.value + (grad * grad - second.value) * (unit - beta2))
    momentum_term = grad * (unit - beta1) + beta1 * first.value if nesterov else first.value
    variable.assign(variable.value - momentum_term * step / (np.sqrt(second.value) + epsilon))


@kernel("ResourceApplyRMSProp ResourceApplyCenteredRMSProp", effect=True)
def _rms_prop(variable: Variable, *options: Any) -> None:
    """Divide by the root of the moving mean square, or, with a slot for means, of the moving variance."""
    *means, square, moment, rate, decay, momentum, epsilon, grad = options
    share = grad.dtype.type(1) - decay
    square.assign(square.value + (grad * grad - square.value) * share)
    variance = square.value
    for mean in means:
        mean.assign(mean.value + (grad - mean.value) * share)
        variance = square.value - mean.value * mean.value
    moment.assign(moment.value * momentum + rate * grad / np.sqrt(variance + epsilon))
    variable.assign(variable.value - moment.value)


@kernel("ResourceApplyAdagrad ResourceApplyAdagradV2", "update_slots", effect=True)
def _adagrad(updates_slot: bool, variable: Variable, slot: Variable, rate: Array, *options: Any) -> None:
    """Divide by the root of the summed squares; version 2 adds an epsilon to the root."""
    *epsilon, grad = options
    if updates_slot:
        slot.assign(slot.value + grad * grad)
    variable.assign(variable.value - grad * rate / sum(epsilon, np.sqrt(slot.value)))


@kernel("ResourceApplyAdadelta", effect=True)
def _adadelta(variable: Variable, square: Variable, updates: Variable, *options: Array) -> None:
    rate, decay, epsilon, grad = options
    share = grad.dtype.type(1) - decay
    square.assign(square.value * decay + grad * grad * share)
    step = np.sqrt(updates.value + epsilon) / np.sqrt(square.value + epsilon) * grad
    variable.assign(variable.value - step * rate)
    updates.assign(updates.value * decay + step * step * share)


@kernel("ResourceApplyFtrl ResourceApplyFtrlV2", effect=True)
def _ftrl(variable: Variable, squares: Variable, linear: Variable, *options: Array) -> None:
    """Follow the regularised leader; version 2 adds an L2 shrinkage to the gradient of the linear term."""
    grad, rate, l1, l2, *shrinkage, power = options
    shrunk = grad + 2 * shrinkage[0] * variable.value if shrinkage else grad
    total = squares.value + grad * grad
    sigma = (total**-power - squares.value**-power) / rate
    linear.assign(linear.value + shrunk - sigma * variable.value)
    squares.assign(total)
    quadratic = total**-power / rate + 2 * l2
    shrunk_linear = np.sign(linear.value) * l1 - linear.value
    variable.assign(np.where(np.abs(linear.value) > l1, shrunk_linear / quadratic, grad.dtype.type(0)))


@kernel("ResourceApplyAdaMax", effect=True)
def _adamax(variable: Variable, first: Variable, largest: Variable, *options: Array) -> None:
    first_power, rate, beta1, beta2, epsilon, grad = options
    unit = grad.dtype.type(1)
    first.assign(first.value + (grad - first.value) * (unit - beta1))
    largest.assign(np.maximum(beta2 * largest.value, np.abs(grad)))
    variable.assign(variable.value - rate / (unit - first_power) * (first.value / (largest.value + epsilon)))


def _by_rows(dense: Kernel, rows_index: int) -> Kernel:
    """Return an update of single rows, for sparse gradients, made from a dense update.

    Args:
        dense: update of an optimizer with one slot, by an attribute and inputs.
        rows_index: index of the row numbers among the inputs; the gradient stands before them.
    """

    def run(attribute: Any, *inputs: Any) -> None:
        (*leading, grad), rows, trailing = inputs[:rows_index], inputs[rows_index], inputs[rows_index:][1:]
        tables = [np.array(variable.value) for variable in leading[:2]]
        for row, part in zip(rows, grad, strict=True):
            views = [Variable("", table[row]) for table in tables]
            dense(attribute, *views, *leading[2:], part, *trailing)
            for table, view in zip(tables, views, strict=True):
                table[row] = view.value
        for variable, table in zip(leading[:2], tables, strict=True):
            variable.assign(table)

    return run


kernel("ResourceSparseApplyMomentum", "use_nesterov", effect=True)(_by_rows(_momentum, 4))
kernel("ResourceSparseApplyKerasMomentum", "use_nesterov", effect=True)(_by_rows(_keras_momentum, 4))
kernel("ResourceSparseApplyAdagrad", "update_slots", effect=True)(_by_rows(_adagrad, 4))
kernel("ResourceSparseApplyAdagradV2", "update_slots", effect=True)(_by_rows(_adagrad, 5))

"""Count the work of layers that multiply by a kernel, add a bias and apply an activation."""

from __future__ import annotations

from typing import NamedTuple

from ipusim.model.layers.activations import activation
from ipusim.model.layers.layer import Halves, LayerCost, all_later
from ipusim.model.work import Convolution, Product, VectorWork, in_one, work_of


class KernelProducts(NamedTuple):
    """Products, or convolutions, of a layer with a kernel W.

    Attributes:
        forward: product for the outputs.
        weights: product for dW.
        input_gradient: product for dx.
        convolution: whether convolution options apply to the products.
    """

    forward: Product | Convolution
    weights: Product
    input_gradient: Product | Convolution
    convolution: bool = True


class KernelElements(NamedTuple):
    """Elements read and written per micro-batch by a layer with a kernel.

    Attributes:
        x: number of inputs.
        y: number of outputs.
        weights: number of elements of the kernel.
        bias: number of elements of the bias; 0 without a bias.
        repeated_elements: elements that products in parts read or write again.
    """

    x: int
    y: int
    weights: int
    bias: int
    repeated_elements: int = 0


def kernel_cost(
    products: KernelProducts, elements: KernelElements, activation_name: str, itemsize: int, need_input_gradient: bool
) -> LayerCost:
    """Return the work of both passes.

    Forward, per output: a sum for the bias and the activation's work, a compute set each. In the backward pass, the
    first half makes g, the gradient before the activation, and dx: an activation that changes the gradient reads its
    saved array and writes g. The second half makes dW, and db as sums over tiles, which exchange their parts.
    """
    x, y, weights, bias, repeated = elements
    rule, has_bias = activation(activation_name), bias > 0
    changes_gradient = rule.saved_array != "nothing"
    forward = work_of(
        itemsize,
        products=(products.forward,),
        vector=y * (rule.forward + VectorWork(int(has_bias))),
        accesses=x + weights + bias + y + repeated,
        compute_sets=has_bias + changes_gradient,
        convolution=products.convolution,
    )
    input_half = work_of(
        itemsize,
        products=(products.input_gradient,) if need_input_gradient else (),
        vector=y * rule.backward,
        accesses=y + 2 * y * changes_gradient + weights + x + repeated,
        compute_sets=int(changes_gradient),
        convolution=products.convolution,
    )
    weight_half = work_of(
        itemsize,
        products=(products.weights,),
        vector=VectorWork(reductions=y * has_bias),
        accesses=x + y + weights + bias + repeated,
        compute_sets=2 * has_bias,
        convolution=products.convolution,
    )
    input_elements = weights + x + repeated if need_input_gradient else 0
    sram_bytes = (y + x + y * changes_gradient + weights + bias + repeated + input_elements) * itemsize
    backward = in_one(input_half, weight_half, (products.weights, *input_half.products), sram_bytes)
    return LayerCost(forward, backward, Halves(input_half, weight_half) if need_input_gradient else all_later(backward))

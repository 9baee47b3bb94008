"""Count the work of a NumPy function call, from arguments and result.

- ``dot``, ``matmul``, ``inner``, ``outer``, ``tensordot`` and ``einsum``: a multiply-accumulate per combination of
  indices (einsum counts its operands jointly, independent of the contraction order);
- sums, means, maxima and similar: a reduction per element read;
- exp, log, tanh and other elementary functions: a transcendental per element; divisions: a quotient per element;
- views, indexing, joining and copying: no arithmetic. Joining along an axis is a change of view, like
  ``poplar::concat``; results of concurrent stages therefore cost the same as after a ``parallel`` layer;
- other functions: an element-wise operation per element written.

Operands and results add to the memory traffic, except for changes of view. A call with vector work or moved elements is
a compute set, a reduction is two compute sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import autograd.numpy as anp
import numpy as np

from ipusim.model.work import NO_VECTOR_WORK, Product, VectorWork, Work


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PRODUCTS: Final = _names(
    "dot inner outer tensordot dot_adjoint_0 dot_adjoint_1 tensordot_adjoint_0 tensordot_adjoint_1"
)
_ELEMENTARY: Final = _names(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh "
    "arctanh sqrt power logaddexp logaddexp2 sinc erf erfc expit logit"
)
_REDUCTIONS: Final = _names("sum mean prod var std max min amax amin cumsum trace norm logsumexp")
_QUOTIENTS: Final = _names("divide true_divide floor_divide mod remainder fmod reciprocal")
#: Changes of view, free of cost.
VIEWS: Final = _names(
    "reshape ravel transpose swapaxes moveaxis rollaxis squeeze expand_dims broadcast_to __getitem__ diagonal "
    "atleast_1d atleast_2d atleast_3d split array_split hsplit vsplit dsplit real make_sequence container_take "
    "container_untake sequence_extend_left sequence_extend_right untake covector _make_dict concatenate_args"
)
#: Calls that move or convert elements, a compute set without arithmetic.
_MOVES: Final = _names(
    "array_from_args _array_from_scalar_or_array roll rot90 fliplr flipud pad truncate_pad repeat "
    "tile full astype sort partition sparse_add diag make_diagonal tril triu where"
)
#: Calls whose work grows faster than the number of elements, by a rule that depends on the algorithm.
REFUSED_NAMES: Final = _names(
    "cholesky det eig eigh inv pinv slogdet solve svd convolve odeint fft fft2 fftn ifft ifft2 ifftn rfft rfft2 "
    "rfftn irfft irfft2 irfftn"
)


@dataclass
class Step:
    """Counted operations of one call, or of several consecutive calls: products, vector work, traffic, compute sets.

    Attributes:
        elements: elements read or written.
        compute_sets: compute sets of the vector work.
    """

    products: tuple[Product, ...] = ()
    vector: VectorWork = NO_VECTOR_WORK
    elements: int = 0
    compute_sets: int = 0

    @property
    def macs(self) -> int:
        """Total multiply-accumulates of the products."""
        return sum(product.macs for product in self.products)

    def add(self, later: Step) -> None:
        """Add the operations of a later step to this step."""
        self.products += later.products
        self.vector += later.vector
        self.elements += later.elements
        self.compute_sets += later.compute_sets

    def work(self, itemsize: int) -> Work:
        """Return the step as work."""
        return Work(
            self.products,
            self.vector,
            self.elements * itemsize,
            itemsize=itemsize,
            compute_sets=self.compute_sets,
        )


def counted_call(name: str, value: Any, args: Sequence[Any]) -> Step:
    """Return the arithmetic and the memory traffic of a call.

    Args:
        name: name of the NumPy function.
        value: result of the call.
        args: arguments of the call.

    Returns:
        A step with this call only.
    """
    read_sizes = [np.size(arg) for arg in args if isinstance(arg, np.ndarray | np.number)]
    result_size = np.size(value) if isinstance(value, np.ndarray | np.number | float) else 0
    elements = sum(read_sizes) + result_size
    if name in _PRODUCTS or name in ("matmul", "einsum"):
        product = _product(name, read_sizes, result_size, args)
        return Step((product,) if product.macs else (), elements=elements)
    if name in _REDUCTIONS:
        return Step((), VectorWork(reductions=sum(read_sizes)), elements, compute_sets=2)
    if name in _ELEMENTARY:
        vector = VectorWork(transcendentals=result_size)
    elif name in _QUOTIENTS:
        vector = VectorWork(quotients=result_size)
    else:
        vector = VectorWork(0 if name in _MOVES else result_size)
    return Step((), vector, elements, compute_sets=1)


def _product(name: str, read_sizes: Sequence[int], result_size: int, args: Sequence[Any]) -> Product:
    if name == "matmul":
        return _matmul_of(np.shape(args[0]), np.shape(args[1]), result_size)
    if name == "einsum":
        return _einsum_of(args)
    # With M*K and K*N elements in the operands and M*N in the result, the three numbers multiply to (M*K*N)^2.
    return _product_of(read_sizes, result_size)


def _product_of(read_sizes: Sequence[int], result_size: int) -> Product:
    """Return the product of M x K by K x N, from the sizes M*K, K*N and M*N; their product is (M*K*N)^2."""
    macs = math.isqrt(math.prod(read_sizes) * result_size)
    k = macs // result_size if result_size else 0
    product = Product(read_sizes[0] // k, k, read_sizes[-1] // k) if k else Product(0, 0, 0)
    return product if product.macs == macs else Product(1, macs, 1)


def _matmul_of(left: tuple[int, ...], right: tuple[int, ...], result_size: int) -> Product:
    """Return the products of two stacks of matrices; if the second operand is one matrix, all rows form one product."""
    k = left[-1]
    n = right[-1] if len(right) > 1 else 1
    right_is_matrix = len(right) <= 2
    m = result_size // max(n, 1) if right_is_matrix else left[-2] if len(left) > 1 else 1
    return Product(m, k, n, result_size // max(m * n, 1))


def _einsum_of(args: Sequence[Any]) -> Product:
    """Return the product of the first operand by the others, independent of the contraction order."""
    inputs, output, operands = anp.parse_einsum_input(*args)
    sizes: dict[str, int] = {}
    for indices, operand in zip(inputs.split(","), operands, strict=True):
        for index, size in zip(indices, np.shape(operand), strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    first, *other_indices = (set(indices) for indices in inputs.split(","))
    other_axes, output_axes = set().union(*other_indices), set(output)

    def size_of(indices: set[str]) -> int:
        return math.prod(sizes[index] for index in indices)

    return Product(
        size_of((first - other_axes) & output_axes),
        size_of(sizes.keys() - output_axes),
        size_of((other_axes - first) & output_axes),
        size_of(first & other_axes & output_axes),
    )

"""Count the work of a single node, by operation type and by shapes and dtypes of values.

- Products and convolutions: multiply-accumulates, counted over all indices.
- Reductions: one reduction per element read. Elementary functions: one transcendental per element. Quotients:
  one quotient per element. Other arithmetic: one elementwise operation per element written.
- Views and single integers, such as iteration counters, cost nothing. Padding, gathering and other element moves
  cost memory traffic.

:mod:`ipusim.model.functions.counted_calls` has the same rules; here they use TensorFlow's names. A node without
products counts as one compute set, a reduction as two, and an operation that fuses several calls, such as Softmax, as
6 to 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from ipusim.api import Shape, VectorWork, Work, models
from ipusim.ipu.graph.kernels.windows import Windows
from ipusim.ipu.graph.prices.observed import ObservedNode


def _types(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Node types without work: views, such as slices and concatenations, shapes, random states, checks, and host functions.
FREE: Final = _types(
    "Identity IdentityN Reshape Shape ShapeN Size Rank Squeeze ExpandDims StopGradient PreventGradient Snapshot "
    "EnsureShape CheckNumerics ReadVariableOp VariableShape VarIsInitializedOp BroadcastGradientArgs BroadcastArgs "
    "InvertPermutation ConcatOffset Transpose ConcatV2 Concat Split SplitV Pack Unpack Slice StridedSlice BroadcastTo "
    "Assert Print PrintV2 ControlTrigger PyFunc EagerPyFunc StatelessRandomGetAlg StatelessRandomGetKeyCounter "
    "StatelessRandomGetKeyCounterAlg TensorListReserve EmptyTensorList TensorListLength TensorListElementShape "
    "OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone PlaceholderWithDefault"
)
#: Node types that only move elements.
_MOVES: Final = _types(
    "Pad PadV2 MirrorPad Tile Gather GatherV2 GatherNd ResourceGather ResourceGatherNd ScatterNd StridedSliceGrad Fill "
    "ZerosLike OnesLike Cast OneHot ReverseV2 ReverseSequence DynamicStitch ParallelDynamicStitch Where Unique TopKV2 "
    "TensorListFromTensor TensorListPushBack TensorListPopBack TensorListGetItem TensorListSetItem TensorListStack "
    "TensorListGather TensorListResize AssignVariableOp MatrixBandPart SpaceToDepth DepthToSpace Range LinSpace "
    "RandomShuffle Select SelectV2 TensorScatterUpdate"
)
_REDUCTIONS: Final = _types(
    "Sum Mean Prod Max Min All Any ArgMax ArgMin L2Loss Cumsum Cumprod BiasAddGrad MaxPool AvgPool MaxPool3D AvgPool3D "
    "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin SegmentSum InTopK InTopKV2"
)
_ELEMENTARY: Final = _types(
    "Exp Expm1 Log Log1p Sqrt Rsqrt Sin Cos Tan Asin Acos Atan Atan2 Sinh Cosh Tanh Asinh Acosh Atanh Pow Erf Erfc "
    "Sigmoid Softplus Elu Selu Lgamma Digamma Xlogy Xlog1py"
)
_QUOTIENTS: Final = _types(
    "RealDiv Div DivNoNan TruncateDiv FloorDiv FloorMod Mod TruncateMod Reciprocal Inv Xdivy Softsign"
)
#: Vector work per element of the first input, and compute sets, for operations that fuse several calls.
_COMPOUND: Final = {
    **dict.fromkeys(_types("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"), (VectorWork(5, reductions=2), 7)),
    **dict.fromkeys(
        _types("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"), (VectorWork(9, reductions=4), 13)
    ),
    "Softmax": (VectorWork(1, reductions=2, quotients=1, transcendentals=1), 6),
    "LogSoftmax": (VectorWork(2, reductions=2, transcendentals=1), 6),
    "SparseSoftmaxCrossEntropyWithLogits": (VectorWork(2, reductions=2, quotients=1, transcendentals=1), 8),
    "SoftmaxCrossEntropyWithLogits": (VectorWork(3, reductions=3, quotients=1, transcendentals=1), 9),
}
#: Vector work per element written, by operation type; other types count as elementwise operations.
_ELEMENTS: Final = (
    (_MOVES, VectorWork()),
    (_ELEMENTARY, VectorWork(transcendentals=1)),
    (_QUOTIENTS, VectorWork(quotients=1)),
)
#: Elementwise operations, quotients and transcendentals per gradient element of a weight update.
_UPDATES: Final = {
    "GradientDescent": VectorWork(2),
    "Momentum": VectorWork(4),
    "KerasMomentum": VectorWork(4),
    "Adam": VectorWork(9, quotients=1, transcendentals=1),
    "RMSProp": VectorWork(7, quotients=1, transcendentals=1),
    "CenteredRMSProp": VectorWork(11, quotients=1, transcendentals=1),
    "Adagrad": VectorWork(4, quotients=1, transcendentals=1),
    "AdagradV2": VectorWork(5, quotients=1, transcendentals=1),
    "Adadelta": VectorWork(10, quotients=1, transcendentals=2),
    "AdaMax": VectorWork(7, quotients=1),
}
#: Bytes per element for a node without floating-point elements.
_DEFAULT_ITEMSIZE: Final = 4


def work_of_node(entry: ObservedNode) -> Work | None:
    """Return a node's work; None for a free node and for a node on single integers."""
    kind = entry.node.type
    if kind in FREE or _is_counter(entry):
        return None
    maker = _PRODUCTS.get(kind)
    traffic = sum(form.nbytes for form in (*entry.inputs, *entry.outputs))
    itemsize = _itemsize(entry)
    if maker is not None:
        product = maker(entry)
        return Work(
            (product,), sram_bytes=traffic, itemsize=itemsize, compute_sets=0, convolution=kind.startswith("Conv")
        )
    vector, sets = _vector_work(entry)
    return Work(vector=vector, sram_bytes=traffic, itemsize=itemsize, compute_sets=sets)


def _is_counter(entry: ObservedNode) -> bool:
    """Tell whether a node computes only with single integers, such as iteration counters."""
    forms = [form for form in (*entry.inputs, *entry.outputs) if not form.dtype.hasobject]
    return bool(forms) and all(form.size == 1 and form.dtype.kind in "iu" for form in forms)


def _itemsize(entry: ObservedNode) -> int:
    """Return the bytes of the widest floating-point element; 4 if no tensor has floating-point elements."""
    widths = [form.dtype.itemsize for form in (*entry.inputs, *entry.outputs) if form.dtype.kind in "fV"]
    return max(widths, default=_DEFAULT_ITEMSIZE)


def _vector_work(entry: ObservedNode) -> tuple[VectorWork, int]:
    """Return the vector work and compute sets of a node without products."""
    kind = entry.node.type
    read_elements = entry.inputs[0].size if entry.inputs else 0
    out_elements = sum(form.size for form in entry.outputs)
    update = kind.removeprefix("Resource").removeprefix("Sparse").removeprefix("Apply")
    if kind in _COMPOUND:
        work, sets = _COMPOUND[kind]
        return work * read_elements, sets
    if kind in _REDUCTIONS:
        return VectorWork(reductions=read_elements), 2
    if kind.startswith("Resource") and update in _UPDATES:
        return _UPDATES[update] * max(form.size for form in entry.inputs[1:]), 1
    cost = next((work for types, work in _ELEMENTS if kind in types), VectorWork(1))
    return cost * (out_elements or max((form.size for form in entry.inputs), default=0)), 1


def _matrix_product(entry: ObservedNode) -> models.Product:
    attributes = entry.node.attributes
    is_transposed = attributes.get("transpose_a", attributes.get("adj_x", False))
    left, out = entry.inputs[0].shape, entry.outputs[0].shape
    k = left[-2 if is_transposed else -1]
    is_one_matrix = len(entry.inputs[1].shape) == len(left) == 2
    groups = 1 if is_one_matrix else math.prod(out[:-2])
    return models.Product(out[-2], k, out[-1], groups)


def _einsum(entry: ObservedNode) -> models.Product:
    inputs, _, output = entry.node.attributes["equation"].partition("->")
    sizes: dict[str, int] = {}
    names = inputs.split(",")
    for letters, form in zip(names, entry.inputs, strict=True):
        sizes |= dict(zip(letters, form.shape, strict=False))
    first_letters, *further_letters = (set(letters) for letters in names)
    second_letters, output_letters = set().union(*further_letters), set(output)

    def index_count(letters: set[str]) -> int:
        """Return the number of indices that the axes with these letters have together."""
        return math.prod(sizes.get(letter, 1) for letter in letters)

    depth = index_count(sizes.keys() - output_letters)
    return models.Product(
        index_count((first_letters - second_letters) & output_letters),
        depth,
        index_count((second_letters - first_letters) & output_letters),
        index_count(first_letters & second_letters & output_letters),
    )


def _sizes_of_convolution(entry: ObservedNode) -> tuple[Shape, int, int, int, Windows]:
    """Return the kernel's shape, elements of a filter per channel, results per filter, groups, and the windows.

    The node is a convolution, an image gradient or a kernel gradient.
    """
    windows, kind = Windows.of_node(entry.node), entry.node.type
    image, kernel = entry.inputs[0].shape, entry.inputs[1].shape
    result = (entry.inputs[2] if "Backprop" in kind else entry.outputs[0]).shape
    if "BackpropInput" in kind:
        image = entry.outputs[0].shape
    elif "BackpropFilter" in kind:
        kernel = entry.outputs[0].shape
    groups = windows.sizes(image)[-1] // kernel[-2]
    return kernel, math.prod(kernel[:-2]), math.prod(windows.sizes(result)[:-1]), groups, windows


def _convolution(entry: ObservedNode) -> models.Convolution:
    kernel, taps, positions, groups, windows = _sizes_of_convolution(entry)
    return models.Convolution(positions, kernel[-2], kernel[-1] // groups, taps, math.prod(windows.strides), groups)


def _convolution_back(entry: ObservedNode) -> models.Convolution:
    """Return the convolution that computes the gradient of images."""
    kernel, taps, positions, groups, _ = _sizes_of_convolution(entry)
    return models.Convolution(positions, kernel[-1] // groups, kernel[-2], taps, groups=groups)


def _kernel_gradient(entry: ObservedNode) -> models.Product:
    kernel, taps, positions, groups, _ = _sizes_of_convolution(entry)
    return models.Product(taps * kernel[-2], positions, kernel[-1] // groups, groups, shared_rows=taps)


def _depthwise(entry: ObservedNode) -> models.Convolution:
    """Return the depthwise convolution behind a node that computes output, image gradient or kernel gradient."""
    kernel, taps, positions, _, windows = _sizes_of_convolution(entry)
    return models.Convolution(positions, 1, kernel[-1], taps, math.prod(windows.strides), kernel[-2])


#: Functions returning a node's product, by operation type.
_PRODUCTS: Final[dict[str, Callable[[ObservedNode], models.Product | models.Convolution]]] = {
    **dict.fromkeys(_types("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"), _matrix_product),
    **dict.fromkeys(_types("Conv2D Conv3D"), _convolution),
    **dict.fromkeys(_types("Conv2DBackpropInput Conv3DBackpropInputV2"), _convolution_back),
    **dict.fromkeys(_types("Conv2DBackpropFilter Conv3DBackpropFilterV2"), _kernel_gradient),
    **dict.fromkeys((f"DepthwiseConv2dNative{end}" for end in ("", "BackpropFilter", "BackpropInput")), _depthwise),
    "Einsum": _einsum,
}
#: Operation types with a product.
PRODUCTS: Final = frozenset(_PRODUCTS)

"""Kernels of convolutions and their gradients, against eager TensorFlow."""

import numpy as np
import pytest

from tests.golden.graph.eager import Case
from tests.golden.graph.values import drawn, whole

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
#: Attributes of a convolution, the image's shape, the kernel's, and the result's.
FORMS = [
    ({"padding": "SAME"}, (2, 5, 6, 3), (3, 3, 3, 4), (2, 5, 6, 4)),
    ({"padding": "VALID", "strides": [1, 2, 1, 1]}, (2, 7, 6, 3), (3, 2, 3, 4), (2, 3, 5, 4)),
    ({"padding": "SAME", "strides": [1, 2, 3, 1]}, (1, 6, 7, 2), (2, 4, 2, 3), (1, 3, 3, 3)),
    ({"padding": "SAME", "strides": [1, 3, 3, 1]}, (1, 7, 8, 2), (1, 1, 2, 3), (1, 3, 3, 3)),
    ({"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}, (2, 4, 4, 2), (3, 3, 2, 2), (2, 5, 3, 2)),
]
GROUPED = ({"padding": "SAME"}, (2, 4, 4, 6), (3, 3, 2, 9))
DILATED = ({"padding": "VALID", "dilations": [1, 2, 1, 1]}, (1, 7, 6, 2), (3, 2, 2, 3))
DEPTHWISE = [
    ({"padding": "SAME", "strides": [1, 1, 1, 1]}, (2, 5, 6, 3), (3, 3, 3, 2), (2, 5, 6, 6)),
    ({"padding": "VALID", "strides": [1, 2, 2, 1]}, (2, 5, 6, 3), (2, 2, 3, 1), (2, 2, 3, 3)),
]
VOLUME = ({"padding": "SAME", "strides": [1, 1, 2, 1, 1]}, (1, 3, 4, 5, 2), (2, 2, 3, 2, 3), (1, 3, 2, 5, 3))


def cases(names, forms):
    """A case of each form for the convolution and its gradients of images and of kernels."""
    forward, of_image, of_kernel = names
    for attributes, image, kernel, result in forms:
        chosen = {"strides": [1] * len(image), **attributes}
        x, w, grad = drawn(*image), drawn(*kernel, seed=1), drawn(*result, seed=2)
        yield Case(forward, {"input": x, "filter": w}, chosen, **CLOSE)
        yield Case(of_image, {"input_sizes": whole(*image), "filter": w, "out_backprop": grad}, chosen, **CLOSE)
        yield Case(of_kernel, {"input": x, "filter_sizes": whole(*kernel), "out_backprop": grad}, chosen, **CLOSE)


CASES = [
    *cases(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), FORMS),
    *(
        Case(
            "Conv2D",
            {"input": drawn(*image), "filter": drawn(*kernel, seed=1)},
            {"strides": [1] * 4, **attributes},
            **CLOSE,
        )
        for attributes, image, kernel in (GROUPED, DILATED)
    ),
    *cases(
        ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
        DEPTHWISE,
    ),
    *cases(("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"), [VOLUME]),
]


def run(kind, attributes, *values):
    """The result of a kernel."""
    from ipusim.ipu.graph.node import Node  # noqa: PLC0415
    from ipusim.ipu.graph.registry import find  # noqa: PLC0415

    node = Node("node", kind, attributes, output_types=(np.dtype(np.float32),))
    return find(node).maker(node)(*values)


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_first_gives_what_channels_last_gives(groups):
    """TensorFlow's CPU has no channels first: held against the same convolution with its axes moved."""
    x, w, grad = drawn(2, 6, 7, 4), drawn(3, 3, 4 // groups, 6, seed=1), drawn(2, 3, 4, 6, seed=2)
    last = {"padding": "SAME", "strides": [1, 2, 2, 1], "dilations": [1] * 4, "data_format": "NHWC"}
    first = {**last, "strides": [1, 1, 2, 2], "data_format": "NCHW"}

    def moved(array):
        return np.moveaxis(array, -1, 1)

    np.testing.assert_array_equal(run("Conv2D", first, moved(x), w), moved(run("Conv2D", last, x, w)))
    np.testing.assert_array_equal(
        run("Conv2DBackpropInput", first, whole(2, 4, 6, 7), w, moved(grad)),
        moved(run("Conv2DBackpropInput", last, whole(2, 6, 7, 4), w, grad)),
    )
    np.testing.assert_array_equal(
        run("Conv2DBackpropFilter", first, moved(x), whole(*w.shape), moved(grad)),
        run("Conv2DBackpropFilter", last, x, whole(*w.shape), grad),
    )


@pytest.mark.parametrize(("attributes", "image", "kernel"), [GROUPED, DILATED])
def test_gradients_are_the_transposes_of_the_convolution(attributes, image, kernel):
    """TensorFlow's CPU has no gradients of groups and dilations: each is held against the convolution itself."""
    chosen = {"strides": [1] * 4, "dilations": [1] * 4, "data_format": "NHWC", **attributes}

    x, w = drawn(*image), drawn(*kernel, seed=1)
    y = run("Conv2D", chosen, x, w)
    grad = drawn(*y.shape, seed=2)
    product = np.vdot(y, grad)
    np.testing.assert_allclose(
        np.vdot(x, run("Conv2DBackpropInput", chosen, whole(*image), w, grad)), product, rtol=1e-4
    )
    np.testing.assert_allclose(
        np.vdot(w, run("Conv2DBackpropFilter", chosen, x, whole(*kernel), grad)), product, rtol=1e-4
    )


def test_images_are_convolved_in_parts_with_the_values_of_all_at_once(monkeypatch):
    from ipusim.ipu.graph.kernels import convolution  # noqa: PLC0415

    attributes = {"padding": "SAME", "strides": [1] * 4, "dilations": [1] * 4, "data_format": "NHWC"}
    x, w = drawn(5, 6, 7, 4), drawn(3, 3, 4, 8, seed=1)
    whole_result = run("Conv2D", attributes, x, w)
    for size in (1, 2 * 6 * 7 * 36 * 4):
        monkeypatch.setattr(convolution, "_PATCH_BYTES", size)
        np.testing.assert_allclose(run("Conv2D", attributes, x, w), whole_result, rtol=1e-6, atol=1e-6)
        assert run("Conv2D", attributes, x[:0], w).shape == (0, 6, 7, 8)

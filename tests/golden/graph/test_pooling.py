"""Kernels of pools and their gradients, against eager TensorFlow."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ipusim.ipu.graph.tensorflow_import import load
from tests.golden.graph.eager import Case, computed
from tests.golden.graph.values import drawn, whole

IMAGE, VOLUME = (2, 5, 6, 3), (1, 4, 5, 4, 2)
#: Attributes, and the shape of the result.
FORMS = [
    ({"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}, (2, 2, 3, 3)),
    ({"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": "SAME"}, (2, 3, 6, 3)),
]
FORMS_3D = [({"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}, (1, 2, 3, 2, 2))]
TIES = np.zeros(IMAGE, np.float32)


def largest(images, attributes, result, forward, back):
    """The pool, and its gradient with the pool's own result."""
    strides, size = attributes["strides"][1:-1], attributes["ksize"][1:-1]
    yield Case(forward, {"input": images}, attributes)
    needed = [(count - 1) * stride + length for count, stride, length in zip(result[1:-1], strides, size, strict=True)]
    added = [max(need - extent, 0) for need, extent in zip(needed, images.shape[1:-1], strict=True)]
    around = [(0, 0), *((pixels // 2, pixels - pixels // 2) for pixels in added), (0, 0)]
    padded = np.pad(images, around, constant_values=-np.inf)
    windows = sliding_window_view(padded, size, axis=tuple(range(1, 1 + len(size))))
    chosen = windows[(slice(None), *(slice(None, None, stride) for stride in strides))]
    out = chosen.max(axis=tuple(range(-len(size), 0)))
    yield Case(back, {"orig_input": images, "orig_output": out, "grad": drawn(*result, seed=1)}, attributes)


CASES = [
    *(case for form in FORMS for case in largest(drawn(*IMAGE), *form, "MaxPool", "MaxPoolGrad")),
    *(case for form in FORMS for case in largest(TIES, *form, "MaxPool", "MaxPoolGrad")),
    *(case for form in FORMS_3D for case in largest(drawn(*VOLUME), *form, "MaxPool3D", "MaxPool3DGrad")),
    *(Case("AvgPool", {"value": drawn(*IMAGE)}, form) for form, _ in FORMS),
    *(Case("AvgPoolGrad", {"orig_input_shape": whole(*IMAGE), "grad": drawn(*result)}, form) for form, result in FORMS),
    *(Case("AvgPool3D", {"input": drawn(*VOLUME)}, form) for form, _ in FORMS_3D),
    *(
        Case("AvgPool3DGrad", {"orig_input_shape": whole(*VOLUME), "grad": drawn(*result)}, form)
        for form, result in FORMS_3D
    ),
]


def test_the_gradient_of_a_window_goes_to_its_first_nan():
    """TensorFlow skips NaN in a pool, which would hide it; NumPy's maximum, which the pool is, does not."""
    tf = load()
    x = np.array([[3, np.nan], [np.nan, 5]], np.float32).reshape(1, 2, 2, 1)
    nan, one = (np.full((1, 1, 1, 1), value, np.float32) for value in (np.nan, 1))
    with tf.Graph().as_default():
        images = tf.compat.v1.placeholder(tf.float32, x.shape)
        pooled = tf.nn.max_pool2d(images, 2, 2, "VALID")
        (gradient,) = tf.gradients(pooled, images)
    assert np.isnan(computed(pooled.op, [x])[0])
    assert computed(gradient.op, [x, nan, one])[0].ravel().tolist() == [0, 1, 0, 0]

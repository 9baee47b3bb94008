"""Kernels of lists and optional values, and control flow around them, against eager TensorFlow."""

import numpy as np
import pytest

from tests.golden.graph.eager import Case, check_graph
from tests.golden.graph.values import drawn, whole
from tests.programs import tensorflow

CASES = [Case("ZerosLike", {"x": drawn(2, 3)})]
IN_GRAPHS = [
    "EmptyTensorList",
    "TensorListReserve",
    "TensorListFromTensor",
    "TensorListPushBack",
    "TensorListPopBack",
    "TensorListGetItem",
    "TensorListSetItem",
    "TensorListLength",
    "TensorListResize",
    "TensorListStack",
    "TensorListGather",
    "TensorListElementShape",
    "OptionalFromValue",
    "OptionalNone",
    "OptionalHasValue",
    "OptionalGetValue",
]


@pytest.fixture
def raw():
    return tensorflow().raw_ops


def test_a_list_grows_and_shrinks(raw):
    form = {"element_dtype": np.float32}

    def function(x):
        empty = raw.EmptyTensorList(element_shape=whole(3), max_num_elements=-1, **form)
        two = raw.TensorListPushBack(input_handle=raw.TensorListPushBack(input_handle=empty, tensor=x), tensor=x * 2)
        one, last = raw.TensorListPopBack(input_handle=two, element_shape=whole(3), **form)
        size = raw.TensorListElementShape(input_handle=one, shape_type=np.int64)
        return last, raw.TensorListStack(input_handle=two, element_shape=whole(3), **form), size

    check_graph(function, drawn(3))


def test_elements_that_were_not_set_are_zeros(raw):
    form = {"element_dtype": np.float32}

    def function(x):
        reserved = raw.TensorListReserve(element_shape=whole(3), num_elements=4, **form)
        changed = raw.TensorListSetItem(input_handle=reserved, index=1, item=x)
        longer = raw.TensorListResize(input_handle=changed, size=5)
        return (
            raw.TensorListGetItem(input_handle=longer, index=0, element_shape=whole(3), **form),
            raw.TensorListGetItem(input_handle=longer, index=1, element_shape=whole(3), **form),
            raw.TensorListStack(input_handle=longer, element_shape=whole(3), **form),
            raw.TensorListGather(input_handle=longer, indices=whole(1, 3), element_shape=whole(3), **form),
            raw.TensorListLength(input_handle=raw.TensorListResize(input_handle=longer, size=2)),
        )

    check_graph(function, drawn(3))


def test_a_tensor_becomes_a_list(raw):
    def function(x):
        tensors = raw.TensorListFromTensor(tensor=x, element_shape=whole(3))
        stacked = raw.TensorListStack(
            input_handle=raw.ZerosLike(x=tensors), element_shape=whole(3), element_dtype=np.float32
        )
        return stacked, raw.TensorListGetItem(
            input_handle=tensors, index=1, element_shape=whole(3), element_dtype=np.float32
        )

    check_graph(function, drawn(2, 3))


def test_optional_values(raw):
    def function(x):
        kept = raw.OptionalFromValue(components=[x, x + 1])
        first, second = raw.OptionalGetValue(optional=kept, output_types=[np.float32] * 2, output_shapes=[[3], [3]])
        return first, second, raw.OptionalHasValue(optional=kept), raw.OptionalHasValue(optional=raw.OptionalNone())

    check_graph(function, drawn(3))


def test_optional_values_are_added_and_become_zeros(raw):
    def function(x):
        kept, form = raw.OptionalFromValue(components=[x]), {"output_types": [np.float32], "output_shapes": [[3]]}
        zeros, twice = raw.ZerosLike(x=kept), raw.AddN(inputs=[kept, kept])
        missing = raw.OptionalNone()
        return (
            *raw.OptionalGetValue(optional=zeros, **form),
            *raw.OptionalGetValue(optional=twice, **form),
            raw.OptionalHasValue(optional=raw.ZerosLike(x=missing)),
            raw.OptionalHasValue(optional=raw.AddN(inputs=[missing, missing])),
        )

    check_graph(function, drawn(3))


def test_loops_and_branches_with_gradients():
    tf = tensorflow()
    weight = tf.Variable(drawn(3, 3))

    def function(x, steps):
        def body(step, state):
            return step + 1, tf.cond(step % 2 > 0, lambda: tf.tanh(state @ weight), lambda: tf.sin(state))

        _, result = tf.while_loop(lambda step, _: step < steps, body, [0, x])
        loss = tf.reduce_sum(tf.switch_case(steps - 4, [lambda: result, lambda: result**2, lambda: -result]))
        return loss, *tf.gradients(loss, [x, weight.handle])

    for steps in (0, 5, 6):
        check_graph(function, drawn(2, 3), np.int32(steps), variables=[weight], rtol=1e-5)

"""Cases of operations, held against eager TensorFlow: what the tests of all families share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.programs import tensorflow


@dataclass(frozen=True, eq=False)
class Case:
    """An operation on given inputs.

    Attributes:
        type: operation type, a name of ``tf.raw_ops``.
        inputs: arrays by the operation's names for its inputs; a list of arrays for an input that takes several.
        attributes: attributes by name; dtypes as NumPy's.
        rtol, atol: how far the results may be from TensorFlow's; whole numbers and truth values are always equal.
        label: words for the case, if its shapes do not tell it from others.
        unset: numbers of results that TensorFlow leaves unset, whose shape alone is compared.
    """

    type: str
    inputs: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-6
    atol: float = 1e-6
    label: str = ""
    unset: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The operation, and what tells the case from others."""
        shapes = "_".join(_form(value) for value in self.inputs.values())
        attributes = "_".join(f"{name}={np.asarray(value).tolist()}" for name, value in self.attributes.items())
        return "-".join(filter(None, (self.type, self.label or shapes, attributes)))


def _form(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_form, value))
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}".replace(" ", "")


def check(case: Case) -> None:
    """Hold an operation's kernel against eager TensorFlow: dtypes, shapes, values; no input may change."""
    tf = tensorflow()
    function = getattr(tf.raw_ops, case.type)
    expected = results(function(**case.inputs, **case.attributes))
    inputs = tf.nest.map_structure(np.asarray, case.inputs)
    with tf.Graph().as_default():
        placed = tf.nest.map_structure(lambda array: tf.compat.v1.placeholder(array.dtype, array.shape), inputs)
        made = function(**placed, **case.attributes)
        operation = made if isinstance(made, tf.Operation) else results(made)[0].op
    array_of = dict(zip((each.name for each in tf.nest.flatten(placed)), tf.nest.flatten(inputs), strict=True))
    arrays = [array_of[tensor.name] for tensor in operation.inputs]
    before = [array.copy() for array in arrays]
    got = computed(operation, arrays)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy, err_msg="an input was changed")
    values = [each.numpy() for each in expected]
    for number in case.unset:
        values[number] = np.broadcast_to(got[number], values[number].shape)
    compare(got, values, case.rtol, case.atol)


def computed(operation: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    """The results of an operation's kernel, after a check of their number and dtypes."""
    from ipusim.ipu.graph import kernels  # noqa: F401, PLC0415 - registers all
    from ipusim.ipu.graph.reading import read_node  # noqa: PLC0415 - imports TensorFlow
    from ipusim.ipu.graph.registry import find  # noqa: PLC0415

    node = read_node(operation)
    with np.errstate(all="ignore"):
        result = find(node).maker(node)(*arrays)
    outputs = list(result) if isinstance(result, tuple) else [] if result is None else [result]
    assert len(outputs) == len(node.output_types)
    for output, dtype in zip(outputs, node.output_types, strict=True):
        assert dtype.hasobject or np.asarray(output).dtype == dtype
    return outputs


def results(value: Any) -> list[Any]:
    """The tensors that a raw operation returned, in a list."""
    return list(value) if isinstance(value, tuple | list) else [value]


def compare(got: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> None:
    """Assert equal shapes and values."""
    for ours, theirs in zip(got, expected, strict=True):
        array = np.asarray(ours)
        assert array.shape == np.shape(theirs)
        if array.dtype.kind in "fcV":
            np.testing.assert_allclose(array.astype(np.float64), np.float64(theirs), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(array, theirs)


def check_graph(
    function: Any, *arrays: np.ndarray, variables: Sequence[Any] = (), rtol: float = 1e-6, atol: float = 1e-6
) -> None:
    """Hold the interpreter against TensorFlow on a function of tensors: its results, and ``variables`` behind it."""
    from ipusim.ipu.graph.executable import Executable, Invocation, runs_for_effect  # noqa: PLC0415
    from ipusim.ipu.graph.node import Variable  # noqa: PLC0415
    from ipusim.ipu.graph.reading import read_graph  # noqa: PLC0415

    tf = tensorflow()
    traced = tf.function(function, autograph=False).get_concrete_function(*map(tf.constant, arrays))
    graph = read_graph(traced.graph)
    owners = {id(variable.handle): variable for variable in variables}
    captured = [owners.get(id(outer)) for outer in traced.captured_inputs]
    values = [
        outer.numpy() if owner is None else Variable(owner.name, owner.numpy())
        for outer, owner in zip(traced.captured_inputs, captured, strict=True)
    ]
    expected = [each.numpy() for each in tf.nest.flatten(traced(*map(tf.constant, arrays)))]
    effects = [node.name for node in graph.nodes.values() if runs_for_effect(node)]
    program = Executable(graph, graph.inputs, graph.outputs, effects)
    with np.errstate(all="ignore"):
        got = program.run(Invocation({}), [*arrays, *values])
    compare(got, expected, rtol, atol)
    for owner, value in zip(captured, values, strict=True):
        if owner is not None:
            compare([value.value], [owner.numpy()], rtol, atol)

"""Convert TensorFlow graphs into plain nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ipusim.ipu.graph.control_flow import WITHOUT_EFFECTS
from ipusim.ipu.graph.needed import runs_for_effect
from ipusim.ipu.graph.node import Graph, Node, Output, StaticShape
from ipusim.ipu.graph.tensorflow_import import load

tf = load()

#: Dtype for values without a NumPy type: text, resource handles, variants.
OBJECT: Final = np.dtype(object)
#: Attribute of a handle of TensorFlow 2 with its name in nodes.
_NAME: Final = "_ipusim_name"
#: Handles of TensorFlow 2 named so far, by the name of the variable.
_HANDLES: Final = Counter[str]()


def read_node(operation: Any) -> Node:
    """Return a TensorFlow operation as a node.

    Args:
        operation: a ``tf.Operation``.

    Returns:
        Node with all attributes of the operation.
    """
    return Node(
        name=operation.name,
        type=operation.type,
        attributes={name: _attribute(value) for name, value in operation.node_def.attr.items()},
        inputs=tuple(output_of(tensor) for tensor in operation.inputs),
        controls=tuple(control.name for control in operation.control_inputs),
        output_types=tuple(_dtype(tensor.dtype.base_dtype.as_datatype_enum) for tensor in operation.outputs),
        output_shapes=tuple(static_shape(tensor.shape) for tensor in operation.outputs),
        origin="" if operation._original_op is None else operation._original_op.name,
        stateful=operation.op_def.is_stateful,
    )


def read_graph(graph: Any) -> Graph:
    """Return a TensorFlow graph as nodes, including called functions.

    Read a graph only after building gradients: a loop's gradient adds results to the loop. TensorFlow counts draws as
    effects of a branch, loop or call; here such a node becomes the operation without effects.

    Args:
        graph: a ``tf.Graph``, or a function body's ``FuncGraph``.

    Returns:
        Nodes in creation order, and the arguments and results of a function body.
    """
    functions: dict[str, Graph] = {}
    nodes = _read_nodes(graph, graph.get_operations(), functions)
    for placeholder, name in captured_variables(graph):
        if placeholder in nodes:  # a captured handle becomes a variable handle of this graph
            nodes[placeholder] = replace(nodes[placeholder], type="VarHandleOp", attributes={"shared_name": name})
    pure = _functions_without_effects(functions)
    for name, body in functions.items():
        functions[name] = replace(body, nodes=_with_types(body.nodes, functions, pure))
    return Graph(_with_types(nodes, functions, pure), functions, *_ends(graph))


def _functions_without_effects(functions: Mapping[str, Graph]) -> set[str]:
    """Return names of functions without effects, in their own nodes or in called functions."""
    pure, before = set(functions), 0
    while len(pure) != before:
        before = len(pure)
        pure = {
            name
            for name in pure
            if not any(_has_effect(node, functions, pure) for node in functions[name].nodes.values())
        }
    return pure


def _has_effect(node: Node, functions: Mapping[str, Graph], pure: set[str]) -> bool:
    """Tell whether a node has an effect, or calls a function that is not in ``pure``."""
    return runs_for_effect(node) and not (node.type in WITHOUT_EFFECTS and _called_by(node, functions) <= pure)


def _with_types(nodes: Mapping[str, Node], functions: Mapping[str, Graph], pure: set[str]) -> dict[str, Node]:
    """Return nodes with the operation without effects for calls of functions in ``pure``."""
    return {
        name: replace(node, type=WITHOUT_EFFECTS[node.type], stateful=False)
        if node.type in WITHOUT_EFFECTS and not _has_effect(node, functions, pure)
        else node
        for name, node in nodes.items()
    }


def _called_by(node: Node, functions: Mapping[str, Graph]) -> set[str]:
    """Return names of the functions among a node's attributes."""
    values = (value if isinstance(value, list) else [value] for value in node.attributes.values())
    return {text for value in values for text in value if isinstance(text, str) and text in functions}


def captured_variables(graph: Any) -> Iterator[tuple[str, str]]:
    """Yield (placeholder, handle name) per TensorFlow 2 variable handle captured by a graph.

    Args:
        graph: a ``FuncGraph``; other graphs capture nothing.
    """
    names = {id(variable.handle): variable.name for variable in getattr(graph, "variables", ())}
    for outside, placeholder in getattr(graph, "captures", ()):
        if outside.dtype == tf.resource and not hasattr(outside, "graph") and is_variable_handle(outside):
            yield placeholder.op.name, handle_name(outside, names.get(id(outside), "variable"))


def is_variable_handle(tensor: Any) -> bool:
    """Tell whether an eager resource is a variable rather than an iterator."""
    data = getattr(tensor, "_handle_data", None)
    return data is not None and data.is_set


def handle_name(handle: Any, variable_name: str = "variable") -> str:
    """Return a variable's name in nodes.

    Args:
        handle: the variable's handle.
        variable_name: the variable's name under TensorFlow 2, which several variables may have.

    Returns:
        The shared name. Under TensorFlow 2 a handle has no name, and gets the variable's name, from the second handle
        of this name on with a number.
    """
    if hasattr(handle, "graph"):
        name: str = handle.op.get_attr("shared_name").decode() or handle.op.name
    elif (name := getattr(handle, _NAME, "")) == "":
        plain_name = variable_name.removesuffix(":0")
        name = f"{plain_name}:{_HANDLES[plain_name]}" if plain_name in _HANDLES else plain_name
        _HANDLES[plain_name] += 1
        setattr(handle, _NAME, name)
    return name


def read_handle(handle: Any) -> np.ndarray[Any, Any]:
    """Read a TensorFlow 2 variable."""
    return np.asarray(tf.raw_ops.ReadVariableOp(resource=handle, dtype=_dtype_of_handle(handle)).numpy())


def assign_handle(handle: Any, value: Any) -> None:
    """Assign a new value to a TensorFlow 2 variable."""
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, _dtype_of_handle(handle)))


def _dtype_of_handle(handle: Any) -> Any:
    return tf.dtypes.as_dtype(handle._handle_data.shape_and_type[0].dtype)


def name_handles_anew() -> None:
    """Give handles names without regard to names of an earlier program in this process."""
    _HANDLES.clear()


def _read_nodes(graph: Any, operations: Iterable[Any], functions: dict[str, Graph]) -> dict[str, Node]:
    """Return nodes by name; add bodies of called functions to ``functions``."""
    nodes = {}
    for operation in operations:
        nodes[operation.name] = read_node(operation)
        for name in _called_names(operation):
            if name not in functions:
                body = _body(graph, name)
                functions[name] = Graph({}, functions)  # placeholder, because a function may call itself
                functions[name] = Graph(_read_nodes(body, body.get_operations(), functions), functions, *_ends(body))
    return nodes


def _called_names(operation: Any) -> Iterator[str]:
    """Yield names of functions called by an operation."""
    for value in operation.node_def.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            yield from (function.name for function in value.list.func)


def _body(graph: Any, name: str) -> Any:
    """Return the ``FuncGraph`` of a function defined in a graph or an enclosing graph."""
    enclosing_graph = graph
    while enclosing_graph is not None:
        function = enclosing_graph._get_function(name)
        if function is not None:
            return function.graph
        enclosing_graph = getattr(enclosing_graph, "outer_graph", None)
    raise KeyError(name)


def _ends(graph: Any) -> tuple[tuple[Output, ...], tuple[Output, ...]]:
    """Return arguments and results of a function body; empty for other graphs."""
    inputs, outputs = getattr(graph, "inputs", ()), getattr(graph, "outputs", ())
    return tuple(map(output_of, inputs)), tuple(map(output_of, outputs))


def output_of(tensor: Any) -> Output:
    """Return a TensorFlow tensor as node name plus output number."""
    return Output(tensor.op.name, tensor.value_index)


def static_shape(shape: Any) -> StaticShape:
    """Return a ``tf.TensorShape`` as a tuple; None for unknown rank."""
    return None if shape.rank is None else tuple(shape.as_list())


def _dtype(number: int) -> np.dtype[Any]:
    """Return the NumPy dtype for TensorFlow's dtype number; ``object`` if NumPy has no such dtype."""
    dtype = tf.dtypes.as_dtype(number)
    return OBJECT if dtype.base_dtype in (tf.string, tf.resource, tf.variant) else np.dtype(dtype.as_numpy_dtype)


def _text(value: bytes) -> Any:
    """Return valid UTF-8 bytes as text, other bytes unchanged."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


#: Converters by the field of TensorFlow's attribute message; fields of numbers and booleans need no conversion.
_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "s": _text,
    "type": _dtype,
    "shape": lambda proto: static_shape(tf.TensorShape(proto)),
    "tensor": tf.make_ndarray,
    "func": lambda function: function.name,
}


def _attribute(value: Any) -> Any:
    """Return an attribute's value as a Python value."""
    kind = value.WhichOneof("value")
    if kind != "list":
        content = None if kind is None else getattr(value, kind)
        convert = _CONVERTERS.get(kind)
        return content if convert is None else convert(content)
    for field, items in value.list.ListFields():
        convert = _CONVERTERS.get(field.name)
        return list(items) if convert is None else [convert(item) for item in items]
    return []

"""The graph of a Keras model: its inputs, its outputs, and the calls of layers between them, in order.

Inputs are symbolic tensors that no layer gives; a layer stands for each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.ipu.keras.pipeline_stages import row
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.array_functions import cast, tensor
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import as_last
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node, mapped_tensors, post_order, tensors


def Input(  # noqa: N802 - Keras' name
    shape: Any = None,
    batch_size: int | None = None,
    name: str | None = None,
    dtype: Any = None,
    batch_shape: Any = None,
    **kwargs: Any,
) -> KerasTensor:
    """Return a symbolic tensor (batch, *shape) that a model can begin with; the data says how large the batch is.

    Raises ProgramTypeError for unknown arguments or ones of other types, ProgramError for no shape or one that
    is not known in full.
    """
    for argument in kwargs:
        checks.wrong_type("Input", "shape, batch_size, name, dtype and batch_shape", argument)
    if batch_size is not None:
        checks.whole("batch_size", batch_size, 1)
    if batch_shape is not None:
        shape = tuple(batch_shape)[1:]
    if shape is None:
        checks.wrong_value("shape", "sizes of all axes but the batch", shape)
    axes: Sequence[Any] = shape if isinstance(shape, list | tuple) else (shape,)
    if None in axes:
        checks.wrong_value("shape", "sizes of all axes but the batch, as programs for IPUs have", shape)
    sizes = tuple(checks.whole("shape", axis, 1) for axis in axes)
    kind = np.dtype(np.float32) if dtype is None else checks.dtype("dtype", dtype, "biuf")
    return KerasTensor((None, *sizes), kind, name="" if name is None else checks.text("name", name))


class InputLayer(Layer):
    """Keras ``InputLayer``: the input of a Sequential model among its layers."""

    is_plain = True

    def __init__(
        self, input_shape: Any = None, batch_size: int | None = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        """Take the shape without the batch; raises as Input does."""
        shape = kwargs.pop("batch_input_shape", None)
        super().__init__(**kwargs)
        self.tensor = Input(input_shape, batch_size, self._explicit_name, dtype, shape)

    def get_config(self) -> dict[str, Any]:
        """Return its shape with the batch, dtype and name."""
        shape, dtype = self.tensor.shape, self.tensor.dtype.name
        return {"batch_input_shape": shape, "dtype": dtype, "name": self.name}

    @property
    def input(self) -> Any:
        """The tensor that it stands for."""
        return self.tensor

    output = input


_BINARY: Final = ("add", "sub", "mul", "truediv", "pow", "matmul")
_OTHERS: Final = ("neg", "abs", "getitem")


class Operator(Layer):
    """An operator of Python as a layer, by the name that it has in the module ``operator``."""

    def __init__(self, operator: str, **kwargs: Any) -> None:
        """Take the operator's name, which is that of the layer's kind too."""
        super().__init__(**kwargs)
        self.kind = operator  # type: ignore[misc]
        self._function = _FUNCTIONS[operator]

    def call(self, inputs: Any, *args: Any) -> Any:
        """Return what the operator gives."""
        return self._function(inputs, *args)

    def get_config(self) -> dict[str, Any]:
        """Return the operator's name too."""
        return super().get_config() | {"operator": self.kind}


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {name: getattr(operator, name) for name in (*_BINARY, *_OTHERS)}


def _method(name: str, reflected: bool = False) -> Callable[..., Any]:
    def method(self: KerasTensor, *others: Any) -> Any:
        return Operator(name)(*(reversed((self, *others)) if reflected else (self, *others)))

    return method


for _name in _BINARY:
    setattr(KerasTensor, f"__{_name}__", _method(_name))
    setattr(KerasTensor, f"__r{_name}__", _method(_name, reflected=True))
for _name in _OTHERS:
    setattr(KerasTensor, f"__{_name}__", _method(_name))


#: Values of tensors, by these tensors' identity.
Values = dict[int, Any]


class Graph:
    """The calls of layers between symbolic tensors.

    Attributes:
        inputs, outputs: structures of symbolic tensors.
        nodes: the calls, each after those whose tensors it takes.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        """Find the calls; raises ProgramError where ``outputs`` depend on other inputs."""
        self.inputs, self.outputs = inputs, outputs
        self.nodes = post_order(outputs)
        known = {id(item) for item in tensors(inputs)}
        for item in tensors((outputs, [(node.args, dict(node.kwargs)) for node in self.nodes])):
            if item.node is None and id(item) not in known:
                raise ProgramError(
                    f"Graph disconnected: cannot obtain value for tensor {item!r}, which is no input of the model"
                )

    @property
    def layers(self) -> list[Layer]:
        """The layers that are called, each once, in the order of their first calls."""
        return list({id(node.layer): node.layer for node in self.nodes}.values())

    def input_values(self, values: Any) -> Values:
        """Return the values of the inputs, each in the dtype of its tensor.

        ``values`` are in the structure of the inputs, or in a list in their order, or in a dictionary by their names.
        Raises ProgramError for another number of them, or other shapes.
        """
        expected = list(tensors(self.inputs))
        result = _flat(values, expected)
        if len(result) != len(expected):
            raise ProgramError(f"expected {len(expected)} inputs of the model, got {len(result)}")
        return {id(item): _fitting(value, item) for item, value in zip(expected, result, strict=True)}

    def run(self, values: Values, nodes: Iterable[Node], training: bool | None) -> None:
        """Make the calls of ``nodes``, and put what they give among the ``values``."""
        for node in nodes:
            explicit = node.kwargs.get("training")
            with as_last(node.outputs is self.outputs):
                values.update(node.run(values, training=training if explicit is None else explicit))

    def result(self, values: Values) -> Any:
        """Return the outputs."""
        return mapped_tensors(lambda item: values[id(item)], self.outputs)

    def __call__(self, inputs: Any, training: bool | None = None) -> Any:
        """Return the outputs for values of the inputs."""
        values = self.input_values(inputs)
        self.run(values, self.nodes, training)
        return self.result(values)


def _flat(values: Any, expected: list[KerasTensor]) -> list[Any]:
    if isinstance(values, Mapping):
        if all(item.name in values for item in expected):
            return [values[item.name] for item in expected]
        return list(values.values())
    return list(values) if isinstance(values, tuple | list) else [values]


def _fitting(value: Any, reference: KerasTensor) -> Any:
    """Return a value in the dtype of an input; raises ProgramError for another shape."""
    result = tensor(value)
    if tuple(np.shape(result)[1:]) != reference.shape[1:]:
        name = f" {reference.name!r}" if reference.name else ""
        raise ProgramError(
            f"input{name} of the model: expected shape {reference.shape}, found shape={tuple(np.shape(result))}"
        )
    return result if result.dtype == reference.dtype else cast(result, reference.dtype)


def summary_lines(model: Any, line_length: int) -> Iterator[str]:
    """Yield the lines, as Keras has them."""
    ends = [int(line_length * share) for share in (0.45, 0.85, 1.0)]
    yield f'Model: "{model.name}"'
    yield "_" * line_length
    yield row(("Layer (type)", "Output Shape", "Param #"), ends)
    yield "=" * line_length
    for layer in model.layers:
        cells = (f"{layer.name} ({type(layer).__name__})", _shape(model, layer), f"{layer.count_params()}")
        yield row(cells, ends)
    yield "=" * line_length
    trained, untrained = (
        sum(int(np.prod(weight.shape)) for weight in weights)
        for weights in (model.trainable_weights, model.non_trainable_weights)
    )
    yield f"Total params: {trained + untrained:,}"
    yield f"Trainable params: {trained:,}"
    yield f"Non-trainable params: {untrained:,}"
    yield "_" * line_length


def _shape(model: Any, layer: Any) -> str:
    """Return the shape that a layer gives in this model."""
    if isinstance(layer, InputLayer):
        return str([layer.tensor.shape])
    nodes = [] if model.graph is None else [node for node in model.graph.nodes if node.layer is layer]
    if not nodes:
        return "multiple"
    value: Any = nodes[0].outputs
    result = value.shape if isinstance(value, KerasTensor) else mapped_tensors(lambda item: item.shape, value)
    return str(result)

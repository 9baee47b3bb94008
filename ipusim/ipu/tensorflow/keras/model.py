"""Keras' models: layers together, as a graph of calls or as a class with a ``call`` of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ipusim.api import functions
from ipusim.base.errors import IpusimError, ProgramError, UnsupportedProgramError
from ipusim.ipu.keras.extensions import FunctionalExtension, ModelExtension
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.function_body import in_strategy
from ipusim.ipu.runtime.names import model_name
from ipusim.ipu.runtime.per_example_loss import concrete
from ipusim.ipu.runtime.structures import mapped
from ipusim.ipu.tensorflow.keras.described import described, plain
from ipusim.ipu.tensorflow.keras.graph import Graph, InputLayer, summary_lines
from ipusim.ipu.tensorflow.keras.layer import Layer, adopt_all
from ipusim.ipu.tensorflow.keras.saving import load, save
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, is_symbolic, one_or_all, tensors
from ipusim.ipu.tensorflow.keras.trainer import Trainer
from ipusim.ipu.tensorflow.keras.utils import custom_object_scope
from ipusim.ipu.tensorflow.keras.whole_models import copied_graph, graph_config, graph_of, options_config, set_options
from ipusim.ipu.tensorflow.variables import free_name, on_host


class Model(Trainer, ModelExtension, Layer):
    """A model.

    ``Model(inputs, outputs)`` is a functional one; a subclass says in ``call`` what it computes with the layers that
    are its attributes. It can be called in a stage's function or a loop's body, and on arrays of the host.
    """

    kind = "model"
    #: Whether its ``call`` is its own, and not the graph of its layers or their order.
    is_subclass: ClassVar[bool] = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a functional model where inputs and outputs are given."""
        if cls is Model and (len(args) >= 2 or "outputs" in kwargs):
            return super().__new__(Functional)
        return super().__new__(cls)

    def __init__(self, inputs: Any = None, outputs: Any = None, name: str | None = None, **kwargs: Any) -> None:
        """Take symbolic inputs and outputs, or nothing in a subclass; and a name.

        Raises ProgramError for outputs that depend on other inputs.
        """
        super().__init__(name=name, **kwargs)
        self.__dict__["_made_in_strategy"] = in_strategy()
        self._explicit_name = self._explicit_name or model_name(self.kind)
        self._graph: Graph | None = None
        self._untraceable: Exception | None = None
        if inputs is not None or outputs is not None:
            if not is_symbolic(inputs) or not is_symbolic(outputs):
                raise ProgramError("Model: expected symbolic tensors as inputs and outputs, as keras.Input gives them")
            self._connect(Graph(inputs, outputs))

    def _connect(self, graph: Graph) -> None:
        """Take over the inputs, outputs and layers of a graph."""
        self._graph = graph
        self._input_layers = [_input_layer(tensor, number) for number, tensor in enumerate(tensors(graph.inputs), 1)]
        self._adopt()
        self.built = True
        self._take_scopes()

    def _adopt(self) -> None:
        """Name all layers, those that are called first, and say from where what they hold is drawn."""
        if not self.in_model:
            self._home = ""
        adopt_all(list(self.sublayers()), f"{self.path}/")

    def adopt(self, home: str, name: str, places: Iterator[int]) -> None:
        """Join another model, whose names and positions go before its own."""
        self._home, self.in_model = home, True
        own = list(self.sublayers())
        for item in own:
            item.in_model = False
        adopt_all(own, f"{self.path}/", places)

    def sublayers(self) -> Iterator[Layer]:
        """Yield the layers of the graph, and those that are attributes."""
        layers = [*([] if self._graph is None else self._graph.layers), *super().sublayers()]
        yield from {id(layer): layer for layer in layers if not isinstance(layer, InputLayer)}.values()

    @property
    def graph(self) -> Graph | None:
        """Its calls, where they are known."""
        return self._graph

    @property
    def layers(self) -> list[Layer]:
        """Its layers in the order in which they are called; those of its inputs first."""
        return [*getattr(self, "_input_layers", ()), *self.sublayers()]

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Return a layer by its name or its place among the layers; raises ProgramError where there is none."""
        if index is not None:
            if not -len(self.layers) <= index < len(self.layers):
                raise ProgramError(
                    f"Was asked to retrieve layer at index {index} but model only has {len(self.layers)} layers."
                )
            return self.layers[index]
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise ProgramError(f"No such layer: {name}. Existing layers are: {[layer.name for layer in self.layers]}.")

    @property
    def inputs(self) -> list[KerasTensor]:
        """The symbolic inputs."""
        return [] if self._graph is None else list(tensors(self._graph.inputs))

    @property
    def outputs(self) -> list[KerasTensor]:
        """The symbolic outputs."""
        return [] if self._graph is None else list(tensors(self._graph.outputs))

    def output_names_of(self, outputs: Any) -> tuple[str, ...]:
        """Return the names of outputs: those of a dictionary, of the layers that give them, or numbers."""
        if isinstance(outputs, dict):
            return tuple(outputs)
        several = outputs if isinstance(outputs, list | tuple) else [outputs]
        if self._graph is None:
            return tuple(f"output_{number}" for number in range(1, len(several) + 1))
        result: list[str] = []
        for output in self.outputs:
            name = output.node.layer.name if output.node is not None else output.name
            result.append(free_name(name, result))
        return tuple(result)

    @property
    def input(self) -> Any:
        """Its symbolic input, or a list of several."""
        return one_or_all(self.inputs)

    @property
    def output(self) -> Any:
        """Its symbolic output, or a list of several."""
        return one_or_all(self.outputs)

    @property
    def input_shape(self) -> Any:
        """The shape of its input, or a list of those of several."""
        return one_or_all([input_.shape for input_ in self.inputs])

    @property
    def output_shape(self) -> Any:
        """The shape of its output, or a list of those of several."""
        return one_or_all([output.shape for output in self.outputs])

    def build(self, input_shape: Any) -> None:
        """Make the weights, for inputs of this shape or these, each with None for the batch; or keras.Input."""
        if self._graph is None:
            self._trace(_symbolic(input_shape, self._weight_dtype))
        self.built = True

    def _trace(self, inputs: Any) -> None:
        """Find the graph behind ``call``, if it can be called on symbolic tensors, and name the layers."""
        try:
            outputs = self.call(inputs)
            graph = Graph(inputs, outputs) if is_symbolic(outputs) else None
        except (IpusimError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
            self._untraceable, graph = error, None
        self._graph = graph
        for number, tensor in enumerate(tensors(inputs), 1):
            if tensor.input_layer is None:
                _input_layer(tensor, number)
        self._adopt()
        if graph is not None:
            self._take_scopes()

    def call(self, inputs: Any, training: bool | None = None, mask: None = None) -> Any:
        """Return the model's outputs; a subclass defines them."""
        if self._graph is None:
            raise UnsupportedProgramError("When subclassing the `Model` class, you should implement a `call()` method.")
        return self._graph(inputs, training)

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if not functions.inside():
            with on_host():
                value = self._run(inputs, *args, training=training, **kwargs)
            return mapped(concrete, value)
        self._build_for(inputs)
        return self._call(inputs, *args, training=training, **kwargs)

    def _build_for(self, inputs: Any) -> None:
        if not self.built:
            self.build(mapped(_symbolic_like, inputs))
            self.built = True

    def save_weights(self, filepath: str | Path, overwrite: bool = True, save_format: str | None = None) -> None:
        """Write all weights to a file, NumPy's archive (npz) whatever its name; whole or not at all.

        Raises ProgramTypeError for what is no path, ProgramError before there are weights, and for a file that must
        not be overwritten; OutputError for one that cannot be written.
        """
        self.check_built("save")
        save(Path(checks.path("filepath", filepath)), self.weights, f"{self.path}/", overwrite=overwrite)

    def load_weights(self, filepath: str | Path, by_name: bool = False) -> None:
        """Set all weights to those of a file, in their order or by their names; all or none.

        Raises ProgramTypeError for what is no path, ProgramError before there are weights, for a file that cannot be
        read, and for other weights.
        """
        self.check_built("load")
        load(Path(checks.path("filepath", filepath)), self.weights, f"{self.path}/", by_name=by_name)

    def check_built(self, verb: str) -> None:
        """Refuse to save or load before there are weights; raises ProgramError."""
        if not self.built:
            raise ProgramError(
                f"Unable to {verb} weights of a model that has not created its variables yet. Call the Model first, "
                "`build()` it, or train it."
            )

    def get_config(self) -> dict[str, Any]:
        """Return what a functional or a sequential model is made of; raises UnsupportedProgramError for another."""
        raise UnsupportedProgramError(
            f"Saving the model {self.name} requires the model to be a Functional model or a Sequential model. It does "
            "not work for subclassed models, because such models are defined via the body of a Python method, which "
            "isn't safely serializable. Consider using `save_weights`."
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Return the model of what ``get_config`` gave, with weights drawn anew; raises as making one does."""
        with custom_object_scope(custom_objects):
            return cls(**config) if cls is not Model else Functional.from_config(config)

    def to_json(self, **kwargs: Any) -> str:
        """Return class and configuration as a text; ``kwargs`` are of json.dumps. Raises as ``get_config`` does."""
        return json.dumps(plain(described(self), self.name), **kwargs)

    def save(
        self,
        filepath: str | Path,
        overwrite: bool = True,
        include_optimizer: bool = True,
        save_format: str | None = None,
        signatures: None = None,
        options: None = None,
        save_traces: bool = True,
    ) -> None:
        """Write the model to one file, which ``keras.models.load_model`` reads; raises as ``save_model`` does."""
        from ipusim.ipu.tensorflow.keras.whole_models import save_model  # noqa: PLC0415 - only saving needs it

        save_model(self, filepath, overwrite, include_optimizer, save_format, signatures, options, save_traces)

    def copied(self) -> Any:
        """Return a model of new layers with the same arguments."""
        return super().copied() if self.is_subclass else self.copied_with(lambda layer: layer.copied())

    def copied_with(self, made: Callable[[Layer], Layer]) -> Any:
        """Return a model with a layer ``made`` of each of its own; a functional or sequential one says how."""
        raise NotImplementedError

    def summary(
        self, line_length: int | None = None, positions: Any = None, print_fn: Callable[[str], object] | None = None
    ) -> None:
        """Print the layers with the shapes that they give and their weights; raises ProgramError before there are."""
        if not self.built:
            raise ProgramError(
                "This model has not yet been built. Build the model first by calling `build()` or by calling the model "
                "on a batch of data."
            )
        for line in summary_lines(self, line_length or 65):
            (print_fn or print)(line)


class Functional(FunctionalExtension, Model):
    """A model that is a graph of calls of layers."""

    kind = "model"
    is_subclass = False

    def get_config(self) -> dict[str, Any]:
        """Return name, layers, their calls, inputs and outputs, and how it runs on IPUs."""
        assert self._graph is not None
        return {
            "name": self.name,
            **graph_config(self._graph, self._input_layers),
            "ipu_options": options_config(self),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Return the model of what ``get_config`` gave, with weights drawn anew; raises as making one does."""
        with custom_object_scope(custom_objects):
            inputs, outputs = graph_of(config)
        result = cls(inputs=inputs, outputs=outputs, name=config["name"])
        set_options(result, config["ipu_options"])
        return result

    def copied_with(self, made: Callable[[Layer], Layer]) -> Functional:
        """Return a model of the same calls, with a layer ``made`` of each of its own."""
        assert self._graph is not None
        inputs, outputs = copied_graph(self._graph, made)
        result = type(self)(inputs, outputs, name=self.name)
        set_options(result, options_config(self))
        return result


def _input_layer(value: KerasTensor, number: int) -> InputLayer:
    result = InputLayer(batch_input_shape=value.shape, dtype=value.dtype, name=value.name or f"input_{number}")
    result.tensor = value
    value.input_layer = result
    return result


def _symbolic_like(array: Any) -> KerasTensor:
    """Return a symbolic tensor for an array in the dtype in which a model takes it: float32 for float64, as Keras."""
    kind = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    return KerasTensor((None, *np.shape(array)[1:]), np.float32 if kind == np.float64 else kind)


def _symbolic(shapes: Any, dtype: Any) -> Any:
    """Return symbolic tensors of the shapes in a structure; those that are there already stay."""
    if is_symbolic(shapes):
        return shapes
    if isinstance(shapes, dict):
        return {name: _symbolic(shape, dtype) for name, shape in shapes.items()}
    if isinstance(shapes, tuple | list) and shapes and isinstance(shapes[0], tuple | list):
        return [_symbolic(shape, dtype) for shape in shapes]
    return KerasTensor((None, *tuple(shapes)[1:]), dtype)

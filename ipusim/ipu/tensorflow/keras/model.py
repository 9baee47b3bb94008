"""Keras' models: layers together, as a graph of calls or as a class with a ``call`` of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ipusim.errors import IpusimError, ProgramError, UnsupportedProgramError
from ipusim.ipu.each_loss import concrete
from ipusim.ipu.keras.extensions import FunctionalExtension, ModelExtension
from ipusim.ipu.tensorflow.keras.graph import Graph
from ipusim.ipu.tensorflow.keras.input_layer import InputLayer
from ipusim.ipu.tensorflow.keras.layer import Layer, adopt_all
from ipusim.ipu.tensorflow.keras.model_names import model_name
from ipusim.ipu.tensorflow.keras.saving import load, save
from ipusim.ipu.tensorflow.keras.summary import summary_lines
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, is_symbolic, mapped_arrays, tensors
from ipusim.ipu.tensorflow.keras.trainer import Trainer
from ipusim.ipu.tensorflow.keras.weight import on_host
from ipusim.model.functions.variables import inside


class Model(Trainer, ModelExtension, Layer):
    """A model.

    ``Model(inputs, outputs)`` is a functional one; a subclass says in ``call`` what it computes with the layers that
    are its attributes. It can be called in a stage's function or a loop's body, and on arrays of the host.
    """

    kind = "model"

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
        self._given_name = self._given_name or model_name(self.kind)
        self._graph: Graph | None = None
        self._untraceable: Exception | None = None
        if inputs is not None or outputs is not None:
            if not is_symbolic(inputs) or not is_symbolic(outputs):
                raise ProgramError("Model: expected symbolic tensors as inputs and outputs, as keras.Input gives them")
            self._connect(Graph(inputs, outputs))

    def _connect(self, graph: Graph) -> None:
        """Be the model of a graph."""
        self._graph = graph
        self._input_layers = [_input_layer(each, place) for place, each in enumerate(tensors(graph.inputs), 1)]
        self._adopt()
        self.built = True
        self._take_scopes()

    def _adopt(self) -> None:
        """Name all layers, those that are called first, and say from where what they hold is drawn."""
        if not self.in_model:
            self._home = ""
        adopt_all(list(self.sublayers()), f"{self.path}/")

    def adopt(self, home: str, name: str, places: Iterator[int]) -> None:
        """Be in another model, whose names and places go before its own."""
        self._home, self.in_model = home, True
        own = list(self.sublayers())
        for each in own:
            each.in_model = False
        adopt_all(own, f"{self.path}/", places)

    def sublayers(self) -> Iterator[Layer]:
        """Yield the layers of the graph, and those that are attributes."""
        seen: set[int] = set()
        for each in [*([] if self._graph is None else self._graph.layers), *super().sublayers()]:
            if id(each) not in seen and not isinstance(each, InputLayer):
                seen.add(id(each))
                yield each

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
        for each in self.layers:
            if each.name == name:
                return each
        raise ProgramError(f"No such layer: {name}. Existing layers are: {[each.name for each in self.layers]}.")

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
        found: list[str] = []
        for each in self.outputs:
            name = each.node.layer.name if each.node is not None else each.name
            numbers = (name if not number else f"{name}_{number}" for number in count())
            found.append(next(numbered for numbered in numbers if numbered not in found))
        return tuple(found)

    @property
    def input_shape(self) -> Any:
        """The shape of its input, or a list of those of several."""
        return _one([each.shape for each in self.inputs])

    @property
    def output_shape(self) -> Any:
        """The shape of its output, or a list of those of several."""
        return _one([each.shape for each in self.outputs])

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
        for place, each in enumerate(tensors(inputs), 1):
            if each.input_layer is None:
                _input_layer(each, place)
        self._adopt()
        if graph is not None:
            self._take_scopes()

    def call(self, inputs: Any, training: bool | None = None, mask: None = None) -> Any:
        """Return what the model computes; a subclass says what that is."""
        if self._graph is None:
            raise UnsupportedProgramError("When subclassing the `Model` class, you should implement a `call()` method.")
        return self._graph(inputs, training)

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        if not inside():
            with on_host():
                given = self._run(inputs, *args, training=training, **kwargs)
            return mapped_arrays(concrete, given)
        self._build_for(inputs)
        return self._call(inputs, *args, training=training, **kwargs)

    def _build_for(self, inputs: Any) -> None:
        if not self.built:
            self.build(mapped_arrays(_symbolic_like, inputs))
            self.built = True

    def save_weights(self, filepath: str | Path, overwrite: bool = True, save_format: str | None = None) -> None:
        """Write all weights to a file, NumPy's archive (npz) whatever its name; whole or not at all.

        Raises ProgramError before there are weights, and for a file that must not be overwritten; OutputError for one
        that cannot be written.
        """
        self._check_built("save")
        save(Path(filepath), self.weights, f"{self.path}/", overwrite=overwrite)

    def load_weights(self, filepath: str | Path, by_name: bool = False) -> None:
        """Set all weights to those of a file, in their order or by their names; all or none.

        Raises ProgramError before there are weights, for a file that cannot be read, and for other weights.
        """
        self._check_built("load")
        load(Path(filepath), self.weights, f"{self.path}/", by_name=by_name)

    def _check_built(self, verb: str) -> None:
        if not self.built:
            raise ProgramError(
                f"Unable to {verb} weights of a model that has not created its variables yet. Call the Model first, "
                "`build()` it, or train it."
            )

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


def _input_layer(given: KerasTensor, place: int) -> InputLayer:
    found = InputLayer(batch_input_shape=given.shape, dtype=given.dtype, name=given.name or f"input_{place}")
    found.tensor = given
    given.input_layer = found
    return found


def _symbolic_like(array: Any) -> KerasTensor:
    """Return a symbolic tensor for an array in the dtype in which a model takes it: float32 for float64, as Keras."""
    kind = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    return KerasTensor((None, *np.shape(array)[1:]), np.float32 if kind == np.float64 else kind)


def _symbolic(shapes: Any, dtype: Any) -> Any:
    """Return symbolic tensors of the shapes in a structure; those that are there already stay."""
    if is_symbolic(shapes):
        return shapes
    if isinstance(shapes, dict):
        return {name: _symbolic(each, dtype) for name, each in shapes.items()}
    if isinstance(shapes, tuple | list) and shapes and isinstance(shapes[0], tuple | list):
        return [_symbolic(each, dtype) for each in shapes]
    return KerasTensor((None, *tuple(shapes)[1:]), dtype)


def _one(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else found

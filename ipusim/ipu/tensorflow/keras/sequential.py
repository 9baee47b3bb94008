"""Keras' sequential model: layers one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.keras.extensions import SequentialExtension
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.keras.described import described, revived
from ipusim.ipu.tensorflow.keras.graph import Graph, Input, InputLayer
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.model import Model
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor
from ipusim.ipu.tensorflow.keras.utils import custom_object_scope
from ipusim.ipu.tensorflow.keras.whole_models import options_config, set_options


class Sequential(SequentialExtension, Model):
    """Layers one after the other, each with one input and one output.

    Its weights are made when its input's shape is known: from an Input at its beginning, from ``input_shape`` of its
    first layer, by ``build``, or when it is first called. As in Keras, a layer that comes twice is applied twice where
    the shape is known from the beginning, and else once.
    """

    kind = "sequential"
    is_subclass = False

    def __init__(self, layers: Sequence[Any] | None = None, name: str | None = None) -> None:
        """Take the layers, and a name; raises ProgramTypeError for what is no layer, ProgramError for names twice."""
        super().__init__(name=name)
        self._stack: list[Layer] = []
        self._input: KerasTensor | None = None
        if layers is not None and not isinstance(layers, list | tuple):
            checks.wrong_type("layers", "a list of layers", layers)
        for layer in layers or ():
            self._push(layer)
        self._rebuild()

    def add(self, layer: Any) -> None:
        """Put a layer at the end; raises as making a model does."""
        self._push(layer)
        self._rebuild()

    def pop(self) -> None:
        """Take the last layer off; raises ProgramTypeError where there is none."""
        if not self._stack:
            checks.wrong_type("pop", "layers in the model", self._stack)
        self._stack.pop()
        self._rebuild()

    def _push(self, layer: Any) -> None:
        if isinstance(layer, KerasTensor | InputLayer):
            if self._stack:
                raise ProgramError("Sequential: expected an Input before all layers, got one behind some")
            self._input = layer.tensor if isinstance(layer, InputLayer) else layer
            return
        checks.instance("layers", layer, Layer, "layers such as keras.layers.Dense(10)")
        if not self._stack and self._input is None and layer._explicit_input_shape is not None:
            self._input = Input(batch_shape=layer._explicit_input_shape, dtype=layer._dtype)
        self._stack.append(layer)

    def _rebuild(self) -> None:
        """Connect the layers, where the shape of the first one's input is known; they forget their calls before."""
        for node in () if self._graph is None else self._graph.nodes:
            node.layer.inbound_nodes = [
                inbound_node for inbound_node in node.layer.inbound_nodes if inbound_node is not node
            ]
        self._graph, self.built = None, False
        if self._input is not None and self._stack:
            self.build(self._input)
        else:
            self._adopt()

    def _take_scopes(self) -> None:
        """Leave stages to set_pipeline_stage_assignment, as Graphcore's."""

    def sublayers(self) -> Iterator[Layer]:
        """Yield the layers in order, each once."""
        yield from dict.fromkeys(getattr(self, "_stack", ()))

    @property
    def layers(self) -> list[Layer]:
        """The layers in order, each once, without that of the input."""
        return list(self.sublayers())

    def get_config(self) -> dict[str, Any]:
        """Return name, layers, that of the input first where it is known, and how it runs on IPUs."""
        inputs = getattr(self, "_input_layers", ()) if self._input is not None else ()
        return {
            "name": self.name,
            "layers": [described(item) for item in (*inputs, *self._stack)],
            "ipu_options": options_config(self),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Return the model of what ``get_config`` gave, with weights drawn anew; raises as making one does."""
        with custom_object_scope(custom_objects):
            result = cls([revived("layer", item) for item in config["layers"]], name=config["name"])
        set_options(result, config["ipu_options"])
        return result

    def copied_with(self, made: Callable[[Layer], Layer]) -> Sequential:
        """Return a model with a layer ``made`` of each of its own."""
        value = self._input
        begin = [] if value is None else [Input(batch_shape=value.shape, dtype=value.dtype, name=value.name or None)]
        result = type(self)([*begin, *(made(item) for item in self._stack)], name=self.name)
        set_options(result, options_config(self))
        return result

    def _trace(self, inputs: Any) -> None:
        if not isinstance(inputs, KerasTensor):
            raise ProgramError(
                "Layers in a Sequential model should only have a single input, but we received "
                f"{inputs!r}. Consider rewriting this model with the Functional API."
            )
        # Keras appends each layer to those before where the input is known; else it goes over the layers that it lists.
        layers = self.layers if self._input is None else self._stack
        self._input = x = inputs
        for layer in layers:
            x = layer(x)
        if not self._stack:
            raise ProgramError(f"Sequential model {self.name} cannot be built, as it has no layers: expected one")
        self._connect(Graph(inputs, x))

"""Attach to a tf_keras model the object with its execution options and pipeline stages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.keras.extensions import FunctionalExtension, ModelExtension, SequentialExtension
from ipusim.ipu.traced.keras.stages import ModelCalls, symbolic_calls

tf = load()


def functional() -> Any:
    """Return tf_keras' class of functional models."""
    return import_module("tf_keras.src.engine.functional").Functional


class OfModel:
    """Base class of extensions: options and stages that Graphcore adds to a tf_keras model.

    Attributes:
        model: extended model.
        name: name of the model.
        layers: layers of the model.
        model_calls: calls of a subclass of Model; None before the model is built.
    """

    def __init__(self, model: Any) -> None:
        """Set the model."""
        super().__init__()
        self.model = model
        self.model_calls: ModelCalls | None = None

    @property
    def name(self) -> str:
        """Name of the model."""
        name: str = self.model.name
        return name

    @property
    def layers(self) -> list[Any]:
        """Layers of the model."""
        return list(self.model.layers)

    @property
    def graph(self) -> Any:
        """Calls of the model's layers; None before a subclass of Model is built."""
        return symbolic_calls(self.model, None) if self.model._is_graph_network else self.model_calls

    @property
    def stages(self) -> int:
        """Number of pipeline stages; 1 for a model that is not pipelined."""
        assigned = self.__dict__.get("_assigned") or []
        return 1 + max((assignment.pipeline_stage for assignment in assigned), default=0)

    def see(self, batch: Any) -> None:
        """Derive stages from the first batch of an execution, or its ``tf.TensorSpec``; does nothing by default."""


class OfSequential(OfModel, SequentialExtension):
    """Options and stages of a Sequential model."""


class OfFunctional(OfModel, FunctionalExtension):
    """Options and stages of a functional model."""


class OfSubclass(OfModel, ModelExtension):
    """Options and stages of a subclass of Model, with calls known after its build."""

    def build(self, element: Any) -> None:
        """Record the model's layer calls symbolically, and assign their scopes' stages."""
        if self.model_calls is None:
            self.model_calls = symbolic_calls(self.model, element)
            self._take_scopes()

    def see(self, batch: Any) -> None:
        """Build a pipelined model if the batch's shapes are known."""
        options = self.options
        if options.pipelining or options.device_mapping or options.pipelining_steps:
            x, _, _ = tf.keras.utils.unpack_x_y_sample_weight(batch)
            forms = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), x)
            if all(form.shape[1:].is_fully_defined() for form in tf.nest.flatten(forms)):
                self.build(forms)

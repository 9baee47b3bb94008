"""Which pipeline stage each layer of a Keras model is in, or each call of one."""

from __future__ import annotations

from typing import Any


class _Assignment:
    """A layer, or a call of it, and its stage."""

    def __init__(self, layer: Any, pipeline_stage: int | None = None) -> None:
        """Take both; None for no stage yet."""
        self._layer, self._pipeline_stage = layer, pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """The stage; None where it has not been assigned to one."""
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, value: int | None) -> None:
        self._pipeline_stage = value


class SequentialLayerPipelineStageAssignment(_Assignment):
    """The stage of a layer in a Sequential model."""

    def __str__(self) -> str:
        """Say layer and stage."""
        return f"Layer: {self.layer.name} is assigned to pipeline stage: {self.pipeline_stage}"


class _CallAssignment(_Assignment):
    """The stage of one call of a layer, which may be called several times."""

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None) -> None:
        """Take the layer, which of its calls it is, counted from 0, and the stage, None for none yet."""
        super().__init__(layer, pipeline_stage)
        self._node_index = node_index

    @property
    def node_index(self) -> int:
        """Which call of the layer it is."""
        return self._node_index

    @property
    def inbound_layers(self) -> Any:
        """The layer whose tensor the call takes, or a list of several: to know it by."""
        return self.layer.inbound_nodes[self.node_index].inbound_layers

    def __str__(self) -> str:
        """Say layer, call and stage."""
        return (
            f"Layer: {self.layer.name} (node index {self.node_index}) is assigned to pipeline stage: "
            f"{self.pipeline_stage}"
        )


class FunctionalLayerPipelineStageAssignment(_CallAssignment):
    """The stage of a call of a layer in a functional model."""


class ModelLayerPipelineStageAssignment(_CallAssignment):
    """The stage of a call of a layer in a subclass of Model."""

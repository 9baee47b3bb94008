"""Assign Keras layers and their calls to pipeline stages, by scopes and assignments."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks

#: Stage of the current scope; None outside of scopes.
_STAGE: Final[ContextVar[int | None]] = ContextVar("pipeline_stage", default=None)


def pipeline_stage() -> int | None:
    """Return the stage of the current scope; None outside of scopes."""
    return _STAGE.get()


class PipelineStage:
    """Scope that assigns Keras layers, and calls of Keras layers, to a pipeline stage.

    A call's scope takes precedence over the scope of the layer's creation.
    """

    def __init__(self, stage: int) -> None:
        """Set the stage's number; raises ProgramTypeError and ProgramError for an invalid number."""
        self._stage = checks.whole("stage", stage)
        self._token: Token[int | None] | None = None

    def __enter__(self) -> PipelineStage:
        """Begin the scope; raises ProgramError inside another scope."""
        if _STAGE.get() is not None:
            raise ProgramError(
                f"PipelineStage: expected no other PipelineStage around it, got {self._stage} in {_STAGE.get()}"
            )
        self._token = _STAGE.set(self._stage)
        return self

    def __exit__(self, *_: object) -> None:
        """End the scope."""
        assert self._token is not None
        _STAGE.reset(self._token)


class _Assignment:
    """Assignment of a layer, or of a call of a layer, to a stage."""

    def __init__(self, layer: Any, pipeline_stage: int | None = None) -> None:
        """Set layer and stage; None for no stage yet."""
        self._layer, self._pipeline_stage = layer, pipeline_stage

    @property
    def layer(self) -> Any:
        """Assigned layer."""
        return self._layer

    @property
    def pipeline_stage(self) -> int | None:
        """Assigned stage; None if not yet assigned."""
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, value: int | None) -> None:
        self._pipeline_stage = value


class SequentialLayerPipelineStageAssignment(_Assignment):
    """A layer's stage in a Sequential model."""

    def __str__(self) -> str:
        """Return a text with layer and stage."""
        return f"Layer: {self.layer.name} is assigned to pipeline stage: {self.pipeline_stage}"


class _CallAssignment(_Assignment):
    """Stage of a single call of a layer."""

    def __init__(self, layer: Any, node_index: int, pipeline_stage: int | None = None) -> None:
        """Set layer, index of the call from 0, and stage; None for no stage yet."""
        super().__init__(layer, pipeline_stage)
        self._node_index = node_index

    @property
    def node_index(self) -> int:
        """Index of the call among the layer's calls."""
        return self._node_index

    @property
    def inbound_layers(self) -> Any:
        """Layer, or list of layers, whose tensors the call takes."""
        return self.layer.inbound_nodes[self.node_index].inbound_layers

    def __str__(self) -> str:
        """Return a text with layer, call and stage."""
        return (
            f"Layer: {self.layer.name} (node index {self.node_index}) is assigned to pipeline stage: "
            f"{self.pipeline_stage}"
        )


class FunctionalLayerPipelineStageAssignment(_CallAssignment):
    """Stage of a layer's call in a functional model."""


class ModelLayerPipelineStageAssignment(_CallAssignment):
    """Stage of a layer's call in a subclass of Model."""


def row(cells: tuple[str, ...], ends: list[int]) -> str:
    """Return a table row, with cells cut to columns and separated by spaces."""
    result = ""
    for cell, end in zip(cells, ends, strict=True):
        result = f"{result} {cell}"[: end - 1].ljust(end)
    return result.rstrip()

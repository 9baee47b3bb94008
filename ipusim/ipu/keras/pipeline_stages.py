"""Pipeline stages of Keras' layers and of calls of them: scopes in which they are written, and assignments."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Final

from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks

#: The stage of the innermost scope; None outside of any.
_STAGE: Final[ContextVar[int | None]] = ContextVar("pipeline_stage", default=None)


def pipeline_stage() -> int | None:
    """Return the stage of the scope that the caller is in, None for none."""
    return _STAGE.get()


class PipelineStage:
    """A scope within which Keras layers, and calls of Keras layers, are assigned to a pipeline stage.

    The stage of a call goes before the one that its layer was made in.
    """

    def __init__(self, stage: int) -> None:
        """Take the stage's number; raises ProgramTypeError and ProgramError for what is none."""
        self._stage = checks.whole("stage", stage)
        self._token: Token[int | None] | None = None

    def __enter__(self) -> PipelineStage:
        """Begin the scope; raises ProgramError inside of another."""
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


def row(cells: tuple[str, ...], ends: list[int]) -> str:
    """Return the cells of a row, each cut to end at its column, with a space between them."""
    result = ""
    for cell, end in zip(cells, ends, strict=True):
        result = f"{result} {cell}"[: end - 1].ljust(end)
    return result.rstrip()
